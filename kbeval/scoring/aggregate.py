"""Scores → aggregates: one JSON object per run, with its ledger and its provenance."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kbeval.engine.relations import compose
from kbeval.errors import BadRowsError, NotEnoughMemoryError, UsageError
from kbeval.golden import Golden
from kbeval.metrics.catalogue import AGGREGATIONS, PERCENTILES, PERCENTS, SCORED, Metric
from kbeval.metrics.model import CONTRACT, AggregateMetrics, Number
from kbeval.metrics.names import Name
from kbeval.scoring.ledger import exact_rates, run_abstention, run_ledgers
from kbeval.scoring.matching_warnings import matching_notes
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.provenance import LabelVersions, judges, of_places, of_run, provenance
from kbeval.scoring.run_warnings import Totals, run_warnings
from kbeval.scoring.scorer import Scoring, open_scoring
from kbeval.scoring.slices import load_slices, without_ignored
from kbeval.storage.kept import ChunkSpans, Kept, spans_to_keep
from kbeval.storage.row_marks import RowMarks, marks_to_keep
from kbeval.storage.run_config import chunker_version, config_of, imported_from, own_k
from kbeval.storage.runs import KeyFault, Run
from kbeval.util.numbers import SUMMABLE, WHOLE, between, exact_mean, rounded, rounded_mean, units
from kbeval.util.text import counted, cut

if TYPE_CHECKING:
    import polars as pl


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
    """The result of scoring: one aggregate per run, the requested slices, and warnings."""

    runs: list[Run]
    aggregates: dict[str, AggregateMetrics] = field(default_factory=dict)
    slices: dict[str, dict[str, AggregateMetrics]] = field(default_factory=dict)
    bad_rows: list[BadRow] = field(default_factory=list)
    # Why runs of the database were left out: they have no numbers.
    key_faults: list[KeyFault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # Worth knowing, but not a reason for doubt.
    notes: list[str] = field(default_factory=list)
    # What is stored along with the numbers; only collected on request, see `score_runs`.
    spans: list[ChunkSpans] = field(default_factory=list)
    golden: Golden | None = None
    row_marks: dict[str, RowMarks] = field(default_factory=dict)

    def add(self, other: Scored) -> None:
        """Take over the numbers of other runs, scored in the same way."""
        self.runs = [*self.runs, *other.runs]
        self.aggregates |= other.aggregates
        self.slices |= other.slices
        self.bad_rows += other.bad_rows
        self.warnings += [text for text in other.warnings if text not in self.warnings]
        self.notes += [text for text in other.notes if text not in self.notes]
        self.spans += other.spans
        self.row_marks |= other.row_marks

    def bad_row_warning(self) -> list[str]:
        """A warning if unreadable rows were counted as failed; empty if there are none."""
        if not self.bad_rows:
            return []
        return [f"{counted(len(self.bad_rows), 'unreadable row')} counted as failed, first {self.bad_rows[0]}"]

    def _repr_html_(self) -> str:
        """The notebook view: every number."""
        return self.frame()._repr_html_()

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


def score_runs(  # noqa: PLR0913  (what to score, and how)
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    runs: Sequence[str] | None = None,
    options: ScoreOptions | None = None,
    *,
    to_store: bool = False,
    earlier: Mapping[str, str] | None = None,
) -> Scored:
    """Score runs (all if `runs` is None) and return their aggregates; nothing is stored.

    `to_store`: also collect what `store_scored` stores along with the numbers: the spans of the chunks that were seen,
    the labels, and marks of the rows. Later commands use them to match and to explain changes. `earlier`: as in
    `open_scoring`.
    """
    from kbeval.storage.source import with_or_without_copy  # not needed to score a trace

    found: list[str] = []
    faults: list[KeyFault] = []

    def score(options: ScoreOptions) -> Scored:
        with open_scoring(database, golden, runs, options, earlier=earlier) as scoring:
            found[:], faults[:] = [run.run_id for run in scoring.runs], scoring.key_faults
            scored = aggregate_runs(scoring)
            if to_store:
                scored.spans = spans_to_keep(scoring.session)
                scored.golden = scoring.golden
                if not scoring.source.keeps_rows:
                    rows = scoring.source.settled_digests(scoring.session)
                    scored.row_marks = marks_to_keep(scoring.session, rows)
            return scored

    try:
        return with_or_without_copy(options or ScoreOptions(), score)
    except NotEnoughMemoryError:
        if len(found) < 2:
            raise
    # Runs do not need each other: fewer at once need less memory, and have the same numbers.
    half = len(found) // 2
    scored = score_runs(database, golden, found[:half], options, to_store=to_store, earlier=earlier)
    scored.add(score_runs(database, golden, found[half:], options, to_store=to_store, earlier=earlier))
    scored.key_faults = faults
    return scored


def compute_aggregate(
    run_id: str,
    *,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: ScoreOptions | None = None,
    skip_bad_rows: bool = False,
) -> AggregateMetrics:
    """Score one run of a database against a golden file. Nothing is stored; see `store_aggregate`.

    Raises BadRowsError if a stored row cannot be read, unless `skip_bad_rows`, which counts such rows as failed
    queries; and BrokenRunsError if the keys of the run or of its rows are invalid.
    """
    scored = score_runs(db, golden, [run_id], options)
    if scored.bad_rows and not skip_bad_rows:
        raise BadRowsError([str(row) for row in scored.bad_rows], "pass skip_bad_rows=True to count them as failed:")
    (aggregate,) = scored.aggregates.values()
    return aggregate


def store_aggregate(run_id: str, aggregate: AggregateMetrics, *, db: str | os.PathLike[str]) -> None:
    """Write one run's aggregate to `eval_runs.aggregate_json`, in its own transaction."""
    from kbeval.storage.write import store_json

    store_json(db, {run_id: aggregate.to_json()})


