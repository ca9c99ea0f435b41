"""An archive scored by DuckDB and by an engine elsewhere: what the tests on Sail and on Spark have in common."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb

from kbeval.cli import run
from kbeval.metrics.catalogue import catalogue
from kbeval.scoring.aggregate import _number, run_totals
from tests.bench.data import make_database
from tests.oracles.judge_oracle import Given
from tests.scoring.test_exact_sums import exact_quantile, exact_sum, stored
from tests.scoring.test_judged_numbers import marks, store
from tests.support.hostile import make_hostile

KBEVAL = [sys.executable, "-m", "kbeval"]


def archived(database: Path, golden: Path, folder: Path) -> Path:
    assert run(["archive", str(folder), "--db", str(database), "--golden", str(golden)]) == 0
    return folder


def hostile_archive(folder: Path) -> tuple[Path, Path]:
    """All kinds of span, letters that fold differently, latencies of five decimals and 1e14, all systems, judgements,
    chunks that only hits know, and rows that cannot be read.
    """
    workspace = make_hostile(folder)
    workspace.execute("DELETE FROM chunks WHERE chunk_id LIKE '%7'")
    name = "run-0 İstanbul"
    queries = [f"q{number}" for number in range(30)]
    judged = [
        Given(query, rubric, score, 40, 0.1)
        for query in queries
        for rubric, score in (("correctness", 4.5), ("own", 1 / 3))
    ]
    there = {row[0] for row in workspace.execute("SELECT query_id FROM eval_query_results WHERE run_id = ?", (name,))}
    answers = [given for given in judged if given.query_id in there][:16]
    store(workspace, name, answers, known=marks(workspace, name))
    return archived(workspace.db, workspace.golden, folder / "history"), workspace.golden


def make_short_rows(folder: Path, *, runs: int, queries: int, hits: int) -> tuple[Path, Path]:
    """As `make_database`, with what decides numbers and little else: reading texts is most of what rows cost."""
    database, golden = make_database(folder, runs=0, queries=queries, hits=hits)
    with closing(sqlite3.connect(database)) as connection, connection:
        chunks = connection.execute(
            "SELECT chunk_id, doc_id, source_spans_json FROM chunks ORDER BY chunk_id"
        ).fetchall()
        places = {chunk_id: place for place, (chunk_id, *_) in enumerate(chunks)}
        entries = [json.loads(line) for line in golden.read_text().splitlines()]
        labels = [places[entry["expected_chunk_ids"][0]] if "expected_chunk_ids" in entry else -1 for entry in entries]
        paths = dict(connection.execute("SELECT doc_id, workspace_path FROM documents"))
        pieces, cited = [], []
        for chunk_id, doc_id, spans in chunks:
            path = json.dumps(paths[doc_id])
            pieces.append(
                f'"chunk_id": "{chunk_id}", "doc_id": "{doc_id}", "doc_path": {path}, "source_spans": {spans}'
            )
            cited.append(f'{{"path": {path}, {spans[2:-1]}')
        source = random.Random(20260301)
        for run_number in range(runs):
            name = f"nightly-{run_number:04d}"
            config = json.dumps({"chunker_version": "md@1", "eval_k": hits})
            day = f"2026-03-{run_number % 28 + 1:02d}"
            connection.execute("INSERT INTO eval_runs VALUES (?, 'nightly', ?, '', NULL, ?)", (name, config, day))
            rows = []
            for number, label in enumerate(labels):
                found = [int(source.random() * len(chunks)) for _ in range(hits)]
                if label >= 0 and source.random() < 0.8:
                    found[min(int(source.expovariate(0.5)), hits - 1)] = label
                ranked = ", ".join(f'{{"rank": {rank}, {pieces[c]}}}' for rank, c in enumerate(found, start=1))
                citations = ", ".join(f'{{"marker": "[#{n + 1}]", "citation": {cited[found[n]]}}}' for n in (0, 1))
                error = '"timeout"' if number % 500 == 7 else "null"
                rows.append(
                    f'{{"elapsed_ms": {source.randint(20, 900)}, "error": {error}, "hits_top_k": [{ranked}],'
                    f' "answer": {{"answer": "{source.choice(("tea", "noise", "hat"))}",'
                    f' "grounded": {"true" if number % 25 else "false"}, "citations": [{citations}]}}}}'
                )
            connection.executemany(
                "INSERT INTO eval_query_results VALUES (?, ?, ?)",
                ((name, f"q{number:06d}", row) for number, row in enumerate(rows)),
            )
    return database, golden


def large_archive(folder: Path, *, queries: int = 2_000) -> tuple[Path, Path]:
    """20 runs × 2,000 queries × 10 hits."""
    database, golden = make_short_rows(folder, runs=20, queries=queries, hits=10)
    return archived(database, golden, folder / "history"), golden


@dataclass(frozen=True)
class Said:
    """What a command printed, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


def score(archive: Path, golden: Path, *arguments: str) -> Said:
    """All runs, by the command, in this process: starting another that imports the client takes longer than scoring."""
    command = ["score", "--all", "--force", "--db", str(archive), "--golden", str(golden), "--skip-bad-rows"]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = run([*command, *arguments])
    return Said(code, out.getvalue(), errors.getvalue())


def scores(archive: Path) -> str:
    """What is stored, without the times at which spans were first seen."""
    return without_times((archive / "scores.json").read_text())


