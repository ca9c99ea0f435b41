"""One query of one run, and the worst queries: where a number comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kbeval.errors import UsageError
from kbeval.metrics.catalogue import HIGHER, refuse_neither
from kbeval.metrics.model import CONTRACT
from kbeval.metrics.names import Name, Names, once_meant
from kbeval.scoring.scorer import Scoring
from kbeval.storage.run_config import config_of
from kbeval.util.numbers import rounded
from kbeval.util.strict_json import parse
from kbeval.util.text import as_argument, did_you_mean


@dataclass(frozen=True)
class Label:
    """A label that a hit matches, or shares too little text with."""

    # Its kind (chunk, span, document or support), and the label itself.
    kind: str
    label: str
    counts: bool
    # If positions decide: the size of the common text, and of each side.
    shared: float | None
    hit_size: float | None
    label_size: float | None


@dataclass(frozen=True)
class Rule:
    """A string that an answer must or must not (`forbidden`) contain."""

    rule: str
    text: str
    is_kept: bool


@dataclass(frozen=True)
class Hit:
    """A hit as scored."""

    rank: int
    chunk_id: str | None
    doc_id: str | None
    score: float | None
    is_expected_chunk: bool
    is_expected_doc: bool
    is_support: bool
    # Its origin, as stored in the row.
    path: str | None
    # Its position: the source spans, from the row, the tables or the citation.
    spans: Sequence[Mapping[str, Any]]
    text: str | None
    labels: Sequence[Label]


@dataclass(frozen=True)
class Judgement:
    """A judge's verdict on the answer. Without a score, `why` gives the reason."""

    rubric: str
    model: str
    score: float | None
    why: str | None
    reasoning: str | None
    unsupported_claims: tuple[str, ...]


@dataclass(frozen=True)
class QueryDetail:
    """Everything that is known about one query of one run."""

    run_id: str
    query_id: str
    golden: Mapping[str, Any]
    stored: Mapping[str, Any]
    hits: Sequence[Hit]
    citations_real: Sequence[bool]
    rules: Sequence[Rule]
    scores: Mapping[str, float | None]
    error: str | None
    judgements: Sequence[Judgement] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "query_id": self.query_id,
            "golden": dict(self.golden),
            "error": self.error,
            "hits": [asdict(hit) for hit in self.hits],
            "answer": self.stored.get("answer"),
            "citations_real": list(self.citations_real),
            "rules": [asdict(rule) for rule in self.rules],
            "scores": dict(self.scores),
            **({"judgements": [asdict(one) for one in self.judgements]} if self.judgements else {}),
        }


def _judgements(scoring: Scoring, query_id: str) -> list[Judgement]:
    """The judges' verdicts on the answer."""
    if not scoring.rubrics:
        return []
    session = scoring.session
    session.need("judgements", "judged_claims")
    unsupported: dict[str, list[str]] = {}
    for rubric, claim in session.rows(
        "SELECT rubric, claim FROM judged_claims WHERE query_id = $1 AND NOT is_supported ORDER BY rubric, place",
        [query_id],
    ):
        unsupported.setdefault(rubric, []).append(claim)
    found = session.rows(
        "SELECT rubric, model, score, why, reasoning FROM judgements WHERE query_id = $1 ORDER BY rubric", [query_id]
    )
    return [
        Judgement(rubric, model, score, why, reasoning, tuple(unsupported.get(rubric, ())))
        for rubric, model, score, why, reasoning in found
    ]


