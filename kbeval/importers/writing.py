"""Puts imported runs into a database: all in one transaction, the database made where there is none."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from kbeval.configs import imported_from
from kbeval.errors import DatabaseError, UsageError
from kbeval.importers import ImportedRun
from kbeval.locks import lock_holders
from kbeval.runs import is_reserved
from kbeval.sources.files import check_is_database, database_uri
from kbeval.sources.sqlite import BUSY_TIMEOUT_MS
from kbeval.sqlfiles import read_sql

IMPORTED, UNCHANGED, REPLACED = "imported", "unchanged", "replaced"
# The run itself, and not one whose id only looks the same to the column.
_OF_RUN = "WHERE run_id = ? COLLATE BINARY"


def write_runs(
    database: str | os.PathLike[str], runs: Sequence[ImportedRun], *, replace: bool = False
) -> dict[str, str]:
    """Store runs, and say what became of each: imported, unchanged (it was there as it is) or replaced."""
    path = Path(database)
    names = [run.run_id for run in runs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"two of them would be run {twice!r}; import them one by one, or rename a folder"
        raise UsageError(msg)
    if reserved := next(filter(is_reserved, names), None):
        msg = f"{reserved!r} always means the newest run, or one before it; call the run something else"
        raise UsageError(msg)
    is_new = not path.exists()
    is_empty = is_new or (path.is_file() and path.stat().st_size == 0)
    if not is_empty:
        check_is_database(path)
    try:
        uri = f"{database_uri(path)}?mode={'rwc' if is_new else 'rw'}"
        timeout = BUSY_TIMEOUT_MS / 1000
        with closing(sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                if is_empty:
                    _make_tables(connection)
                found = {run.run_id: _write(connection, run, replace=replace) for run in runs}
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return found
    except BaseException as error:
        if is_new and path.is_file() and path.stat().st_size == 0:
            path.unlink()
        if not isinstance(error, sqlite3.Error):
            raise
        holder = f" by {lock_holders(path)}" if "locked" in str(error) else ""
        msg = f"{path} cannot be written: {error}{holder}; nothing was imported"
        raise DatabaseError(msg) from error


def _make_tables(connection: sqlite3.Connection) -> None:
    # Statement by statement: executescript() would end the transaction.
    script = "\n".join(line.partition("--")[0] for line in read_sql("schema.sql").splitlines())
    for statement in script.split(";"):
        connection.execute(statement)


def _write(connection: sqlite3.Connection, run: ImportedRun, *, replace: bool) -> str:
    stored = connection.execute(f"SELECT config_snapshot_json FROM eval_runs {_OF_RUN}", (run.run_id,)).fetchone()
    outcome = IMPORTED
    if stored is not None:
        if _hash(stored[0]) == run.hash:
            return UNCHANGED
        if not replace:
            what = "with other rows" if _hash(stored[0]) else "and was not imported"
            msg = f"there is a run {run.run_id!r} in the database already, {what}; --replace overwrites it"
            raise UsageError(msg)
        outcome = REPLACED
        connection.execute(f"DELETE FROM eval_query_results {_OF_RUN}", (run.run_id,))
        connection.execute(f"DELETE FROM eval_runs {_OF_RUN}", (run.run_id,))
    connection.execute(
        "INSERT INTO eval_runs (run_id, suite, config_snapshot_json, aggregate_json, commit_hash, created_at)"
        " VALUES (?, ?, ?, '', NULL, ?)",
        (run.run_id, run.suite, run.config_json, run.created_at),
    )
    connection.executemany(
        "INSERT INTO eval_query_results (run_id, query_id, result_json) VALUES (?, ?, ?)",
        ((run.run_id, query_id, text) for query_id, text in run.rows),
    )
    return outcome


def _hash(config_json: str) -> str | None:
    """What was imported before, as the stored run says; None where it was not imported."""
    try:
        config = json.loads(config_json)
    except (ValueError, RecursionError):
        return None
    if not isinstance(config, dict) or imported_from(config) is None:
        return None
    return str(config["kbeval"].get("hash"))
