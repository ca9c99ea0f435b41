"""Rows that cannot be read: each is named, and none is guessed at."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kbeval
from kbeval.errors import BadRowsError
from tests.support.workspace import Workspace, hits

GOOD = {"hits_top_k": hits("c")}


def workspace_with(workspace: Workspace, row: Any) -> Workspace:
    workspace.add_golden({"id": "good", "expected_chunk_ids": ["c"]}, {"id": "bad", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {"good": GOOD, "bad": row})
    return workspace


BROKEN: list[tuple[Any, str]] = [
    ("{not json", "is not valid JSON"),
    ("", "is not valid JSON"),
    ('{"hits_top_k": []} trailing', "is not valid JSON"),
    ('{"query": "\\ud800"}', "is not valid JSON"),
    ({"hits_top_k": [{"chunk_id": "c", "score": float("nan")}]}, "NaN and Infinity are not numbers in JSON"),
    ('{"hits_top_k": [],}', "a comma stands before a closing bracket"),
    ('{"hits_top_k": [{"rank": 1, "chunk_id": "c", "rank": 2}]}', "has a duplicate key in an object"),
    ('{"elapsed_ms": 1e999}', "contains a number that is too large"),
    ("null", "is null"),
    ("[1, 2]", "is array, not an object"),
    ("5", "not an object"),
    ('"text"', "is varchar, not an object"),
    ({"hits_top_k": "c1"}, "hits_top_k is not a list"),
    ({"hits_top_k": {"c1": 1}}, "hits_top_k is not a list"),
    ({"hits_top_k": ["c1"]}, "hit 1: it has no rank"),
    ({"hits_top_k": [{"chunk_id": "c"}, None]}, "hit 2: it has no rank"),
    ({"hits_top_k": [{"rank": 0, "chunk_id": "c"}]}, "hit 1: rank is 0, not a whole number from 1"),
    ({"hits_top_k": [{"rank": -3, "chunk_id": "c"}]}, "rank is -3"),
    ({"hits_top_k": [{"rank": 1.5, "chunk_id": "c"}]}, "rank is 1.5"),
    ({"hits_top_k": [{"rank": "1", "chunk_id": "c"}]}, 'rank is "1"'),
    ({"hits_top_k": [{"rank": True, "chunk_id": "c"}]}, "rank is true"),
    ({"hits_top_k": [{"rank": 10**30, "chunk_id": "c"}]}, "not a whole number from 1"),
    ({"hits_top_k": [{"rank": 1, "chunk_id": ["c"]}]}, "chunk_id is not text"),
    ({"hits_top_k": [{"rank": 1, "doc_id": {"d": 1}}]}, "doc_id is not text"),
    ({"answer": "text"}, "answer is not an object"),
    ({"answer": ["text"]}, "answer is not an object"),
    ({"answer": {"answer": ["text"]}}, "answer.answer is not text"),
    ({"answer": {"answer": "text", "grounded": "yes"}}, "answer.grounded is not true or false"),
    ({"answer": {"answer": "text", "grounded": 1}}, "answer.grounded is not true or false"),
    ({"answer": {"answer": "text", "citations": "c1"}}, "answer.citations is not a list"),
    ({"elapsed_ms": "fast"}, "elapsed_ms is not a number"),
    ({"abstained": "no"}, "abstained is not true or false"),
]
HONEST: list[dict[str, Any]] = [
    {},
    {"hits_top_k": None, "answer": None, "error": None},
    {"hits_top_k": [], "answer": {}},
    {"hits_top_k": [{"chunk_id": "[bracket"}, {"chunk_id": "{brace"}, {"chunk_id": "[12]"}]},
    {"hits_top_k": [{"chunk_id": 7, "rank": 1.0}]},
    {"answer": {"answer": "[1] a list", "grounded": None, "citations": None}},
    {"answer": {"answer": '{"json": "in text"}'}},
    {"answer": {"citations": [{}, {"citation": None}]}},
    {"extra": {"deep": [[[{}]]]}},
]


def test_each_broken_row_names_its_run_its_query_and_its_fault_and_honest_ones_are_read(workspace: Workspace) -> None:
    """A run for each row, all scored at once."""
    workspace_with(workspace, GOOD)
    for number, (row, _) in enumerate(BROKEN):
        workspace.add_run(f"broken{number}", {"good": GOOD, "bad": row})
    for number, odd in enumerate(HONEST):
        workspace.add_run(f"honest{number}", {"good": GOOD, "bad": json.dumps(odd)})
    found = {row.run_id: str(row) for row in workspace.score().bad_rows}
    assert [name for name in found if not name.startswith("broken")] == []
    for number, (row, fault) in enumerate(BROKEN):
        said = found.get(f"broken{number}", "nothing")
        assert said.startswith(f"run broken{number}, query bad: "), row
        assert fault in said, row


def test_a_broken_row_is_an_error_with_its_fault_where_its_run_alone_is_asked_for(workspace: Workspace) -> None:
    workspace_with(workspace, {"hits_top_k": "c1"})
    with pytest.raises(BadRowsError) as caught:
        kbeval.compute_aggregate("run", db=workspace.db, golden=workspace.golden)
    assert caught.value.faults == ["run run, query bad: hits_top_k is not a list"]


def test_skipped_bad_rows_count_as_failed_queries(workspace: Workspace) -> None:
    workspace_with(workspace, "{not json")
    found = kbeval.compute_aggregate("run", db=workspace.db, golden=workspace.golden, skip_bad_rows=True)
    assert (found.total_queries, found.failed_queries, found.empty_result_rate, found.mrr) == (2, 1, 0.5, 0.5)
    assert found.ledger["unreadable"] == 1


def test_text_that_is_not_utf8_is_a_bad_row_not_a_crash(workspace: Workspace) -> None:
    workspace_with(workspace, GOOD)
    workspace.execute("UPDATE eval_query_results SET result_json = CAST(x'7b22ff' AS TEXT) WHERE query_id = 'bad'")
    assert [row.fault for row in workspace.score("run").bad_rows] == ["is not valid JSON"]


def test_a_number_or_a_blob_where_text_should_be_is_a_bad_row(workspace: Workspace) -> None:
    workspace_with(workspace, GOOD)
    workspace.execute("UPDATE eval_query_results SET result_json = x'00ff' WHERE query_id = 'bad'")
    assert len(workspace.score("run").bad_rows) == 1
