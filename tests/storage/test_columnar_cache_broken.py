"""The columnar copy, damaged in every way: it is silently rebuilt or ignored, and never trusted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbeval.storage.cache
from kbeval.compare.options import CompareOptions
from kbeval.compare.run import compare_runs
from kbeval.errors import UsageError
from kbeval.explore.explorer import open_explorer
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.cache import WORTH_BYTES
from kbeval.storage.parts import read_sealed, write_sealed
from tests.support.caching import DIGESTS, NOTHING, RIGHT, ROWS, CachedWorkspace, row
from tests.support.examples import scorings
from tests.support.workspace import without_privileges


@pytest.fixture
def cached(tmp_path: Path) -> CachedWorkspace:
    return CachedWorkspace(tmp_path)


# --- what may have happened to the files --------------------------------------------------------------


def rewritten(change: Callable[[dict[str, Any]], object]) -> Callable[[CachedWorkspace], None]:
    """A manifest with a right checksum that says something wrong."""

    def rewrite(cached: CachedWorkspace) -> None:
        (part,) = cached.parts()
        found = read_sealed(part / "part.json")
        change(found)
        write_sealed(part / "part.json", found)

    return rewrite


def in_part(change: Callable[[Path], object], name: str) -> Callable[[CachedWorkspace], object]:
    return lambda cached: change(next(cached.folder.glob(name)))


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def another_byte(path: Path, place: int = -100) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def gone(path: Path) -> None:
    path.unlink()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def everything_gone(cached: CachedWorkspace) -> None:
    shutil.rmtree(cached.folder)


def only_the_lock(cached: CachedWorkspace) -> None:
    shutil.rmtree(cached.folder)
    cached.folder.mkdir(mode=0o700)
    (cached.folder / "lock").touch()


HITS = "part-*/hits.parquet"
BREAKS: dict[str, Callable[[CachedWorkspace], object]] = {
    "a file is cut short": in_part(cut_short, HITS),
    "a file is empty": in_part(lambda path: os.truncate(path, 0), HITS),
    "a byte is another": in_part(another_byte, HITS),
    "a byte of the answers is another": in_part(lambda path: another_byte(path, 10), "part-*/answers.parquet"),
    "a file is missing": in_part(gone, HITS),
    "a file is a folder": in_part(a_folder, HITS),
    "the manifest is missing": in_part(gone, "part-*/part.json"),
    "the manifest is cut short": in_part(cut_short, "part-*/part.json"),
    "the manifest is no JSON": in_part(lambda path: path.write_bytes(b"\xff\x00{"), "part-*/part.json"),
    "the manifest is a list": in_part(lambda path: path.write_text("[]"), "part-*/part.json"),
    "the manifest is deep": in_part(lambda path: path.write_text("[" * 100_000), "part-*/part.json"),
    "the manifest is a folder": in_part(a_folder, "part-*/part.json"),
    "it leads elsewhere": rewritten(lambda found: found["files"]["hits"][0].__setitem__(0, "../../../etc/passwd")),
    "it leads up": rewritten(lambda found: found["files"]["hits"][0].__setitem__(0, "..")),
    "it leads to a root": rewritten(lambda found: found["files"]["hits"][0].__setitem__(0, "/etc/passwd")),
    "a name has an end in it": rewritten(lambda found: found["files"]["hits"][0].__setitem__(0, "a\0.parquet")),
    "a size is negative": rewritten(lambda found: found["files"]["hits"][0].__setitem__(1, -1)),
    "a size is endless": rewritten(lambda found: found["files"]["hits"][0].__setitem__(1, float("inf"))),
    "a number is text": rewritten(lambda found: found["runs"]["run1"].__setitem__(1, "one")),
    "a number is endless": rewritten(lambda found: found["runs"]["run1"].__setitem__(2, float("inf"))),
    "the runs are a list": rewritten(lambda found: found.__setitem__("runs", [])),
    "the files are missing": rewritten(lambda found: found.pop("files")),
    "a relation is missing": rewritten(lambda found: found["files"].pop("hits")),
    "another version made it": rewritten(lambda found: found.__setitem__("definitions", "0" * 16)),
    "another engine made it": rewritten(lambda found: found.__setitem__("duckdb", "0.1")),
    "it has another format": rewritten(lambda found: found.__setitem__("format", 0)),
    "what is known is cut short": in_part(cut_short, "rows.json"),
    "what is known is garbage": in_part(lambda path: path.write_bytes(os.urandom(100)), "rows.json"),
    "what is known is missing": in_part(gone, "rows.json"),
    "everything is missing": everything_gone,
    "only the lock is there": only_the_lock,
}


def test_a_broken_copy_is_made_again(cached: CachedWorkspace) -> None:
    """Damaged in one way after the other; each time it is rebuilt."""
    before = cached.settle()
    for happened, break_it in BREAKS.items():
        break_it(cached)
        found = cached.facts("on")
        assert found.text == before, happened
        assert found.read == (DIGESTS if "is known" in happened else ROWS), happened
        assert cached.reads() == NOTHING, happened
        assert len(cached.parts()) == 1, happened


@pytest.mark.slow
@scorings(6)
@given(st.data())
def test_a_byte_that_is_another_anywhere_changes_no_number(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    cached = CachedWorkspace(tmp_path_factory.mktemp("flipped"))
    before = cached.facts("on", "hit_claims").text
    names = sorted(str(path.relative_to(cached.folder)) for path in cached.folder.rglob("*") if path.is_file())
    # The names of parts are random, those of what is in them are not.
    path = cached.folder / data.draw(st.sampled_from(sorted(names, key=lambda name: name.rpartition("/")[2])))
    # Files differ by a few bytes from one time to the next; what is drawn must not.
    place = data.draw(st.integers(0, 2**20))
    if size := path.stat().st_size:
        another_byte(path, place % size)
    assert cached.facts("on", "hit_claims").text == before
    assert cached.facts("on", "hit_claims").text == before


def test_incomplete_files_of_another_process_are_removed(cached: CachedWorkspace) -> None:
    before = cached.settle()
    for name in ("draft-a", "part-b"):
        (cached.folder / name).mkdir()
        (cached.folder / name / "hits.parquet").write_bytes(b"PAR1")
    (cached.folder / "part-file").write_text("no folder")
    (cached.folder / "draft-link").symlink_to(cached.db.parent)
    assert cached.right() == before
    assert {path.name for path in cached.folder.glob("*-*")} == {path.name for path in cached.parts()}
    assert len(cached.parts()) == 1
    assert cached.db.exists()


def test_a_broken_copy_that_was_not_asked_for_is_not_merged_with_the_others(
    cached: CachedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get a new checksum, and the damage could no longer be detected."""
    monkeypatch.setattr(kbeval.storage.cache, "MOST_PARTS", 2)
    cached.settle()
    answers = cached.parts()[0] / "answers.parquet"
    content = answers.read_bytes()
    assert b"fifteen minutes" in content
    answers.write_bytes(content.replace(b"fifteen minutes", b"fifteen hundred"))
    for number in (4, 5):
        cached.add_run(f"run{number}", {"q1": row(RIGHT)})
        cached.score(f"run{number}", cache="on")
    assert len(cached.parts()) == 1
    assert "hundred" not in cached.right()


