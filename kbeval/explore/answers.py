"""Rows of answers to SQL queries, as Python reads them: in batches of limited size, and times without a time zone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from kbeval.engine.session import Session
from kbeval.errors import UsageError

BATCH_ROWS = 10_000
BATCH_CHARACTERS = 20_000_000
FEW_ROWS = 100
ZONED = "TIMESTAMP WITH TIME ZONE"


def without_zones(session: Session, sql: str, kinds: Sequence[str]) -> str:
    """The same rows, with times that have a time zone as text: Python has no such times without another library."""
    # As the parser writes it: without comments and without the final semicolon.
    ((plain,),) = session.rows("SELECT json_deserialize_sql(json_serialize_sql($1))", [sql])
    names = [f"c{place}" for place in range(len(kinds))]
    columns = [
        f"CAST({name} AS {kind.replace(ZONED, 'VARCHAR')})" if ZONED in kind else name
        for name, kind in zip(names, kinds, strict=True)
    ]
    return f"SELECT {', '.join(columns)} FROM ({plain}) AS answer({', '.join(names)})"


def batches(session: Session, cursor: duckdb.DuckDBPyConnection) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of an answer, in batches."""
    while batch := session.waiting(lambda: _batch(cursor)):
        yield batch


def _batch(cursor: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """As many rows as a batch may have, or fewer if they are large."""
    found: list[tuple[Any, ...]] = []
    weight, few = 0, 1
    while len(found) < BATCH_ROWS and weight < BATCH_CHARACTERS:
        try:
            rows = cursor.fetchmany(min(few, BATCH_ROWS - len(found)))
        except (OverflowError, ValueError) as error:
            # The engine's intervals and dates have a larger range than Python's.
            msg = f"the answer contains a value that cannot be shown ({error}); convert it to text: CAST(… AS VARCHAR)"
            raise UsageError(msg) from error
        if not rows:
            break
        found += rows
        # Its rows are similar: one of them represents all.
        one = len(repr(rows[-1]))
        weight += one * len(rows)
        few = max(1, min(FEW_ROWS, (BATCH_CHARACTERS - weight) // one))
    return found
