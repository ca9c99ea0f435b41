"""The pool of `kbeval label`: what many runs returned for each query, with the same text once, next to scoring them."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from kbeval.engine.relations import read_sql
from kbeval.explore.pool import Pool, build_pool
from kbeval.scoring.scorer import open_scoring

_DOCUMENTS, _LINES = 2_000, 120
# Runs of one system return much the same: so many chunks come up for a query in all of them.
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
        places: dict[str, list[tuple[str, str]]] = {}
        for version, size in sizes.items():
            places[version] = []
            for doc in range(_DOCUMENTS):
                for place in range(_LINES // size):
                    chunk = f"{version[-1]}-{doc}-{place}"
                    span = json.dumps([{"kind": "line", "start": place * size + 1, "end": (place + 1) * size}])
                    row = (chunk, f"d{doc}", "text", "[]", None, span, 1, version, "p", "[]", "2026-01-01")
                    connection.execute(f"INSERT INTO chunks VALUES ({', '.join('?' * len(row))})", row)
                    places[version].append((chunk, f"d{doc}"))
        near = {
            version: [
                [f'{{"chunk_id": "{chunk}", "doc_id": "{doc}"}}' for chunk, doc in source.sample(own, _NEAR)]
                for _ in range(queries)
            ]
            for version, own in places.items()
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


def measure(database: Path, golden: Path) -> tuple[float, float, int]:
    """Seconds for the pool, seconds for scoring the same runs, and how many candidates there are."""
    begun = time.perf_counter()
    with open_scoring(database, golden, lazily=True) as scoring:
        build_pool(scoring.session, scoring.runs)
        candidates = sum(query.candidates for query in Pool(scoring.session).queries.values())
    pooled = time.perf_counter() - begun
    command = ["score", "--all", "--dry-run", "--db", str(database), "--golden", str(golden)]
    begun = time.perf_counter()
    # As users do it: in steps that keep to the memory limit.
    subprocess.run([sys.executable, "-m", "kbeval", *command], check=True, capture_output=True)
    return pooled, time.perf_counter() - begun, candidates


if __name__ == "__main__":
    where, wanted = Path(sys.argv[1]), int(sys.argv[2])
    print(measure(*make(where, wanted, 5_000, 10)))
