"""Warnings about a comparison that a reader needs before trusting its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from kbeval.compare.report import CompareReport
from kbeval.scoring.depths import stored_depths
from kbeval.scoring.scorer import Scoring
from kbeval.util.text import counted

# The depth of mrr, and the largest k if none is requested.
_DEEPEST = 10


def other_labels(scoring: Scoring) -> Iterator[str]:
    """Warn if stored numbers were computed with other labels, because those numbers are not compared."""
    labels = scoring.golden.hash
    others = [run.run_id for run in scoring.runs if run.scored_with("golden") not in (None, labels)]
    if others:
        were = "was" if len(others) == 1 else "were"
        yield (
            f"{' and '.join(others)} {were} last scored with another golden file:"
            f" both runs are recomputed, with {scoring.golden.path} as it is now"
        )


def _different_depths(scoring: Scoring, report: CompareReport) -> Iterator[str]:
    """Warn if the runs kept different numbers of hits: metrics that look deeper than the smaller one are not
    comparable.
    """
    depths = stored_depths(scoring)
    cut = [(depth, run_id) for run_id, (depth, is_cut) in depths.items() if is_cut and depth < _DEEPEST]
    if not cut:
        return
    least, shallow = min(cut)
    other = report.run_b if shallow == report.run_a else report.run_a
    reached = {run_id: depth for run_id, depth, *_ in scoring.session.rows("SELECT * FROM run_depths")}
    if reached.get(other, 0) > least:
        yield (
            f"run {shallow} holds {counted(least, 'hit')} per query and run {other} up to {reached[other]:,}: numbers"
            f" that look deeper than {least:,} (mrr looks at {_DEEPEST}) are not comparable; choose others with --only"
        )


def doubts_about(scoring: Scoring, report: CompareReport, common: int) -> Iterator[str]:
    """Warnings that a reader needs before trusting the numbers."""
    # With --missing zero each run has a number for every golden query, whether it was asked or not.
    ((total,),) = scoring.session.rows("SELECT COUNT(DISTINCT query_id) FROM per_query WHERE is_counted")
    if not common:
        yield "the runs have no query in common, so the difference is unknown"
    elif common < total:
        yield (
            f"{counted(total - common, 'query', 'queries')} in one run only: A, B and delta are each over a run's own"
            f" queries, intervals and tests over the {common:,} that both have"
        )
    yield from _different_depths(scoring, report)
    ((by_doc,),) = scoring.session.rows(
        "SELECT COUNT(*) FROM pairs AS p JOIN queries AS q ON q.query_id = p.query_id"
        " WHERE p.matching = 'doc' AND q.n_expected_chunks + q.n_expected_spans > 0"
    )
    if by_doc:
        yield (
            f"{counted(by_doc, 'query', 'queries')} of {len(report.per_query):,} matched by document alone,"
            " because the position of the expected chunks or of the hits is unknown"
        )
