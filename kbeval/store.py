"""Writes back: the numbers of one scoring and the spans to archive, in one short transaction or not at all."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from kbeval.archive import ChunkSpans, write_spans
from kbeval.errors import DatabaseError
from kbeval.locks import lock_holders
from kbeval.sources.files import check_is_database, database_uri
from kbeval.sources.sqlite import BUSY_TIMEOUT_MS


def store_json(
    database: str | os.PathLike[str],
    aggregates: Mapping[str, str],
    spans: Sequence[ChunkSpans] = (),
    timeout_ms: int = BUSY_TIMEOUT_MS,
) -> None:
    """Set `aggregate_json` of each run, and archive spans. A run that has gone meanwhile undoes the whole."""
    path = Path(database)
    check_is_database(path)
    try:
        with closing(_connect(path, timeout_ms)) as connection:
            # The write lock is taken first: nothing can come between looking and writing.
            connection.execute("BEGIN IMMEDIATE")
            try:
                for run_id, text in sorted(aggregates.items()):
                    _update(connection, run_id, text)
                write_spans(connection, spans)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
    except sqlite3.Error as error:
        raise _explained(path, timeout_ms, error) from error


def _update(connection: sqlite3.Connection, run_id: str, text: str) -> None:
    cursor = connection.execute("UPDATE eval_runs SET aggregate_json = ? WHERE run_id = ?", (text, run_id))
    if cursor.rowcount < 1:
        msg = f"there is no run {run_id!r} in the database, or no longer; nothing was stored"
        raise DatabaseError(msg)


def _connect(path: Path, timeout_ms: int) -> sqlite3.Connection:
    return sqlite3.connect(f"{database_uri(path)}?mode=rw", uri=True, timeout=timeout_ms / 1000, isolation_level=None)


def _explained(path: Path, timeout_ms: int, error: sqlite3.Error) -> DatabaseError:
    text = str(error)
    if "locked" in text or "busy" in text:
        return DatabaseError(
            f"{path} is locked by {lock_holders(path)} for more than {timeout_ms / 1000:g} s;"
            " nothing was stored, wait for it to finish and score again"
        )
    if "readonly" in text or "unable to open" in text:
        return DatabaseError(
            f"{path} cannot be written; nothing was stored: make the file and its folder writable,"
            " or look at the numbers with --dry-run"
        )
    return DatabaseError(f"{path}: {text}; nothing was stored")
