"""Scores → aggregates: one JSON object a run, with the ledger of what was counted and where it came from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kbeval.archive import ChunkSpans, Kept, spans_to_keep
from kbeval.checks import row_warnings
from kbeval.configs import chunker_version, config_of, eval_k, imported_from, own_k
from kbeval.errors import BadRowsError
from kbeval.exact import FIXED_POINT, LARGEST, exact_mean, rounded, rounded_mean
from kbeval.golden import Golden
from kbeval.metrics import PERCENTILES, Metric
from kbeval.model import CONTRACT, AggregateMetrics, Number
from kbeval.names import ABSTENTION, Name, short_name
from kbeval.provenance import LabelVersions, of_places, of_run, provenance
from kbeval.rowmarks import RowMarks, marks_to_keep
from kbeval.runs import KeyFault, Run
from kbeval.scoring import ScoreOptions, Scoring, open_scoring
from kbeval.sqlfiles import compose
from kbeval.text import counted, cut

if TYPE_CHECKING:
    import polars as pl

# How the values of a metric's queries become the run's number.
_SUM = "SUM(TRY_CAST({} AS " + FIXED_POINT + "))"
_PARTS = {
    "mean": [_SUM],
    "sum": [_SUM],
    "count": ["COUNT(CASE WHEN {} <> 0 THEN 1 END)"],
    "percentiles": ["QUANTILE_CONT({}, 0.5)", "QUANTILE_CONT({}, 0.95)", _SUM],
}

# For each number of a run: what it is made of (mostly one exact sum), how many queries have it, and how many do not.
Totals = dict[str, tuple[list[Any], int, int]]


@dataclass(frozen=True)
class BadRow:
    """A stored row that cannot be read."""

    run_id: str
    query_id: str
    fault: str

    def __str__(self) -> str:
        return f"run {cut(self.run_id, 80)}, query {cut(self.query_id, 80)}: {self.fault}"


@dataclass
class Scored:
    """What scoring found: an aggregate a run, the slices that were asked for, and what to know about them."""

    runs: list[Run]
    aggregates: dict[str, AggregateMetrics] = field(default_factory=dict)
    slices: dict[str, dict[str, AggregateMetrics]] = field(default_factory=dict)
    bad_rows: list[BadRow] = field(default_factory=list)
    # Why runs of the database were left out: nothing can be said about them.
    key_faults: list[KeyFault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # What is worth knowing, and no reason for doubt.
    notes: list[str] = field(default_factory=list)
    # What to archive when the numbers are stored; filled where ScoreOptions.archive asks for it.
    spans: list[ChunkSpans] = field(default_factory=list)
    golden: Golden | None = None
    row_marks: dict[str, RowMarks] = field(default_factory=dict)

    def bad_row_warning(self) -> list[str]:
        """What to say where unreadable rows were scored all the same; nothing where there are none."""
        if not self.bad_rows:
            return []
        return [f"{counted(len(self.bad_rows), 'unreadable row')} counted as failed, first {self.bad_rows[0]}"]

    def frame(self) -> pl.DataFrame:
        """One row per number: run_id, slice, metric, k, value (null: scored on no query), scored, not_applicable."""
        import polars as pl

        rows = []
        for run_id, whole in self.aggregates.items():
            parts = [(None, whole), *self.slices.get(run_id, {}).items()]
            for slice_name, aggregate in parts:
                for long_name, value in aggregate.numbers().items():
                    name = Name.parse(long_name)
                    counts = (aggregate.counts(long_name).get(what) for what in ("scored", "not_applicable"))
                    number = None if value is None else float(value)
                    rows.append((run_id, slice_name, name.without_k, name.k, number, *counts))
        names = {
            "run_id": pl.String,
            "slice": pl.String,
            "metric": pl.String,
            "k": pl.Int64,
            "value": pl.Float64,
            "scored": pl.Int64,
            "not_applicable": pl.Int64,
        }
        return pl.DataFrame(rows, schema=names, orient="row")


def score_runs(
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    runs: Sequence[str] | None = None,
    options: ScoreOptions | None = None,
) -> Scored:
    """Score runs (all where `runs` is None) and return their aggregates; nothing is stored."""
    from kbeval.sources.opening import with_or_without_copy  # as below: for those who read databases

    def score(options: ScoreOptions) -> Scored:
        with open_scoring(database, golden, runs, options) as scoring:
            return aggregate_runs(scoring)

    return with_or_without_copy(options or ScoreOptions(), score)


def compute_aggregate(
    run_id: str,
    *,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: ScoreOptions | None = None,
    skip_bad_rows: bool = False,
) -> AggregateMetrics:
    """Score one run of a database against a golden file. Nothing is stored; see `store_aggregate`.

    Raises BadRowsError where a stored row cannot be read, unless `skip_bad_rows`, which counts such
    rows as failed queries; and BrokenRunsError where the keys of the run or of its rows are not sound.
    """
    scored = score_runs(db, golden, [run_id], options)
    if scored.bad_rows and not skip_bad_rows:
        raise BadRowsError([str(row) for row in scored.bad_rows], "pass skip_bad_rows=True to count them as failed:")
    (aggregate,) = scored.aggregates.values()
    return aggregate


def store_aggregate(run_id: str, aggregate: AggregateMetrics, *, db: str | os.PathLike[str]) -> None:
    """Write one run's aggregate to `eval_runs.aggregate_json`, in a transaction of its own."""
    from kbeval.store import store_json

    store_json(db, {run_id: aggregate.to_json()})


