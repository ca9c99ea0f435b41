"""The database file and the files next to it, read directly: is it a database, and has it changed?"""

from __future__ import annotations

import os
import stat

HEADER = b"SQLite format 3\x00"
MISSING, SPECIAL, OTHER, EMPTY = "missing", "special", "other", "empty"

_DATABASE_HEADER = 100
# A log is normally moved into the database long before this size. It is read whole; a longer one has no stamp.
_LONGEST_LOG = 64_000_000
# The index of the log begins with two copies of its header, which contains the last visible frame, the number of pages,
# a checksum of all frames, and the random salt of the log.
_INDEX_HEADER = 48
_LAST_FRAME = slice(16, 20)
_INDEX_STATE = slice(16, 40)
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


class FileFault(Exception):  # noqa: N818  (a finding about the file, for the other end)
    """Not a database that can be opened: `empty`, `other`, `special`, `missing`, or the error of the system."""


class InFlux(Exception):  # noqa: N818  (also a finding)
    """The database is being written right now, or its log is too long."""


class Looker:
    """Reads the database file and the files next to it directly.

    Closing one of them would drop the locks that SQLite holds for this process, so all of them stay open as long as
    a connection is.
    """

    def __init__(self) -> None:
        self._open: dict[bytes, int] = {}
        self._retired: list[int] = []

    def close(self) -> None:
        """Close all files; allowed only while no connection is open."""
        for handle in (*self._open.values(), *self._retired):
            os.close(handle)
        self._open.clear()
        self._retired.clear()

    def check(self, path: bytes) -> None:
        """Raise an error that says why a file is not a SQLite database, before SQLite turns it into one."""
        try:
            head = self._beginning(path, len(HEADER))
        except FileNotFoundError:
            raise FileFault(MISSING) from None
        except (OSError, ValueError) as error:
            raise FileFault(getattr(error, "strerror", None) or str(error)) from error
        if head != HEADER:
            raise FileFault(OTHER if head else EMPTY)

    def look(self, path: bytes) -> tuple[tuple[int, ...], tuple[bytes, bytes, bytes]] | None:
        """The parts of a stamp, see `kbeval.storage.stamps`; None if a write is in progress or was not finished."""
        try:
            real = os.path.realpath(path)
            seen = times(real)
            header = self._beginning(real, _DATABASE_HEADER)
            log = self._log(real + b"-wal")
            # An empty log counts as no log.
            index = self._index(real + b"-shm") if log else b""
            # The contents match the times only if these have not changed and the path still leads to the same file.
            if has_content(real + b"-journal") or times(path) != seen:
                return None
        except (OSError, FileFault, InFlux):
            return None
        return seen, (header, log, index)

    def _beginning(self, path: bytes, length: int) -> bytes:
        handle = self._file(path)
        pieces = []
        place = 0
        while place < length and (piece := os.pread(handle, min(length - place, 1 << 20), place)):
            pieces.append(piece)
            place += len(piece)
        return b"".join(pieces)

    def _file(self, path: bytes) -> int:
        """A handle of the file that is currently at the path; only regular files, as others could block."""
        now = os.stat(path)
        if not stat.S_ISREG(now.st_mode):
            raise FileFault(SPECIAL)
        handle = self._open.get(path)
        if handle is not None:
            seen = os.fstat(handle)
            if (seen.st_dev, seen.st_ino) == (now.st_dev, now.st_ino):
                return handle
            self._retired.append(handle)
        self._open[path] = handle = open_file(path)
        return handle

    def _log(self, path: bytes) -> bytes:
        """A digest of the log. Its times are useless: opening the log may change them, without any write."""
        try:
            found = self._beginning(path, _LONGEST_LOG + 1)
        except FileNotFoundError:
            return b""
        if len(found) > _LONGEST_LOG:
            raise InFlux
        if not found:
            return b""
        import hashlib

        return hashlib.sha256(found).digest()

    def _index(self, path: bytes) -> bytes:
        """Which commits of the log are visible; empty if none are, or no connection has read the log yet."""
        try:
            found = self._beginning(path, 2 * _INDEX_HEADER)
        except FileNotFoundError:
            return b""
        if found[:_INDEX_HEADER] != found[_INDEX_HEADER:]:
            raise InFlux
        return found[_INDEX_STATE] if any(found[_LAST_FRAME]) else b""


def open_file(path: bytes) -> int:
    """Open a file for reading without ever blocking."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def times(path: bytes) -> tuple[int, int, int, int]:
    """Inode, length, mtime, ctime."""
    seen = os.stat(path)
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def has_content(journal: bytes) -> bool:
    """Does a journal have contents? Then a writer is active, or was killed."""
    try:
        handle = open_file(journal)
    except FileNotFoundError:
        return False
    try:
        return os.read(handle, len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
    finally:
        # SQLite takes no locks on a journal.
        os.close(handle)
