"""What `kbeval check` can find: a short stable code for each kind of finding, and one line about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kbeval.errors import UsageError

CODES = {
    "unreadable-row": "stored rows that cannot be read",
    "repeated-row": "runs with several rows for one query",
    "repeated-run": "runs with several rows in eval_runs",
    "unreadable-key": "runs whose run_id or suite is not UTF-8 text",
    "undated-run": "runs whose created_at is not a time, so that it is not known which run is the latest",
    "reserved-id": "runs whose id also means a position, such as 'latest' or the id of another run followed by ~1",
    "rows-without-hits": "runs in which no row has the field hits_top_k",
    "misnamed-field": "fields of rows, hits and answers that look like one that kbeval reads, under another name",
    "hits-without-id": "hits that name no chunk, no document and no known path",
    "guessed-chunker": "runs whose chunker version had to be guessed, or is unknown, where there are several",
    "unknown-chunks": "expected chunks that nothing knows",
    "earlier-chunks": "expected chunks of an earlier chunker or index (a note, unless ids alone decide)",
    "unplaced-chunks": "expected chunks that are not in the index, and whose place is not known",
    "foreign-run": "runs made with other chunks than the labels (a note, unless ids alone decide)",
    "reused-ids": "expected chunk ids that stood for different text in different versions of the index",
    "unclear-ids": "runs whose chunk ids the index uses again for other text, where it is not known which is meant",
    "displaced-hits": "runs whose hits state another place than the tables have for their chunks",
    "contested-labels": "expected ids that a run and the tables use for different text, under different chunkers",
    "unreadable-config": "runs whose configuration cannot be read",
    "row-without-hits": "rows without the field hits_top_k, in runs that have it elsewhere",
    "hits-without-chunk": "hits that name no chunk, where chunk ids decide",
    "unknown-hits": "runs whose hits name no chunk, or no document, that a table or a label knows",
    "matched-by-document": "queries that expect a chunk or a place, and can be matched by document alone",
    "malformed-citation": "citations that say wrongly where in a document, and so resolve to nothing",
    "malformed-span": "source_spans of hits that are not valid positions",
    "axis-mismatch": "labels by a kind of position that the hits near them do not have",
    "unmet-places": "expected_spans in a document that nothing knows, or beyond its end",
    "unmet-supports": "gold supports whose path is never retrieved",
    "empty-supports": "golden queries whose gold_supports is an empty list, though they should be answered",
    "bare-supports": "gold supports without snippets, which every chunk under their headings matches (a note)",
    "unknown-docs": "expected documents that nothing knows",
    "unknown-field": "fields of the golden file that are ignored",
    "unlabelled": "golden queries without labels",
    "row-without-query": "rows whose query is not in the golden file",
    "query-without-row": "golden queries that a run has no row for",
    "repeated-hit": "rankings that hold a chunk more than once",
    "repeated-rank": "rankings in which a rank occurs more than once",
    "rank-gap": "rankings with gaps",
    "unjudged-hits": "hits of recent runs that no label names and no person decided on, where people label (a note)",
    "group-mismatch": "queries of one group that expect different documents",
}


@dataclass(frozen=True)
class Finding:
    """One kind of finding: how often, where for example, and what to do about it."""

    code: str
    kind: str
    count: int
    examples: tuple[str, ...]
    advice: str
    # Worth knowing, but no action is needed: it does not fail the check.
    is_note: bool = False


def known_codes(codes: Iterable[str], origin: str) -> frozenset[str]:
    """Codes as they are written. Raises UsageError if one is unknown; `origin`: where they are written."""
    from kbeval.util.text import did_you_mean

    found = frozenset(codes)
    for code in sorted(found):
        if code not in CODES:
            hint = did_you_mean(code, CODES) or "; 'kbeval check --codes' lists them"
            msg = f"{origin}: there is no finding {code!r}{hint}"
            raise UsageError(msg)
    return found
