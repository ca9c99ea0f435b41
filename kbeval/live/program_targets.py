"""Targets that are programs: a Python function, or a command that reads and writes JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbeval.errors import UsageError
from kbeval.live.asking import Asking, Query, Row
from kbeval.live.exchange import Failure, InvalidResponseError
from kbeval.live.rows import row_from_program
from kbeval.live.sending import INVALID, TARGET, TIMEOUT, Attempt, OnAttempt, Outcome
from kbeval.util.output import stdout_to_stderr
from kbeval.util.strict_json import fault_of, parse
from kbeval.util.text import cut

# A line that a program writes.
_LONGEST_LINE = 20_000_000
# More are not read ahead: the program has to wait.
_MOST_LINES = 3
_END_SECONDS = 2.0
_MESSAGE = 300
_ONLY_ANSWERS = "only answers may be written to standard output, one line each"
# What a function may take in addition to the query and its golden entry.
_EXTRA = ("k", "mode", "retrieval_only")


class ProgramError(Exception):
    """The program failed; the message says how."""


async def attempt_once(
    query: Query, asking: Asking, answer: Callable[[], Awaitable[Any]], on_attempt: OnAttempt[Row]
) -> Outcome[Row]:
    """One attempt, without retries: a program that fails would fail again."""
    limit = asking.crew.limit
    async with limit.turn() as turn:
        with asking.crew.engaged():
            at, started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), time.monotonic()
            row: Row | None = None
            failure: Failure | None = None
            try:
                row = row_from_program(query, await answer())
                json.dumps(row, allow_nan=False, ensure_ascii=False).encode()
                if said := row.get("error"):
                    failure = Failure(TARGET, said if isinstance(said, str) else json.dumps(said))
            except TimeoutError as error:
                failure = Failure(TIMEOUT, str(error) or "no answer in time")
            except (InvalidResponseError, TypeError, ValueError) as error:
                row, failure = None, Failure(INVALID, str(error))
            except ProgramError as error:
                failure = Failure(TARGET, str(error))
            elapsed = round((time.monotonic() - started) * 1000, 3)
            if failure is None:
                limit.succeeded(turn)
            else:
                limit.troubled()
                failure = Failure(failure.kind, cut(asking.environment.secrets.hide(failure.message), _MESSAGE))
            await on_attempt(Attempt(1, at, elapsed, None, row, failure))
    return Outcome(None if failure else row, failure, 1, None if failure else elapsed, elapsed)


class PythonTarget:
    """A Python function, `module:function`, sync or async."""

    def __init__(self, name: str, where: str, folder: Path | None, timeout: float, asking: Asking) -> None:
        self._name = name
        self._timeout = timeout
        self._asking = asking
        self._function = _import(name, where, folder)
        self._extra = _accepted(self._function)
        self._threads = ThreadPoolExecutor(asking.crew.limit.ceiling, thread_name_prefix="kbeval-target")
        self._open = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        # What the function prints must not mix with kbeval's own output.
        self._open.enter_context(stdout_to_stderr())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._open.close()

    def _arguments(self, query: Query) -> dict[str, Any]:
        return {name: query.values[name] for name in self._extra}

    def request_text(self, query: Query) -> str:
        more = "".join(f", {name}={value!r}" for name, value in self._arguments(query).items())
        text = f"{self._name}({query.text!r}, {json.dumps(dict(query.entry), ensure_ascii=False)}{more})"
        return self._asking.environment.secrets.hide(text)

    async def ask(self, query: Query, on_attempt: OnAttempt[Row]) -> Outcome[Row]:
        return await attempt_once(query, self._asking, lambda: self._call(query), on_attempt)

    async def _call(self, query: Query) -> Any:  # noqa: ANN401  (what the function returned)
        arguments = self._arguments(query)

        def call() -> Any:  # noqa: ANN401
            return self._function(query.text, dict(query.entry), **arguments)

        try:
            async with asyncio.timeout(self._timeout):
                if inspect.iscoroutinefunction(self._function):
                    return await call()
                found = await asyncio.get_running_loop().run_in_executor(self._threads, call)
                return await found if inspect.isawaitable(found) else found
        except TimeoutError as error:
            msg = str(error) or f"no answer within {self._timeout:g} s"
            raise TimeoutError(msg) from error
        except (Exception, SystemExit) as error:
            msg = f"{type(error).__name__}: {error}"
            raise ProgramError(msg) from error

    async def check_health(self) -> str | None:
        """Nothing to check: the function was imported."""
        return None


def _import(name: str, where: str, folder: Path | None) -> Callable[..., Any]:
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        msg = f"{where}.function must be written as module:function, e.g. my_search:answer"
        raise UsageError(msg)
    for place in (str(folder) if folder else "", str(Path.cwd())):
        if place and place not in sys.path:
            sys.path.insert(0, place)
    try:
        with stdout_to_stderr():
            found: Any = importlib.import_module(module)
        for step in attribute.split("."):
            found = getattr(found, step)
    except (Exception, SystemExit) as error:
        msg = f"{where}.function: {name} cannot be imported: {type(error).__name__}: {error}"
        raise UsageError(msg) from error
    if not callable(found):
        msg = f"{where}.function: {name} is not a function"
        raise UsageError(msg)
    return found  # type: ignore[no-any-return]  # checked by callable()


def _accepted(function: Callable[..., Any]) -> list[str]:
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
    return [name for name in _EXTRA if takes_all or name in known]


class CommandTarget:
    """A program that reads one JSON object per line and writes one per line; one process per request in flight."""

    def __init__(self, command: Any, where: str, folder: Path | None, timeout: float, asking: Asking) -> None:  # noqa: ANN401  (what TOML holds)
        words = shlex.split(command) if isinstance(command, str) else command
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            msg = f"{where}.command must be a string or a list of strings"
            raise UsageError(msg)
        self._shown = words
        self._words = [asking.environment.expand(word, f"{where}.command") for word in words]
        self._folder = folder
        self._timeout = timeout
        self._asking = asking
        self._idle: list[_Program] = []
        self._all: set[_Program] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in list(self._all):
            await self._end(program)

    def request_text(self, query: Query) -> str:
        text = f"$ {shlex.join(self._shown)}\n{self._line(query)}"
        return self._asking.environment.secrets.hide(text)

    @staticmethod
    def _line(query: Query) -> str:
        request = {
            "query_id": query.id,
            "query": query.text,
            "k": query.k,
            "mode": query.mode,
            "retrieval_only": query.retrieval_only,
            "entry": dict(query.entry),
        }
        return json.dumps(request, ensure_ascii=False)

    async def ask(self, query: Query, on_attempt: OnAttempt[Row]) -> Outcome[Row]:
        return await attempt_once(query, self._asking, lambda: self._exchange(query), on_attempt)

    async def _exchange(self, query: Query) -> Mapping[str, Any]:
        program = self._idle.pop() if self._idle else await self._start()
        is_usable = False
        try:
            async with asyncio.timeout(self._timeout):
                line = await program.answer(self._line(query))
            answer = self._parsed(line, query)
            is_usable = True
        except TimeoutError as error:
            msg = f"no answer within {self._timeout:g} s"
            raise TimeoutError(msg) from error
        finally:
            if is_usable:
                self._idle.append(program)
            else:
                # What it may still write must not be taken for the answer to the next query.
                await asyncio.shield(self._end(program))
        return answer

    @staticmethod
    def _parsed(line: bytes, query: Query) -> Mapping[str, Any]:
        try:
            found = parse(line.decode())
        except ValueError as error:
            fault = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else fault_of(error)
            msg = f"the line that the program wrote {fault}: {_quoted(line)}; {_ONLY_ANSWERS}"
            raise InvalidResponseError(msg) from error
        if not isinstance(found, dict):
            msg = f"the line that the program wrote is not an object: {_quoted(line)}; {_ONLY_ANSWERS}"
            raise InvalidResponseError(msg)
        if found.get("query_id", query.id) != query.id:
            msg = f"the program answered query {cut(str(found['query_id']), 40)!r} instead of {query.id!r}"
            raise InvalidResponseError(msg)
        return found

    async def _start(self) -> _Program:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=self._folder,
                limit=_LONGEST_LINE,
                # Ctrl-C is for kbeval, which lets the program finish.
                start_new_session=True,
            )
        except OSError as error:
            msg = f"{self._shown[0]} cannot be started: {error.strerror}"
            raise ProgramError(msg) from error
        program = _Program(process)
        self._all.add(program)
        return program

    async def _end(self, program: _Program) -> None:
        self._all.discard(program)
        if program in self._idle:
            self._idle.remove(program)
        await program.end()

    async def check_health(self) -> str | None:
        """The program can be started, and does not end at once."""
        if self._idle:
            return None
        try:
            program = await self._start()
        except ProgramError as error:
            return self._asking.environment.secrets.hide(str(error))
        self._idle.append(program)
        return None


class _Program:
    """A running program, whose output is read all the time: what it writes unasked is not an answer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        # Lines as they arrive; at the end what is left without an end of line, or the error.
        self._lines: asyncio.Queue[bytes | Exception] = asyncio.Queue(_MOST_LINES)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        stdout = self._process.stdout
        try:
            while stdout is not None:
                line = await stdout.readline()
                await self._lines.put(line)
                if not line.endswith(b"\n"):
                    return
        except (ConnectionError, ValueError) as error:
            await self._lines.put(error)

    async def answer(self, request: str) -> bytes:
        """Its next line, which must be the answer to this request."""
        self._refuse_unasked()
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(request.encode("utf-8", "replace") + b"\n")
                await stdin.drain()
        except ConnectionError as error:
            # Why it ended says more than that it cannot be written to.
            if self._lines.empty() and not self._reading.done():
                raise _failed(error) from error
        line = await self._lines.get()
        if isinstance(line, Exception):
            raise _failed(line) from line
        if not line.endswith(b"\n"):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), _END_SECONDS)
            msg = f"the program ended with exit code {self._process.returncode} instead of answering"
            raise ProgramError(msg)
        return line

    def _refuse_unasked(self) -> None:
        """A line that is there before anything was asked belongs to no query, or to one that has its answer."""
        found = None if self._lines.empty() else self._lines.get_nowait()
        if isinstance(found, bytes) and found.endswith(b"\n"):
            msg = f"the program wrote a line that nothing had asked for: {_quoted(found)}; {_ONLY_ANSWERS}"
            raise InvalidResponseError(msg)
        if found is not None:
            self._lines.put_nowait(found)

    async def end(self) -> None:
        """End it: by the end of its input, or if that does not suffice by force."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS if process.returncode is None else None)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._reading.cancel()


def _failed(error: Exception) -> ProgramError:
    return ProgramError(f"communication with the program failed: {error}")


def _quoted(line: bytes) -> str:
    return repr(cut(line.decode("utf-8", "replace").strip(), 80))
