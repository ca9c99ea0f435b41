"""Warnings next to the numbers of runs: missing data and limited meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbeval.engine.relations import compose
from kbeval.metrics.catalogue import PER_ROW_SCORE
from kbeval.metrics.names import short_name
from kbeval.scoring.depths import stored_depths
from kbeval.scoring.doubts import find_doubts
from kbeval.scoring.matching_warnings import matching_warnings
from kbeval.scoring.row_checks import row_warnings
from kbeval.storage.run_config import config_of, imported_from, stored_warnings
from kbeval.util.text import counted, cut

if TYPE_CHECKING:
    from kbeval.golden import Golden
    from kbeval.scoring.aggregate import Scored
    from kbeval.scoring.scorer import Scoring

# For each number of a run: its components (a count, or percentiles and a sum in units of the 15th decimal), how many
# queries have a value, and how many do not.
Totals = dict[str, tuple[list[Any], int, int]]


def run_warnings(scoring: Scoring, scored: Scored, totals: Mapping[str, Totals]) -> Iterator[str]:
    """The warnings that are printed with the numbers."""
    yield from _warnings(scoring, scored)
    # If a built-in metric is null it does not apply; the ledger counts these queries.
    if any(metric.origin != "kbeval" for metric in scoring.metrics):
        yield from _null_warnings(scoring, totals, queries_it_applies_to(scoring))
    yield from _depth_warnings(scoring, scored)


def _warnings(scoring: Scoring, scored: Scored) -> Iterator[str]:
    scoring.session.need("citation_tables")
    ((chunks, documents, answers),) = scoring.session.rows("SELECT * FROM citation_tables")
    if answers and not (chunks and documents):
        table = "documents" if chunks else "chunks"
        yield f"citation_coverage has no value: the database has no table {table!r}, or it is empty"
    yield from matching_warnings(scoring, scored)
    yield from row_warnings(scoring)
    for run in scoring.runs:
        for text in stored_warnings(config_of(run)):
            yield f"run {run.run_id}: {text}"
    for _, run_id, text in find_doubts(scoring):
        yield f"run {run_id}: {text}"
    if not scoring.together:
        for run in scoring.runs:
            if not run.is_dated:
                when = cut(run.created_at, 40)
                yield (
                    f"run {run.run_id}: created_at {when!r} is not a time, so 'latest' and names by position are"
                    " rejected"
                )
    left_out = "left out" if scoring.together else "left out (--missing zero counts them)"
    treated = "counted as zero" if scoring.options.missing == "zero" else left_out
    traces = {run.run_id for run in scoring.runs if imported_from(config_of(run)) == "grounded"}
    for run_id, aggregate in scored.aggregates.items():
        ledger = aggregate.ledger
        yield from gap_warnings(
            f"run {run_id}",
            scoring.golden,
            (ledger["rows"], ledger["unknown"]),
            MISSING_TRACES if run_id in traces else treated,
            "counted only in totals",
        )


def queries_it_applies_to(scoring: Scoring) -> dict[str, list[int]]:
    """For each run, the number of queries that each metric of the scoring applies to."""
    if not scoring.metrics:
        return {}
    counts = ",\n    ".join(f"COUNT(CASE WHEN {metric.condition} THEN 1 END)" for metric in scoring.metrics)
    return {run_id: found for run_id, *found in scoring.session.rows(compose("applicable", counts=counts))}


def _null_warnings(
    scoring: Scoring, totals: Mapping[str, Totals], applies: Mapping[str, Sequence[int]]
) -> Iterator[str]:
    """Metrics that are null for queries that they apply to: their means cover fewer queries than expected."""
    suspects = {
        column.name
        for run_id, counts in applies.items()
        for metric, count in zip(scoring.metrics, counts, strict=True)
        for column in metric.columns
        if metric.origin != "kbeval" and totals[run_id][column.name][1] < count
    }
    if not suspects:
        return
    # A value that is too large to be summed is not part of a mean, but it is not null.
    names = sorted(suspects)
    values = ", ".join(f"COUNT({scoring.session.quoted(name)})" for name in names)
    found = scoring.session.rows(f"SELECT run_id, {values} FROM query_scores GROUP BY run_id")
    given = {run_id: dict(zip(names, row, strict=True)) for run_id, *row in found}
    for place, metric in enumerate(scoring.metrics):
        columns = [column.name for column in metric.columns if column.name in suspects]
        nulls = {
            run_id: lacking
            for run_id, counts in applies.items()
            if (lacking := max((counts[place] - given[run_id][name] for name in columns), default=0)) > 0
        }
        # Whether another tool could score an answer is reported in the ledger, because kbeval does not define the
        # metric.
        if not nulls or metric.grain == PER_ROW_SCORE:
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


# Metrics that no longer change once k is beyond the last hit.
_BY_DEPTH = ("hit_at_k", "support_recall_any_at_k", "citation_recall_at_k", "recall_at_k_doc")


def _depth_warnings(scoring: Scoring, scored: Scored) -> Iterator[str]:
    """A k beyond the number of stored hits: the number adds no information."""
    groups: dict[tuple[str, int, tuple[int, ...]], list[str]] = {}
    extra = sorted(set(scoring.options.extra_ks))
    for run_id, (depth, is_cut) in stored_depths(scoring).items():
        counts = scored.aggregates[run_id].counts
        metric = next((name for name in _BY_DEPTH if counts(name).get("scored")), None)
        if metric is None:
            continue
        if beyond := tuple(k for k in (scoring.asked_ks[metric] if is_cut else extra) if k > depth):
            groups.setdefault((metric, depth, beyond), []).append(run_id)
    for (metric, depth, beyond), run_ids in groups.items():
        names = " and ".join(short_name(f"{metric}.{k}") for k in beyond)
        one = len(run_ids) == 1
        whose = f"run {run_ids[0]}" if one else f"{len(run_ids):,} runs, first {run_ids[0]},"
        equal = "equals" if len(beyond) == 1 else "equal"
        yield (
            f"{names} of {whose} {equal} {short_name(f'{metric}.{depth}')}:"
            f" {'the run holds' if one else 'they hold'} {counted(depth, 'hit')} per query at most"
        )


MISSING_TRACES = "counted as answered, with an empty answer"


def gap_warnings(whose: str, golden: Golden, counts: tuple[int, int], treated: str, kept: str) -> Iterator[str]:
    """Warnings if run and golden file have different queries.

    `whose`: a name for the run. `counts`: its rows, and those without a query. `treated`: how queries without a row are
    treated. `kept`: how rows without a query are treated.
    """
    rows, unknown = counts
    if rows and rows == unknown:
        yield f"{whose}: none of its queries is in {golden.path}; is that the right golden file?"
        return
    if missing := len(golden) - (rows - unknown):
        yield f"{whose}: no row for {counted(missing, 'golden query', 'golden queries')}, {treated}"
    if unknown:
        yield f"{whose}: {counted(unknown, 'row')} without a golden query, {kept}"
