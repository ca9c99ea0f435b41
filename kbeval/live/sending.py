"""Sends HTTP requests: retries in one layer, a limit on size, errors as values.

Example: a program that sends one request per item of a list (see also `limits`, `working` and `progress`):

    async def main() -> None:
        limit = Limit(ceiling=16, rate=None)
        crew = Crew(limit)
        progress = Progress("run r1", len(items), limit)
        async with Sender(crew, Policy(timeout=120), secrets, on_retry=progress.retried) as sender:

            async def job(item):
                request = json_request("POST", url, headers, body)
                outcome = await sender.send(request, read=parse_response, on_attempt=store_attempt)
                progress.finished(is_error=outcome.failure is not None)

            with handling_interrupts(crew):
                async with progress.shown():
                    await crew.run(items, job)

    run_async(main())

- `read` turns a `Response` with a status below 300 into a value; it raises `InvalidResponseError` if it cannot.
- `on_attempt` is awaited after each attempt, before anything else is sent for the item: store it there. It is called
  within `crew.engaged()`, so that Ctrl-C gives it time to finish.
- `Outcome` has the `value` of `read`, or a `Failure` with its kind (`timeout`, `connection`, `http`,
  `invalid_response`, `target`), the HTTP status and a message that is free of secrets.
- 429, 502, 503, 504, 529, broken connections and connections that could not be made are tried again, with increasing
  pauses and jitter, or after the time in `Retry-After`, until `Policy.attempts` or `Policy.deadline` is reached.
  Everything else, including an untrusted certificate, is tried once. A redirect is followed only to the same scheme,
  host and port.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from kbeval.live.environment import Secrets
from kbeval.live.exchange import Failure, InvalidResponseError, Request, Response, retry_after
from kbeval.live.line import Line, TooLargeError, load_backend, parsed_url
from kbeval.live.trust import proxy_passwords, ssl_context, untrusted
from kbeval.live.wording import described_error, error_text
from kbeval.live.working import Crew
from kbeval.util.text import cut

if TYPE_CHECKING:
    import ssl

    import httpx2

T = TypeVar("T")

TIMEOUT, CONNECTION, HTTP, INVALID, TARGET = KINDS = ("timeout", "connection", "http", "invalid_response", "target")
TOO_MANY = 429
# 529: "overloaded", used by some providers of language models.
RETRIED = frozenset((TOO_MANY, 502, 503, 504, 529))
_MOST_REDIRECTS = 5
_CONNECT_SECONDS = 10.0
_QUOTED = 300


@dataclass(frozen=True)
class Policy:
    """Timeouts and retries. Times are in seconds; `deadline` covers all attempts of one request with their pauses."""

    timeout: float = 120.0
    attempts: int = 6
    deadline: float = 300.0
    most_bytes: int = 20_000_000
    wait_initial: float = 0.5
    wait_max: float = 20.0
    wait_jitter: float = 1.0
    # Certificates to trust in addition to the default ones.
    ca_file: str | None = None


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """One request that was sent, and its result."""

    number: int
    started_at: str
    elapsed_ms: float
    status: int | None = None
    value: T | None = None
    failure: Failure | None = None
    response: Response | None = None


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result of a request after all attempts."""

    value: T | None
    failure: Failure | None
    attempts: int
    # Of the successful attempt alone; None if there is none.
    elapsed_ms: float | None
    # With all attempts and the pauses between them.
    total_ms: float
    response: Response | None = None


OnAttempt = Callable[[Attempt[T]], Awaitable[None]]


class _AgainError(Exception):
    """An attempt that may be repeated, after this many seconds if the server said so."""

    def __init__(self, after: float | None) -> None:
        super().__init__()
        self.after = after


class _LateError(Exception):
    """The deadline leaves no time for another attempt."""


def _retried(attempt: Attempt[Any]) -> _AgainError | None:
    """How the request must be sent again; None if it must not."""
    if attempt.failure is None:
        return None
    if attempt.status in RETRIED:
        return _AgainError(retry_after(attempt.response))
    return _AgainError(None) if attempt.failure.kind == CONNECTION else None


