from __future__ import annotations

import hashlib
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from kbeval.cli import run
from kbeval.demo import MARKER, make_demo
from kbeval.golden import load_golden


def contents(database: Path) -> str:
    """Everything in a database, as a hash."""
    with closing(sqlite3.connect(database)) as connection:
        return hashlib.sha256("\n".join(connection.iterdump()).encode()).hexdigest()


def test_the_demo_makes_scores_and_shows_a_workspace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "try"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[:5]] == [
        "run",
        "2026-03-01-baseline",
        "2026-03-02-words",
        "2026-03-03-bm25",
        "2026-03-04-rechunked",
    ]
    assert "2026-03-03-bm25 → 2026-03-04-rechunked: no detectable difference" in out
    assert err.count("\n  kbeval ") == 4
    with closing(sqlite3.connect(tmp_path / "try" / "kb.db")) as connection:
        assert connection.execute("SELECT COUNT(DISTINCT chunker_version) FROM chunks").fetchone() == (2,)
        assert connection.execute("SELECT COUNT(*) FROM documents").fetchone() == (7,)
        assert connection.execute("SELECT COUNT(*) FROM eval_runs WHERE aggregate_json <> ''").fetchone() == (4,)
    assert load_golden(tmp_path / "try" / "golden.yaml").warnings == []


def test_the_commands_that_the_demo_names_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(["demo", "a folder"])
    _, err = capsys.readouterr()
    commands = [line.split()[1:] for line in err.splitlines() if line.startswith("  kbeval ")]
    assert "  cd 'a folder'" in err
    monkeypatch.chdir(tmp_path / "a folder")
    for command in commands:
        assert run(command) in (0, 1), command
        assert capsys.readouterr().out, command


def test_the_demo_comes_out_the_same_every_time(tmp_path: Path) -> None:
    first, second = make_demo(tmp_path / "a"), make_demo(tmp_path / "b")
    assert contents(first) == contents(second)
    assert (tmp_path / "a" / "golden.yaml").read_bytes() == (tmp_path / "b" / "golden.yaml").read_bytes()


def test_the_demo_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError

    # Socket pairs within the process are not a network: the event loop uses one to wake up.
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert run(["demo", str(tmp_path / "offline")]) == 0


def test_a_folder_that_the_demo_made_is_recreated(tmp_path: Path) -> None:
    before = contents(make_demo(tmp_path / "again"))
    with closing(sqlite3.connect(tmp_path / "again" / "kb.db")) as connection, connection:
        connection.execute("DELETE FROM eval_runs")
    assert contents(make_demo(tmp_path / "again")) == before


def test_a_folder_that_it_did_not_make_is_never_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "kb.db").write_text("precious")
    assert run(["demo", str(mine)]) == 2
    assert "was not created by the demo" in capsys.readouterr().err
    assert (mine / "kb.db").read_text() == "precious"
    assert not (mine / MARKER).exists()


def test_a_link_in_the_folder_leads_the_demo_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (MARKER, "golden.yaml"):
        folder = tmp_path / f"with-{name}"
        make_demo(folder) if name != MARKER else folder.mkdir()
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(victim)
        run(["demo", str(folder)])
        assert victim.read_text() == "precious"


def test_a_file_in_the_way_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    assert run(["demo", "file"]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert run(["demo", "file/inside"]) == 2
    assert "cannot be written" in capsys.readouterr().err