def query_detail(scoring: Scoring, query_id: str, result_json: str | None) -> QueryDetail:
    """One query of the only run in the session. `result_json`: its stored row."""
    (run,) = scoring.runs
    entry = scoring.golden.get(query_id)
    if result_json is None:
        raise no_row(scoring, query_id)
    scoring.build_scores()
    session = scoring.session
    session.need("per_hit", "hit_labels", "hit_places", "rule_checks")
    columns = _columns_for_a_query(scoring)
    names = ", ".join(f'"{column.name}"' for column in columns)
    (values,) = session.rows(f"SELECT {names} FROM query_scores WHERE query_id = $1", [query_id])
    hits = session.rows(
        """
        SELECT
            r.rank, r.chunk_id, r.doc_id, r.score, r.is_expected_chunk, r.is_expected_doc, r.is_support,
            r.position, p.spans_text
        FROM per_hit AS r
        LEFT JOIN hit_places AS p ON p.result_no = r.result_no AND p.position = r.position
        WHERE r.query_id = $1 AND r.rank IS NOT NULL
        ORDER BY r.rank, r.position
        """,
        [query_id],
    )
    stored = _stored(result_json)
    labels = _labels(scoring, query_id)
    chunks = _KnownChunks(scoring, [hit[1] for hit in hits if hit[1] is not None])
    ((error,),) = session.rows("SELECT error FROM results WHERE query_id = $1", [query_id])
    return QueryDetail(
        run_id=run.run_id,
        query_id=query_id,
        golden=entry or {},
        stored=stored,
        hits=[
            chunks.hit(hit, _stored_hit(stored, position), spans_text, labels.get(position, []))
            for *hit, position, spans_text in hits
        ],
        citations_real=[
            row[0]
            for row in session.rows(
                "SELECT c.is_real FROM citation_checks AS c JOIN results AS r ON r.result_no = c.result_no"
                " WHERE r.query_id = $1 ORDER BY c.citation_no",
                [query_id],
            )
        ],
        rules=_rules(scoring, query_id),
        judgements=_judgements(scoring, query_id),
        scores={
            column.name: None if value is None else rounded(value)
            for column, value in zip(columns, values, strict=True)
        },
        error=error,
    )


def no_row(scoring: Scoring, query_id: str) -> UsageError:
    """The error for a query that has no row in the only run of the session."""
    (run,) = scoring.runs
    if scoring.golden.get(query_id) is not None:
        return UsageError(f"run {run.run_id} has no row for query {query_id!r}, although it is in the golden file")
    known = [row[0] for row in scoring.session.rows("SELECT query_id FROM results ORDER BY query_id")]
    hint = did_you_mean(query_id, known) or f"; see 'kbeval show {as_argument(run.run_id)} --worst 20'"
    return UsageError(f"run {run.run_id} has no query {query_id!r}{hint}")


def _columns_for_a_query(scoring: Scoring) -> list[Name]:
    """The numbers that are defined for one query, in the order of the JSON; counts of queries are not."""
    order = {name: place for place, name in enumerate(CONTRACT)}
    metrics = [metric for metric in scoring.metrics if metric.aggregation != "count"]
    metrics.sort(key=lambda metric: (order.get(metric.name, len(order)), metric.name))
    return [column for metric in metrics for column in metric.columns]


def _labels(scoring: Scoring, query_id: str) -> dict[int, list[Label]]:
    """The labels that hits match, by the position of the hit in its list."""
    found: dict[int, list[Label]] = {}
    for position, *label in scoring.session.rows(
        "SELECT position, kind, label, counts, shared, hit_size, label_size FROM hit_labels"
        " WHERE query_id = $1 ORDER BY position, counts DESC, kind, label",
        [query_id],
    ):
        found.setdefault(position, []).append(Label(*label))
    return found


def _rules(scoring: Scoring, query_id: str) -> list[Rule]:
    """The rules that the answer was checked against; none if there is no answer."""
    found = scoring.session.rows(
        "SELECT c.must_contain, c.needle, c.is_kept FROM rule_checks AS c"
        " JOIN results AS r ON r.result_no = c.result_no"
        " WHERE r.query_id = $1 AND NOT r.failed ORDER BY c.must_contain DESC, c.needle",
        [query_id],
    )
    return [Rule("must_contain" if must else "forbidden", text, is_kept) for must, text, is_kept in found]


def _stored_hit(stored: Mapping[str, Any], position: int) -> Mapping[str, Any]:
    """A hit as stored in the row."""
    hits = stored.get("hits_top_k")
    hit = hits[position - 1] if isinstance(hits, list) and position <= len(hits) else None
    return hit if isinstance(hit, dict) else {}


