"""Errors as answers to the other end."""

from __future__ import annotations

import sqlite3

from .files import FileFault

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing these takes a third of the time to start
    from typing import Any


def described(error: BaseException) -> tuple[Any, ...]:
    """An error as an answer: its kind, its name in SQLite, and its text."""
    if isinstance(error, FileFault):
        return ("fault", "", str(error))
    if isinstance(error, sqlite3.Error):
        return ("sqlite", getattr(error, "sqlite_errorname", "") or "", str(error))
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return ("sqlite" if isinstance(error, OverflowError | UnicodeError | ValueError) else "failure", "", text)
