"""The process that opens a database: it alone in kbeval reads, writes and inspects the files.

It is started as `python -I -S` and imports only the standard library. Requests arrive on a socket and are answered in
order, both marshalled (both ends are the same interpreter). Rows to be read in bulk are written as columns in Arrow's
layout into shared memory, slightly ahead of the requests, so that one process reads while the other parses. The
process ends when the other end of the socket closes, whatever it is doing; uncommitted changes are rolled back.
"""

from __future__ import annotations

import gc
import itertools
import marshal
import os
import select
import signal
import sqlite3
import stat
import sys
import time
from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing these takes a third of the time to start
    from collections.abc import Callable, Sequence
    from typing import Any

HEADER = b"SQLite format 3\x00"
INTEGER = "integer"
MISSING, SPECIAL, OTHER, EMPTY = "missing", "special", "other", "empty"

# The largest batch, if rows turn out larger than expected, and how far to read ahead.
BATCH_BYTES = 4_000_000
AHEAD_BATCHES = 2
AHEAD_BYTES = 8_000_000
# SQLite instructions between two checks that the other end still waits for the answer: about a millisecond.
_PATIENCE = 50_000
_PAUSES_MS = (1, 2, 5, 10, 15, 20, 25, 25, 25, 50)
# Below this size, joining the values of a column is cheaper than writing each of them separately.
_WORTH_A_PIECE = 2_000
_ALIGNED = 64
_MOST_PIECES = 1_000
# Unused shared memory beyond this is released.
_KEPT_BYTES = 16_000_000

_DATABASE_HEADER = 100
# A log is normally moved into the database long before this size. It is read whole; a longer one has no stamp.
_LONGEST_LOG = 64_000_000
# The index of the log begins with two copies of its header, which contains the last visible frame, the number of pages,
# a checksum of all frames, and the random salt of the log.
_INDEX_HEADER = 48
_LAST_FRAME = slice(16, 20)
_INDEX_STATE = slice(16, 40)
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


class FileFault(Exception):  # noqa: N818  (a finding about the file, for the other end)
    """Not a database that can be opened: `empty`, `other`, `special`, `missing`, or the error of the system."""


class InFlux(Exception):  # noqa: N818  (also a finding)
    """The database is being written right now, or its log is too long."""


# --- looking at the files -----------------------------------------------------------------------------


class Looker:
    """Reads the database file and the files next to it directly.

    Closing one of them would drop the locks that SQLite holds for this process, so all of them stay open as long as
    a connection is.
    """

    def __init__(self) -> None:
        self._open: dict[bytes, int] = {}
        self._retired: list[int] = []

    def close(self) -> None:
        """Close all files; allowed only while no connection is open."""
        for handle in (*self._open.values(), *self._retired):
            os.close(handle)
        self._open.clear()
        self._retired.clear()

    def check(self, path: bytes) -> None:
        """Raise an error that says why a file is not a SQLite database, before SQLite turns it into one."""
        try:
            head = self._beginning(path, len(HEADER))
        except FileNotFoundError:
            raise FileFault(MISSING) from None
        except (OSError, ValueError) as error:
            raise FileFault(getattr(error, "strerror", None) or str(error)) from error
        if head != HEADER:
            raise FileFault(OTHER if head else EMPTY)

    def look(self, path: bytes) -> tuple[tuple[int, ...], tuple[bytes, bytes, bytes]] | None:
        """The parts of a stamp, see `kbeval.storage.stamps`; None if a write is in progress or was not finished."""
        try:
            real = os.path.realpath(path)
            seen = times(real)
            header = self._beginning(real, _DATABASE_HEADER)
            log = self._log(real + b"-wal")
            # An empty log counts as no log.
            index = self._index(real + b"-shm") if log else b""
            # The contents match the times only if these have not changed and the path still leads to the same file.
            if has_content(real + b"-journal") or times(path) != seen:
                return None
        except (OSError, FileFault, InFlux):
            return None
        return seen, (header, log, index)

    def _beginning(self, path: bytes, length: int) -> bytes:
        handle = self._file(path)
        pieces = []
        place = 0
        while place < length and (piece := os.pread(handle, min(length - place, 1 << 20), place)):
            pieces.append(piece)
            place += len(piece)
        return b"".join(pieces)

    def _file(self, path: bytes) -> int:
        """A handle of the file that is currently at the path; only regular files, as others could block."""
        now = os.stat(path)
        if not stat.S_ISREG(now.st_mode):
            raise FileFault(SPECIAL)
        handle = self._open.get(path)
        if handle is not None:
            seen = os.fstat(handle)
            if (seen.st_dev, seen.st_ino) == (now.st_dev, now.st_ino):
                return handle
            self._retired.append(handle)
        self._open[path] = handle = open_file(path)
        return handle

    def _log(self, path: bytes) -> bytes:
        """A digest of the log. Its times are useless: opening the log may change them, without any write."""
        try:
            found = self._beginning(path, _LONGEST_LOG + 1)
        except FileNotFoundError:
            return b""
        if len(found) > _LONGEST_LOG:
            raise InFlux
        if not found:
            return b""
        import hashlib

        return hashlib.sha256(found).digest()

    def _index(self, path: bytes) -> bytes:
        """Which commits of the log are visible; empty if none are, or no connection has read the log yet."""
        try:
            found = self._beginning(path, 2 * _INDEX_HEADER)
        except FileNotFoundError:
            return b""
        if found[:_INDEX_HEADER] != found[_INDEX_HEADER:]:
            raise InFlux
        return found[_INDEX_STATE] if any(found[_LAST_FRAME]) else b""


