"""One query of one run, and the queries that did worst: where a number comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbeval.errors import UsageError
from kbeval.exact import rounded
from kbeval.metrics import HIGHER, Column, did_you_mean, find_column, find_metric, refuse_neither
from kbeval.model import CONTRACT
from kbeval.scoring import Scoring


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
    # Where it came from, as the stored row says.
    path: str | None


@dataclass(frozen=True)
class QueryDetail:
    """Everything that is known about one query of one run."""

    run_id: str
    query_id: str
    golden: Mapping[str, Any]
    stored: Mapping[str, Any]
    hits: Sequence[Hit]
    citations_real: Sequence[bool]
    scores: Mapping[str, float | None]
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "query_id": self.query_id,
            "golden": dict(self.golden),
            "error": self.error,
            "hits": [vars(hit) for hit in self.hits],
            "answer": self.stored.get("answer"),
            "citations_real": list(self.citations_real),
            "scores": dict(self.scores),
        }


def query_detail(scoring: Scoring, query_id: str, result_json: str | None) -> QueryDetail:
    """One query of the only run in the session. `result_json`: its stored row."""
    (run,) = scoring.runs
    entry = scoring.golden.get(query_id)
    if result_json is None:
        if entry is not None:
            msg = f"run {run.run_id} has no row for query {query_id!r}, though the golden file has it"
            raise UsageError(msg)
        known = [row[0] for row in scoring.session.rows("SELECT query_id FROM results ORDER BY query_id")]
        hint = did_you_mean(query_id, known) or f"; see 'kbeval show {run.run_id} --worst 20'"
        msg = f"run {run.run_id} has no query {query_id!r}{hint}"
        raise UsageError(msg)
    scoring.build_scores()
    session = scoring.session
    session.need("ranked")
    columns = _columns_for_a_query(scoring)
    names = ", ".join(f'"{column.name}"' for column in columns)
    (values,) = session.rows(f"SELECT {names} FROM query_scores WHERE query_id = $1", [query_id])
    hits = session.rows(
        """
        SELECT rank, chunk_id, doc_id, score, is_expected_chunk, is_expected_doc, is_support, position
        FROM ranked
        WHERE query_id = $1 AND rank IS NOT NULL
        ORDER BY rank, position
        """,
        [query_id],
    )
    stored = _stored(result_json)
    ((error,),) = session.rows("SELECT error FROM results WHERE query_id = $1", [query_id])
    return QueryDetail(
        run_id=run.run_id,
        query_id=query_id,
        golden=entry or {},
        stored=stored,
        hits=[Hit(*(*hit[:-1], _path(stored, hit[-1]))) for hit in hits],
        citations_real=[
            row[0]
            for row in session.rows(
                "SELECT c.is_real FROM citation_checks AS c JOIN results AS r ON r.result_no = c.result_no"
                " WHERE r.query_id = $1 ORDER BY c.citation_no",
                [query_id],
            )
        ],
        scores={
            column.name: None if value is None else rounded(value)
            for column, value in zip(columns, values, strict=True)
        },
        error=error,
    )


def _columns_for_a_query(scoring: Scoring) -> list[Column]:
    """The numbers that say something about one query, in the order of the JSON; counts of queries do not."""
    order = {name: place for place, name in enumerate(CONTRACT)}
    metrics = [metric for metric in scoring.metrics if metric.aggregation != "count"]
    metrics.sort(key=lambda metric: (order.get(metric.name, len(order)), metric.name))
    return [column for metric in metrics for column in metric.columns]


def _path(stored: Mapping[str, Any], position: int) -> str | None:
    hits = stored.get("hits_top_k")
    hit = hits[position - 1] if isinstance(hits, list) and position <= len(hits) else None
    paths = (hit.get("doc_path"), hit.get("rel_path")) if isinstance(hit, dict) else ()
    return next((path for path in paths if isinstance(path, str)), None)


def _stored(result_json: str) -> dict[str, Any]:
    try:
        stored = json.loads(result_json)
    except (ValueError, RecursionError):
        return {}
    return stored if isinstance(stored, dict) else {}


@dataclass(frozen=True)
class WorstQuery:
    """A query and its value."""

    query_id: str
    value: float | None
    best_rank: int | None
    query: str | None


def worst_queries(scoring: Scoring, metric_name: str, count: int) -> tuple[Column, list[WorstQuery]]:
    """The queries that did worst on a metric, worst first; ties by id."""
    metric = find_metric(scoring.metrics, metric_name)
    column = find_column(scoring.metrics, metric_name)
    refuse_neither(metric, "no query is worst")
    scoring.build_scores()
    scoring.session.need("matched")
    rows = scoring.session.rows(
        f"""
        WITH best AS (
            SELECT result_no, MIN(rank) FILTER (WHERE is_expected_chunk OR is_support) AS rank
            FROM matched GROUP BY result_no
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
