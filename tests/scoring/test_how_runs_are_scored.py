"""Every command takes the same options for scoring; and what a comparison by spans is based on is reported."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import kbeval
from kbeval.cli import run
from tests.support.workspace import Workspace


@pytest.fixture
def demo(own_demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(own_demo)
    return own_demo


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


def test_the_worst_queries_say_how_their_hits_are_matched(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, options, way in (
        ("2026-03-03", [], "by chunk id"),
        ("2026-03-04", [], "by document and span"),
        ("2026-03-04", ["--match", "exact"], "by chunk id"),
    ):
        assert run(["show", name, "--worst", "2", *options]) == 0
        assert f"hits are matched {way}" in capsys.readouterr().err


def test_python_takes_the_same_words(demo: Path) -> None:
    db, golden = demo / "kb.db", demo / "golden.yaml"
    rechunked = "2026-03-04-rechunked"
    # `auto` is what no options mean, below.
    for match, found in (("span", 0.947), ("exact", 0.0)):
        options = kbeval.ScoreOptions(match=match)
        assert kbeval.compute_aggregate(rechunked, db=db, golden=golden, options=options).mrr == found
    assert kbeval.ScoreOptions() == kbeval.ScoreOptions(match="auto")
    assert kbeval.compute_aggregate(rechunked, db=db, golden=golden).mrr == 0.947
    by_ids = kbeval.CompareOptions(scoring=kbeval.ScoreOptions(match="exact"))
    report = kbeval.compare_runs("2026-03-03-bm25", rechunked, db=db, golden=golden, options=by_ids)
    assert report.aggregate_b.mrr == 0.0


def test_sql_says_where_it_matches_otherwise_than_the_stored_numbers(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "SELECT COUNT(*) FROM scores"
    assert run(["sql", question]) == 0
    assert "in the stored numbers" not in capsys.readouterr().err
    assert run(["sql", question, "--match", "exact"]) == 0
    said = capsys.readouterr().err
    assert "1 run matched by id here and by span in the stored numbers" in said
    assert "'kbeval score --all --match exact' stores the numbers computed that way" in said
    assert run(["export", "duckdb", "all.duckdb", "--match", "exact"]) == 0
    assert "'kbeval score --all --match exact' stores the numbers computed that way" in capsys.readouterr().err


def test_labels_much_coarser_than_hits_and_a_verdict_that_depends_on_the_rule_are_reported(
    workspace: Workspace,
) -> None:
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


def test_across_chunkers_the_number_that_charges_for_text_is_shown(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", "2026-03-03", "2026-03-04", "--top", "0"]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert {f"hit_within@{budget}" for budget in (500, 1000, 2000, 4000)} <= set(shown)


def test_numbers_of_other_definitions_are_recomputed_with_a_note(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(demo / "kb.db")) as connection, connection:
        connection.execute(
            "UPDATE eval_runs SET aggregate_json = json_set(aggregate_json, '$.provenance.metrics', 'sha256:0')"
            " WHERE run_id = '2026-03-03-bm25'"
        )
    assert run(["score", "--all"]) == 0
    told = capsys.readouterr()
    assert "definitions changed: 2026-03-03-bm25\n" in told.err
    assert "3 runs unchanged" in told.err
    assert "0.9091" in told.out
