"""`kbeval archive`: what is in an archive, what is written again and what is not, and where it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

from kbeval.cli import run
from kbeval.golden import load_golden
from kbeval.scoring.aggregate import store_scored
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.manifest import folder_name
from tests.support.archives import (
    LINE,
    ROWS,
    archive,
    assert_same_numbers,
    assert_same_rows,
    contents,
    manifest,
    numbers,
    refused,
    rows_of,
    run_folder,
    said,
    stamps,
    table,
)
from tests.support.workspace import Workspace, hits, without_privileges

# --- what is in it ----------------------------------------------------------------------------------


def test_every_file_can_be_read_by_everyone(stored: Workspace, folder: Path) -> None:
    store_scored(stored.score(to_store=True), db=stored.db)
    archive(stored, folder)
    files = sorted(folder.rglob("*.parquet"))
    assert len(files) == 6 + 2 * 9
    for file in files:
        ((found,),) = duckdb.execute("SELECT COUNT(*) FROM read_parquet(?)", [str(file)]).fetchall()
        assert found == len(pl.read_parquet(file)) == pq.read_table(file).num_rows
        meta = pq.ParquetFile(file).metadata
        for group in range(meta.num_row_groups):
            assert {meta.row_group(group).column(n).compression for n in range(meta.num_columns)} == {"ZSTD"}


def test_it_holds_runs_rows_facts_chunk_spans_and_labels(stored: Workspace, folder: Path) -> None:
    store_scored(stored.score(to_store=True), db=stored.db)
    archive(stored, folder)
    one = run_folder(folder, "one")
    assert {path.stem for path in one.glob("*.parquet")} == {
        *("results", "bad_rows", "hits", "repeated_hits", "cited_places", "answers", "hit_claims", "bad_claims", "rows")
    }
    rows = pl.read_parquet(one / "rows.parquet")
    assert dict(rows.select("query_id", "result_json").iter_rows()) == {
        query_id: row if isinstance(row, str) else json.dumps(row) for query_id, row in ROWS.items()
    }
    assert sorted(pl.read_parquet(one / "hits.parquet")["chunk_id"]) == ["c1", "c1", "c2", "other-2"]
    assert pl.read_parquet(one / "bad_rows.parquet")["query_id"].to_list() == ["q3"]
    runs = pl.read_parquet(table(folder, "eval_runs")).sort("run_id")
    assert runs["run_id"].to_list() == ["one", "two"]
    assert runs["aggregate_json"].to_list() == [stored.stored("one"), stored.stored("two")]
    chunks = pl.read_parquet(table(folder, "chunks"))
    assert chunks.rows() == [("c1", "d1", json.dumps([LINE]), "md@1", "p", "1")]
    assert pl.read_parquet(table(folder, "documents")).rows() == [("d1", "d1.md")]
    assert pl.read_parquet(table(folder, "kbeval_chunk_spans"))["chunk_id"].to_list() == ["c1"]
    golden = pl.read_parquet(table(folder, "golden"))
    assert golden["id"].to_list() == ["q1", "q2", "q3"]
    assert json.loads(golden["entry"][0])["expected_chunk_ids"] == ["c1"]


def test_the_manifest_has_versions_and_the_checksum_of_everything(stored: Workspace, folder: Path) -> None:
    archive(stored, folder)
    found = manifest(folder)
    assert found["format"] == 1
    assert found["duckdb"] == duckdb.__version__
    assert {"kbeval", "definitions"} <= found.keys()
    assert found["golden"] == load_golden(stored.golden).hash
    named = {file["name"]: file["sha256"] for file in found["tables"].values()}
    for place in found["runs"].values():
        part = f"runs/{place['name']}/part.json"
        named[part] = place["sha256"]
        files = json.loads((folder / part).read_text())["files"]
        named |= {f"runs/{place['name']}/{name}": sha for each in files.values() for name, _, sha in each}
    there = contents(folder)
    assert named == {name: sha for name, sha in there.items() if name != "manifest.json"}


def test_settings_come_from_the_config_file(
    stored: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("kbeval.toml").write_text('db = "kb.db"\ngolden = "golden.json"\nthreads = 1\nmemory_limit = "200MB"\n')
    assert run(["archive", "history"]) == 0
    assert "archived 2 runs, 0 unchanged: history" in capfd.readouterr().err
    assert "golden" in manifest(folder)["tables"]
    Path("kbeval.toml").write_text('db = "history"\n')
    assert run(["score", "--all", "--dry-run", "--skip-bad-rows"]) == 0
    assert "one" in capfd.readouterr().out


def test_without_labels_it_says_so_and_keeps_those_that_are_there(
    stored: Workspace, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "labels were not archived" in said(capfd, stored.db, "archive", str(folder))[2]
    assert "golden" not in manifest(folder)["tables"]
    assert "no golden file given" in said(capfd, folder, "score", "one")[2]
    archive(stored, folder)
    assert said(capfd, stored.db, "archive", str(folder))[0] == 0
    assert "golden" in manifest(folder)["tables"]


# --- brought up to date -------------------------------------------------------------------------------


def test_without_changes_nothing_is_written_and_no_row_is_parsed(stored: Workspace, folder: Path) -> None:
    archive(stored, folder)
    before = stamps(folder)
    steps: list[str] = []
    found = archive(stored, folder, options=ScoreOptions(on_step=steps.append))
    assert (found.written, found.unchanged, found.gone) == ([], ["one", "two"], [])
    assert stamps(folder) == before
    assert steps
    assert not [step for step in steps if "parsed" in step or "hits" in step]


def test_only_what_changed_is_written(stored: Workspace, folder: Path) -> None:
    archive(stored, folder)
    before = stamps(run_folder(folder, "one"))
    stored.execute("UPDATE eval_query_results SET result_json = '{}' WHERE run_id = 'two'")
    stored.add_run("three", ROWS)
    found = archive(stored, folder)
    assert (sorted(found.written), found.unchanged) == (["three", "two"], ["one"])
    assert stamps(run_folder(folder, "one")) == before
    assert_same_rows(stored, folder)


def test_numbers_and_configurations_that_change_write_no_run_again(stored: Workspace, folder: Path) -> None:
    archive(stored, folder)
    before = stamps(folder / "runs")
    store_scored(stored.score(), db=stored.db)
    stored.execute("UPDATE eval_runs SET suite = 'other', config_snapshot_json = '{\"chunker_version\": \"x\"}'")
    assert archive(stored, folder).written == []
    assert stamps(folder / "runs") == before
    assert_same_numbers(stored, folder)
    assert set(pl.read_parquet(table(folder, "eval_runs"))["suite"]) == {"other"}


def test_a_run_that_is_gone_stays_until_it_is_pruned(
    stored: Workspace, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive(stored, folder)
    both = rows_of(folder)
    stored.execute("DELETE FROM eval_query_results WHERE run_id = 'one'")
    stored.execute("DELETE FROM eval_runs WHERE run_id = 'one'")
    for _ in range(3):
        assert "1 run no longer in the database, kept" in said(capfd, stored.db, "archive", str(folder))[2]
    assert rows_of(folder) == both
    place = run_folder(folder, "one")
    assert "1 run no longer in the database, removed" in said(capfd, stored.db, "archive", str(folder), "--prune")[2]
    assert_same_rows(stored, folder)
    # Readers are not disturbed: it is deleted only after another change.
    assert place.is_dir()
    stored.add_run("three", ROWS)
    archive(stored, folder)
    assert not place.exists()


def test_rows_that_get_the_numbers_of_deleted_ones_are_kept_apart(workspace: Workspace, folder: Path) -> None:
    """SQLite gives the numbers of deleted rows to new ones, and VACUUM renumbers all of them."""
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    runs: dict[str, Any] = {name: {"q": {"hits_top_k": hits(*"xyz"[:n], "c")}} for n, name in enumerate("abcd")}
    everything = Workspace(folder.parent, "everything.db")
    for name, rows in runs.items():
        everything.add_run(name, rows)
        workspace.execute("DELETE FROM eval_query_results")
        workspace.execute("DELETE FROM eval_runs")
        workspace.execute("VACUUM")
        workspace.add_run(name, rows)
        archive(workspace, folder)
    assert numbers(folder, workspace.golden) == numbers(everything.db, workspace.golden)


def test_a_columnar_copy_next_to_the_database_makes_no_difference(stored: Workspace, folder: Path) -> None:
    for number in range(3):
        stored.score(cache="on")
        archive(stored, folder, options=ScoreOptions(cache="on"))
        stored.add_run(f"more-{number}", ROWS)
    archive(stored, folder, options=ScoreOptions(cache="on"))
    assert_same_rows(stored, folder)


def test_a_run_of_another_version_is_written_next_to_the_old_one(
    stored: Workspace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that reads the old one meanwhile can continue."""
    archive(stored, folder)
    old = run_folder(folder, "one")
    before = stamps(old)
    definitions = "kbeval.storage.{}.definitions"
    for module in ("parts", "manifest"):
        monkeypatch.setattr(definitions.format(module), lambda: "feedfeedfeedfeed")
    assert archive(stored, folder).written == ["one", "two"]
    assert run_folder(folder, "one") != old
    assert stamps(old) == before
    assert_same_rows(stored, folder)


