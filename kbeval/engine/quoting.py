"""Quotes texts, names and file names for DuckDB's SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_WILD = re.compile(r"[\[*?]")


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """The name of a table or column, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def verbatim(path: Path) -> str:
    """A path escaped so that DuckDB does not treat it as a pattern: folders may be called `runs[1]` or `what?`."""
    return _WILD.sub(r"[\g<0>]", str(path))


def parquet_scan(paths: Iterable[Path]) -> str:
    """Parquet files as a table. A folder called `rank=7` in their path must not become a column."""
    return f"read_parquet([{', '.join(literal(verbatim(path)) for path in paths)}], hive_partitioning = false)"
