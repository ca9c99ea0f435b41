"""The pool: everything that runs returned for each query, each text once, whatever the chunker.

The SQL is in `sql/pool`. This module only decides which of several items represents a text. A chain of windows that
each overlap the next is not one text, so items join the one that most runs returned, not each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbeval.storage.labels import SKIP, SUPPORTS

if TYPE_CHECKING:
    from kbeval.engine.session import Session
    from kbeval.storage.labels import Decision
    from kbeval.storage.runs import Run

DEFAULT_DEPTH = 10
# The pairs of this many items are read at once.
_AT_ONCE = 100_000
_MORE = ("query_id", "chunk_id", "chunker_version", "doc_id", "path", "spans_text", "text_hash")


@dataclass(frozen=True)
class MoreItem:
    """A text that need not come from a run: it was labelled earlier, or a live system returned it now."""

    query_id: str
    chunk_id: str | None
    chunker_version: str | None
    doc_id: str | None
    path: str | None
    spans_text: str | None
    # None: no decision was made on it.
    text_hash: str | None


@dataclass(frozen=True)
class Item:
    """A text that a run returned for a query, or that was decided on: a possible candidate."""

    item_no: int
    query_id: str
    chunk_id: str | None
    chunker_version: str | None
    doc_id: str | None
    path: str | None
    spans_text: str | None
    n_runs: int
    best_rank: int | None
    run_id: str | None
    text_hash: str | None
    leader_no: int
    is_labelled: bool


@dataclass(frozen=True)
class QueryPool:
    """What determines the place of one query in the order of work."""

    query_id: str
    candidates: int
    # Among candidates with neither label nor decision: how many runs returned the most common one.
    most_runs: int
    open: int
    # How much the runs differ: 0 if all return the same.
    disagreement: float


def decided_items(decisions: Iterable[Decision]) -> list[MoreItem]:
    """The texts that were decided on, so that they are found again even if their chunk ids changed."""
    return [
        MoreItem(
            one.query_id,
            one.about.chunk_id,
            one.about.chunker_version,
            one.about.doc_id,
            one.about.path,
            # The position of a passage is not that of the text that was read.
            one.about.spans_json if one.about.passage is None else None,
            one.item,
        )
        for one in decisions
        if one.field == SUPPORTS and one.value != SKIP
    ]


def build_pool(
    session: Session, runs: Sequence[Run], more: Iterable[MoreItem] = (), depth: int = DEFAULT_DEPTH
) -> None:
    """Build the relations of the pool in a session that holds these runs and the golden entries."""
    rows = [tuple(getattr(item, name) for name in _MORE) for item in more]

    def load_runs(session: Session) -> None:
        """Give each run its own bit, so that sets of runs are joined quickly and counted exactly."""
        session.execute(
            "CREATE TABLE pool_runs AS SELECT run_id, run_no, set_bit(bitstring('0', $3), run_no, 1) AS run_bit"
            " FROM (SELECT UNNEST($1::VARCHAR[]) AS run_id, UNNEST($2::INTEGER[]) AS run_no)",
            [[run.run_id for run in runs], list(range(len(runs))), max(1, len(runs))],
        )

    def load_more(session: Session) -> None:
        columns = ", ".join(f"UNNEST(${place}::VARCHAR[]) AS {name}" for place, name in enumerate(_MORE, start=1))
        values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in _MORE]
        session.execute(f"CREATE TABLE pool_more AS SELECT {columns}", values)

    session.add_loaders(
        {
            "pool_runs": load_runs,
            "pool_settings": lambda session: _execute(
                session, "CREATE TABLE pool_settings AS SELECT $1 AS depth", depth
            ),
            "pool_more": load_more,
            "pool_hits": _load_hits,
            "pool_groups": _load_groups,
        }
    )
    session.need("pool_candidates", "pool_queries")


def _execute(session: Session, sql: str, value: int) -> None:
    session.execute(sql, [value])


def _load_hits(session: Session) -> None:
    """Rows are read again for the positions of hits only if no table has them."""
    session.need("unplaced_pool")
    source = "placed_pool_hits" if session.rows("SELECT * FROM unplaced_pool") else "known_pool_hits"
    session.need(source)
    session.execute(f"CREATE VIEW pool_hits AS SELECT * FROM {source}")


def _load_groups(session: Session) -> None:
    """Determine which item represents which, in the order of item numbers, most common first."""
    session.need("pool_items", "pool_pairs")
    leaders = leaders_of(_pairs(session))
    session.execute(
        "CREATE TABLE pool_led AS SELECT UNNEST($1::BIGINT[]) AS item_no, UNNEST($2::BIGINT[]) AS leader_no",
        [list(leaders), list(leaders.values())],
    )
    session.execute(
        "CREATE TABLE pool_groups AS SELECT i.item_no, COALESCE(l.leader_no, i.item_no) AS leader_no"
        " FROM pool_items AS i LEFT JOIN pool_led AS l ON l.item_no = i.item_no"
    )


def _pairs(session: Session) -> Iterator[tuple[int, int]]:
    """All pairs in order, for as many items at once as there is space for."""
    ((items,),) = session.rows("SELECT COALESCE(MAX(item_no), 0) FROM pool_items")
    for first in range(0, items + 1, _AT_ONCE):
        yield from session.frame(
            "SELECT item_no, other_no FROM pool_pairs WHERE item_no >= $1 AND item_no < $2 ORDER BY item_no, other_no",
            [first, first + _AT_ONCE],
        ).iter_rows()


def leaders_of(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The leader of each item that joins another. `pairs` are sorted, with the smaller number first."""
    led: dict[int, int] = {}
    for first, second in pairs:
        if first not in led:
            led.setdefault(second, first)
    return led


class Pool:
    """The pool of all queries, independent of the session that built it."""

    def __init__(self, session: Session) -> None:
        self.queries = {
            row[0]: QueryPool(*row)
            for row in session.rows(
                "SELECT query_id, candidates, most_runs, open, disagreement FROM pool_queries ORDER BY query_id"
            )
        }
        self._items = session.frame(
            "SELECT i.item_no, i.query_id, i.chunk_id, i.chunker_version, i.doc_id, i.path, i.spans_text, c.n_runs,"
            " i.best_rank, i.run_id, i.text_hash, g.leader_no, l.item_no IS NOT NULL AS is_labelled"
            " FROM pool_items AS i JOIN pool_groups AS g ON g.item_no = i.item_no"
            " JOIN pool_candidates AS c ON c.leader_no = g.leader_no"
            " LEFT JOIN pool_labelled AS l ON l.item_no = i.item_no ORDER BY i.item_no"
        )

    def items(self, query_id: str) -> list[Item]:
        """All items of a query, each with its representative."""
        import polars as pl

        return [Item(*row) for row in self._items.filter(pl.col("query_id") == query_id).rows()]

    def every_item(self) -> Iterator[Item]:
        """All items of all queries."""
        return (Item(*row) for row in self._items.iter_rows())
