"""Drafts: files and folders that are written next to their final location and renamed when they are complete.

A process that is killed cannot clean up, and may leave gigabytes. Each draft is locked while it is written, and the
system releases the lock when the process dies, so the next process that creates a draft in the same folder can tell
which ones are abandoned, and removes them. Without such locks (Windows, some network file systems) this is unknown,
and nothing is removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from kbeval.util.locks import take_lock

_LOCK = "lock"
# The random part of names made by tempfile.
_RANDOM = re.compile(r"[a-z0-9_]{8}")
# A folder younger than this may not have been locked yet.
_YOUNG_SECONDS = 60
_TRIES = 100


def draft_prefix(name: str) -> str:
    """The prefix of the names of drafts for a file of this name."""
    return f".{name[:50]}.kbeval-"


@contextlib.contextmanager
def draft_file(final: Path) -> Iterator[Path]:
    """A new empty file next to another one. It is removed afterwards, unless it was renamed."""
    prefix = draft_prefix(final.name)
    remove_abandoned(final.parent, prefix)
    draft, lock = _new_file(final.parent, prefix)
    try:
        yield draft
    finally:
        with contextlib.suppress(OSError):
            # If it was renamed, another process may have created a file with this name.
            if _is_at(lock, draft):
                draft.unlink()
        os.close(lock)


@contextlib.contextmanager
def draft_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder, removed afterwards with all its contents."""
    remove_abandoned(parent, prefix)
    folder, lock = _new_folder(parent, prefix)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)
        # Windows cannot delete an open file.
        _remove(folder)


def _new_file(parent: Path, prefix: str) -> tuple[Path, int]:
    from tempfile import mkstemp

    for _ in range(_TRIES):
        handle, name = mkstemp(dir=parent, prefix=prefix)
        # Another process that removes abandoned drafts may have taken it for one.
        if take_lock(handle, exclusive=True) is not False and _is_at(handle, Path(name)):
            return Path(name), handle
        os.close(handle)
    raise FileExistsError(prefix)


def _new_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    from tempfile import mkdtemp

    for _ in range(_TRIES):
        folder = Path(mkdtemp(dir=parent, prefix=prefix))
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if take_lock(handle, exclusive=True) is not False and _is_at(handle, folder / _LOCK):
            return folder, handle
        os.close(handle)
    raise FileExistsError(prefix)


def _is_at(handle: int, path: Path) -> bool:
    """Does the name still lead to the open file?"""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except OSError:
        return False


def remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the drafts that no running process holds. Failures are ignored: the drafts do no harm."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(prefix)]
        for name in names:
            if _RANDOM.fullmatch(name.removeprefix(prefix)):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(parent / name)


def _remove_if_abandoned(draft: Path) -> None:
    about = draft.lstat()
    # Links and files of other users are left alone.
    if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
        return
    if stat.S_ISDIR(about.st_mode):
        try:
            with _locked(draft / _LOCK) as is_free:
                if is_free:
                    _remove(draft)
        except FileNotFoundError:
            if time.time() - about.st_mtime > _YOUNG_SECONDS:
                draft.rmdir()
    elif stat.S_ISREG(about.st_mode):
        with _locked(draft) as is_free:
            if is_free:
                draft.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    # Opened for writing: some network file systems require that for a lock.
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        yield bool(take_lock(handle, exclusive=True))
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