class Sender:
    """Sends requests within the limit of a crew. Use as an asynchronous context manager."""

    def __init__(
        self, crew: Crew, policy: Policy, secrets: Secrets, *, on_retry: Callable[[], None] = lambda: None
    ) -> None:
        self._crew = crew
        self._policy = policy
        self._secrets = secrets
        for password in proxy_passwords():
            secrets.add(password)
        self._on_retry = on_retry
        # One per request in flight. The one that was used last is used next.
        self._idle: list[Line] = []
        self._all: list[Line] = []
        self._context: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        # Loaded later, this would count as response time of the first answers.
        self._idle.append(self._new_line())
        await load_backend()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lines, self._all, self._idle = self._all, [], []
        for line in lines:
            await line.close()

    def _trusted(self) -> ssl.SSLContext:
        if self._context is None:
            # Reading the certificates takes a moment, so it is done once.
            self._context = ssl_context(self._policy.ca_file)
        return self._context

    async def send(
        self, request: Request, *, read: Callable[[Response], T], on_attempt: OnAttempt[T] | None = None
    ) -> Outcome[T]:
        """Send a request until it is answered, cannot be answered, or the policy allows no further attempt."""
        started = time.monotonic()
        final = await self._attempt(request, 1, read, on_attempt)
        if _retried(final) is not None:
            final = await self._retry(request, final, started, read, on_attempt)
        return Outcome(
            value=final.value,
            failure=final.failure,
            attempts=final.number,
            elapsed_ms=None if final.failure is not None else final.elapsed_ms,
            total_ms=_ms(started),
            response=final.response,
        )

    async def _retry(
        self,
        request: Request,
        first: Attempt[T],
        started: float,
        read: Callable[[Response], T],
        on_attempt: OnAttempt[T] | None,
    ) -> Attempt[T]:
        """Send it again, in the same way. Returns the last attempt."""
        import stamina

        policy = self._policy
        final, end = first, started + policy.deadline

        def may_retry(error: Exception) -> bool | float:
            if not isinstance(error, _AgainError):
                return False
            after = self._pause(final.number) if error.after is None else error.after
            return after if time.monotonic() + after < end else False

        with contextlib.suppress(_AgainError, _LateError):
            async for turn in stamina.retry_context(
                on=may_retry,
                attempts=policy.attempts,
                timeout=end - time.monotonic(),
            ):
                with turn:
                    if turn.num > 1:
                        self._on_retry()
                        final = await self._attempt(request, turn.num, read, on_attempt, end)
                    if (again := _retried(final)) is not None:
                        raise again
        return final

    def _pause(self, number: int) -> float:
        """Seconds to wait after an attempt: twice as long each time, and not the same for all requests.

        Chosen here, because stamina would look at the deadline only after the pause.
        """
        policy = self._policy
        longer = policy.wait_initial * 2.0 ** min(number - 1, 30)
        return min(policy.wait_max, longer + random.uniform(0, policy.wait_jitter))  # noqa: S311  (not a secret)

    async def probe(self, request: Request) -> str | None:
        """Send a request once, outside the limit; what is wrong with the response, or None."""
        _, failure = await self._exchange(request, self._policy.timeout)
        return None if failure is None else failure.message

    async def reach(self, url: str) -> str | None:
        """Connect to the server of an address without sending anything; why that is impossible, or None."""
        import httpx2

        place = httpx2.URL(url)
        if place.host in ("", None) or self._is_proxied(place):
            return None
        port = place.port or (443 if place.scheme == "https" else 80)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(
                    place.host, port, ssl=self._trusted() if place.scheme == "https" else None
                )
            writer.close()
        except TimeoutError:
            return f"no connection to {place.host}:{port} within {_CONNECT_SECONDS:g} s"
        except OSError as error:
            # The text for the error number is clearer than the library's.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            said = untrusted(error) or f"no connection to {place.host}:{port}: {why}"
            return self._clean(said)
        return None

    @staticmethod
    def _is_proxied(place: httpx2.URL) -> bool:
        """Does the environment name a proxy for it? Then it may not be reachable directly."""
        import urllib.request

        known = urllib.request.getproxies()
        return bool(known.get(place.scheme) or known.get("all")) and not urllib.request.proxy_bypass(place.host)

    async def _attempt(
        self,
        request: Request,
        number: int,
        read: Callable[[Response], T],
        on_attempt: OnAttempt[T] | None,
        end: float = math.inf,
    ) -> Attempt[T]:
        """One attempt, until `end` at most. Raises _LateError if its turn comes after that."""
        limit = self._crew.limit
        async with limit.turn() as turn:
            left = end - time.monotonic()
            if left <= 0:
                raise _LateError
            with self._crew.engaged():
                at, started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), time.monotonic()
                response, failure = await self._exchange(
                    request, min(self._policy.timeout, self._policy.deadline, left)
                )
                elapsed = _ms(started)
                value: T | None = None
                if response is not None and failure is None:
                    try:
                        value = read(response)
                    except InvalidResponseError as error:
                        failure = Failure(INVALID, self._clean(str(error)), response.status)
                status = response.status if response is not None else None
                if status == TOO_MANY:
                    limit.refused(turn, retry_after(response))
                elif status is None or status >= 500:
                    limit.troubled()
                else:
                    limit.succeeded(turn)
                found = Attempt(number, at, elapsed, status, value, failure, response)
                if on_attempt is not None:
                    await on_attempt(found)
                return found

    async def _exchange(self, request: Request, seconds: float) -> tuple[Response | None, Failure | None]:
        """Send once. The timeout covers the whole exchange, so a server that trickles bytes exceeds it, too."""
        import httpx2

        try:
            async with asyncio.timeout(seconds):
                response = await self._follow(request)
        except TooLargeError as error:
            return error.response, Failure(INVALID, str(error), error.response.status)
        except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            return None, self._failure(error, seconds)
        if 200 <= response.status < 300:
            return response, None
        return response, Failure(HTTP, self._clean(error_text(response)), response.status)

    def _failure(self, error: Exception, seconds: float) -> Failure:
        """Why no response came."""
        import httpx2

        if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            return Failure(CONNECTION, f"no connection within {min(seconds, _CONNECT_SECONDS):g} s")
        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            return Failure(TIMEOUT, f"no answer within {seconds:.4g} s")
        if isinstance(error, httpx2.DecodingError):
            return Failure(INVALID, self._clean(f"the response cannot be decompressed: {error}"))
        if said := untrusted(error):
            return Failure(TARGET, self._clean(said))
        if isinstance(error, httpx2.TransportError) and not isinstance(
            error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError
        ):
            return Failure(CONNECTION, self._clean(described_error(error)))
        return Failure(TARGET, self._clean(f"the request cannot be sent: {error}"))

    async def _follow(self, request: Request) -> Response:
        url, method = parsed_url(request.url), request.method
        response = await self._once(request, url)
        for _ in range(_MOST_REDIRECTS):
            place = response.headers.get("location")
            keeps = response.status in (307, 308) or (response.status in (301, 302, 303) and method in ("GET", "HEAD"))
            if place is None or not keeps:
                break
            there = url.join(place)
            if (there.scheme, there.host, there.port) != (url.scheme, url.host, url.port):
                break
            url = there
            response = await self._once(request, url)
        return response

    async def _once(self, request: Request, url: httpx2.URL) -> Response:
        line = self._idle.pop() if self._idle else self._new_line()
        try:
            return await line.exchange(request, url)
        finally:
            self._idle.append(line)

    def _new_line(self) -> Line:
        timeout = self._policy.timeout
        found = Line(self._trusted, timeout, min(timeout, _CONNECT_SECONDS), self._policy.most_bytes)
        self._all.append(found)
        return found

    def _clean(self, text: str) -> str:
        return cut(self._secrets.hide(text), _QUOTED)


def _ms(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 3)
