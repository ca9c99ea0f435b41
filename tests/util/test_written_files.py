"""What kbeval writes: never over its input, keeping the file mode, and with nothing left by a killed process."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from kbeval.cli import cli
from kbeval.errors import UsageError
from kbeval.util.drafts import draft_file, draft_folder, draft_prefix, remove_abandoned
from kbeval.util.files import check_target, whole_database, whole_file, write_whole
from kbeval.util.locks import take_lock
from tests.support.workspace import Workspace, hits


@pytest.fixture
def runs(workspace: Workspace) -> Workspace:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    for number in (1, 2):
        workspace.add_run(
            f"r{number}", {"q": {"query_id": "q", "hits_top_k": hits("c")}}, created_at=f"2026-01-0{number}"
        )
    workspace.execute(
        "UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = 'r2'", ('{"kbeval": {"system": "anchors"}}',)
    )
    return workspace


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, arguments)
    error = str(result.exception) if result.exception is not None else ""
    assert isinstance(result.exception, UsageError | SystemExit | None), result.exception
    if isinstance(result.exception, SystemExit):
        return result.exit_code, result.output.splitlines()[-1]
    return (2 if error else result.exit_code), error


# --- what must not be written ------------------------------------------------------------------------

# Each says a way to name the file, given its path; None where the system has no such way.
SPELLINGS: dict[str, Callable[[Path], Path]] = {
    "as it is": lambda path: path,
    "relative": lambda path: Path(os.path.relpath(path)),
    "roundabout": lambda path: path.parent / ".." / path.parent.name / path.name,
    "symbolic link": lambda path: made(path, os.symlink),
    "hard link": lambda path: made(path, os.link),
    "folder link": lambda path: made(path.parent, os.symlink) / path.name,
}


def made(path: Path, link: Callable[[Path, Path], None]) -> Path:
    place = Path.cwd() / "links" / f"to-{path.name}"
    place.parent.mkdir(exist_ok=True)
    link(path, place)
    return place


@pytest.fixture
def protected(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "data"
    (folder / "x").mkdir(parents=True)
    (folder / "kb.db.kbeval-cache").mkdir()
    found = {name: folder / name for name in ("kb.db", "kb.db-wal", "kb.db-shm", "kb.db-journal", "golden.yaml")}
    found["cached"] = folder / "kb.db.kbeval-cache" / "part.parquet"
    for path in found.values():
        path.write_text("mine")
    return found


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", ["kb.db", "kb.db-wal", "kb.db-shm", "kb.db-journal", "golden.yaml", "cached"])
def test_what_is_read_is_never_written(protected: dict[str, Path], name: str, spelling: str) -> None:
    never = [protected["kb.db"], protected["golden.yaml"]]
    target = SPELLINGS[spelling](protected[name])
    if name == "cached" and spelling == "hard link":
        return  # kbeval itself opens a file of its cache by name only
    with pytest.raises(UsageError, match="choose another file"):
        write_whole(target, "other", never)
    assert protected[name].read_text() == "mine"
    assert not [path for path in target.parent.iterdir() if ".kbeval-" in path.name and path.name.startswith(".")]


def test_a_database_that_is_named_by_a_link_is_protected_under_both_names(protected: dict[str, Path]) -> None:
    link = made(protected["kb.db"], os.symlink)
    for target in (protected["kb.db"], Path(f"{protected['kb.db']}-wal"), Path(f"{link}-wal")):
        with pytest.raises(UsageError, match="choose another file"):
            check_target(target, [link])


def test_nothing_is_opened_to_find_that_out(protected: dict[str, Path]) -> None:
    opened: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and "kb.db" in str(arguments[0]) and watching:
            opened.append(str(arguments[0]))

    watching = True
    sys.addaudithook(watch)
    with pytest.raises(UsageError):
        check_target(protected["kb.db"], [protected["kb.db"]])
    watching = False
    assert opened == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["sql", "SELECT 1 AS one", "--format", "csv", "-o", "{}"],
        ["sql", "SELECT 1 AS one", "--format", "parquet", "-o", "{}"],
        ["compare", "r1", "r2", "--report", "{}"],
        ["report", "r2", "-o", "{}"],
        ["history", "mrr", "--plot", "{}.svg"],
        ["export", "duckdb", "{}", "--replace"],
        ["export", "anchors", "r2", "{}", "--replace"],
        ["archive", "{}"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_no_command_writes_over_the_database_or_what_belongs_to_it(runs: Workspace, arguments: list[str]) -> None:
    before = runs.db.read_bytes()
    endings = ["", "-wal", "-shm", "-journal", ".kbeval-cache"]
    # It compares before it looks at the path; tests/cli/test_cli_compare.py tries the first two.
    for ending in endings[3:] if arguments[0] == "compare" else endings:
        filled = [part.format(f"{runs.db}{ending}") for part in arguments]
        if "--plot" in filled:
            # Where the ending says the format, a link must do.
            Path(f"{runs.db}{ending}.svg").symlink_to(f"{runs.db}{ending}")
        code, error = call(
            *filled, "--db", str(runs.db), *(["--golden", str(runs.golden)] if filled[0] != "history" else [])
        )
        assert code == 2, (ending, error)
        assert len(error.splitlines()) <= 1, ending
        assert runs.db.read_bytes() == before, ending
        if ending:
            assert not Path(f"{runs.db}{ending}").exists(), ending
    # It is still a database.
    assert call("runs", "--db", str(runs.db))[0] == 0


def test_an_archive_is_not_made_where_sqlite_keeps_a_part_of_any_database(runs: Workspace, tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(runs.db.read_bytes())
    for place in ("kb.db-wal", "other.db-wal", "other.db-journal"):
        code, error = call("archive", place, "--db", str(runs.db))
        assert code == 2
        assert "choose another file" in error
        assert not Path(place).exists()
    assert call("demo", "kb.db-wal")[0] == 2
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "results.jsonl").write_text('{"test_case_id": "t"}\n')
    assert call("import", "anchors", "results", "--db", "kb.db-journal")[0] == 2
    assert not Path("kb.db-journal").exists()
    assert call("runs", "--db", str(runs.db))[0] == 0


def test_no_command_writes_over_the_labels_the_settings_the_question_or_own_metrics(
    runs: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "kbeval.toml").write_text('db = "kb.db"\ngolden = "golden.json"\nmetrics_dir = "own"\n')
    (tmp_path / "question.sql").write_text("SELECT 1 AS one")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.sql").write_text("-- mine: hits\n-- better: higher\nCOUNT(*)\n")
    files = ["kbeval.toml", "golden.json", "question.sql", "own/mine.sql"]
    before = {name: (tmp_path / name).read_bytes() for name in files}
    for name in files:
        code, error = call("sql", "-f", "question.sql", "--format", "csv", "-o", name)
        assert (code, "read by this command; choose another file" in error) == (2, True), (name, error)
    assert {name: (tmp_path / name).read_bytes() for name in files} == before
    (tmp_path / "folder").mkdir()
    os.link(tmp_path / "golden.json", tmp_path / "folder" / "metrics.json")
    assert call("export", "anchors", "r2", "folder", "--replace")[0] == 2
    (tmp_path / "folder" / "results.jsonl").symlink_to(tmp_path / "kb.db")
    assert call("export", "anchors", "r2", "folder", "--replace")[0] == 2
    assert {name: (tmp_path / name).read_bytes() for name in files} == before


def test_a_link_that_leads_to_itself_is_reported(runs: Workspace, tmp_path: Path) -> None:
    for ending in ("csv", "svg"):
        (tmp_path / f"other.{ending}").symlink_to(f"loop.{ending}")
        (tmp_path / f"loop.{ending}").symlink_to(f"other.{ending}")
    for arguments in (
        ["sql", "SELECT 1", "-o", "loop.csv"],
        ["export", "duckdb", "loop.csv"],
        ["export", "anchors", "r2", "loop.csv", "--replace"],
        ["compare", "r1", "r2", "--golden", "golden.json", "--report", "loop.csv"],
        ["report", "r1", "r2", "--golden", "golden.json", "-o", "loop.csv"],
        ["archive", "loop.csv"],
        ["history", "mrr", "--plot", "loop.svg"],
    ):
        code, error = call(*arguments, "--db", str(runs.db))
        assert code == 2, arguments
        assert "is a symbolic link to itself" in error, arguments


# --- modes and devices -------------------------------------------------------------------------------


MODES = (0o600, 0o640, 0o664, 0o444)


@pytest.mark.parametrize("write", [whole_file, whole_database], ids=lambda write: write.__name__)
def test_a_file_keeps_its_mode(tmp_path: Path, write: Callable[[Path], AbstractContextManager[Any]]) -> None:
    path = tmp_path / "out"
    for mode in MODES:
        path.unlink(missing_ok=True)
        path.touch()
        path.chmod(mode)
        with write(path) as draft:
            draft.write_bytes(b"new") if isinstance(draft, Path) else draft.write(b"new")
        assert path.read_bytes() == b"new", oct(mode)
        assert stat.S_IMODE(path.stat().st_mode) == mode, oct(mode)


def test_the_file_of_a_command_keeps_its_mode(runs: Workspace, tmp_path: Path) -> None:
    """And an export opens, and leaves no draft."""
    for name, mode, arguments in (
        ("out.csv", 0o640, ["sql", "SELECT 1 AS one", "-o", "out.csv"]),
        ("out.csv", 0o444, ["sql", "SELECT 1 AS one", "-o", "out.csv"]),
        ("out.duckdb", 0o664, ["export", "duckdb", "out.duckdb", "--replace"]),
    ):
        path = tmp_path / name
        path.unlink(missing_ok=True)
        path.touch()
        path.chmod(mode)
        assert call(*arguments, "--db", str(runs.db)) == (0, ""), name
        assert path.stat().st_size, name
        assert stat.S_IMODE(path.stat().st_mode) == mode, name
    with closing(duckdb.connect("out.duckdb", read_only=True)) as file:
        assert file.execute("SELECT COUNT(*) FROM runs").fetchall() == [(2,)]
    assert drafts(tmp_path) == []


def test_a_new_file_follows_the_umask_and_is_private_until_it_is_whole(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with whole_file(tmp_path / "new") as file:
            (draft,) = tmp_path.iterdir()
            assert stat.S_IMODE(draft.stat().st_mode) == 0o600
            file.write(b"text")
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    finally:
        os.umask(old)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.chown(path, 1234, 2345)
    write_whole(path, "text")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "file")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "text"


KBEVAL = [sys.executable, "-m", "kbeval"]
ONE = ["sql", "SELECT 1 AS one", "--format", "csv", "-o"]


# The commands one after another in one process, whose standard output is what is tested.
WRITE_ALL = f"""
import sys
from kbeval.cli import run
db, *devices = sys.argv[1:]
for device in devices:
    assert run([*{ONE!r}, device, "--db", db]) == 0