def _first_text(*values: object) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


class _KnownChunks:
    """The rows of the table `chunks` for the hits of a query."""

    def __init__(self, scoring: Scoring, chunk_ids: Sequence[str]) -> None:
        (run,) = scoring.runs
        self._version = _first_text(config_of(run).get("chunker_version"))
        self._chunks: dict[str, dict[str, tuple[str | None, str | None]]] = {}
        for chunk_id, version, text, spans in scoring.source.chunk_details(chunk_ids):
            self._chunks.setdefault(chunk_id, {})[version] = (text, spans)

    def _of(self, hit: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """The text and the spans of a hit's chunk: of its own version, or of the only one."""
        versions = self._chunks.get(str(hit.get("chunk_id")), {})
        version = _first_text(hit.get("chunker_version"), self._version)
        if version is None and len(versions) == 1:
            (version,) = versions
        return versions.get(version or "", (None, None))

    def hit(
        self, scored: Sequence[Any], stored: Mapping[str, Any], matched: str | None, labels: Sequence[Label]
    ) -> Hit:
        """A hit as it was scored, with details from the row and the table.

        `matched`: the spans that it was matched by, if positions decide.
        """
        text, spans = self._of(stored)
        said = (matched, stored.get("source_spans"), spans, stored.get("citation"))
        where: list[Mapping[str, Any]] = next(filter(None, map(_spans, said)), [])
        path = _first_text(stored.get("doc_path"), stored.get("rel_path"))
        text = _first_text(stored.get("text"), stored.get("snippet"), text)
        return Hit(*(*scored, path, where, text, labels))


def _spans(said: object) -> list[Mapping[str, Any]]:
    """Source spans from a list or a single object, as JSON or as JSON text."""
    if isinstance(said, str):
        try:
            said = parse(said)
        except ValueError:
            return []
    return [span for span in (said if isinstance(said, list) else [said]) if isinstance(span, dict)]


def _stored(result_json: str) -> dict[str, Any]:
    try:
        stored = parse(result_json)
    except ValueError:
        return {}
    return stored if isinstance(stored, dict) else {}


@dataclass(frozen=True)
class WorstQuery:
    """A query and its value."""

    query_id: str
    value: float | None
    best_rank: int | None
    query: str | None


def worst_queries(scoring: Scoring, metric_name: str, count: int) -> tuple[Name, list[WorstQuery]]:
    """The worst queries by a metric, worst first; ties are ordered by id."""
    names = Names(scoring.catalogue)
    metric, column = names.metric(metric_name), _column_for(names, metric_name)
    if column not in scoring.columns:
        (run,) = scoring.runs
        why = once_meant(column.metric) or f"; 'kbeval show {as_argument(run.run_id)}' lists those that do"
        msg = f"{column} does not apply to any query of run {run.run_id}{why}"
        raise UsageError(msg)
    refuse_neither(metric, "no query is worst")
    scoring.build_scores()
    scoring.session.need("per_expected_hit")
    rows = scoring.session.rows(
        f"""
        WITH best AS (
            SELECT result_no, MIN(rank) FILTER (WHERE is_expected_chunk OR is_support) AS rank
            FROM per_expected_hit GROUP BY result_no
        )
        SELECT s.query_id, s."{column.name}", b.rank, q.query
        FROM query_scores AS s
        JOIN best AS b ON b.result_no = s.result_no
        LEFT JOIN queries AS q ON q.query_id = s.query_id
        WHERE s."{column.name}" IS NOT NULL
        ORDER BY s."{column.name}" {"ASC" if metric.better == HIGHER else "DESC"}, s.query_id
        LIMIT $1
        """,
        [count],
    )
    return column, [WorstQuery(query_id, rounded(value), rank, text) for query_id, value, rank, text in rows]


def _column_for(names: Names, text: str) -> Name:
    """The column of a number per query: for a median or a sum, the value that goes into it."""
    metric = names.metric(text)
    found = names.numbers(text)
    return metric.columns[0] if found[0].part is not None else names.number(text)
