"""Archives of other systems' runs, of databases that are unlike others, and of invented ones: the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.cli import run
from kbeval.golden import load_golden
from kbeval.storage.archive_writer import archive_runs
from tests.scoring.test_scoring_against_oracle import CHUNKS, ENTRIES, QUERY_IDS, ROWS, build
from tests.support.archives import FIXTURES, Pair, contents, said
from tests.support.examples import scorings
from tests.support.workspace import Workspace


def imported(tmp_path: Path, *arguments: str, golden: Path) -> Pair:
    database = tmp_path / "other.db"
    assert run(["import", *arguments, "--db", str(database)]) == 0
    return Pair(database, golden)


def test_anchor_runs_are_scored_and_exported_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, golden = FIXTURES / "anchors" / "2026-03-05-hybrid", FIXTURES / "anchors" / "golden.yaml"
    pair = imported(tmp_path, "anchors", str(folder), golden=golden)
    for more in (["score", "--all"], ["show", "latest", "--format", "json"], ["show", "latest", "--worst", "3"]):
        of_database, of_archive = pair.ask_both(capfd, *more, "--golden", str(golden))
        assert of_archive == of_database
        assert "support" in of_database[1] or more[0] != "show" or "--worst" in more
    for name, database in (("a", pair.database), ("b", pair.archive)):
        assert said(capfd, database, "export", "anchors", "latest", str(tmp_path / name), "--full-text")[0] == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert len(contents(tmp_path / "a")) == 4


def test_anchor_supports_of_runs_that_were_not_imported_are_the_same_too(
    workspace: Workspace, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their rows are not parsed for it when they are archived, but when labels ask."""
    support = {"rel_path": "a.md", "heading_path": "# A", "snippets": ["x"]}
    workspace.add_golden({"id": "q", "gold_supports": [support], "required_support_groups": [[0]]})
    hit = {"chunk_id": "c", "doc_path": "a.md", "heading_path": ["A", "B"], "snippet": "a x b"}
    workspace.add_run("run", {"q": {"hits_top_k": [hit]}})
    pair = Pair(workspace.db, workspace.golden)
    of_database, of_archive = pair.ask_both(
        capfd, "score", "run", "--dry-run", "--golden", str(workspace.golden), "--format", "json"
    )
    assert of_archive == of_database
    assert json.loads(of_archive[1])[0]["aggregate"]["support_mrr"] == 1.0


def test_grounded_runs_are_scored_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gold, trace = FIXTURES / "grounded" / "gold.jsonl", FIXTURES / "grounded" / "trace.jsonl"
    pair = imported(tmp_path, "grounded", str(trace), "--run-id", "monday", golden=gold)
    of_database, of_archive = pair.ask_both(capfd, "score", "--all", "--format", "json", "--golden", str(gold))
    assert of_archive == of_database
    assert json.loads(of_archive[1])[0]["aggregate"]["answered"] > 0


ODD_SCHEMA = """
    CREATE TABLE eval_runs (run_id TEXT PRIMARY KEY, suite, config_snapshot_json BLOB, aggregate_json, created_at,
                            note TEXT);
    CREATE TABLE eval_query_results (run_id TEXT, query_id, result_json BLOB, extra INTEGER) {without};
"""


@pytest.mark.parametrize("kind", ["no rowid", "odd types", "repeated rows", "no runs", "no chunks"])
def test_databases_that_are_unlike_others_give_the_same(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace.__new__(Workspace)
    workspace.db, workspace.golden = tmp_path / "odd.db", tmp_path / "golden.json"
    without = ", PRIMARY KEY (run_id, query_id)) WITHOUT ROWID" if kind == "no rowid" else ")"
    workspace.execute_script(ODD_SCHEMA.replace(") {without}", without))
    workspace.add_golden({"id": "7", "expected_chunk_ids": ["c"]}, {"id": "q", "expected_doc_ids": ["d"]})
    row = json.dumps({"hits_top_k": [{"chunk_id": "c", "doc_id": "d"}]}).encode()
    if kind != "no runs":
        workspace.execute(
            "INSERT INTO eval_runs VALUES ('a', 7, X'7B7D', NULL, 20260101, 'x'), ('b', NULL, '{}', '', 2, '')"
        )
        for run_id in "ab":
            workspace.execute(
                "INSERT INTO eval_query_results VALUES (?, 7, ?, 1), (?, 'q', '[', 2)", (run_id, row, run_id)
            )
    if kind == "repeated rows":
        workspace.execute("INSERT INTO eval_query_results SELECT * FROM eval_query_results")
    pair = Pair(workspace.db, workspace.golden)
    for command in (
        "score --all --dry-run --skip-bad-rows --format json",
        "check --format json",
        "runs",
        "history mrr",
    ):
        golden = ["--golden", str(workspace.golden)] if command.split()[0] in ("score", "check") else []
        of_database, of_archive = pair.ask_both(capfd, *command.split(), *golden)
        assert of_archive == of_database
        assert "should not" not in of_database[2]


@pytest.mark.slow
@scorings(3)
@given(
    golden=st.dictionaries(st.sampled_from(QUERY_IDS), ENTRIES, min_size=1),
    runs=st.lists(st.dictionaries(st.sampled_from([*QUERY_IDS, "unknown"]), ROWS, max_size=8), min_size=3, max_size=9),
    chunks=CHUNKS,
)
def test_invented_workspaces_score_the_same_from_their_archives(
    golden: dict[str, Any], runs: list[dict[str, Any]], chunks: list[dict[str, Any]]
) -> None:
    entries = [{"id": query_id, **entry} for query_id, entry in golden.items()]
    with TemporaryDirectory() as name:
        workspace = build(Path(name), "a.db", entries, runs, chunks)
        archive_runs(workspace.db, Path(name) / "history", load_golden(workspace.golden))
        (labels,) = (Path(name) / "history").glob("golden-*.parquet")
        choices: tuple[dict[str, Any], ...] = ({}, {"match": "span", "missing": "zero", "threads": 1})
        for options in choices:
            expected = workspace.score(**options)
            from_archive = Workspace.__new__(Workspace)
            from_archive.db, from_archive.golden = Path(name) / "history", labels
            found = from_archive.score(**options)
            assert [a.to_json() for a in found.aggregates.values()] == [
                a.to_json() for a in expected.aggregates.values()
            ]
            assert sorted(map(str, found.bad_rows)) == sorted(map(str, expected.bad_rows))