# --- a folder that cannot be used ------------------------------------------------------------------------


def test_a_file_in_the_place_of_the_folder_is_left_alone(cached: CachedWorkspace) -> None:
    cached.folder.write_text("mine")
    assert cached.right()
    assert cached.reads() == ROWS
    assert cached.folder.read_text() == "mine"


def test_a_link_of_ours_to_another_folder_is_followed(cached: CachedWorkspace, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    cached.folder.symlink_to(tmp_path / "elsewhere")
    cached.settle()
    assert list((tmp_path / "elsewhere").glob("part-*"))


def test_a_link_that_leads_nowhere_is_not_an_error(cached: CachedWorkspace, tmp_path: Path) -> None:
    cached.folder.symlink_to(tmp_path / "nowhere")
    assert cached.right()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("how", ["folder", "link"])
def test_files_of_other_users_are_not_trusted(cached: CachedWorkspace, tmp_path: Path, how: str) -> None:
    cached.settle()
    if how == "link":
        cached.folder.rename(tmp_path / "mine")
        cached.folder.symlink_to(tmp_path / "mine")
    os.chown(cached.folder, 65534, 65534, follow_symlinks=False)
    assert cached.reads() == ROWS


def test_a_folder_that_cannot_be_written_is_done_without(cached: CachedWorkspace, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kbeval", "score", "--all", "--dry-run", "--format", "json", "--cache", "on"]
    command += ["--db", str(cached.db), "--golden", str(cached.golden)]
    plain = subprocess.run([*command, "--cache", "off"], capture_output=True, text=True, check=True)
    tmp_path.chmod(0o555)
    try:
        first = subprocess.run(without_privileges(*command), capture_output=True, text=True, check=False)
        assert not cached.folder.exists()
    finally:
        tmp_path.chmod(0o755)
    cached.settle()
    cached.folder.chmod(0o555)
    second = subprocess.run(without_privileges(*command), capture_output=True, text=True, check=False)
    cached.folder.chmod(0o755)
    for found in (first, second):
        assert (found.returncode, found.stdout, found.stderr) == (0, plain.stdout, plain.stderr)


def test_a_full_disk_is_not_an_error(cached: CachedWorkspace) -> None:
    """A file may be no longer than a kilobyte here: no copy can be written."""
    code = (
        "import resource, signal, sys; from kbeval.__main__ import main; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)); main()"
    )
    command = [sys.executable, "-c", code, "score", "--all", "--dry-run", "--cache", "on"]
    command += ["--db", str(cached.db), "--golden", str(cached.golden)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.splitlines()[0]) == (
        0,
        "dry run: nothing was stored; would store the numbers of 3 runs",
    )
    assert cached.right()


# --- deleted while it is read ----------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["building expected hits", "computing scores"])
def test_a_copy_deleted_while_it_is_read_is_done_without(cached: CachedWorkspace, moment: str) -> None:
    cached.change()
    cached.settle()
    plain = cached.numbers("off")
    steps: list[str] = []

    def delete(step: str) -> None:
        if step == moment and moment not in steps:
            shutil.rmtree(cached.folder)
        steps.append(step)

    assert cached.numbers("on", on_step=delete) == plain
    assert moment in steps
    assert "building parsed" in steps


def test_a_comparison_goes_on_without_a_copy_that_was_deleted(cached: CachedWorkspace) -> None:
    cached.change()
    cached.settle()

    def delete(step: str) -> None:
        if step == "computing scores":
            shutil.rmtree(cached.folder, ignore_errors=True)

    reports = [
        compare_runs("run1", "run2", db=cached.db, golden=cached.golden, options=CompareOptions(scoring, resamples=100))
        for scoring in (ScoreOptions(cache="off"), ScoreOptions(cache="on", on_step=delete))
    ]
    assert reports[0].to_json() == reports[1].to_json()


def test_a_question_after_the_copy_was_deleted_is_one_line_and_the_next_is_answered(cached: CachedWorkspace) -> None:
    cached.settle()
    with open_explorer(cached.db, cached.golden, ScoreOptions(cache="on")) as explorer:
        question = "SELECT COUNT(*) FROM hits"
        found = explorer.query(question).rows()
        shutil.rmtree(cached.folder)
        with pytest.raises(UsageError) as caught:
            explorer.query(question)
        assert len(str(caught.value).splitlines()) == 1
        assert explorer.query(question).rows() == found


# --- whether there is one at all -----------------------------------------------------------------------


def test_a_small_database_has_a_copy_only_where_it_is_asked_for(cached: CachedWorkspace) -> None:
    cached.score()
    cached.score(cache="off")
    assert not cached.folder.exists()
    cached.score(cache="on")
    assert cached.folder.is_dir()
    assert (cached.folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert cached.folder.stat().st_mode & 0o077 == 0


def test_a_large_database_has_a_copy_unless_it_is_switched_off(cached: CachedWorkspace) -> None:
    cached.execute("CREATE TABLE ballast AS SELECT zeroblob(?) AS weight", (WORTH_BYTES,))
    cached.score(cache="off")
    assert not cached.folder.exists()
    cached.score()
    assert cached.parts()


def test_flag_before_environment_before_file_say_whether_there_is_a_copy(cached: CachedWorkspace) -> None:
    base = [sys.executable, "-m", "kbeval", "score", "run1", "--dry-run"]
    base += ["--db", str(cached.db), "--golden", str(cached.golden)]
    toml = cached.db.parent / "kbeval.toml"

    def is_kept(*flags: str, environment: str | None = None, file: str | None = None) -> bool:
        shutil.rmtree(cached.folder, ignore_errors=True)
        toml.write_text("" if file is None else f'cache = "{file}"\n')
        added = {} if environment is None else {"KBEVAL_CACHE": environment}
        subprocess.run([*base, *flags], check=True, capture_output=True, cwd=toml.parent, env={**os.environ, **added})
        return cached.folder.exists()

    assert is_kept(file="on")
    assert not is_kept(file="on", environment="off")
    assert is_kept("--cache", "on", file="off", environment="off")


def test_the_allowed_values_of_cache_are_named(cached: CachedWorkspace) -> None:
    (cached.db.parent / "kbeval.toml").write_text('cache = "always"\n')
    command = [sys.executable, "-m", "kbeval", "runs", "--db", str(cached.db)]
    found = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cached.db.parent)
    assert found.returncode == 2
    assert "cache must be one of" in found.stderr


def test_a_copy_of_other_definitions_is_not_used(cached: CachedWorkspace, tmp_path: Path) -> None:
    """The situation of a new version that reads rows differently."""
    before = cached.settle()
    root = Path(kbeval.__file__).parent.parent
    shutil.copytree(root / "kbeval", tmp_path / "new" / "kbeval")
    shutil.copytree(root / "sql", tmp_path / "new" / "sql")
    for hits in (tmp_path / "new" / "sql" / "stored").glob("hits*.sql"):
        hits.write_text(hits.read_text().replace("    rank,\n", "    rank + 1 AS rank,\n", 1))
    code = (
        "import sys; from kbeval.scoring.options import ScoreOptions;"
        "from kbeval.scoring.aggregate import compute_aggregate;"
        "options = ScoreOptions(cache=sys.argv[3]);"
        "print(compute_aggregate('run1', db=sys.argv[1], golden=sys.argv[2], options=options).to_json())"
    )
    command = [sys.executable, "-c", code, str(cached.db), str(cached.golden)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "new")}
    found = [
        subprocess.run([*command, cache], check=True, capture_output=True, text=True, cwd="/", env=environment).stdout
        for cache in ("on", "on", "off")
    ]
    assert found[0] == found[1] == found[2]
    assert json.loads(found[0])["mrr"] == 0.5
    assert cached.right() == before
