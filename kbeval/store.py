"""Writes back: the numbers of one scoring and the spans to archive, in one short transaction or not at all."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from kbeval.archive import NOTHING, Kept
from kbeval.columnar.known import carry_over, clock_file
from kbeval.columnar.manifest import is_archive
from kbeval.errors import DatabaseError
from kbeval.locks import lock_holders
from kbeval.sources.files import check_is_database, database_uri
from kbeval.sources.scores import write_scores
from kbeval.sources.sqlite import BUSY_TIMEOUT_MS
from kbeval.sources.stamps import Stamp, Watch


def store_json(
    database: str | os.PathLike[str],
    aggregates: Mapping[str, str],
    kept: Kept = NOTHING,
    timeout_ms: int = BUSY_TIMEOUT_MS,
) -> None:
    """Set `aggregate_json` of each run, and what is kept beside it. A run that has gone meanwhile undoes the whole.

    An archive is not written to: all of it is kept in a file beside its tables.
    """
    path = Path(database)
    if is_archive(path):
        write_scores(path, aggregates, kept)
        return
    check_is_database(path)
    with Watch(path) as watch:
        before = watch.look()
        after = _write(watch, before, aggregates, kept, timeout_ms)
        if before is not None and after is not None:
            carry_over(path, before, after)


def _write(
    watch: Watch, before: Stamp | None, aggregates: Mapping[str, str], kept: Kept, timeout_ms: int
) -> Stamp | None:
    """Write, and give back the stamp of what that made of the database; None where others may have written too."""
    path = watch.path
    try:
        with closing(_connect(path, timeout_ms)) as connection:
            # The write lock is taken first: nothing can come between looking and writing.
            connection.execute("BEGIN IMMEDIATE")
            is_alone = before is not None and watch.look() == before
            others = _others_wrote(connection)
            try:
                for run_id, text in sorted(aggregates.items()):
                    _update(connection, run_id, text)
                kept.write(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            if before is None or not is_alone:
                return None
            return _own_state(connection, watch, before, others)
    except sqlite3.Error as error:
        raise _explained(path, timeout_ms, error) from error


def _own_state(connection: sqlite3.Connection, watch: Watch, before: Stamp, others: int) -> Stamp | None:
    """The stamp of the database as we left it, if we alone have written and there is a columnar copy to tell."""
    # The numbers are stored by now. Whatever goes wrong here, only the copy knows less than it could.
    with contextlib.suppress(sqlite3.Error), clock_file(watch.path) as probe:
        if probe is None or _rows_may_follow(connection):
            return None
        _empty_log(connection)
        after = watch.settled(probe)
        # Asked after looking: nobody had written by then. And it is the same file: it was not replaced meanwhile.
        if after is not None and after.inode == before.inode and _others_wrote(connection) == others:
            return after
    return None


def _rows_may_follow(connection: sqlite3.Connection) -> bool:
    """May rows have changed because numbers did? Where the database has triggers, nobody knows what they do."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'trigger'").fetchone() is not None


def _others_wrote(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has written."""
    (found,) = connection.execute("PRAGMA data_version").fetchone()
    return int(found)


def _empty_log(connection: sqlite3.Connection) -> None:
    """In WAL mode, move everything into the database file, as closing would: the file then stays as it is."""
    # Readers who stand in the way are not waited for.
    connection.execute("PRAGMA busy_timeout = 0")
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _update(connection: sqlite3.Connection, run_id: str, text: str) -> None:
    # The run itself, and not one whose id only looks the same to the column.
    sql = "UPDATE eval_runs SET aggregate_json = ? WHERE run_id = ? COLLATE BINARY"
    cursor = connection.execute(sql, (text, run_id))
    if cursor.rowcount < 1:
        msg = f"there is no run {run_id!r} in the database, or no longer; nothing was stored"
        raise DatabaseError(msg)
    if cursor.rowcount > 1:
        msg = f"there are {cursor.rowcount:,} rows of run {run_id!r} in eval_runs; nothing was stored: keep one of them"
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
