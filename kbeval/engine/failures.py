"""DuckDB's errors in our words: what ran out or cannot be read, and what to do."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import duckdb

from kbeval.errors import WANT_OF_MEMORY, KbevalError, NotEnoughMemoryError

# How DuckDB names a file that it cannot write.
_NAMED_FILE = re.compile(r'[Ww]rite file \\*"(.+?)\\*"')


def in_our_words(error: BaseException, spill: Path | None) -> Exception | None:
    """The error to raise instead; None if DuckDB's own one is passed on. `spill`: where the session spills data."""
    if isinstance(error, duckdb.OutOfMemoryException):
        return NotEnoughMemoryError(_want(error, spill))
    if isinstance(error, MemoryError):
        return NotEnoughMemoryError(WANT_OF_MEMORY)
    if isinstance(error, duckdb.IOException) and is_full(error):
        return NotEnoughMemoryError(_want(error, spill))
    if isinstance(error, duckdb.FatalException):
        # Running out of memory at the wrong moment is fatal to DuckDB, and the error does not say so.
        return KbevalError(f"DuckDB aborted: {first_line(error)}; try a higher --memory-limit")
    if isinstance(error, UnicodeDecodeError):
        # DuckDB quotes data in its messages, and may cut it in the middle of a character.
        return duckdb.InvalidInputException("Invalid Input Error: a value has an unexpected form")
    return None


def _want(error: duckdb.Error, spill: Path | None) -> str:
    """What has run out, and what to do."""
    if not is_full(error):
        return f"not enough memory: {first_line(error)}; try a higher --memory-limit"
    named = _NAMED_FILE.search(str(error))
    if named is not None and (spill is None or not named[1].startswith(str(spill))):
        return f"no space left for {named[1]}: free some, or write to another disk"
    why = f"no space left for data that does not fit into memory, in {tempfile.gettempdir()}"
    return f"{why}: free some, choose another folder with TMPDIR, or try a higher --memory-limit"


def is_full(error: BaseException) -> bool:
    """Is the disk full, or the quota exhausted?"""
    return re.search(r"No space left|Disk quota|max_temp_directory_size|File too large", str(error)) is not None


def first_line(error: BaseException) -> str:
    """A DuckDB error without its hints and carets."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
