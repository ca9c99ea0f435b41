"""Creates a SQLite database with the tables that store runs, or opens one to add to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kbeval.database.connection import Database
from kbeval.database.holders import lock_holders
from kbeval.database.process import ProcessEndedError, SqliteError
from kbeval.engine.relations import read_sql
from kbeval.errors import DatabaseError
from kbeval.storage.database_file import check_is_database
from kbeval.util.files import check_target


def make_database(path: Path) -> None:
    """Create a database without runs."""
    with Database(path) as database:
        database.open("rwc")
        with database.transaction():
            make_tables(database)


def make_tables(database: Database) -> None:
    """Create the tables in the open transaction."""
    script = "\n".join(line.partition("--")[0] for line in read_sql("schema/workspace.sql").splitlines())
    for statement in script.split(";"):
        database.execute(statement)


@contextlib.contextmanager
def adding_to(path: Path) -> Iterator[Database]:
    """A database in an open transaction; one that does not exist is created. After an error it is as it was before."""
    is_new = not path.exists()
    is_empty = is_new or (path.is_file() and path.stat().st_size == 0)
    if is_empty:
        check_target(path)
    else:
        check_is_database(path)
    try:
        with Database(path) as database:
            if not is_empty:
                database.check()
            database.open("rwc" if is_new else "rw")
            with database.transaction():
                if is_empty:
                    make_tables(database)
                yield database
    except BaseException as error:
        if is_new and path.is_file() and path.stat().st_size == 0:
            path.unlink()
        if not isinstance(error, SqliteError | ProcessEndedError):
            raise
        if isinstance(error, ProcessEndedError):
            msg = f"{path} cannot be written: {error.headline}; the database contains all of it or nothing"
            raise DatabaseError(msg) from error
        holder = f" by {lock_holders(path)}" if error.is_locked else ""
        msg = f"{path} cannot be written: {error.headline}{holder}; nothing was stored"
        raise DatabaseError(msg) from error
