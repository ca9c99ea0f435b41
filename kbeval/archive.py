"""What `score` keeps in the database beside the numbers: where the chunks stood that labels and hits name, and the
labels themselves, and what the rows were known by.

Re-indexing replaces the table `chunks`. What was archived before is still there years later, keyed by chunk and
chunker version, so that runs and labels of an older chunker can be compared with newer ones. Labels are kept as long
as a stored number was made with them, so that it can be told what a change of labels did to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kbeval.engine import Session
from kbeval.golden import Golden
from kbeval.rowmarks import RowMarks
from kbeval.sqlfiles import read_sql

# chunk_id, chunker_version, policy_hash, doc_id, the spans as stored, tokens, and where they were seen: the table
# 'chunks', or 'hits'.
ChunkSpans = tuple[str, str, str, str | None, str | None, float | None, str]

_COLUMNS = "chunk_id, chunker_version, policy_hash, doc_id, source_spans_json, tokens, seen_in, first_seen"
_UPSERT = f"""
    INSERT INTO kbeval_chunk_spans ({_COLUMNS})
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (chunk_id, chunker_version, policy_hash) DO UPDATE
    SET doc_id = excluded.doc_id, source_spans_json = excluded.source_spans_json, tokens = excluded.tokens,
        seen_in = excluded.seen_in
"""


def spans_to_keep(session: Session) -> list[ChunkSpans]:
    """What this session has seen and the archive does not hold yet, in a fixed order."""
    _simplify(session)
    session.need("chunks_to_keep", "unknown_hits")
    found = session.rows("SELECT *, 'chunks' FROM chunks_to_keep ORDER BY chunk_id, chunker_version")
    # Where the tables know every chunk, nobody needs to ask the rows.
    ((unknown,),) = session.rows("SELECT COUNT(*) FROM unknown_hits")
    if unknown:
        session.need("hits_to_keep")
        found += session.rows("SELECT *, 'hits' FROM hits_to_keep ORDER BY chunk_id, chunker_version")
    return found


def _simplify(session: Session) -> None:
    """Where all runs are of one chunker, the chunks of all hits are: nobody needs to ask which hit is of which run."""
    session.need("runs", "hits")
    ((versions, unknown),) = session.rows(
        "SELECT COUNT(DISTINCT chunker_version), COUNT(*) - COUNT(chunker_version) FROM runs"
    )
    if versions == 1 and not unknown:
        session.add_loaders({"hit_chunks": _load_hit_chunks})


def _load_hit_chunks(session: Session) -> None:
    session.execute(
        "CREATE TABLE hit_chunks AS SELECT chunk_id, (SELECT MIN(chunker_version) FROM runs) AS chunker_version"
        " FROM (SELECT DISTINCT chunk_id FROM hits WHERE chunk_id IS NOT NULL)"
    )


def _make_table(connection: sqlite3.Connection) -> None:
    """Make the table, or give one that an older version made the columns that it lacks."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(kbeval_chunk_spans)")}
    is_old = bool(columns) and "policy_hash" not in columns
    if is_old:
        connection.execute("ALTER TABLE kbeval_chunk_spans RENAME TO kbeval_chunk_spans_before")
    # One statement at a time: executescript() would end the transaction.
    connection.execute(read_sql("archive.sql"))
    if is_old:
        connection.execute(
            f"INSERT INTO kbeval_chunk_spans ({_COLUMNS}) SELECT chunk_id, chunker_version, '', doc_id,"
            " source_spans_json, NULL, seen_in, first_seen FROM kbeval_chunk_spans_before"
        )
        connection.execute("DROP TABLE kbeval_chunk_spans_before")


@dataclass(frozen=True)
class Kept:
    """What one scoring leaves in the database beside its numbers."""

    spans: Sequence[ChunkSpans] = ()
    golden: Golden | None = None
    row_marks: Mapping[str, RowMarks] = field(default_factory=dict)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write into an open transaction, which alone decides whether any of it is kept."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self.spans:
            _make_table(connection)
            connection.executemany(_UPSERT, ((*row, now) for row in self.spans))
        if self.row_marks:
            connection.execute(read_sql("rows.sql"))
            marks = ((run_id, *found) for run_id, found in sorted(self.row_marks.items()))
            connection.executemany("INSERT OR REPLACE INTO kbeval_rows VALUES (?, ?, ?)", marks)
            connection.execute("DELETE FROM kbeval_rows WHERE run_id NOT IN (SELECT run_id FROM eval_runs)")
        if self.golden is not None:
            connection.execute(read_sql("golden.sql"))
            labels = (self.golden.hash, self.golden.packed(), now)
            connection.execute("INSERT OR IGNORE INTO kbeval_golden VALUES (?, ?, ?)", labels)
            connection.execute(
                "DELETE FROM kbeval_golden WHERE NOT EXISTS"
                " (SELECT 1 FROM eval_runs WHERE instr(aggregate_json, golden_hash) > 0)"
            )


NOTHING = Kept()