def open_file(path: bytes) -> int:
    """Open a file for reading without ever blocking."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def times(path: bytes) -> tuple[int, int, int, int]:
    """Inode, length, mtime, ctime."""
    seen = os.stat(path)
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def has_content(journal: bytes) -> bool:
    """Does a journal have contents? Then a writer is active, or was killed."""
    try:
        handle = open_file(journal)
    except FileNotFoundError:
        return False
    try:
        return os.read(handle, len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
    finally:
        # SQLite takes no locks on a journal.
        os.close(handle)


# --- rows in bulk -------------------------------------------------------------------------------------


class Arena:
    """Memory shared with the other end, allocated in slots that are reused once they were read."""

    def __init__(self, handle: int | None) -> None:
        self._handle = handle
        # Offset, size and use (0 or 1) of each slot, in order.
        self._slots: list[list[int]] = []

    def place(self, pieces: list[bytes | array[int]], size: int) -> tuple[int, int] | bytes:
        """Write to shared memory and return the place; or the bytes themselves if no memory can be shared."""
        try:
            if self._handle is not None:
                return self._write(self._handle, pieces, size)
        except OSError:
            # File size limit reached or no memory left: existing slots stay, later batches are sent.
            self._handle = None
        return b"".join(pieces)

    def _write(self, handle: int, pieces: list[bytes | array[int]], size: int) -> tuple[int, int]:
        slot = self._slot(handle, size)
        offset = slot[0]
        views = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        while views:
            written = os.pwritev(handle, views[:_MOST_PIECES], offset)
            offset += written
            done = 0
            while done < len(views) and written >= len(views[done]):
                written -= len(views[done])
                done += 1
            del views[:done]
            if written:
                views[0] = views[0][written:]
        return slot[0], slot[1]

    def _slot(self, handle: int, size: int) -> list[int]:
        for slot in self._slots:
            if not slot[2] and slot[1] >= size:
                slot[2] = 1
                return slot
        end = self._slots[-1][0] + self._slots[-1][1] if self._slots else 0
        # Some spare space, so that later batches of a similar size fit. Maps begin at multiples of 64 KiB.
        granted = -(-size * 5 // 4 // 65_536) * 65_536 or 65_536
        slot = [end, granted, 1]
        os.truncate(handle, end + granted)
        self._slots.append(slot)
        return slot

    def free(self, offsets: Sequence[int]) -> None:
        """Release slots that were read."""
        freed = set(offsets)
        for slot in self._slots:
            if slot[0] in freed:
                slot[2] = 0
        end = 0
        while self._slots and not self._slots[-1][2] and self._slots[-1][0] + self._slots[-1][1] > _KEPT_BYTES:
            end = self._slots.pop()[0]
        if end and self._handle is not None:
            os.truncate(self._handle, end)


class Stream:
    """The rows of one statement, as columns."""

    def __init__(self, cursor: sqlite3.Cursor, kinds: Sequence[str], rows: int, arena: Arena) -> None:
        self._cursor = cursor
        self._kinds = kinds
        self._most_rows = self._rows = rows
        self._arena = arena
        self._ahead: list[tuple[Any, ...]] = []
        self._ahead_bytes = 0
        self._is_done = False

    def next(self) -> tuple[Any, ...]:
        """`("batch", rows, where, buffers)`, `("end",)` or an error."""
        if not self._ahead:
            self.read_ahead()
        found = self._ahead.pop(0) if self._ahead else ("end",)
        if found[0] == "batch":
            self._ahead_bytes -= found[-1]
            return found[:-1]
        return found

    def wants_more(self) -> bool:
        """Should one more batch be read ahead?"""
        return not self._is_done and len(self._ahead) < AHEAD_BATCHES and self._ahead_bytes < AHEAD_BYTES

    def read_ahead(self) -> None:
        """Read one more batch in advance."""
        if self._is_done:
            return
        try:
            found = self._cursor.fetchmany(self._rows)
            if len(found) < self._rows:
                self._is_done = True
            if found:
                self._ahead.append(self._batch(found))
        except Exception as error:  # noqa: BLE001  (reported to the other end)
            self._is_done = True
            self._ahead.append(described(error))

    def _batch(self, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        pieces: list[bytes | array[int]] = []
        buffers: list[tuple[int, int]] = []
        place = 0

        def add(values: Sequence[bytes | array[int]], size: int) -> int:
            nonlocal place
            start = place
            pieces.extend(values)
            padding = -size % _ALIGNED
            pieces.append(bytes(padding))
            place += size + padding
            return start

        for kind, column in zip(self._kinds, zip(*rows, strict=True), strict=True):
            if kind == INTEGER:
                numbers = array("q", column)
                buffers.append((add([numbers], 8 * len(numbers)), -1))
                continue
            offsets = array("q", itertools.accumulate(map(len, column), initial=0))
            start = add([offsets], 8 * len(offsets))
            size = offsets[-1]
            values = column if size > _WORTH_A_PIECE * len(column) else [b"".join(column)]
            buffers.append((start, add(values, size)))
        # Keep the next batch below the size limit.
        fitting = max(1, len(rows) * BATCH_BYTES // max(1, place))
        self._rows = min(self._most_rows, fitting)
        self._ahead_bytes += place
        return ("batch", len(rows), self._arena.place(pieces, place), buffers, place)


# --- the database -------------------------------------------------------------------------------------


def described(error: BaseException) -> tuple[Any, ...]:
    """An error as an answer: its kind, its name in SQLite, and its text."""
    if isinstance(error, FileFault):
        return ("fault", "", str(error))
    if isinstance(error, sqlite3.Error):
        return ("sqlite", getattr(error, "sqlite_errorname", "") or "", str(error))
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return ("sqlite" if isinstance(error, OverflowError | UnicodeError | ValueError) else "failure", "", text)


class Server:
    """Answers requests about one database at a time."""

    def __init__(self, channel: int, arena: int | None, parent: int) -> None:
        self._channel = channel
        self._parent = parent
        self._arena = Arena(arena)
        self._looker = Looker()
        self._connection: sqlite3.Connection | None = None
        self._timeout = 0.0
        self._streams: dict[int, Stream] = {}
        self._latest: Stream | None = None
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    def serve(self) -> None:
        """Answer requests until the other end closes."""
        self._send(("hello", sys.hexversion))
        while True:
            stream = self._latest
            if stream is not None and stream.wants_more() and not self._poll.poll(0):
                stream.read_ahead()
                continue
            # If the other process was forked, its end may stay open elsewhere: also check the parent process.
            while not self._poll.poll(2_000):
                if self._is_alone():
                    return
            if (request := self._receive()) is None:
                return
            freed, dropped, name, *arguments = request
            self._arena.free(freed)
            for number in dropped:
                self._drop(number)
            try:
                answer = getattr(self, f"on_{name}")(*arguments)
            except Exception as error:  # noqa: BLE001  (reported to the other end)
                answer = described(error)
            self._send(answer)

    def close(self) -> None:
        """Roll back uncommitted changes and release everything."""
        self._streams.clear()
        self._latest = None
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
        self._looker.close()

    # Requests. An answer begins with its type: ok, batch, end, or a kind of error.

    def on_look(self, path: bytes) -> tuple[Any, ...]:
        return ("ok", self._looker.look(path))

    def on_check(self, path: bytes) -> tuple[Any, ...]:
        self._looker.check(path)
        return ("ok", None)

    def on_open(self, path: bytes, uri: str, mode: str, timeout_ms: int) -> tuple[Any, ...]:
        """Open the database. For reading, the snapshot exists once this returns."""
        self._timeout = timeout_ms / 1000
        try:
            if mode == "ro":
                self._finish_interrupted_write(path, uri)
            self._connection = connection = sqlite3.connect(
                f"{uri}?mode={mode}", uri=True, timeout=0, isolation_level=None
            )
            # Text that is not UTF-8 is passed on unchanged.
            connection.text_factory = bytes
            connection.set_progress_handler(self._is_alone, _PATIENCE)
            # The text encoding is known only once the database has been read.
            ((encoding,),) = self._patiently(lambda: connection.execute("PRAGMA encoding").fetchall())
            if mode == "ro":
                # One transaction for all reads, so that all tables are read from the same snapshot.
                connection.execute("BEGIN")
                self._patiently(lambda: connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchall())
        except BaseException:
            self.close()
            raise
        return ("ok", encoding)

    def _finish_interrupted_write(self, path: bytes, uri: str) -> None:
        """Roll back the journal of a writer that was killed. That needs write access, which a reader does not have."""
        try:
            if os.stat(os.path.realpath(path) + b"-journal").st_size == 0:
                return
            connection = sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=0, isolation_level=None)
            try:
                self._patiently(lambda: connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone())
            finally:
                connection.close()
        except (OSError, sqlite3.Error):
            return  # no journal, or no permission to change it: reading will report that

    def on_close(self) -> tuple[Any, ...]:
        self.close()
        return ("ok", None)

    def on_execute(self, sql: str, parameters: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run a statement. It is retried while the database is locked: SQLite has undone the failed attempt."""
        connection = self._open()

        def execute() -> tuple[list[str], list[tuple[Any, ...]], int]:
            cursor = connection.execute(sql, parameters)
            return [column[0] for column in cursor.description or ()], cursor.fetchall(), cursor.rowcount

        return ("ok", self._patiently(execute))

    def on_many(self, sql: str, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        self._open().executemany(sql, rows)
        return ("ok", None)

    def on_write(self, sql: str, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Run a statement for each row of parameters, in a transaction of its own: all of them, or none."""
        connection = self._open()
        self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        try:
            connection.executemany(sql, rows)
            self._patiently(lambda: connection.execute("COMMIT"))
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return ("ok", None)

    def on_timeout(self, timeout_ms: int) -> tuple[Any, ...]:
        self._timeout = timeout_ms / 1000
        return ("ok", None)

    def on_stream(self, number: int, sql: str, kinds: tuple[str, ...], rows: int) -> tuple[Any, ...]:
        stream = Stream(self._open().execute(sql), kinds, rows, self._arena)
        self._streams[number] = self._latest = stream
        return ("ok", None)

    def on_next(self, number: int) -> tuple[Any, ...]:
        self._latest = stream = self._streams[number]
        found = stream.next()
        if found[0] != "batch":
            self._drop(number)
        return found

    def _drop(self, number: int) -> None:
        if self._streams.pop(number, None) is self._latest:
            self._latest = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            msg = "the database is closed"
            raise sqlite3.ProgrammingError(msg)
        return self._connection

    def _patiently(self, task: Callable[[], Any]) -> Any:  # noqa: ANN401  (the task's result)
        """Retry while the database is locked, until the timeout or until the other end has closed."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            try:
                return task()
            except sqlite3.OperationalError as error:
                is_busy = (getattr(error, "sqlite_errorname", "") or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
                if not is_busy or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSES_MS[min(attempt, len(_PAUSES_MS) - 1)] / 1000)
            if self._is_alone():
                raise SystemExit
        return None

    # The other end.

    def _is_alone(self) -> bool:
        """Has the other end closed?"""
        found = self._poll.poll(0)
        gone = select.POLLHUP | select.POLLERR | select.POLLNVAL
        return bool(found and found[0][1] & gone) or os.getppid() != self._parent

    def _receive(self) -> Any:  # noqa: ANN401  (a request; None at the end)
        size = self._read(8)
        body = None if size is None else self._read(int.from_bytes(size, "little"))
        return None if body is None else marshal.loads(body)  # noqa: S302  (our own other end)

    def _read(self, size: int) -> bytes | None:
        pieces = []
        while size:
            piece = os.read(self._channel, min(size, 1 << 20))
            if not piece:
                return None
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _send(self, answer: tuple[Any, ...]) -> None:
        body = marshal.dumps(answer)
        view = memoryview(len(body).to_bytes(8, "little") + body)
        while view:
            view = view[os.write(self._channel, view) :]


def main(arena: int, parent: int) -> None:
    """Serve the other end of the socket on standard input. `arena`: shared memory, -1 if there is none."""
    # Ctrl-C is for the process that started this one, which closes its end when it stops.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Nothing here creates reference cycles.
    gc.disable()
    server = Server(0, None if arena < 0 else arena, parent)
    try:
        server.serve()
    except (OSError, SystemExit):
        pass  # the other end has closed
    finally:
        try:
            server.close()
        finally:
            os._exit(0)
