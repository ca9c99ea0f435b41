"""Many jobs at once, until all are done, something is seriously wrong, or Ctrl-C is pressed.

`run_async(main)` starts the event loop. Inside, a `Crew` runs one job per item with at most `limit.ceiling` open at a
time. A job that has sent a request is `engaged` until its result is stored. After Ctrl-C (or `crew.stop(reason)`) no
new request is sent, jobs that only wait are dropped, and those that are engaged get a few seconds to finish. A second
Ctrl-C drops these too. `Crew.run` then raises `Interrupted`, or `Stopped` with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from kbeval.errors import KbevalError
from kbeval.live.limits import Limit

T = TypeVar("T")
GRACE_SECONDS = 5.0


class Stopped(KbevalError):  # noqa: N818  (not a mistake of kbeval or its user)
    """The work was stopped early; the message says why. What was finished is stored."""


class Interrupted(KbevalError):  # noqa: N818  (the same)
    """Ctrl-C. What was finished is stored; the message says how to continue."""

    exit_code = 130


class Crew:
    """Works on many items at once."""

    def __init__(self, limit: Limit, *, grace: float = GRACE_SECONDS) -> None:
        self.limit = limit
        self._grace = grace
        self._engaged: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = asyncio.Event()
        self._reason: str | None = None
        self._interrupts = 0

    @property
    def is_stopping(self) -> bool:
        """Is it too late to send a new request?"""
        return self._stopping.is_set()

    def stop(self, reason: str) -> None:
        """Stop early; `run` raises `Stopped` with this reason."""
        if not self.is_stopping:
            self._reason = reason
            self._stopping.set()

    def interrupt(self) -> None:
        """Ctrl-C was pressed."""
        self._interrupts += 1
        self._stopping.set()
        if self._interrupts > 1:
            self._drop(self._tasks)

    @contextlib.contextmanager
    def engaged(self) -> Iterator[None]:
        """From before a request is sent until its result is stored: the job is not dropped during the grace period."""
        task = asyncio.current_task()
        if self.is_stopping or task is None:
            raise asyncio.CancelledError
        self._engaged.add(task)
        try:
            yield
        finally:
            self._engaged.discard(task)
            if self.is_stopping and task in self._tasks:
                # Nothing more to wait for.
                self._drop({task})

    async def run(self, items: Iterable[T], job: Callable[[T], Awaitable[None]]) -> None:
        """Call `job` for each item. An error of a job ends the work and is raised after those engaged are done."""
        left = iter(items)
        failures: list[BaseException] = []

        async def worker() -> None:
            for item in left:
                if self.is_stopping:
                    return
                try:
                    await job(item)
                except Exception as error:  # noqa: BLE001  (raised below, after the others have finished)
                    failures.append(error)
                    self._stopping.set()
                    return

        self._tasks = {asyncio.create_task(worker()) for _ in range(self.limit.ceiling)}
        stopping = asyncio.create_task(self._stopping.wait())
        pending = set(self._tasks)
        while pending and not self.is_stopping:
            _, still = await asyncio.wait({*pending, stopping}, return_when=asyncio.FIRST_COMPLETED)
            pending = {task for task in pending if task in still}
        stopping.cancel()
        await self._wind_up(pending)
        if failures:
            raise failures[0]
        if self._interrupts:
            msg = "interrupted"
            raise Interrupted(msg)
        if self._reason is not None:
            raise Stopped(self._reason)

    async def _wind_up(self, pending: set[asyncio.Task[Any]]) -> None:
        """Drop the jobs that only wait; give the others the grace period."""
        self._drop(pending - self._engaged)
        if pending:
            await asyncio.wait(pending, timeout=self._grace)
        self._drop(pending)
        await asyncio.gather(*pending, return_exceptions=True)

    @staticmethod
    def _drop(tasks: Iterable[asyncio.Task[Any]]) -> None:
        for task in tasks:
            if not task.done():
                task.cancel()


@contextlib.contextmanager
def handling_interrupts(crew: Crew) -> Iterator[None]:
    """Within the event loop: Ctrl-C stops the crew instead of the program."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    try:
        # The program's own handling of Ctrl-C ends the process if it does not stop soon; it is restored below.
        woken = signal.set_wakeup_fd(-1)
    except ValueError:
        # Not the main thread: the program around kbeval handles Ctrl-C.
        yield
        return
    try:
        if before is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGINT, crew.interrupt)
        yield
    finally:
        if before is not signal.SIG_IGN:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)
        with contextlib.suppress(ValueError, OSError):
            signal.set_wakeup_fd(woken, warn_on_full_buffer=False)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own, with the retry library's own log turned off."""
    import stamina.instrumentation

    hooks = stamina.instrumentation.get_on_retry_hooks()
    # Its log would quote requests; `progress` counts retries.
    stamina.instrumentation.set_on_retry_hooks(())
    try:
        with asyncio.Runner() as runner:
            return runner.run(main)
    finally:
        stamina.instrumentation.set_on_retry_hooks(hooks)
