"""Locks on our own files and folders, released when the process that holds them ends."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path, *, exclusive: bool, patience: float = 0) -> Iterator[bool | None]:
    """Hold a lock on a file or folder. It is released when the process ends, however it ends.

    True: it is held. False: another process has held it for longer than `patience` seconds. None: such locks are not
    available (Windows, some network file systems).
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield take_lock(handle, exclusive=exclusive, patience=patience)
    finally:
        os.close(handle)


def take_lock(handle: int, *, exclusive: bool, patience: float = 0) -> bool | None:
    """Lock an open file for as long as it is open; returns the same values as `locked`."""
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