def without_times(stored: str) -> str:
    return re.sub(r'"20\d\d-[^"]{10,30}Z"', '"now"', stored)


def assert_same_bytes(
    archive: Path, golden: Path, folder: Path, address: str, *how: str, to_the_last_byte: bool = True
) -> str:
    """Scored here and there, from the same files: the same numbers, kept spans, slices and warnings. Returns them.

    `to_the_last_byte`: once more, with the times at which spans were first seen.
    """
    here, there = (shutil.copytree(archive, folder / name) for name in ("here", "there"))
    try:
        by_duckdb = score(here, golden, *how)
        by_engine = score(there, golden, "--engine", address, *how)
        assert by_engine.returncode == by_duckdb.returncode == 0, by_engine.stderr[-2000:]
        assert by_engine.stdout == by_duckdb.stdout
        assert scores(there) == scores(here)
        assert '"runs": {\n' in scores(here)
        assert told(by_engine.stderr) == told(by_duckdb.stderr)
        assert not list(there.glob("*exchange*"))
        if not to_the_last_byte:
            return scores(here)
        # To the last byte, where the times are known: the numbers of all runs are taken out, and must come back.
        shutil.copy(here / "scores.json", there / "scores.json")
        text = (there / "scores.json").read_text()
        (there / "scores.json").write_text(re.sub(r'("runs": )\{.*\n \}', r"\1{}", text, flags=re.DOTALL))
        assert len((there / "scores.json").read_bytes()) < len(text)
        by_engine = score(there, golden, "--engine", address, *how)
        assert by_engine.returncode == 0, by_engine.stderr[-2000:]
        assert (there / "scores.json").read_bytes() == (here / "scores.json").read_bytes()
        return scores(here)
    finally:
        for name in ("here", "there"):
            shutil.rmtree(folder / name)


def told(errors: str) -> list[str]:
    """Warnings and notes, without what names the archive and without what is not looked for elsewhere."""
    lines = (line for line in errors.splitlines() if "/there" not in line and "/here" not in line)
    return [
        line
        for line in lines
        if "not looked for with --engine" not in line and "have another position than the tables" not in line
    ]


def assert_exact_numbers(engine: Any, folder: Path, *, groups: int = 4_000) -> None:
    """480,000 doubles in 4,000 groups, if not fewer are asked for: the stored percentiles, totals, means and sums are
    those of exact fractions, and the same by DuckDB and by the engine.
    """
    drawn_groups = drawn(groups, 120)
    path = folder / "query_scores.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE query_scores AS SELECT UNNEST(CAST($1 AS VARCHAR[])) AS run_id,"
            " UNNEST(CAST($2 AS DOUBLE[])) AS value",
            [
                [name for name, values in drawn_groups.items() for _ in values],
                [value for values in drawn_groups.values() for value in values],
            ],
        )
        connection.execute(
            "CREATE VIEW wide AS SELECT run_id, value AS latency_ms, value AS mrr, value AS cost_usd FROM query_scores"
        )
        connection.execute(f"COPY wide TO '{path}'")
        connection.execute("DROP VIEW wide; DROP TABLE query_scores")
        connection.execute(f"CREATE TABLE query_scores AS FROM '{path}'")
        here = SimpleNamespace(
            rows=lambda sql: connection.execute(sql).fetchall(), quoted=lambda name: '"' + name + '"'
        )
        by_duckdb = numbers(here)
    engine.know("query_scores", path)
    assert numbers(engine) == by_duckdb
    assert by_duckdb.keys() == drawn_groups.keys()
    for name, values in drawn_groups.items():
        ordered = sorted(values)
        total = exact_sum(ordered)
        found = by_duckdb[name]
        assert found["mrr"] in stored(total, len(ordered)), name
        assert found["cost_usd"] in stored(total, 1), name
        assert found["latency_ms"]["total"] in stored(total, 1), name
        for part, share in (("p50", Fraction(1, 2)), ("p95", Fraction(95, 100))):
            assert found["latency_ms"][part] in stored(exact_quantile(ordered, share), 1), (name, part)


def numbers(session: Any) -> dict[str, dict[str, Any]]:
    """What `score` would store of the values in query_scores: a mean, a sum and percentiles."""
    metrics = [metric for metric in catalogue((), (), ()) if metric.name in ("latency_ms", "mrr", "cost_usd")]
    scoring: Any = SimpleNamespace(metrics=metrics, session=session)
    return {
        run_id: {metric.name: _number(metric, *totals[metric.name][:2]) for metric in metrics}
        for run_id, _, totals in run_totals(scoring)
    }


def drawn(count: int, size: int) -> dict[str, Sequence[float]]:
    """Groups of values of every kind: ratios, times of three and five decimals, half-way cases, any size up to 1e14."""
    chance = random.Random(21)
    kinds: tuple[Callable[[], float], ...] = (
        lambda: chance.randrange(400) / chance.randrange(1, 401),
        lambda: chance.randrange(10**8) / 1e3,
        lambda: chance.randrange(10**10) / 1e5,
        lambda: chance.randrange(10**9) + 0.00005,
        lambda: chance.uniform(0, 1e14),
        lambda: chance.choice((1e14 / 3, 22043.82365, 0.0, chance.random())),
    )
    return {f"group-{number:04}": [kinds[number % len(kinds)]() for _ in range(size)] for number in range(count)}
