"""The memory limit, and what follows from it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from kbeval.errors import UsageError

# Small enough for a laptop and a CI machine; what does not fit is spilled to disk, compressed.
DEFAULT_MEMORY_LIMIT = "400MB"
# With less, DuckDB cannot even start.
LEAST_MEGABYTES = 16
# Each DuckDB thread holds rows that cannot be spilled. Measured on 580 MB of rows, matched by spans: with 25 MB per
# thread DuckDB runs out of memory at limits of 100 and 200 MB, with 50 MB at no limit.
MEGABYTES_PER_THREAD = 50
# Reading and checking a row takes up to about fifty times its size: the largest row that is read is this part of the
# memory limit.
_ROW_SHARE = 60
# DuckDB's limit does not include the values that functions create, its parser, or the stacks of its threads. This much
# is added for all of that, for Python and for printing.
_SPARE_MEGABYTES = 128
_STACKS_SHARE = 0.25

_SIZE = re.compile(r"(\d{1,30}(?:\.\d{1,9})?)\s*(B|KB|KiB|MB|MiB|GB|GiB|TB|TiB)", re.IGNORECASE)
_MEGABYTES = {"b": 1e-6, "k": 1e-3, "m": 1, "g": 1_000, "t": 1_000_000}
# More than any machine has; DuckDB counts bytes in 64 bits.
_MOST_MEGABYTES = 1e12


def megabytes(memory_limit: str) -> float:
    """A size such as 400MB as a number; an error if it is not a size, or is too small or too large."""
    size = _SIZE.fullmatch(memory_limit)
    if size is None:
        msg = f"memory limit {memory_limit!r} is not a size; use a value such as 400MB or 2GB"
        raise UsageError(msg)
    found = float(size[1]) * _MEGABYTES[size[2][0].lower()]
    if found < LEAST_MEGABYTES:
        msg = f"memory limit {memory_limit!r} is too small; use at least {LEAST_MEGABYTES}MB"
        raise UsageError(msg)
    if found > _MOST_MEGABYTES:
        msg = f"memory limit {memory_limit!r} is too large; use a value such as 400MB or 2GB"
        raise UsageError(msg)
    return found


def largest_row(memory_limit: str) -> int:
    """How many bytes of JSON a stored row may have so that it can be parsed within a memory limit."""
    return int(megabytes(memory_limit) * 1_000_000) // _ROW_SHARE


def most_threads(memory_limit: str | None) -> int:
    """The maximum number of DuckDB threads for a memory limit."""
    return max(1, int(megabytes(memory_limit or DEFAULT_MEMORY_LIMIT) // MEGABYTES_PER_THREAD))


@contextlib.contextmanager
def limiting(memory_limit: str | None) -> Iterator[None]:
    """Limit the memory of the whole process to a memory limit on top of what it uses already.

    For queries from outside: one call such as repeat('x', 2000000000) allocates memory that DuckDB's own limit does not
    cover. When the limit is reached, an allocation fails and DuckDB or Python reports it. Only Linux counts what a
    process maps; elsewhere DuckDB's own limit is the only one.
    """
    taken = _taken_bytes()
    if taken is None:
        yield
        return
    import resource

    more = megabytes(memory_limit or DEFAULT_MEMORY_LIMIT) * (1 + _STACKS_SHARE) + _SPARE_MEGABYTES
    before = resource.getrlimit(resource.RLIMIT_DATA)
    possible = [limit for limit in before if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([taken + int(more * 1_000_000), *possible]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _taken_bytes() -> int | None:
    """The memory that the process has mapped, as counted by the limit; None if the system does not report it."""
    with contextlib.suppress(OSError):
        found = re.search(r"^VmData:\s*(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
        return int(found[1]) * 1024 if found else None
    return None
