"""Reads a SQLite database in one snapshot and streams its tables into a session.

A separate process has the database open, see `kbeval.database`. It passes rows to DuckDB as Arrow batches in shared
memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kbeval.database.connection import BUSY_TIMEOUT_MS
from kbeval.errors import DatabaseError
from kbeval.storage.database_file import database_size
from kbeval.storage.digests import NO_ROWS, digests
from kbeval.storage.runs import Run
from kbeval.storage.sqlite_tables import StoredTables
from kbeval.storage.tables import LATER, OPTIONAL, ROW_BITS, ROW_COLUMNS, TABLES, as_text, load_runs
from kbeval.storage.usual_fields import usual_fields

if TYPE_CHECKING:
    from kbeval.database.streams import Relation
    from kbeval.engine.session import Loader, Session
    from kbeval.storage.cache import Cache, Facts

# Rows with hits are a few kilobytes each. Small batches of them fit in the processor's cache: measured twice as fast as
# 1024 rows, with a third of the memory.
WIDE = (
    "stored_results",
    "stored_places",
    "stored_anchors",
    "stored_fields",
    "stored_history",
    "stored_texts",
    "stored_samples",
    "rows_to_keep",
    "rows_to_judge",
)
WIDE_BATCH_ROWS = 256
# If rows are larger, batches have fewer: each thread parses one batch at a time. Smaller batches cost more requests.
WIDE_BATCH_BYTES = 2_000_000
# Read instead of a row that is too large to be parsed; see sql/stored/parsed.sql.
_TOO_LARGE = "too large: %,d bytes of JSON, at most {largest:,} are read with this --memory-limit"
DEFAULT_BATCH_ROWS = 1024
# Tables that a scoring needs besides the rows.
BESIDES_ROWS = ("chunks", "kbeval_chunk_spans")
# Rows that are looked at before all others: as many from everywhere, as many from the end, and none that is larger.
SAMPLE_ROWS, SAMPLE_LARGEST = 16, 200_000


class SqliteSource(StoredTables):
    """A database whose rows are streamed into a session, or read from the cache. Use as a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        timeout_ms: int = BUSY_TIMEOUT_MS,
        cache: Cache | None = None,
    ) -> None:
        """`cache`: the cache of the facts of its rows."""
        super().__init__(path, timeout_ms)
        self._cache = cache
        self._digests: dict[str, str] = {}
        self._facts: Facts | None = None
        self._batch_rows = WIDE_BATCH_ROWS
        self._largest_row: int | None = None
        # Tables of which the process has begun to read the rows.
        self._begun: dict[str, Relation] = {}

    def _open(self, probe: int | None = None) -> None:
        super()._open(probe if self._cache is None or self._shared is not None else self._cache.clock)
        if self._cache is not None:
            # The rows of a view may change without any change to the file.
            self._cache.stamp = self.snapshot.stamp if self._row_table()["type"] == "table" else None
            self._digests |= self._cache.trusted()

    def resume(self) -> bool:
        """Continue reading; False if the database has changed, so that what was read from it must be discarded."""
        if self._shared is not None:
            return True
        is_same = self.snapshot.reopen(self._timeout_ms)
        if not is_same:
            # What is read from now on must not be mixed with what was read before.
            self._cache = None
        return is_same

    def runs(self) -> list[Run]:
        """Every run, oldest first."""
        runs = super().runs()
        average = database_size(self.path) // max(1, sum(run.rows for run in runs))
        self._batch_rows = max(1, min(WIDE_BATCH_ROWS, WIDE_BATCH_BYTES // max(1, average)))
        if self._cache is not None:
            self._cache.stored = {run.run_id: run.scored_with("rows") for run in runs}
        return runs

    @property
    def keeps_rows(self) -> bool:
        """Are the scored rows cached, so that they are still available after a change?"""
        return self._cache is not None

    def row_digests(self, session: Session, run_ids: Sequence[str]) -> dict[str, str]:
        """The digests of the runs' rows. Reads the rows, unless nothing was written since they were last read."""
        unknown = [run_id for run_id in run_ids if run_id not in self._digests]
        if unknown:
            self._largest_row = session.largest_row
            sql = f"SELECT {self._row_columns()} {self._rows_of(unknown)}"
            self._loader("stored_texts", sql, ROW_COLUMNS)(session)
            hashed = "(SELECT run_id, row_hash(query_id, result_json) AS row_hash FROM stored_texts)"
            found = digests(session, hashed)
            self._digests |= {run_id: found.get(run_id, NO_ROWS) for run_id in unknown}
        return {run_id: self._digests[run_id] for run_id in run_ids}

    def feed(self, session: Session, run_ids: Sequence[str], earlier: Mapping[str, str] | None = None) -> None:
        """Register with a session how it obtains the facts of runs: from the cache if possible, else from the rows.

        `earlier`: runs for which to read the cached rows with this digest, as reported by `still_kept`.
        """
        from kbeval.storage.cache import Choice, Facts

        self._largest_row = session.largest_row
        current: dict[str, str] = {run_id: self._digests[run_id] for run_id in run_ids if run_id in self._digests}
        choice, numbering = Choice.none(), 0
        if self._cache is not None:
            suspected = self._cache.suspected([run_id for run_id in run_ids if run_id not in current])
            current |= self.row_digests(session, suspected)
            current |= earlier or {}
            choice, numbering = self._cache.choose(current), self._cache.numbering()
        if earlier:
            # These are earlier rows; they must not be cached as the current ones.
            self._cache = None
            if not earlier.keys() <= choice.base.keys():
                msg = "the earlier rows of a run are no longer in the cache; try again"
                raise DatabaseError(msg)
        fresh = [run_id for run_id in run_ids if run_id not in choice.base]
        self._facts = facts = Facts(choice, fresh, numbering, current)
        session.empty |= self._empty_tables()
        session.add_loaders(self.loaders(run_ids, facts))
        session.add_copies(facts.copies())

    def begin(self, session: Session) -> None:
        """Have the tables that a scoring needs besides the rows read while the session is busy with the rows. If there
        are many rows, look at a few of them: what these have in common spares work on the others.
        """
        if session.is_sparing:
            return
        if not session.is_small and self._facts is not None and self._facts.fresh:
            for name, statement in usual_fields(self._some_rows(self._facts.fresh)).items():
                session.replace_macro(name, statement)
        for table in BESIDES_ROWS:
            if f"stored_{table}" not in session.empty:
                kinds = [(column, "text") for column in TABLES[table]]
                relation = self.snapshot.relation(self._table_sql(table), kinds, DEFAULT_BATCH_ROWS)
                relation.begin()
                self._begun[f"stored_{table}"] = relation

    def _some_rows(self, run_ids: Sequence[str]) -> list[str]:
        """A few rows of these runs, from everywhere in the table and from its end; none if that would take long."""
        name, low, high = self._rowids() or ("", 0, 0)
        if not name:
            return []
        step = max(1, (high - low) // SAMPLE_ROWS)
        places = (*range(low, high + 1, step), *range(max(low, high - SAMPLE_ROWS), high + 1))
        pieces = [
            f"SELECT * FROM (SELECT {name} FROM eval_query_results WHERE {name} >= {place} ORDER BY 1 LIMIT 1)"
            for place in places
        ]
        # Rows of other runs need not be readable. A text that contains a NUL is longer than LENGTH says.
        is_short = f"LENGTH(CAST(result_json AS BLOB)) <= {SAMPLE_LARGEST}"
        text = f"CASE WHEN {self._is_of(run_ids)} THEN CASE WHEN {is_short} THEN result_json END END"
        try:
            found = self._rows(
                f"SELECT {as_text(text, 'text')} FROM eval_query_results WHERE {name} IN ({' UNION '.join(pieces)})"
            )
        except DatabaseError:
            # If they are needed, the relation that reads them reports the error.
            return []
        return [str(row["text"]) for row in found if row["text"]]

    def still_kept(self, earlier: Mapping[str, str]) -> set[str]:
        """The runs whose earlier rows, identified by their digest, are cached."""
        return set() if self._cache is None else set(self._cache.choose(earlier).base)

    def load_rows(self, session: Session, name: str, run_ids: Sequence[str]) -> None:
        """Load the rows of runs, unchanged, under a name."""
        columns = ", ".join(map(as_text, ROW_COLUMNS))
        sql = f"SELECT {self._row_number()} AS result_no, {columns} {self._rows_of(run_ids)}"
        self._loader(name, sql, ("result_no", *ROW_COLUMNS))(session)

    def settled_digests(self, session: Session) -> dict[str, str]:
        """The digests of the rows of the session's runs, once they are parsed."""
        return {} if self._facts is None else self._facts.compute_digests(session)

    def keep(self, session: Session) -> None:
        """Save what the session has parsed to the cache."""
        if self._cache is not None and self._facts is not None and not self._left_out_rows(session):
            if "parsed" in session.built:
                self._facts.compute_digests(session)
            self._cache.keep(session, self._facts, self._digests)

    @staticmethod
    def _left_out_rows(session: Session) -> bool:
        """Was a row too large? With more memory it can be read, so its absence must not be cached."""
        if "bad_rows" not in session.built:
            return False
        return bool(session.rows("SELECT 1 FROM bad_rows WHERE fault LIKE 'is too large: %' LIMIT 1"))

    def lost_its_copy(self) -> bool:
        """Was a part of the cache deleted while it was being read?"""
        return self._cache is not None and self._facts is not None and self._cache.is_lost(self._facts.choice)

    def _row_columns(self) -> str:
        """The columns of a row to be parsed; a text that is too large never leaves SQLite."""
        run_id, query_id, _ = map(as_text, ROW_COLUMNS)
        return f"{run_id}, {query_id}, {self._row_text()}"

    def _row_text(self) -> str:
        if self._largest_row is None:
            return as_text("result_json")
        # The size as stored; in UTF-16 that is at most twice the size as read.
        size = f"LENGTH(CAST(result_json AS BLOB)) / {self.snapshot.bytes_per_unit}"
        instead = f"PRINTF('{_TOO_LARGE.format(largest=self._largest_row)}', {size})"
        return as_text(f"CASE WHEN {size} > {self._largest_row} THEN {instead} ELSE result_json END", "result_json")

    def loaders(self, run_ids: Sequence[str], facts: Facts | None = None) -> dict[str, Loader]:
        """How a session loads each stored table: the rows of these runs, and the knowledge base."""
        from kbeval.storage.cache import Choice, Facts

        facts = facts or Facts(Choice.none(), run_ids, 0, {})
        number = f"{self._row_number()} + {facts.numbering << ROW_BITS}"
        row = self._row_columns()
        selects = {
            "stored_results": f"SELECT {number} AS result_no, {row} {self._rows_of(facts.fresh)}",
            # The same rows again, for the relations that locate the hits.
            "stored_places": f"SELECT {row} {self._rows_of(facts.lacking('hit_claims'))}",
            "stored_anchors": f"SELECT {row} {self._rows_of(facts.lacking('anchor_rows'))}",
            "stored_fields": f"SELECT {row} {self._rows_of(run_ids)}",
        }
        columns = {name: ("result_no", *ROW_COLUMNS) if name == "stored_results" else ROW_COLUMNS for name in selects}
        for table in OPTIONAL:
            selects[f"stored_{table}"] = self._table_sql(table)
            columns[f"stored_{table}"] = TABLES[table]
        found = {name: self._loader(name, sql, columns[name]) for name, sql in selects.items()}
        wanted = set(run_ids)
        found["stored_runs"] = lambda session: load_runs(session, [run for run in self.runs() if run.run_id in wanted])
        found["stored_history"] = self._load_history
        found["stored_samples"] = self._load_samples
        return found

    def _empty_tables(self) -> set[str]:
        """Names (in a session) of optional tables without rows; without them, much less has to be planned."""
        there = [table for table in OPTIONAL if table in self.columns]
        looks = ", ".join(f"EXISTS (SELECT 1 FROM {table}) AS {table}" for table in there)
        has_rows = self._rows(f"SELECT {looks}")[0] if there else {}
        return {f"stored_{table}" for table in OPTIONAL if not has_rows.get(table)}

    def _table_sql(self, table: str) -> str:
        if table not in self.columns:
            nothing = ", ".join(f"'' AS {column}" for column in TABLES[table])
            return f"SELECT {nothing} WHERE 0"
        names = list(map(as_text, OPTIONAL[table]))
        for column, sources in LATER.get(table, {}).items():
            found = next((sql for name, sql in sources.items() if name in self.columns[table]), "''")
            names.append(as_text(found, column))
        return f"SELECT {', '.join(names)} FROM {table}"

    def _load_samples(self, session: Session) -> None:
        """Load the rows that `sampled_rows` names, unchanged."""
        session.need("sampled_rows")
        wanted = json.dumps(session.rows("SELECT run_id, query_id FROM sampled_rows"))
        self._loader(
            "stored_samples",
            f"SELECT {self._row_columns()} FROM json_each({self._literal(wanted)}) AS w CROSS JOIN eval_query_results"
            " WHERE run_id = json_extract(w.value, '$[0]') COLLATE BINARY"
            " AND query_id = json_extract(w.value, '$[1]') COLLATE BINARY",
            ROW_COLUMNS,
        )(session)

    def _load_history(self, session: Session) -> None:
        """Load the rows of all runs, to search for chunks that are in no table; none if there are no such chunks."""
        session.need("unplaced_chunks")
        ((unplaced,),) = session.rows("SELECT COUNT(*) FROM unplaced_chunks")
        version = "json_extract(r.config_snapshot_json, '$.chunker_version')"
        self._loader(
            "stored_history",
            f"SELECT CAST(COALESCE(CASE WHEN json_valid(r.config_snapshot_json) THEN {version} END, '') AS TEXT)"
            f" AS chunker_version, {self._row_text()}"
            " FROM eval_query_results AS q JOIN eval_runs AS r ON r.run_id = q.run_id COLLATE BINARY"
            + ("" if unplaced else " WHERE 0"),
            ("chunker_version", "result_json"),
        )(session)

    def _loader(self, name: str, sql: str, columns: Sequence[str]) -> Loader:
        kinds = [(column, "integer" if column == "result_no" else "text") for column in columns]

        def load(session: Session) -> None:
            relation = self._begun.pop(name, None)
            if relation is None:
                wide = 1 if session.is_sparing else self._batch_rows
                relation = self.snapshot.relation(sql, kinds, wide if name in WIDE else DEFAULT_BATCH_ROWS)
            session.connection.register(name, relation)

        return load
