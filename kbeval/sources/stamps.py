"""Has a database file changed? Told from the outside, without reading its rows.

A stamp is what the file system and SQLite itself say about a state of the database: where it lies on the disk, how long
it is, when it was last written (mtime) and last touched in any way (ctime, which no program can set), SQLite's change
counter, and in WAL mode what is in the log and which commits can be seen. Two equal stamps mean that nothing was
written in between, where two things are looked after:

- Times move in ticks, and a write in the same tick as the one before it leaves no trace in them. A stamp is *settled*
  when the file system's clock has moved on since. That clock may be another machine's, so it is asked, not guessed.
- A commit to the write-ahead log is written first and seen later, when the index of the log says so, which changes no
  file's time. So the index is part of the stamp; and a stamp speaks for a snapshot only if it is the same before the
  snapshot is opened and after.

What writes to the file through a memory map of its own, and not through SQLite, goes unseen until the system notices.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from kbeval.sources.files import real_path

_DATABASE_HEADER = 100
# A log is moved into the database long before that, as a rule; it is read whole, and a longer one has no stamp.
_LONGEST_LOG = 64_000_000
# The index of the log begins with its header, twice. In it: the last frame that can be seen, the number of pages, a
# checksum of all frames, and the log's own random numbers.
_INDEX_HEADER = 48
_LAST_FRAME = slice(16, 20)
_INDEX_STATE = slice(16, 40)
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
# A time that no clock shows any more, for the file that the clock is read from.
_LONG_AGO_NS = 1_000_000_000 * 1_000_000_000
# Not on Windows: what is called ctime there is when a file was made.
_HAS_CTIME = os.utime in os.supports_fd
# Clocks of file systems tick every few milliseconds; some old ones and some networks every second or two.
_WAIT_SECONDS = 0.012
_WAITS = 4

# Inode, length, mtime, ctime.
Times = tuple[int, int, int, int]


@dataclass(frozen=True)
class Stamp:
    """One state of a database file and its write-ahead log."""

    times: Times
    # The beginning of the database, a digest of the log, and what can be seen of the log.
    contents: tuple[bytes, bytes, bytes]

    def __str__(self) -> str:
        return hashlib.sha256(repr((self.times, self.contents)).encode()).hexdigest()[:32]

    @property
    def inode(self) -> int:
        """Which file it is."""
        return self.times[0]

    @property
    def changed(self) -> int:
        """When the file was last touched in any way."""
        return self.times[-1]


class Watch:
    """Looks at a database as often as it is asked. Use as a context manager around any connection to the database.

    Closing a file drops all locks on it that this process holds, SQLite's too. So what was opened to look at it stays
    open until the end, and the end must come after that of the connection.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: dict[Path, FileIO] = {}
        self._retired: list[FileIO] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (*self._open.values(), *self._retired):
            file.close()
        self._open.clear()
        self._retired.clear()

    def look(self) -> Stamp | None:
        """The stamp of this moment; None where there can be none: a write is under way, or was not finished."""
        if not _HAS_CTIME:
            return None
        try:
            path = real_path(self.path)
            seen = times(path)
            header = self._beginning(path, _DATABASE_HEADER)
            log = self._log(_beside(path, "-wal"))
            # A log with nothing in it is no log.
            index = self._index(_beside(path, "-shm")) if log else b""
            # What was read belongs to the times only if these are still the same, and the path still leads there.
            if _has_content(_beside(path, "-journal")) or times(self.path) != seen:
                return None
        except (OSError, _InFluxError):
            return None
        return Stamp(seen, (header, log, index))

    def settled(self, probe: int) -> Stamp | None:
        """As `look`, waiting a moment where the file was written just now; None where a moment is not enough.

        `probe`: an open file of ours beside the database, to read the file system's clock from.
        """
        for wait in range(_WAITS + 1):
            if wait:
                time.sleep(_WAIT_SECONDS)
            # The clock first: whatever is written after it has at least its time.
            clock = self._clock(probe) if _HAS_CTIME else None
            stamp = self.look()
            if clock is None or stamp is None:
                return None
            if stamp.changed < clock:
                return stamp
        return None

    def _clock(self, probe: int) -> int | None:
        """The time that the file system would give to a write. None where its ctime cannot be relied on."""
        try:
            # Some file systems have no ctime of their own and show the mtime: then this one is long ago.
            os.utime(probe, ns=(_LONG_AGO_NS, _LONG_AGO_NS))
            seen = os.fstat(probe)
            return seen.st_ctime_ns if seen.st_dev == self.path.stat().st_dev else None
        except OSError:
            return None

    def _beginning(self, path: Path, length: int) -> bytes:
        file = self._file(path)
        file.seek(0)
        return file.read(length)

    def _file(self, path: Path) -> FileIO:
        """The file that lies there now."""
        now = path.stat()
        file = self._open.get(path)
        if file is not None:
            seen = os.fstat(file.fileno())
            if (seen.st_dev, seen.st_ino) == (now.st_dev, now.st_ino):
                return file
            self._retired.append(file)
        self._open[path] = file = path.open("rb", buffering=0)
        return file

    def _log(self, path: Path) -> bytes:
        """A digest of the log: its times are no help, for opening it may change them, and nothing else."""
        try:
            found = self._beginning(path, _LONGEST_LOG + 1)
        except FileNotFoundError:
            return b""
        if len(found) > _LONGEST_LOG:
            raise _InFluxError
        return hashlib.sha256(found).digest() if found else b""

    def _index(self, path: Path) -> bytes:
        """Which commits of the log can be seen; nothing where none can, or nobody has looked yet."""
        try:
            found = self._beginning(path, 2 * _INDEX_HEADER)
        except FileNotFoundError:
            return b""
        if found[:_INDEX_HEADER] != found[_INDEX_HEADER:]:
            raise _InFluxError
        return found[_INDEX_STATE] if any(found[_LAST_FRAME]) else b""


class _InFluxError(Exception):
    """It is being written at this moment, or has been for long."""


def times(path: Path) -> Times:
    """The part of a stamp that needs no file to be opened."""
    seen = path.stat()
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def _has_content(journal: Path) -> bool:
    """A journal with something in it belongs to a writer that is at work, or was killed."""
    try:
        with journal.open("rb") as file:
            return file.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
    except FileNotFoundError:
        return False


def _beside(path: Path, ending: str) -> Path:
    return Path(f"{path}{ending}")
