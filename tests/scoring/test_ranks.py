"""Duplicate ranks in a ranking: each hit takes a rank of its own, with a warning."""

from __future__ import annotations

import pytest

from kbeval.cli import run as kbeval
from tests.support.workspace import Workspace


def ranking(*ranks: int | None, chunks: str = "cdefghij") -> list[dict[str, object]]:
    """Hits with these ranks; the first one is expected."""
    return [
        {"chunk_id": chunk, "doc_id": "d", **({} if rank is None else {"rank": rank})}
        for rank, chunk in zip(ranks, chunks, strict=False)
    ]


PLACES: list[tuple[tuple[int | None, ...], tuple[int, ...]]] = [
    ((1, 1, 1), (1, 2, 3)),
    ((1, 1, 1, 2, 7), (1, 2, 3, 4, 7)),
    ((7, 1, 7, 3), (7, 1, 8, 3)),
    ((2, 2, 5), (2, 3, 5)),
    ((3, 3, 4, 4), (3, 4, 5, 6)),
    ((5, 3, 9), (5, 3, 9)),
    ((None, 1, None), (1, 2, 3)),
    # No rank is free above the largest integer.
    ((2**63 - 1, 2**63 - 1), (2**63 - 2, 2**63 - 1)),
    ((1, 1, 2**63 - 2, 2**63 - 1, 2**63 - 1), (1, 2, 2**63 - 3, 2**63 - 2, 2**63 - 1)),
]


def test_each_hit_takes_its_rank_or_the_next_place_that_is_free(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    for number, (stored, _) in enumerate(PLACES):
        workspace.add_run(f"run{number}", {"q": {"hits_top_k": ranking(*stored)}})
    sql = "SELECT run_id, rank, stored_rank FROM hits JOIN results USING (result_no) ORDER BY run_id, position"
    assert kbeval(["sql", sql, "--db", str(workspace.db), "--format", "csv"]) == 0
    found = [line.split(",") for line in capsys.readouterr().out.split()[1:]]
    for number, (stored, places) in enumerate(PLACES):
        of_run = [(int(rank), int(stored_rank)) for run, rank, stored_rank in found if run == f"run{number}"]
        assert [rank for rank, _ in of_run] == list(places), stored
        assert [rank for _, rank in of_run] == [rank or place for place, rank in enumerate(stored, start=1)], stored


def test_no_precision_exceeds_one(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c", "d", "e"], "expected_doc_ids": ["d"]})
    workspace.add_run("run", {"q": {"hits_top_k": ranking(1, 1, 1)}})
    found = workspace.aggregate()
    assert found["precision_at_k_chunk"] == {"1": 1.0, "3": 1.0, "5": 0.6, "10": 0.3}
    assert found["recall_at_k_chunk"] == {"1": 0.3333, "3": 1.0, "5": 1.0, "10": 1.0}


def test_repeated_ranks_are_a_finding_and_a_warning(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.add_golden(*({"id": query, "expected_chunk_ids": ["c"]} for query in "qr"))
    workspace.add_run("run", {"q": {"hits_top_k": ranking(1, 2, 2)}, "r": {"hits_top_k": ranking(1, 2, 3)}})
    (said,) = workspace.score("run").warnings
    assert said.startswith("run run: 1 ranking with repeated ranks, first of query q: hits are ordered by rank")
    assert kbeval(["check", "--db", str(workspace.db), "--golden", str(workspace.golden)]) == 1
    out = capsys.readouterr().out
    assert "[repeated-rank]" in out
    assert "run q: rank 2" in out
    assert "[rank-gap]" not in out


def test_repeated_ranks_of_cached_rows_are_a_warning_next_to_new_rows_without_any(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("a", {"q": {"hits_top_k": ranking(1, 2, 2)}})
    workspace.score(cache="on")
    workspace.add_run("b", {"q": {"hits_top_k": ranking(1, 2, 3)}})
    (said,) = workspace.score(cache="on").warnings
    assert said.startswith("run a: 1 ranking with repeated ranks")
