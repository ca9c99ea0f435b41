"""Files that kbeval writes: names from data never lead out of a folder, and no file is ever written in part."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kbeval.errors import UsageError
from kbeval.util.drafts import draft_file, draft_folder, draft_prefix

# The cache of a database is located next to it.
CACHE_ENDING = ".kbeval-cache"
_LONGEST_NAME = 200
# Not allowed in folder names on some systems.
_FORBIDDEN = frozenset('/\\<>:"|?*')
_RESERVED = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10)))
)


def is_safe_name(name: str) -> bool:
    """May text from data be used as the name of a folder? Only if it cannot mean anything else."""
    return (
        0 < len(name.encode("utf-8", "surrogatepass") if name.isprintable() else b"") <= _LONGEST_NAME
        and not name.startswith((".", " ", "~", "-"))
        and not name.endswith((".", " "))
        and not _FORBIDDEN & set(name)
        and name.partition(".")[0].lower() not in _RESERVED
    )


def run_file(runs_dir: Path, run_id: str, name: str, advice: str) -> Path:
    """Where a file about a run belongs. `advice`: what to do if the run id cannot be the name of a folder."""
    if not is_safe_name(run_id):
        msg = f"the run id {run_id!r} cannot be used as a folder name; {advice}"
        raise UsageError(msg)
    return runs_dir / run_id / name


def write_whole(
    path: Path, content: str | bytes, never: Sequence[str | os.PathLike[str]] = (), *, sync: bool = True
) -> None:
    """Write a file atomically: a reader sees the old one or the new one. `never`: files that it must not be."""
    with whole_file(path, never, sync=sync) as file:
        file.write(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def whole_file(path: Path, never: Sequence[str | os.PathLike[str]] = (), *, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write piece by piece. It replaces `path` when it is complete, and not at all if anything fails.

    `sync`: wait until it is on the disk. A device, a pipe or a descriptor (/dev/stdout) receives the bytes directly.
    """
    # A link stays a link: its target is written.
    real = check_target(path, never)
    with _saying_why(path):
        stream = _open_stream(path, never)
        if stream is not None:
            with stream:
                yield stream
            return
        if real.is_dir():
            msg = f"{path} is a directory; specify a file"
            raise UsageError(msg)
        real.parent.mkdir(parents=True, exist_ok=True)
        with draft_file(real) as draft:
            with draft.open("wb") as file:
                yield file
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            take_place(draft, real)


@contextlib.contextmanager
def whole_database(path: Path, never: Sequence[str | os.PathLike[str]] = ()) -> Iterator[Path]:
    """Like `whole_file`, for a library that needs a name to write to and may create other files next to it."""
    real = check_target(path, never)
    with _saying_why(path):
        real.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(real.parent, draft_prefix(real.name)) as folder:
            draft = folder / real.name
            yield draft
            take_place(draft, real)


@contextlib.contextmanager
def _saying_why(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be written: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from error


def take_place(draft: Path, final: Path) -> None:
    """Rename a draft to its final name. It keeps permissions and owner of a replaced file; a new one uses the umask."""
    try:
        old = final.stat()
    except FileNotFoundError:
        draft.chmod(0o666 & ~umask())
    else:
        draft.chmod(_inherit_owner(draft, old))
    draft.replace(final)


def _inherit_owner(draft: Path, old: os.stat_result) -> int:
    """Give a draft the owner of the file that it replaces, if allowed; returns the permissions that it may have."""
    mode, now = stat.S_IMODE(old.st_mode), draft.stat()
    if not hasattr(os, "chown"):
        return mode
    if now.st_uid != old.st_uid:
        with contextlib.suppress(OSError):
            os.chown(draft, old.st_uid, -1)
    if now.st_gid != old.st_gid:
        try:
            os.chown(draft, -1, old.st_gid)
        except OSError:
            # Permissions of one group must not be passed to another.
            return (mode & ~0o070) | ((mode & 0o007) << 3)
    return mode


# --- what must not be written -------------------------------------------------------------------------

_COMPANIONS = ("-wal", "-shm", "-journal")
_DESCRIPTOR = re.compile(r"/dev/(stdin|stdout|stderr)|/(?:dev/fd|proc/(?:self|thread-self|\d+)/fd)/(\d{1,9})")
_STANDARD = {"stdin": 0, "stdout": 1, "stderr": 2}


def check_target(path: Path, never: Sequence[str | os.PathLike[str]] = ()) -> Path:
    """The real path of a file or folder to be written; raises UsageError if it must not be written.

    Forbidden are the files `never` under any name, what SQLite or kbeval keeps next to them, and everything inside
    those that are folders. Only names and file information are checked; nothing is opened.
    """
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ELOOP:
            msg = f"{path} is a symbolic link to itself; choose another file or folder"
        else:
            msg = f"{path} cannot be written: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from error
    real = _real(path)
    for other in never:
        if is_part_of(real, Path(other)):
            part = "" if _is_same(real, _identities([Path(other)])) else f"a part of {other}, which is "
            msg = f"{path} is {part}read by this command; choose another file or folder"
            raise UsageError(msg)
    for ending in _COMPANIONS:
        base = Path(str(real).removesuffix(ending))
        if real.name.endswith(ending) and base != real and base.is_file():
            msg = f"{path} would be treated as part of the SQLite database {base.name}; choose another file or folder"
            raise UsageError(msg)
    return real


def is_part_of(real: Path, other: Path) -> bool:
    """Is it that file or folder under any name, something SQLite or kbeval keeps next to it, or inside it?"""
    spelled = {_absolute(other), _real(other)}
    names = [Path(f"{name}{end}") for name in spelled for end in ("", *_COMPANIONS, CACHE_ENDING)]
    places = (real, *real.parents)
    identities = _identities(names)
    return not {*names, *map(_real, names)}.isdisjoint(places) or any(_is_same(one, identities) for one in places)


def _absolute(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _identities(paths: Iterable[Path]) -> set[tuple[int, int]]:
    """Device and inode of the files with these names: the same for links, and for names in different case."""
    found = set()
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            about = path.stat()
            found.add((about.st_dev, about.st_ino))
    return found


def _is_same(path: Path, identities: Collection[tuple[int, int]]) -> bool:
    return not _identities([path]).isdisjoint(identities)


def _open_stream(path: Path, never: Sequence[str | os.PathLike[str]]) -> BinaryIO | None:
    """A device, pipe or descriptor that receives bytes directly; None if the path is, or will be, a file."""
    named = _DESCRIPTOR.fullmatch(str(_absolute(path)))
    if named is not None:
        handle = os.dup(_STANDARD[named[1]] if named[1] else int(named[2]))
        about = os.fstat(handle)
        if (about.st_dev, about.st_ino) in _identities(map(Path, never)):
            os.close(handle)
            msg = f"{path} is read by this command; choose another file or folder"
            raise UsageError(msg)
        return os.fdopen(handle, "wb")
    if path.exists() and not path.is_file() and not path.is_dir():
        return path.open("wb")
    return None


def umask() -> int:
    """The permissions that new files must not have."""
    # A file created by another thread at this moment may get fewer permissions, never more.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
