"""Sail, a second engine: a Spark Connect server in a process of its own on loopback, without a JVM.

What DuckDB built is passed on as Parquet, and a statement is run there unchanged.
"""

from __future__ import annotations

import contextlib
import math
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from kbeval.engine.session import Session

Rows = list[tuple[Any, ...]]


class Sail:
    """A connection to the server."""

    def __init__(self, spark: Any, folder: Path, address: str) -> None:
        self.address = address
        self._spark = spark
        self._folder = folder
        self._known: set[str] = set()

    def hand_over(self, session: Session, name: str, *, again: bool = False) -> None:
        """Make a relation of a session known under its name, in the types that Spark has. `again`: with other rows."""
        if name in self._known and not again:
            return
        path = self._folder / f"{name}.parquet"
        kept = [
            (column, kind)
            for column, kind, *_ in session.rows(f"DESCRIBE {name}")
            if is_plain(kind) and (not kind.startswith("U") or column == "row_mark")
        ]
        # A sum of whole numbers has 128 bits in DuckDB, and 64 in Spark.
        columns = [
            f'CAST("{column}" AS BIGINT) AS "{column}"' if kind == "HUGEINT" else f'"{column}"' for column, kind in kept
        ]
        table = session.connection.execute(f"SELECT {', '.join(columns)} FROM {name}").to_arrow_table()
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
        self.know(name, path)
        self._known.add(name)

    def know(self, name: str, path: Path) -> None:
        """Make a Parquet file known under a name."""
        self._spark.read.parquet(str(path)).createOrReplaceTempView(name)

    def forget(self) -> None:
        """Start again with another session."""
        for name in self._known:
            self._spark.catalog.dropTempView(name)
            (self._folder / f"{name}.parquet").unlink()
        self._known.clear()

    def rows(self, sql: str, parameters: Iterable[Any] | None = None) -> Rows:
        """All rows of a statement."""
        return [tuple(row) for row in self._spark.sql(sql, list(parameters) if parameters else None).collect()]

    @staticmethod
    def quoted(name: str) -> str:
        """A name as Spark's SQL quotes it."""
        return f"`{name.replace('`', '``')}`"

    def need(self, *_: str) -> None:
        """Everything is handed over before."""

    def execute(self, sql: str, parameters: Iterable[Any] | None = None) -> None:
        """Facts are made by DuckDB, and handed over before."""


def is_plain(kind: str) -> bool:
    """Is it a type of single values? Lists and structures are for facts alone."""
    return not kind.endswith("[]") and not kind.startswith(("STRUCT", "MAP", "JSON", "UNION"))


@contextlib.contextmanager
def sail_server(folder: Path, **process_settings: Any) -> Iterator[str]:
    """The address of a server for as long as the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "pysail", "spark", "server", "--ip", "127.0.0.1", "--port", str(port)]
    with (folder / "sail.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **process_settings)
    try:
        _wait_for(port, process, folder / "sail.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def connected(address: str, folder: Path) -> Iterator[Sail]:
    """A connection to a server for as long as the block."""
    from pyspark.sql import SparkSession

    main = sys.modules["__main__"]
    if not hasattr(main, "__file__"):
        # Without it, as in processes of pytest-xdist, the client takes the program for a doctest of its own.
        main.__file__ = __file__
    spark = SparkSession.builder.remote(address).create()
    try:
        yield Sail(spark, folder, address)
    finally:
        spark.stop()


@contextlib.contextmanager
def running_sail(folder: Path) -> Iterator[Sail]:
    """A server and a connection to it for as long as the block."""
    with sail_server(folder) as address, connected(address, folder) as sail:
        yield sail


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    msg = f"the server does not answer: {log.read_text(errors='replace')[-2000:]}"
    raise RuntimeError(msg)


def bag(rows: Iterable[tuple[Any, ...]], digits: int | None = None) -> Counter[tuple[Any, ...]]:
    """Rows in no order. `digits`: so many of each double count; the last bits of sums of doubles depend on order."""
    return Counter(tuple(_plain(value, digits) for value in row) for row in rows)


def _plain(value: Any, digits: int | None) -> Any:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return float(f"{value:.{digits}g}") if digits else value
    return value
