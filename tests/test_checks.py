from __future__ import annotations

import pytest

from kbeval.checks import check_workspace
from kbeval.golden import load_golden
from kbeval.scoring import open_scoring
from tests.workspace import Workspace, hits


def findings(workspace: Workspace) -> dict[str, tuple[int, tuple[str, ...], str]]:
    golden = load_golden(workspace.golden, groups_must_agree=False)
    with open_scoring(workspace.db, golden) as scoring:
        return {f.kind: (f.count, f.examples, f.advice) for f in check_workspace(scoring)}


@pytest.fixture
def healthy(workspace: Workspace) -> Workspace:
    workspace.add_document("d1", "d1.md")
    workspace.add_chunk("c", "d1", [])
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"], "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c", None)}})
    return workspace


def test_a_healthy_workspace_has_no_findings(healthy: Workspace) -> None:
    assert findings(healthy) == {}


def test_ids_that_nothing_knows_are_counted_with_examples(healthy: Workspace) -> None:
    healthy.add_golden({"id": "q", "expected_chunk_ids": ["c", "c2", "gone"], "expected_doc_ids": ["d1", "d9"]})
    healthy.add_chunk("c2", "d1", [])
    found = findings(healthy)
    assert found["unknown expected chunks"][:2] == (1, ("gone",))
    assert found["unknown expected documents"][:2] == (1, ("d9",))


def test_where_most_ids_are_unknown_another_chunker_is_suspected(healthy: Workspace) -> None:
    healthy.add_golden({"id": "q", "expected_chunk_ids": ["x1", "x2", "x3", "x4"]})
    count, examples, advice = findings(healthy)["unknown expected chunks"]
    assert (count, examples) == (4, ("x1", "x2", "x3"))
    assert "another chunker version than md@1" in advice


def test_ids_that_only_older_runs_know_are_told_apart(healthy: Workspace) -> None:
    healthy.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    healthy.add_run("older", {"q": {"hits_top_k": hits("old")}}, chunker="md@0")
    count, examples, advice = findings(healthy)["expected chunks of an earlier chunker"]
    assert (count, examples) == (1, ("old",))
    assert "md@0" in advice
    assert "md@1" in advice


def test_runs_made_with_another_chunker_than_the_labels_are_named(healthy: Workspace) -> None:
    healthy.add_run("new", {"q": {"hits_top_k": hits("n1")}}, chunker="md@2")
    assert findings(healthy)["runs made with another chunker than the labels"][1] == ("new (md@2; labels: md@1)",)


def test_queries_without_labels_rows_without_queries_and_queries_without_rows(healthy: Workspace) -> None:
    healthy.add_golden({"id": "q", "expected_chunk_ids": ["c"]}, {"id": "bare"})
    healthy.add_run("other", {"q": {"hits_top_k": hits("c")}, "stray": {}})
    found = findings(healthy)
    assert found["unlabelled queries"][:2] == (1, ("bare",))
    assert found["rows without a golden query"][:2] == (1, ("other stray",))
    assert found["golden queries without a row"][:2] == (2, ("other bare", "run bare"))


def test_repeated_hits_and_ranks_with_gaps(healthy: Workspace) -> None:
    ranking = [{"rank": 1, "chunk_id": "c"}, {"rank": 2, "chunk_id": "c"}, {"rank": 5, "chunk_id": "x"}]
    healthy.add_run("odd", {"q": {"hits_top_k": ranking}})
    found = findings(healthy)
    assert found["repeated hits"][:2] == (1, ("odd q: c",))
    assert found["ranks with gaps"][:2] == (1, ("odd q: ranks to 5 in 3 hits",))


def test_unreadable_rows_and_groups_that_disagree(healthy: Workspace) -> None:
    healthy.add_golden(
        {"id": "q", "expected_chunk_ids": ["c"], "expected_doc_ids": ["d1"], "group": "g"},
        {"id": "r", "expected_doc_ids": [], "group": "g"},
    )
    healthy.add_run("broken", {"q": "{", "r": {}})
    found = findings(healthy)
    assert found["unreadable rows"][:2] == (1, ("broken q: is not valid JSON",))
    assert found["groups that disagree"][0] == 1
