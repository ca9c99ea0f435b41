"""How many requests are in flight, and how fast: against a real server that refuses, fails, or has room."""

from __future__ import annotations

import asyncio
import io
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from kbeval.live import limits
from kbeval.live.environment import Secrets
from kbeval.live.exchange import Response, json_request
from kbeval.live.limits import Limit
from kbeval.live.progress import Progress
from kbeval.live.sending import Policy, Sender
from kbeval.live.working import Crew, run_async
from tests.support.examples import sized
from tests.support.live_server import LiveServer


def ask_many(url: str, count: int, limit: Limit, policy: Policy | None = None) -> tuple[float, list[int]]:
    """Seconds to ask this many questions; and how many requests had been refused when each was answered."""
    refusals: list[int] = []

    async def main() -> float:
        crew = Crew(limit)
        async with Sender(crew, policy or Policy(), Secrets()) as sender:

            async def job(number: int) -> None:
                request = json_request("POST", f"{url}/search", {}, {"question": f"Q{number}", "k": 1})
                outcome = await sender.send(request, read=Response.json)
                assert outcome.failure is None or policy is not None, outcome.failure
                refusals.append(limit.refusals)

            started = time.monotonic()
            await crew.run(range(count), job)
            return time.monotonic() - started

    return run_async(main()), refusals


def new_limit(ceiling: int, rate: float | None = None) -> Limit:
    return Limit(ceiling, rate)


def test_it_starts_low_and_grows_to_the_ceiling() -> None:
    with LiveServer(delay=0.05) as server:
        limit = new_limit(24)
        assert [new_limit(most).concurrency for most in (1, 4, 16, 24, 32, 1_000)] == [1, 4, 4, 6, 8, 10]
        ask_many(server.url, 200, limit)
        assert limit.concurrency == 24
        assert server.counts()["most_at_once"] <= 24


def test_a_rate_is_kept() -> None:
    with LiveServer() as server:
        seconds, _ = ask_many(server.url, 21, new_limit(8, rate=20))
        assert seconds >= 1.0


@pytest.mark.slow
def test_a_rate_limit_of_five_per_second_is_soon_respected() -> None:
    count = sized(40, 60)

    def ask(retry_after: str | None) -> tuple[list[int], int]:
        with LiveServer(per_second=5, retry_after=retry_after) as server:
            _, refusals = ask_many(server.url, count, new_limit(16))
            return refusals, server.counts()["answered"]

    # Most of the time is spent waiting: both at once.
    with ThreadPoolExecutor(2) as pool:
        for (refusals, answered), retry_after in zip(pool.map(ask, ("1", None)), ("1", None), strict=True):
            # The first burst, and what it takes to learn the rate; after that, no more than a handful.
            assert refusals[-1] - refusals[20] <= 5, retry_after
            assert refusals[-1] <= 20, retry_after
            assert answered == count


def test_a_burst_of_refusals_shrinks_it_once() -> None:
    async def main() -> None:
        limit = new_limit(16)
        turns = []
        for _ in range(16):
            async with limit.turn() as turn:
                turns.append(turn)
            limit.succeeded(turn)
        assert limit.concurrency == 16
        for turn in turns[-8:]:
            limit.refused(turn, after=0.0)
        assert limit.concurrency == 8
        await asyncio.sleep(0.01)
        async with limit.turn() as later:
            pass
        limit.refused(later, after=0.0)
        assert limit.concurrency == 4

    asyncio.run(main())


def test_a_refusal_right_after_a_pause_does_not_say_how_slow_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the requests that follow would be sent one in twenty seconds."""
    now = 100.0
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now))

    async def main() -> None:
        nonlocal now
        limit = new_limit(16)

        async def one(*, accepted: bool) -> None:
            async with limit.turn() as turn:
                pass
            if accepted:
                limit.succeeded(turn)
            else:
                limit.refused(turn, after=0.75)

        # A burst that is refused after five, the pause that was asked for, and again; then five in a second.
        for accepted in (True, True, True, True, True, False):
            await one(accepted=accepted)
        for _ in range(2):
            now += 0.8
            await one(accepted=False)
        assert limit.rate is None
        now += 0.8
        for _ in range(5):
            await one(accepted=True)
        await one(accepted=False)
        assert limit.rate is not None
        assert 4 < limit.rate < 6
        # Nor does it change what is known by then.
        known = limit.rate
        now += 0.8
        await one(accepted=False)
        assert limit.rate == known

    asyncio.run(main())


def test_errors_of_the_server_stop_the_growth() -> None:
    async def main() -> None:
        limit = new_limit(16)

        async def one() -> None:
            async with limit.turn() as turn:
                pass
            limit.succeeded(turn)

        await one()
        before = limit.concurrency
        limit.troubled()
        for _ in range(before):
            await one()
        assert limit.concurrency == before
        for _ in range(before + 1):
            await one()
        assert limit.concurrency == before + 1

    asyncio.run(main())


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    stream = io.StringIO()

    async def main() -> None:
        progress = Progress("run r", 10, new_limit(4), done=2, stream=stream, every=0.05)
        async with progress.shown():
            progress.finished()
            progress.finished(is_error=True)
            progress.retried()
            await asyncio.sleep(0.12)

    asyncio.run(main())
    lines = stream.getvalue().splitlines()
    assert 1 <= len(lines) <= 3
    assert lines[0].startswith("run r: 4 of 10, ")
    for part in ("per second", "1 error", "1 retry", "concurrency 4", " left"):
        assert part in lines[0]


def test_progress_at_a_terminal_is_redrawn_and_removed() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()

    async def main() -> None:
        progress = Progress("run r", 10, new_limit(4), stream=stream)
        async with progress.shown():
            progress.finished()
            await asyncio.sleep(0.05)

    asyncio.run(main())
    assert "run r: 1 of 10" in stream.getvalue()
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
