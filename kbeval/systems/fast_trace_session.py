"""Two threads on one session: gold and trace are read at the same time, each on one processor.

Measured on two free processors with 100,000 traces, in turn with and without: 0.70 s and 0.83 s.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

import duckdb

from kbeval.engine.session import COMPRESSED, Session

First = TypeVar("First")
Second = TypeVar("Second")


class TwoThreadedSession(Session):
    """A session that is used by two threads at first, each on one processor, until `use_all_threads`."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401  (as Session)
        self._making_macros = threading.Lock()
        super().__init__(**given)

    def _set_up(self, connection: duckdb.DuckDBPyConnection) -> None:
        super()._set_up(connection)
        connection.execute("SET threads = 1")

    def _lock(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Postponed, because the number of threads is set later."""

    def define_macros(self, sql: str) -> None:
        # The other thread must not use a macro before it is created.
        with self._making_macros:
            super().define_macros(sql)

    def use_all_threads(self) -> None:
        """From now on every statement uses all processors, and the configuration is locked."""
        self.connection.execute("SET threads = ?", [self._threads])
        super()._lock(self.connection)

    def second_connection(self) -> Self:
        """The same relations over a second connection, for work while the first is busy in another thread."""
        other = copy.copy(self)
        other.connection = self.connection.cursor()
        if self._is_compressed:
            other.connection.execute(f"USE {COMPRESSED}")
        return other


def run_both(
    session: Session, first: Callable[[Session], First], second: Callable[[Session], Second]
) -> tuple[First, Second]:
    """Run two tasks, at the same time if the session allows it, otherwise one after the other."""
    if not isinstance(session, TwoThreadedSession):
        return first(session), second(session)
    other = session.second_connection()
    with session.in_background(lambda: first(session)) as found:
        made = second(other)
    return found(), made