def store_scored(scored: Scored, *, db: str | os.PathLike[str], runs: Sequence[str] | None = None) -> None:
    """Write the aggregates of a scoring (all, or those of `runs`) and archive what it saw, in one transaction."""
    from kbeval.store import store_json

    chosen = scored.aggregates if runs is None else {run_id: scored.aggregates[run_id] for run_id in runs}
    texts = {run_id: aggregate.to_json() for run_id, aggregate in chosen.items()}
    marks = {run_id: scored.row_marks[run_id] for run_id in chosen if run_id in scored.row_marks}
    store_json(db, texts, Kept(scored.spans, scored.golden, marks))


def aggregate_runs(scoring: Scoring) -> Scored:
    """Compute every aggregate of every run in the session."""
    scoring.build_scores()
    ledgers, abstention = _ledgers(scoring), _abstention(scoring)
    made_from = provenance(scoring.session, scoring.golden, scoring.options)
    labels = LabelVersions(scoring.session, scoring.golden, scoring.options, scoring.stored_versions)
    matchings = scoring.matching.of_runs()
    places = of_places(scoring.session, scoring.options) if scoring.matching.places_matter else {}
    rows = scoring.source.settled_digests(scoring.session)
    totals = {run_id: found for run_id, _, found in run_totals(scoring)}
    applies = _queries_it_applies_to(scoring)
    scored = Scored(
        scoring.runs,
        bad_rows=bad_rows(scoring),
        key_faults=scoring.key_faults,
        warnings=list(scoring.golden.warnings),
    )
    for run in scoring.runs:
        aggregate = _aggregate(scoring, totals.get(run.run_id, {}), run)
        aggregate.ledger = {**ledgers[run.run_id], **aggregate.ledger}
        aggregate.abstention = abstention.get(run.run_id, {})
        aggregate.exact |= _exact_rates(aggregate.abstention)
        matching = matchings[run.run_id]
        own_places = places if matching == "span" or scoring.golden.has_span_labels else {}
        aggregate.provenance = {
            **made_from,
            "matching": matching,
            **own_places,
            **labels.of_run(chunker_version(config_of(run))),
            **of_run(rows[run.run_id], run.config_json),
        }
        scored.aggregates[run.run_id] = aggregate
    if scoring.options.by is not None:
        runs = {run.run_id: run for run in scoring.runs}
        for run_id, slice_name, found in run_totals(scoring, scoring.options.by):
            scored.slices.setdefault(run_id, {})[slice_name] = _aggregate(scoring, found, runs[run_id])
    scored.warnings.extend(_warnings(scoring, scored))
    scored.notes.extend(matching_notes(scoring))
    scored.warnings.extend(_null_warnings(scoring, totals, applies))
    scored.warnings.extend(_depth_warnings(scoring, scored))
    if scoring.options.archive:
        scored.spans = spans_to_keep(scoring.session)
        scored.golden = scoring.golden
        if not scoring.source.keeps_rows:
            scored.row_marks = marks_to_keep(scoring.session, rows)
    return scored


