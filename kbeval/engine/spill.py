"""Where DuckDB spills what does not fit into memory: a folder that is removed with its session.

A process that is killed cannot clean up, and may leave gigabytes. Each folder is locked while its session is open, and
the system releases the lock when the process dies, so the next session can tell which folders are abandoned.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

_PREFIX = "kbeval-spill-"
_LOCK = "lock"
# A folder younger than this may not have been locked yet.
_YOUNG_SECONDS = 60


living: set[Path] = set()


class SpillFolder:
    """The folder of one session. Creating it also removes folders left by killed processes."""

    def __init__(self) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # DuckDB creates it when needed.
        self.path = self._folder / "spilled"
        self._lock = (self._folder / _LOCK).open("w", encoding="utf-8")
        take(self._lock)
        living.add(self._folder)

    def remove(self) -> None:
        """Remove it with all its contents."""
        self._lock.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        living.discard(self._folder)


def remove_own() -> None:
    """Remove the folders of all sessions of this process, which is about to end."""
    for folder in list(living):
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of sessions that no longer exist. Failures are ignored: the folders do no harm."""
    with contextlib.suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if _is_abandoned(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    # Links and folders of other users are left alone.
    about = folder.lstat()
    is_own = not hasattr(os, "geteuid") or about.st_uid == os.geteuid()
    if folder.is_symlink() or not is_own or time.time() - about.st_mtime < _YOUNG_SECONDS:
        return False
    with (folder / _LOCK).open("r+", encoding="utf-8") as lock:
        return take(lock)


def take(lock: IO[str]) -> bool:
    """Lock it for as long as it is open, or until the process dies; False if it is locked or cannot be."""
    try:
        import fcntl

        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