def store_scored(scored: Scored, *, db: str | os.PathLike[str], runs: Sequence[str] | None = None) -> None:
    """Write the aggregates of a scoring (all, or those of `runs`) in one transaction, with the data kept for later."""
    from kbeval.storage.write import store_json

    chosen = scored.aggregates if runs is None else {run_id: scored.aggregates[run_id] for run_id in runs}
    texts = {run_id: aggregate.to_json() for run_id, aggregate in chosen.items()}
    marks = {run_id: scored.row_marks[run_id] for run_id in chosen if run_id in scored.row_marks}
    store_json(db, texts, Kept(scored.spans, scored.golden, marks))


def aggregate_runs(scoring: Scoring) -> Scored:
    """Compute every aggregate of every run in the session."""
    scoring.build_query_scores()
    ledgers, abstention = run_ledgers(scoring), run_abstention(scoring)
    made_from = provenance(scoring.session, scoring.golden, scoring.options)
    labels = LabelVersions(scoring.session, scoring.golden, scoring.options, scoring.stored_versions)
    matchings = scoring.matching.of_runs()
    judged = judges_of(scoring)
    places = of_places(scoring.session, scoring.options) if scoring.matching.places_matter else {}
    rows = scoring.source.settled_digests(scoring.session)
    totals = {run_id: found for run_id, _, found in run_totals(scoring)}
    scored = Scored(
        scoring.runs,
        bad_rows=bad_rows(scoring),
        key_faults=scoring.key_faults,
        warnings=without_ignored(scoring.golden.warnings, scoring.options.by),
    )
    for run in scoring.runs:
        aggregate = _aggregate(scoring, totals.get(run.run_id, {}), run)
        aggregate.ledger = {**ledgers[run.run_id], **aggregate.ledger}
        aggregate.abstention = abstention.get(run.run_id, {})
        aggregate.exact |= exact_rates(aggregate.abstention)
        matching = matchings[run.run_id]
        own_places = places if matching != "exact" or scoring.golden.has_span_labels else {}
        aggregate.provenance = {
            **made_from,
            "matching": matching,
            **own_places,
            **labels.of_run(chunker_version(config_of(run))),
            **({"judge": judged[run.run_id]} if run.run_id in judged else {}),
            **of_run(rows[run.run_id], run.config_json),
        }
        scored.aggregates[run.run_id] = aggregate
    if scoring.options.by is not None:
        runs = {run.run_id: run for run in scoring.runs}
        load_slices(scoring, scoring.options.by)
        for run_id, slice_name, found in run_totals(scoring, scoring.options.by):
            scored.slices.setdefault(run_id, {})[slice_name] = _aggregate(scoring, found, runs[run_id])
    scored.warnings.extend(run_warnings(scoring, scored, totals))
    scored.notes.extend(matching_notes(scoring))
    if unchecked := scoring.session.unchecked:
        scored.notes.append(f"not looked for with --engine: {', '.join(unchecked)}; 'kbeval check' looks for them")
    return scored


def judges_of(scoring: Scoring) -> dict[str, dict[str, Any]]:
    """The judges of each run; an error if the requested judge judged none of them."""
    found = judges(scoring.session) if scoring.rubrics else {}
    named = scoring.options.judge
    if named and not any(run.run_id in found for run in scoring.runs):
        msg = f"none of these runs was judged by {named!r}; 'kbeval sql \"SELECT * FROM judgings\"' lists judgings"
        raise UsageError(msg)
    return found


