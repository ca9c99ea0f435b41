"""Who holds the lock on a database file, for messages that say whom to wait for; and locks on folders of our own."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_PROC_LOCKS = Path("/proc/locks")


def lock_holders(database: Path) -> str:
    """The other processes that hold a lock on the file, as text: `process 4711 (python)`."""
    pids = sorted(_locking_pids(database) - {os.getpid()})
    return " and ".join(_describe(pid) for pid in pids) if pids else "another process"


def _locking_pids(database: Path) -> set[int]:
    # In WAL mode the locks are on the -shm file. Elsewhere than on Linux nobody tells.
    inodes = set()
    for name in (database, Path(f"{database}-shm")):
        try:
            inodes.add(name.stat().st_ino)
        except OSError:
            continue
    try:
        lines = _PROC_LOCKS.read_text().splitlines()
    except OSError:
        return set()
    pids = set()
    for line in lines:
        fields = line.split()
        # 1: POSIX ADVISORY WRITE 4711 fe:00:1234 1073741824 1073742335
        if len(fields) >= 6 and "WRITE" in fields and fields[-3].rpartition(":")[2].isdigit():
            pid, inode = int(fields[-4]), int(fields[-3].rpartition(":")[2])
            if inode in inodes and pid > 0:
                pids.add(pid)
    return pids


def _describe(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({''.join(c for c in name if c.isprintable())})"


@contextlib.contextmanager
def locked(path: Path, *, exclusive: bool, patience: float = 0) -> Iterator[bool | None]:
    """Hold a lock on a file or folder. It ends with the process, however that ends.

    True: it is held. False: somebody else has it, for longer than the seconds of `patience`. None: there are no such
    locks here (Windows, some networks).
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield _lock(handle, exclusive=exclusive, patience=patience)
    finally:
        os.close(handle)


def _lock(handle: int, *, exclusive: bool, patience: float) -> bool | None:
    end = time.monotonic() + patience
    while True:
        try:
            import fcntl

            fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        except (ImportError, OSError):
            return None
        else:
            return True
