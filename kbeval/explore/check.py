"""Problems that make numbers unreliable: rows with unexpected content, labels that refer to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbeval.explore.findings import Finding
from kbeval.explore.unjudged import ABOUT_UNJUDGED, UNJUDGED, unjudged_hits
from kbeval.golden import Golden
from kbeval.scoring.doubts import find_doubts
from kbeval.scoring.row_checks import (
    built_rows,
    guessed_chunkers,
    idless_hits,
    misnamed_fields,
    runs_without_hits,
    tied_rankings,
    unmet_axes,
)
from kbeval.scoring.scorer import Scoring
from kbeval.storage.labels import Decision
from kbeval.storage.runs import REPEATED_ROW, REPEATED_RUN, UNREADABLE_KEY, KeyFault, read_as_positions
from kbeval.util.text import counted, cut

_LABELS = (
    "expected_chunk_ids",
    "expected_doc_ids",
    "expected_spans",
    "relevance",
    "must_contain",
    "forbidden",
    "gold_claim_substr",
    "gold_supports",
    "answerable",
)
# Labels that are meaningful even if false or empty: the query should be refused.
_SAY_BY_THEMSELVES = ("answerable", "expected_doc_ids")
_EXAMPLES = 3
# The headings of findings whose text already gives the advice, and the rest of the advice.
_ABOUT_DOUBTS = {
    "unreadable-config": ("runs whose configuration cannot be read", "write a JSON object to config_snapshot_json"),
    "row-without-hits": (
        "rows without hits",
        "write the retrieved hits to 'hits_top_k', or an empty list if there were none",
    ),
    "impossible-number": (
        "rows with impossible numbers",
        "correct elapsed_ms, the tokens or the cost in the rows, or leave them out",
    ),
    "unclear-ids": (
        "runs whose chunk ids are ambiguous",
        "store source_spans with the hits, or give each index its own version: ids are not enough",
    ),
    "displaced-hits": (
        "runs whose chunks are located elsewhere than in the tables",
        "score each index before it is replaced, so that the meaning of its ids is kept",
    ),
    "contested-labels": ("labels whose chunker is ambiguous", "label by expected_spans, which need no chunk id"),
    "hits-without-chunk": ("hits without a chunk", "give each hit its chunk_id"),
    "unknown-hits": (
        "runs whose hits are all unknown",
        "make hits and labels use the same ids; ids are compared without any conversion",
    ),
    "matched-by-document": (
        "queries matched by document alone",
        "store source_spans with the hits, or fill the table 'chunks'",
    ),
}


def check_workspace(scoring: Scoring, decisions: Sequence[Decision] = ()) -> list[Finding]:
    """Check the golden file against the database. An empty list means that no problem was found.

    `decisions`: the decisions that people made while labelling, if any.
    """
    session = scoring.session
    session.need("bad_rows", "chunks", "documents", "hits", "results", "runs")
    session.need("queries", "expected_chunks", "expected_docs", "repeated_hits")
    checks = [
        _bad_rows(scoring),
        *_key_faults(scoring),
        _undated_runs(scoring),
        _reserved_ids(scoring),
        *_fields(scoring),
        _hits_without_id(scoring),
        *_guessed_chunkers(scoring),
        *_stale_chunks(scoring),
        _foreign_runs(scoring),
        _reused_ids(scoring),
        *_doubts(scoring),
        _unmet_places(scoring),
        *_supports(scoring),
        _malformed_citations(scoring),
        _malformed_spans(scoring),
        _axis_mismatches(scoring),
        _stale_docs(scoring),
        _finding("unknown-field", "ignored fields in the golden file", "correct their names", scoring.golden.warnings),
        _unlabelled(scoring.golden),
        _rows_without_golden(scoring),
        _golden_without_rows(scoring),
        _repeated_hits(scoring),
        _repeated_ranks(scoring),
        _rank_gaps(scoring),
        _groups(scoring.golden),
        _finding("unjudged-hits", UNJUDGED, ABOUT_UNJUDGED, unjudged_hits(scoring, decisions), is_note=True),
    ]
    return [finding for finding in checks if finding.count]


def _finding(code: str, kind: str, advice: str, found: Sequence[str], *, is_note: bool = False) -> Finding:
    return Finding(code, kind, len(found), tuple(found[:_EXAMPLES]), advice, is_note)


def _column(scoring: Scoring, sql: str) -> list[str]:
    return [str(row[0]) for row in scoring.session.rows(sql)]


def _ids_decide(scoring: Scoring) -> bool:
    """Were chunk ids alone requested to decide, whatever the chunkers are?"""
    return scoring.options.match == "exact"


# --- rows --------------------------------------------------------------------------------------------


def _bad_rows(scoring: Scoring) -> Finding:
    found = _column(scoring, "SELECT run_id || ' ' || query_id || ': ' || fault FROM bad_rows ORDER BY 1")
    return _finding("unreadable-row", "unreadable rows", "repair them, or score with --skip-bad-rows", found)


def _key_faults(scoring: Scoring) -> Iterator[Finding]:
    def of(code: str) -> list[KeyFault]:
        return [fault for fault in scoring.key_faults if fault.code == code]

    advice = "which of them counts is ambiguous, so these runs are not scored or checked further; keep one of each"
    rows = [f"{fault.run_id} {fault.query_id}: {fault.count:,} rows" for fault in of(REPEATED_ROW)]
    yield _finding(REPEATED_ROW, "queries with several rows in one run", advice, rows)
    runs = [f"{fault.run_id}: {fault.count:,} rows in eval_runs" for fault in of(REPEATED_RUN)]
    yield _finding(REPEATED_RUN, "runs with several rows in eval_runs", advice, runs)
    yield _finding(
        UNREADABLE_KEY,
        "runs whose id or suite is not UTF-8 text",
        "they cannot be named, so they are neither scored nor checked further; correct run_id or suite in eval_runs",
        [fault.run_id for fault in of(UNREADABLE_KEY)],
    )


def _undated_runs(scoring: Scoring) -> Finding:
    found = [f"{run.run_id}: {cut(run.created_at, 40)!r}" for run in scoring.runs if not run.is_dated]
    advice = (
        "their position among the runs is unknown, so 'latest' and names by position are rejected:"
        " write created_at like 2026-03-01T14:00:00Z"
    )
    return _finding("undated-run", "runs whose created_at is not a time", advice, found)


def _reserved_ids(scoring: Scoring) -> Finding:
    found = [cut(run_id, 80) for run_id in read_as_positions(scoring.runs)]
    advice = "the id of such a run is ambiguous: it also names another run by position; change it in eval_runs"
    return _finding("reserved-id", "runs whose id also means a position", advice, found)


def _fields(scoring: Scoring) -> Iterator[Finding]:
    yield _finding(
        "rows-without-hits",
        "runs whose rows have no hits",
        "write the retrieved hits to 'hits_top_k', or an empty list if there were none",
        [f"{run_id}: {text}" for run_id, text in runs_without_hits(scoring)],
    )
    yield _finding(
        "misnamed-field",
        "runs with misnamed fields",
        "rename them in the rows; a field that is not found counts as missing",
        [f"{run_id}: {text.partition(': only')[0]}" for run_id, text in misnamed_fields(scoring)],
    )


def _hits_without_id(scoring: Scoring) -> Finding:
    found = [f"{run_id} {query_id}: hit {position}" for run_id, query_id, position in idless_hits(scoring)]
    advice = "give each hit its chunk_id, doc_id, or a doc_path that the table 'documents' has"
    return _finding("hits-without-id", "hits without any id", advice, found)


def _guessed_chunkers(scoring: Scoring) -> Iterator[Finding]:
    found = guessed_chunkers(scoring)
    guessed = [
        f"{run_id} ({version}, taken from the chunks that it hit)" if version else f"{run_id} (unknown)"
        for run_id, version, source in found
        if source != "hits"
    ]
    advice = "add chunker_version to the configuration of the run"
    yield _finding("guessed-chunker", "runs whose chunker had to be guessed", advice, guessed)
    named = [f"{run_id} ({version})" for run_id, version, source in found if source == "hits"]
    kind = "runs whose chunker is named by their hits, not by their configuration"
    yield _finding("guessed-chunker", kind, f"no action is needed, but it is better to {advice}", named, is_note=True)


# --- labels ------------------------------------------------------------------------------------------


def _stale_chunks(scoring: Scoring) -> Iterator[Finding]:
    """Expected chunks that are unknown, and those known only from earlier indexes."""
    rows = built_rows(scoring, "label_chunks")
    current = ", ".join(_column(scoring, "SELECT DISTINCT chunker_version FROM chunks ORDER BY 1"))
    ((hits,),) = scoring.session.rows("SELECT COUNT(chunk_id) FROM hits")
    unknown = [chunk for chunk, is_indexed, is_known, _, _ in rows if not is_indexed and not is_known]
    advice = "these ids occur in no table and no run: correct the labels"
    if current and len(unknown) * 2 > len(rows):
        advice = (
            "most expected ids are unknown, so they may belong to another chunker version than"
            f" {current}: label again, or label by expected_spans or expected_doc_ids"
        )
    elif not current:
        advice = (
            "no run retrieved these chunks, and there is no table 'chunks' to look them up in: correct those labels"
            " that are wrong, or fill the table"
        )
    # If no hit names a chunk and there is no table, there is nothing to check the labels against.
    yield _finding("unknown-chunks", "unknown expected chunks", advice, unknown if current or hits else [])
    earlier = [row for row in rows if current and not row[1] and row[2]]
    yield _earlier_chunks(scoring, [row for row in earlier if row[3]], current)
    yield _finding(
        "unplaced-chunks",
        "expected chunks of which only the id is known",
        f"they are not among the chunks of {current}, and their position is unknown: other chunks can be"
        " matched with them by document alone; label by expected_spans",
        [row[0] for row in earlier if not row[3]],
    )


def _earlier_chunks(scoring: Scoring, earlier: Sequence[tuple[Any, ...]], current: str) -> Finding:
    versions = ", ".join(sorted({row[4] for row in earlier if row[4]})) or "an earlier index"
    advice = f"they belong to {versions}, and the table 'chunks' now holds {current}: "
    by_ids = _ids_decide(scoring)
    advice += (
        "runs made with that cannot hit them by id; leave out --match exact, or label by expected_spans"
        if by_ids
        else "their position is known, so they are matched by span; no action is needed"
    )
    found = [row[0] for row in earlier]
    return _finding(
        "earlier-chunks", "expected chunks of an earlier chunker or index", advice, found, is_note=not by_ids
    )


def _foreign_runs(scoring: Scoring) -> Finding:
    """Runs that cannot hit expected chunks by id, because the labels refer to other chunks."""
    found = [
        f"{run_id} ({version}; labels: {'another index of ' if owner == version else ''}{owner or 'unknown'})"
        for run_id, version, owner, *_ in built_rows(scoring, "foreign_runs")
    ]
    by_ids = _ids_decide(scoring)
    advice = "most expected chunk ids are unknown to the index that these runs were made with: "
    advice += (
        "they cannot be hit by id: leave out --match exact, or label by expected_spans"
        if by_ids
        else "they are matched by the positions of hits and labels; no action is needed"
    )
    return _finding("foreign-run", "runs made with other chunks than the labels", advice, found, is_note=not by_ids)


def _reused_ids(scoring: Scoring) -> Finding:
    found = [f"{chunk} ({places} places)" for chunk, places in built_rows(scoring, "reused_ids")]
    advice = "a label means the text that its id referred to first; if another text is meant, label by expected_spans"
    return _finding("reused-ids", "expected chunk ids that referred to different texts", advice, found)


def _doubts(scoring: Scoring) -> Iterator[Finding]:
    """Reasons to doubt the numbers of runs, as reported by `score`."""
    found: dict[str, list[str]] = {}
    for code, run_id, text in find_doubts(scoring, thoroughly=True):
        if code != "reused-ids":
            found.setdefault(code, []).append(f"{run_id}: {text}")
    for code, texts in found.items():
        kind, advice = _ABOUT_DOUBTS[code]
        # If no position is known the document decides, as intended: the numbers are less precise, but not wrong.
        yield _finding(code, kind, advice, texts, is_note=code == "matched-by-document")


def _unmet_places(scoring: Scoring) -> Finding:
    """expected_spans that no hit can match, because their document is unknown or ends before them."""
    found = []
    if scoring.golden.has_span_labels:
        for query_id, place, doc_id, is_known, reach in built_rows(scoring, "unmet_places"):
            why = f"no known part of it extends beyond {reach:,.0f}" if is_known else "this document is unknown"
            found.append(f"{query_id}, {place}, {cut(doc_id, 60)}: {why}")
    advice = "no hit can match them: correct the document or the position"
    return _finding("unmet-places", "expected_spans that no hit can match", advice, found)


def _supports(scoring: Scoring) -> Iterator[Finding]:
    """Supports that no hit can match, or that nearly every hit matches."""
    if not scoring.golden.has("gold_supports"):
        return
    # Paths that occur in no hit of any run were never retrieved, or are spelt differently.
    unmet = [f"{path} (first {query_id})" for path, query_id in built_rows(scoring, "unmet_supports")]
    advice = "no run retrieved any of these files: write rel_path as it is written in the retrieved chunks"
    yield _finding("unmet-supports", "supports with paths that occur in no run", advice, unmet)
    empty = [query_id for (query_id,) in built_rows(scoring, "empty_supports")]
    advice = "no metric about supports counts them: add supports, or answerable: false if there is no answer"
    yield _finding("empty-supports", "queries with an empty list of supports", advice, empty)
    bare = [
        f"{query_id}, support {number}, {cut(path, 60)}{' (the whole file)' if is_whole else ''}"
        for query_id, number, path, is_whole in built_rows(scoring, "bare_supports")
    ]
    advice = "every chunk under their headings counts, whatever its text; snippets would identify the right ones"
    yield _finding("bare-supports", "supports without snippets", advice, bare, is_note=True)


def _axis_mismatches(scoring: Scoring) -> Finding:
    found = [f"{run_id}: {text}" for run_id, text in unmet_axes(scoring)]
    advice = "write expected_spans with the kind of position that the hits have, or store that kind with the hits"
    return _finding("axis-mismatch", "labels with a kind of position that hits do not have", advice, found)


def _malformed_citations(scoring: Scoring) -> Finding:
    found = [
        f"{run_id} {query_id}: citation {number}"
        for run_id, query_id, number in built_rows(scoring, "malformed_citations")
    ]
    advice = (
        "they count as unresolved: give each a known kind, with an end that is not before its start, or the path alone"
    )
    return _finding("malformed-citation", "malformed citations", advice, found)


def _malformed_spans(scoring: Scoring) -> Finding:
    found = [
        f"{run_id} {query_id}: hit {number}" for run_id, query_id, number in built_rows(scoring, "malformed_spans")
    ]
    advice = "such a span does not locate the hit: give it a known kind, and an end after its start"
    return _finding("malformed-span", "hits with malformed source_spans", advice, found)


def _stale_docs(scoring: Scoring) -> Finding:
    found = [doc_id for (doc_id,) in built_rows(scoring, "unknown_docs")]
    advice = "these ids occur in no table and no run: correct the labels"
    return _finding("unknown-docs", "unknown expected documents", advice, found)


def _unlabelled(golden: Golden) -> Finding:
    found = [str(entry["id"]) for entry in golden.entries if not any(_says(entry, label) for label in _LABELS)]
    labels = "expected_spans, expected_chunk_ids, expected_doc_ids, must_contain or answerable"
    advice = f"no metric applies to them: add {labels}"
    return _finding("unlabelled", "unlabelled queries", advice, found)


def _says(entry: Mapping[str, Any], label: str) -> bool:
    """Does the entry have this label? An empty list means nothing, except that no document has the answer."""
    return label in entry and (bool(entry[label]) or label in _SAY_BY_THEMSELVES)


def _rows_without_golden(scoring: Scoring) -> Finding:
    found = [f"{run_id} {query_id}" for run_id, query_id in built_rows(scoring, "rows_without_query")]
    return _finding(
        "row-without-query",
        "rows without a golden query",
        "they count only in totals; is this the right golden file?",
        found,
    )


def _golden_without_rows(scoring: Scoring) -> Finding:
    found = [f"{run_id} {query_id}" for run_id, query_id in built_rows(scoring, "queries_without_row")]
    advice = (
        "the run never asked them, and each counts as zero; repeat the run"
        if scoring.options.missing == "zero"
        else "the run never asked them, and they are not part of the averages; repeat the run, or use --missing zero"
    )
    return _finding("query-without-row", "golden queries without a row", advice, found)


def _repeated_hits(scoring: Scoring) -> Finding:
    found = [f"{run_id} {query_id}: {chunk}" for run_id, query_id, chunk in built_rows(scoring, "repeated_chunks")]
    return _finding(
        "repeated-hit",
        "repeated hits",
        "a chunk counts once, at its best rank: the retriever should not repeat it",
        found,
    )


def _repeated_ranks(scoring: Scoring) -> Finding:
    found = [f"{run_id} {query_id}: rank {rank}" for run_id, query_id, rank in tied_rankings(scoring)]
    advice = "hits are ordered by rank, then by their order in the list; give each hit a rank of its own"
    return _finding("repeated-rank", "rankings with repeated ranks", advice, found)


def _rank_gaps(scoring: Scoring) -> Finding:
    found = [
        f"{run_id} {query_id}: ranks to {last} in {counted(count, 'hit')}"
        for run_id, query_id, last, count in built_rows(scoring, "rank_gaps")
    ]
    return _finding(
        "rank-gap", "ranks with gaps", "ranks are used as stored; hits may have been dropped after ranking", found
    )


def _groups(golden: Golden) -> Finding:
    advice = "queries of one group ask the same question, so they must expect the same documents"
    return _finding("group-mismatch", "groups with different expected documents", advice, golden.group_faults)
