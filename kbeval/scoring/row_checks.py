"""Warnings about irregular rows, reported next to the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kbeval.util.text import counted

if TYPE_CHECKING:
    from kbeval.scoring.scorer import Scoring

# Labels about retrieval.
_OF_HITS = ("expected_chunk_ids", "expected_doc_ids", "expected_spans", "relevance", "gold_supports")

# The consequence if labels and hits have different kinds of position.
_BY_DOCUMENT = "the document alone decides there; store one kind of position with both"


def row_warnings(scoring: Scoring) -> Iterator[str]:
    """Warnings about the rows that numbers were computed from, one line per run."""
    # Reading rows again takes time, and is useful only if something was missing.
    if _something_lacks(scoring):
        for run_id, text in (*runs_without_hits(scoring), *misnamed_fields(scoring)):
            yield f"run {run_id}: {text}"
    idless: dict[str, list[str]] = {}
    for run_id, query_id, _ in idless_hits(scoring):
        idless.setdefault(run_id, []).append(query_id)
    for run_id, queries in idless.items():
        yield (
            f"run {run_id}: {counted(len(queries), 'hit')} without chunk_id, doc_id or a known path,"
            f" first in query {queries[0]}: they cannot match anything that is expected"
        )
    tied: dict[str, list[str]] = {}
    for run_id, query_id, _ in tied_rankings(scoring):
        tied.setdefault(run_id, []).append(query_id)
    for run_id, queries in tied.items():
        yield (
            f"run {run_id}: {counted(len(queries), 'ranking')} with repeated ranks, first of query {queries[0]}:"
            " hits are ordered by rank, then by their order in the list"
        )
    for run_id, version, source in guessed_chunkers(scoring):
        if source == "hits":
            continue
        guess = f"assumed to be {version}, like the chunks that it hit" if version else "unknown"
        yield f"run {run_id}: its configuration names no chunker_version, and there are several: it is {guess}"
    for run_id, text in unmet_axes(scoring):
        yield f"run {run_id}: {text}"


def _something_lacks(scoring: Scoring) -> bool:
    """Is there a run without any hits or with empty answers only, or a hit that does not name a chunk or a document?"""
    matching = scoring.matching
    return matching.names_missing or matching.documents_missing or bool(built_rows(scoring, "odd_runs"))


def built_rows(scoring: Scoring, relation: str, order: str = "") -> list[tuple[Any, ...]]:
    """The rows of a relation, by all of their values unless an order is given."""
    scoring.session.need(relation)
    found = scoring.session.rows(f"SELECT * FROM {relation} {order}")
    return found if order else sorted(found, key=lambda row: [(value is None, value) for value in row])


def runs_without_hits(scoring: Scoring) -> list[tuple[str, str]]:
    """Runs in which no row has hits or an empty list of hits: the run, and a description."""
    other = {run_id: found for run_id, _, field, found, _, _ in _all_misnamed(scoring) if field == "hits_top_k"}
    needed = any(scoring.golden.has(label) for label in _OF_HITS)
    return [
        (run_id, "no row has 'hits_top_k'" + (f"; did you mean {other[run_id]!r}?" if run_id in other else ""))
        for run_id, _ in built_rows(scoring, "runs_without_hits")
        if needed or run_id in other
    ]


def _all_misnamed(scoring: Scoring) -> list[tuple[str, str, str, str, str, int]]:
    found = built_rows(scoring, "misnamed_fields", "ORDER BY run_id, level DESC, field, n_rows DESC, found")
    # If no label names a chunk, it does not matter which chunk a hit is.
    has_chunks = scoring.golden.has("expected_chunk_ids") or scoring.golden.has("relevance")
    first: dict[tuple[str, ...], tuple[str, str, str, str, str, int]] = {}
    for run_id, level, field, spelt, query_id, rows in found:
        if field != "chunk_id" or has_chunks:
            first.setdefault((run_id, level, field), (run_id, level, field, spelt, query_id, rows))
    return list(first.values())


def misnamed_fields(scoring: Scoring) -> list[tuple[str, str]]:
    """Fields under another name than the one that kbeval reads, one line per run."""
    without = {run_id for run_id, _ in built_rows(scoring, "runs_without_hits")}
    texts: dict[str, list[str]] = {}
    where = {"row": "rows", "hit": "hits", "answer": "answers"}
    for run_id, level, field, found, query_id, _ in _all_misnamed(scoring):
        if field != "hits_top_k" or run_id not in without:
            texts.setdefault(run_id, []).append(
                f"{where[level]} with {found!r} and no {field!r} (first in query {query_id})"
            )
    return [
        (run_id, f"{', '.join(found)}: only fields with the documented names are read")
        for run_id, found in texts.items()
    ]


def idless_hits(scoring: Scoring) -> list[tuple[str, str, int]]:
    """Hits without any id: run, query, and position in the list."""
    if scoring.golden.has("gold_supports") or "anchors" in scoring.systems:
        # Hits of that system are identified by path and headings.
        return []
    return built_rows(scoring, "hits_without_id") if scoring.matching.ids_missing else []


def guessed_chunkers(scoring: Scoring) -> list[tuple[str, str | None, str | None]]:
    """Runs whose configuration does not name their chunker, if there are several."""
    ((versions, silent),) = built_rows(scoring, "silent_runs")
    return built_rows(scoring, "guessed_chunkers") if versions > 1 and silent else []


def tied_rankings(scoring: Scoring) -> list[tuple[str, str, int]]:
    """Rankings in which a rank occurs more than once: run, query, and the first such rank."""
    session = scoring.session
    # If all rows were parsed here, it is known already.
    if session.is_built_empty("tied_ranks") and not session.is_kept("hits"):
        return []
    return built_rows(scoring, "tied_rankings")


def unmet_axes(scoring: Scoring) -> list[tuple[str, str]]:
    """Labels that are not comparable with the hits of a run: the run, and a description."""
    if not scoring.matching.places_matter:
        return []
    found = [
        (run_id, _unmet(place_kind, query_id, queries, f"hits in their documents are by {hit_kind}", _BY_DOCUMENT))
        for run_id, place_kind, hit_kind, query_id, queries in built_rows(scoring, "unmet_labels")
    ]
    if not scoring.golden.has("expected_spans"):
        return found
    # If such a run has no hit near the answer, nothing needs to be decided, but the labels may still be wrong.
    told = {run_id for run_id, _ in found}
    unmet = [row for row in built_rows(scoring, "unmet_axes") if row[0] not in told]
    if not unmet:
        return found
    used: dict[str, list[str]] = {}
    for run_id, axis in built_rows(scoring, "used_axes"):
        used.setdefault(run_id, []).append(axis)
    for run_id, axis, query_id, queries in unmet:
        stand = f"its hits and the known chunks are by {', '.join(used[run_id])}"
        found.append((run_id, _unmet(axis, query_id, queries, stand, "they cannot match")))
    return found


def _unmet(axis: str, query_id: str, queries: int, stand: str, so: str) -> str:
    return f"{counted(queries, 'query', 'queries')} labelled by {axis} (first {query_id}), but {stand}: {so}"
