"""Attacks on what is read and written: exports over their source, runs by wrong names, files left behind."""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.attacks.places import BIN, Place, hits, is_internal, kbeval, results_folder, several


def test_export_anchors_overwrites_nothing_that_is_read(tmp_path: Path) -> None:
    source, other, golden = results_folder(tmp_path / "run"), tmp_path / "a.db", tmp_path / "golden.json"
    golden.write_text(json.dumps([{"id": "t", "query": "?", "expected_doc_ids": ["p"]}]))
    made = kbeval("import", "anchors", str(source), "--db", str(other), cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    (tmp_path / "link").symlink_to(source)
    targets = {name: tmp_path / name for name in ("database", "golden file")}
    for target in targets.values():
        target.mkdir()
    database, labels = targets["database"] / "results.jsonl", targets["golden file"] / "metrics.json"
    shutil.copy(other, database)
    shutil.copy(golden, labels)
    cases = {
        "database": (targets["database"], database, golden),
        "golden file": (targets["golden file"], other, labels),
        "source folder": (source, other, golden),
        "source folder by a link": (tmp_path / "link", other, golden),
    }
    kept = {path: path.read_bytes() for path in (database, labels, other, golden, *source.iterdir())}
    commands = (
        ["export", "anchors", "run", str(target), "--replace", "--db", str(db), "--golden", str(by)]
        for target, db, by in cases.values()
    )
    for what, found in zip(cases, several(*commands, cwd=tmp_path), strict=True):
        assert found.returncode == 2, (what, found.stderr)
        assert not is_internal(found.stderr), what
    assert [path.name for path, text in kept.items() if not path.exists() or path.read_bytes() != text] == []


def test_gate_latest_with_a_newest_run_without_a_known_date(place: Place) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    place.run("good", {"q": {"hits_top_k": hits("c")}}, created_at="2026-01-01")
    place.run("newest and bad", {"q": {"hits_top_k": hits(None)}}, created_at="Jan 3, 2026")
    scored, found = place.several(["score", "--all"], ["gate", "latest", "--min", "mrr=0.5"])
    assert scored.returncode == 0
    assert found.returncode == 2, found.stdout + found.stderr
    assert "Jan 3, 2026" in found.stderr


def test_gate_latest_with_a_run_called_latest(place: Place) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    place.run("latest", {"q": {"hits_top_k": hits("c")}}, created_at="2026-01-01")
    place.run("newest and bad", {"q": {"hits_top_k": hits(None)}}, created_at="2026-01-02")
    scored, found = place.several(["score", "--all"], ["gate", "latest", "--min", "mrr=0.5"])
    assert scored.returncode == 0
    assert found.returncode == 2, found.stdout + found.stderr
    assert "ambiguous" in found.stderr


def left_of(folder: Path) -> dict[str, int]:
    """Files that are neither data nor requested output."""
    companions = {"kb.db-wal", "kb.db-shm", "kb.db-journal", ".kbeval-lock"}
    wanted = {"kb.db", "golden.json", "out.duckdb", "out.csv"} | companions
    found = {}
    for path in folder.rglob("*"):
        # A file may have been removed in the meantime.
        with contextlib.suppress(OSError):
            if path.is_file() and (path.parent != folder or path.name not in wanted):
                found[str(path.relative_to(folder))] = path.stat().st_size
    return found


@pytest.mark.parametrize(
    "command",
    [
        ["export", "duckdb", "out.duckdb", "--replace"],
        ["sql", "SELECT a.*, b.rank AS other FROM hits AS a CROSS JOIN hits AS b", "-o", "out.csv"],
    ],
    ids=["export", "sql -o"],
)
def test_the_draft_of_a_killed_process_is_removed(place: Place, command: list[str]) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    place.run("run", {f"q{n}": {"hits_top_k": hits(*[f"c{m}" for m in range(20)])} for n in range(300)})
    both = ["--db", str(place.db), "--golden", str(place.golden)]
    for _ in range(10):
        process = subprocess.Popen([BIN, *command, *both], cwd=place.folder, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < end and not any(left_of(place.folder).values()):
            time.sleep(0.002)
        process.kill()
        process.wait(10)
        if left_of(place.folder):
            break
    assert left_of(place.folder), "it was never killed in time"
    again = ["sql", "SELECT 1 AS one", "-o", "out.csv"] if command[0] == "sql" else command
    found = place(*again)
    assert found.returncode == 0, found.stderr
    assert left_of(place.folder) == {}


BROKEN = {
    "not JSON": "no",
    "cut off": '{"query_id": "bad", "hits_top_k": [',
    "a list": "[1, 2]",
    "a number": "1",
    "null": "null",
    "empty": "",
    "too deep": '{"query_id": "bad", "x": ' + "[" * 3000 + "]" * 3000 + "}",
    "too many digits": '{"query_id": "bad", "x": ' + "9" * 5000 + "}",
    "half a character": '{"query_id": "bad", "x": "\\ud800"}',
}


def test_export_anchors_with_an_unreadable_row(place: Place) -> None:
    place.label({"id": "bad"})
    for form, text in BROKEN.items():
        place.run(form, {"good": {"query_id": "good"}, "bad": text}, config={"kbeval": {"system": "anchors"}})
    exported = place.several(*(["export", "anchors", form, f"out {form}"] for form in BROKEN), golden=False)
    for form, found in zip(BROKEN, exported, strict=True):
        assert not is_internal(found.stderr), (form, found.stderr)
        assert found.returncode == 2, form
        assert "query bad" in found.stderr, form
        assert not (place.folder / f"out {form}" / "results.jsonl").exists(), form


def test_an_archive_called_like_the_log(one_run: Place) -> None:
    found, after = several(
        one_run.completed("archive", "kb.db-wal"), one_run.completed("runs", golden=False), cwd=one_run.folder
    )
    assert after.returncode == 0, after.stderr
    assert found.returncode == 2
    assert not (one_run.folder / "kb.db-wal").exists()


def test_a_file_keeps_its_mode(one_run: Place) -> None:
    path = one_run.folder / "out.csv"
    path.touch(mode=0o600)
    path.chmod(0o600)
    found = one_run("sql", "SELECT 1 AS one", "-o", "out.csv")
    assert found.returncode == 0, found.stderr
    assert oct(stat.S_IMODE(path.stat().st_mode)) == "0o600"
