"""A command that is recommended keeps the options of the one that recommends it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from kbeval.cli import run
from tests.support.workspace import Workspace, hits


@pytest.fixture
def demo(own_demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(own_demo)
    return own_demo


def hint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The command that a call recommends on standard error."""
    capsys.readouterr()
    run(list(arguments))
    err = capsys.readouterr().err
    (found,) = re.findall(r"'(kbeval [a-z]+[^\n]*?)'(?=[ ;,)\n])", err)
    return str(found)


RECOMMENDED: list[tuple[list[str], str]] = [
    (["recompute", "--match", "span"], "kbeval score --all --match span"),
    (["recompute", "--match", "span", "--db", "kb.db"], "kbeval score --all --db kb.db --match span"),
    (["recompute", "--k", "7,20", "--missing", "zero"], "kbeval score --all --k 7,20 --missing zero"),
    (["show", "latest", "--match", "exact"], "kbeval score 2026-03-04-rechunked --match exact"),
    (
        ["show", "latest", "--overlap-of", "hit", "--min-overlap", "0.9", "--golden", "golden.yaml"],
        "kbeval score 2026-03-04-rechunked --golden golden.yaml --min-overlap 0.9 --overlap-of hit",
    ),
    (
        ["show", "latest", "--query", "none", "--db", "kb.db"],
        "kbeval show 2026-03-04-rechunked --worst 20 --db kb.db",
    ),
    (["show", "none", "--db", "kb.db", "--suite", "nightly"], "kbeval runs --db kb.db --suite nightly"),
    (["gate", "none", "--db", "kb.db", "--min", "mrr=0.5"], "kbeval runs --db kb.db"),
    (["compare", "none", "latest", "--db", "kb.db", "--match", "span"], "kbeval runs --db kb.db"),
    # Options that the other command does not have are left out, and none is repeated.
    (["history", "hit@20", "--db", "kb.db", "--last", "2"], "kbeval score --all --k 20 --db kb.db"),
    (["sql", "SELECT AVG(value) FROM scores", "--match", "exact"], "kbeval score --all --match exact"),
    # Settings from the file or the environment apply to the next command anyway.
    (["recompute"], "kbeval score --all"),
]


def test_a_hint_keeps_the_options_that_the_command_was_called_with(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, recommended in RECOMMENDED:
        if arguments == ["recompute"]:
            text = (demo / "golden.yaml").read_text()
            (demo / "golden.yaml").write_text(f"{text}\n- id: g099\n  query: one more\n  expected_doc_ids: [d1]\n")
        assert hint(capsys, *arguments) == recommended, arguments


def test_the_recommended_command_stores_the_numbers_that_were_shown(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = hint(capsys, "recompute", "--match", "exact", "--missing", "zero", "--db", str(demo / "kb.db"))
    assert run(shlex.split(command)[1:]) == 0
    capsys.readouterr()
    assert run(["recompute", "--match", "exact", "--missing", "zero"]) == 0
    assert "unchanged since" in capsys.readouterr().err


def test_a_path_with_a_space_stays_one_argument(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    path = tmp_path / "my runs.db"
    path.write_bytes(workspace.db.read_bytes())
    run(["recompute", "--db", str(path), "--golden", str(workspace.golden)])
    assert f"kbeval score --all --db '{path}' --golden {workspace.golden}'" in capsys.readouterr().err


def test_hints_that_look_at_no_data_stay_as_they_are(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hint(capsys, "check", "--db", "kb.db", "--ignore", "none") == "kbeval check --codes"
    assert hint(capsys, "check", "--db", "kb.db", "--none") == "kbeval check --help"


def test_an_id_stays_one_argument(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    for name in ("try 2", 'a"b$c`d\\e', "plain-1.2"):
        workspace.add_run(name, {"q": {"hits_top_k": hits("c")}})
        found = hint(capsys, "show", name, "--db", str(workspace.db), "--golden", str(workspace.golden))
        read = subprocess.run(["sh", "-c", f"printf '%s\\n' {found}"], capture_output=True, text=True, check=True)
        assert read.stdout.splitlines()[:3] == ["kbeval", "score", name]