def run_totals(scoring: Scoring, by: str | None = None) -> Iterator[tuple[str, str, Totals]]:
    """What each run's numbers are made of, or with `by` each slice's."""
    parts = {column.name: _PARTS[metric.aggregation] for metric in scoring.metrics for column in metric.columns}
    sums = ",\n    ".join(
        part.format(f'"{name}"')
        for name, each in parts.items()
        for part in (*each, f"COUNT(TRY_CAST({{}} AS {FIXED_POINT}))")
    )
    if by is None:
        found = scoring.session.rows(compose("run_totals", sums=sums))
    else:
        scoring.session.need("query_slices")
        found = scoring.session.rows(compose("slice_totals", sums=sums), [by])
    for run_id, slice_name, queries, *values in found:
        totals: Totals = {}
        remaining = iter(values)
        for name, each in parts.items():
            made_of = [next(remaining) for _ in each]
            count = next(remaining)
            totals[name] = (made_of, count, queries - count)
        yield run_id, slice_name, totals


def _aggregate(scoring: Scoring, totals: Totals, run: Run) -> AggregateMetrics:
    values, counts, exact = numbers_of(scoring, totals, run)
    known = {name: values.pop(name) for name in CONTRACT}
    ordered = {name: counts[name] for name in (*CONTRACT, *sorted(counts.keys() - set(CONTRACT)))}
    return AggregateMetrics(**known, extra=values, ledger={"metrics": ordered}, exact=exact)


def numbers_of(
    scoring: Scoring, totals: Totals, run: Run
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Fraction]]:
    """Every number that a run has, by metric; how many queries each was computed over; and each before rounding."""
    values: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    exact: dict[str, Fraction] = {}
    config = config_of(run)
    system, k = imported_from(config), own_k(config)
    for metric in scoring.metrics:
        found: dict[int | None, Any] = {}
        scored = skipped = 0
        for column in metric.columns:
            # A k that only another run of the session asked for says nothing about this one.
            if column.k is None or column.k in (*scoring.asked_ks[metric.name], k):
                made_of, scored, skipped = totals.get(column.name, ([], 0, 0))
                found[column.k] = _number(metric, made_of, scored)
                exact |= _exact(metric, column, made_of, scored)
        stays = scored or metric.name in CONTRACT or (metric.none is not None and metric.system == system is not None)
        if not stays:
            continue
        values[metric.name] = found if metric.ks else found[None]
        counts[metric.name] = {"scored": scored, "not_applicable": skipped}
    return values, counts, exact


def _number(metric: Metric, made_of: Sequence[Any], scored: int) -> Number | dict[str, Number]:
    if not scored:
        none = metric.none
        return int(none) if none is not None and metric.aggregation == "count" else none
    if metric.aggregation == "count":
        return int(made_of[0])
    if metric.aggregation == "percentiles":
        *quantiles, total = made_of
        return dict(zip(PERCENTILES, (*map(rounded, quantiles), rounded_mean(total, 1)), strict=True))
    return rounded_mean(made_of[0], 1 if metric.aggregation == "sum" else scored)


