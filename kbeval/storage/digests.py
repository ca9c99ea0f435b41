"""Order-independent digest of a run's stored rows: any change to any row changes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbeval.engine.session import Session

# Sums and exclusive-ors do not depend on the order of rows. The sum is needed: in the XOR, equal rows cancel out.
_PARTS = "COUNT(*), BIT_XOR(row_hash), SUM(CAST(row_hash & 18446744073709551615 AS HUGEINT))"
# SHA-256 of nothing.
NO_ROWS = "sha256:e3b0c44298fc1c149afbf4c8996fb924"


def digests(session: Session, rows: str) -> dict[str, str]:
    """The digest of each run in a relation with run_id and row_hash."""
    found = session.rows(f"SELECT CAST(run_id AS VARCHAR), {_PARTS} FROM {rows} GROUP BY ALL")
    return {run_id: _digest(parts) for run_id, *parts in found}


def digest_of(session: Session, *selects: str) -> str:
    """The digest of everything that these SELECTs return, whatever the order."""
    rows = " UNION ALL ".join(
        f"SELECT {place} AS place, md5_number(CAST(to_json(t) AS VARCHAR)) AS row_hash FROM ({select}) AS t"
        for place, select in enumerate(selects)
    )
    found = session.rows(f"SELECT place, {_PARTS} FROM ({rows}) GROUP BY ALL ORDER BY ALL")
    return _digest(part for parts in found for part in parts)


def _digest(parts: Iterable[int]) -> str:
    text = " ".join(map(str, parts))
    import hashlib

    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:32]
