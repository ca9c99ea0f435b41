"""How to score is said once, in the same words, to every command; and what a comparison by spans rests on is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kbeval
from kbeval.cli import run
from tests.workspace import Workspace


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert run(["demo", "demo"]) == 0
    monkeypatch.chdir(tmp_path / "demo")
    capsys.readouterr()
    return tmp_path / "demo"


def rechunked_mrr(capsys: pytest.CaptureFixture[str], *options: str) -> float:
    assert run(["score", "2026-03-04", "--dry-run", "--format", "json", *options]) == 0
    return float(json.loads(capsys.readouterr().out)[0]["aggregate"]["mrr"])


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    demo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rechunked_mrr(capsys) == 0.947
    config = demo / "kbeval.toml"
    config.write_text(config.read_text() + 'match = "exact"\n')
    assert rechunked_mrr(capsys) == 0.0
    monkeypatch.setenv("KBEVAL_MATCH", "span")
    assert rechunked_mrr(capsys) == 0.947
    assert rechunked_mrr(capsys, "--match", "exact") == 0.0


def test_a_hint_keeps_the_options_that_the_command_was_called_with(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["recompute", "--match", "span"]) == 0
    assert "'kbeval score --all --match span'" in capsys.readouterr().err


def test_sql_says_where_it_matches_otherwise_than_the_stored_numbers(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "SELECT COUNT(*) FROM scores"
    assert run(["sql", question]) == 0
    assert "in the stored numbers" not in capsys.readouterr().err
    assert run(["sql", question, "--match", "exact"]) == 0
    assert "1 run matched by id here and by span in the stored numbers" in capsys.readouterr().err


def test_labels_much_coarser_than_hits_and_a_verdict_that_hangs_on_the_rule_are_said(workspace: Workspace) -> None:
    ids = [f"q{number:02}" for number in range(30)]
    workspace.add_golden(*({"id": one, "expected_chunk_ids": ["large"]} for one in ids))
    workspace.add_chunk("large", "d", [{"kind": "line", "start": 1, "end": 100}], "old@1")
    workspace.add_chunk("small", "d", [{"kind": "line", "start": 1, "end": 5}], "new@2")
    for name, chunk, version in (("a", "large", "old@1"), ("b", "small", "new@2")):
        found = {"hits_top_k": [{"rank": 1, "chunk_id": chunk, "doc_id": "d"}]}
        workspace.add_run(name, dict.fromkeys(ids, found), chunker=version)
    said = " ".join(kbeval.compare_runs("a", "b", db=workspace.db, golden=workspace.golden).warnings)
    assert "much larger than the hits of run b (100.0 and 5.0 lines on average)" in said
    assert "depends on the overlap rule" in said
    assert "'worse' by the share of the expected text" in said
