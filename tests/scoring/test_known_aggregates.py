"""The numbers of known data stay the same bytes, whatever is rebuilt around them.

`python -m tests.scoring.test_known_aggregates` rewrites the file of known numbers: only after a change that is meant to
change numbers, and that the oracles confirm.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kbeval
from kbeval.cli import run
from kbeval.demo import make_demo
from tests.bench.data import make_database

FIXTURES = Path(__file__).parents[2] / "fixtures"
KNOWN = FIXTURES / "eval" / "aggregates.json"
SLICED = kbeval.ScoreOptions(by="category", extra_ks=(2,))


def workspaces(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Databases of every kind, each with its golden file."""
    yield "demo", make_demo(folder / "demo"), folder / "demo" / "golden.yaml"
    history, golden = make_database(folder / "history", runs=4, queries=80, hits=12, chunkers=("md@1", "md@2"))
    yield "history", history, golden
    anchors = folder / "anchors.db"
    assert run(["import", "anchors", str(FIXTURES / "anchors" / "2026-03-05-hybrid"), "--db", str(anchors)]) == 0
    yield "anchors", anchors, FIXTURES / "anchors" / "golden.yaml"
    traces = folder / "traces.db"
    trace = str(FIXTURES / "grounded" / "trace.jsonl")
    assert run(["import", "grounded", trace, "--run-id", "traces", "--db", str(traces)]) == 0
    yield "traces", traces, FIXTURES / "grounded" / "gold.jsonl"


def aggregates(folder: Path) -> str:
    """Every number of every run and slice, without where it comes from."""
    found: dict[str, object] = {}
    for name, database, golden in workspaces(folder):
        scored = kbeval.score_runs(database, golden, options=SLICED)
        for run_id, whole in scored.aggregates.items():
            for slice_name, aggregate in (("all", whole), *sorted(scored.slices.get(run_id, {}).items())):
                aggregate.provenance = {}
                found[f"{name}/{run_id}/{slice_name}"] = aggregate.to_dict()
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_known_data_gives_the_same_bytes(tmp_path: Path) -> None:
    assert aggregates(tmp_path) == KNOWN.read_text(encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        KNOWN.write_text(aggregates(Path(scratch)), encoding="utf-8")
