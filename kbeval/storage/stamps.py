"""Has a database file changed? Detected without reading its rows.

A stamp is what the file system and SQLite report about a state of the database: its inode and size, when it was last
written (mtime) and last changed in any way (ctime, which programs cannot set), SQLite's change counter, and in WAL
mode the contents of the log and the visible commits. Equal stamps mean that nothing was written in between, provided
two things:

- Times advance in ticks, and a write in the same tick as the previous one does not change them. A stamp is *stable*
  once the file system's clock has advanced since. That clock may be another machine's, so it is read, not assumed.
- A commit to the write-ahead log becomes visible only when the index of the log says so, which changes no file's time.
  So the index is part of the stamp; and a stamp is valid for a snapshot only if it is the same before and after the
  snapshot is opened.

The files are read by the process that has the database open; see `kbeval.database.child`. A program that writes to
the file through its own memory map, bypassing SQLite, is not detected until the system updates the times.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbeval.database.connection import Database

# A time in the past that no clock shows, for the file that the clock is read from.
_LONG_AGO_NS = 1_000_000_000 * 1_000_000_000
# Not on Windows: its ctime is the time of creation.
_HAS_CTIME = os.utime in os.supports_fd
# File system clocks tick every few milliseconds; some old and some network ones every second or two.
_WAIT_SECONDS = 0.012
_WAITS = 4

# Inode, length, mtime, ctime.
Times = tuple[int, int, int, int]


@dataclass(frozen=True)
class Stamp:
    """One state of a database file and its write-ahead log."""

    times: Times
    # The header of the database, a digest of the log, and the visible part of the log.
    contents: tuple[bytes, bytes, bytes]

    def __str__(self) -> str:
        import hashlib

        return hashlib.sha256(repr((self.times, self.contents)).encode()).hexdigest()[:32]

    @property
    def inode(self) -> int:
        """Which file it is."""
        return self.times[0]

    @property
    def changed(self) -> int:
        """When the file was last changed in any way (ctime)."""
        return self.times[-1]


class Watch:
    """Takes stamps of a database through the process that has it open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.path = database.path

    def look(self) -> Stamp | None:
        """The current stamp; None if a write is in progress or was not finished."""
        found = self._database.look() if _HAS_CTIME else None
        if found is None:
            return None
        seen, contents = found
        return Stamp(tuple(seen), tuple(contents))

    def stable_stamp(self, probe: int) -> Stamp | None:
        """Like `look`, but waits briefly if the file was just written; None if that is not enough.

        `probe`: an open file of ours next to the database, to read the file system's clock from.
        """
        for wait in range(_WAITS + 1):
            if wait:
                time.sleep(_WAIT_SECONDS)
            # The clock first: anything written later has at least this time.
            clock = self._clock(probe) if _HAS_CTIME else None
            stamp = self.look()
            if clock is None or stamp is None:
                return None
            if stamp.changed < clock:
                return stamp
        return None

    def _clock(self, probe: int) -> int | None:
        """The time that the file system would record for a write. None if its ctime is not reliable."""
        try:
            # Some file systems have no ctime and report the mtime instead; the result is then far in the past.
            os.utime(probe, ns=(_LONG_AGO_NS, _LONG_AGO_NS))
            seen = os.fstat(probe)
            return seen.st_ctime_ns if seen.st_dev == self.path.stat().st_dev else None
        except OSError:
            return None


def times(path: Path) -> Times:
    """The part of a stamp that can be read without opening a file."""
    seen = path.stat()
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
