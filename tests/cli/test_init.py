"""A new user's path: `kbeval init`, the recorder script, `score`, `compare`; and no file is overwritten."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kbeval
from kbeval.cli import run


def call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KBEVAL_")}
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=environment)


def test_four_commands_and_no_error(tmp_path: Path) -> None:
    kbeval_command = (sys.executable, "-m", "kbeval")
    commands = [
        (*kbeval_command, "init"),
        (sys.executable, "record_run.py"),
        (*kbeval_command, "score", "--all"),
        (*kbeval_command, "compare", "latest~1", "latest"),
    ]
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = [call(tmp_path, *command) for command in commands]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Seconds; processor time, because this machine may be running other tests.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 30
    assert time.monotonic() - started < 5 * 60, "five minutes"
    for command, result in zip(commands, done, strict=True):
        assert result.returncode == 0, (command, result.stderr)
        assert "Traceback" not in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "golden.yaml",
        "kbeval.toml",
        "record_run.py",
        "workspace.db",
    ]
    # What init says to do next is what was done.
    for step in ("python record_run.py", "kbeval score --all", "kbeval compare latest~1 latest"):
        assert step in done[0].stderr
    # The second variant finds one answer earlier, and refuses what it should.
    assert "1 win, 3 draws, 0 losses, 0 regressions" in done[3].stdout
    assert "now refuses, rightly" in done[3].stdout
    assert "error" not in "".join(result.stderr for result in done)
    golden = kbeval.load_golden(tmp_path / "golden.yaml")
    assert golden.warnings == []
    # The rule about queries to refuse is in the header.
    head = (tmp_path / "golden.yaml").read_text().partition("- id:")[0]
    assert "'answerable: false' means yes" in head
    assert "unlabelled" in head
    # The check has nothing to say about what was made, and more runs may follow.
    assert call(tmp_path, *kbeval_command, "check").returncode == 0
    assert call(tmp_path, sys.executable, "record_run.py").returncode == 0
    assert len(kbeval.open_workspace(tmp_path).runs()) == 4


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deep" / "er"
    assert run(["init", str(folder)]) == 0
    assert f"cd {folder}" in capsys.readouterr().err
    files = {path: path.read_bytes() for path in folder.iterdir()}
    (folder / "golden.yaml").write_text("mine")
    (folder / "record_run.py").unlink()
    (folder / "record_run.py").symlink_to(tmp_path / "elsewhere.py")
    assert run(["init", str(folder)]) == 0
    said = capsys.readouterr().err
    assert "kept kbeval.toml, golden.yaml, record_run.py, workspace.db" in said
    assert (folder / "golden.yaml").read_text() == "mine"
    assert not (tmp_path / "elsewhere.py").exists()
    (folder / "workspace.db").unlink()
    assert run(["init", str(folder)]) == 0
    assert "created workspace.db" in capsys.readouterr().err
    assert (folder / "workspace.db").stat().st_size == len(files[folder / "workspace.db"])
    assert run(["init", str(folder / "golden.yaml")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert run(["init", str(folder / "golden.yaml" / "x")]) == 2
    assert "cannot be written" in capsys.readouterr().err
