"""`kbeval compare` as a user sees it."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbeval.cli import run
from tests.support.once import computed_once
from tests.support.workspace import Workspace, answer, hits


@pytest.fixture(scope="module", autouse=True)
def _once() -> Iterator[None]:
    """Most tests look at the same comparison in another way."""
    with computed_once(sessions=False):
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Forty queries. B finds thirty at rank 1 that A had at rank 3, loses two, and refuses one answer."""
    workspace = Workspace(tmp_path_factory.mktemp("made"))
    queries = [f"q{n:02d}" for n in range(40)]
    workspace.add_golden(
        *(
            {"id": q, "query": f"question {q}?", "expected_chunk_ids": ["c"], "category": "ab"[q > "q19"]}
            for q in queries
        )
    )
    workspace.add_document("d1", "d1.md")
    workspace.add_chunk("c", "d1", [{"kind": "line", "start": 1, "end": 9}])
    third, first, none = hits(None, None, "c"), hits("c"), hits(None)
    a = {q: {"hits_top_k": third, "answer": answer("yes")} for q in queries}
    b = {q: {"hits_top_k": first if q < "q30" else third, "answer": answer("yes")} for q in queries}
    b["q38"] = b["q39"] = {"hits_top_k": none, "answer": answer("yes")}
    b["q00"]["answer"] = answer("", grounded=False)
    # Rankings of different lengths: the run did not cut them at three hits.
    a["q39"] = {"hits_top_k": hits(None, None, "c", None), "answer": answer("yes")}
    workspace.add_run("2026-a", a)
    workspace.add_run("2026-b", b, created_at="2026-02-01")
    return workspace


