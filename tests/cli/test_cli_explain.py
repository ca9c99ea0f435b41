"""`kbeval explain METRIC --run R --query Q` as a user sees it."""

from __future__ import annotations

import json

import pytest

from kbeval.cli import run
from tests.support.workspace import Workspace, answer, hits


@pytest.fixture
def asked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace.add_golden(
        {"id": "q1", "query": "first?", "expected_chunk_ids": ["c1"], "must_contain": ["yes"]},
        {"id": "q2", "query": "second?", "expected_chunk_ids": ["c2"]},
        {"id": "q3", "query": "third?", "expected_chunk_ids": ["c3"]},
    )
    many = hits(*(None for _ in range(12)), "c1")
    workspace.add_run(
        "run", {"q1": {"hits_top_k": many, "answer": answer("\x1b[31mno | *way*")}, "q2": {"hits_top_k": hits("c2")}}
    )
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    return workspace


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(["explain", *arguments])
    return code, *capsys.readouterr()


@pytest.mark.usefixtures("asked")
def test_each_step_has_its_file_its_sentence_and_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "hit@5", "--run", "latest", "--query", "q1")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "hit_at_k.5 of query q1 in run run: 0"
    at = next(place for place, line in enumerate(lines) if "sql/matching/id_matches.sql" in line)
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        ["the", "hits", "that", "are", "an", "expected", "chunk."],
        ["position", "rank", "place", "doc_id"],
        ["13", "13", "c1", "d1"],
    ]
    # Ten of the thirteen hits are shown.
    assert "… and 3 more rows" in out
    assert "MAX(CASE WHEN true AND 13 <= 5 THEN 1 ELSE 0 END)" in out
    assert "1 / 2 = 0.5" in out
    assert "has not been scored yet" in out
    assert run(["score", "run"]) == 0
    assert "stored: 0.5000" in said(capsys, "hit@5", "--run", "latest", "--query", "q1")[1]


def test_outdated_stored_numbers_are_reported(asked: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["score", "run"]) == 0
    asked.execute("UPDATE eval_query_results SET result_json = '{}' WHERE query_id = 'q2'")
    _, out, _ = said(capsys, "hit@5", "--run", "run", "--query", "q1")
    assert "hit_at_k.5 = 0.0000" in out
    assert "stored: 0.5000, which differs; see 'kbeval recompute --explain'" in out


@pytest.mark.usefixtures("asked")
def test_any_k_and_every_way_to_score_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "hit@13", "--run", "run", "--query", "q1", "--format", "json")
    found = json.loads(out)
    assert (found["metric"], found["score"], found["total"]["numbers"]) == ("hit_at_k.13", 1.0, {"hit_at_k.13": 1.0})
    how = ("--missing", "zero", "--match", "exact")
    _, out, _ = said(capsys, "hit@13", "--run", "run", "--query", "q3", "--format", "json", *how)
    found = json.loads(out)
    assert (found["score"], found["total"]["n_scored"]) == (0.0, 3)
    (settings,) = (step["rows"] for step in found["steps"] if step["relation"] == "settings")
    assert settings == [{"missing_as_zero": True}]


@pytest.mark.usefixtures("asked")
def test_as_markdown_each_step_is_a_heading_with_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "grounded", "--run", "run", "--query", "q1", "--format", "md")
    assert "## groundedness of query q1 in run run: 0" in out
    assert "`sql/matching/rule_checks.sql`: every answer, checked against every rule of its query." in out
    assert "| needle | must_contain | is_kept |\n| --- | --- | --- |\n| yes | yes | no |" in out
    assert "```sql\nCASE WHEN 1 = 0 THEN 1 ELSE 0 END\n```" in out
    assert r"\*way\*" in out
    # Without a query it is the metric that is explained, in all formats alike.
    _, out, _ = said(capsys, "grounded", "--format", "md")
    assert out.startswith("**groundedness**: ")
    assert "```sql\nCASE" in out


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("form", ["table", "md", "json"])
def test_control_sequences_are_not_printed(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "grounded", "--run", "run", "--query", "q1", "--format", form)
    assert code == 0
    assert "\x1b" not in out
    assert "way" in out


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["mrr", "--run", "run", "--query", "q3"], "no row for query 'q3'"),
        (["mrr", "--run", "run", "--query", "q11"], "did you mean"),
        (["mrr", "--run", "nope", "--query", "q1"], "there is no run 'nope'"),
        (["nope", "--run", "run", "--query", "q1"], "there is no metric 'nope'"),
        (["hit", "--run", "run", "--query", "q1"], "is ambiguous: specify k"),
        (["latency_ms.p99", "--run", "run", "--query", "q1"], "not computed at 'p99'"),
        (["mrr", "--run", "run"], "--run and --query must be used together"),
        (["mrr", "--query", "q1"], "--run and --query must be used together"),
        (["mrr", "--run", "run", "--query", "q1", "--db", "missing.db"], "there is no database"),
    ],
)
def test_a_number_that_cannot_be_explained_is_a_one_line_error(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, *arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert len(err.splitlines()) == 1


@pytest.mark.usefixtures("asked")
def test_an_archive_is_explained_from_the_rows_that_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["archive", "history"]) == 0
    found = {}
    for db in ("kb.db", "history"):
        code, out, _ = said(capsys, "hit@5", "--run", "run", "--query", "q1", "--db", db, "--format", "json")
        assert code == 0
        found[db] = json.loads(out)
    here, archived = found["kb.db"], found["history"]
    for part in ("score", "definition", "total"):
        assert here[part] == archived[part]
    rows = {step["relation"]: step["rows"] for step in archived["steps"]}
    assert all(rows[step["relation"]] == step["rows"] for step in here["steps"] if step["relation"] in rows)
    # Its rows were parsed when they were archived.
    assert rows.keys() == {step["relation"] for step in here["steps"]} - {"parsed", "parsed_hits"}
    (hits_step,) = (step for step in archived["steps"] if step["relation"] == "hits")
    assert "already contain these rows" in hits_step["what"]
