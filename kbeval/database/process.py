"""Starts, ends and communicates with the processes that open databases; see `kbeval.database.child`."""

from __future__ import annotations

import collections
import contextlib
import marshal
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

from kbeval.errors import DatabaseError

_START = "import sys; sys.path.append({folder!r}); import child; sys.path.pop(); child.main({arena}, {parent})"
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_END_SECONDS = 5.0
# glibc: memory of one batch is kept for the next. Otherwise it goes back to the system and is cleared again each time.
# Other C libraries ignore these.
_KEEPING_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "16000000", "MALLOC_TOP_PAD_": "4000000"}


class SqliteError(DatabaseError):
    """An error of SQLite; `name` is SQLite's name for it (`SQLITE_BUSY`), if it has one."""

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(text)
        self.name = name

    @property
    def is_locked(self) -> bool:
        """Did another process hold a lock for longer than the timeout?"""
        return self.name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))

    @property
    def is_denied(self) -> bool:
        """Is permission missing to open the file or to write to it?"""
        return self.name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"))


class FileFaultError(DatabaseError):
    """The file is not a database that can be opened."""


class ProcessEndedError(DatabaseError):
    """The process that had the database open has ended."""


class Process:
    """One such process and the socket to it. Requests from several threads are serialized."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._popen: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self.arena: int | None = None
        # The parts of it that are mapped, by offset and size.
        self.maps: dict[tuple[int, int], mmap.mmap] = {}
        # Shared memory that was read, and streams that are no longer needed; sent with the next request. Any thread may
        # append to them at any time, even in the middle of a request (garbage collection).
        self.freed: collections.deque[int] = collections.deque()
        self.dropped: collections.deque[int] = collections.deque()
        self._is_greeted = False
        try:
            self._start()
        except BaseException:
            self.end()
            raise
        _LIVE.add(self)

    def _start(self) -> None:
        if os.name != "posix":
            msg = "databases can be read and written only on Linux, macOS and other POSIX systems"
            raise DatabaseError(msg)
        python = interpreter()
        own, other = map(_high, socket.socketpair())
        self._channel = own
        self.arena = _shared_memory()
        arena = -1 if self.arena is None else self.arena
        code = _START.format(folder=str(Path(__file__).parent), arena=arena, parent=os.getpid())
        # Ctrl-C reaches all processes of the terminal. This one ignores it from the start: it ends when we do.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._popen = subprocess.Popen(  # noqa: S603  (our own interpreter)
                [python, "-I", "-S", "-c", code],
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[] if self.arena is None else [self.arena],
                cwd="/",
                env=_KEEPING_MEMORY | os.environ,
            )
        except OSError as error:
            msg = f"{python} cannot be started to read the database: {error.strerror}"
            raise DatabaseError(msg) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            other.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return -1 if self._popen is None else self._popen.pid

    @property
    def is_alive(self) -> bool:
        """Is it still running?"""
        return self._popen is not None and self._popen.poll() is None

    def ask(self, *request: Any) -> Any:  # noqa: ANN401  (requests and answers are of many kinds)
        """Send a request and wait for the answer. An error in the process is raised here."""
        return _found(self.ask_plainly(*request))

    def ask_plainly(self, *request: Any) -> tuple[Any, ...]:  # noqa: ANN401  (the same)
        """Like `ask`, but errors are returned, not raised."""
        self.start(*request)
        return self._answer()

    def start(self, *request: Any) -> int:  # noqa: ANN401  (the same)
        """Send a request. The descriptor that is returned becomes readable with the answer, which `finish` must fetch.

        Until then, requests of other threads wait, and this thread must not make another one.
        """
        self._lock.acquire()
        try:
            channel = self._usable()
            try:
                if not self._is_greeted:
                    self._greet(channel)
                _send(channel, (_taken(self.freed), _taken(self.dropped), *request))
            except OSError as error:
                raise self._ended() from error
            except BaseException:
                # Otherwise the next request would receive the answer to this one.
                self.end()
                raise
            return channel.fileno()
        except BaseException:
            self._lock.release()
            raise

    def finish(self) -> Any:  # noqa: ANN401  (the same)
        """Wait for the answer to the request that was started. An error in the process is raised here."""
        return _found(self._answer())

    def _answer(self) -> tuple[Any, ...]:
        try:
            channel = self._usable()
            try:
                answer: tuple[Any, ...] | None = _receive(channel)
            except OSError as error:
                raise self._ended() from error
            except BaseException:
                self.end()
                raise
            if answer is None:
                raise self._ended()
            return answer
        finally:
            self._lock.release()

    def _usable(self) -> socket.socket:
        if self._channel is None:
            msg = "the database is closed"
            raise ProcessEndedError(msg)
        if self._owner != os.getpid():
            msg = "the database was opened before this process was forked; open it again here"
            raise ProcessEndedError(msg)
        return self._channel

    def _greet(self, channel: socket.socket) -> None:
        if _receive(channel) != ("hello", sys.hexversion):
            raise self._ended(f"{interpreter()} is a different Python, or cannot be started with -I -S")
        self._is_greeted = True

    def _ended(self, otherwise: str = "") -> ProcessEndedError:
        """The error that says how the process ended. `otherwise`: the message if it was not ended by a signal."""
        popen = self._popen
        self.end()
        code = None if popen is None else popen.returncode
        if code == -signal.SIGBUS:
            # Part of the mapped file is not there.
            return ProcessEndedError("the file was shortened, or became unreadable, while it was being read; try again")
        if code is not None and code < 0:
            return ProcessEndedError(f"the process that had it open was ended by signal {-code}; try again")
        return ProcessEndedError(otherwise or f"the process that had it open ended with code {code}; try again")

    def end(self) -> None:
        """Close the socket, so that the process ends, and wait until it has."""
        _LIVE.discard(self)
        channel, self._channel = self._channel, None
        arena, self.arena = self.arena, None
        # A batch that is still in use keeps its own map alive.
        self.maps.clear()
        popen, self._popen = self._popen, None
        is_ours = self._owner == os.getpid()
        if channel is not None:
            if is_ours:
                # Wakes a thread of ours that is waiting for an answer; closing alone would not.
                with contextlib.suppress(OSError):
                    channel.shutdown(socket.SHUT_RDWR)
            channel.close()
        if arena is not None:
            os.close(arena)
        if popen is None or not is_ours:
            return
        try:
            popen.wait(_END_SECONDS)
        except BaseException as error:
            popen.kill()
            popen.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise

    def forget(self) -> None:
        """In a forked process: release what belongs to the parent process."""
        self._lock = threading.Lock()
        if self._popen is not None:
            # It is not our child, so it cannot be waited for.
            self._popen.returncode = 0
        self.end()


_LIVE: weakref.WeakSet[Process] = weakref.WeakSet()


def _forget_all() -> None:
    for process in list(_LIVE):
        process.forget()
    SPARE.forget()


class _Spare:
    """A process that is started before it is needed and, after `prepare`, is kept for reuse."""

    def __init__(self) -> None:
        self._found: list[Process] = []
        self._keeps = False

    def prepare(self) -> None:
        """Start one in advance. For short-lived programs: it runs until the program ends."""
        self._keeps = True
        with contextlib.suppress(DatabaseError, OSError):
            # A failure is reported when a process is needed.
            self._found.append(Process())

    def take(self) -> Process:
        """The prepared process, or a new one."""
        while self._found:
            found = self._found.pop()
            if found.is_alive:
                return found
            found.end()
        return Process()

    def give_back(self, process: Process) -> None:
        """Keep or end a process that has nothing open."""
        if self._keeps and not self._found:
            self._found.append(process)
        else:
            process.end()

    def end(self) -> None:
        """End the prepared process, and keep none from now on."""
        self._keeps = False
        while self._found:
            self._found.pop().end()

    def forget(self) -> None:
        """In a forked process: drop the processes of the parent."""
        self._found.clear()
        self._keeps = False


SPARE = _Spare()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def own_pids() -> set[int]:
    """The processes that were started here."""
    return {process.pid for process in list(_LIVE)}


def _found(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401  (answers are of many kinds)
    kind, *found = answer
    if kind == "ok":
        return found[0]
    raise error_of(kind, *found)


def error_of(kind: str, name: str, text: str) -> DatabaseError:
    """An error that the process reported."""
    if kind == "fault":
        return FileFaultError(text)
    return SqliteError(text, name)


def interpreter() -> str:
    """The path of the running Python interpreter. A frozen program, or one that embeds Python, is not one."""
    base = Path(sys.base_exec_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    for found in (sys.executable, getattr(sys, "_base_executable", None), str(base)):
        is_frozen = getattr(sys, "frozen", False) and found == sys.executable
        if found and not is_frozen and "py" in Path(found).name.lower() and os.access(found, os.X_OK):
            return found
    msg = (
        f"no Python interpreter found for the separate process that reads databases: sys.executable is"
        f" {sys.executable!r}; set it to that of Python {sys.version_info.major}.{sys.version_info.minor}"
    )
    raise DatabaseError(msg)


def _taken(found: collections.deque[int]) -> list[int]:
    """Remove and return everything that is in the queue now."""
    return [found.popleft() for _ in range(len(found))]


def _high(end: socket.socket) -> socket.socket:
    """Move a socket off the three standard descriptors, which other code writes to even if they are closed."""
    import fcntl

    if end.fileno() < 3:
        low = end
        end = socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
        low.close()
    # The program may have set a default timeout.
    end.settimeout(None)
    return end


def _shared_memory() -> int | None:
    """A file in memory; None if the system has no such files, then batches of rows are sent over the socket."""
    import fcntl

    if not hasattr(os, "memfd_create"):
        return None
    try:
        low = os.memfd_create("kbeval-rows")
        try:
            return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
        finally:
            os.close(low)
    except OSError:
        return None


def _send(channel: socket.socket, message: tuple[Any, ...]) -> None:
    body = marshal.dumps(message)
    channel.sendall(len(body).to_bytes(8, "little") + body, _NO_SIGNAL)


def _receive(channel: socket.socket) -> Any:  # noqa: ANN401  (an answer; None at the end)
    size = _read(channel, 8)
    body = None if size is None else _read(channel, int.from_bytes(size, "little"))
    return None if body is None else marshal.loads(body)  # noqa: S302  (our own other end)


def _read(channel: socket.socket, size: int) -> bytearray | None:
    found = bytearray(size)
    view = memoryview(found)
    while view:
        count = channel.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return found
