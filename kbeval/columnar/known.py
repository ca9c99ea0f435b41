"""What is known about the rows of a database, beside its columnar copy: which digest each run had, in which state."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbeval.columnar.parts import UNREADABLE, read_sealed, write_sealed
from kbeval.errors import KbevalError
from kbeval.files import CACHE_ENDING
from kbeval.sources.files import real_path
from kbeval.sources.stamps import Stamp

_STATE = "rows.json"
LOCK = "lock"
TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# The columnar copy of the database beside it, kept by kbeval. Delete it at any time: it is made again.\n"
)


@dataclass(frozen=True)
class Known:
    """The digest of a run's rows, and the stamp of the database that it was computed under ('' where there is none)."""

    digest: str
    stamp: str


def cache_folder(database: Path) -> Path:
    """Where the copy of a database is kept."""
    return Path(f"{real_path(database)}{CACHE_ENDING}")


def require_own(folder: Path) -> None:
    """What somebody else put there is not to be believed, and what a link of theirs leads to not to be deleted."""
    if hasattr(os, "geteuid") and {folder.stat().st_uid, folder.lstat().st_uid} != {os.geteuid()}:
        raise PermissionError(folder)


@contextlib.contextmanager
def clock_file(database: Path) -> Iterator[int | None]:
    """A file of ours beside the database, for `Watch.settled`; None where no copy is kept."""
    with contextlib.ExitStack() as stack:
        file = None
        with contextlib.suppress(OSError):
            require_own(cache_folder(database))
            file = stack.enter_context((cache_folder(database) / LOCK).open("r+", encoding="utf-8"))
        yield None if file is None else file.fileno()


def read_known(folder: Path) -> dict[str, Known]:
    """What is known about runs; nothing where it cannot be read."""
    try:
        found = read_sealed(folder / _STATE)
        return {str(run_id): Known(str(digest), str(stamp)) for run_id, (digest, stamp) in found["runs"].items()}
    except UNREADABLE:
        return {}


def write_known(folder: Path, known: Mapping[str, Known]) -> None:
    """Replace what is known, in one step."""
    runs = {run_id: [found.digest, found.stamp] for run_id, found in known.items()}
    write_sealed(folder / _STATE, {"runs": runs})


def carry_over(database: Path, before: Stamp, after: Stamp) -> None:
    """We wrote to the database ourselves, and only numbers: what was known about rows before is known still."""
    folder = cache_folder(database)
    known = read_known(folder)
    moved = {run_id: Known(found.digest, str(after)) for run_id, found in known.items() if found.stamp == str(before)}
    if moved:
        with contextlib.suppress(OSError, KbevalError):
            write_known(folder, {**known, **moved})
