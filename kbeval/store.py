"""Writes back: the numbers of one scoring and the spans to archive, in one short transaction or not at all."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from kbeval.archive import NOTHING, Kept
from kbeval.columnar.cache import Cache, carry_over
from kbeval.columnar.manifest import is_archive
from kbeval.errors import DatabaseError
from kbeval.locks import lock_holders
from kbeval.sources.files import check_is_database, database_uri
from kbeval.sources.scores import write_scores
from kbeval.sources.sqlite import BUSY_TIMEOUT_MS
from kbeval.sources.stamps import Stamp, Times, settled_stamp, take_stamp, times


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
    # Taken while the file is not open here: see kbeval.sources.stamps.
    before = take_stamp(path)
    try:
        with closing(_connect(path, timeout_ms)) as connection:
            # The write lock is taken first: nothing can come between looking and writing.
            connection.execute("BEGIN IMMEDIATE")
            is_alone = before is not None and times(path) == before.times
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
            written = times(path) if is_alone and _emptied_log(connection) else None
            is_alone = is_alone and _others_wrote(connection) == others
    except sqlite3.Error as error:
        raise _explained(path, timeout_ms, error) from error
    if before is not None and is_alone and written is not None:
        _tell_cache(path, before, written)


def _others_wrote(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has written."""
    (found,) = connection.execute("PRAGMA data_version").fetchone()
    return int(found)


def _emptied_log(connection: sqlite3.Connection) -> bool:
    """In WAL mode, move everything into the database file, as closing would: the file then stays as it is."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        return True
    (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not is_busy


def _tell_cache(path: Path, before: Stamp, written: Times) -> None:
    """Only numbers were written, and only by us, so the rows are still those that the columnar copy knows."""
    if not Cache(path).folder.is_dir():
        return
    after = settled_stamp(path)
    in_wal_mode = before.headers[0][18:20] == b"\x02\x02"
    if after is None or after.times != written or not (in_wal_mode or after.changes == before.changes + 1):
        return
    carry_over(path, before, after)


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
