"""Where the engine puts what does not fit into memory: a folder that goes with its session.

A process that is killed cannot tidy up, and what it leaves may be gigabytes. Each folder is locked while its session
lives, and the system lifts the lock of a process that dies: so the next session knows which folders nobody uses.
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
# A folder so young may be about to be locked.
_YOUNG_SECONDS = 60


_living: set[Path] = set()


class SpillFolder:
    """A folder of one session's own. What sessions of killed processes left is removed on the way."""

    def __init__(self) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # The engine makes it when it needs it.
        self.path = self._folder / "spilled"
        self._lock = (self._folder / _LOCK).open("w", encoding="utf-8")
        _take(self._lock)
        _living.add(self._folder)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        self._lock.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        _living.discard(self._folder)


def remove_own() -> None:
    """Remove the folders of all sessions of this process, which is about to end."""
    for folder in list(_living):
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders whose sessions are no more. Failing is no fault: they are in nobody's way."""
    with contextlib.suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if _is_abandoned(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    # A link, or what belongs to somebody else, is left alone.
    about = folder.lstat()
    is_own = not hasattr(os, "geteuid") or about.st_uid == os.geteuid()
    if folder.is_symlink() or not is_own or time.time() - about.st_mtime < _YOUNG_SECONDS:
        return False
    with (folder / _LOCK).open("r+", encoding="utf-8") as lock:
        return _take(lock)


def _take(lock: IO[str]) -> bool:
    """Lock it for as long as it is open, or until the process dies; false where another has it, or nobody can."""
    try:
        import fcntl

        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
