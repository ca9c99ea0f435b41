"""Labels that no hit can match: `check` names them, in whatever form they are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbeval.cli import run as kbeval
from kbeval.explore.history import HistoryOptions, metric_history
from kbeval.scoring.aggregate import store_scored
from kbeval.systems.anchors import read_folder
from kbeval.systems.writing import write_runs
from tests.support.workspace import Workspace, hits


def codes(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    capsys.readouterr()
    kbeval(["check", "--db", str(workspace.db), "--golden", str(workspace.golden), "--format", "json"])
    return {one["code"]: one["examples"] for one in json.loads(capsys.readouterr().out)}


def failing(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> set[str]:
    kbeval(["check", "--db", str(workspace.db), "--golden", str(workspace.golden), "--format", "json"])
    return {one["code"] for one in json.loads(capsys.readouterr().out) if one["level"] == "finding"}


def test_spans_in_unknown_documents_and_beyond_the_end_are_named(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    place = {"kind": "line", "start": 3, "end": 4}
    workspace.add_golden(
        {"id": "good", "expected_spans": [{"path": "d.md", **place}]},
        {"id": "path", "expected_spans": [{"path": "nowhere.md", **place}]},
        {"id": "doc", "expected_spans": [{"doc_id": "unknown", **place}]},
        {"id": "far", "expected_spans": [{"doc_id": "d", "kind": "line", "start": 90000, "end": 90003}]},
    )
    workspace.add_document("d", "d.md")
    workspace.add_chunk("c", "d", [{"kind": "line", "start": 1, "end": 9}])
    workspace.add_run("run", {q: {"hits_top_k": hits("c", doc="d")} for q in ("good", "path", "doc", "far")})
    found = codes(workspace, capsys)["unmet-places"]
    assert [one.partition(",")[0] for one in found] == ["doc", "far", "path"]


def test_supports_spelt_otherwise_than_every_hit_are_named(
    tmp_path: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    hit = {"chunk_id": "1", "rel_path": "Area/Note.md", "heading_path": "# A", "rank": 1, "text": "x"}
    (folder / "results.jsonl").write_text(json.dumps({"test_case_id": "t", "answer": "x", "retrieved_chunks": [hit]}))
    write_runs(workspace.db, [read_folder(folder)])
    support = {"rel_path": "vault/Area/Note.md", "heading_path": "# A", "snippets": []}
    workspace.add_golden({"id": "t", "gold_supports": [support], "answerable": True})
    assert codes(workspace, capsys)["unmet-supports"] == ["vault/Area/Note.md (first t)"]
    support["rel_path"] = "Area/Note.md"
    workspace.add_golden({"id": "t", "gold_supports": [support], "answerable": True})
    assert "unmet-supports" not in codes(workspace, capsys)


def test_empty_supports_and_supports_without_snippets_are_named(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    support = {"rel_path": "Area/Note.md", "heading_path": "# A", "snippets": ["fifteen minutes"]}
    workspace.add_golden(
        {"id": "whole", "gold_supports": [support], "answerable": True},
        {"id": "bare", "gold_supports": [support, support | {"snippets": []}], "answerable": True},
        {"id": "file", "gold_supports": [{"rel_path": "Area/Note.md"}], "answerable": True},
        {"id": "empty", "gold_supports": [], "answerable": True},
        {"id": "unsaid", "gold_supports": []},
        # No support is what is to be expected of these.
        {"id": "no", "gold_supports": [], "answerable": False},
        {"id": "nowhere", "gold_supports": [], "expected_doc_ids": []},
    )
    workspace.add_run("run", {})
    found = codes(workspace, capsys)
    assert found["empty-supports"] == ["empty", "unsaid"]
    assert found["bare-supports"] == ["bare, support 1, Area/Note.md", "file, support 0, Area/Note.md (the whole file)"]
    assert found["unlabelled"] == ["unsaid"]
    # The second is a note: such supports are good labels.
    assert "bare-supports" not in failing(workspace, capsys)
    assert "empty-supports" in failing(workspace, capsys)


def test_empty_lists_are_not_labels(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.add_golden(
        {"id": "chunks", "expected_chunk_ids": []},
        {"id": "rules", "must_contain": [], "forbidden": [], "relevance": {}},
        # These say that the query should be refused.
        {"id": "docs", "expected_doc_ids": []},
        {"id": "no", "answerable": False},
    )
    workspace.add_run("run", {})
    assert codes(workspace, capsys)["unlabelled"] == ["chunks", "rules"]


def test_history_puts_no_change_where_a_configuration_cannot_be_read(workspace: Workspace) -> None:
    for day, config in enumerate(('{"retriever": "flat"}', "{broken", '{"retriever": "bm25"}'), start=1):
        workspace.add_run(f"r{day}", {}, created_at=f"2026-01-0{day}")
        workspace.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = ?", (config, f"r{day}"))
    found = metric_history("mrr", db=workspace.db)
    assert [list(point.config) for point in found.series[0].points] == [[], [], []]
    assert any("the configuration of 1 run cannot be read (r2)" in note for note in found.notes)


def test_history_says_where_the_matching_changed(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_document("d", "d.md")
    place = [{"kind": "line", "start": 1, "end": 9}]
    workspace.add_chunk("c", "d", place)
    workspace.add_run("by-id", {"q": {"hits_top_k": hits("c", doc="d")}}, created_at="2026-01-01")
    row = {"hits_top_k": [{"rank": 1, "doc_id": "d", "chunk_id": "n", "source_spans": place}]}
    workspace.add_run("by-span", {"q": row}, created_at="2026-01-02", chunker="md@2")
    store_scored(workspace.score(), db=workspace.db)
    found = metric_history("mrr", db=workspace.db, options=HistoryOptions())
    assert any("matched differently from the previous run: by-span (by span)" in note for note in found.notes)
    assert found.series[0].points[1].breaks == ()
