"""Requests to a real server that behaves badly: what is retried, what is not, and the outcome."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kbeval.live.environment import Secrets
from kbeval.live.exchange import Response, json_request, retry_after
from kbeval.live.limits import Limit
from kbeval.live.sending import Attempt, Outcome, Policy, Sender
from kbeval.live.working import Crew, Stopped, run_async
from tests.support.live_server import LiveServer

QUICK = Policy(timeout=2, wait_initial=0.01, wait_max=0.05, wait_jitter=0.01)


@pytest.fixture(scope="module")
def shared() -> Iterator[LiveServer]:
    with LiveServer() as server:
        yield server


@pytest.fixture
def server(shared: LiveServer) -> LiveServer:
    shared.set(faults=[], delay=0, retry_after=None, script=[], per_second=None, slow_seconds=30)
    return shared


def sent(
    url: str,
    policy: Policy = QUICK,
    headers: dict[str, str] | None = None,
    attempts: list[Attempt[Any]] | None = None,
    secrets: Secrets | None = None,
) -> Outcome[Any]:
    """The outcome of one request."""

    async def keep(attempt: Attempt[Any]) -> None:
        if attempts is not None:
            attempts.append(attempt)

    found: list[Outcome[Any]] = []

    async def main() -> None:
        crew = Crew(Limit(1))
        async with Sender(crew, policy, secrets or Secrets()) as sender:

            async def job(question: str) -> None:
                request = json_request("POST", f"{url}/search", headers or {}, {"question": question, "k": 3})
                found.append(await sender.send(request, read=Response.json, on_attempt=keep))

            await crew.run(["What?"], job)

    run_async(main())
    return found[0]


def test_an_answer_is_parsed_and_timed(server: LiveServer) -> None:
    server.set(delay=0.05)
    outcome = sent(server.url)
    assert outcome.failure is None
    assert outcome.value is not None
    assert outcome.value["answer"] == "The answer to: What?"
    assert outcome.attempts == 1
    assert outcome.elapsed_ms is not None
    assert 50 <= outcome.elapsed_ms <= outcome.total_ms


@pytest.mark.parametrize("kind", ["429", "502", "503", "504", "drop", "reset"])
def test_passing_faults_are_tried_again(server: LiveServer, kind: str) -> None:
    server.set(faults=[{"kind": kind, "first": 2}])
    before = server.counts()["requests"]
    attempts: list[Attempt[Any]] = []
    outcome = sent(server.url, attempts=attempts)
    assert outcome.failure is None
    assert [attempt.failure is None for attempt in attempts] == [False, False, True]
    assert outcome.attempts == server.counts()["requests"] - before == 3
    assert outcome.elapsed_ms == attempts[-1].elapsed_ms < outcome.total_ms


@pytest.mark.parametrize(
    ("kind", "expected", "status", "says"),
    [
        ("400", "http", 400, "HTTP 400: broken"),
        ("500", "http", 500, "HTTP 500: broken"),
        ("bare", "http", 500, "HTTP 500: upstream exploded"),
        ("half", "invalid_response", 200, "is not valid JSON"),
        ("empty", "invalid_response", 200, "empty"),
        ("not_utf8", "invalid_response", 200, "not UTF-8"),
        ("huge", "invalid_response", 200, "larger than 20 MB"),
        ("redirect_away", "http", 307, "redirects to http://other.invalid/steal"),
    ],
)
def test_lasting_faults_are_tried_once(server: LiveServer, kind: str, expected: str, status: int, says: str) -> None:
    server.set(faults=[{"kind": kind, "always": True}])
    before = server.counts()["requests"]
    # Reading many megabytes takes a while on a busy machine.
    outcome = sent(server.url, replace(QUICK, timeout=60))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.status) == (expected, status)
    assert says in outcome.failure.message
    assert outcome.elapsed_ms is None
    assert server.counts()["requests"] - before == outcome.attempts == 1


def test_a_redirect_within_the_server_is_followed(server: LiveServer) -> None:
    server.set(faults=[{"kind": "redirect", "first": 1}])
    outcome = sent(server.url, headers={"Authorization": "Bearer abc123def456"})
    assert outcome.failure is None
    assert [entry["headers"]["authorization"] for entry in server.log()[-2:]] == ["Bearer abc123def456"] * 2


def test_a_slow_server_is_a_timeout_and_not_asked_again(server: LiveServer) -> None:
    server.set(faults=[{"kind": "slow", "always": True}], slow_seconds=20)
    started = time.monotonic()
    outcome = sent(server.url, Policy(timeout=0.3))
    assert outcome.failure is not None
    assert outcome.failure.kind == "timeout"
    assert outcome.attempts == 1
    assert time.monotonic() - started < 10


def test_retries_end_after_the_attempts_and_the_last_error_stays(server: LiveServer) -> None:
    server.set(faults=[{"kind": "503", "always": True}])
    outcome = sent(server.url, Policy(attempts=3, wait_initial=0.01, wait_max=0.02, wait_jitter=0))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.status, outcome.attempts) == ("http", 503, 3)


def test_no_server_is_a_connection_error() -> None:
    with LiveServer() as gone:
        url = gone.url
    outcome = sent(url, Policy(attempts=2, wait_initial=0.01, wait_max=0.02, wait_jitter=0))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.attempts) == ("connection", 2)


def test_a_url_that_cannot_be_used_is_an_error_of_the_target() -> None:
    outcome = sent("gopher://127.0.0.1")
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.attempts) == ("target", 1)


def test_retry_after_is_honoured(server: LiveServer) -> None:
    server.set(faults=[{"kind": "429", "first": 1}], retry_after="0.7")
    outcome = sent(server.url)
    assert outcome.failure is None
    assert outcome.total_ms >= 700


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(server: LiveServer) -> None:
    server.set(faults=[{"kind": "429", "first": 1}], retry_after="3600")
    started = time.monotonic()
    outcome = sent(server.url)
    assert outcome.failure is not None
    assert outcome.failure.status == 429
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("kind", ["503", "drop"])
def test_all_attempts_with_their_pauses_end_before_the_deadline(server: LiveServer, kind: str) -> None:
    server.set(faults=[{"kind": kind, "always": True}])
    outcome = sent(server.url, Policy(attempts=50, deadline=0.9, wait_initial=0.1, wait_jitter=0.05))
    assert outcome.failure is not None
    assert outcome.attempts > 1
    # With the next pause it would be 1.5 s.
    assert outcome.total_ms < 1_350


def test_an_answer_is_not_waited_for_beyond_the_deadline(server: LiveServer) -> None:
    server.set(faults=[{"kind": "503", "first": 1}, {"kind": "slow", "always": True}], slow_seconds=20)
    outcome = sent(server.url, Policy(timeout=60, deadline=0.8, wait_initial=0.05, wait_jitter=0))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.attempts) == ("timeout", 2)
    assert 700 < outcome.total_ms < 2_000


def test_secrets_that_a_server_repeats_are_hidden(server: LiveServer) -> None:
    server.set(faults=[{"kind": "echo", "always": True}])
    token = "correct-horse-battery"
    outcome = sent(server.url, headers={"Authorization": f"Bearer {token}"}, secrets=Secrets([token]))
    assert outcome.failure is not None
    assert "bad token" in outcome.failure.message
    assert token not in outcome.failure.message


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2), ("0.5", 0.5), ("", None), ("soon", None), ("nan", None), ("-3", 0)]
)
def test_retry_after_as_text(text: str, seconds: float | None) -> None:
    assert retry_after(Response(429, {"retry-after": text}, b"")) == seconds


def test_retry_after_as_a_date() -> None:
    found = retry_after(Response(429, {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, b""))
    assert found == 0


def test_an_error_of_a_job_ends_the_work_and_is_raised() -> None:
    async def job(number: int) -> None:
        if number == 3:
            msg = "the disk is full"
            raise OSError(msg)

    with pytest.raises(OSError, match="the disk is full"):
        run_async(_run(job))


async def _run(job: Any) -> None:
    await Crew(Limit(2)).run(range(100), job)


def test_work_that_is_stopped_says_why_and_finishes_what_is_in_flight() -> None:
    import asyncio

    done: list[int] = []

    async def main() -> None:
        crew = Crew(Limit(3))

        async def job(number: int) -> None:
            with crew.engaged():
                await asyncio.sleep(0.05)
                done.append(number)
                if number == 4:
                    crew.stop("enough")

        await crew.run(range(100), job)

    with pytest.raises(Stopped, match="enough"):
        run_async(main())
    assert 5 <= len(done) <= 8