"""
DEVICES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def test_standard_output_takes_the_bytes(runs: Workspace, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITE_ALL, str(runs.db), *DEVICES]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"one\n1\n" * 3
    # A file that is being appended to keeps what it has.
    path = tmp_path / "log"
    with path.open("wb") as log:
        log.write(b"before\n")
        log.flush()
        subprocess.run(command, stdout=log, stderr=subprocess.DEVNULL, check=True)
    assert path.read_bytes() == b"before\n" + b"one\n1\n" * 3


def test_other_devices_and_pipes_take_the_bytes(runs: Workspace, tmp_path: Path) -> None:
    assert call(*ONE, "/dev/null", "--db", str(runs.db)) == (0, "")
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    assert call(*ONE, "pipe", "--db", str(runs.db)) == (0, "")
    reader.join(10)
    assert got == [b"one\n1\n"]
    if Path("/dev/full").exists():
        assert call(*ONE, "/dev/full", "--db", str(runs.db))[0] == 2


# --- drafts ------------------------------------------------------------------------------------------


def drafts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(".") and ".kbeval-" in path.name)


def killed(tmp_path: Path, code: str) -> None:
    """Run Python code that says when it is ready, and kill it then."""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)


WRITING = """
from pathlib import Path
from kbeval.util.files import {function}
with {function}(Path("out")) as made:
    if isinstance(made, Path):
        made.touch()
    print("ready", flush=True)
    input()
