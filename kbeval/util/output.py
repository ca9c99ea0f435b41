"""Keeps what foreign code prints out of the data on standard output."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_OUT, _ERR = 1, 2


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send everything that is written to standard output to standard error, also by libraries and child processes."""
    before = sys.stdout
    _flush()
    saved = _duplicate()
    try:
        if saved is not None:
            os.dup2(_ERR, _OUT)
        if sys.stderr is not None:
            sys.stdout = sys.stderr
        yield
    finally:
        sys.stdout = before
        # Text written by code that has kept the old object.
        _flush()
        if saved is not None:
            os.dup2(saved, _OUT)
            os.close(saved)


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()


def _duplicate() -> int | None:
    try:
        os.fstat(_ERR)
        return os.dup(_OUT)
    except OSError:
        return None  # one of them is closed
