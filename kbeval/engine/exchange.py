"""The exchange folder: tables that DuckDB and an engine elsewhere hand to each other, as Parquet files.

It is in the archive, so both see it under the same path, and is removed with the session that made it. A process that
is killed cannot clean up, so each folder is locked while its session is open: the system releases the lock when the
process dies, and the next session removes what was left.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path

from kbeval.engine.spill import living, take
from kbeval.errors import UsageError

PREFIX = "exchange-"
_DRAFT = ".exchange-"
_LOCK = "lock"
# A folder that has no lock yet is this young at most.
_YOUNG_SECONDS = 60


class Exchange:
    """The folder of one session. Creating it also removes folders left by killed processes."""

    def __init__(self, parent: Path) -> None:
        remove_abandoned(parent)
        try:
            draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=parent))
            self._lock = (draft / _LOCK).open("w", encoding="utf-8")
            take(self._lock)
            # Under its own name it is locked from the beginning.
            self.folder = draft.rename(parent / f"{PREFIX}{draft.name.removeprefix(_DRAFT)}")
            # The server may run as another user of the same group.
            self.folder.chmod(0o770)
        except OSError as error:
            msg = f"{parent} cannot be written: {error.strerror}; tables are exchanged with the engine there"
            raise UsageError(msg) from error
        living.add(self.folder)

    def remove(self) -> None:
        """Remove it with all its contents."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()
        living.discard(self.folder)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of sessions that no longer exist. Failures are ignored: the folders do no harm."""
    for folder in [*parent.glob(f"{PREFIX}*"), *parent.glob(f"{_DRAFT}*")]:
        with contextlib.suppress(OSError):
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    if folder.is_symlink() or not folder.is_dir():
        return False
    lock = folder / _LOCK
    if folder.name.startswith(_DRAFT) or not lock.exists():
        # Killed before it was locked, or while it was being removed.
        return time.time() - folder.stat().st_mtime > _YOUNG_SECONDS
    with lock.open("r+", encoding="utf-8") as file:
        return take(file)
