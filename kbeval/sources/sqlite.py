"""Reads a SQLite database in one snapshot and streams its tables into a session.

Rows go from SQLite to DuckDB as Arrow batches, never through Python. The driver carries its own copy of
SQLite, and two copies in one process drop each other's file locks when one closes the file. So the
connection here is always closed before `kbeval.store` opens the same file, and never the other way round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbeval.columnar.cache import Choice, Facts
from kbeval.columnar.digests import NO_ROWS, digests
from kbeval.columnar.parts import ROW_BITS
from kbeval.engine import undisturbed
from kbeval.errors import DatabaseError
from kbeval.golden import Golden, unpacked
from kbeval.locks import lock_holders
from kbeval.rowmarks import unpacked as unpacked_marks
from kbeval.runs import REPEATED_ROW, KeyFault, Run
from kbeval.sources.files import check_is_database, database_size, database_uri, finish_interrupted_write
from kbeval.text import counted

if TYPE_CHECKING:
    import duckdb

    from kbeval.columnar.cache import Cache
    from kbeval.engine import Loader, Session

BUSY_TIMEOUT_MS = 10_000
# Rows with hits are some kilobytes each. Small batches of them stay in the processor's cache: measured
# twice as fast as the driver's default of 1024 rows, in a third of the memory.
WIDE = (
    "stored_results",
    "stored_places",
    "stored_anchors",
    "stored_history",
    "stored_texts",
    "stored_samples",
    "rows_to_keep",
)
WIDE_BATCH_ROWS = 64
# Where rows are larger than that, fewer of them: each thread parses a batch at once.
WIDE_BATCH_BYTES = 1_000_000
# What is read of a row that is too large to be parsed; see sql/facts/parsed.sql.
_TOO_LARGE = "too large: %,d bytes of JSON, at most {largest:,} are read with this --memory-limit"
DEFAULT_BATCH_ROWS = 1024

REQUIRED = {
    "eval_runs": ("run_id", "suite", "config_snapshot_json", "aggregate_json", "created_at"),
    "eval_query_results": ("run_id", "query_id", "result_json"),
}
OPTIONAL = {
    "chunks": ("chunk_id", "doc_id", "source_spans_json", "chunker_version"),
    "documents": ("doc_id", "workspace_path"),
    # Our own: see sql/archive.sql and sql/golden.sql.
    "kbeval_chunk_spans": ("chunk_id", "chunker_version", "doc_id", "source_spans_json", "seen_in", "first_seen"),
    "kbeval_golden": ("golden_hash", "entries", "first_used"),
}
# Columns that those tables may lack: what stands in for each, the first that the table has; '' where it has none.
LATER = {
    "chunks": {
        "policy_hash": {"policy_hash": "policy_hash"},
        "tokens": {"token_estimate": "token_estimate", "text": "LENGTH(text) / 4.0"},
    },
    "kbeval_chunk_spans": {"policy_hash": {"policy_hash": "policy_hash"}, "tokens": {"tokens": "tokens"}},
}
# What a session gets of each of those tables.
TABLES = {table: (*columns, *LATER.get(table, ())) for table, columns in OPTIONAL.items()}
# What a session gets of a run.
RUN_COLUMNS = ("run_id", "suite", "config_snapshot_json", "aggregate_json", "created_at", "commit_hash")


class SqliteSource:
    """One read snapshot of a database. Use as a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        reader: duckdb.DuckDBPyConnection,
        timeout_ms: int = BUSY_TIMEOUT_MS,
        cache: Cache | None = None,
    ) -> None:
        """`reader`: a DuckDB connection to read small answers with. `cache`: where facts of its rows are kept."""
        self.path = Path(path)
        self._reader = reader
        check_is_database(self.path)
        self._timeout_ms = timeout_ms
        self._open: list[Any] = []
        self._keys: dict[str, set[str]] = {}
        self._cache = cache
        self._digests: dict[str, str] = {}
        self._facts: Facts | None = None
        self._batch_rows = WIDE_BATCH_ROWS
        self._largest_row: int | None = None

    def __enter__(self) -> Self:
        from adbc_driver_manager import AdbcConnection, AdbcDatabase
        from adbc_driver_sqlite import _driver_path

        finish_interrupted_write(self.path)
        uri = f"{database_uri(self.path)}?mode=ro"
        with self._explained():
            database = AdbcDatabase(driver=_driver_path(), uri=uri)
            self._open.append(database)
            self._connection = AdbcConnection(database)
            self._open.append(self._connection)
        try:
            with self._explained():
                self._rows(f"PRAGMA busy_timeout = {self._timeout_ms}")
                # One transaction for all reads: every table is seen as of the same moment.
                self._connection.set_autocommit(False)
                self.columns = self._read_columns()
            self._require_tables()
            self._trust_copy()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            self._open.pop().close()

    def _trust_copy(self) -> None:
        """Take what the copy knows about the rows, if this snapshot is of the state that it knows."""
        if self._cache is None:
            return
        # What a view shows may change while no file does.
        is_steady = self._cache.still_steady() and self._row_table()["type"] == "table"
        if is_steady:
            self._digests |= self._cache.trusted()
        elif self._facts is not None:
            # Opened a second time, on another state: what is read from now on does not belong to what was before.
            self._cache = None
        else:
            self._cache.stamp = None

    def _row_table(self) -> dict[str, Any]:
        """What kind of table the rows are in."""
        (table, *_) = self._rows("SELECT type, wr FROM pragma_table_list WHERE LOWER(name) = 'eval_query_results'")
        return table

    def _explained(self) -> _Explained:
        return _Explained(self.path)

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        """A small result as dictionaries, through DuckDB, which reads Arrow without pyarrow."""
        return undisturbed(self._reader, lambda: self._read(sql))

    def _read(self, sql: str) -> list[dict[str, Any]]:
        statement, stream = self._start(sql)
        try:
            self._reader.register("small_answer", stream)
            cursor = self._reader.execute("SELECT * FROM small_answer")
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, map(_decoded, row), strict=True)) for row in cursor.fetchall()]
        finally:
            try:
                self._reader.unregister("small_answer")
            finally:
                # A connection with a statement that is still open cannot be closed.
                del stream
                statement.close()

    def _start(self, sql: str, batch_rows: int = DEFAULT_BATCH_ROWS) -> tuple[Any, Any]:
        """A statement and the Arrow stream of its rows."""
        from adbc_driver_manager import AdbcStatement

        statement = AdbcStatement(self._connection)
        try:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(batch_rows)})
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
        except BaseException:
            statement.close()
            raise
        return statement, stream

    def _read_columns(self) -> dict[str, set[str]]:
        wanted = ", ".join(_literal(table) for table in (*REQUIRED, *OPTIONAL))
        found: dict[str, set[str]] = {}
        # SQLite does not care about the case of names, and table_xinfo knows generated columns too.
        for row in self._rows(
            "SELECT LOWER(m.name) AS name, LOWER(c.name) AS column_name, c.pk AS pk"
            " FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS c"
            f" WHERE m.type IN ('table', 'view') AND LOWER(m.name) IN ({wanted})"
        ):
            found.setdefault(row["name"], set()).add(row["column_name"])
            if row["pk"]:
                self._keys.setdefault(row["name"], set()).add(row["column_name"])
        return found

    def _require_tables(self) -> None:
        for table, columns in REQUIRED.items():
            if table not in self.columns:
                msg = (
                    f"{self.path} has no table {table!r}, so it holds no evaluation runs;"
                    " check --db, or try 'kbeval demo'"
                )
                raise DatabaseError(msg)
            self._require_columns(table, columns)
        for table, columns in OPTIONAL.items():
            if table in self.columns:
                self._require_columns(table, columns)

    def _require_columns(self, table: str, columns: Iterable[str]) -> None:
        if missing := [column for column in columns if column not in self.columns[table]]:
            msg = f"{self.path}: table {table!r} has no column {missing[0]!r}; see 'kbeval demo' for the layout"
            raise DatabaseError(msg)

    def repeated_rows(self, run_ids: Sequence[str]) -> list[KeyFault]:
        """The queries that one of these runs has several rows for."""
        is_keyed = self._keys.get("eval_query_results") == {"run_id", "query_id"}
        with self._explained():
            # A key takes the number 1, the text and the bytes '1' for three ids, and null for none.
            odd = "SELECT 1 AS n FROM eval_query_results WHERE TYPEOF(query_id) <> 'text' LIMIT 1"
            if is_keyed and not self._rows(odd):
                return []
        run_id, query_id = (_as_bytes(column) for column in ("run_id", "query_id"))
        with self._explained():
            found = self._rows(
                f"SELECT run_id, query_id, COUNT(*) AS n FROM (SELECT {run_id}, {query_id} {self._rows_of(run_ids)})"
                " GROUP BY 1, 2 HAVING COUNT(*) > 1 ORDER BY 1, 2"
            )
        return [KeyFault(REPEATED_ROW, str(row["run_id"]), str(row["query_id"]), int(row["n"])) for row in found]

    @property
    def keeps_rows(self) -> bool:
        """Is there a copy of the rows that were scored, to look at once they have changed?"""
        return self._cache is not None

    def row_marks(self, earlier: Mapping[str, str]) -> dict[str, dict[str, int]]:
        """What each row of runs was known by, where that is kept of rows with these digests."""
        if not self._has_row_marks():
            return {}
        with self._explained():
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
        with self._explained():
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

    def _run_columns(self) -> str:
        commit = "commit_hash" if "commit_hash" in self.columns["eval_runs"] else "NULL"
        names = ("run_id", "suite", "config_snapshot_json", "aggregate_json", "created_at")
        return ", ".join([*map(_as_bytes, names), _as_bytes(commit, "commit_hash")])

    def _row_number(self) -> str:
        """A number for each row that costs nothing, where the table has one; it never reaches a result."""
        table = self._row_table()
        names = [name for name in ("rowid", "_rowid_", "oid") if name not in self.columns["eval_query_results"]]
        if not names or table["type"] != "table" or table["wr"]:
            return "ROW_NUMBER() OVER ()"
        # Each end on its own, which SQLite finds at once; both in one question would read the whole table.
        low, high = (
            self._rows(f"SELECT COALESCE({end}({names[0]}), 0) AS n FROM eval_query_results")[0]["n"]
            for end in ("MIN", "MAX")
        )
        return names[0] if low >= 0 and high < 2**ROW_BITS else "ROW_NUMBER() OVER ()"

    def result_json(self, run_id: str, query_id: str) -> str | None:
        """One stored row as it stands."""
        with self._explained():
            found = self._rows(
                f"SELECT {_as_text('result_json')} FROM eval_query_results"
                f" WHERE run_id = {_literal(run_id)} COLLATE BINARY AND query_id = {_literal(query_id)} COLLATE BINARY"
            )
        return str(found[0]["result_json"]) if found else None

    def result_texts(self, run_id: str) -> list[str]:
        """Every stored row of a run, in the order in which they were stored."""
        with self._explained():
            found = self._rows(
                f"SELECT {_as_text('result_json')} FROM eval_query_results"
                f" WHERE run_id = {_literal(run_id)} COLLATE BINARY ORDER BY {self._row_number()}"
            )
        return [str(row["result_json"]) for row in found]

    def chunk_details(self, chunk_ids: Sequence[str]) -> list[tuple[str, str, str | None, str | None]]:
        """What the table `chunks` says about these: id, version, text and source spans; a text where it has one."""
        if "chunks" not in self.columns:
            return []
        wanted = ", ".join(map(_literal, sorted(set(chunk_ids)))) or "NULL"
        text = _as_text("text") if "text" in self.columns["chunks"] else "'' AS text"
        with self._explained():
            found = self._rows(
                f"SELECT {_as_text('chunk_id')}, {_as_text('chunker_version')}, {text}, {_as_text('source_spans_json')}"
                f" FROM chunks WHERE chunk_id COLLATE BINARY IN ({wanted})"
            )
        return [
            (row["chunk_id"], row["chunker_version"], row["text"] or None, row["source_spans_json"] or None)
            for row in found
        ]

    # --- rows, or what is kept of them ---------------------------------------------------------------

    def row_digests(self, session: Session, run_ids: Sequence[str]) -> dict[str, str]:
        """What the rows of runs are known by. Reads them, unless nothing was written since they were last read."""
        unknown = [run_id for run_id in run_ids if run_id not in self._digests]
        if unknown:
            self._largest_row = session.largest_row
            self._loader("stored_texts", f"SELECT {self._row_columns()} {self._rows_of(unknown)}")(session)
            hashed = "(SELECT run_id, row_hash(query_id, result_json) AS row_hash FROM stored_texts)"
            found = digests(session, hashed)
            self._digests |= {run_id: found.get(run_id, NO_ROWS) for run_id in unknown}
        return {run_id: self._digests[run_id] for run_id in run_ids}

    def feed(self, session: Session, run_ids: Sequence[str], earlier: Mapping[str, str] | None = None) -> None:
        """Say how a session gets at the facts of runs: from the copy where it holds them, else from the rows.

        `earlier`: runs whose rows are to be those of this digest, of which `still_kept` said that a copy is there.
        """
        self._largest_row = session.largest_row
        current: dict[str, str] = {run_id: self._digests[run_id] for run_id in run_ids if run_id in self._digests}
        choice, numbering = Choice.none(), 0
        if self._cache is not None:
            suspected = self._cache.suspected([run_id for run_id in run_ids if run_id not in current])
            current |= self.row_digests(session, suspected)
            current |= earlier or {}
            choice, numbering = self._cache.choose(current), self._cache.numbering()
        if earlier:
            # What is learned here is about the past, and is not to be kept as the present.
            self._cache = None
            if not earlier.keys() <= choice.base.keys():
                msg = "the earlier rows of a run are no longer there; try again"
                raise DatabaseError(msg)
        fresh = [run_id for run_id in run_ids if run_id not in choice.base]
        self._facts = facts = Facts(choice, fresh, numbering, current)
        session.add_loaders(self.loaders(run_ids, facts))
        session.add_copies(facts.copies())

    def still_kept(self, earlier: Mapping[str, str]) -> set[str]:
        """The runs of which there is a copy of earlier rows, by their digest."""
        return set() if self._cache is None else set(self._cache.choose(earlier).base)

    def labels(self, golden_hash: str) -> Golden | None:
        """The labels that stored numbers were made with, where they are kept."""
        if "kbeval_golden" not in self.columns:
            return None
        with self._explained():
            found = self._rows(f"SELECT entries FROM kbeval_golden WHERE golden_hash = {_literal(golden_hash)}")
        try:
            return unpacked(str(found[0]["entries"]), "the earlier labels") if found else None
        except ValueError:
            return None

    def numbering_of(self, run_id: str) -> int:
        """How the rows of a run are numbered in this session."""
        if self._facts is None or run_id not in self._facts.choice.base:
            return 0 if self._facts is None else self._facts.numbering
        return self._facts.choice.base[run_id].runs[run_id].numbering

    def load_rows(self, session: Session, name: str, run_ids: Sequence[str]) -> None:
        """The rows of runs as they stand, under a name."""
        columns = ", ".join(map(_as_text, REQUIRED["eval_query_results"]))
        self._loader(name, f"SELECT {self._row_number()} AS result_no, {columns} {self._rows_of(run_ids)}")(session)

    def settled_digests(self, session: Session) -> dict[str, str]:
        """What the rows of the session's runs are known by, once they are parsed."""
        return {} if self._facts is None else self._facts.settle(session)

    def keep(self, session: Session) -> None:
        """Save what the session has parsed, for the next one."""
        if self._cache is not None and self._facts is not None and not self._left_out_rows(session):
            if "parsed" in session.built:
                self._facts.settle(session)
            self._cache.keep(session, self._facts, self._digests)

    @staticmethod
    def _left_out_rows(session: Session) -> bool:
        """Was a row too large? With more memory it is not, and what is known of it then must not come from the copy."""
        if "bad_rows" not in session.built:
            return False
        return bool(session.rows("SELECT 1 FROM bad_rows WHERE fault LIKE 'is too large: %' LIMIT 1"))

    def lost_its_copy(self) -> bool:
        """Was a copy that is being read deleted?"""
        return self._cache is not None and self._facts is not None and self._cache.is_lost(self._facts.choice)

    def _row_columns(self) -> str:
        """A row to be parsed; one that is too large for it never leaves SQLite."""
        run_id, query_id, _ = map(_as_text, REQUIRED["eval_query_results"])
        return f"{run_id}, {query_id}, {self._row_text()}"

    def _row_text(self) -> str:
        if self._largest_row is None:
            return _as_text("result_json")
        size = "LENGTH(CAST(result_json AS BLOB))"
        instead = f"PRINTF('{_TOO_LARGE.format(largest=self._largest_row)}', {size})"
        return _as_text(f"CASE WHEN {size} > {self._largest_row} THEN {instead} ELSE result_json END", "result_json")

    def _rows_of(self, run_ids: Sequence[str]) -> str:
        runs = ", ".join(_literal(run_id) for run_id in run_ids) or "NULL"
        return f"FROM eval_query_results WHERE run_id COLLATE BINARY IN ({runs})"

    def loaders(self, run_ids: Sequence[str], facts: Facts | None = None) -> dict[str, Loader]:
        """How a session gets each stored table: the rows of these runs, and the knowledge base."""
        facts = facts or Facts(Choice.none(), run_ids, 0, {})
        number = f"{self._row_number()} + {facts.numbering << ROW_BITS}"
        row = self._row_columns()
        selects = {
            "stored_results": f"SELECT {number} AS result_no, {row} {self._rows_of(facts.fresh)}",
            # The same rows again, for those who ask where the hits stand: a stream can be read once.
            "stored_places": f"SELECT {row} {self._rows_of(facts.lacking('hit_claims'))}",
            "stored_anchors": f"SELECT {row} {self._rows_of(facts.lacking('anchor_rows'))}",
        }
        for table in OPTIONAL:
            selects[f"stored_{table}"] = self._table_sql(table)
        found = {name: self._loader(name, sql) for name, sql in selects.items()}
        wanted = set(run_ids)
        found["stored_runs"] = lambda session: load_runs(session, [run for run in self.runs() if run.run_id in wanted])
        found["stored_history"] = self._load_history
        found["stored_samples"] = self._load_samples
        return found

    def _table_sql(self, table: str) -> str:
        if table not in self.columns:
            nothing = ", ".join(f"'' AS {column}" for column in TABLES[table])
            return f"SELECT {nothing} WHERE 0"
        names = list(map(_as_text, OPTIONAL[table]))
        for column, sources in LATER.get(table, {}).items():
            found = next((sql for name, sql in sources.items() if name in self.columns[table]), "''")
            names.append(_as_text(found, column))
        return f"SELECT {', '.join(names)} FROM {table}"

    def _load_samples(self, session: Session) -> None:
        """The rows that `sampled_rows` names, as they stand."""
        session.need("sampled_rows")
        wanted = json.dumps(session.rows("SELECT run_id, query_id FROM sampled_rows"))
        self._loader(
            "stored_samples",
            f"SELECT {self._row_columns()} FROM json_each({_literal(wanted)}) AS w CROSS JOIN eval_query_results"
            " WHERE run_id = json_extract(w.value, '$[0]') COLLATE BINARY"
            " AND query_id = json_extract(w.value, '$[1]') COLLATE BINARY",
        )(session)

    def _load_history(self, session: Session) -> None:
        """The rows of all runs, to look for chunks that nothing else knows; none, where there are no such chunks."""
        session.need("unplaced_chunks")
        ((unplaced,),) = session.rows("SELECT COUNT(*) FROM unplaced_chunks")
        version = "json_extract(r.config_snapshot_json, '$.chunker_version')"
        self._loader(
            "stored_history",
            f"SELECT CAST(COALESCE(CASE WHEN json_valid(r.config_snapshot_json) THEN {version} END, '') AS TEXT)"
            f" AS chunker_version, {self._row_text()}"
            " FROM eval_query_results AS q JOIN eval_runs AS r ON r.run_id = q.run_id COLLATE BINARY"
            + ("" if unplaced else " WHERE 0"),
        )(session)

    def _loader(self, name: str, sql: str) -> Loader:
        def start(session: Session) -> None:
            wide = 1 if session.is_sparing else self._batch_rows
            statement, stream = self._start(sql, wide if name in WIDE else DEFAULT_BATCH_ROWS)
            self._open.append(statement)
            session.connection.register(name, stream)

        def load(session: Session) -> None:
            with self._explained():
                undisturbed(session.connection, lambda: start(session))

        return load


