"""Scores → aggregates: one JSON object a run, with the ledger of what was counted and where it came from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbeval import __version__
from kbeval.archive import ChunkSpans, spans_to_keep
from kbeval.errors import BadRowsError, DatabaseError
from kbeval.exact import FIXED_POINT, rounded_mean
from kbeval.golden import Golden
from kbeval.metrics import Metric, definitions_hash
from kbeval.model import CONTRACT, AggregateMetrics
from kbeval.scoring import ScoreOptions, Scoring, open_scoring
from kbeval.sources.sqlite import Run
from kbeval.sqlfiles import compose
from kbeval.store import store_json
from kbeval.text import counted, cut

if TYPE_CHECKING:
    import polars as pl

# How the values of a metric's queries become the run's number.
_SUMS = {"mean": "SUM({})", "count": "COUNT(CASE WHEN {} <> 0 THEN 1 END)"}

# For each number of a run: the exact sum, how many queries have it, and how many do not.
Totals = dict[str, tuple[Any, int, int]]


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
    warnings: list[str] = field(default_factory=list)
    # What to archive when the numbers are stored; filled where ScoreOptions.archive asks for it.
    spans: list[ChunkSpans] = field(default_factory=list)

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
                    metric, _, k = name.partition(".")
                    counts = aggregate.ledger["metrics"].get(metric, {})
                    number = None if value is None else float(value)
                    rows.append((run_id, slice_name, metric, int(k) if k else None, number, *counts.values()))
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
    with open_scoring(database, golden, runs, options) as scoring:
        return aggregate_runs(scoring)


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
    rows as failed queries.
    """
    scored = score_runs(db, golden, [run_id], options)
    if scored.bad_rows and not skip_bad_rows:
        raise BadRowsError([str(row) for row in scored.bad_rows], "pass skip_bad_rows=True to count them as failed:")
    (aggregate,) = scored.aggregates.values()
    return aggregate


def store_aggregate(run_id: str, aggregate: AggregateMetrics, *, db: str | os.PathLike[str]) -> None:
    """Write one run's aggregate to `eval_runs.aggregate_json`, in a transaction of its own."""
    store_json(db, {run_id: aggregate.to_json()})


def store_scored(scored: Scored, *, db: str | os.PathLike[str], runs: Sequence[str] | None = None) -> None:
    """Write the aggregates of a scoring (all, or those of `runs`) and archive what it saw, in one transaction."""
    chosen = scored.aggregates if runs is None else {run_id: scored.aggregates[run_id] for run_id in runs}
    store_json(db, {run_id: aggregate.to_json() for run_id, aggregate in chosen.items()}, scored.spans)


def aggregate_runs(scoring: Scoring) -> Scored:
    """Compute every aggregate of every run in the session."""
    _refuse_repeated_rows(scoring)
    scoring.build_scores()
    ledgers, provenance = _ledgers(scoring), _provenance(scoring)
    totals = {run_id: found for run_id, _, found in run_totals(scoring)}
    scored = Scored(scoring.runs, bad_rows=_bad_rows(scoring), warnings=list(scoring.golden.warnings))
    for run in scoring.runs:
        aggregate = _aggregate(scoring.metrics, totals.get(run.run_id, {}))
        aggregate.ledger = {**ledgers[run.run_id], **aggregate.ledger}
        aggregate.provenance = dict(provenance)
        scored.aggregates[run.run_id] = aggregate
    if scoring.options.by is not None:
        for run_id, slice_name, found in run_totals(scoring, scoring.options.by):
            scored.slices.setdefault(run_id, {})[slice_name] = _aggregate(scoring.metrics, found)
    scored.warnings.extend(_warnings(scoring, scored))
    if scoring.options.archive:
        scored.spans = spans_to_keep(scoring.session)
    return scored


def _refuse_repeated_rows(scoring: Scoring) -> None:
    if scoring.source.rows_are_unique:
        return
    repeated = scoring.session.rows(
        "SELECT run_id, query_id, COUNT(*) FROM results GROUP BY run_id, query_id HAVING COUNT(*) > 1 ORDER BY 1, 2"
    )
    if repeated:
        details = [f"run {run_id}, query {query_id}: {count} rows" for run_id, query_id, count in repeated]
        msg = "some queries have several rows in one run, so it is not clear which counts; keep one of each:"
        raise DatabaseError(msg, details)


