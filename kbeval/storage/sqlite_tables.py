"""What SQLite itself answers about a database: its tables, its runs, single rows, labels.

Everything is read from one snapshot. Rows in bulk are read by `kbeval.storage.sqlite`.
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
from kbeval.storage.judged_rubrics import rubric_names
from kbeval.storage.row_marks import unpacked as unpacked_marks
from kbeval.storage.runs import REPEATED_ROW, KeyFault, Run
from kbeval.storage.snapshot import Snapshot, shared_snapshot, sharing
from kbeval.storage.tables import OPTIONAL, REQUIRED, ROW_BITS, as_text, require_tables
from kbeval.util.text import counted

if TYPE_CHECKING:
    from kbeval.golden import Golden


class StoredTables:
    """One read snapshot of a database. Use as a context manager."""

    def __init__(self, path: str | os.PathLike[str], timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self.path = Path(path)
        self._timeout_ms = timeout_ms
        # If the caller is already reading this database, the same snapshot is used here.
        self._shared = shared_snapshot(self.path)
        self.snapshot = self._shared or Snapshot(self.path)
        # The columns of each table, and those of its primary key.
        self.columns: dict[str, set[str]] = {}
        self._keys: dict[str, set[str]] = {}

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _open(self, probe: int | None = None) -> None:
        """`probe`: as in `Snapshot.open`."""
        if self._shared is None:
            self.snapshot.open(self._timeout_ms, probe)
        self.columns = self._read_columns()
        require_tables(self.columns, self.path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shared is None:
            self.snapshot.end(error)

    def release(self) -> None:
        """Let other processes write, until `resume`."""
        if self._shared is None:
            self.snapshot.close()

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
        name, low, high = self._rowids() or ("", -1, -1)
        return name if low >= 0 and high < 2**ROW_BITS else "ROW_NUMBER() OVER ()"

    def _rowids(self) -> tuple[str, int, int] | None:
        """What the rowid of the rows is called, and its ends; None if they have none."""
        table = self._row_table()
        names = [name for name in ("rowid", "_rowid_", "oid") if name not in self.columns["eval_query_results"]]
        if not names or table["type"] != "table" or table["wr"]:
            return None
        # One query per end, which SQLite answers from the index; a single query would read the whole table.
        low, high = (
            self._rows(f"SELECT COALESCE({end}({names[0]}), 0) AS n FROM eval_query_results")[0]["n"]
            for end in ("MIN", "MAX")
        )
        return names[0], low, high

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

    def _rows_of(self, run_ids: Sequence[str]) -> str:
        return f"FROM eval_query_results WHERE {self._is_of(run_ids)}"

    def _is_of(self, run_ids: Sequence[str]) -> str:
        runs = ", ".join(self._literal(run_id) for run_id in run_ids) or "NULL"
        return f"run_id COLLATE BINARY IN ({runs})"

    def _literal(self, text: str) -> str:
        return self.snapshot.literal(text)


def _shown_bytes(value: Any) -> str:  # noqa: ANN401  (a cell)
    """Text that is not a key: bytes that are not valid UTF-8 are shown as escapes."""
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
