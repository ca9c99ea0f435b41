"""A read snapshot of a database: everything in one result is read from the same snapshot.

Opening a database that a caller further up the stack is already reading gives the same snapshot, through the same
process; see `sharing`.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbeval.database.connection import BUSY_TIMEOUT_MS, Database
from kbeval.database.holders import lock_holders
from kbeval.database.process import ProcessEndedError, SqliteError
from kbeval.errors import DatabaseError
from kbeval.storage.database_file import check_is_database, real_path
from kbeval.storage.stamps import Stamp, Times, Watch, times

if TYPE_CHECKING:
    from kbeval.database.streams import Relation


class Snapshot:
    """Reads a database as it was when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        check_is_database(path)
        self._database: Database | None = None
        # The stamp taken before the database was opened and unchanged after: it identifies what is read.
        self.stamp: Stamp | None = None
        self._seen: Stamp | Times | None = None

    def open(self, timeout_ms: int = BUSY_TIMEOUT_MS, probe: int | None = None) -> None:
        """Open it. `probe`: see `Watch.stable_stamp`; without one there is no stamp."""
        self._database = database = Database(self.path)
        with self._explained():
            database.check()
            watch = Watch(database)
            stable = None if probe is None else watch.stable_stamp(probe)
            self._seen = stable or self._look()
            database.open("ro", timeout_ms)
            self.stamp = stable if stable is not None and watch.look() == stable else None

    def reopen(self, timeout_ms: int = BUSY_TIMEOUT_MS) -> bool:
        """Open it again after `close`. Is it unchanged since it was first opened?"""
        with self._explained():
            self._connection.check()
            self._connection.open("ro", timeout_ms)
            # Only now that the snapshot exists: it includes everything that was written before.
            return self._seen is not None and self._look() == self._seen

    def _look(self) -> Stamp | Times | None:
        """A value that changes when the database does."""
        found = Watch(self._connection).look()
        with contextlib.suppress(OSError):
            return found or times(self.path)
        return None

    def close(self) -> None:
        """Let other processes write, until `reopen`."""
        self._connection.close()

    def end(self, error: BaseException | None = None) -> None:
        """Close it for good."""
        database, self._database = self._database, None
        if database is not None:
            database.__exit__(None if error is None else type(error), error, None)

    @property
    def _connection(self) -> Database:
        if self._database is None:
            msg = f"{self.path} is closed"
            raise DatabaseError(msg)
        return self._database

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """A small result as dictionaries."""
        with self._explained():
            found = self._connection.execute(sql)
        return [dict(zip(found.names, row, strict=True)) for row in found]

    def relation(self, sql: str, columns: Sequence[tuple[str, str]], batch_rows: int) -> Relation:
        """Rows to be read in bulk."""
        return self._connection.relation(sql, columns, batch_rows, self._explain)

    def literal(self, text: str) -> str:
        """A text as an SQL literal."""
        return self._connection.literal(text)

    @property
    def bytes_per_unit(self) -> int:
        """How many bytes of stored text correspond to one byte of UTF-8, at most."""
        return self._connection.bytes_per_unit

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (SqliteError, ProcessEndedError) as error:
            raise self._explain(error) from error

    def _explain(self, error: DatabaseError) -> DatabaseError:
        """An error of SQLite as one line that says what to do."""
        path, text = self.path, error.headline
        if isinstance(error, ProcessEndedError):
            return DatabaseError(f"{path} cannot be read: {text}")
        if not isinstance(error, SqliteError):
            return error
        if error.is_locked:
            return DatabaseError(f"{path} is locked by {lock_holders(path)}; wait for it to finish and try again")
        if error.is_denied:
            why = "it is in WAL mode, or a write was not finished"
            return DatabaseError(f"{path} cannot be read without writing next to it ({why}); make its folder writable")
        advice = "; is the file damaged? restore it from a backup" if error.name else ""
        return DatabaseError(f"{path} cannot be read: {text}{advice}")


_SHARED: contextvars.ContextVar[Mapping[Path, Snapshot] | None] = contextvars.ContextVar(
    "kbeval_snapshots", default=None
)


def shared_snapshot(path: Path) -> Snapshot | None:
    """The snapshot of this database that a caller is already reading."""
    return (_SHARED.get() or {}).get(real_path(path))


@contextlib.contextmanager
def sharing(snapshot: Snapshot) -> Iterator[None]:
    """In this context, opening the same database again reads the same snapshot."""
    token = _SHARED.set({**(_SHARED.get() or {}), real_path(snapshot.path): snapshot})
    try:
        yield
    finally:
        _SHARED.reset(token)