def _exact(metric: Metric, name: Name, made_of: Sequence[Any], scored: int) -> dict[str, Fraction]:
    """What `_number` rounds, by the names of the numbers; nothing where there is nothing to round."""
    if not scored or metric.aggregation == "count":
        return {}
    *quantiles, total = made_of
    if metric.aggregation != "percentiles":
        return {name.long: exact_mean(total, 1 if metric.aggregation == "sum" else scored)}
    found = [*(Fraction(value) if abs(value) < LARGEST else None for value in quantiles), exact_mean(total, 1)]
    return {number.long: value for number, value in zip(metric.numbers, found, strict=True) if value is not None}


def _ledgers(scoring: Scoring) -> dict[str, dict[str, Any]]:
    golden = len(scoring.golden)
    scoring.session.need("run_ledger")
    ledgers = {
        run_id: {
            "golden": golden,
            "rows": rows,
            "missing": golden - (rows - unknown),
            "unknown": unknown,
            "failed": failed,
            "unreadable": unreadable,
            "repeated_hits": int(repeated),
            **({"malformed_citations": int(malformed)} if malformed else {}),
        }
        for run_id, rows, unknown, failed, unreadable, repeated, malformed in scoring.session.rows(
            "SELECT * FROM run_ledger"
        )
    }
    if "anchor_rows" in scoring.session.built:
        scoring.session.need("support_hits")
        for run_id, unverified in scoring.session.rows(
            "SELECT r.run_id, COUNT(*) FILTER (WHERE NOT s.is_verified) FROM support_hits AS s"
            " JOIN results AS r ON r.result_no = s.result_no GROUP BY r.run_id"
        ):
            ledgers[run_id]["unverified_supports"] = unverified
    if scoring.matching.places_matter:
        scoring.session.need("matching", "run_matching")
        for run_id, by_span, by_doc, by_nothing in scoring.session.rows(
            "SELECT u.run_id, COUNT(*) FILTER (WHERE m.matching = 'span'), COUNT(*) FILTER (WHERE m.matching = 'doc'),"
            " COUNT(*) FILTER (WHERE m.matching = 'unmatched')"
            " FROM run_matching AS u LEFT JOIN results AS r ON r.run_id = u.run_id"
            " LEFT JOIN matching AS m ON m.result_no = r.result_no WHERE u.matching = 'span' GROUP BY u.run_id"
        ):
            ledgers[run_id]["matched"] = {"span": by_span, "doc": by_doc}
            ledgers[run_id]["unmatched"] = by_nothing
    return ledgers


def _abstention(scoring: Scoring) -> dict[str, dict[str, Any]]:
    """What each run answered and what it refused, with and without the evidence."""
    scoring.session.need("abstention")
    found = {}
    for run_id, k, *counts in scoring.session.rows("SELECT * FROM abstention"):
        answered, refused, wrongly, rightly, supported, unsupported, over_cautious, honest = counts
        found[run_id] = {
            "k": k,
            "answerable_answered": answered,
            "answerable_refused": refused,
            "unanswerable_answered": wrongly,
            "unanswerable_refused": rightly,
            "answered_with_evidence": supported,
            "answered_without_evidence": unsupported,
            "refused_with_evidence": over_cautious,
            "refused_without_evidence": honest,
            "unsupported_rate": _share(unsupported, supported + unsupported),
            "over_cautious_rate": _share(over_cautious, supported + over_cautious),
        }
    return found


def _exact_rates(abstention: Mapping[str, Any]) -> dict[str, Fraction]:
    """The rates of a run's abstention before rounding."""
    wrong = {"unsupported_rate": "answered_without_evidence", "over_cautious_rate": "refused_with_evidence"}
    supported = abstention.get("answered_with_evidence", 0)
    return {
        f"{ABSTENTION}.{rate}": Fraction(abstention[count], supported + abstention[count])
        for rate, count in wrong.items()
        if abstention.get(rate) is not None
    }


