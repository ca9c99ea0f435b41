"""Scores → aggregates: one JSON object a run, with the ledger of what was counted and where it came from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kbeval.archive import ChunkSpans, Kept, spans_to_keep
from kbeval.checks import row_warnings
from kbeval.configs import config_of, imported_from, own_k
from kbeval.errors import BadRowsError
from kbeval.exact import FIXED_POINT, rounded, rounded_mean
from kbeval.golden import Golden
from kbeval.metrics import PERCENTILES, Metric
from kbeval.model import CONTRACT, AggregateMetrics, Number, number_parts
from kbeval.provenance import of_run, provenance
from kbeval.runs import RepeatedRow, Run
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
    repeated_rows: list[RepeatedRow] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # What to archive when the numbers are stored; filled where ScoreOptions.archive asks for it.
    spans: list[ChunkSpans] = field(default_factory=list)
    golden: Golden | None = None

    def bad_row_warning(self) -> list[str]:
        """What to say where unreadable rows were scored all the same; nothing where there are none."""
        if not self.bad_rows:
            return []
        return [f"{counted(len(self.bad_rows), 'unreadable row')} counted as failed, first {self.bad_rows[0]}"]

    def frame(self) -> pl.DataFrame:
        """One row a number: run_id, slice, metric, k, value, scored, not_applicable."""
        import polars as pl

        rows = []
        for run_id, whole in self.aggregates.items():
            parts = [(None, whole), *self.slices.get(run_id, {}).items()]
            for slice_name, aggregate in parts:
                for name, value in aggregate.numbers().items():
                    metric, k = number_parts(name)
                    counts = aggregate.ledger["metrics"].get(metric.partition(".")[0], {})
                    number = None if value is None else float(value)
                    rows.append((run_id, slice_name, metric, k, number, *counts.values()))
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
    rows as failed queries; and RepeatedRowsError where the run has several rows for one query.
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
    store_json(db, texts, Kept(scored.spans, scored.golden))


def aggregate_runs(scoring: Scoring) -> Scored:
    """Compute every aggregate of every run in the session."""
    scoring.build_scores()
    ledgers, abstention = _ledgers(scoring), _abstention(scoring)
    made_from = provenance(scoring.session, scoring.golden, scoring.options)
    rows = scoring.source.settled_digests(scoring.session)
    totals = {run_id: found for run_id, _, found in run_totals(scoring)}
    scored = Scored(
        scoring.runs,
        bad_rows=bad_rows(scoring),
        repeated_rows=scoring.repeated_rows,
        warnings=list(scoring.golden.warnings),
    )
    for run in scoring.runs:
        aggregate = _aggregate(scoring, totals.get(run.run_id, {}), run)
        aggregate.ledger = {**ledgers[run.run_id], **aggregate.ledger}
        aggregate.abstention = abstention.get(run.run_id, {})
        aggregate.provenance = {**made_from, **of_run(rows[run.run_id], run.config_json)}
        scored.aggregates[run.run_id] = aggregate
    if scoring.options.by is not None:
        runs = {run.run_id: run for run in scoring.runs}
        for run_id, slice_name, found in run_totals(scoring, scoring.options.by):
            scored.slices.setdefault(run_id, {})[slice_name] = _aggregate(scoring, found, runs[run_id])
    scored.warnings.extend(_warnings(scoring, scored))
    if scoring.options.archive:
        scored.spans = spans_to_keep(scoring.session)
        scored.golden = scoring.golden
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
    values, counts = numbers_of(scoring, totals, run)
    known = {name: values.pop(name) for name in CONTRACT}
    ordered = {name: counts[name] for name in (*CONTRACT, *sorted(counts.keys() - set(CONTRACT)))}
    return AggregateMetrics(**known, extra=values, ledger={"metrics": ordered})


def numbers_of(scoring: Scoring, totals: Totals, run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every number that a run has, by metric, and how many queries each was computed over."""
    values: dict[str, Any] = {}
    counts: dict[str, Any] = {}
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
        stays = scored or metric.name in CONTRACT or (metric.none is not None and metric.system == system is not None)
        if not stays:
            continue
        values[metric.name] = found if metric.ks else found[None]
        counts[metric.name] = {"scored": scored, "not_applicable": skipped}
    return values, counts


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
        }
        for run_id, rows, unknown, failed, unreadable, repeated in scoring.session.rows("SELECT * FROM run_ledger")
    }
    if "anchor_rows" in scoring.session.built:
        scoring.session.need("support_hits")
        for run_id, unverified in scoring.session.rows(
            "SELECT r.run_id, COUNT(*) FILTER (WHERE NOT s.is_verified) FROM support_hits AS s"
            " JOIN results AS r ON r.result_no = s.result_no GROUP BY r.run_id"
        ):
            ledgers[run_id]["unverified_supports"] = unverified
    if scoring.options.matching == "span":
        for run_id, by_span, by_doc in scoring.session.rows(
            "SELECT r.run_id, COUNT(*) FILTER (WHERE m.matching = 'span'), COUNT(*) FILTER (WHERE m.matching = 'doc')"
            " FROM results AS r LEFT JOIN matching AS m ON m.result_no = r.result_no GROUP BY r.run_id"
        ):
            ledgers[run_id]["matched"] = {"span": by_span, "doc": by_doc}
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
    yield from foreign_chunk_warnings(scoring)
    yield from row_warnings(scoring)
    treated = "counted as zero" if scoring.options.missing_as_zero else "left out (--missing zero counts them)"
    if scoring.options.together:
        treated = "left out"
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


def all_of_one_chunker(scoring: Scoring) -> bool:
    """Are runs, labels and chunks all of one chunker version? Mostly they are, and nobody needs to look closer."""
    scoring.session.need("archived_chunks", "chunks", "expected_chunks", "runs")
    ((versions, unknown),) = scoring.session.rows(
        """
        SELECT
            (
                SELECT COUNT(DISTINCT chunker_version)
                FROM (
                    SELECT chunker_version FROM chunks
                    UNION SELECT chunker_version FROM archived_chunks
                    UNION SELECT chunker_version FROM runs WHERE chunker_version IS NOT NULL
                )
            ),
            (SELECT COUNT(*) FROM expected_chunks WHERE chunk_id NOT IN (SELECT chunk_id FROM chunks))
        """
    )
    return bool(versions <= 1 and unknown == 0)


def foreign_chunk_warnings(scoring: Scoring) -> Iterator[str]:
    """Runs that cannot hit most of what is expected, because ids decide and the labels are another chunker's."""
    if scoring.options.matching == "span" or all_of_one_chunker(scoring):
        return
    scoring.session.need("foreign_chunks")
    for run_id, version, foreign, expected, owner in scoring.session.rows(
        "SELECT r.run_id, r.chunker_version, f.n_foreign, f.n_expected, f.owner FROM foreign_chunks AS f"
        " JOIN runs AS r ON r.chunker_version = f.chunker_version WHERE 2 * f.n_foreign > f.n_expected ORDER BY 1"
    ):
        whose = f"are of {owner}" if owner else "are unknown to it"
        yield (
            f"run {run_id} was made with chunker {version}, but {foreign:,} of {expected:,} expected chunks {whose},"
            " so it cannot hit them: --match span compares the text instead of the ids"
        )
