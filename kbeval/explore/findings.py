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
    "undated-run": "runs whose created_at is not a time, so that the latest run cannot be determined",
    "reserved-id": "runs whose id also means a position, such as 'latest' or the id of another run followed by ~1",
    "rows-without-hits": "runs in which no row has the field hits_top_k",
    "misnamed-field": "fields of rows, hits and answers that look like misnamed fields of kbeval",
    "hits-without-id": "hits that name no chunk, no document and no known path",
    "guessed-chunker": "runs whose chunker version had to be guessed, or is unknown, where there are several",
    "unknown-chunks": "expected chunks that occur in no table and no run",
    "earlier-chunks": "expected chunks of an earlier chunker or index (a note, unless ids alone decide)",
    "unplaced-chunks": "expected chunks that are not in the index, and whose position is unknown",
    "foreign-run": "runs made with other chunks than the labels (a note, unless ids alone decide)",
    "reused-ids": "expected chunk ids that referred to different texts in different versions of the index",
    "unclear-ids": "runs whose chunk ids the index reuses for other text, so that they are ambiguous",
    "displaced-hits": "runs whose hits have other positions than the tables have for their chunks",
    "contested-labels": "expected ids that a run and the tables use for different text, under different chunkers",
    "unreadable-config": "runs whose configuration cannot be read",
    "row-without-hits": "rows without the field hits_top_k, in runs that have it elsewhere",
    "impossible-number": "rows with a negative time, cost or number of tokens, or one of 1e15 or more",
    "hits-without-chunk": "hits that name no chunk, where chunk ids decide",
    "unknown-hits": "runs whose hits name no chunk, or no document, that occurs in a table or a label",
    "matched-by-document": "queries that expect a chunk or a span, and can be matched by document alone",
    "malformed-citation": "citations with an invalid position, which therefore resolve to nothing",
    "malformed-span": "source_spans of hits that are not valid positions",
    "axis-mismatch": "labels with a kind of position that hits in the same document do not have",
    "unmet-places": "expected_spans in an unknown document, or beyond its end",
    "unmet-supports": "gold supports whose path is never retrieved",
    "empty-supports": "golden queries whose gold_supports is an empty list, though they should be answered",
    "bare-supports": "gold supports without snippets, which every chunk under their headings matches (a note)",
    "unknown-docs": "expected documents that occur in no table and no run",
    "unknown-field": "fields of the golden file that are ignored",
    "unlabelled": "golden queries without labels",
    "row-without-query": "rows whose query is not in the golden file",
    "query-without-row": "golden queries that a run has no row for",
    "repeated-hit": "rankings that hold a chunk more than once",
    "repeated-rank": "rankings in which a rank occurs more than once",
    "rank-gap": "rankings with gaps",
    "unjudged-hits": "hits of recent runs that have neither a label nor a decision, where people label (a note)",
    "group-mismatch": "queries of one group that expect different documents",
}


@dataclass(frozen=True)
class Finding:
    """One kind of finding: how often it occurs, examples, and what to do about it."""

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
            msg = f"{origin}: unknown finding {code!r}{hint}"
            raise UsageError(msg)
    return found