"""


@pytest.mark.parametrize("function", ["whole_file", "whole_database"])
def test_the_draft_of_a_killed_process_is_removed_and_no_other(tmp_path: Path, function: str) -> None:
    killed(tmp_path, WRITING.format(function=function))
    assert len(drafts(tmp_path)) == 1
    (tmp_path / ".out.kbeval-not-mine").write_text("of somebody else")
    (tmp_path / ".other.kbeval-abcdefgh").write_text("of another file")
    (tmp_path / ".out.kbeval-abcd_fgh").symlink_to(tmp_path / ".out.kbeval-not-mine")
    living = subprocess.Popen(
        [sys.executable, "-c", WRITING.format(function=function)],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert living.stdout is not None
    assert living.stdout.readline() == b"ready\n"
    (held,) = set(drafts(tmp_path)) - {".out.kbeval-not-mine", ".other.kbeval-abcdefgh", ".out.kbeval-abcd_fgh"}
    write_whole(tmp_path / "out", "text")
    left = {held, ".out.kbeval-not-mine", ".other.kbeval-abcdefgh", ".out.kbeval-abcd_fgh"}
    assert set(drafts(tmp_path)) == left
    living.communicate(b"\n", timeout=30)
    assert set(drafts(tmp_path)) == left - {held}


def _is_empty(path: Path) -> bool:
    try:
        return not any(path.iterdir())
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "duckdb", "out.duckdb", "--replace"],
        ["sql", "SELECT a.*, b.text AS other FROM hits AS a CROSS JOIN hits AS b", "-o", "out.csv"],
        ["archive", "out"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_killed_commands_leave_nothing_after_the_next_one(
    workspace: Workspace, tmp_path: Path, arguments: list[str]
) -> None:
    rows = {f"q{n}": {"query_id": f"q{n}", "hits_top_k": hits(*[f"c{m}" for m in range(10)])} for n in range(400)}
    workspace.add_run("run", rows)
    folder = tmp_path / "out" if arguments[0] == "archive" else tmp_path

    def left() -> list[str]:
        # A folder whose maker was killed before it could lock it is empty, and is removed when it is a minute old.
        found = [name for name in drafts(folder) if not _is_empty(folder / name)] if folder.is_dir() else []
        return found + [path.name for path in folder.glob("draft-*")]

    for _ in range(20):
        process = subprocess.Popen([*KBEVAL, *arguments, "--db", str(workspace.db)], stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not left() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        process.kill()
        process.wait(10)
        if left():
            break
    assert left()
    if arguments[0] == "sql":
        arguments = ["sql", "SELECT 1 AS one", *arguments[2:]]
    assert call(*arguments, "--db", str(workspace.db)) == (0, "")
    assert left() == []


def test_drafts_are_made_and_removed_at_once_without_harm(tmp_path: Path) -> None:
    """Makers and removers in many threads: no maker loses its draft."""
    faults: list[BaseException] = []

    def make() -> None:
        try:
            for _ in range(60):
                with draft_file(tmp_path / "out") as draft:
                    draft.write_bytes(b"x")
                    assert draft.read_bytes() == b"x"
                with draft_folder(tmp_path, draft_prefix("out")) as folder:
                    (folder / "file").write_bytes(b"x")
        except BaseException as error:  # noqa: BLE001  (told by the test)
            faults.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        remove_abandoned(tmp_path, draft_prefix("out"))
        time.sleep(0.001)
    assert faults == []
    assert list(tmp_path.iterdir()) == []


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".out.kbeval-abcdefgh").write_text("a draft, perhaps")
    monkeypatch.setattr("kbeval.util.drafts.take_lock", lambda *_, **__: None)
    write_whole(tmp_path / "out", "text")
    assert drafts(tmp_path) == [".out.kbeval-abcdefgh"]
    monkeypatch.undo()
    with (tmp_path / ".out.kbeval-abcdefgh").open("r+b") as held:
        assert take_lock(held.fileno(), exclusive=True)
        write_whole(tmp_path / "out", "text")
        assert drafts(tmp_path) == [".out.kbeval-abcdefgh"]
    write_whole(tmp_path / "out", "text")
    assert drafts(tmp_path) == []


# --- results folders ---------------------------------------------------------------------------------


def results(folder: Path, rows: list[dict[str, Any]], config: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


LONG = {"test_case_id": "t", "retrieved_chunks": [{"rel_path": "p", "text": "z" * 500}]}
SHORT = {"test_case_id": "t", "retrieved_chunks": [{"rel_path": "p", "text": "z"}]}


CASES: tuple[tuple[dict[str, Any], dict[str, Any], list[str]], ...] = (
    (LONG, {}, []),
    (SHORT, {"api_key": "s3cret"}, []),
    ({**SHORT, "config": {"token": "s3cret"}}, {}, []),
    (SHORT, {}, []),
    (LONG, {"api_key": "s3cret"}, ["--full-text"]),
    (LONG, {}, ["--full-text"]),
)


def test_the_folder_that_a_run_came_from_is_never_overwritten(tmp_path: Path) -> None:
    golden = tmp_path / "golden.json"
    golden.write_text('[{"id": "t", "query": "?", "gold_supports": [{"rel_path": "p", "heading_path": ""}]}]')
    for number, (row, config, more) in enumerate(CASES):
        name = f"run{number}"
        folder = results(tmp_path / name, [row], config)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert call("import", "anchors", name, "--db", "a.db") == (0, ""), name
        link = tmp_path / f"link{number}"
        link.symlink_to(folder)
        for place in (name, f"./{link.name}", str(folder)):
            code, error = call("export", "anchors", name, place, "--replace", "--db", "a.db", *more)
            assert (code, "refusing to overwrite it" in error) == (2, True), (name, place)
        # One row more since then: it is still what the run came from.
        with (folder / "results.jsonl").open("a") as file:
            file.write('{"test_case_id": "u"}\n')
        assert call("export", "anchors", name, name, "--replace", "--db", "a.db", *more)[0] == 2, name
        (folder / "results.jsonl").write_bytes(before["results.jsonl"])
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before, name
        # Elsewhere it may go, and what is ours there may be replaced: all but the first find an export there.
        elsewhere = ["out", "--replace", "--db", "a.db", "--golden", "golden.json"]
        assert call("export", "anchors", name, *elsewhere, *more) == (0, ""), name
    assert call("export", "anchors", name, *elsewhere, *more) == (0, "")


def test_an_export_that_is_imported_again_is_the_same_run(tmp_path: Path) -> None:
    folder = results(tmp_path / "run", [SHORT], {"api_key": "s3cret", "k": 5})
    assert call("import", "anchors", str(folder), "--db", "a.db") == (0, "")
    (tmp_path / "out").mkdir()
    assert call("export", "anchors", "run", "out/run", "--db", "a.db") == (0, "")
    assert json.loads((tmp_path / "out" / "run" / "config.json").read_text()) == {"api_key": "(hidden 1)", "k": 5}
    # So that importing it does not take the place of what is there.
    result = CliRunner().invoke(cli, ["import", "anchors", "out/run", "--db", "a.db"])
    assert "unchanged run" in result.stderr


BROKEN = {
    "not JSON": "no",
    "trailing comma": '{"query_id": "bad",}',
    "cut off": '{"query_id": "bad", "hits_top_k": [',
    "a list": "[1, 2]",
    "a number": "1",
    "null": "null",
    "empty": "",
    "too deep": '{"query_id": "bad", "x": ' + "[" * 3000 + "]" * 3000 + "}",
    "not a number": '{"query_id": "bad", "x": NaN}',
    "too many digits": '{"query_id": "bad", "x": ' + "9" * 5000 + "}",
    "half a character": '{"query_id": "bad", "x": "\\ud800"}',
    "too large": '{"query_id": "bad", "x": 1e999}',
    "bad hits": '{"query_id": "bad", "hits_top_k": "none"}',
}


def test_a_row_that_cannot_be_read_is_named_and_nothing_is_written(workspace: Workspace) -> None:
    for name, text in BROKEN.items():
        workspace.add_run(name, {"good": {"query_id": "good"}, "bad": text})
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ?", ('{"kbeval": {"system": "anchors"}}',))
    for name in BROKEN:
        result = CliRunner().invoke(cli, ["export", "anchors", name, "out", "--db", str(workspace.db)])
        error = result.exception
        assert type(error).__name__ == "BadRowsError", (name, error, result.output)
        assert "1 stored row cannot be read; nothing was written" in str(error), name
        assert f"run {name}, query bad: " in str(error), name
        assert not Path("out").exists(), name


def test_bytes_that_are_not_text_are_named_too(workspace: Workspace) -> None:
    workspace.add_run("run", {"good": {"query_id": "good"}})
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ?", ('{"kbeval": {"system": "anchors"}}',))
    workspace.execute("INSERT INTO eval_query_results VALUES ('run', 'bad', CAST(x'7b22ff227d' AS TEXT))")
    result = CliRunner().invoke(cli, ["export", "anchors", "run", "out", "--db", str(workspace.db)])
    assert type(result.exception).__name__ == "BadRowsError", result.exception
    assert "query bad" in str(result.exception)
