"""Databases and their archives side by side, and what the command line says about each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run
from kbeval.golden import load_golden
from kbeval.scoring.aggregate import score_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.archive_writer import Archived, archive_runs
from kbeval.storage.options import ReadOptions
from kbeval.storage.parts import ALWAYS, PART_FILE, read_sealed, write_sealed
from kbeval.storage.source import open_source
from tests.support.workspace import Workspace, answer, hits

FIXTURES = Path(__file__).parents[2] / "fixtures"
Said = tuple[int, str, str]

LINE = {"kind": "line", "start": 1, "end": 9}
ROWS: dict[str, Any] = {
    "q1": {"hits_top_k": [*hits("c1", None), {"chunk_id": "c1", "doc_id": "d1"}], "elapsed_ms": 5},
    "q2": {"hits_top_k": hits("c2"), "answer": answer("yes", {**LINE, "path": "d1.md"})},
    "q3": "{",
}


class Pair:
    """A database and its archive, which must give the same bytes."""

    def __init__(self, database: Path, golden: Path | None = None, name: str = "history") -> None:
        self.database = database
        self.golden = golden
        self.archive = database.parent / name
        self.bring_up_to_date()

    def bring_up_to_date(self, *more: str) -> None:
        labels = ["--golden", str(self.golden)] if self.golden else []
        assert run(["archive", str(self.archive), "--db", str(self.database), *labels, *more]) == 0

    def ask_both(self, capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[Said, Said]:
        """What a command says of the database and of the archive, each called DB."""
        return said(capfd, self.database, *arguments), said(capfd, self.archive, *arguments)


def said(capfd: pytest.CaptureFixture[str], database: Path, *arguments: str) -> Said:
    """The exit code and what was printed, without the name of the database."""
    capfd.readouterr()
    code = run([*arguments, "--db", str(database)])
    out, err = capfd.readouterr()
    return code, out.replace(str(database), "DB"), err.replace(str(database), "DB")


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its checksum."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def manifest(archive: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((archive / "manifest.json").read_text(encoding="utf-8"))
    return found


def rewrite_manifest(archive: Path, **changes: Any) -> None:
    (archive / "manifest.json").write_text(json.dumps({**manifest(archive), **changes}), encoding="utf-8")


def rewrite_parts(archive: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what each run's list of files says, and every checksum with it."""
    runs = manifest(archive)["runs"]
    for place in runs.values():
        part = archive / "runs" / place["name"] / PART_FILE
        found = read_sealed(part)
        change(found)
        write_sealed(part, found)
        place["sha256"] = hashlib.sha256(part.read_bytes()).hexdigest()
    rewrite_manifest(archive, runs=runs)


def run_folder(archive: Path, run_id: str) -> Path:
    return archive / "runs" / str(manifest(archive)["runs"][run_id]["name"])


def table(archive: Path, name: str) -> Path:
    return archive / str(manifest(archive)["tables"][name]["name"])


def stamps(folder: Path) -> Mapping[str, tuple[int, int]]:
    """Every file below a folder, by its place on the disk and its time: it has not been written again."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def refused(capfd: pytest.CaptureFixture[str], database: Path, *arguments: str) -> str:
    return the_error(said(capfd, database, *arguments))


def the_error(found: Said) -> str:
    """The one line of a command that was refused."""
    code, out, err = found
    assert (code, out) == (2, "")
    assert err.startswith("kbeval: ")
    assert len(err.splitlines()) == 1
    assert "internal error" not in err
    return err


def archive(workspace: Workspace, folder: Path, **options: Any) -> Archived:
    return archive_runs(workspace.db, folder, load_golden(workspace.golden), **options)


def numbers(database: Path, golden: Path, **options: Any) -> list[str]:
    scored = score_runs(database, golden, None, ScoreOptions(**{"threads": 1, **options}))
    return [f"{run_id} {aggregate.to_json()}" for run_id, aggregate in scored.aggregates.items()]


def assert_same_numbers(workspace: Workspace, folder: Path) -> None:
    assert numbers(folder, workspace.golden) == numbers(workspace.db, workspace.golden)


# What archiving has to keep of rows, and of the knowledge base next to them.
_KEPT = (*ALWAYS, "hit_claims", "chunks", "documents", "chunk_spans", "runs")


def rows_of(database: Path) -> dict[str, Any]:
    """Everything that numbers are made of besides labels, in a third of the time that scoring takes."""
    with open_source(database, ReadOptions(threads=1)) as (session, source):
        source.feed(session, [run.run_id for run in source.runs()])
        session.need(*_KEPT)
        found: dict[str, Any] = {}
        for name in _KEPT:
            columns = {column for column, *_ in session.rows(f"DESCRIBE {name}")}
            # Every reader numbers the rows again.
            numbered = "result_no" in columns and name not in ("results", "bad_rows")
            select = f"{name} AS x JOIN results AS r USING (result_no)" if numbered else f"{name} AS x"
            whose = "r.run_id, r.query_id, " if numbered else ""
            without = " EXCLUDE (result_no)" if "result_no" in columns else ""
            found[name] = session.rows(f"SELECT {whose}x.*{without} FROM {select} ORDER BY ALL")
        return found


def assert_same_rows(workspace: Workspace, folder: Path) -> None:
    of_archive, of_database = rows_of(folder), rows_of(workspace.db)
    for name in _KEPT:
        assert of_archive[name] == of_database[name], name


def fill(workspace: Workspace) -> Workspace:
    """Two runs, labels, and a knowledge base."""
    workspace.add_golden(
        {"id": "q1", "expected_chunk_ids": ["c1"]}, {"id": "q2", "expected_chunk_ids": ["c2"]}, {"id": "q3"}
    )
    workspace.add_document("d1", "d1.md")
    workspace.add_chunk("c1", "d1", [LINE])
    workspace.add_run("one", ROWS, created_at="2026-01-01")
    workspace.add_run("two", {"q1": ROWS["q2"]}, created_at="2026-01-02")
    return workspace
