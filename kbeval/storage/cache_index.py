"""The index of the cache: the digest of each run's rows, and the database state in which it was computed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbeval.errors import KbevalError
from kbeval.storage.database_file import real_path
from kbeval.storage.parts import UNREADABLE, read_sealed, write_sealed
from kbeval.storage.stamps import Stamp
from kbeval.util.files import CACHE_ENDING

_STATE = "rows.json"
LOCK = "lock"
TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# kbeval's cache of the database next to it. It can be deleted at any time and is recreated when needed.\n"
)


@dataclass(frozen=True)
class Known:
    """The digest of a run's rows, and the stamp of the database when it was computed ('' if there was none)."""

    digest: str
    stamp: str


def cache_folder(database: Path) -> Path:
    """The folder of a database's cache."""
    return Path(f"{real_path(database)}{CACHE_ENDING}")


def require_own(folder: Path) -> None:
    """Refuse a folder owned by another user: its contents are untrusted, and its links could make us delete files."""
    if hasattr(os, "geteuid") and {folder.stat().st_uid, folder.lstat().st_uid} != {os.geteuid()}:
        raise PermissionError(folder)


@contextlib.contextmanager
def clock_file(database: Path) -> Iterator[int | None]:
    """A file of ours next to the database, for `Watch.stable_stamp`; None if there is no cache."""
    with contextlib.ExitStack() as stack:
        file = None
        with contextlib.suppress(OSError):
            require_own(cache_folder(database))
            file = stack.enter_context((cache_folder(database) / LOCK).open("r+", encoding="utf-8"))
        yield None if file is None else file.fileno()


def read_known(folder: Path) -> dict[str, Known]:
    """What is known about runs; empty if it cannot be read."""
    try:
        found = read_sealed(folder / _STATE)
        return {str(run_id): Known(str(digest), str(stamp)) for run_id, (digest, stamp) in found["runs"].items()}
    except UNREADABLE:
        return {}


def write_known(folder: Path, known: Mapping[str, Known]) -> None:
    """Replace what is known, atomically."""
    runs = {run_id: [found.digest, found.stamp] for run_id, found in known.items()}
    write_sealed(folder / _STATE, {"runs": runs})


def carry_over(database: Path, before: Stamp, after: Stamp) -> None:
    """Move digests to the new stamp after we wrote numbers to the database: its rows have not changed."""
    folder = cache_folder(database)
    known = read_known(folder)
    moved = {run_id: Known(found.digest, str(after)) for run_id, found in known.items() if found.stamp == str(before)}
    if moved:
        with contextlib.suppress(OSError, KbevalError):
            write_known(folder, {**known, **moved})