def run_totals(scoring: Scoring, by: str | None = None) -> Iterator[tuple[str, str, Totals]]:
    """What each run's numbers are made of, or with `by` each slice's."""
    sums = ",\n    ".join(
        f"{_SUMS[metric.aggregation].format(value)}, COUNT({value})"
        for metric in scoring.metrics
        for value in (f'TRY_CAST("{column.name}" AS {FIXED_POINT})' for column in metric.columns)
    )
    if by is None:
        found = scoring.session.rows(compose("run_totals", sums=sums))
    else:
        scoring.session.need("query_slices")
        found = scoring.session.rows(compose("slice_totals", sums=sums), [by])
    for run_id, slice_name, queries, *values in found:
        pairs = zip(values[::2], values[1::2], strict=True)
        totals = {
            column.name: (total, count, queries - count)
            for column, (total, count) in zip(scoring.columns, pairs, strict=True)
        }
        yield run_id, slice_name, totals


def _aggregate(metrics: Sequence[Metric], totals: Totals) -> AggregateMetrics:
    values: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for metric in metrics:
        found: dict[int | None, float | int | None] = {}
        scored = skipped = 0
        for column in metric.columns:
            total, scored, skipped = totals.get(column.name, (None, 0, 0))
            found[column.k] = _number(metric, total, scored)
        if metric.name not in CONTRACT and not scored:
            continue
        values[metric.name] = found if metric.ks else found[None]
        counts[metric.name] = {"scored": scored, "not_applicable": skipped}
    known = {name: values.pop(name) for name in CONTRACT}
    ordered = {name: counts[name] for name in (*CONTRACT, *sorted(counts.keys() - set(CONTRACT)))}
    return AggregateMetrics(**known, extra=values, ledger={"metrics": ordered})


def _number(metric: Metric, total: Any, scored: int) -> float | int | None:  # noqa: ANN401  (Decimal, int or None)
    if not scored:
        none = metric.none
        return int(none) if none is not None and metric.aggregation == "count" else none
    return int(total) if metric.aggregation == "count" else rounded_mean(total, scored)


def _provenance(scoring: Scoring) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kbeval": __version__,
        "metrics": definitions_hash(scoring.metrics),
        "golden": scoring.golden.hash,
        "matching": scoring.options.matching,
    }
    if scoring.options.matching == "span":
        found |= {"min_overlap": scoring.options.min_overlap, "overlap_of": scoring.options.overlap_of}
    if scoring.options.missing_as_zero:
        found["missing"] = "zero"
    return found


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
    if scoring.options.matching == "span":
        for run_id, by_span, by_doc in scoring.session.rows(
            "SELECT r.run_id, COUNT(*) FILTER (WHERE m.matching = 'span'), COUNT(*) FILTER (WHERE m.matching = 'doc')"
            " FROM results AS r LEFT JOIN matching AS m ON m.result_no = r.result_no GROUP BY r.run_id"
        ):
            ledgers[run_id]["matched"] = {"span": by_span, "doc": by_doc}
    return ledgers


def _bad_rows(scoring: Scoring) -> list[BadRow]:
    found = scoring.session.rows("SELECT run_id, query_id, fault FROM bad_rows ORDER BY run_id, query_id")
    return [BadRow(*row) for row in found]


def _warnings(scoring: Scoring, scored: Scored) -> Iterator[str]:
    session = scoring.session
    ((chunks, documents, answers),) = session.rows(
        "SELECT (SELECT COUNT(*) FROM known_chunks), (SELECT COUNT(*) FROM documents), COUNT(*) FILTER (WHERE grounded)"
        " FROM results"
    )
    if answers and not (chunks and documents):
        table = "documents" if chunks else "chunks"
        yield f"citation_coverage has no value: the database has no table {table!r}, or it is empty"
    yield from foreign_chunk_warnings(scoring)
    treated = "counted as zero" if scoring.options.missing_as_zero else "left out (--missing zero counts them)"
    if scoring.options.together:
        treated = "left out"
    for run_id, aggregate in scored.aggregates.items():
        ledger = aggregate.ledger
        if ledger["rows"] and ledger["rows"] == ledger["unknown"]:
            yield f"run {run_id}: none of its queries is in {scoring.golden.path}; is that the right golden file?"
            continue
        if ledger["missing"]:
            missing = counted(ledger["missing"], "golden query", "golden queries")
            yield f"run {run_id}: no row for {missing}, {treated}"
        if ledger["unknown"]:
            unknown = counted(ledger["unknown"], "row")
            yield f"run {run_id}: {unknown} without a golden query, counted in totals only"


def foreign_chunk_warnings(scoring: Scoring) -> Iterator[str]:
    """Runs that cannot hit most of what is expected, because ids decide and the labels are another chunker's."""
    if scoring.options.matching == "span":
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
