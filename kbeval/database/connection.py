"""A connection to a database that a separate process has open."""

from __future__ import annotations

import contextlib
import itertools
import os
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbeval.database.process import SPARE, FileFaultError, Process, ProcessEndedError
from kbeval.errors import DatabaseError

if TYPE_CHECKING:
    from kbeval.database.streams import Explain, Relation

BUSY_TIMEOUT_MS = 10_000
# How many rows to be written are sent at a time.
_SENT_ROWS = 200


@dataclass(frozen=True)
class Rows:
    """The result of a statement: its rows, or how many it changed."""

    names: Sequence[str]
    rows: list[tuple[Any, ...]]
    rowcount: int

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def first(self) -> tuple[Any, ...] | None:
        """The first row, if there is one."""
        return self.rows[0] if self.rows else None


class Database:
    """A connection. Use as a context manager: on exit, uncommitted changes are rolled back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process: Process | None = SPARE.take()
        self._encoding = "utf-8"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if error is None:
            with contextlib.suppress(ProcessEndedError):
                process.ask("close")
                SPARE.give_back(process)
                return
        process.end()

    @property
    def process(self) -> Process:
        """The process that has it open."""
        if self._process is None:
            msg = f"{self.path} is closed"
            raise DatabaseError(msg)
        return self._process

    def check(self) -> None:
        """Raise an error if the file is not a database."""
        try:
            self.process.ask("check", _encoded(self.path))
        except FileFaultError as error:
            raise DatabaseError(_fault_text(self.path, error.headline)) from None

    def look(self) -> Any:  # noqa: ANN401  (parts of a stamp)
        """The state of its files; see `kbeval.storage.stamps`."""
        return self.process.ask("look", _encoded(self.path))

    def open(self, mode: str = "ro", timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        """Open it: `ro` for a snapshot of the current state, `rw` to write, `rwc` to create it if it does not exist."""
        uri = f"file:{urllib.parse.quote(_encoded(self.path))}"
        encoding: bytes = self.process.ask("open", _encoded(self.path), uri, mode, timeout_ms)
        self._encoding = encoding.decode()

    def close(self) -> None:
        """Close it; it can be opened again."""
        if self._process is not None:
            self._process.ask("close")

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """Run one statement. Bytes that are not UTF-8 are read as lone surrogates, and written back unchanged."""
        names, rows, count = self.process.ask("execute", sql, tuple(map(_plain, parameters)))
        return Rows(_decoded(names), [tuple(map(decoded, row)) for row in rows], count)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of parameters."""
        left = iter(rows)
        while some := [tuple(map(_plain, row)) for row in itertools.islice(left, _SENT_ROWS)]:
            self.process.ask("many", sql, some)

    def start_write(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Begin to run one statement for each row of parameters, in one transaction and one request.

        The descriptor that is returned becomes readable when it is done; `finish_write` must be called before any other
        request.
        """
        return self.process.start("write", sql, [tuple(map(_plain, row)) for row in rows])

    def finish_write(self) -> None:
        """Return once the write is committed, or raise its error."""
        self.process.finish()

    def wait_at_most(self, timeout_ms: int) -> None:
        """Set how long to wait for other processes to release their locks."""
        self.process.ask("timeout", timeout_ms)

    def relation(
        self, sql: str, columns: Sequence[tuple[str, str]], batch_rows: int, explain: Explain = lambda error: error
    ) -> Relation:
        """The rows of a statement as an Arrow stream. `columns`: name and kind (`text`, `integer`) of each.

        `explain`: turns an error of SQLite into a message for the user.
        """
        from kbeval.database.streams import Relation

        return Relation(self.process, sql, columns, batch_rows, explain)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all or nothing. The lock is taken first, so nothing can change between reading and writing."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(DatabaseError):
                self.execute("ROLLBACK")
            raise

    def literal(self, text: str) -> str:
        """A text as an SQL literal that cannot be broken out of. Surrogates made by `decoded` become bytes again."""
        try:
            stored = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            stored = text.encode("utf-8", "surrogatepass")
        if self._encoding != "UTF-8":
            # A cast interprets bytes as text in the encoding of the database.
            with contextlib.suppress(UnicodeDecodeError):
                stored = stored.decode("utf-8", "surrogatepass").encode(self._encoding, "surrogatepass")
        return f"CAST(x'{stored.hex()}' AS TEXT)"

    @property
    def bytes_per_unit(self) -> int:
        """How many bytes of stored text correspond to one byte of UTF-8, at most."""
        return 1 if self._encoding == "UTF-8" else 2


def decoded(value: Any) -> Any:  # noqa: ANN401  (a cell)
    """Decode text, which arrives as bytes because it may not be valid UTF-8: invalid bytes become lone surrogates."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:  # noqa: ANN401  (a parameter)
    """Convert instances of subclasses of str, such as run ids, to plain text."""
    return str.__str__(value) if isinstance(value, str) else value


def _decoded(names: Sequence[Any]) -> list[str]:
    return [str(decoded(name)) for name in names]


def _encoded(path: Path) -> bytes:
    """The absolute path: the process may have another working directory."""
    return os.fsencode(path.absolute())


def _fault_text(path: Path, fault: str) -> str:
    return {
        "missing": f"there is no database {path}; check --db, or create an example with 'kbeval demo'",
        "special": f"{path} is not a regular file; --db expects a SQLite file",
        "empty": f"{path} is empty: it contains no evaluation runs; check --db",
        "other": f"{path} is not a SQLite database; check --db",
    }.get(fault, f"{path} cannot be read: {fault}")
