"""The same numbers as other people's implementations, over random runs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.workspace import Workspace

pytrec_eval = pytest.importorskip("pytrec_eval")
ir_measures = pytest.importorskip("ir_measures")


def random_run(workspace: Workspace, seed: int) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """A run in the database, and the same as qrels and run dictionaries."""
    source = random.Random(seed)
    qrels: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    rows: dict[str, Any] = {}
    for number in range(200):
        query = f"q{number}"
        relevant = source.sample(range(40), source.randint(1, 6))
        ranking = source.sample(range(40), source.randint(1, 20))
        qrels[query] = {f"c{chunk}": 1 for chunk in relevant}
        run[query] = {f"c{chunk}": float(100 - rank) for rank, chunk in enumerate(ranking)}
        rows[query] = {"hits_top_k": [{"rank": r, "chunk_id": f"c{c}"} for r, c in enumerate(ranking, start=1)]}
    workspace.golden.write_text(
        json.dumps([{"id": q, "query": "?", "expected_chunk_ids": list(found)} for q, found in qrels.items()])
    )
    workspace.add_run("run", rows)
    return qrels, run


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hits_and_precision_agree_with_pytrec_eval(tmp_path: Path, seed: int) -> None:
    workspace = Workspace(tmp_path)
    qrels, run = random_run(workspace, seed)
    found = workspace.aggregate()
    peer = pytrec_eval.RelevanceEvaluator(qrels, {"success.1,3,5,10", "P.1,3,5,10"}).evaluate(run)
    for k in (1, 3, 5, 10):
        assert found["hit_at_k"][str(k)] == pytest.approx(mean(peer, f"success_{k}"), abs=5.1e-5)
        assert found["precision_at_k_chunk"][str(k)] == pytest.approx(mean(peer, f"P_{k}"), abs=5.1e-5)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mrr_agrees_with_ir_measures(tmp_path: Path, seed: int) -> None:
    workspace = Workspace(tmp_path)
    qrels, run = random_run(workspace, seed)
    peer = ir_measures.calc_aggregate([ir_measures.RR @ 10], qrels, run)[ir_measures.RR @ 10]
    assert workspace.aggregate()["mrr"] == pytest.approx(peer, abs=5.1e-5)


def mean(per_query: dict[str, dict[str, float]], measure: str) -> float:
    return sum(values[measure] for values in per_query.values()) / len(per_query)
