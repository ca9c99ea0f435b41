"""What `score` keeps in the database in addition to the numbers: the spans of the chunks that labels and hits name
(*kept spans*), the labels themselves, and the digests of the rows.

Re-indexing replaces the table `chunks`. Kept spans remain available years later, keyed by chunk and chunker version,
so that runs and labels of an older chunker can be compared with newer ones. Labels are kept as long as a stored number
was computed with them, so that the effect of a change of labels can be explained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kbeval.database.connection import Database
from kbeval.engine.relations import read_sql
from kbeval.engine.session import Session
from kbeval.golden import Golden
from kbeval.storage.row_marks import RowMarks

# chunk_id, chunker_version, policy_hash, doc_id, the spans as stored, tokens, and where they were seen: in the table
# 'chunks' or in 'hits'.
ChunkSpans = tuple[str, str, str, str | None, str | None, float | None, str]

_COLUMNS = "chunk_id, chunker_version, policy_hash, doc_id, source_spans_json, tokens, seen_in, first_seen"
# A row kept without a place is completed; a row kept with another place stays, next to the new one.
_COMPLETE = """
    UPDATE OR REPLACE kbeval_chunk_spans
    SET doc_id = ?4, source_spans_json = ?5, tokens = ?6, seen_in = ?7
    WHERE chunk_id = ?1 AND chunker_version = ?2 AND policy_hash = ?3
      AND doc_id IN ('', ?4) AND source_spans_json IN ('', ?5)
"""
_INSERT = f"""
    INSERT INTO kbeval_chunk_spans ({_COLUMNS})
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT DO NOTHING
"""


def spans_to_keep(session: Session) -> list[ChunkSpans]:
    """The spans that this session has seen and that are not kept yet, in a fixed order."""
    session.need("chunks_to_keep", "unknown_hits")
    found = session.rows("SELECT *, 'chunks' FROM chunks_to_keep ORDER BY chunk_id, chunker_version")
    # If the tables contain every chunk, the rows need not be searched.
    ((unknown,),) = session.rows("SELECT COUNT(*) FROM unknown_hits")
    if unknown:
        session.need("hits_to_keep")
        found += session.rows("SELECT *, 'hits' FROM hits_to_keep ORDER BY chunk_id, chunker_version")
    return found


def _make_table(database: Database) -> None:
    """Create the table, or add the columns that a table of an older version lacks."""
    info = list(database.execute("PRAGMA table_info(kbeval_chunk_spans)"))
    columns = {row[1] for row in info}
    in_key = {row[1] for row in info if row[5]}
    is_old = bool(columns) and "source_spans_json" not in in_key
    if is_old:
        database.execute("ALTER TABLE kbeval_chunk_spans RENAME TO kbeval_chunk_spans_before")
    database.execute(read_sql("schema/kbeval_chunk_spans.sql"))
    if is_old:
        policy, tokens = (
            name if name in columns else otherwise for name, otherwise in (("policy_hash", "''"), ("tokens", "NULL"))
        )
        database.execute(
            f"INSERT INTO kbeval_chunk_spans ({_COLUMNS}) SELECT chunk_id, chunker_version, {policy},"
            f" COALESCE(doc_id, ''), COALESCE(source_spans_json, ''), {tokens}, seen_in, first_seen"
            " FROM kbeval_chunk_spans_before"
        )
        database.execute("DROP TABLE kbeval_chunk_spans_before")


@dataclass(frozen=True)
class Kept:
    """What one scoring stores in the database in addition to its numbers."""

    spans: Sequence[ChunkSpans] = ()
    golden: Golden | None = None
    row_marks: Mapping[str, RowMarks] = field(default_factory=dict)

    def write(self, database: Database) -> None:
        """Write within the open transaction, so that all of it is kept or none."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self.spans:
            _make_table(database)
            rows = [
                (chunk_id, version, policy, doc_id or "", spans or "", tokens, seen_in, now)
                for chunk_id, version, policy, doc_id, spans, tokens, seen_in in self.spans
            ]
            database.executemany(_COMPLETE, [row[:-1] for row in rows])
            database.executemany(_INSERT, rows)
        if self.row_marks:
            database.execute(read_sql("schema/kbeval_rows.sql"))
            marks = ((run_id, *found) for run_id, found in sorted(self.row_marks.items()))
            database.executemany("INSERT OR REPLACE INTO kbeval_rows VALUES (?, ?, ?)", marks)
            database.execute("DELETE FROM kbeval_rows WHERE run_id NOT IN (SELECT run_id FROM eval_runs)")
        if self.golden is not None:
            database.execute(read_sql("schema/kbeval_golden.sql"))
            if not list(database.execute("SELECT 1 FROM kbeval_golden WHERE golden_hash = ?", (self.golden.hash,))):
                labels = (self.golden.hash, self.golden.packed(), now)
                database.execute("INSERT INTO kbeval_golden VALUES (?, ?, ?)", labels)
            database.execute(
                "DELETE FROM kbeval_golden WHERE NOT EXISTS"
                " (SELECT 1 FROM eval_runs WHERE instr(aggregate_json, golden_hash) > 0)"
            )


NOTHING = Kept()
