"""Stores imported runs in a database, all in one transaction. Creates the database if it does not exist."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kbeval.database.connection import Database
from kbeval.database.holders import lock_holders
from kbeval.database.process import ProcessEndedError, SqliteError
from kbeval.errors import DatabaseError, UsageError
from kbeval.storage.database_file import check_is_database
from kbeval.storage.new_database import make_tables
from kbeval.storage.run_config import imported_from
from kbeval.storage.runs import is_reserved
from kbeval.systems import ImportedRun
from kbeval.util.files import check_target
from kbeval.util.strict_json import parse

IMPORTED, UNCHANGED, REPLACED = "imported", "unchanged", "replaced"
# Exactly this run, and not one whose id is equal only by the collation of the column.
_OF_RUN = "WHERE run_id = ? COLLATE BINARY"


def write_runs(
    database: str | os.PathLike[str], runs: Sequence[ImportedRun], *, replace: bool = False
) -> dict[str, str]:
    """Store runs; returns the outcome of each: imported, unchanged (it was already stored) or replaced."""
    path = Path(database)
    names = [run.run_id for run in runs]
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        msg = f"duplicate run id {duplicate!r}; rename a folder, or import the folders one by one"
        raise UsageError(msg)
    if reserved := next(filter(is_reserved, names), None):
        msg = f"{reserved!r} is reserved: it refers to the latest run or one before it; choose another run id"
        raise UsageError(msg)
    is_new = not path.exists()
    is_empty = is_new or (path.is_file() and path.stat().st_size == 0)
    if is_empty:
        check_target(path)
    else:
        check_is_database(path)
    try:
        with Database(path) as connection:
            if not is_empty:
                connection.check()
            connection.open("rwc" if is_new else "rw")
            with connection.transaction():
                if is_empty:
                    make_tables(connection)
                return {run.run_id: _write(connection, run, replace=replace) for run in runs}
    except BaseException as error:
        if is_new and path.is_file() and path.stat().st_size == 0:
            path.unlink()
        if not isinstance(error, SqliteError | ProcessEndedError):
            raise
        if isinstance(error, ProcessEndedError):
            msg = f"{path} cannot be written: {error.headline}; the database contains all of the runs or none of them"
            raise DatabaseError(msg) from error
        holder = f" by {lock_holders(path)}" if error.is_locked else ""
        msg = f"{path} cannot be written: {error.headline}{holder}; nothing was imported"
        raise DatabaseError(msg) from error


def _write(database: Database, run: ImportedRun, *, replace: bool) -> str:
    stored = database.execute(f"SELECT config_snapshot_json FROM eval_runs {_OF_RUN}", (run.run_id,)).first()
    outcome = IMPORTED
    if stored is not None:
        if _hash(stored[0]) == run.hash:
            return UNCHANGED
        if not replace:
            what = "has other rows" if _hash(stored[0]) else "was not imported"
            msg = f"run {run.run_id!r} already exists and {what}; use --replace to overwrite it"
            raise UsageError(msg)
        outcome = REPLACED
        database.execute(f"DELETE FROM eval_query_results {_OF_RUN}", (run.run_id,))
        database.execute(f"DELETE FROM eval_runs {_OF_RUN}", (run.run_id,))
    database.execute(
        "INSERT INTO eval_runs (run_id, suite, config_snapshot_json, aggregate_json, commit_hash, created_at)"
        " VALUES (?, ?, ?, '', NULL, ?)",
        (run.run_id, run.suite, run.config_json, run.created_at),
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
