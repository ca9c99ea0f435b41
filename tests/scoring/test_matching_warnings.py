"""Runs whose hits share no id with the labels are named, and only those."""

from __future__ import annotations

from tests.support.workspace import Workspace, hits


def told(workspace: Workspace) -> list[str]:
    return [warning for warning in workspace.score().warnings if "no hit is an expected chunk" in warning]


def test_a_run_that_shares_no_id_with_labels_that_nothing_knows_is_named(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old-1"]}, {"id": "r", "expected_chunk_ids": ["old-2"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("new-1")}, "r": {"hits_top_k": hits("new-2")}})
    # It found one of the two, so that its other miss is a miss.
    workspace.add_run("other", {"q": {"hits_top_k": hits("old-1")}, "r": {"hits_top_k": hits("new-2")}})
    (warning,) = told(workspace)
    assert warning.startswith("run run: ")
    assert "hits have names like 'new-1', labels like 'old-1'" in warning


def test_a_run_that_missed_chunks_of_the_index_is_not(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c1"]})
    workspace.add_chunk("c1", "d1", [])
    workspace.add_chunk("c2", "d1", [])
    workspace.add_run("run", {"q": {"hits_top_k": hits("c2")}})
    assert told(workspace) == []
