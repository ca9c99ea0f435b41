"""Has a database file changed? Told from the outside, without reading its rows.

A stamp is what the file system and the first bytes of the files say: where they lie on the disk, how long they are,
when they were last written (mtime) and last touched in any way (ctime, which no program can set), and SQLite's own
change counter. Two equal stamps mean that nothing was written in between, as long as the clock that the file system
writes with had moved on when the first was taken: `is_settled` looks after that.

The database is opened here to read its header, and closing it would drop the locks of a SQLite connection that
this process holds. So a whole stamp is taken only while there is none; `times` opens nothing.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

_DATABASE_HEADER = 100
_WAL_HEADER = 32
_CHANGE_COUNTER = slice(24, 28)
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
# File systems write times in ticks of a few milliseconds; some old ones and some networks in seconds.
_TICK_NS = 20_000_000
_COARSE_TICK_NS = 2_500_000_000

# Inode, length, mtime, ctime.
Times = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Stamp:
    """One state of a database file and its write-ahead log."""

    times: Times
    headers: tuple[bytes, bytes]

    def __str__(self) -> str:
        return hashlib.sha256(repr((self.times, self.headers)).encode()).hexdigest()[:32]

    @property
    def changes(self) -> int:
        """How often the file was written, as SQLite counts it outside WAL mode."""
        return int.from_bytes(self.headers[0][_CHANGE_COUNTER], "big")

    @property
    def is_settled(self) -> bool:
        """Would a write that comes now have another time than the last one?"""
        newest = max((part[-1] for part in self.times), default=0)
        age = time.time_ns() - newest
        is_fine = any(moment % 1_000_000 for part in self.times for moment in part[2:])
        return age > (_TICK_NS if is_fine else _COARSE_TICK_NS)


def take_stamp(path: Path) -> Stamp | None:
    """The stamp of a database that this process has not open; None where it can have none: a write was not finished."""
    try:
        seen = times(path)
        with path.open("rb") as file:
            header = file.read(_DATABASE_HEADER)
        log = _wal(path)
        wal_header = b""
        if len(seen) > 1:
            with log.open("rb") as file:
                wal_header = file.read(_WAL_HEADER)
        # What was read belongs to the times only if these are still the same.
        if times(path) != seen or _is_left_over(path):
            return None
    except OSError:
        return None
    return Stamp(seen, (header, wal_header))


def settled_stamp(path: Path) -> Stamp | None:
    """As `take_stamp`, a moment later where the file was written just now; None where a moment is not enough."""
    found = take_stamp(path)
    if found is not None and not found.is_settled:
        time.sleep(2 * _TICK_NS / 1e9)
        found = take_stamp(path)
    return found if found is not None and found.is_settled else None


def times(path: Path) -> Times:
    """The part of a stamp that needs no file to be opened. A log with nothing in it is no log."""
    found = [_times_of(path)]
    try:
        log = _times_of(_wal(path))
    except FileNotFoundError:
        return tuple(found)
    return (*found, log) if log[1] else tuple(found)


def _times_of(path: Path) -> tuple[int, ...]:
    seen = path.stat()
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def _wal(path: Path) -> Path:
    return Path(f"{path}-wal")


def _is_left_over(path: Path) -> bool:
    """A journal with something in it belongs to a writer that is at work, or was killed."""
    try:
        with Path(f"{path}-journal").open("rb") as file:
            return file.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
    except OSError:
        return False
