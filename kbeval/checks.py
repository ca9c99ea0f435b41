"""What makes numbers untrustworthy: labels that point nowhere, queries that nobody asked, odd rankings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbeval.golden import Golden
from kbeval.scoring import Scoring

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
_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """One kind of trouble: how often, where for example, and what to do about it."""

    kind: str
    count: int
    examples: tuple[str, ...]
    advice: str


def check_workspace(scoring: Scoring) -> list[Finding]:
    """Hold the golden file against the database; an empty list is good news."""
    session = scoring.session
    session.need("bad_rows", "chunks", "documents", "hits", "results", "runs")
    session.need("queries", "expected_chunks", "expected_docs", "repeated_hits", "run_matching")
    checks = [
        _bad_rows(scoring),
        *_stale_chunks(scoring),
        _foreign_chunks(scoring),
        _stale_docs(scoring),
        _finding("ignored fields in the golden file", "correct their names", scoring.golden.warnings),
        _unlabelled(scoring.golden),
        _rows_without_golden(scoring),
        _golden_without_rows(scoring),
        _repeated_hits(scoring),
        _rank_gaps(scoring),
        _groups(scoring.golden),
    ]
    return [finding for finding in checks if finding.count]


def _finding(kind: str, advice: str, found: Sequence[str]) -> Finding:
    return Finding(kind, len(found), tuple(found[:_EXAMPLES]), advice)


def _column(scoring: Scoring, sql: str) -> list[str]:
    return [str(row[0]) for row in scoring.session.rows(sql)]


def _bad_rows(scoring: Scoring) -> Finding:
    found = _column(scoring, "SELECT run_id || ' ' || query_id || ': ' || fault FROM bad_rows ORDER BY 1")
    return _finding("unreadable rows", "repair them, or score with --skip-bad-rows", found)


def _stale_chunks(scoring: Scoring) -> Iterator[Finding]:
    """Expected chunks that nothing knows, and those that only older runs know."""
    rows = scoring.session.rows(
        """
        WITH seen AS (
            SELECT h.chunk_id, MAX(r.chunker_version) AS chunker_version
            FROM hits AS h
            JOIN results AS s ON s.result_no = h.result_no
            JOIN runs AS r ON r.run_id = s.run_id
            GROUP BY h.chunk_id
        )
        SELECT DISTINCT
            e.chunk_id,
            s.chunk_id IS NOT NULL AS in_runs,
            s.chunker_version
        FROM expected_chunks AS e
        LEFT JOIN chunks AS c ON c.chunk_id = e.chunk_id
        LEFT JOIN seen AS s ON s.chunk_id = e.chunk_id
        WHERE c.chunk_id IS NULL
        ORDER BY e.chunk_id
        """
    )
    ((expected,),) = scoring.session.rows("SELECT COUNT(DISTINCT chunk_id) FROM expected_chunks")
    current = _column(scoring, "SELECT DISTINCT chunker_version FROM chunks ORDER BY 1")
    unknown = [chunk for chunk, in_runs, _ in rows if not in_runs]
    advice = "no table and no run knows these ids: correct the labels"
    if current and len(unknown) * 2 > expected:
        advice = (
            f"most expected ids are unknown, so they may be those of another chunker version than"
            f" {', '.join(current)}: label again, or label by expected_spans or expected_doc_ids"
        )
    yield _finding("unknown expected chunks", advice, unknown)
    if current:
        old = [chunk for chunk, in_runs, _ in rows if in_runs]
        versions = sorted({version for _, in_runs, version in rows if in_runs and version})
        advice = (
            f"only runs made with {', '.join(versions) or 'an older chunker'} know these ids, the table holds"
            f" {', '.join(current)}: runs made with that cannot hit them by id; score with --match span, or label again"
        )
        yield _finding("expected chunks of an earlier chunker", advice, old)


def _foreign_chunks(scoring: Scoring) -> Finding:
    """Runs that cannot hit what is expected, because the labels are those of another chunker."""
    rows = scoring.session.rows(
        """
        SELECT run_id || ' (' || chunker_version || '; labels: ' || COALESCE(owner, 'unknown') || ')'
        FROM run_matching
        WHERE matching = 'exact' AND 2 * n_foreign > n_expected
        ORDER BY 1
        """
    )
    advice = (
        "most expected chunk ids are unknown to their chunker version, so these runs cannot hit them by id:"
        " score with --match span, or label again"
    )
    return _finding("runs made with another chunker than the labels", advice, [row[0] for row in rows])


def _stale_docs(scoring: Scoring) -> Finding:
    found = _column(
        scoring,
        """
        SELECT DISTINCT e.doc_id
        FROM expected_docs AS e
        WHERE e.doc_id NOT IN (SELECT doc_id FROM documents)
          AND e.doc_id NOT IN (SELECT doc_id FROM chunks)
          AND e.doc_id NOT IN (SELECT doc_id FROM hits WHERE doc_id IS NOT NULL)
        ORDER BY 1
        """,
    )
    return _finding("unknown expected documents", "no table and no run knows these ids: correct the labels", found)


def _unlabelled(golden: Golden) -> Finding:
    found = [str(entry["id"]) for entry in golden.entries if not any(label in entry for label in _LABELS)]
    advice = "nothing can be scored on them: add expected_chunk_ids, expected_doc_ids, must_contain or answerable"
    return _finding("unlabelled queries", advice, found)


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
    return _finding("rows without a golden query", "they count in totals only: is it the right golden file?", found)


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
    return _finding("golden queries without a row", advice, found)


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
    return _finding("repeated hits", "a chunk counts once, at its best rank: the retriever should not repeat it", found)


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
    return _finding("ranks with gaps", "ranks are taken as stored: hits may have been dropped after ranking", found)


def _groups(golden: Golden) -> Finding:
    advice = "queries of one group ask the same thing, so they must expect the same documents"
    return _finding("groups that disagree", advice, golden.group_faults)
