"""The pool of `kbeval label`: what many runs returned for each query, with the same text once, next to scoring them."""

from __future__ import annotations

import json
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from kbeval.engine.relations import read_sql
from kbeval.explore.pool import Pool, build_pool
from kbeval.scoring.scorer import open_scoring
from kbeval.util.files import CACHE_ENDING

_DOCUMENTS, _LINES = 2_000, 120
# Runs of one system return much the same: this many chunks occur for a query in all of them.
_NEAR = 25


def make(folder: Path, runs: int, queries: int, hits: int) -> tuple[Path, Path]:
    """Runs of two chunkers, whose hits are near each other; rows with ids alone, as the places are in `chunks`."""
    folder.mkdir(parents=True, exist_ok=True)
    source = random.Random(20260316)
    database, golden = folder / f"pool-{runs}x{queries}x{hits}.db", folder / f"pool-{queries}.jsonl"
    sizes = {"md@1": 10, "md@2": 12}
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + read_sql("schema/workspace.sql")
        )
        for version, size in sizes.items():
            for doc in range(_DOCUMENTS):
                for place in range(_LINES // size):
                    chunk = f"{version[-1]}-{doc}-{place}"
                    span = json.dumps([{"kind": "line", "start": place * size + 1, "end": (place + 1) * size}])
                    row = (chunk, f"d{doc}", "text", "[]", None, span, 1, version, "p", "[]", "2026-01-01")
                    connection.execute(f"INSERT INTO chunks VALUES ({', '.join('?' * len(row))})", row)
        # The same passages under both chunkers, so that most candidates are found under two ids.
        passages = [source.sample(range(_DOCUMENTS * _LINES // 12), _NEAR) for _ in range(queries)]
        near = {
            version: [[_hit(version, passage, size) for passage in own] for own in passages]
            for version, size in sizes.items()
        }
        for run in range(runs):
            version = "md@1" if run % 2 else "md@2"
            config = json.dumps({"chunker_version": version, "eval_k": hits})
            connection.execute(
                "INSERT INTO eval_runs VALUES (?, 'nightly', ?, '', NULL, ?)",
                (f"run-{run:04d}", config, f"2026-01-01T{run // 60:02d}:{run % 60:02d}:00Z"),
            )
            connection.executemany(
                "INSERT INTO eval_query_results VALUES (?, ?, ?)",
                (
                    (
                        f"run-{run:04d}",
                        f"q{n}",
                        f'{{"hits_top_k": [{", ".join(source.sample(near[version][n], hits))}]}}',
                    )
                    for n in range(queries)
                ),
            )
    with golden.open("w", encoding="utf-8") as file:
        for n in range(queries):
            chunk = json.loads(near["md@1"][n][0])["chunk_id"]
            file.write(json.dumps({"id": f"q{n}", "query": f"question {n}", "expected_chunk_ids": [chunk]}) + "\n")
    return database, golden


def _hit(version: str, passage: int, size: int) -> str:
    """The chunk of a chunker in which a passage begins."""
    doc, line = divmod(passage * 12, _LINES)
    return f'{{"chunk_id": "{version[-1]}-{doc}-{line // size}", "doc_id": "d{doc}"}}'


def pool(database: Path, golden: Path) -> tuple[float, int, int]:
    """Seconds, candidates, and the most memory that the process had, in MB."""
    begun = time.perf_counter()
    with open_scoring(database, golden, lazily=True) as scoring:
        build_pool(scoring.session, scoring.runs)
        candidates = sum(query.candidates for query in Pool(scoring.session).queries.values())
    return time.perf_counter() - begun, candidates, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rows(folder: Path, runs: int = 200, queries: int = 5_000, hits: int = 10) -> list[list[str]]:
    """The pool next to scoring the same runs: when their rows are read for the first time, and from the cache."""
    database, golden = make(folder, runs, queries, hits)
    score = ["kbeval", "score", "--all", "--dry-run", "--db", str(database), "--golden", str(golden)]
    found: list[list[str]] = []
    for what in ("first", "again"):
        taken: list[tuple[float, float]] = []
        for command in (score, ["tests.bench.pooling", str(database), str(golden)]):
            if what == "first":
                shutil.rmtree(Path(f"{database}{CACHE_ENDING}"), ignore_errors=True)
            begun, used = time.perf_counter(), _processor_seconds()
            # As users do it: a process of its own, which keeps to the memory limit.
            said = subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, text=True).stdout
            taken.append((time.perf_counter() - begun, _processor_seconds() - used))
        _, candidates, memory = json.loads(said)
        (scored, scored_used), (pooled, pooled_used) = taken
        ratio = f"{pooled_used / scored_used:.2f}"
        found += [
            [f"score all runs, {what}", f"{scored:.1f}", f"{scored_used:.1f}", "1.00", "", ""],
            [f"pool, {what}", f"{pooled:.1f}", f"{pooled_used:.1f}", ratio, f"{candidates:,}", str(memory)],
        ]
    return found


if __name__ == "__main__":
    print(json.dumps(pool(Path(sys.argv[1]), Path(sys.argv[2]))))
