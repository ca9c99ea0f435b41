"""The answers of a run that are not committed yet, in a file next to the database.

A commit waits for the disk several times. Requests must not wait for commits: on a busy machine a server would be idle
half of the time. So an answer is appended to this file first, which survives the death of this process (`kill -9`) as a
commit does, and is committed to the database right behind. Resuming a run takes over what is found here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kbeval.storage.database_file import real_path

# When it is larger, what is committed is dropped from it.
_LARGE = 4_000_000
_MARK = "-kbeval-answers-"
Row = tuple[Any, ...]


class Spool:
    """The file of one run. Raises `OSError` if it cannot be read or written."""

    def __init__(self, database: Path, run_id: str, started_at: str) -> None:
        """`started_at`: of the run; an older run of the same id is another one."""
        self._database = real_path(database.absolute())
        self._path = Path(f"{self._database}{_MARK}{_name(run_id)}")
        self._of = [run_id, started_at]
        self._handle: int | None = None
        self._size = 0
        # Its last line is not whole.
        self._is_torn = False

    def rows(self) -> list[Row]:
        """What is in it. A line that was not written to its end is not an answer that was counted."""
        try:
            with os.fdopen(self._opened(self._path, os.O_RDONLY), "rb") as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        found: list[Row] = []
        for line in lines[:-1]:
            with contextlib.suppress(ValueError):
                read = json.loads(line)
                if isinstance(read, list) and read[:2] == self._of:
                    found.append(tuple(read[2:]))
        return found

    def begin(self) -> None:
        """Make it, empty."""
        self.close()
        self._handle = self._opened(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)
        self._size = 0

    def append(self, row: Row) -> None:
        """Return once the row survives the end of this process."""
        if self._handle is None or self._is_torn:
            msg = f"{self._path} cannot be continued"
            raise OSError(msg)
        try:
            self._size += _write(self._handle, self._line(row))
        except OSError:
            self._is_torn = True
            raise

    def shrink(self, waiting: Iterable[Row]) -> None:
        """Drop everything but these rows if the file has become large."""
        if self._handle is None or self._size <= _LARGE:
            return
        other = self._path.with_name(f"{self._path.name}.new")
        handle = self._opened(other, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)
        try:
            self._size = _write(handle, b"".join(map(self._line, waiting)))
            other.replace(self._path)
        except BaseException:
            os.close(handle)
            raise
        os.close(self._handle)
        self._handle = handle

    def close(self) -> None:
        """Keep the file."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def remove(self) -> None:
        """Everything in it is committed, or not wanted any more."""
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _line(self, row: Row) -> bytes:
        return json.dumps([*self._of, *row]).encode() + b"\n"

    def _opened(self, path: Path, flags: int) -> int:
        """Readable for those who may read the database."""
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        mode = stat.S_IMODE(self._database.stat().st_mode) & 0o666
        handle = os.open(path, flags, mode)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            msg = f"{path} is not a file"
            raise OSError(msg)
        return handle


def _write(handle: int, content: bytes) -> int:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    return len(content)


def _name(run_id: str) -> str:
    return hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def spools_of(database: Path) -> list[Path]:
    """The files of all runs of a database."""
    path = real_path(database.absolute())
    try:
        with os.scandir(path.parent) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.name.startswith(f"{path.name}{_MARK}"))
    except OSError:
        return []


def remove_strays(spools: Sequence[Path], unfinished: Iterable[str]) -> None:
    """Remove those that are of no unfinished run. The runs must have been read after the files were listed."""
    known = {_name(run_id) for run_id in unfinished}
    for path in spools:
        if path.name.rpartition(_MARK)[2].removesuffix(".new") not in known:
            with contextlib.suppress(OSError):
                path.unlink()
