"""Files that kbeval writes: names that come from data never lead anywhere, and no file is ever half-written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kbeval.errors import UsageError

# The columnar copy of a database lies beside it.
CACHE_ENDING = ".kbeval-cache"
_LONGEST_NAME = 200
# Not a folder name on one system or another.
_FORBIDDEN = frozenset('/\\<>:"|?*')
_RESERVED = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10)))
)


def is_safe_name(name: str) -> bool:
    """May text from data be the name of a folder? Only where it can mean nothing but that."""
    return (
        0 < len(name.encode("utf-8", "surrogatepass") if name.isprintable() else b"") <= _LONGEST_NAME
        and not name.startswith((".", " ", "~", "-"))
        and not name.endswith((".", " "))
        and not _FORBIDDEN & set(name)
        and name.partition(".")[0].lower() not in _RESERVED
    )


def report_path(runs_dir: Path, run_id: str) -> Path:
    """Where the report of a run belongs."""
    if not is_safe_name(run_id):
        msg = f"the run id {run_id!r} cannot be the name of a folder; say where the report goes: --report PATH"
        raise UsageError(msg)
    return runs_dir / run_id / "report.md"


def write_whole(path: Path, content: str | bytes, never: Sequence[str | os.PathLike[str]] = ()) -> None:
    """Write a file in one step: whoever looks sees the old one or the new one. `never`: files that it must not be."""
    with whole_file(path, never) as file:
        file.write(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def whole_file(path: Path, never: Sequence[str | os.PathLike[str]] = ()) -> Iterator[BinaryIO]:
    """A file to write piece by piece, which takes its place when it is whole, and never if anything fails."""
    try:
        # A link stays a link: what it leads to is written.
        path = path.resolve()
        if any(is_same_file(path, Path(other)) for other in never):
            msg = f"{path} is what the numbers are made from; name another file"
            raise UsageError(msg)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            msg = f"{path} is a directory; name a file"
            raise UsageError(msg)
        if path.exists() and not path.is_file():
            # A device or a pipe takes the bytes and stays what it is.
            with path.open("wb") as device:
                yield device
            return
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:50]}.")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            Path(draft).chmod(0o666 & ~umask())
            Path(draft).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(draft).unlink()
            raise
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be written: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from error


def is_same_file(path: Path, other: Path) -> bool:
    """Is it that file, one that SQLite or kbeval keeps beside it, or inside it where it is a folder?"""
    other = other.resolve()
    names = {other, *(Path(f"{other}{end}") for end in ("-wal", "-shm", "-journal", CACHE_ENDING))}
    return not names.isdisjoint((path, *path.parents)) or (path.exists() and other.exists() and path.samefile(other))


def umask() -> int:
    """The permissions that new files are not to have."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
