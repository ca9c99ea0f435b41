"""Reads a SQLite database in one snapshot and streams its tables into a session.

A separate process has the database open, see `kbeval.database`. It passes rows to DuckDB as Arrow batches in shared
memory.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbeval.database.connection import BUSY_TIMEOUT_MS
from kbeval.errors import DatabaseError
from kbeval.storage.database_file import database_size
from kbeval.storage.digests import NO_ROWS, digests
from kbeval.storage.judged_rubrics import rubric_names
from kbeval.storage.row_marks import unpacked as unpacked_marks
from kbeval.storage.runs import REPEATED_ROW, KeyFault, Run
from kbeval.storage.snapshot import Snapshot, shared_snapshot, sharing
from kbeval.storage.tables import (
    LATER,
    OPTIONAL,
    REQUIRED,
    ROW_BITS,
    ROW_COLUMNS,
    TABLES,
    as_text,
    load_runs,
    require_tables,
)
from kbeval.util.text import counted

if TYPE_CHECKING:
    from kbeval.engine.session import Loader, Session
    from kbeval.golden import Golden
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


class SqliteSource:
    """One read snapshot of a database. Use as a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        timeout_ms: int = BUSY_TIMEOUT_MS,
        cache: Cache | None = None,
    ) -> None:
        """`cache`: the cache of the facts of its rows."""
        self.path = Path(path)
        self._timeout_ms = timeout_ms
        # If the caller is already reading this database, the same snapshot is used here.
        self._shared = shared_snapshot(self.path)
        self.snapshot = self._shared or Snapshot(self.path)
        self._keys: dict[str, set[str]] = {}
        self._cache = cache
        self._digests: dict[str, str] = {}
        self._facts: Facts | None = None
        self._batch_rows = WIDE_BATCH_ROWS
        self._largest_row: int | None = None

    def __enter__(self) -> Self:
        try:
            if self._shared is None:
                self.snapshot.open(self._timeout_ms, None if self._cache is None else self._cache.clock)
            self.columns = self._read_columns()
            require_tables(self.columns, self.path)
            if self._cache is not None:
                # The rows of a view may change without any change to the file.
                self._cache.stamp = self.snapshot.stamp if self._row_table()["type"] == "table" else None
                self._digests |= self._cache.trusted()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shared is None:
            self.snapshot.end(error)

    def release(self) -> None:
        """Let other processes write, until `resume`."""
        if self._shared is None:
            self.snapshot.close()

    def resume(self) -> bool:
        """Continue reading; False if the database has changed, so that what was read from it must be discarded."""
        if self._shared is not None:
            return True
        is_same = self.snapshot.reopen(self._timeout_ms)
        if not is_same:
            # What is read from now on must not be mixed with what was read before.
            self._cache = None
        return is_same

    def sharing(self) -> contextlib.AbstractContextManager[None]:
        """In this context, opening the same database again reads the same snapshot."""
        return sharing(self.snapshot)

    def _row_table(self) -> dict[str, Any]:
        """The type of the table that holds the rows."""
        (table, *_) = self._rows("SELECT type, wr FROM pragma_table_list WHERE LOWER(name) = 'eval_query_results'")
        return table

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        """A small result as dictionaries."""
        return self.snapshot.rows(sql)

    def _read_columns(self) -> dict[str, set[str]]:
        wanted = ", ".join(self._literal(table) for table in (*REQUIRED, *OPTIONAL))
        found: dict[str, set[str]] = {}
        # SQLite ignores the case of names, and table_xinfo includes generated columns.
        for row in self._rows(
            "SELECT LOWER(m.name) AS name, LOWER(c.name) AS column_name, c.pk AS pk"
            " FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS c"
            f" WHERE m.type IN ('table', 'view') AND LOWER(m.name) IN ({wanted})"
        ):
            found.setdefault(row["name"], set()).add(row["column_name"])
            if row["pk"]:
                self._keys.setdefault(row["name"], set()).add(row["column_name"])
        return found

    def repeated_rows(self, run_ids: Sequence[str]) -> list[KeyFault]:
        """The queries for which one of these runs has several rows."""
        is_keyed = self._keys.get("eval_query_results") == {"run_id", "query_id"}
        # To a key, the number 1, the text '1' and the bytes '1' are three different ids, and nulls are all distinct.
        odd = "SELECT 1 AS n FROM eval_query_results WHERE TYPEOF(query_id) <> 'text' LIMIT 1"
        if is_keyed and not self._rows(odd):
            return []
        run_id, query_id = (as_text(column) for column in ("run_id", "query_id"))
        found = self._rows(
            f"SELECT run_id, query_id, COUNT(*) AS n FROM (SELECT {run_id}, {query_id} {self._rows_of(run_ids)})"
            " GROUP BY run_id COLLATE BINARY, query_id COLLATE BINARY HAVING COUNT(*) > 1 ORDER BY 1, 2"
        )
        return [KeyFault(REPEATED_ROW, str(row["run_id"]), str(row["query_id"]), int(row["n"])) for row in found]

    @property
    def keeps_rows(self) -> bool:
        """Are the scored rows cached, so that they are still available after a change?"""
        return self._cache is not None

    def row_marks(self, earlier: Mapping[str, str]) -> dict[str, dict[str, int]]:
        """The kept marks of each run's rows, for runs whose rows had these digests."""
        if not self._has_row_marks():
            return {}
        kept = self._rows("SELECT run_id, rows, marks FROM kbeval_rows")
        return {
            str(row["run_id"]): marks
            for row in kept
            if earlier.get(str(row["run_id"])) == row["rows"] and (marks := unpacked_marks(str(row["marks"])))
        }

    def _has_row_marks(self) -> bool:
        return bool(self._rows("SELECT 1 AS n FROM sqlite_master WHERE type = 'table' AND name = 'kbeval_rows'"))

    def runs(self) -> list[Run]:
        """Every run, oldest first."""
        odd = self._rows("SELECT COUNT(*) AS n FROM eval_runs WHERE TYPEOF(run_id) <> 'text'")[0]["n"]
        if odd:
            msg = f"{self.path}: the run_id of {counted(odd, 'run')} is not stored as text; correct it in eval_runs"
            raise DatabaseError(msg)
        found = self._rows(
            f"SELECT {self._run_columns()}, COALESCE(q.n, 0) AS n FROM eval_runs"
            " LEFT JOIN (SELECT run_id COLLATE BINARY AS of_run, COUNT(*) AS n FROM eval_query_results"
            " GROUP BY run_id COLLATE BINARY) AS q ON q.of_run = eval_runs.run_id COLLATE BINARY"
        )
        runs = [
            Run(
                run_id=str(row["run_id"]),
                suite=str(row["suite"]),
                created_at=_shown_bytes(row["created_at"]),
                commit_hash=_shown_bytes(row["commit_hash"]) or None,
                config_json=_shown_bytes(row["config_snapshot_json"]),
                aggregate_json=_shown_bytes(row["aggregate_json"]),
                rows=int(row["n"]),
            )
            for row in found
        ]
        average = database_size(self.path) // max(1, sum(run.rows for run in runs))
        self._batch_rows = max(1, min(WIDE_BATCH_ROWS, WIDE_BATCH_BYTES // max(1, average)))
        if self._cache is not None:
            self._cache.stored = {run.run_id: run.scored_with("rows") for run in runs}
        return sorted(runs, key=Run.order)

    @property
    def is_judged(self) -> bool:
        """Was any of its runs judged by `kbeval judge`?"""
        return "kbeval_judgings" in self.columns

    def rubrics(self) -> list[str]:
        """The rubrics that runs were judged by."""
        sql = "SELECT DISTINCT CAST(rubrics_json AS TEXT) AS rubrics FROM kbeval_judgings"
        return rubric_names(str(row["rubrics"]) for row in (self._rows(sql) if self.is_judged else ()))

    def judge_inputs(self, hashes: Sequence[str]) -> dict[str, str]:
        """What judges were given to read, by its hash."""
        if not self.is_judged:
            return {}
        wanted = self._literal(json.dumps(list(hashes)))
        found = self._rows(
            f"SELECT {as_text('input_hash')}, {as_text('input_json')} FROM kbeval_judge_inputs"
            f" WHERE input_hash IN (SELECT value FROM json_each({wanted}))"
        )
        return {str(row["input_hash"]): str(row["input_json"]) for row in found}

    def _run_columns(self) -> str:
        commit = "commit_hash" if "commit_hash" in self.columns["eval_runs"] else "NULL"
        names = ("run_id", "suite", "config_snapshot_json", "aggregate_json", "created_at")
        return ", ".join([*map(as_text, names), as_text(commit, "commit_hash")])

    def _row_number(self) -> str:
        """An SQL expression that numbers rows, the rowid if possible: it costs nothing. It never reaches a result."""
        table = self._row_table()
        names = [name for name in ("rowid", "_rowid_", "oid") if name not in self.columns["eval_query_results"]]
        if not names or table["type"] != "table" or table["wr"]:
            return "ROW_NUMBER() OVER ()"
        # One query per end, which SQLite answers from the index; a single query would read the whole table.
        low, high = (
            self._rows(f"SELECT COALESCE({end}({names[0]}), 0) AS n FROM eval_query_results")[0]["n"]
            for end in ("MIN", "MAX")
        )
        return names[0] if low >= 0 and high < 2**ROW_BITS else "ROW_NUMBER() OVER ()"

    def result_json(self, run_id: str, query_id: str) -> str | None:
        """One stored row, unchanged."""
        found = self._rows(
            f"SELECT {as_text('result_json')} FROM eval_query_results WHERE run_id = {self._literal(run_id)}"
            f" COLLATE BINARY AND query_id = {self._literal(query_id)} COLLATE BINARY"
        )
        return str(found[0]["result_json"]) if found else None

    def result_rows(self, run_id: str, query_ids: Sequence[str]) -> list[tuple[str, str]]:
        """The stored rows of a run for these queries, with the ids of the queries."""
        wanted = ", ".join(map(self._literal, sorted(set(query_ids)))) or "NULL"
        found = self._rows(
            f"SELECT {as_text('query_id')}, {as_text('result_json')} FROM eval_query_results"
            f" WHERE run_id = {self._literal(run_id)} COLLATE BINARY"
            f" AND CAST(COALESCE(query_id, '') AS TEXT) COLLATE BINARY IN ({wanted}) ORDER BY query_id COLLATE BINARY"
        )
        return [(str(row["query_id"]), str(row["result_json"])) for row in found]

    def result_texts(self, run_id: str) -> list[str]:
        """Every stored row of a run, in the order in which they were stored."""
        found = self._rows(
            f"SELECT {as_text('result_json')} FROM eval_query_results"
            f" WHERE run_id = {self._literal(run_id)} COLLATE BINARY ORDER BY {self._row_number()}"
        )
        return [str(row["result_json"]) for row in found]

    def chunk_details(self, chunk_ids: Sequence[str]) -> list[tuple[str, str, str | None, str | None]]:
        """The entries of these chunks in `chunks`: id, version, text (None if there is none) and source spans."""
        if "chunks" not in self.columns:
            return []
        wanted = ", ".join(map(self._literal, sorted(set(chunk_ids)))) or "NULL"
        text = as_text("text") if "text" in self.columns["chunks"] else "'' AS text"
        found = self._rows(
            f"SELECT {as_text('chunk_id')}, {as_text('chunker_version')}, {text}, {as_text('source_spans_json')}"
            f" FROM chunks WHERE chunk_id COLLATE BINARY IN ({wanted})"
        )
        return [
            (row["chunk_id"], row["chunker_version"], row["text"] or None, row["source_spans_json"] or None)
            for row in found
        ]

    # --- rows, or the cache of them ------------------------------------------------------------------

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

    def still_kept(self, earlier: Mapping[str, str]) -> set[str]:
        """The runs whose earlier rows, identified by their digest, are cached."""
        return set() if self._cache is None else set(self._cache.choose(earlier).base)

    def labels(self, golden_hash: str) -> Golden | None:
        """The labels that stored numbers were computed with, if they are kept."""
        from kbeval.golden import unpacked

        if "kbeval_golden" not in self.columns:
            return None
        found = self._rows(f"SELECT entries FROM kbeval_golden WHERE golden_hash = {self._literal(golden_hash)}")
        try:
            return unpacked(str(found[0]["entries"]), "the earlier labels") if found else None
        except ValueError:
            return None

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

    def _rows_of(self, run_ids: Sequence[str]) -> str:
        runs = ", ".join(self._literal(run_id) for run_id in run_ids) or "NULL"
        return f"FROM eval_query_results WHERE run_id COLLATE BINARY IN ({runs})"

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
            wide = 1 if session.is_sparing else self._batch_rows
            rows = wide if name in WIDE else DEFAULT_BATCH_ROWS
            session.connection.register(name, self.snapshot.relation(sql, kinds, rows))

        return load

    def _literal(self, text: str) -> str:
        return self.snapshot.literal(text)


def _shown_bytes(value: Any) -> str:  # noqa: ANN401  (a cell)
    """Text that is not a key: bytes that are not valid UTF-8 are shown as escapes."""
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
