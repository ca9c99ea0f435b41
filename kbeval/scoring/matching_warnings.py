"""Warnings and notes about how the hits of runs were matched with the labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbeval.util.text import counted, cut

if TYPE_CHECKING:
    from kbeval.scoring.aggregate import Scored
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
    if "complex_sets" not in scoring.session.built:
        return
    why = "has too many overlapping regions to be matched by spans; the document decides"
    scoring.session.need("too_complex")
    for run_id, query_id, position in scoring.session.rows(
        "SELECT run_id, query_id, position FROM too_complex ORDER BY run_id NULLS LAST, query_id"
    ):
        if run_id is None:
            yield f"query {query_id}: an expected place {why}"
        else:
            yield f"run {run_id}, query {query_id}: hit {position} {why}"


def _foreign_warnings(scoring: Scoring) -> Iterator[str]:
    """If ids decide whatever the labels are: runs that cannot hit most of the expected chunks."""
    for run_id, version, foreign, expected, owner in _foreign_runs(scoring, "exact"):
        yield (
            f"run {run_id} was made with chunker {version}, but {foreign:,} of {expected:,} expected chunks are"
            f" {whose_chunks(owner, version)}, so it cannot hit them by id: --match auto compares the text instead"
        )


def _foreign_runs(scoring: Scoring, matching: str) -> list[tuple[str, str | None, int, int, str | None]]:
    """Runs whose labels mostly refer to other chunks, and that are matched this way."""
    scoring.session.need("foreign_runs")
    return scoring.session.rows(
        "SELECT run_id, chunker_version, n_foreign, n_expected, owner FROM foreign_runs WHERE matching = ?"
        " ORDER BY run_id",
        [matching],
    )


def matching_notes(scoring: Scoring) -> Iterator[str]:
    """Runs that were matched by spans because their ids are not comparable with those of the labels."""
    if scoring.options.match != "auto" or scoring.together:
        return
    scoring.session.need("run_matching")
    nameless = "SELECT run_id FROM run_matching WHERE matching = 'span' AND is_nameless ORDER BY run_id"
    named_otherwise = {run_id for (run_id,) in scoring.session.rows(nameless)}
    for run_id in sorted(named_otherwise):
        yield f"run {run_id} is matched by document and span: most of its hits do not name a chunk"
    for run_id, version, foreign, expected, owner in _foreign_runs(scoring, "span"):
        if run_id in named_otherwise:
            continue
        yield (
            f"run {run_id} (chunker {version}) is matched by document and span: {foreign:,} of {expected:,} expected"
            f" chunks are {whose_chunks(owner, version)}"
        )


def whose_chunks(owner: str | None, version: str | None) -> str:
    """A description of expected chunks that do not belong to a run of this version."""
    if owner is None:
        return "not among the chunks of the index"
    return f"of {owner}" if owner != version else f"of another index of {owner} (its policy or its content differs)"
