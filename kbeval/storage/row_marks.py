"""Marks (hashes) of each row of a scored run, kept in the database to tell later which rows have changed."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbeval.engine.session import Session

# The digest of a run's rows, and the mark of each of them, packed.
RowMarks = tuple[str, str]
# Above this number of rows no marks are kept: databases that large have a cache of their rows.
MOST_ROWS = 100_000


def marks_to_keep(session: Session, digests: Mapping[str, str]) -> dict[str, RowMarks]:
    """The marks of the session's rows, by run. `digests`: the digest of each run's rows."""
    ((rows,),) = session.rows("SELECT COUNT(*) FROM results")
    if rows > MOST_ROWS:
        return {}
    session.need("row_marks")
    found = session.rows("SELECT run_id, marks FROM row_marks")
    return {run_id: (digests[run_id], _packed(marks)) for run_id, marks in found}


def _packed(text: str) -> str:
    # Marks are random numbers: more effort takes three times as long and saves a twentieth.
    return base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 3)).decode()


def unpacked(text: str) -> dict[str, int] | None:
    """The mark of each query's row; None if the text does not contain marks."""
    try:
        found = json.loads(zlib.decompress(base64.b64decode(text, validate=True)).decode("utf-8", "surrogatepass"))
        return {str(query_id): int(mark) for query_id, mark in found.items()}
    except (zlib.error, ValueError, AttributeError, RecursionError):
        return None