HOSTILE = [
    "../x",
    "a/b",
    "",
    "Run",
    "run",
    "RUN",
    "r" * 300,
    "ü – 漢字",
    "con",
    ".",
    "..",
    "a'b\"c",
    "a\nb",
    "*[1]?",
    " ",
    "~",
]


def test_run_ids_may_be_anything(stored: Workspace, folder: Path) -> None:
    for number, run_id in enumerate(HOSTILE):
        stored.add_run(run_id, {"q1": {"hits_top_k": hits(*["x"] * (number % 5), "c1")}}, created_at=f"{number:03}")
    # Same rows, another run: they are distinguished by their ids alone.
    outside = contents(folder.parent)
    archive(stored, folder)
    assert {name: sha for name, sha in contents(folder.parent).items() if not name.startswith("history/")} == outside
    names = [place["name"] for place in manifest(folder)["runs"].values()]
    assert len({name.lower() for name in names}) == len(names) == len(HOSTILE) + 2
    assert all(len(name) < 120 and name.isascii() and "/" not in name for name in names)
    assert_same_numbers(stored, folder)
    assert archive(stored, folder).written == []
    assert folder_name("run", "sha256:1") != folder_name("Run", "sha256:1")


def test_folders_may_be_called_anything(stored: Workspace, tmp_path: Path) -> None:
    """Also where another folder is there that the name, taken for a pattern, would mean."""
    names = ("hist[1]", "his?1*", "it's ü –")
    archive(stored, tmp_path / "hist1")
    stored.execute("UPDATE eval_runs SET suite = 'other'")
    for name in names:
        archive(stored, tmp_path / name)
        assert set(pl.read_parquet(table(tmp_path / name, "eval_runs"), glob=False)["suite"]) == {"other"}, name
    shutil.rmtree(tmp_path / "hist1" / "runs")
    expected = rows_of(stored.db)
    stored.execute("DELETE FROM eval_runs WHERE run_id = 'one'")
    for name in names:
        assert archive(stored, tmp_path / name).gone == ["one"], name
        # The run that is gone stays.
        assert rows_of(tmp_path / name) == expected, name
        assert len(expected["runs"]) == 2