def _share(part: int, whole: int) -> float | None:
    return rounded_mean(Decimal(part), whole) if whole else None


def bad_rows(scoring: Scoring) -> list[BadRow]:
    """The stored rows that cannot be read."""
    found = scoring.session.rows("SELECT run_id, query_id, fault FROM bad_rows ORDER BY run_id, query_id")
    return [BadRow(*row) for row in found]


def _warnings(scoring: Scoring, scored: Scored) -> Iterator[str]:
    session = scoring.session
    ((chunks, documents, answers),) = session.rows(
        "SELECT (SELECT COUNT(*) FROM known_chunks), (SELECT COUNT(*) FROM documents), COUNT(*) FILTER (WHERE grounded)"
        " FROM results AS r JOIN runs AS u ON u.run_id = r.run_id WHERE u.system IS NULL"
    )
    if answers and not (chunks and documents):
        table = "documents" if chunks else "chunks"
        yield f"citation_coverage has no value: the database has no table {table!r}, or it is empty"
    yield from matching_warnings(scoring, scored)
    yield from row_warnings(scoring)
    if not scoring.options.together:
        for run in scoring.runs:
            if not run.is_dated:
                when = cut(run.created_at, 40)
                yield f"run {run.run_id}: created_at {when!r} is not a time: 'latest' and names by place are refused"
    left_out = "left out" if scoring.options.together else "left out (--missing zero counts them)"
    treated = "counted as zero" if scoring.options.missing == "zero" else left_out
    traces = {run.run_id for run in scoring.runs if imported_from(config_of(run)) == "grounded"}
    for run_id, aggregate in scored.aggregates.items():
        ledger = aggregate.ledger
        yield from gap_warnings(
            f"run {run_id}",
            scoring.golden,
            (ledger["rows"], ledger["unknown"]),
            MISSING_TRACES if run_id in traces else treated,
            "counted in totals only",
        )


def _queries_it_applies_to(scoring: Scoring) -> dict[str, list[int]]:
    """For each run, to how many of its queries each metric of the scoring applies."""
    if not scoring.metrics:
        return {}
    counts = ",\n    ".join(f"COUNT(CASE WHEN {metric.condition} THEN 1 END)" for metric in scoring.metrics)
    return {run_id: found for run_id, *found in scoring.session.rows(compose("applicable", counts=counts))}


def _null_warnings(
    scoring: Scoring, totals: Mapping[str, Totals], applies: Mapping[str, Sequence[int]]
) -> Iterator[str]:
    """Metrics that are null for queries that they apply to: their means are over fewer queries than one would think."""
    suspects = {
        column.name
        for run_id, counts in applies.items()
        for metric, count in zip(scoring.metrics, counts, strict=True)
        for column in metric.columns
        if totals[run_id][column.name][1] < count
    }
    if not suspects:
        return
    # What is too large to be summed up has no part in a mean, but it is not null.
    names = sorted(suspects)
    values = ", ".join(f'COUNT("{name}")' for name in names)
    found = scoring.session.rows(f"SELECT run_id, {values} FROM query_scores GROUP BY run_id")
    given = {run_id: dict(zip(names, row, strict=True)) for run_id, *row in found}
    for place, metric in enumerate(scoring.metrics):
        columns = [column.name for column in metric.columns if column.name in suspects]
        nulls = {
            run_id: lacking
            for run_id, counts in applies.items()
            if (lacking := max((counts[place] - given[run_id][name] for name in columns), default=0)) > 0
        }
        if not nulls:
            continue
        first, *others = nulls
        of = f" (in {counted(len(nulls), 'run')}, first {first})" if others else f" of run {first}"
        whole = sum(applies[run_id][place] for run_id in nulls)
        what = {"mean": "the mean", "sum": "the sum", "count": "the count"}.get(metric.aggregation, "the numbers")
        yield (
            f"`{metric.name}`: the expression was null for {sum(nulls.values()):,} of the"
            f" {counted(whole, 'query', 'queries')} that it applies to{of}; they are left out of {what}"
            " (COALESCE(…, 0) counts them as 0)"
        )


