"""How much memory there is to work with, and what follows from it."""

from __future__ import annotations

import re

from kbeval.errors import UsageError

# Small enough for a laptop and a CI machine; what does not fit is spilled to disk, compressed.
DEFAULT_MEMORY_LIMIT = "400MB"
# With less the engine cannot even begin.
LEAST_MEGABYTES = 16
# Each thread of the engine keeps rows of its own that cannot be spilled. Measured on 580 MB of rows, matched by spans:
# with 25 MB per thread the engine gives up at limits of 100 and 200 MB, with 50 MB it does not at any limit.
MEGABYTES_PER_THREAD = 50
# Parsing a row takes up to some thirty times its size: the largest one that is read is this part of the limit.
_ROW_SHARE = 40

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(MB|MiB|GB|GiB|TB|TiB)", re.IGNORECASE)
_MEGABYTES = {"m": 1, "g": 1_000, "t": 1_000_000}


def megabytes(memory_limit: str) -> float:
    """A size such as 400MB as a number; refused where it is not one, or is too small."""
    size = _SIZE.fullmatch(memory_limit)
    if size is None:
        msg = f"memory limit {memory_limit!r} is not a size; write it like 400MB or 2GB"
        raise UsageError(msg)
    found = float(size[1]) * _MEGABYTES[size[2][0].lower()]
    if found < LEAST_MEGABYTES:
        msg = f"memory limit {memory_limit!r} is too small to work with; give {LEAST_MEGABYTES}MB or more"
        raise UsageError(msg)
    return found


def largest_row(memory_limit: str) -> int:
    """How many bytes of JSON one stored row may have to be parsed within a memory limit."""
    return int(megabytes(memory_limit) * 1_000_000) // _ROW_SHARE


def most_threads(memory_limit: str | None) -> int:
    """How many threads of the engine a memory limit is enough for."""
    return max(1, int(megabytes(memory_limit or DEFAULT_MEMORY_LIMIT) // MEGABYTES_PER_THREAD))