class _Explained:
    """Turns what the driver says into one line that says what to do."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or type(error).__module__.split(".")[0] not in ("adbc_driver_manager", "_duckdb", "duckdb"):
            return
        text = str(error)
        if "locked" in text:
            what = f"{self._path} is locked by {lock_holders(self._path)}; wait for it to finish and try again"
        elif "readonly" in text or "read-only" in text or "unable to open" in text:
            why = "it is in WAL mode, or a write was not finished"
            what = f"{self._path} cannot be read without writing beside it ({why}); make its folder writable"
        else:
            what = f"{self._path} cannot be read: {text.splitlines()[0]}; is the file damaged? restore it from a backup"
        raise DatabaseError(what) from error


def load_runs(session: Session, runs: Sequence[Run]) -> None:
    """Make `stored_runs` of these."""
    rows = [
        (run.run_id, run.suite, run.config_json, run.aggregate_json, run.created_at, run.commit_hash or "")
        for run in runs
    ]
    columns = [f"UNNEST(${place}::VARCHAR[]) AS {name}" for place, name in enumerate(RUN_COLUMNS, start=1)]
    values = [[row[place] for row in rows] for place in range(len(RUN_COLUMNS))]
    session.execute(f"CREATE TABLE stored_runs AS SELECT {', '.join(columns)}", values)


def _literal(text: str) -> str:
    """An SQL literal that no text can break out of; what `_decoded` made of bytes that are no text is those bytes."""
    try:
        stored = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        stored = text.encode("utf-8", "surrogatepass")
    return f"CAST(x'{stored.hex()}' AS TEXT)"


def _decoded(value: Any) -> Any:  # noqa: ANN401  (a cell)
    """Text that was read as bytes, because it may hold some that are no text: they become halves of characters."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _shown_bytes(value: Any) -> str:  # noqa: ANN401  (a cell)
    """The same for texts that are not keys: bytes that are no text are shown as escapes."""
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _as_text(sql: str, name: str | None = None) -> str:
    """Text whatever is stored: the driver takes a column's type from its first rows."""
    return f"CAST(COALESCE({sql}, '') AS TEXT) AS {name or sql}"


def _as_bytes(sql: str, name: str | None = None) -> str:
    """The same for few rows, which Python reads: what is stored as text may not be UTF-8, and the engine refuses it."""
    return f"CAST(CAST(COALESCE({sql}, '') AS TEXT) AS BLOB) AS {name or sql}"
