"""One archive, scored in four ways: one process, shards, Sail and a Spark cluster on this machine. The same numbers."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.short_rows import make_short_history
from tests.support.second_engine import sail_server
from tests.support.spark_cluster import SPARK_HOME, running_cluster

# Runs, queries and hits.
SIZES = ((20, 2_000, 10), (50, 10_000, 10))
# Seconds of processors: of all processes, those of servers included. Peak: of the largest process on this side.
HEADS = ["what", "seconds", "of processors", "peak MB", "ratio"]
KBEVAL = (sys.executable, "-m", "kbeval")


def reports(folder: Path) -> Iterator[tuple[str, list[list[Any]]]]:
    """A title and the rows of a table for each size."""
    folder.mkdir(parents=True, exist_ok=True)
    archives = {size: make_archive(folder / "x".join(map(str, size)), *size) for size in SIZES}
    with contextlib.ExitStack() as servers:
        (folder / "sail").mkdir()
        (folder / "spark").mkdir()
        engines = {"Sail": servers.enter_context(sail_server(folder / "sail"))}
        if SPARK_HOME.is_dir() and shutil.which("java"):
            cluster = servers.enter_context(running_cluster(folder / "spark"))
            engines["Spark, two workers of 1 GB"] = cluster.address
        for (runs, queries, hits), (archive, golden) in archives.items():
            million = runs * queries * hits / 1e6
            title = f"an archive: {runs} runs × {queries:,} queries × {hits} hits, {million:.1f} million hits"
            yield title, list(rows(archive, golden, engines))


def make_archive(folder: Path, runs: int, queries: int, hits: int) -> tuple[Path, Path]:
    database, golden = make_short_history(folder, runs, queries, hits)
    run(*KBEVAL, "archive", str(folder / "history"), "--db", str(database), "--golden", str(golden))
    return folder / "history", golden


def rows(archive: Path, golden: Path, engines: dict[str, str]) -> Iterator[list[Any]]:
    score = (*KBEVAL, "score", "--all", "--force", "--db", str(archive), "--golden", str(golden))
    alone, expected, busy, peak = scored(archive, score)
    yield ["one process, 400 MB", alone, busy, peak, "1"]
    ways: dict[str, list[tuple[str, ...]]] = {}
    count = os.cpu_count() or 1
    shards = " & ".join(f"{_quoted((*score, '--threads', '1'))} --shard {n + 1}/{count}" for n in range(count))
    merge = _quoted((*KBEVAL, "score", "--merge", "--db", str(archive)))
    ways[f"{count} shards at once, one thread each, and --merge"] = [("sh", "-c", f"{shards} & wait; {merge}")]
    for name, address in engines.items():
        engine = (*score, "--engine", address)
        ways[name] = [engine]
        if name.startswith("Spark"):
            ways[f"{name}, again"] = [engine]
    for name, (command,) in ways.items():
        try:
            seconds, found, busy, peak = scored(archive, command)
        except subprocess.CalledProcessError as error:
            yield [name, "–", "–", "–", f"failed: {error.stderr.splitlines()[-1][:300] if error.stderr else error}"]
            continue
        same = "same numbers" if found == expected else "OTHER NUMBERS"
        yield [name, seconds, busy, peak, f"{seconds / alone:.1f} × the time, {same}"]
    if not any(name.startswith("Spark") for name in engines):
        yield ["Spark", "–", "–", "–", "not installed: make bench-large installs it, and needs Java"]


def scored(archive: Path, command: tuple[str, ...]) -> tuple[float, Any, float, int]:
    """Seconds, the numbers that were stored, seconds of processors, and the peak of this side in megabytes."""
    (archive / "scores.json").unlink(missing_ok=True)
    started, before = time.perf_counter(), processor_seconds()
    peak = run(*command)
    seconds = time.perf_counter() - started
    busy = processor_seconds() - before
    return seconds, json.loads((archive / "scores.json").read_text())["runs"], busy, peak


def processor_seconds() -> float:
    """What all processes that this one has started have used so far."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total, ticks = ended.ru_utime + ended.ru_stime, os.sysconf("SC_CLK_TCK")
    found = [os.getpid()]
    for pid in found:
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                found += map(int, children.read_text().split())
            if pid != os.getpid():
                # utime, stime, cutime and cstime, after the name in parentheses.
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) / ticks
    return total


def run(*command: str) -> int:
    """Run a command; its peak in megabytes, of the largest of its processes."""
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)\n"
        "sys.exit(done.returncode)\n"
    )
    found = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
    return int(found.stdout.splitlines()[-1])


def _quoted(command: tuple[str, ...]) -> str:
    return " ".join(f"'{part}'" for part in command)
