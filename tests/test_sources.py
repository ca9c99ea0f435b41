"""Databases as they come: tables missing, columns added, other kinds of tables."""

from __future__ import annotations

from pathlib import Path

import pytest

import kbeval
from kbeval.errors import DatabaseError
from kbeval.sources.sqlite import stored_runs
from tests.workspace import Workspace, hits


@pytest.fixture
def one_run(workspace: Workspace) -> Workspace:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    return workspace


def test_optional_tables_may_be_missing(one_run: Workspace) -> None:
    one_run.execute("DROP TABLE chunks")
    one_run.execute("DROP TABLE documents")
    assert one_run.aggregate()["mrr"] == 1.0


def test_more_columns_than_these_are_no_trouble(one_run: Workspace) -> None:
    for table in ("eval_runs", "eval_query_results", "chunks", "documents"):
        one_run.execute(f"ALTER TABLE {table} ADD COLUMN more BLOB")
    assert one_run.aggregate()["mrr"] == 1.0


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE eval_query_results (run_id, query_id, result_json, PRIMARY KEY (run_id, query_id)) WITHOUT ROWID",
        "CREATE TABLE eval_query_results (run_id VARCHAR(10), query_id ANY, result_json JSON)",
        "CREATE VIEW eval_query_results AS SELECT run_id, query_id, result_json FROM old",
    ],
)
def test_other_kinds_of_tables_score_the_same(one_run: Workspace, definition: str) -> None:
    before = one_run.aggregate()
    one_run.execute("CREATE TABLE old AS SELECT * FROM eval_query_results")
    one_run.execute("DROP TABLE eval_query_results")
    one_run.execute(definition)
    if "TABLE" in definition:
        one_run.execute("INSERT INTO eval_query_results SELECT * FROM old")
    assert one_run.aggregate() == before


def test_a_missing_column_is_named(one_run: Workspace) -> None:
    one_run.execute("ALTER TABLE chunks RENAME COLUMN source_spans_json TO spans")
    with pytest.raises(DatabaseError, match="table 'chunks' has no column 'source_spans_json'"):
        one_run.score()


def test_chunks_with_broken_spans_are_chunks_without_spans(one_run: Workspace) -> None:
    one_run.execute("INSERT INTO chunks VALUES ('c9', 'd', '', '', '', 'broken', 1, 'v', '', '', '')")
    assert one_run.aggregate()["mrr"] == 1.0


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b", "o'hara", 'q"uote', "new\nline", "ünï", "x" * 500, "-x", "%s"]
)
def test_run_ids_are_text_and_nothing_else(one_run: Workspace, name: str) -> None:
    one_run.add_run(name, {"q": {"hits_top_k": hits(None, "c")}})
    found = kbeval.compute_aggregate(name, db=one_run.db, golden=one_run.golden)
    assert found.mrr == 0.5
    kbeval.store_aggregate(name, found, db=one_run.db)
    assert one_run.stored(name) == found.to_json()
    assert one_run.stored("run") == ""


def test_a_path_with_odd_characters_is_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c#d%20&e"
    folder.mkdir()
    workspace = Workspace(folder)
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    aggregate = kbeval.compute_aggregate("run", db=workspace.db, golden=workspace.golden)
    kbeval.store_aggregate("run", aggregate, db=workspace.db)
    assert workspace.stored() == aggregate.to_json()


def test_runs_come_oldest_first_with_what_is_stored(one_run: Workspace) -> None:
    one_run.add_run("newer", {}, created_at="2027-01-01")
    one_run.add_run("older", {}, created_at="2025-01-01")
    assert [(run.run_id, run.rows) for run in stored_runs(one_run.db)] == [("older", 0), ("run", 1), ("newer", 0)]
    assert stored_runs(one_run.db)[0].aggregate() is None


def test_a_damaged_file_is_an_error_not_a_traceback(one_run: Workspace) -> None:
    for number in range(200):
        one_run.add_run(f"r{number}", {"q": {"hits_top_k": hits("c" * 3000)}})
    data = bytearray(one_run.db.read_bytes())
    data[20000:-5000] = b"\xaa" * (len(data) - 25000)
    one_run.db.write_bytes(data)
    with pytest.raises(kbeval.KbevalError, match="cannot be read"):
        one_run.score()


def test_scoring_leaves_other_tables_and_columns_alone(one_run: Workspace) -> None:
    before = one_run.execute("SELECT * FROM eval_query_results"), one_run.execute("SELECT sql FROM sqlite_master")
    aggregate = kbeval.compute_aggregate("run", db=one_run.db, golden=one_run.golden)
    kbeval.store_aggregate("run", aggregate, db=one_run.db)
    assert (
        one_run.execute("SELECT * FROM eval_query_results"),
        one_run.execute("SELECT sql FROM sqlite_master"),
    ) == before
