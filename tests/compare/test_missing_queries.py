"""Queries that a run was never asked: with `--missing zero` the tests rest on the same queries as A, B and delta."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest

import kbeval
from kbeval.compare.gates import check_gates
from kbeval.compare.options import CompareOptions
from kbeval.scoring.options import ScoreOptions
from tests.support.workspace import Workspace

ZERO = CompareOptions(scoring=ScoreOptions(missing="zero"), only=("hit@5", "mrr"))


def mid_p(losses: int, wins: int) -> float:
    """The two-sided mid-p of a sign test, by hand."""
    n, k = losses + wins, min(losses, wins)
    below = sum(comb(n, i) for i in range(k))
    return float(min(Fraction(1), 2 * Fraction(2 * below + comb(n, k), 2 ** (n + 1))))


@pytest.fixture
def half(workspace: Workspace) -> Workspace:
    """Run b is a copy of run a without half of its rows; every fourth is a miss; two were never asked."""
    ids = [f"q{n:02}" for n in range(42)]
    workspace.add_golden(*({"id": q, "expected_chunk_ids": ["c"], "category": f"c{n % 2}"} for n, q in enumerate(ids)))
    rows = {q: {"hits_top_k": [{"rank": 1, "chunk_id": "c" if n % 4 else "x"}]} for n, q in enumerate(ids[:40])}
    workspace.add_run("a", rows)
    workspace.add_run("b", dict(list(rows.items())[:20]))
    return workspace


def test_missing_queries_that_count_as_zero_are_tested_as_zero(half: Workspace) -> None:
    report = kbeval.compare_runs("a", "b", db=half.db, golden=half.golden, options=ZERO)
    found = report.whole.significance["hit_at_k.5"]
    assert (found.n, found.changed) == (42, 15)
    assert found.mean_delta == -0.3571
    assert found.low is not None
    assert found.high is not None
    # The delta that is shown lies within its own interval.
    assert found.low < report.to_dict()["deltas"]["hit_at_k"]["5"] < found.high < 0
    assert found.p == pytest.approx(mid_p(15, 0), abs=1e-4)
    assert set(report.verdict.worse) == {"hit_at_k.5", "mrr"}
    assert not any("A, B and delta are each over" in warning for warning in report.warnings)


def test_a_gate_fails_on_queries_that_count_as_zero(half: Workspace) -> None:
    table = {"baseline": "a", "not_worse": True}
    report = check_gates("b", table, db=half.db, golden=half.golden, options=ZERO)
    assert not report.passed


def test_each_slice_is_tested_over_its_missing_queries(half: Workspace) -> None:
    options = CompareOptions(scoring=ScoreOptions(missing="zero", by="category"), only=("hit@5",))
    report = kbeval.compare_runs("a", "b", db=half.db, golden=half.golden, options=options)
    assert {name: part.significance["hit_at_k.5"].n for name, part in report.slices.items()} == {"c0": 21, "c1": 21}


def test_missing_queries_that_are_left_out_are_not_tested_with_a_warning(half: Workspace) -> None:
    options = CompareOptions(only=("hit@5", "mrr"))
    report = kbeval.compare_runs("a", "b", db=half.db, golden=half.golden, options=options)
    assert report.whole.significance["hit_at_k.5"].n == 20
    assert any("20 queries in one run only" in warning for warning in report.warnings)
