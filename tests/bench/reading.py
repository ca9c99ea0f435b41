"""The cost of opening the database only in a child process, compared with a driver in the process itself.

`python tests/bench/reading.py child|driver read|parse DATABASE` measures one of them: seconds, and processor seconds of
all processes. "read" hands the rows to the engine, which only adds up their lengths; "parse" also opens their JSON, as
every scoring does.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WAYS = {"driver": "a driver in the process (ADBC)", "child": "kbeval's child process"}
WORK = {"read": "read", "parse": "read and parse"}


def rows(database: Path, times: int = 7) -> list[list[Any]]:
    """One row per work and way: seconds and processor seconds, and the ratio to the driver."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(times):
        for work in WORK:
            for way in WAYS:
                found.setdefault((work, way), []).append(_measured(way, work, database))
    table = []
    for (work, way), measured in found.items():
        wall, cpu = (statistics.median(values) for values in zip(*measured, strict=True))
        peer = statistics.median(cpu for _, cpu in found[work, "driver"])
        allowed = " (allowed: 1.10)" if (work, way) == ("parse", "child") else ""
        table.append([f"{WORK[work]}: {WAYS[way]}", wall, f"{cpu:.2f}", f"{cpu / peer:.2f} ×{allowed}"])
    return table


def _measured(way: str, work: str, database: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "tests.bench.reading", way, work, str(database)]
    wall, cpu = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(wall), float(cpu)


def main(way: str, work: str, database: str) -> None:
    if way == "driver":
        import adbc_driver_sqlite.dbapi as driver
    from kbeval.scoring.options import ScoreOptions
    from kbeval.storage.source import open_database

    with open_database(Path(database), ScoreOptions(cache="off")) as (session, source):
        source.feed(session, [run.run_id for run in source.runs()])
        started, used = time.perf_counter(), _processor_seconds()
        if way == "driver":
            kept = _hand_in(session, driver.connect(database))
        if work == "read":
            session.need("stored_results")
            session.rows("SELECT COUNT(*), SUM(strlen(result_json)) FROM stored_results")
        else:
            session.need("parsed")
        wall = time.perf_counter() - started
    # The child counts once it has ended. Its start is the same in both ways: runs were read by it.
    print(wall, _processor_seconds() - used)
    if way == "driver":
        for one in kept:
            one.close()


def _hand_in(session: Any, connection: Any) -> tuple[Any, ...]:
    """Hand in the rows as a stream of the driver. It casts as kbeval does, and reads as many rows at a time."""
    cursor = connection.cursor()
    cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "64"})
    texts = ", ".join(f"CAST({name} AS TEXT) AS {name}" for name in ("run_id", "query_id", "result_json"))
    cursor.execute(f"SELECT rowid AS result_no, {texts} FROM eval_query_results")
    stream = cursor.fetch_record_batch()
    session.add_loaders({"stored_results": lambda to: to.connection.register("stored_results", stream)})
    return stream, cursor, connection


def _processor_seconds() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
