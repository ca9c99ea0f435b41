"""Stores imported and recorded runs, all in one transaction. Creates the database if it does not exist."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kbeval.database.connection import Database
from kbeval.database.process import ProcessEndedError, SqliteError
from kbeval.errors import DatabaseError, UsageError
from kbeval.storage.database_file import check_is_database
from kbeval.storage.new_database import adding_to
from kbeval.storage.run_config import imported_from
from kbeval.storage.runs import is_reserved
from kbeval.storage.tables import require_tables
from kbeval.systems import ImportedRun
from kbeval.systems.knowledge import Knowledge, write_knowledge
from kbeval.util.files import check_target
from kbeval.util.strict_json import parse

IMPORTED, UNCHANGED, REPLACED = "imported", "unchanged", "replaced"
# Exactly this run, and not one whose id is equal only by the collation of the column.
_OF_RUN = "WHERE run_id = ? COLLATE BINARY"


class TakenRunError(UsageError):
    """A run to be recorded has the id of an existing run."""

    def __init__(self, run_id: str, database: str | os.PathLike[str]) -> None:
        super().__init__(f"{database} already contains run {run_id!r}; choose another run_id, or pass replace=True")


def taken_runs(database: str | os.PathLike[str], wanted: Sequence[str]) -> set[str]:
    """The ids of runs that begin with one of these; none if the database does not exist yet, or is empty."""
    path = Path(database)
    check_is_database(path)
    if not path.exists() or path.stat().st_size == 0:
        check_target(path)
        if not path.absolute().parent.is_dir():
            msg = f"{path} cannot be written: there is no folder {path.parent}; create it first"
            raise UsageError(msg)
        return set()
    try:
        with Database(path) as connection:
            connection.check()
            connection.open("ro")
            require_tables(_columns(connection), path)
            found = connection.execute("SELECT CAST(run_id AS TEXT) FROM eval_runs")
            return {str(row[0]) for row in found if str(row[0]).startswith(tuple(wanted))}
    except (SqliteError, ProcessEndedError) as error:
        msg = f"{path} cannot be read: {error.headline}"
        raise DatabaseError(msg) from error


def _columns(connection: Database) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for table, column in connection.execute(
        "SELECT LOWER(m.name), LOWER(c.name) FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS c"
        " WHERE m.type IN ('table', 'view')"
    ):
        found.setdefault(str(table), set()).add(str(column))
    return found


def write_runs(
    database: str | os.PathLike[str],
    runs: Sequence[ImportedRun],
    *,
    replace: bool = False,
    knowledge: Knowledge | None = None,
) -> dict[str, str]:
    """Store runs; returns the outcome of each: imported, unchanged (it was already stored) or replaced.

    `knowledge`: documents and chunks to store in the same transaction.
    """
    path = Path(database)
    _check_names([run.run_id for run in runs])
    with adding_to(path) as connection:
        if knowledge is not None:
            write_knowledge(connection, knowledge)
        return {run.run_id: _write(connection, run, replace=replace) for run in runs}


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        msg = f"duplicate run id {duplicate!r}; rename one, or import them one by one"
        raise UsageError(msg)
    if reserved := next(filter(is_reserved, names), None):
        msg = f"{reserved!r} is reserved: it refers to the latest run or one before it; choose another run id"
        raise UsageError(msg)


def _write(database: Database, run: ImportedRun, *, replace: bool) -> str:
    stored = database.execute(f"SELECT config_snapshot_json FROM eval_runs {_OF_RUN}", (run.run_id,)).first()
    outcome = IMPORTED
    if stored is not None:
        if run.system is not None and _hash(stored[0]) == run.hash:
            return UNCHANGED
        if not replace and run.system is None:
            raise TakenRunError(run.run_id, database.path)
        if not replace:
            what = "has other rows" if _hash(stored[0]) else "was not imported"
            msg = f"run {run.run_id!r} already exists and {what}; use --replace to overwrite it"
            raise UsageError(msg)
        outcome = REPLACED
        database.execute(f"DELETE FROM eval_query_results {_OF_RUN}", (run.run_id,))
        database.execute(f"DELETE FROM eval_runs {_OF_RUN}", (run.run_id,))
    values: dict[str, str | None] = {
        "run_id": run.run_id,
        "suite": run.suite,
        "config_snapshot_json": run.config_json,
        "aggregate_json": "",
        "created_at": run.created_at,
    }
    # The column may be missing.
    if run.commit_hash is not None or "commit_hash" in _columns(database)["eval_runs"]:
        values["commit_hash"] = run.commit_hash
    database.execute(
        f"INSERT INTO eval_runs ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", tuple(values.values())
    )
    database.executemany(
        "INSERT INTO eval_query_results (run_id, query_id, result_json) VALUES (?, ?, ?)",
        ((run.run_id, query_id, text) for query_id, text in run.rows),
    )
    return outcome


def _hash(config_json: str) -> str | None:
    """The hash in a stored configuration; None if the run was not imported."""
    try:
        config = parse(config_json)
    except ValueError:
        return None
    if not isinstance(config, dict) or imported_from(config) is None:
        return None
    return str(config["kbeval"].get("hash"))
