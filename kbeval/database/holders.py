"""Finds the processes that hold a lock on a database file, for messages that say what to wait for."""

from __future__ import annotations

import os
from pathlib import Path

from kbeval.database.process import own_pids

_PROC_LOCKS = Path("/proc/locks")


def lock_holders(database: Path) -> str:
    """The other processes that hold a lock on the file, as text: `process 4711 (python)`."""
    pids = sorted(_locking_pids(database) - {os.getpid(), *own_pids()})
    return " and ".join(_describe(pid) for pid in pids) if pids else "another process"


def _locking_pids(database: Path) -> set[int]:
    # In WAL mode the locks are on the -shm file. Only Linux reports the holders.
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
