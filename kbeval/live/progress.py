"""Progress of requests, on stderr: one line that is redrawn at a terminal, otherwise a new line every ten seconds."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import TextIO

from kbeval.live.limits import Limit
from kbeval.util.text import counted, shown

EVERY_SECONDS = 10.0
_REDRAW_SECONDS = 0.2
# The rate is that of the last minute.
_RECENT_SECONDS = 60.0


class Progress:
    """Counts finished items. Use `async with progress.shown():` around the work."""

    def __init__(  # noqa: PLR0913  (most have defaults)
        self,
        label: str,
        total: int,
        limit: Limit,
        *,
        done: int = 0,
        stream: TextIO | None = None,
        every: float = EVERY_SECONDS,
    ) -> None:
        """`done`: how many of the total were done before (a resumed run)."""
        self._label = label
        self._total = total
        self._limit = limit
        self._stream = stream if stream is not None else sys.stderr
        self._every = every
        self.done = done
        self.errors = 0
        self.retries = 0
        self._recent: deque[float] = deque()
        self._started = time.monotonic()

    def finished(self, *, is_error: bool = False) -> None:
        """One item is done."""
        self.done += 1
        self.errors += is_error
        self._recent.append(time.monotonic())

    def retried(self) -> None:
        """A request is sent again."""
        self.retries += 1

    def line(self) -> str:
        """The current state in one line."""
        rate = self._rate()
        parts = [
            f"{self._label}: {self.done:,} of {self._total:,}",
            f"{rate:.1f} per second",
            counted(self.errors, "error"),
            counted(self.retries, "retry", "retries"),
            f"concurrency {self._limit.concurrency}",
        ]
        if rate > 0 and self.done < self._total:
            parts.append(f"{_duration((self._total - self.done) / rate)} left")
        return shown(", ".join(parts))

    def _rate(self) -> float:
        now = time.monotonic()
        while self._recent and self._recent[0] < now - _RECENT_SECONDS:
            self._recent.popleft()
        elapsed = min(now - self._started, _RECENT_SECONDS)
        return len(self._recent) / elapsed if elapsed > 0 else 0.0

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show the progress until the block ends."""
        stream = self._stream
        if stream is None:
            yield
            return
        is_terminal = stream.isatty()
        task = asyncio.create_task(self._redraw(stream) if is_terminal else self._report(stream))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if is_terminal:
                stream.write("\r\x1b[K")
                stream.flush()

    async def _redraw(self, stream: TextIO) -> None:
        while True:
            stream.write(f"\r\x1b[K{self.line()}")
            stream.flush()
            await asyncio.sleep(_REDRAW_SECONDS)

    async def _report(self, stream: TextIO) -> None:
        while True:
            await asyncio.sleep(self._every)
            stream.write(f"{self.line()}\n")
            stream.flush()


def _duration(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