def _used(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    return workspace


@pytest.fixture
def two_runs(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """For tests that only read it."""
    return _used(made, monkeypatch)


@pytest.fixture
def own_runs(made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The same in the folder of the test."""
    shutil.copy(made.db, tmp_path)
    shutil.copy(made.golden, tmp_path)
    return _used(Workspace(tmp_path), monkeypatch)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["compare", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_terminal_view_leads_with_the_verdict(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "latest~1", "latest", "--top", "2")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("2026-a → 2026-b: better in hit@1, mrr, prec@1, chunk_recall@1 (of 7 numbers tested)")
    assert lines[1] == "chunker md@1; queries matched: 40 by chunk id"
    (mrr,) = [line for line in lines if line.startswith("mrr ")]
    assert mrr.split()[:4] == ["mrr", "0.3333", "0.8167", "+0.4833"]
    assert mrr.endswith("better")
    order = [
        out.index(part)
        for part in ("metric ", "30 wins, 8 draws, 0 losses, 2 regressions", "regressions\n", "wins, 2 of 30")
    ]
    assert order == sorted(order)
    assert "q38    3  –  hit→miss; not retrieved  question q38?" in out
    assert "answers that got worse" in out


def test_json_is_the_report(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "2026-a", "2026-b", "--format", "json")
    report = json.loads(out)
    assert code == 0
    assert report["verdict"] == "better"
    assert report["deltas"]["mrr"] == 0.4834
    assert report["matching"] == {"exact": 40, "span": 0, "doc": 0, "none": 0}
    assert len(report["per_query"]) == 40


def test_csv_has_one_row_per_query_and_markdown_is_the_report(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = call(capsys, "2026-a", "2026-b", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 40
    assert (rows[38]["kind"], rows[38]["b_hit_rank"]) == ("regression", "")
    _, out, _ = call(capsys, "2026-a", "2026-b", "--format", "md")
    assert out.startswith("# 2026-a → 2026-b\n")
    assert [line for line in out.splitlines() if line.startswith("## ")] == [
        "## Numbers",
        "## Regressions (2)",
        "## Wins (30)",
        "## Answers that got worse (1)",
    ]


def test_slices_have_a_row_each(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "2026-a", "2026-b", "--slices", "category")
    assert [line.split()[:2] for line in out.splitlines() if line.startswith(("a  ", "b  "))] == [
        ["a", "mrr"],
        ["b", "mrr"],
    ]
    _, out, _ = call(capsys, "2026-a", "2026-b", "--slices", "category", "--format", "json")
    assert set(json.loads(out)["slices"]) == {"a", "b"}


def test_only_some_metrics_are_tested(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "2026-a", "2026-b", "--only", "mrr,hit@5", "--format", "json")
    assert list(json.loads(out)["significance"]) == ["hit_at_k.5", "mrr"]


def test_the_report_is_written_next_to_the_database_or_to_the_given_path(
    own_runs: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(capsys, "2026-a", "2026-b", "--report")
    written = tmp_path / "runs" / "2026-b" / "report.md"
    assert (code, err) == (0, f"wrote {written}\n")
    call(capsys, "2026-a", "2026-b", "--report", "there/mine.md")
    assert (tmp_path / "there" / "mine.md").read_text() == written.read_text()
    call(capsys, "2026-a", "2026-b", "--runs-dir", "elsewhere", "--report")
    assert (tmp_path / "elsewhere" / "2026-b" / "report.md").exists()
    (tmp_path / "kbeval.toml").write_text('runs_dir = "configured"')
    call(capsys, "2026-a", "2026-b", "--report")
    assert (tmp_path / "configured" / "2026-b" / "report.md").exists()


def test_a_run_id_is_not_a_path(own_runs: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["../../escape", "a/b", "..", "nul\0byte", "bell\x07"]
    for name in names:
        own_runs.execute(
            "INSERT INTO eval_query_results SELECT ?, query_id, result_json FROM eval_query_results"
            " WHERE run_id = '2026-b'",
            (name,),
        )
        own_runs.execute(
            "INSERT INTO eval_runs SELECT ?, suite, config_snapshot_json, '', NULL, created_at FROM eval_runs"
            " WHERE run_id = '2026-b'",
            (name,),
        )
    before = sorted(tmp_path.rglob("*"))
    for name in names:
        code, _, err = call(capsys, "2026-a", name, "--report")
        assert code == 2, name
        assert "cannot be used as a folder name; use --report PATH" in err, name
        assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "safe.md"] == before, name
        assert call(capsys, "2026-a", name, "--report", "safe.md")[0] == 0, name


def test_a_report_never_overwrites_what_it_is_made_from(
    own_runs: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(own_runs.db)
    before = own_runs.db.read_bytes(), own_runs.golden.read_bytes()
    for name in ("kb.db", "kb.db-wal", "golden.json", "link"):
        code, _, err = call(capsys, "2026-a", "2026-b", "--report", name)
        assert (code, "read by this command; choose another file" in err) == (2, True), name
        assert (own_runs.db.read_bytes(), own_runs.golden.read_bytes()) == before, name


def test_a_report_goes_through_links_and_into_devices(
    two_runs: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "link.md").symlink_to("real.md")
    assert call(capsys, "2026-a", "2026-b", "--report", "link.md")[0] == 0
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_text().startswith("# 2026-a")
    assert call(capsys, "2026-a", "2026-b", "--report", "/dev/null")[0] == 0
    assert not Path("/dev/null").is_file()


def test_a_terminal_of_another_encoding_gets_escapes(two_runs: Workspace) -> None:
    command = [sys.executable, "-m", "kbeval", "compare", "2026-a", "2026-b"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    result = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"2026-a \\u2192 2026-b" in result.stdout


def test_text_from_queries_breaks_neither_table_nor_terminal(
    own_runs: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    nasty = "a | b\n\x1b[31m<script>alert(1)</script> `code` [x](javascript:1)"
    entries = json.loads(own_runs.golden.read_text())
    entries[38]["query"] = nasty
    own_runs.golden.write_text(json.dumps(entries))
    _, out, _ = call(capsys, "2026-a", "2026-b")
    assert "\x1b" not in out
    _, out, _ = call(capsys, "2026-a", "2026-b", "--format", "md")
    (row,) = [line for line in out.splitlines() if line.startswith("| q38 |")]
    assert row.replace("\\|", "").count("|") == 6
    assert "<script>" not in out
    assert "[x](" not in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["2026-a"], "Missing argument 'B'"),
        (["2026-a", "gone"], "there is no run 'gone'"),
        (["2026", "2026-a"], "'2026' is ambiguous: it matches 2 runs"),
        (["2026-a", "2026-b", "--only", "mmr"], "did you mean 'mrr'?"),
        (["2026-a", "2026-b", "--slices", "categories"], "did you mean 'category'?"),
        (["2026-a", "2026-b", "--min-overlap", "0"], "0.0 is not in the range 0<x<=1"),
        (["2026-a", "2026-b", "--min-overlap", "nan"], "it must be above 0 and at most 1"),
        (["2026-a", "2026-b", "--overlap-of", "both"], "'both' is not one of"),
        (["2026-a", "2026-b", "--top", "-1"], "-1 is not in the range"),
        (["2026-a", "2026-b", "--golden", "gone.yaml"], "gone.yaml"),
        (["2026-a", "2026-b", "--report", "."], "is a directory; specify a file"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_two(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("kbeval: ")
    assert err.count("\n") == 1


def test_runs_that_must_not_be_compared_exit_with_two(own_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    for run_id, version, judge in (("2026-a", "md@1", "j1"), ("2026-b", "md@2", "j2")):
        config = json.dumps({"chunker_version": version, "judge_model": judge})
        own_runs.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = ?", (config, run_id))
    code, _, err = call(capsys, "2026-a", "2026-b")
    assert code == 2
    assert "2026-a and 2026-b are not comparable: they differ in judge model: j1 and j2" in err
    code, _, err = call(capsys, "2026-a", "2026-b", "--ignore-invariants", "--strict-chunker-version")
    assert code == 2
    assert "md@1 (2026-a) and md@2 (2026-b)" in err
    code, _, err = call(capsys, "2026-a", "2026-b", "--ignore-invariants")
    assert code == 0
    assert "kbeval: warning: the runs differ in judge model: j1 and j2" in err


def test_comparing_changes_nothing_in_the_database(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    before = two_runs.db.read_bytes()
    call(capsys, "2026-a", "2026-b")
    assert two_runs.db.read_bytes() == before


# --- the same matching for one run -------------------------------------------------------------------


def test_show_tells_right_from_wrong_as_the_stored_numbers_did(
    own_runs: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    own_runs.execute("UPDATE chunks SET chunk_id = 'c-old', chunker_version = 'md@0'")
    entries = json.loads(own_runs.golden.read_text())
    own_runs.add_golden(*({**entry, "expected_chunk_ids": ["c-old"]} for entry in entries))
    place = '"doc_id": "d1", "source_spans": [{"kind": "line", "start": 5, "end": 30}]'
    own_runs.execute(
        'UPDATE eval_query_results SET result_json = REPLACE(result_json, \'"doc_id": "d1"\', ?)', (place,)
    )
    assert run(["show", "2026-b", "--worst", "1", "--match", "exact"]) == 0
    assert "0.0000" in capsys.readouterr().out
    assert run(["score", "2026-b", "--match", "span", "--min-overlap", "0.4"]) == 0
    capsys.readouterr()
    assert run(["show", "2026-b", "--worst", "1"]) == 0
    assert "1.0000" in capsys.readouterr().out
    assert run(["show", "2026-b", "--query", "q00"]) == 0
    assert "chunk c-old (" in capsys.readouterr().out.partition("counts as")[2].splitlines()[1]
    assert run(["show", "2026-b", "--worst", "1", "--match", "exact"]) == 0
    assert "0.0000" in capsys.readouterr().out
