"""Statements that DuckDB has parsed before.

Sessions of one process run the same hundred statements again and again, and parsing them is a seventh of a small
scoring. A statement is kept when it is seen for the second time: a command that runs every statement once keeps none.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import duckdb

# A kept statement takes some ten times the memory of its text.
_MOST_STATEMENTS = 500
_LONGEST_TEXT = 50_000

# By text; None: seen once. The least recently used one is first.
_KEPT: OrderedDict[str, duckdb.Statement | None] = OrderedDict()
_LOCK = threading.Lock()


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> str | duckdb.Statement:
    """What to pass to DuckDB for a statement: its text, or the statement if it is kept."""
    if len(sql) > _LONGEST_TEXT:
        return sql
    with _LOCK:
        is_known = sql in _KEPT
        kept = _KEPT.setdefault(sql, None)
        _KEPT.move_to_end(sql)
        if len(_KEPT) > _MOST_STATEMENTS:
            _KEPT.popitem(last=False)
    if kept is not None or not is_known:
        return kept or sql
    try:
        (statement,) = connection.extract_statements(sql)
    except (duckdb.Error, ValueError):
        # Several statements, or none: running the text reports it.
        return sql
    with _LOCK:
        _KEPT[sql] = statement
    return statement