# Metrics that cannot change any more once k is beyond the last hit.
_BY_DEPTH = ("hit_at_k", "support_recall_any_at_k", "citation_recall_at_k", "recall_at_k_doc")


def _depth_warnings(scoring: Scoring, scored: Scored) -> Iterator[str]:
    """A k that was asked for and that lies beyond the hits that a run holds: it says nothing new."""
    if not scoring.options.extra_ks:
        return
    scoring.session.need("run_depths")
    depths = dict(scoring.session.rows("SELECT run_id, depth FROM run_depths"))
    groups: dict[tuple[str, int, tuple[int, ...]], list[str]] = {}
    for run in scoring.runs:
        depth, counts = depths.get(run.run_id), scored.aggregates[run.run_id].counts
        metric = next((name for name in _BY_DEPTH if counts(name).get("scored")), None)
        if depth is None or metric is None:
            continue
        # A run that asked for more hits than came back holds all that there are.
        asked = max(depth, eval_k(config_of(run), default=0))
        if beyond := tuple(k for k in sorted(set(scoring.options.extra_ks)) if k > asked):
            groups.setdefault((metric, depth, beyond), []).append(run.run_id)
    for (metric, depth, beyond), run_ids in groups.items():
        names = " and ".join(short_name(f"{metric}.{k}") for k in beyond)
        one = len(run_ids) == 1
        whose = f"run {run_ids[0]}" if one else f"{len(run_ids):,} runs, first {run_ids[0]},"
        equal = "equals" if len(beyond) == 1 else "equal"
        yield (
            f"{names} of {whose} {equal} {short_name(f'{metric}.{depth}')}:"
            f" {'the run holds' if one else 'they hold'} {counted(depth, 'hit')} per query at most"
        )


MISSING_TRACES = "counted as answered, with nothing in it"


def gap_warnings(whose: str, golden: Golden, counts: tuple[int, int], treated: str, kept: str) -> Iterator[str]:
    """What to say where run and golden file have different queries.

    `whose`: the run's. `counts`: its rows, and those without a query. `treated`: what becomes of queries without a row.
    `kept`: and of rows without a query.
    """
    rows, unknown = counts
    if rows and rows == unknown:
        yield f"{whose}: none of its queries is in {golden.path}; is that the right golden file?"
        return
    if missing := len(golden) - (rows - unknown):
        yield f"{whose}: no row for {counted(missing, 'golden query', 'golden queries')}, {treated}"
    if unknown:
        yield f"{whose}: {counted(unknown, 'row')} without a golden query, {kept}"


def matching_warnings(scoring: Scoring, scored: Scored) -> Iterator[str]:
    """Runs whose hits cannot be told right from wrong, for some queries or for all."""
    for run_id, aggregate in scored.aggregates.items():
        if unmatched := aggregate.ledger.get("unmatched"):
            yield (
                f"run {run_id}: {counted(unmatched, 'query', 'queries')} cannot be matched, because neither the place"
                " nor the document of their expected chunks is known; they are left out of the numbers about chunks:"
                " score before the index is replaced, or label by expected_spans"
            )
    yield from _foreign_warnings(scoring)
    yield from _stranger_warnings(scoring, scored)
    yield from _complex_warnings(scoring)


def _complex_warnings(scoring: Scoring) -> Iterator[str]:
    """Hits and labels with more regions, or more tangled ones, than can be held against each other."""
    if "complex_sets" not in scoring.session.built:
        return
    why = "has too many overlapping regions to be matched by spans; the document decides"
    for run_id, query_id, position in scoring.session.rows(
        "SELECT r.run_id, r.query_id, MIN(CAST(c.minor AS BIGINT)) FROM complex_sets AS c"
        " JOIN results AS r ON c.major = CAST(r.result_no AS VARCHAR) WHERE c.owner = 'hit' GROUP BY ALL ORDER BY ALL"
    ):
        yield f"run {run_id}, query {query_id}: hit {position} {why}"
    for (query_id,) in scoring.session.rows(
        "SELECT DISTINCT major FROM complex_sets WHERE owner = 'place' ORDER BY ALL"
    ):
        yield f"query {query_id}: an expected place {why}"


