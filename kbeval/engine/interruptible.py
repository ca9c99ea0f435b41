"""DuckDB in a thread of its own, so that Ctrl-C stops a statement and is never reported as a problem with the data."""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import duckdb

Result = TypeVar("Result")


class _Hand(threading.Thread):
    """A thread that runs one task after another: starting one for each statement costs more than a small statement."""

    def __init__(self) -> None:
        super().__init__(name="kbeval-engine", daemon=True)
        self.inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            self.inbox.get()()


# Threads without a task. A forked process has none of them.
_IDLE: collections.deque[_Hand] = collections.deque()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)


class Work(Generic[Result]):
    """A task that DuckDB runs in a separate thread; the caller can wait for it or stop it."""

    def __init__(self, task: Callable[[], Result]) -> None:
        self._task = task
        self._found: list[Result] = []
        self._failure: BaseException | None = None
        # Wait for an event, not for the thread: after an interrupted join() a thread counts as ended.
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._begun = False
        self._stopped = False

    def start(self) -> None:
        """Start it. The caller must stop it or wait for it in any case."""
        try:
            hand = _IDLE.pop()
        except IndexError:
            hand = _Hand()
            try:
                hand.start()
            except RuntimeError as error:
                # The only reason that Python gives for "can't start new thread" is a limit, here that on memory.
                raise MemoryError from error
        hand.inbox.put(lambda: self._run(hand))

    def _run(self, hand: _Hand) -> None:
        with self._lock:
            if self._stopped:
                _IDLE.append(hand)
                return
            self._begun = True
        try:
            self._found.append(self._task())
        except BaseException as error:  # noqa: BLE001  (raised again where the caller waits)
            self._failure = error
        finally:
            # Before the caller goes on: its next statement then finds this thread.
            _IDLE.append(hand)
            self._done.set()

    def result(self, connection: duckdb.DuckDBPyConnection) -> Result:
        """Wait for the end, and return the result or raise the error."""
        try:
            self._done.wait()
        except BaseException:
            self.stop(connection)
            raise
        if self._failure is not None:
            raise self._failure
        return self._found[0]

    def stop(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Interrupt DuckDB until it has stopped, even if Ctrl-C is pressed again: closing a connection that a thread
        still uses crashes the process. A thread that has not started by then never runs the task.
        """
        with self._lock:
            self._stopped = True
        while self._begun:
            with contextlib.suppress(KeyboardInterrupt):
                if self._done.wait(0.05):
                    return
                connection.interrupt()


def with_its_cause(task: Callable[[], Result]) -> Result:
    """Run a task; if it failed because of the database that it reads from, raise that error."""
    try:
        return task()
    except duckdb.Error as error:
        from kbeval.database.streams import failure_behind  # rarely needed

        if (cause := failure_behind(error)) is not None:
            raise cause from error
        raise


def run_interruptible(connection: duckdb.DuckDBPyConnection, task: Callable[[], Result]) -> Result:
    """Run a task that uses DuckDB. Ctrl-C stops it, and is never reported as a problem with the data.

    The main thread only waits: there DuckDB would turn the signal into an error of its own, and could be interrupted
    in the middle of opening or closing.
    """
    if threading.current_thread() is not threading.main_thread():
        return task()
    work = Work(task)
    try:
        work.start()
        return work.result(connection)
    except KeyboardInterrupt:
        work.stop(connection)
        raise
