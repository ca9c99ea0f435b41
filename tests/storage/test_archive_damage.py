"""Archives that are damaged: one clear line or the right numbers, never wrong ones, and archiving makes them whole."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.archives import (
    archive,
    assert_same_numbers,
    assert_same_rows,
    contents,
    manifest,
    refused,
    rewrite_manifest,
    rewrite_parts,
    run_folder,
    said,
    table,
    the_error,
)
from tests.support.workspace import Workspace


def broken(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    else:
        # The same length, one bit another.
        place = random.Random(path.name).randrange(4, len(data) - 12)
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


DAMAGE = {
    "edited": ("part.json", "results", "hits", "rows", "eval_runs", "chunks", "golden"),
    "missing": ("part.json", "hits", "chunks"),
    "truncated": ("part.json", "results", "eval_runs"),
}


def test_a_damaged_archive_never_gives_wrong_numbers_and_is_made_whole_again(
    stored: Workspace, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive(stored, folder)
    command = ["score", "--all", "--dry-run", "--skip-bad-rows", "--format", "json"]
    expected = said(capfd, folder, *command)
    for how, names in DAMAGE.items():
        places = {name: shutil.copytree(folder, folder.parent / f"{how} {name}") for name in names}
        made_good = []
        for name, place in places.items():
            at = {"part.json": "part.json"}.get(name, f"{name}.parquet")
            in_run = run_folder(place, "one") / at
            broken(in_run if in_run.exists() else table(place, name), how)
            found = said(capfd, place, *command)
            if found == expected:
                made_good.append(name)
            else:
                assert "damaged archive" in the_error(found), (how, name)
        # What can be made from the rows again is. They themselves are looked through for labels that no table knows.
        assert made_good == [name for name in names if name in ("results", "hits")], how
        for name in (names[0], names[-1]):
            place = places[name]
            assert said(capfd, stored.db, "archive", str(place), "--golden", str(stored.golden))[0] == 0, (how, name)
            assert said(capfd, place, *command) == expected, (how, name)


def test_a_damaged_row_is_never_shown_and_is_archived_again(
    stored: Workspace, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive(stored, folder)
    broken(run_folder(folder, "one") / "rows.parquet", "edited")
    assert "rows.parquet is missing or damaged" in refused(capfd, folder, "show", "one", "--query", "q1")
    assert archive(stored, folder).written == ["one"]
    assert said(capfd, folder, "show", "one", "--query", "q1")[0] == 0


def test_an_invalid_manifest_is_reported(stored: Workspace, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    archive(stored, folder)
    for text in ("", "{", "[]", "null", "{}", '{"format": 1}', '{"format": 1, "runs": [], "tables": 3}'):
        (folder / "manifest.json").write_text(text)
        for arguments in (["runs"], ["score", "one"], ["sql", "FROM runs"]):
            assert "manifest.json cannot be read" in refused(capfd, folder, *arguments), text
        # Archiving again would forget runs that the database no longer holds, so that is for people to decide.
        assert "delete that file and archive" in refused(capfd, stored.db, "archive", str(folder)), text
    (folder / "manifest.json").unlink()
    assert archive(stored, folder).unchanged == ["one", "two"]
    assert_same_rows(stored, folder)


def test_a_manifest_of_another_format_is_left_alone(
    stored: Workspace, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive(stored, folder)
    rewrite_manifest(folder, format=2)
    before = contents(folder)
    for database, arguments in ((folder, ["runs"]), (stored.db, ["archive", str(folder)])):
        assert "another version of kbeval (format 2)" in refused(capfd, database, *arguments)
    assert contents(folder) == before


def test_a_manifest_that_leads_elsewhere_is_not_followed(
    stored: Workspace, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive(stored, folder)
    shutil.copytree(folder, folder.parent / "other")
    right = manifest(folder)
    assert said(capfd, folder, "runs")[0] == 0
    for part, which in (("runs", "one"), ("tables", "eval_runs")):
        for name in ("..", "../other", "/etc", "", ".", "a/b", 7, None, "a\x00b"):
            changed = {**right[part], which: {**right[part][which], "name": name}}
            rewrite_manifest(folder, **{"runs": right["runs"], "tables": right["tables"], part: changed})
            refused(capfd, folder, "runs")


def test_a_manifest_that_names_other_runs_than_the_tables_is_damaged(
    stored: Workspace, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive(stored, folder)
    runs = manifest(folder)["runs"]
    rewrite_manifest(folder, runs={"one": runs["one"]})
    assert "damaged archive" in refused(capfd, folder, "runs")
    rewrite_manifest(folder, runs={"one": runs["two"], "two": runs["one"]})
    assert "damaged archive" in refused(capfd, folder, "runs")


def test_two_runs_that_say_the_same_of_their_rows_are_kept_apart_by_reading(stored: Workspace, folder: Path) -> None:
    """kbeval does not write such an archive, but it can be assembled by hand."""
    archive(stored, folder)
    numberings: list[int] = []

    def as_the_first(part: dict[str, Any]) -> None:
        ((_, run),) = part["runs"].items()
        numberings.append(run[1])
        run[1] = numberings[0]

    rewrite_parts(folder, as_the_first)
    assert_same_numbers(stored, folder)


def test_a_damaged_database_damages_no_archive(
    stored: Workspace, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive(stored, folder)
    before = contents(folder)
    with closing(sqlite3.connect(stored.db)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = stored.db.read_bytes()
    stored.db.write_bytes(data[:size] + b"\xff" * (len(data) - size))
    refused(capfd, stored.db, "archive", str(folder))
    assert contents(folder) == before
