"""Facts about a database or an archive from the file system alone: this process never opens a database."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kbeval.errors import DatabaseError, UsageError
from kbeval.util.files import is_part_of

# What makes a folder an archive.
MANIFEST_FILE = "manifest.json"


def is_archive(folder: Path) -> bool:
    """Is it a folder that `kbeval archive` wrote?"""
    return (folder / MANIFEST_FILE).is_file()


def database_size(path: str | os.PathLike[str]) -> int:
    """Bytes on disk; 0 if there is no such file. The size of an archive is not known."""
    try:
        found = Path(path).stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def real_path(path: Path) -> Path:
    """The path with links resolved: SQLite keeps its other files next to the link's target."""
    return Path(os.path.realpath(path))


def check_is_database(path: Path) -> None:
    """Raise an error that says why a path cannot be a SQLite database. The contents are checked when it is opened."""
    if is_archive(path):
        msg = f"{path} is a read-only archive; use the SQLite database instead"
        raise DatabaseError(msg)
    if path.is_dir():
        msg = f"{path} is a directory but not an archive; --db expects a SQLite file or the folder of an archive"
        raise DatabaseError(msg)
    if path.exists() and not path.is_file():
        msg = f"{path} is not a regular file; --db expects a SQLite file"
        raise DatabaseError(msg)


def refuse_database(golden: object, database: str | os.PathLike[str]) -> None:
    """Refuse a golden file that is the database or one of SQLite's files next to it."""
    # An archive contains its own golden file.
    if not isinstance(golden, str | os.PathLike) or Path(database).is_dir():
        return
    if is_part_of(real_path(Path(golden)), Path(database)):
        msg = f"the golden file {os.fspath(golden)} is the database; specify another file with --golden"
        raise UsageError(msg)
