"""What makes numbers untrustworthy: rows that hold something else than they should, labels that point nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kbeval.findings import Finding
from kbeval.golden import Golden
from kbeval.runs import REPEATED_ROW, REPEATED_RUN, UNREADABLE_KEY, KeyFault
from kbeval.scoring import Scoring
from kbeval.text import counted, cut

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
# Labels that are about what was retrieved.
_OF_HITS = ("expected_chunk_ids", "expected_doc_ids", "expected_spans", "relevance", "gold_supports")
_EXAMPLES = 3


def check_workspace(scoring: Scoring) -> list[Finding]:
    """Hold the golden file against the database; an empty list is good news."""
    session = scoring.session
    session.need("bad_rows", "chunks", "documents", "hits", "results", "runs")
    session.need("queries", "expected_chunks", "expected_docs", "repeated_hits")
    checks = [
        _bad_rows(scoring),
        *_key_faults(scoring),
        _undated_runs(scoring),
        *_fields(scoring),
        _hits_without_id(scoring),
        *_guessed_chunkers(scoring),
        *_stale_chunks(scoring),
        _foreign_runs(scoring),
        _reused_ids(scoring),
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
    ]
    return [finding for finding in checks if finding.count]


def row_warnings(scoring: Scoring) -> Iterator[str]:
    """What a reader of the numbers must know about the rows that they were made from, one line for each run."""
    # Reading rows once more takes time, and is worth it only where something lacks in what was read of them.
    if _something_lacks(scoring):
        for run_id, text in (*_without_hits(scoring), *_misnamed(scoring)):
            yield f"run {run_id}: {text}"
    idless: dict[str, list[str]] = {}
    for run_id, query_id, _ in _idless_hits(scoring):
        idless.setdefault(run_id, []).append(query_id)
    for run_id, queries in idless.items():
        yield (
            f"run {run_id}: {counted(len(queries), 'hit')} without chunk_id, doc_id or a known path,"
            f" first in query {queries[0]}: nothing that is expected can be found in them"
        )
    tied: dict[str, list[str]] = {}
    for run_id, query_id, _ in _tied(scoring):
        tied.setdefault(run_id, []).append(query_id)
    for run_id, queries in tied.items():
        yield (
            f"run {run_id}: {counted(len(queries), 'ranking')} with repeated ranks, first of query {queries[0]}:"
            " each hit takes a place of its own, in the order of ranks and then of the list"
        )
    for run_id, version, source in _guessed(scoring):
        if source == "hits":
            continue
        guess = f"taken for {version}, as the chunks that it hit" if version else "unknown"
        yield f"run {run_id}: its configuration names no chunker_version, and there are several: it is {guess}"
    for run_id, text in _unmet_axes(scoring):
        yield f"run {run_id}: {text}"


def _something_lacks(scoring: Scoring) -> bool:
    """Is there a run without any hits or with empty answers only, or a hit that names no chunk or no document?"""
    scoring.session.need("hits", "results")
    ((runs, hits),) = scoring.session.rows(
        """
        WITH odd_runs AS (
            SELECT run_id
            FROM results
            WHERE NOT failed
            GROUP BY run_id
            HAVING MAX(n_hits) = 0
                OR (MAX(CASE WHEN has_answer THEN 1 END) = 1
                    AND MIN(CASE WHEN has_answer AND NOT is_empty THEN 0 ELSE 1 END) = 1)
        )
        SELECT
            (SELECT COUNT(*) FROM odd_runs),
            (SELECT COUNT(*) FROM (SELECT 1 FROM hits WHERE chunk_id IS NULL OR doc_id IS NULL LIMIT 1))
        """
    )
    return bool(runs or hits)


def _finding(code: str, kind: str, advice: str, found: Sequence[str], *, is_note: bool = False) -> Finding:
    return Finding(code, kind, len(found), tuple(found[:_EXAMPLES]), advice, is_note)


def _column(scoring: Scoring, sql: str) -> list[str]:
    return [str(row[0]) for row in scoring.session.rows(sql)]


def _built(scoring: Scoring, relation: str, order: str = "ORDER BY ALL") -> list[tuple[Any, ...]]:
    scoring.session.need(relation)
    return scoring.session.rows(f"SELECT * FROM {relation} {order}")


def _ids_decide(scoring: Scoring) -> bool:
    """Was it asked that chunk ids alone decide, whatever the chunkers are?"""
    return scoring.options.match == "exact"


# --- rows --------------------------------------------------------------------------------------------


def _bad_rows(scoring: Scoring) -> Finding:
    found = _column(scoring, "SELECT run_id || ' ' || query_id || ': ' || fault FROM bad_rows ORDER BY 1")
    return _finding("unreadable-row", "unreadable rows", "repair them, or score with --skip-bad-rows", found)


def _key_faults(scoring: Scoring) -> Iterator[Finding]:
    def of(code: str) -> list[KeyFault]:
        return [fault for fault in scoring.key_faults if fault.code == code]

    advice = "it is not clear which of them counts, so these runs are not scored, nor checked further: keep one of each"
    rows = [f"{fault.run_id} {fault.query_id}: {fault.count:,} rows" for fault in of(REPEATED_ROW)]
    yield _finding(REPEATED_ROW, "queries with several rows in one run", advice, rows)
    runs = [f"{fault.run_id}: {fault.count:,} rows in eval_runs" for fault in of(REPEATED_RUN)]
    yield _finding(REPEATED_RUN, "runs with several rows in eval_runs", advice, runs)
    yield _finding(
        UNREADABLE_KEY,
        "runs whose id or suite is not UTF-8 text",
        "nothing can name them, so they are not scored, nor checked further: correct run_id or suite in eval_runs",
        [fault.run_id for fault in of(UNREADABLE_KEY)],
    )


def _undated_runs(scoring: Scoring) -> Finding:
    found = [f"{run.run_id}: {cut(run.created_at, 40)!r}" for run in scoring.runs if not run.is_dated]
    advice = (
        "it is not known where they stand among the others, so 'latest' and names by place are refused:"
        " write created_at like 2026-03-01T14:00:00Z"
    )
    return _finding("undated-run", "runs whose created_at is not a time", advice, found)


def _without_hits(scoring: Scoring) -> list[tuple[str, str]]:
    """Runs in which no row has hits, nor says that there are none: run, and what to say about it."""
    other = {run_id: found for run_id, level, _, found, _, _ in _all_misnamed(scoring) if level == "row"}
    needed = any(scoring.golden.has(label) for label in _OF_HITS)
    return [
        (run_id, "no row has 'hits_top_k'" + (f"; did you mean {other[run_id]!r}?" if run_id in other else ""))
        for run_id, _ in _built(scoring, "runs_without_hits")
        if needed or run_id in other
    ]


def _all_misnamed(scoring: Scoring) -> list[tuple[str, str, str, str, str, int]]:
    found = _built(scoring, "misnamed_fields", "ORDER BY run_id, level DESC, field, n_rows DESC, found")
    # Where nothing is labelled by chunks, nobody needs to know which chunk a hit is.
    has_chunks = scoring.golden.has("expected_chunk_ids") or scoring.golden.has("relevance")
    first: dict[tuple[str, ...], tuple[str, str, str, str, str, int]] = {}
    for run_id, level, field, spelt, query_id, rows in found:
        if field != "chunk_id" or has_chunks:
            first.setdefault((run_id, level, field), (run_id, level, field, spelt, query_id, rows))
    return list(first.values())


def _misnamed(scoring: Scoring) -> list[tuple[str, str]]:
    """Fields under another name than kbeval reads, one line for each run."""
    without = {run_id for run_id, _ in _built(scoring, "runs_without_hits")}
    texts: dict[str, list[str]] = {}
    where = {"row": "rows", "hit": "hits", "answer": "answers"}
    for run_id, level, field, found, query_id, _ in _all_misnamed(scoring):
        if level != "row" or run_id not in without:
            texts.setdefault(run_id, []).append(
                f"{where[level]} with {found!r} and no {field!r} (first in query {query_id})"
            )
    return [
        (run_id, f"{', '.join(found)}: only the names that kbeval knows are read") for run_id, found in texts.items()
    ]


def _fields(scoring: Scoring) -> Iterator[Finding]:
    yield _finding(
        "rows-without-hits",
        "runs whose rows have no hits",
        "write what was retrieved into 'hits_top_k', an empty list where it was nothing",
        [f"{run_id}: {text}" for run_id, text in _without_hits(scoring)],
    )
    yield _finding(
        "misnamed-field",
        "runs with misnamed fields",
        "rename them in the rows: what is not there counts as missing",
        [f"{run_id}: {text.partition(': only')[0]}" for run_id, text in _misnamed(scoring)],
    )


def _idless_hits(scoring: Scoring) -> list[tuple[str, str, int]]:
    """Hits that cannot be told apart from any other: run, query, place in the list."""
    if scoring.golden.has("gold_supports") or "anchors" in scoring.systems:
        # Those go by path and headings.
        return []
    ((some,),) = scoring.session.rows(
        "SELECT COUNT(*) FROM hits WHERE NULLIF(chunk_id, '') IS NULL AND NULLIF(doc_id, '') IS NULL"
    )
    return _built(scoring, "hits_without_id") if some else []


def _hits_without_id(scoring: Scoring) -> Finding:
    found = [f"{run_id} {query_id}: hit {position}" for run_id, query_id, position in _idless_hits(scoring)]
    advice = "give each hit its chunk_id, doc_id, or a doc_path that the table 'documents' has"
    return _finding("hits-without-id", "hits without any id", advice, found)


def _guessed(scoring: Scoring) -> list[tuple[str, str | None, str | None]]:
    """Runs whose configuration does not say by which chunker they were made, where there are several."""
    scoring.session.need("known_chunks", "runs")
    ((versions, silent),) = scoring.session.rows(
        "SELECT (SELECT COUNT(DISTINCT chunker_version) FROM known_chunks),"
        " (SELECT COUNT(*) FROM runs WHERE chunker_version IS NULL AND system IS NULL)"
    )
    return _built(scoring, "guessed_chunkers") if versions > 1 and silent else []


def _guessed_chunkers(scoring: Scoring) -> Iterator[Finding]:
    found = _guessed(scoring)
    guessed = [
        f"{run_id} ({version}, as the chunks that it hit)" if version else f"{run_id} (unknown)"
        for run_id, version, source in found
        if source != "hits"
    ]
    advice = "write chunker_version into the configuration of the run"
    yield _finding("guessed-chunker", "runs whose chunker had to be guessed", advice, guessed)
    named = [f"{run_id} ({version})" for run_id, version, source in found if source == "hits"]
    kind = "runs whose hits name the chunker, and not their configuration"
    yield _finding("guessed-chunker", kind, f"nothing need be done; better {advice}", named, is_note=True)


# --- labels ------------------------------------------------------------------------------------------


def _stale_chunks(scoring: Scoring) -> Iterator[Finding]:
    """Expected chunks that nothing knows, and those that only the past knows."""
    rows = _built(scoring, "label_chunks")
    current = ", ".join(_column(scoring, "SELECT DISTINCT chunker_version FROM chunks ORDER BY 1"))
    ((hits,),) = scoring.session.rows("SELECT COUNT(chunk_id) FROM hits")
    unknown = [chunk for chunk, is_indexed, is_known, _, _ in rows if not is_indexed and not is_known]
    advice = "no table and no run knows these ids: correct the labels"
    if current and len(unknown) * 2 > len(rows):
        advice = (
            "most expected ids are unknown, so they may be those of another chunker version than"
            f" {current}: label again, or label by expected_spans or expected_doc_ids"
        )
    elif not current:
        advice = (
            "no run retrieved these chunks, and there is no table 'chunks' to look them up in: correct those labels"
            " that are wrong, or fill the table"
        )
    # Where no hit names a chunk and there is no table, there is nothing to hold the labels against.
    yield _finding("unknown-chunks", "unknown expected chunks", advice, unknown if current or hits else [])
    earlier = [row for row in rows if current and not row[1] and row[2]]
    yield _earlier_chunks(scoring, [row for row in earlier if row[3]], current)
    yield _finding(
        "unplaced-chunks",
        "expected chunks of which only the id is known",
        f"they are not among the chunks of {current}, and it is not known where they stood: other chunks can be"
        " matched with them by document alone; label by expected_spans",
        [row[0] for row in earlier if not row[3]],
    )


def _earlier_chunks(scoring: Scoring, earlier: Sequence[tuple[Any, ...]], current: str) -> Finding:
    versions = ", ".join(sorted({row[4] for row in earlier if row[4]})) or "an earlier index"
    advice = f"they are of {versions}, the table 'chunks' now holds {current}: "
    by_ids = _ids_decide(scoring)
    advice += (
        "runs made with that cannot hit them by id; leave out --match exact, or label by expected_spans"
        if by_ids
        else "it is known where they stood, so they are matched by span and nothing need be done"
    )
    found = [row[0] for row in earlier]
    return _finding(
        "earlier-chunks", "expected chunks of an earlier chunker or index", advice, found, is_note=not by_ids
    )


def _foreign_runs(scoring: Scoring) -> Finding:
    """Runs that cannot hit what is expected by its id, because the labels are of other chunks."""
    found = [
        f"{run_id} ({version}; labels: {owner or 'unknown'})"
        for run_id, version, owner in _built(scoring, "foreign_runs")
    ]
    by_ids = _ids_decide(scoring)
    advice = "most expected chunk ids are unknown to their chunker version: "
    advice += (
        "these runs cannot hit them by id: leave out --match exact, or label by expected_spans"
        if by_ids
        else "these runs are matched by where hits and labels stand, and nothing need be done"
    )
    return _finding("foreign-run", "runs made with another chunker than the labels", advice, found, is_note=not by_ids)


def _reused_ids(scoring: Scoring) -> Finding:
    found = [f"{chunk} ({places} places)" for chunk, places in _built(scoring, "reused_ids")]
    advice = "a label means the text that its id stood for first: if another is meant, label by expected_spans"
    return _finding("reused-ids", "expected chunk ids that stood for different text", advice, found)


def _unmet_axes(scoring: Scoring) -> list[tuple[str, str]]:
    """Labels that no hit of a run can meet: run, and what to say about it."""
    if not scoring.golden.has("expected_spans") or not scoring.matching.places_matter:
        return []
    unmet = _built(scoring, "unmet_axes")
    if not unmet:
        return []
    used: dict[str, list[str]] = {}
    for run_id, axis in _built(scoring, "used_axes"):
        used.setdefault(run_id, []).append(axis)
    return [
        (run_id, _unmet(axis, query_id, queries, ", ".join(used[run_id]))) for run_id, axis, query_id, queries in unmet
    ]


def _unmet(axis: str, query_id: str, queries: int, used: str) -> str:
    return (
        f"{counted(queries, 'query', 'queries')} labelled by {axis} (first {query_id}), but its hits and the known"
        f" chunks stand by {used}: they cannot meet"
    )


def _axis_mismatches(scoring: Scoring) -> Finding:
    found = [f"{run_id}: {text}" for run_id, text in _unmet_axes(scoring)]
    advice = "write expected_spans by the kind of position that the hits have, or store that kind with the hits"
    return _finding("axis-mismatch", "labels by a kind of position that no hit has", advice, found)


def _malformed_citations(scoring: Scoring) -> Finding:
    found = [
        f"{run_id} {query_id}: citation {number}" for run_id, query_id, number in _built(scoring, "malformed_citations")
    ]
    advice = (
        "they count as unresolved: give each a known kind, with an end that is not before its start, or the path alone"
    )
    return _finding("malformed-citation", "malformed citations", advice, found)


def _malformed_spans(scoring: Scoring) -> Finding:
    found = [f"{run_id} {query_id}: hit {number}" for run_id, query_id, number in _built(scoring, "malformed_spans")]
    advice = "such a span says nothing about where the hit stands: give it a known kind, and an end after its start"
    return _finding("malformed-span", "hits with malformed source_spans", advice, found)


def _stale_docs(scoring: Scoring) -> Finding:
    found = _column(
        scoring,
        """
        SELECT DISTINCT e.doc_id
        FROM expected_docs AS e
        WHERE e.doc_id NOT IN (SELECT doc_id FROM documents)
          AND e.doc_id NOT IN (SELECT doc_id FROM chunks WHERE doc_id IS NOT NULL)
          AND e.doc_id NOT IN (SELECT doc_id FROM hits WHERE doc_id IS NOT NULL)
        ORDER BY 1
        """,
    )
    ((known,),) = scoring.session.rows(
        "SELECT (SELECT COUNT(*) FROM documents) + (SELECT COUNT(*) FROM chunks) + (SELECT COUNT(doc_id) FROM hits)"
    )
    # Where nothing names a document, there is nothing to hold the labels against.
    advice = "no table and no run knows these ids: correct the labels"
    return _finding("unknown-docs", "unknown expected documents", advice, found if known else [])


def _unlabelled(golden: Golden) -> Finding:
    found = [str(entry["id"]) for entry in golden.entries if not any(label in entry for label in _LABELS)]
    advice = "nothing can be scored on them: add expected_chunk_ids, expected_doc_ids, must_contain or answerable"
    return _finding("unlabelled", "unlabelled queries", advice, found)


def _rows_without_golden(scoring: Scoring) -> Finding:
    found = _column(
        scoring,
        """
        SELECT r.run_id || ' ' || r.query_id
        FROM results AS r
        LEFT JOIN queries AS q ON q.query_id = r.query_id
        WHERE q.query_id IS NULL
        ORDER BY 1
        """,
    )
    return _finding(
        "row-without-query",
        "rows without a golden query",
        "they count in totals only: is it the right golden file?",
        found,
    )


def _golden_without_rows(scoring: Scoring) -> Finding:
    found = _column(
        scoring,
        """
        SELECT u.run_id || ' ' || q.query_id
        FROM runs AS u
        CROSS JOIN queries AS q
        LEFT JOIN results AS r ON r.run_id = u.run_id AND r.query_id = q.query_id
        WHERE r.result_no IS NULL
        ORDER BY 1
        """,
    )
    advice = "the run never asked them, and they are not averaged in: run it again, or score with --missing zero"
    return _finding("query-without-row", "golden queries without a row", advice, found)


def _repeated_hits(scoring: Scoring) -> Finding:
    found = _column(
        scoring,
        """
        SELECT r.run_id || ' ' || r.query_id || ': ' || h.chunk_id
        FROM repeated_hits AS h
        JOIN results AS r ON r.result_no = h.result_no
        ORDER BY 1
        """,
    )
    return _finding(
        "repeated-hit",
        "repeated hits",
        "a chunk counts once, at its best rank: the retriever should not repeat it",
        found,
    )


def _tied(scoring: Scoring) -> list[tuple[str, str, int]]:
    """Rankings in which a rank stands more than once: run, query, and the first such rank."""
    scoring.session.need("hits", "results")
    return scoring.session.rows(
        """
        SELECT r.run_id, r.query_id, MIN(h.stored_rank)
        FROM hits AS h
        JOIN results AS r ON r.result_no = h.result_no
        WHERE h.rank <> h.stored_rank
        GROUP BY r.run_id, r.query_id
        ORDER BY r.run_id, r.query_id
        """
    )


def _repeated_ranks(scoring: Scoring) -> Finding:
    found = [f"{run_id} {query_id}: rank {rank}" for run_id, query_id, rank in _tied(scoring)]
    advice = "each hit takes a place of its own, in the order of ranks and then of the list: give each hit its own rank"
    return _finding("repeated-rank", "rankings with repeated ranks", advice, found)


def _rank_gaps(scoring: Scoring) -> Finding:
    found = _column(
        scoring,
        """
        SELECT r.run_id || ' ' || r.query_id || ': ranks to ' || MAX(h.rank) || ' in ' || COUNT(*) || ' hits'
        FROM hits AS h
        JOIN results AS r ON r.result_no = h.result_no
        GROUP BY r.run_id, r.query_id
        HAVING MAX(h.rank) <> COUNT(DISTINCT h.rank)
        ORDER BY 1
        """,
    )
    return _finding(
        "rank-gap", "ranks with gaps", "ranks are taken as stored: hits may have been dropped after ranking", found
    )


def _groups(golden: Golden) -> Finding:
    advice = "queries of one group ask the same thing, so they must expect the same documents"
    return _finding("group-mismatch", "groups that disagree", advice, golden.group_faults)