def _foreign_warnings(scoring: Scoring) -> Iterator[str]:
    """Where ids are to decide whatever the labels are: runs that cannot hit most of what is expected."""
    for run_id, version, foreign, expected, owner in scoring.session.rows(
        "SELECT run_id, chunker_version, n_foreign, n_expected, owner FROM run_matching"
        " WHERE matching = 'exact' AND 2 * n_foreign > n_expected ORDER BY run_id"
    ):
        yield (
            f"run {run_id} was made with chunker {version}, but {foreign:,} of {expected:,} expected chunks are"
            f" {whose_chunks(owner, version)}, so it cannot hit them by id: --match auto compares the text instead"
        )


def _stranger_warnings(scoring: Scoring, scored: Scored) -> Iterator[str]:
    """Runs matched by id that share no id with the labels, where nothing says that both are of one index."""
    suspected = [
        run_id
        for run_id, aggregate in scored.aggregates.items()
        if aggregate.provenance["matching"] == "exact"
        and not aggregate.mrr
        and aggregate.ledger["metrics"]["mrr"]["scored"]
    ]
    if not suspected:
        return
    session = scoring.session
    session.need("id_matches", "hits", "expected_chunks", "indexed_places")
    for run_id, hit, label in session.rows(
        """
        WITH suspected AS (
            SELECT UNNEST($1::VARCHAR[]) AS run_id
        ),

        asked AS (
            SELECT r.run_id, r.result_no, e.chunk_id AS label, k.chunk_id AS known
            FROM suspected AS s
            JOIN results AS r ON r.run_id = s.run_id
            JOIN expected_chunks AS e ON e.query_id = r.query_id
            LEFT JOIN (SELECT DISTINCT chunk_id FROM indexed_places) AS k ON k.chunk_id = e.chunk_id
        )

        SELECT a.run_id, MIN(h.chunk_id), MIN(a.label)
        FROM asked AS a
        JOIN hits AS h ON h.result_no = a.result_no AND h.chunk_id IS NOT NULL
        LEFT JOIN id_matches AS i ON i.result_no = a.result_no
        GROUP BY a.run_id
        HAVING COUNT(i.result_no) = 0 AND COUNT(a.known) = 0
        ORDER BY a.run_id
        """,
        [suspected],
    ):
        yield (
            f"run {run_id}: no hit is an expected chunk, and no table knows the expected ids (hits are named like"
            f" {cut(hit, 40)!r}, labels like {cut(label, 40)!r}); where they are of different indexes, 0 means 'could"
            " not be matched': label by expected_spans, or keep the chunks in the table 'chunks'"
        )


def matching_notes(scoring: Scoring) -> Iterator[str]:
    """Runs that were matched by spans because their ids do not compare with those of the labels."""
    if scoring.options.match != "auto" or scoring.options.together:
        return
    for run_id, version, foreign, expected, owner in scoring.session.rows(
        "SELECT run_id, chunker_version, n_foreign, n_expected, owner FROM run_matching"
        " WHERE matching = 'span' ORDER BY run_id"
    ):
        yield (
            f"run {run_id} (chunker {version}) is matched by document and span: {foreign:,} of {expected:,} expected"
            f" chunks are {whose_chunks(owner, version)}"
        )


def whose_chunks(owner: str | None, version: str | None) -> str:
    """What is known about expected chunks that are not those of a run of this version."""
    if owner is None:
        return "not among the chunks of the index"
    return f"of {owner}" if owner != version else f"of an earlier index of {owner}"
