"""`make bench`: kbeval next to a plain Python scorer and its peers, on the same data in the same run.

`make bench-large`: one archive in four ways, on one machine, in shards, and on two other engines.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from kbeval.engine.memory import DEFAULT_MEMORY_LIMIT
from kbeval.engine.session import Session
from kbeval.render.table import Column, render
from kbeval.scoring.aggregate import aggregate_runs, run_totals
from kbeval.scoring.scorer import open_scoring
from tests.bench import chunkers, large, plain_scorer, pooling, reading, reports, sending, start_up, ways_in
from tests.bench.data import make_database, make_history
from tests.bench.traces import make_traces

HERE = Path(__file__).parent


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kbeval-bench-") as name:
        folder = Path(name)
        if "--large" in sys.argv[1:]:
            for title, rows in large.reports(folder):
                table(title, large.HEADS, rows)
            return
        print(f"{os.cpu_count()} cores; Python {sys.version.split()[0]}; memory limit {DEFAULT_MEMORY_LIMIT}\n")
        table("a small database: the demo", ["what", "seconds", "peak MB", "ratio"], start_up.rows(folder, alternate))
        end_to_end(folder)
        comparing(folder)
        grounded(folder)
        history(folder)
        kernel(folder)
        ways_in_tables(folder)
        chunkers.report_on(folder / "chunkers")
        live(folder / "live")
        table(
            "kbeval report A B: 10 hits of 500 characters per query and run",
            ["what", "seconds", "MB of memory", "bytes", "seconds until it is open"],
            reports.rows(folder / "reports"),
        )
        labelling(folder / "pool")


# --- labelling: the pool of all runs ---------------------------------------------------------------------


def labelling(folder: Path) -> None:
    table(
        "kbeval label: the pool of 5,000 queries in 200 runs of 10 hits (10 million), whole processes",
        ["what", "seconds", "of processors", "of scoring", "candidates", "peak MB"],
        pooling.rows(folder),
    )


# --- without a database: tables, files --------------------------------------------------------------------


def ways_in_tables(folder: Path) -> None:
    for name, (queries, hits, _) in ways_in.SIZES.items():
        title = f"kbeval.evaluate: {queries:,} queries × {hits:,} hits, conversion included"
        table(title, ["what", "seconds", "peak MB", "ratio"], ways_in.evaluate_rows(folder, name))
    table("kbeval trec, the whole command", ["what", "seconds", "ratio"], ways_in.trec_rows(folder))


# --- live: requests to a server -------------------------------------------------------------------------


def live(folder: Path) -> None:
    found = sending.throughput(folder / "throughput")
    table(
        "kbeval run: 1,000 queries of 50 ms, 32 at once (medians of 5, in turn)",
        ["what", "seconds", "of the ideal"],
        [
            ["ideal: always 32 in flight, by the times alone", f"{found.ideal:.2f}", "100 %"],
            [
                "the simplest client, which stores nothing",
                f"{found.simplest:.2f}",
                f"{found.ideal / found.simplest:.0%}",
            ],
            ["kbeval run", f"{found.kbeval:.2f}", f"{found.ideal / found.kbeval:.0%} (wanted: 80 %)"],
            [f"  of which the first {found.ramp_requests}, until 32 are in flight", f"{found.ramp_seconds:.2f}", ""],
        ],
    )
    limited = sending.limited(folder / "limited")
    table(
        f"kbeval run: {sending.FEW} queries, a server that allows {sending.PER_SECOND} per second",
        ["what", "seconds", "refused (429)", "refused after the first second"],
        [
            ["ideal", f"{limited.ideal:.1f}", "0", "0"],
            [
                "kbeval run",
                f"{limited.seconds:.1f}",
                str(limited.refused),
                f"{limited.refused_later} (wanted: a handful)",
            ],
        ],
    )


# --- end to end: a process that reads the database, scores it and stores the numbers --------------------


def end_to_end(folder: Path) -> None:
    small = make_database(folder, runs=2, queries=10_000, hits=10)
    large = make_database(folder, runs=20, queries=10_000, hits=10)
    same_numbers(*small)
    commands = [plain_command("plain", *small), plain_command("streaming", *small), kbeval_command(*small)]
    plain, streaming, ours = alternate(commands, times=3)
    streaming_large, ours_large = alternate([plain_command("streaming", *large), kbeval_command(*large)], times=1)
    table(
        "end to end: read, score, store",
        ["what", "seconds", "peak MB", "ratio"],
        [
            ["plain Python, 2 runs × 10,000 queries × 10 hits", *plain, "1"],
            ["plain Python tuned: streaming, one pass", *streaming, f"{plain[0] / streaming[0]:.1f} × faster"],
            ["kbeval, the same data", *ours, f"{plain[0] / ours[0]:.1f} × faster (wanted: 3)"],
            ["kbeval, 10 × the data", *ours_large, f"{ours_large[0] / ours[0]:.1f} × the time (allowed: 11, 600 MB)"],
            [
                "plain Python tuned, 10 × the data",
                *streaming_large,
                f"kbeval is {streaming_large[0] / ours_large[0]:.1f} × faster",
            ],
        ],
    )
    table("reading rows in bulk: 200 MB", ["what", "seconds", "processor seconds", "ratio"], reading.rows(small[0]))


def plain_command(way: str, database: Path, golden: Path) -> list[str]:
    return [sys.executable, str(HERE / "plain_scorer.py"), way, str(database), str(golden)]


def kbeval_command(database: Path, golden: Path) -> list[str]:
    return [sys.executable, "-m", "kbeval", "score", "--all", "--db", str(database), "--golden", str(golden)]


def alternate(commands: list[list[str]], times: int) -> list[tuple[float, int]]:
    """Measure commands in turn, so that a slow moment of the machine affects all of them; the median of each."""
    found = [[measure(command) for command in commands] for _ in range(times)]
    return [
        (statistics.median(r[place][0] for r in found), max(r[place][1] for r in found))
        for place in range(len(commands))
    ]


def measure(command: list[str]) -> tuple[float, int]:
    """Seconds and peak resident megabytes of a process, start-up included."""
    code = (
        "import resource, subprocess, sys, time\n"
        "started = time.perf_counter()\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)\n"
    )
    result = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
    seconds, megabytes = result.stdout.split()
    return float(seconds), int(megabytes)


def same_numbers(database: Path, golden: Path) -> None:
    """A benchmark of two programs that disagree is worthless."""
    with open_scoring(database, golden) as scoring:
        ours = aggregate_runs(scoring).aggregates
    for way in plain_scorer.WAYS.values():
        for run_id, numbers in way(str(database), str(golden)).items():
            for name, value in numbers.items():
                found = ours[run_id].value(name)
                assert found is not None, name
                assert abs(found - value) < 1.01e-4, (run_id, name, found, value)


# --- comparing: two runs of one chunker by ids, two runs of different chunkers by spans --------------------


def comparing(folder: Path) -> None:
    same = make_database(folder / "same", runs=2, queries=10_000, hits=10)
    other = make_database(folder / "other", runs=2, queries=10_000, hits=10, chunkers=("md@1", "md@2"))
    exact, across = alternate([compare_command(*same), compare_command(*other)], times=3)
    table(
        "comparing: 2 runs × 10,000 queries × 10 hits, 10,000 resamples",
        ["what", "seconds", "peak MB", "ratio"],
        [
            ["kbeval compare, one chunker, by ids", *exact, "1"],
            ["kbeval compare, two chunkers, by spans", *across, f"{across[0] / exact[0]:.2f} × the time (allowed: 2)"],
        ],
    )


def compare_command(database: Path, golden: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "kbeval",
        "compare",
        "latest~1",
        "latest",
        "--db",
        str(database),
        "--golden",
        str(golden),
    ]


# --- grounded: a hundred thousand traces in one go, without a database -------------------------------------


def grounded(folder: Path) -> None:
    gold, trace = make_traces(folder / "traces", 100_000)
    plain = [sys.executable, str(HERE / "traces.py"), str(gold), str(trace)]
    limits = ["--gates", "precision=0"]
    ours = [sys.executable, "-m", "kbeval", "grounded", "--gold", str(gold), "--trace", str(trace), *limits]
    expected = json.loads(subprocess.run(plain, check=True, capture_output=True, text=True).stdout)
    found = json.loads(subprocess.run(ours, check=True, capture_output=True, text=True).stdout)
    for name, value in expected.items():
        assert abs(found[name] - value) < 1.01e-4, (name, found[name], value)
    first, second = alternate([plain, ours], times=7)
    table(
        "grounded answering: 100,000 traces",
        ["what", "seconds", "peak MB", "ratio"],
        [
            ["plain Python", *first, "1"],
            ["kbeval grounded", *second, f"{first[0] / second[0]:.1f} × faster (wanted: 3)"],
        ],
    )


# --- history: two hundred runs, parsed once and scored again from the columnar copy ------------------------


def history(folder: Path) -> None:
    runs, queries, hits = 200, 5_000, 10
    sample, golden = make_history(folder / "sample", runs // 50, queries, hits)
    tenth, _ = make_history(folder / "tenth", runs // 10, queries, hits)
    large, _ = make_history(folder / "large", runs, queries, hits)
    alone, _ = make_history(folder / "alone", 1, queries, hits, first=runs)
    same_numbers(sample, golden)
    ((plain, _),) = alternate([plain_command("plain", sample, golden)], times=3)
    plain *= 50
    first = measure(kbeval_command(large, golden))
    measure(kbeval_command(tenth, golden))
    again = ["--force", "--memory-limit", "1200MB"]
    few, many = alternate([[*kbeval_command(d, golden), *again] for d in (tenth, large)], times=3)
    small = measure([*kbeval_command(large, golden), "--force"])
    unchanged = measure(kbeval_command(large, golden))
    with closing(sqlite3.connect(large)) as connection:
        connection.execute("ATTACH ? AS other", [str(alone)])
        for name in ("eval_runs", "eval_query_results"):
            connection.execute(f"INSERT INTO {name} SELECT * FROM other.{name}")
        connection.commit()
    one = [sys.executable, "-m", "kbeval", "score", f"nightly-{runs:04d}", "--golden", str(golden), "--db"]
    by_itself, among = alternate([[*one, str(alone)], [*one, str(large)]], times=1)
    changed = measure(kbeval_command(large, golden))
    asked = measure([sys.executable, "-m", "kbeval", "sql", "SELECT COUNT(*) FROM runs", "--db", str(large)])
    size = large.stat().st_size / 1e9
    table(
        f"history: {runs} runs × {queries:,} queries × {hits} hits, {size:.1f} GB of JSON",
        ["what", "seconds", "peak MB", "ratio"],
        [
            ["plain Python, all runs (50 × a sample of 4)", plain, "", "1"],
            ["kbeval, first scoring: parses all, keeps the columns", *first, f"{plain / first[0]:.1f} × faster"],
            ["kbeval, all again from the columnar copy", *many, f"{plain / many[0]:.0f} × faster (wanted: 50, 2 GB)"],
            ["  the same in 400MB, the default", *small, f"{plain / small[0]:.0f} × faster"],
            ["  a tenth of the runs", *few, f"all: {many[0] / few[0]:.1f} × the time (allowed: 11)"],
            ["kbeval score --all, nothing changed", *unchanged, ""],
            ["kbeval score RUN, a new one alone in its database", *by_itself, "1"],
            ["kbeval score RUN, a new one among 200", *among, f"{among[0] / by_itself[0]:.2f} × (wanted: about 1)"],
            ["kbeval score --all, after another program wrote", *changed, "reads all rows once, to see what changed"],
            ["kbeval sql, about runs", *asked, "wanted: a fraction of a second"],
        ],
    )


# --- kernel: from facts in memory to aggregates ---------------------------------------------------------


def kernel(folder: Path) -> None:
    queries, hits = 20_000, 100
    database, golden = make_database(folder, runs=1, queries=queries, hits=hits, snippet=6)
    with open_scoring(database, golden) as scoring:
        session = scoring.session
        session.need("per_query", "hits", "expected_chunks", "expected_docs")

        def ours() -> None:
            scoring.build_scores()
            assert len(list(run_totals(scoring))) == 1

        def forget() -> None:
            session.execute("DROP VIEW IF EXISTS scores")
            session.execute("DROP TABLE IF EXISTS query_scores")
            session.execute("DROP VIEW IF EXISTS per_expected_hit")
            session.execute("DROP VIEW IF EXISTS chunk_matches")
            made = ("expected_hits", "id_matches", "doc_matches", "wanted_chunks")
            for name in made:
                session.execute(f"DROP TABLE IF EXISTS {name}")
            session._built -= {"per_expected_hit", "expected_hits", "chunk_matches", *made}

        kbeval_seconds = best_of(ours, before=forget)
        chunks = Judged(session, "chunk_id", "expected_chunks")
        docs = Judged(session, "doc_id", "expected_docs")
    rows: list[list[Any]] = [
        [name, seconds, f"kbeval is {seconds / kbeval_seconds:.1f} × faster"] for name, seconds in peers(chunks, docs)
    ]
    rows.append(["kbeval, facts in memory, all its metrics", kbeval_seconds, "1 (wanted: 4 × faster than pytrec_eval)"])
    print("hit, reciprocal rank and precision on chunks, recall on documents, at 1, 3, 5 and 10")
    title = f"kernel: {queries:,} queries × {hits} hits, input in memory"
    table(title, ["what", "seconds", "ratio"], rows)


class Judged:
    """Labels and ranking as the dictionaries that peers expect: query → id → grade, query → id → score."""

    def __init__(self, session: Session, name: str, labels: str) -> None:
        self.qrels: dict[str, dict[str, int]] = {}
        for query, found in session.rows(f"SELECT query_id, {name} FROM {labels}"):
            self.qrels.setdefault(query, {})[found] = 1
        self.run: dict[str, dict[str, float]] = {}
        for query, found, rank in session.rows(
            f"SELECT r.query_id, h.{name}, MIN(h.rank) FROM hits AS h JOIN results AS r ON r.result_no = h.result_no"
            f" GROUP BY r.query_id, h.{name}"
        ):
            if query in self.qrels:
                self.run.setdefault(query, {})[found] = 1.0 / rank
        self.qrels = {query: found for query, found in self.qrels.items() if query in self.run}


def peers(chunks: Judged, docs: Judged) -> list[tuple[str, float]]:
    """The same numbers computed by other libraries, with their input prepared."""
    import ir_measures
    import pytrec_eval
    import ranx

    gc.freeze()
    ks = (1, 3, 5, 10)
    on_chunks = pytrec_eval.RelevanceEvaluator(chunks.qrels, {"success.1,3,5,10", "P.1,3,5,10", "recip_rank"})
    on_docs = pytrec_eval.RelevanceEvaluator(docs.qrels, {"recall.1,3,5,10"})

    def trec() -> None:
        for evaluator, judged in ((on_chunks, chunks), (on_docs, docs)):
            found = evaluator.evaluate(judged.run)
            for measure_name in next(iter(found.values())):
                statistics.fmean(values[measure_name] for values in found.values())

    ir_chunks = [ir_measures.RR @ 10, *(ir_measures.Success @ k for k in ks), *(ir_measures.P @ k for k in ks)]
    ir_docs = [ir_measures.R @ k for k in ks]

    def ir() -> None:
        ir_measures.calc_aggregate(ir_chunks, chunks.qrels, chunks.run)
        ir_measures.calc_aggregate(ir_docs, docs.qrels, docs.run)

    ready = [(ranx.Qrels(judged.qrels), ranx.Run(judged.run)) for judged in (chunks, docs)]
    names = [
        ["mrr@10", *(f"hit_rate@{k}" for k in ks), *(f"precision@{k}" for k in ks)],
        [f"recall@{k}" for k in ks],
    ]

    def ranx_() -> None:
        for (qrels, run), measures in zip(ready, names, strict=True):
            ranx.evaluate(qrels, run, measures)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranx_()  # compiles
    found = [
        ("pytrec_eval, its dicts ready", best_of(trec)),
        ("ir_measures, its dicts ready", best_of(ir)),
        ("ranx, its arrays ready and compiled", best_of(ranx_)),
    ]
    gc.unfreeze()
    return found


def best_of(work: Callable[[], Any], before: Callable[[], None] = lambda: None, times: int = 4) -> float:
    found = []
    for _ in range(times):
        before()
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def table(title: str, heads: list[str], rows: list[list[Any]]) -> None:
    print(title)
    columns = [Column(head, width=70, right=head in ("seconds", "peak MB")) for head in heads]
    print(render(columns, rows, "table"))
    print(
        f"(peak of this process so far: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:,} MB)\n",
        flush=True,
    )


if __name__ == "__main__":
    main()
