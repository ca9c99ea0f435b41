"""`kbeval.evaluate` and `kbeval trec` next to pytrec_eval, ranx and ir_measures: from tables and from files to numbers.

Each measurement is a process of its own, with its peak memory; conversion to what a library wants is part of it. The
best of three counts, so that what a library compiles at its first call does not.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

SIZES = {"wide": (20_000, 100, 30), "deep": (1_000, 1_000, 100)}
TOOLS = ("kbeval", "pytrec_eval", "ranx", "ir_measures")
MEASURES = ["nDCG@10", "RR", "P@5", "AP"]


def make(folder: Path, name: str, queries: int, hits: int, judged: int) -> None:
    """A run and judgements as Parquet and as TREC files; a third of what is judged was found."""
    source = np.random.default_rng(1)

    def docs(count: int) -> pl.Series:
        drawn = np.concatenate([source.permutation(hits * 3)[:count] for _ in range(queries)])
        return "D" + pl.Series(drawn + 1_000_000).cast(pl.String)

    def ids(count: int) -> pl.Series:
        return "q" + pl.Series(np.repeat(np.arange(queries), count)).cast(pl.String)

    scores = np.round(source.random(queries * hits) * 100, 3)
    run = pl.DataFrame({"query_id": ids(hits), "doc_id": docs(hits), "score": scores})
    qrels = pl.DataFrame(
        {"query_id": ids(judged), "doc_id": docs(judged), "relevance": source.integers(0, 4, queries * judged)}
    )
    run.write_parquet(folder / f"{name}.run.parquet")
    qrels.write_parquet(folder / f"{name}.qrels.parquet")
    write_trec(run, qrels, folder / name)


def write_trec(run: pl.DataFrame, qrels: pl.DataFrame, stem: Path) -> None:
    ordered = run.sort("query_id", "score", descending=[False, True])
    rank = pl.int_range(1, pl.len() + 1).over("query_id").alias("rank")
    lines = ordered.select("query_id", pl.lit("Q0").alias("Q0"), "doc_id", rank, "score", pl.lit("tag").alias("tag"))
    lines.write_csv(f"{stem}.run", separator=" ", include_header=False)
    labels = qrels.select("query_id", pl.lit("0"), "doc_id", "relevance")
    labels.write_csv(f"{stem}.qrels", separator=" ", include_header=False)


# --- one measurement, in a process of its own ---------------------------------------------------------------


def task(tool: str, way: str, stem: str) -> Callable[[], Any]:
    run: Any = f"{stem}.run"
    qrels: Any = f"{stem}.qrels"
    if way == "tables":
        run, qrels = (pl.read_parquet(f"{path}.parquet") for path in (run, qrels))
    return {"kbeval": ours, "pytrec_eval": by_pytrec, "ranx": by_ranx, "ir_measures": by_ir_measures}[tool](
        run, qrels, way
    )


def ours(run: Any, qrels: Any, way: str) -> Callable[[], Any]:
    import kbeval

    del way
    return lambda: dict(kbeval.evaluate(run, qrels, MEASURES))


def dictionary(frame: pl.DataFrame, number: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for query, doc, value in zip(*(frame[name].to_list() for name in ("query_id", "doc_id", number)), strict=True):
        found.setdefault(query, {})[doc] = value
    return found


def by_pytrec(run: Any, qrels: Any, way: str) -> Callable[[], Any]:
    import pytrec_eval

    def compute() -> Any:
        if way == "tables":
            ranking, labels = dictionary(run, "score"), dictionary(qrels, "relevance")
        else:
            with Path(run).open() as lines, Path(qrels).open() as judgements:
                ranking, labels = pytrec_eval.parse_run(lines), pytrec_eval.parse_qrel(judgements)
        found = pytrec_eval.RelevanceEvaluator(labels, {"ndcg_cut.10", "recip_rank", "P.5", "map"}).evaluate(ranking)
        names = ("ndcg_cut_10", "recip_rank", "P_5", "map")
        return {name: sum(values[name] for values in found.values()) / len(found) for name in names}

    return compute


def by_ranx(run: Any, qrels: Any, way: str) -> Callable[[], Any]:
    from ranx import Qrels, Run, evaluate

    def compute() -> Any:
        if way == "tables":
            ranking, labels = Run(dictionary(run, "score")), Qrels(dictionary(qrels, "relevance"))
        else:
            ranking, labels = Run.from_file(run, kind="trec"), Qrels.from_file(qrels, kind="trec")
        return evaluate(labels, ranking, ["ndcg@10", "mrr", "precision@5", "map"], make_comparable=True)

    return compute


def by_ir_measures(run: Any, qrels: Any, way: str) -> Callable[[], Any]:
    import ir_measures as library

    ir_measures: Any = library
    measures = [ir_measures.parse_measure(name) for name in MEASURES]

    def compute() -> Any:
        if way == "tables":
            return ir_measures.calc_aggregate(measures, qrels.to_pandas(), run.to_pandas())
        ranking, labels = ir_measures.read_trec_run(run), ir_measures.read_trec_qrels(qrels)
        return ir_measures.calc_aggregate(measures, labels, ranking)

    return compute


def main() -> None:
    tool, way, stem = sys.argv[1:]
    warnings.filterwarnings("ignore")
    compute = task(tool, way, stem)
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        compute()
        best = min(best, time.perf_counter() - started)
    print(best, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


# --- tables -------------------------------------------------------------------------------------------------


def measured(tool: str, way: str, stem: Path) -> tuple[float, int]:
    command = [sys.executable, "-m", "tests.bench.ways_in", tool, way, str(stem)]
    seconds, megabytes = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()[-2:]
    return float(seconds), int(megabytes)


def evaluate_rows(folder: Path, name: str) -> list[list[Any]]:
    """From tables and from files: seconds, peak memory, and how much faster we are."""
    make(folder, name, *SIZES[name])
    rows: list[list[Any]] = []
    for way in ("tables", "files"):
        found = {tool: measured(tool, way, folder / name) for tool in TOOLS}
        our_seconds, our_memory = found["kbeval"]
        fastest = min(found, key=lambda tool: found[tool][0] if tool != "kbeval" else float("inf"))
        for tool, (seconds, memory) in found.items():
            said = f"kbeval is {seconds / our_seconds:.1f} × faster"
            if tool == "kbeval":
                said = f"{our_memory / found[fastest][1]:.1f} × the memory of {fastest} (allowed: 2)"
            elif tool == fastest:
                said += " (wanted: 3)"
            rows.append([f"{tool}, from {way}", seconds, memory, said])
    return rows


def trec_rows(folder: Path) -> list[list[Any]]:
    """`kbeval trec` and the command line of ir_measures on a run file of 100 MB."""
    make(folder, "large", 31_000, 100, 30)
    run, qrels = folder / "large.run", folder / "large.qrels"
    binaries = Path(sys.executable).parent
    commands = {
        "kbeval trec": [str(binaries / "kbeval"), "trec", str(qrels), str(run), "-m", "nDCG@10", "-m", "map"],
        "ir_measures": [str(binaries / "ir_measures"), str(qrels), str(run), "nDCG@10", "AP"],
    }
    seconds = {}
    for name, command in commands.items():
        times = []
        for _ in range(3):
            started = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - started)
        seconds[name] = min(times)
    size = f"{run.stat().st_size / 1e6:.0f} MB"
    ratio = seconds["ir_measures"] / seconds["kbeval trec"]
    return [
        [f"ir_measures, a run file of {size}", seconds["ir_measures"], "1"],
        [f"kbeval trec, a run file of {size}", seconds["kbeval trec"], f"{ratio:.1f} × faster (wanted: 5)"],
    ]


if __name__ == "__main__":
    main()
