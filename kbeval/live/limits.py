"""How many requests may be in flight at once, and how many per second; adapts to the server.

A `Limit` starts low. While all is well it grows: doubling per round of answers at first, by one per round after the
first sign of trouble. A burst of refusals (429) halves it once. Server errors and timeouts stop the growth until as
many answers have arrived again. If refusals go on, requests are also spread over time, slightly below the rate at which
the server has accepted them; that rate rises slowly while nothing is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

DEFAULT_CEILING = 16
MOST_AT_ONCE = 1_000
# Requests at once in the beginning: a quarter of what is allowed, within these limits.
_LEAST_START, _MOST_START = 4, 10
# The pause if a server refuses a request and does not say for how long.
_PAUSE_SECONDS = 1.0
# A rate is measured over at least this time, and used with a margin.
_LEAST_WINDOW = 0.5
_MARGIN = 0.9
_SLOWEST = 0.05
# How much the measured rate rises per second in which nothing was refused.
_RISE = 1.01


@dataclass(frozen=True)
class Turn:
    """Permission to send one request now."""

    started: float


class Limit:
    """The limit of one server. `ceiling`: requests in flight at most; `rate`: requests per second at most."""

    def __init__(self, ceiling: int = DEFAULT_CEILING, rate: float | None = None) -> None:
        self.ceiling = max(1, ceiling)
        self.refusals = 0
        self._most_rate = rate
        self._size = float(min(self.ceiling, max(_LEAST_START, min(_MOST_START, self.ceiling // 4))))
        self._is_doubling = True
        # Answers to wait for before growing again.
        self._holding = 0
        self._active = 0
        self._door = asyncio.Lock()
        self._freed = asyncio.Event()
        self._next_at = self._paused_until = 0.0
        self._shrunk_at = -1.0
        # The measured rate, when it was last raised, and the window in which acceptances are counted.
        self._rate: float | None = None
        self._raised_at = 0.0
        self._window_start: float | None = None
        self._accepted = 0

    @property
    def concurrency(self) -> int:
        """How many requests may be in flight now."""
        return max(1, int(self._size))

    @property
    def rate(self) -> float | None:
        """How many requests per second are sent at most; None: no limit."""
        known = [rate for rate in (self._most_rate, self._rate) if rate is not None]
        return min(known) if known else None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Wait until a request may be sent; it counts as in flight until the block ends."""
        # One waits at a time, in order of arrival.
        async with self._door:
            while self._active >= self.concurrency:
                self._freed.clear()
                await self._freed.wait()
            while (wait := max(self._next_at, self._paused_until) - time.monotonic()) > 0:  # noqa: ASYNC110  (time)
                await asyncio.sleep(wait)
            self._active += 1
            now = time.monotonic()
            if rate := self.rate:
                self._next_at = max(now, self._next_at) + 1 / rate
        if self._window_start is None:
            self._window_start = now
        try:
            yield Turn(now)
        finally:
            self._active -= 1
            self._freed.set()

    def succeeded(self, turn: Turn) -> None:
        """The server answered."""
        self._accepted += 1
        self._raise_rate()
        if self._holding > 0:
            self._holding -= 1
        elif turn.started >= self._shrunk_at:
            self._size = min(self._size + (1 if self._is_doubling else 1 / self._size), float(self.ceiling))
            self._freed.set()

    def troubled(self) -> None:
        """The server failed, or did not answer in time."""
        self._is_doubling = False
        self._holding = self.concurrency

    def refused(self, turn: Turn, after: float | None) -> None:
        """The server said that there are too many requests; `after`: the seconds for which it asked."""
        now = time.monotonic()
        self.refusals += 1
        self._is_doubling = False
        pause = after if after is not None else _PAUSE_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311  (jitter)
        self._paused_until = max(self._paused_until, now + pause)
        if turn.started < self._shrunk_at:
            # Sent before the limit was lowered: part of the same burst.
            return
        self._size = max(1.0, self._size / 2)
        self._measure(now)
        # Those that were refused during the pause belong to this burst.
        self._shrunk_at = now

    def _measure(self, now: float) -> None:
        elapsed = now - (self._window_start if self._window_start is not None else now)
        # If nothing was accepted, the pause was too short. That does not say how slow the server is.
        if elapsed >= _LEAST_WINDOW and self._accepted:
            accepted = self._accepted / elapsed
            self._rate = max(_SLOWEST, min(accepted, self._rate or accepted) * _MARGIN)
            self._raised_at = now
        self._window_start, self._accepted = now, 0

    def _raise_rate(self) -> None:
        now = time.monotonic()
        if self._rate is not None and (seconds := int(now - self._raised_at)) > 0:
            self._rate *= _RISE**seconds
            self._raised_at += seconds
