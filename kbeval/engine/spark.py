"""An engine elsewhere: a Spark Connect server that runs the SQL after the facts.

`FarEngine` is all that a session asks of it. Rows stay there: tables are read from and written to Parquet files that
both sides see, and only what `rows` returns, totals and counts, passes through this process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kbeval.errors import EngineAwayError, EngineError, UsageError
from kbeval.util.text import cut

Result = TypeVar("Result")
DEFAULT_PORT = 15002
FROM_ENVIRONMENT = "spark"
_ADDRESS = re.compile(r"sc://(\[[0-9a-fA-F:.]+\]|[^\s:/;\[\]]+)(?::([0-9]{1,5}))?(/.*)?")
_PATIENCE_SECONDS = 10
# Both engines would take these in a path for a pattern.
_PATTERN = re.compile(r"[*?{}\[\]\\]")
_WANT_OF_MEMORY = re.compile(
    r"OutOfMemory|Java heap space|GC overhead|UNABLE_TO_ACQUIRE_MEMORY|[Nn]ot? enough memory|Resources? ?[Ee]xhausted"
    r"|[Cc]ould not allocate memory"
    # An executor of Spark ends itself with 52; the system kills a process that is too large with 9.
    r"|Failed to allocate|memory limit|exited with code (?:52|137)\b",
)
_AWAY = re.compile(r"UNAVAILABLE|failed to connect|Connection refused|Socket closed|RETRIES_EXCEEDED|Broken pipe")
_NOT_FOUND = re.compile(
    r"PATH_NOT_FOUND|Path does not exist|No such file|not found: (?:/|file)|FILE_NOT_EXIST|NotFound"
)
_NOT_PARQUET = re.compile(
    r"[Pp]arquet|CANNOT_READ_FILE|FAILED_READ_FILE|[Cc]orrupt|[Dd]ecompress|[Tt]hrift|Could not read footer"
)
_NO_WRITE = re.compile(r"Permission denied|AccessControl|Mkdirs failed|TASK_WRITE_FAILED|Read-only")


class FarEngine(Protocol):
    """What a session asks of an engine elsewhere."""

    # Where it is, without secrets.
    name: str

    def read(self, name: str, paths: Sequence[Path]) -> None:
        """Make the rows of Parquet files known under a name."""
        ...

    def view(self, name: str, sql: str) -> None:
        """Make a SELECT known under a name."""
        ...

    def write(self, name: str, sql: str, folder: Path) -> None:
        """Write the rows of a SELECT to a folder of Parquet files, and make them known under a name."""
        ...

    def columns(self, name: str) -> list[tuple[str, str]]:
        """The names and types of the columns of a relation."""
        ...

    def rows(self, sql: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a statement; only for results that are small."""
        ...

    def stop(self) -> None:
        """End the connection."""
        ...


def address_of(engine: str) -> str:
    """The address that `--engine` means: itself, or with `spark` that of SPARK_REMOTE."""
    found = os.environ.get("SPARK_REMOTE", "") if engine == FROM_ENVIRONMENT else engine
    if engine == FROM_ENVIRONMENT and not found:
        msg = "--engine spark takes the address from SPARK_REMOTE, which is not set; write sc://HOST:PORT"
        raise UsageError(msg)
    matched = _ADDRESS.fullmatch(found)
    if matched is None or not 0 < int(matched[2] or DEFAULT_PORT) < 65536:
        # What follows the port may be a token.
        shown = cut(found.partition(";")[0], 60)
        msg = f"the engine is {shown!r}; it must be the address of a Spark Connect server: sc://HOST:PORT"
        raise UsageError(msg)
    return found


