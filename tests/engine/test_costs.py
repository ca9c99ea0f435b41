"""The cost of fixed tasks, counted rather than timed: statements that DuckDB plans, and passes over the stored rows.

Small databases spend nearly all of their time on planning, large ones on reading. If one of these numbers has to grow,
there should be a reason; if it shrinks, lower it here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kbeval
from kbeval.database import streams
from kbeval.engine.session import Session
from kbeval.scoring.incremental import due_runs, rescore
from kbeval.scoring.options import ScoreOptions
from tests.support.workspace import Workspace, hits


@dataclass
class Costs:
    """What was counted since the last `reset`."""

    statements: int = 0
    # How often rows with hits were read, and how many batches of them there were.
    passes: int = 0
    batches: int = 0
    seen: list[str] = field(default_factory=list)

    def reset(self) -> None:
        self.statements = self.passes = self.batches = 0
        self.seen.clear()


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Costs:
    found = Costs()

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(session: Session, sql: str, *arguments: Any) -> Any:
            found.statements += 1
            found.seen.append(" ".join(sql.split())[:60])
            return method(session, sql, *arguments)

        return call

    for name in ("execute", "rows", "frame"):
        monkeypatch.setattr(Session, name, counting(getattr(Session, name)))
    reading = streams._Reader._next

    def read(reader: Any) -> Any:
        if "result_json" in reader.relation.sql:
            found.passes += not reader._is_started
            found.batches += 1
        return reading(reader)

    monkeypatch.setattr(streams._Reader, "_next", read)
    return found


def score_all(db: Path, golden: Path) -> None:
    options = ScoreOptions(cache="off")
    due = due_runs(db, golden, options)
    rescore(db, due, options, lambda scored: kbeval.store_scored(scored, db=db))


def check(costs: Costs, statements: int, passes: int) -> None:
    assert costs.passes <= passes, "\n".join(costs.seen)
    assert costs.statements <= statements, "\n".join(costs.seen)
    # So that the numbers below stay close to the actual ones.
    assert costs.statements > statements * 0.85, f"only {costs.statements} statements: lower the limit"


def test_one_run_matched_by_ids(tmp_path: Path, costs: Costs) -> None:
    workspace = Workspace(tmp_path)
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c1"], "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q1": {"hits_top_k": hits("c1", "c2"), "answer": {"answer": "x", "grounded": True}}})
    score_all(workspace.db, workspace.golden)
    check(costs, statements=91, passes=1)


def test_runs_of_two_chunkers_matched_by_spans(own_demo: Path, costs: Costs) -> None:
    db, golden = own_demo / "kb.db", own_demo / "golden.yaml"
    kbeval.score_runs(db, golden, None, ScoreOptions(cache="off"), to_store=True)
    # Once to read the rows, and once more to see where their hits are.
    check(costs, statements=145, passes=2)


def test_nothing_changed(own_demo: Path, costs: Costs) -> None:
    """The rows are read once, to see that they are the same, and nothing is scored."""
    score_all(own_demo / "kb.db", own_demo / "golden.yaml")
    costs.reset()
    score_all(own_demo / "kb.db", own_demo / "golden.yaml")
    check(costs, statements=24, passes=1)


def test_rows_are_read_in_few_batches(tmp_path: Path, costs: Costs) -> None:
    workspace = Workspace(tmp_path)
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c1"]} for n in range(640)))
    workspace.add_run("run", {f"q{n}": {"hits_top_k": hits("c1")} for n in range(640)})
    kbeval.score_runs(workspace.db, workspace.golden, None, ScoreOptions(cache="off"))
    # Batches of 256 rows, and the answer that there are no more.
    assert (costs.passes, costs.batches) == (1, 4)


def test_comparing_two_runs_by_ids(own_demo: Path, costs: Costs) -> None:
    db, golden = own_demo / "kb.db", own_demo / "golden.yaml"
    kbeval.compare_runs("2026-03-01-baseline", "2026-03-02-words", db=db, golden=golden)
    check(costs, statements=129, passes=1)


def test_comparing_two_runs_by_spans(own_demo: Path, costs: Costs) -> None:
    db, golden = own_demo / "kb.db", own_demo / "golden.yaml"
    kbeval.compare_runs("2026-03-03-bm25", "2026-03-04-rechunked", db=db, golden=golden)
    check(costs, statements=153, passes=2)
