"""The README's promises, tried."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kbeval.cli import COMMANDS, run
from kbeval.metrics import catalogue
from kbeval.scoring import ScoreOptions, open_scoring
from kbeval.views import examples

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_first_screen_is_what_the_demo_really_prints() -> None:
    command = [sys.executable, "-m", "kbeval", "demo"]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert blocks("console")[0] == f"$ kbeval demo\n{result.stdout}"


@pytest.fixture
def workspace_db(tmp_path: Path) -> None:
    """The README speaks of workspace.db and golden.yaml; here they are the demo's. Its fixtures are the checkout's."""
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    run(["demo", "demo"])
    (tmp_path / "demo" / "kb.db").rename(tmp_path / "workspace.db")
    (tmp_path / "demo" / "golden.yaml").rename(tmp_path / "golden.yaml")
    with closing(sqlite3.connect(tmp_path / "workspace.db")) as connection, connection:
        connection.execute("INSERT INTO eval_runs VALUES ('nightly-42', 's', '{}', '', NULL, '2026-01-01')")


@pytest.mark.usefixtures("workspace_db")
def test_every_command_in_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [
        shlex.split(line[2:], comments=True)[1:]
        for block in blocks("console")[1:]
        for line in block.splitlines()
        if line.startswith("$ kbeval ")
    ]
    assert len(commands) >= 2
    for command in commands:
        assert run(command) in (0, 1), capsys.readouterr().err


@pytest.mark.usefixtures("workspace_db")
def test_the_python_example_runs() -> None:
    (example,) = blocks("python")
    subprocess.run([sys.executable, "-c", example], check=True, capture_output=True)


@pytest.mark.usefixtures("workspace_db")
def test_the_metrics_of_ones_own_work_as_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, gates, *metric_tables = blocks("toml")
    (file,) = (block for block in blocks("sql") if block.startswith("-- early_doc_at_k"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "early_doc_at_k.sql").write_text(file)
    for metric_table in metric_tables:
        (tmp_path / "kbeval.toml").write_text(config + gates + metric_table)
        assert run(["score", "2026-03-03-bm25", "--metrics", "own", "--format", "csv"]) == 0
        assert "deepest_hit" in (out := capsys.readouterr().out)
        assert "early_doc_at_k.3" in out


@pytest.mark.usefixtures("workspace_db")
def test_the_views_work_as_shown() -> None:
    section = README.partition("\n## Views\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `(\w+)` \|.*\| `(SELECT .*)` \|$", section, re.MULTILINE)
    assert {name for name, _ in shown} == examples().keys() - {"compare"}
    shown += [("compare", block) for block in blocks("sql") if "compare(" in block]
    with open_scoring("workspace.db", "golden.yaml", None, ScoreOptions(lazily=True)) as scoring:
        for name, sql in shown:
            scoring.session.need(name)
            # The demo finds everything at least once, loses nothing, and nothing goes both ways.
            assert bool(scoring.session.rows(sql)) is (name not in ("regressions", "flaky_queries", "never_hit")), sql


def test_the_golden_example_is_valid(tmp_path: Path) -> None:
    from kbeval.golden import load_golden

    (tmp_path / "g.yaml").write_text(blocks("yaml")[0])
    assert load_golden(tmp_path / "g.yaml").warnings == []


def test_every_command_and_every_metric_is_documented() -> None:
    for name in COMMANDS:
        assert f"`kbeval {name}" in README, name
    for metric in catalogue():
        assert f"`{metric.name}`" in README, metric.name


def test_every_make_target_is_in_its_help() -> None:
    shown = subprocess.run(["make", "-C", ROOT, "help"], check=True, capture_output=True, text=True).stdout
    for target in ("demo", "test", "lint", "format", "type", "bench", "build", "clean"):
        assert f"make {target} " in shown