class SparkConnect:
    """A session of a Spark Connect server."""

    def __init__(self, engine: str) -> None:
        address = address_of(engine)
        matched = _ADDRESS.fullmatch(address)
        assert matched is not None  # noqa: S101  (address_of has looked)
        host, port = matched[1], int(matched[2] or DEFAULT_PORT)
        self.name = f"sc://{host}:{port}"
        try:
            with warnings.catch_warnings(), _as_program():
                # The client warns about versions of pandas, which is not used here.
                warnings.simplefilter("ignore")
                from pyspark.sql import SparkSession
                from pyspark.sql.connect.client.retries import DefaultPolicy
        except ImportError as error:
            msg = "--engine needs the client of Spark Connect: pip install 'kbeval[spark]'"
            raise UsageError(msg) from error
        # It prints every failed statement as pages of JSON; the error says it in a line.
        for noisy in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark", "pyspark.sql.connect"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL + 1)
        try:
            with socket.create_connection((host.strip("[]"), port), timeout=_PATIENCE_SECONDS):
                pass
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            msg = f"no server at {self.name}: {why}; start a Spark Connect server, or leave out --engine"
            raise EngineError(msg) from error

        def connect() -> Any:  # noqa: ANN401  (a session of a library without types)
            found = SparkSession.builder.remote(address).create()
            found.client.set_retry_policies([DefaultPolicy(max_retries=4, max_backoff=4000)])
            found.conf.set("spark.sql.session.timeZone", "UTC")
            # Tables up to this size are given to every executor whole, and must fit there. It is the size of files,
            # which may be a twentieth of that in memory.
            found.conf.set("spark.sql.autoBroadcastJoinThreshold", "1MB")
            return found

        self._spark = self._doing("connecting", connect)
        # Where a quoted name is a text, every number would be the name of its metric.
        if self.rows("SELECT `a.b` FROM (SELECT 1 AS `a.b`) AS t") != [(1,)]:
            msg = f"the server at {self.name} does not take `name` for a name, so its numbers would be wrong"
            raise EngineError(msg)

    def read(self, name: str, paths: Sequence[Path]) -> None:
        texts = list(map(str, paths))
        if odd := next((text for text in texts if _PATTERN.search(text)), None):
            msg = f"the engine would take {odd} for a pattern; move the archive to a path without * ? {{ }} [ ] \\"
            raise UsageError(msg)
        self._doing(name, lambda: self._spark.read.parquet(*texts).createOrReplaceTempView(name))

    def view(self, name: str, sql: str) -> None:
        self._doing(name, lambda: self._spark.sql(sql).createOrReplaceTempView(name))

    def write(self, name: str, sql: str, folder: Path) -> None:
        def write() -> None:
            found = self._spark.sql(sql)
            found.write.mode("overwrite").parquet(str(folder))
            back = self._spark.read
            # Without rows there may be no file that says what the columns are.
            if not next(folder.rglob("*.parquet"), None):
                back = back.schema(found.schema)
            back.parquet(str(folder)).createOrReplaceTempView(name)

        self._doing(name, write)

    def columns(self, name: str) -> list[tuple[str, str]]:
        found = self._doing(name, lambda: self._spark.table(name).schema)
        return [(column.name, column.dataType.simpleString()) for column in found]

    def rows(self, sql: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        given = list(parameters) if parameters else None
        return [tuple(row) for row in self._doing("a question", lambda: self._spark.sql(sql, given).collect())]

    def stop(self) -> None:
        with _quietly():
            self._spark.stop()

    def _doing(self, what: str, task: Callable[[], Result]) -> Result:
        try:
            with warnings.catch_warnings(), _as_program():
                warnings.simplefilter("ignore")
                return task()
        except KeyboardInterrupt:
            with _quietly():
                self._spark.interruptAll()
            raise
        except Exception as error:
            raise self._explained(what, error) from error

    def _explained(self, what: str, error: Exception) -> EngineError:
        """One line: what happened, where, and what to do."""
        text = str(error)
        said = re.search(r'details = "([^"\n]+)', text)
        lines = [said[1]] if said else [line for line in text.splitlines() if line.strip()]
        first = cut(" ".join((lines or [type(error).__name__])[0].split()), 200)
        at = f"the engine at {self.name}"
        if _AWAY.search(text):
            return EngineAwayError(f"{at} does not answer (any more; at {what}): {first}; start it and score again")
        if _WANT_OF_MEMORY.search(text):
            return EngineError(f"{at} ran out of memory (at {what}): give it more, or score in shards (--shard I/N)")
        if _NOT_FOUND.search(text):
            return EngineError(
                f"{at} cannot see a file (at {what}): {first}; the archive must be at the same path there"
            )
        if _NO_WRITE.search(text):
            return EngineError(
                f"{at} cannot write to the archive's folder (at {what}): {first}; let it, as this user can"
            )
        if _NOT_PARQUET.search(text):
            return EngineError(
                f"{at} cannot read a file of the archive (at {what}): {first};"
                " if it is damaged, archive the database again, or restore it from a backup"
            )
        return EngineError(f"{at} failed (at {what}): {first}")


@contextlib.contextmanager
def _as_program() -> Iterator[None]:
    """Where the main module is not a file, as at a prompt, the client takes it for its own tests, and ends it."""
    main = sys.modules["__main__"]
    if hasattr(main, "__file__"):
        yield
        return
    main.__file__ = __file__
    try:
        yield
    finally:
        del main.__file__


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """What cannot be done at the end does no harm."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