def test_an_empty_database_and_empty_runs_can_be_archived(workspace: Workspace, folder: Path) -> None:
    workspace.add_golden({"id": "q"})
    assert archive(workspace, folder).written == []
    assert pl.read_parquet(table(folder, "eval_runs")).schema["run_id"] == pl.String
    workspace.add_run("empty", {})
    workspace.add_run("17", {})
    assert archive(workspace, folder).written == ["17", "empty"]
    assert_same_rows(workspace, folder)
    workspace.add_run("full", ROWS)
    archive(workspace, folder)
    assert_same_rows(workspace, folder)
    assert pl.read_parquet(run_folder(folder, "empty") / "rows.parquet").schema["result_no"] == pl.Int64


# --- where it refuses ---------------------------------------------------------------------------------


def test_a_folder_that_is_not_its_own_is_left_alone(
    stored: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "chunks.parquet").write_text("mine")
    before = contents(tmp_path)
    assert "is a file" in refused(capfd, stored.db, "archive", str(file))
    assert "cannot be written" in refused(capfd, stored.db, "archive", str(file / "below"))
    assert "contains other files" in refused(capfd, stored.db, "archive", str(mine))
    assert "contains other files" in refused(capfd, stored.db, "archive", str(tmp_path))
    cache = Path(f"{stored.db}.kbeval-cache")
    assert "is a part of" in refused(capfd, stored.db, "archive", str(cache))
    assert "there is no database" in refused(capfd, tmp_path / "no.db", "archive", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    assert contents(tmp_path) == before


def test_files_of_others_in_an_archive_are_left_alone(stored: Workspace, folder: Path) -> None:
    archive(stored, folder)
    own = [folder / "mine.parquet", folder / "chunks-mine.parquet", folder / "runs" / "notes.txt", folder / "drafts.md"]
    for path in own:
        path.write_text("mine")
    (folder / "draft-of-mine").mkdir()
    for number in range(3):
        stored.add_run(f"more-{number}", ROWS)
        archive(stored, folder)
    assert all(path.read_text() == "mine" for path in own)
    assert (folder / "draft-of-mine").is_dir()
    assert_same_rows(stored, folder)


def test_a_folder_that_cannot_be_written_is_named(stored: Workspace, folder: Path) -> None:
    archive(stored, folder)
    before = contents(folder)
    stored.add_run("three", ROWS)
    command = [sys.executable, "-m", "kbeval", "archive", str(folder), "--db", str(stored.db)]
    folder.chmod(0o555)
    try:
        done = subprocess.run(without_privileges(*command), capture_output=True, text=True, check=False)
    finally:
        folder.chmod(0o755)
    assert done.returncode == 2
    assert done.stderr == (
        f"kbeval: {folder} cannot be updated: Permission denied; its previous contents are unchanged\n"
    )
    assert contents(folder) == before


def test_where_there_is_no_space_left_the_file_is_named(stored: Workspace, tmp_path: Path) -> None:
    """Not the folder for what does not fit into memory."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))"
    code = f"{limit}; import kbeval.cli; kbeval.cli.main()"
    folder = tmp_path / "history"
    command = [sys.executable, "-c", code, "archive", str(folder), "--db", str(stored.db)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"kbeval: no space left for {folder}")
    assert line.endswith("free some, or write to another disk")
