"""A database as a file: is it one, how large, and what a killed writer may have left beside it."""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from contextlib import closing
from pathlib import Path

from kbeval.errors import DatabaseError

SQLITE_HEADER = b"SQLite format 3\x00"


def database_size(path: str | os.PathLike[str]) -> int:
    """Bytes on disk, 0 where nothing is there."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def database_uri(path: Path) -> str:
    """The file as SQLite's URI, whatever characters are in its name."""
    return f"file:{urllib.parse.quote(os.fsencode(path.absolute()))}"


def real_path(path: Path) -> Path:
    """SQLite follows links, and keeps its other files beside the file that they lead to."""
    return Path(os.path.realpath(path))


def finish_interrupted_write(path: Path) -> None:
    """A writer that was killed leaves a journal. Rolling it back needs write access, which reading has not."""
    try:
        if Path(f"{real_path(path)}-journal").stat().st_size == 0:
            return
        with closing(sqlite3.connect(f"{database_uri(path)}?mode=rw", uri=True)) as connection:
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except (OSError, sqlite3.Error):
        return  # no journal, or no right to touch it: reading will tell


def check_is_database(path: Path) -> None:
    """Tell apart the ways in which a path is not a SQLite database, before SQLite makes one of it."""
    if (path / "manifest.json").is_file():
        msg = f"{path} is an archive, and those are only read; name the SQLite database"
        raise DatabaseError(msg)
    if path.is_dir():
        msg = f"{path} is a directory, and no archive; --db wants a SQLite file, or a folder that 'kbeval archive' made"
        raise DatabaseError(msg)
    if path.exists() and not path.is_file():
        msg = f"{path} is not a regular file; --db wants a SQLite file"
        raise DatabaseError(msg)
    try:
        with path.open("rb") as file:
            head = file.read(len(SQLITE_HEADER))
    except FileNotFoundError:
        msg = f"there is no database {path}; check --db, or make one to try with 'kbeval demo'"
        raise DatabaseError(msg) from None
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise DatabaseError(msg) from error
    if not head:
        msg = f"{path} is empty: there are no evaluation runs in it; check --db"
        raise DatabaseError(msg)
    if head != SQLITE_HEADER:
        msg = f"{path} is not a SQLite database; check --db"
        raise DatabaseError(msg)
