"""Writes the results of a scoring: its numbers and the spans to keep, in one short transaction or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from kbeval.database.connection import BUSY_TIMEOUT_MS, Database
from kbeval.database.holders import lock_holders
from kbeval.database.process import ProcessEndedError, SqliteError
from kbeval.errors import DatabaseError
from kbeval.storage.archive_scores import write_scores
from kbeval.storage.cache_index import carry_over, clock_file
from kbeval.storage.database_file import check_is_database, is_archive
from kbeval.storage.kept import NOTHING, Kept
from kbeval.storage.stamps import Stamp, Watch


def store_json(
    database: str | os.PathLike[str],
    aggregates: Mapping[str, str],
    kept: Kept = NOTHING,
    timeout_ms: int = BUSY_TIMEOUT_MS,
) -> None:
    """Set `aggregate_json` of each run, and write what is kept with it. If a run no longer exists, nothing is written.

    An archive's tables are not changed: everything is stored in a file next to them.
    """
    path = Path(database)
    if is_archive(path):
        write_scores(path, aggregates, kept)
        return
    check_is_database(path)
    try:
        with Database(path) as connection:
            connection.check()
            before = Watch(connection).look()
            connection.open("rw", timeout_ms)
            after = _write(connection, before, aggregates, kept)
            if before is not None and after is not None:
                carry_over(path, before, after)
    except (SqliteError, ProcessEndedError) as error:
        raise _explained(path, timeout_ms, error) from error


def _write(database: Database, before: Stamp | None, aggregates: Mapping[str, str], kept: Kept) -> Stamp | None:
    """Write, and return the stamp of the resulting database; None if other processes may have written too."""
    watch = Watch(database)
    with database.transaction():
        is_alone = before is not None and watch.look() == before
        others = _others_wrote(database)
        for run_id, text in sorted(aggregates.items()):
            _update(database, run_id, text)
        kept.write(database)
    return _own_state(database, watch, before, others) if before is not None and is_alone else None


def _own_state(database: Database, watch: Watch, before: Stamp, others: int) -> Stamp | None:
    """The stamp of the database as we left it, if only we have written and there is a cache to record it."""
    # The numbers are stored by now. If anything fails here, the cache merely has to check the rows again.
    with contextlib.suppress(SqliteError), clock_file(watch.path) as probe:
        if probe is None or _rows_may_follow(database):
            return None
        _empty_log(database)
        after = watch.stable_stamp(probe)
        # Checked after taking the stamp: no other process had written by then, and the file was not replaced.
        if after is not None and after.inode == before.inode and _others_wrote(database) == others:
            return after
    return None


def _rows_may_follow(database: Database) -> bool:
    """Can storing numbers have changed rows? If the database has triggers, they may do anything."""
    return database.execute("SELECT 1 FROM sqlite_master WHERE type = 'trigger'").first() is not None


def _others_wrote(database: Database) -> int:
    """A number that changes when another connection has written."""
    ((found,),) = database.execute("PRAGMA data_version")
    return int(found)


def _empty_log(database: Database) -> None:
    """In WAL mode, move everything into the database file now, so that closing does not change it."""
    # Do not wait for readers that block this.
    database.wait_at_most(0)
    ((mode,),) = database.execute("PRAGMA journal_mode")
    if mode == "wal":
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _update(database: Database, run_id: str, text: str) -> None:
    # Exactly this run, not one whose id is equal only under the column's collation.
    named = f"run_id = {database.literal(run_id)} COLLATE BINARY"
    ((count,),) = database.execute(f"SELECT COUNT(*) FROM eval_runs WHERE {named}")
    if count < 1:
        msg = f"the database does not contain run {run_id!r} (any more); nothing was stored"
        raise DatabaseError(msg)
    if count > 1:
        msg = f"eval_runs has {count:,} rows for run {run_id!r}; nothing was stored: keep only one of them"
        raise DatabaseError(msg)
    if database.execute(f"UPDATE eval_runs SET aggregate_json = ? WHERE {named}", (text,)).rowcount == 1:
        return
    # Updates of a view report no row count, so check what its triggers stored.
    stored = database.execute(f"SELECT aggregate_json FROM eval_runs WHERE {named}").first()
    if stored != (text,):
        msg = f"eval_runs is a view, and its triggers did not store the numbers of run {run_id!r}; nothing was stored"
        raise DatabaseError(msg)


def _explained(path: Path, timeout_ms: int, error: SqliteError | ProcessEndedError) -> DatabaseError:
    text = error.headline
    if isinstance(error, ProcessEndedError):
        return DatabaseError(f"{path}: {text}; the database contains all of the new numbers or none of them")
    if error.is_locked:
        return DatabaseError(
            f"{path} is locked by {lock_holders(path)} for more than {timeout_ms / 1000:g} s;"
            " nothing was stored, wait for it to finish and score again"
        )
    if error.is_denied:
        return DatabaseError(
            f"{path} cannot be written; nothing was stored: make the file and its folder writable,"
            " or use --dry-run to see the numbers without storing them"
        )
    return DatabaseError(f"{path}: {text}; nothing was stored")