def run_totals(scoring: Scoring, by: str | None = None) -> Iterator[tuple[str, str, Totals]]:
    """The totals that each run's numbers are computed from, or with `by` those of each slice; call `load_slices`
    first.
    """
    parts = {column.name: metric.aggregation for metric in scoring.metrics for column in metric.columns}
    values = [
        f"{SUMMABLE.format(value=f'query_scores.{scoring.session.quoted(name)}')} AS v{place}"
        for place, name in enumerate(parts)
    ]

    def scores(chosen: Iterable[str]) -> str:
        return compose("summable_scores" if by is None else "sliced_scores", values=",\n    ".join(chosen))

    spread = {name: place for place, (name, aggregation) in enumerate(parts.items()) if aggregation == "percentiles"}
    percentiles = _percentiles(scoring, spread, scores(values[place] for place in spread.values()))
    split, sums = [], []
    for place, aggregation in enumerate(parts.values()):
        value, whole = f"v{place}", f"w{place}"
        split.append(value if aggregation == "count" else f"{value}, {WHOLE.format(value=value)} AS {whole}")
        sums += [part.format(value=value, whole=whole) for part in (*AGGREGATIONS[aggregation], SCORED)]
    sql = compose("run_totals", scores=scores(values), split=",\n        ".join(split), sums=",\n    ".join(sums))
    for run_id, slice_name, queries, *found in scoring.session.rows(sql):
        totals: Totals = {}
        remaining = iter(found)
        for name, aggregation in parts.items():
            made_of = [next(remaining) for _ in AGGREGATIONS[aggregation]]
            count = next(remaining)
            if count and aggregation != "count":
                ends = percentiles.get((run_id, slice_name, name), {})
                quantiles = [between(low, high, percent, count) for percent, (low, high) in ends.items()]
                made_of = [*quantiles, units(*made_of)]
            totals[name] = (made_of, count, queries - count)
        yield run_id, slice_name, totals


def _percentiles(
    scoring: Scoring, places: Mapping[str, int], scores: str
) -> dict[tuple[str, str, str], dict[int, tuple[float, float]]]:
    """The two values next to each percentile, by run, slice and metric. `places`: the columns of these metrics."""
    if not places:
        return {}
    branches = [
        f"SELECT run_id, slice, '{name}' AS metric, v{place} AS value FROM summable WHERE v{place} IS NOT NULL"
        for name, place in places.items()
    ]
    sql = compose("percentiles", scores=scores, branches="\n    UNION ALL\n    ".join(branches))
    return {
        (run_id, slice_name, name): dict(zip(PERCENTS, zip(ends[::2], ends[1::2], strict=True), strict=True))
        for run_id, slice_name, name, *ends in scoring.session.rows(sql)
    }


def _aggregate(scoring: Scoring, totals: Totals, run: Run) -> AggregateMetrics:
    values, counts, exact = numbers_of(scoring, totals, run)
    known = {name: values.pop(name) for name in CONTRACT}
    ordered = {name: counts[name] for name in (*CONTRACT, *sorted(counts.keys() - set(CONTRACT)))}
    return AggregateMetrics(**known, extra=values, ledger={"metrics": ordered}, exact=exact)


def numbers_of(
    scoring: Scoring, totals: Totals, run: Run
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Fraction]]:
    """Every number of a run, by metric; how many queries each was computed on; and its value before rounding."""
    values: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    exact: dict[str, Fraction] = {}
    config = config_of(run)
    system, k = imported_from(config), own_k(config)
    for metric in scoring.metrics:
        found: dict[int | None, Any] = {}
        scored = skipped = 0
        for column in metric.columns:
            # A k that only another run of the session has does not apply to this one.
            if column.k is None or column.k in (*scoring.asked_ks[metric.name], k):
                made_of, scored, skipped = totals.get(column.name, ([], 0, 0))
                found[column.k] = _number(metric, made_of, scored)
                exact |= _exact(metric, column, made_of, scored)
        stays = (
            scored or metric.name in CONTRACT or (metric.if_empty is not None and metric.system == system is not None)
        )
        if not stays:
            continue
        values[metric.name] = found if metric.ks else found[None]
        counts[metric.name] = {"scored": scored, "not_applicable": skipped}
    return values, counts, exact


def _number(metric: Metric, made_of: Sequence[Any], scored: int) -> Number | dict[str, Number]:
    if not scored:
        none = metric.if_empty
        return int(none) if none is not None and metric.aggregation == "count" else none
    if metric.aggregation == "count":
        return int(made_of[0])
    if metric.aggregation == "percentiles":
        *quantiles, total = made_of
        return dict(zip(PERCENTILES, (*map(rounded, quantiles), rounded_mean(total, 1)), strict=True))
    return rounded_mean(made_of[0], 1 if metric.aggregation == "sum" else scored)


def _exact(metric: Metric, name: Name, made_of: Sequence[Any], scored: int) -> dict[str, Fraction]:
    """The values that `_number` rounds, by name; empty if there is nothing to round."""
    if not scored or metric.aggregation == "count":
        return {}
    *quantiles, total = made_of
    if metric.aggregation != "percentiles":
        return {name.long: exact_mean(total, 1 if metric.aggregation == "sum" else scored)}
    return dict(zip((number.long for number in metric.numbers), (*quantiles, exact_mean(total, 1)), strict=True))


def bad_rows(scoring: Scoring) -> list[BadRow]:
    """The stored rows that cannot be read."""
    found = scoring.session.rows("SELECT run_id, query_id, fault FROM bad_rows ORDER BY run_id, query_id")
    return [BadRow(*row) for row in found]
