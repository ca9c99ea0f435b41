"""Warnings and notes about how the hits of runs were matched with the labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbeval.util.text import counted, cut

if TYPE_CHECKING:
    from kbeval.scoring.aggregate import Scored
    from kbeval.scoring.matching import MatchedRun
    from kbeval.scoring.scorer import Scoring


def matching_warnings(scoring: Scoring, scored: Scored) -> Iterator[str]:
    """Runs in which it cannot be decided, for some or all queries, whether hits are expected ones."""
    for run_id, aggregate in scored.aggregates.items():
        # If nothing can be matched, `find_doubts` reports why.
        if aggregate.provenance["matching"] != "none" and (unmatched := aggregate.ledger.get("unmatched")):
            yield (
                f"run {run_id}: {counted(unmatched, 'query', 'queries')} cannot be matched, because neither the"
                " position nor the document of their expected chunks is known; they are left out of the metrics about"
                " chunks: score before the index is replaced, or label by expected_spans"
            )
    yield from _unknown_places(scoring)
    yield from _foreign_warnings(scoring)
    yield from _complex_warnings(scoring)


def _unknown_places(scoring: Scoring) -> Iterator[str]:
    """Labels with a place in an unknown document, mostly because its name is written differently."""
    if not scoring.golden.has_span_labels:
        return
    scoring.session.need("unknown_places")
    ((queries, query_id, doc_id),) = scoring.session.rows(
        "SELECT COUNT(DISTINCT query_id), MIN(query_id), MIN_BY(doc_id, query_id) FROM unknown_places"
    )
    if queries:
        yield (
            f"expected_spans of {counted(queries, 'query', 'queries')} (first {cut(query_id, 60)}) are in a document"
            f" that occurs in no table and no hit (first {cut(doc_id or '', 60)!r}): 0 there means 'could not be"
            " matched'; 'kbeval check' lists them"
        )


def _complex_warnings(scoring: Scoring) -> Iterator[str]:
    """Hits and labels with too many or too heavily overlapping regions to be compared."""
    session = scoring.session
    if "complex_sets" not in session.built or session.is_built_empty("complex_sets"):
        return
    why = "has too many overlapping regions to be matched by spans; the document decides"
    session.need("too_complex")
    for run_id, query_id, position in session.rows(
        "SELECT run_id, query_id, position FROM too_complex ORDER BY run_id NULLS LAST, query_id"
    ):
        if run_id is None:
            yield f"query {query_id}: an expected place {why}"
        else:
            yield f"run {run_id}, query {query_id}: hit {position} {why}"


def _foreign_warnings(scoring: Scoring) -> Iterator[str]:
    """If ids decide whatever the labels are: runs that cannot hit most of the expected chunks."""
    for run in scoring.matching.foreign_runs:
        if run.matching == "exact":
            yield (
                f"run {run.run_id} was made with chunker {run.chunker_version}, but {_foreign_chunks(run)}, so it"
                " cannot hit them by id: --match auto compares the text instead"
            )


def _foreign_chunks(run: MatchedRun) -> str:
    """A description of the expected chunks that do not belong to a run."""
    whose = whose_chunks(run.owner, run.chunker_version)
    return f"{run.n_foreign:,} of {run.n_expected:,} expected chunks are {whose}"


def matching_notes(scoring: Scoring) -> Iterator[str]:
    """Runs that were matched by spans because their ids are not comparable with those of the labels."""
    if scoring.options.match != "auto" or scoring.together:
        return
    for run in scoring.matching.runs:
        if run.matching == "span" and run.is_nameless:
            yield f"run {run.run_id} is matched by document and span: most of its hits do not name a chunk"
    for run in scoring.matching.foreign_runs:
        if run.matching == "span" and not run.is_nameless:
            yield (
                f"run {run.run_id} (chunker {run.chunker_version}) is matched by document and span:"
                f" {_foreign_chunks(run)}"
            )


def whose_chunks(owner: str | None, version: str | None) -> str:
    """A description of expected chunks that do not belong to a run of this version."""
    if owner is None:
        return "not among the chunks of the index"
    return f"of {owner}" if owner != version else f"of another index of {owner} (its policy or its content differs)"
