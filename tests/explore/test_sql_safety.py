"""What `kbeval sql` and similar commands must never do: overwrite their input, fill the memory, trick a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from kbeval.cli.sql import LONGEST_QUERY
from kbeval.explore.answers import BATCH_CHARACTERS
from kbeval.explore.explorer import open_explorer
from tests.cli.test_cli import call, refused
from tests.support.workspace import Workspace, hits

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def one_run(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c1"]})
    workspace.add_run("run", {"q1": {"hits_top_k": hits(None, "c1")}})
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    return workspace


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- nothing that is read is ever written over ---------------------------------------------------------


def test_nothing_is_written_into_an_archive_that_is_read(capsys: Capture) -> None:
    call(capsys, "archive", "old")
    before = contents(Path("old"))
    (rows,) = Path("old").glob("runs/*/hits.parquet")
    Path("link").symlink_to(rows)
    for path in (rows, Path("old/manifest.json"), Path("old/new.csv"), Path("link")):
        for command in (["sql", "SELECT 1", "--format", "csv", "-o"], ["export", "duckdb", "--replace"]):
            assert "choose another file" in refused(capsys, *command, str(path), "--db", "old")
    assert "choose another file" in refused(capsys, "history", "mrr", "--plot", "old/x.svg", "--db", "old")
    assert contents(Path("old")) == before


def test_nothing_is_written_into_the_columnar_copy_or_over_the_settings(capsys: Capture, one_run: Workspace) -> None:
    call(capsys, "sql", "SELECT COUNT(*) FROM hits", "--cache", "on")
    (cache,) = Path().glob("*.kbeval-cache")
    Path("kbeval.toml").write_text("threads = 1\n")
    before = contents(Path())
    for path in (next(cache.rglob("*.parquet")), cache / "new.csv", Path(f"{one_run.db}-wal"), Path("kbeval.toml")):
        assert "choose another file" in refused(capsys, "sql", "SELECT 1", "--format", "csv", "-o", str(path))
    assert contents(Path()) == before


def test_an_archive_has_its_own_labels(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    call(capsys, "archive", "old")
    monkeypatch.delenv("KBEVAL_GOLDEN")
    count = "SELECT (SELECT COUNT(*) FROM queries) AS q, (SELECT AVG(value) FROM scores WHERE metric = 'mrr') AS mrr"
    assert call(capsys, "sql", count, "--db", "old", "--format", "csv") == (0, "q,mrr\n1,0.5\n", "")
    assert call(capsys, "export", "duckdb", "o.duckdb", "--db", "old")[0] == 0
    with duckdb.connect("o.duckdb", read_only=True) as connection:
        assert connection.execute(count).fetchall() == [(1, 0.5)]
        assert connection.execute("SELECT run_id, n_flips FROM run_order, flaky_queries").fetchall() == []
        assert connection.execute("SELECT kind FROM compare('run', 'run')").fetchall() == [("draw",)]


@pytest.mark.slow
def test_no_table_of_a_session_or_an_export_holds_a_secret(capsys: Capture, one_run: Workspace) -> None:
    config = {
        "llm": {"api_key": "hush", "url": "https://me:hush@host/"},
        "list": [{"token": "hush"}],
        "Password": "hush",
    }
    one_run.execute("UPDATE eval_runs SET config_snapshot_json = ?", (json.dumps(config),))
    one_run.execute("INSERT INTO eval_runs VALUES ('odd', 's', '{\"api_key\": \"hush', '', NULL, '2026')")
    assert call(capsys, "archive", "old")[0] == 0
    assert call(capsys, "export", "duckdb", "o.duckdb")[0] == 0
    with duckdb.connect("o.duckdb", read_only=True) as connection:
        exported = [
            name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
        ]
        for name in exported:
            assert "hush" not in str(connection.execute(f'FROM "{name}"').fetchall()), name
    # Of the archive every table, of the database those that an export does not have.
    for source, seen in (("old", set[str]()), (str(one_run.db), set(exported))):
        with open_explorer(source) as explorer:
            for table in explorer.tables():
                if table.name not in seen:
                    assert "hush" not in str(explorer.query(f'FROM "{table.name}"').rows()), (source, table.name)
    with open_explorer(one_run.db, one_run.golden) as explorer:
        assert "hush" not in str(explorer.query("FROM compare('run', 'odd')").rows())


def test_a_comparison_without_labels_is_refused(
    capsys: Capture, one_run: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would report for every query that nothing was expected."""
    monkeypatch.delenv("KBEVAL_GOLDEN")
    code, out, err = call(capsys, "sql", "FROM compare('run', 'run')", "--db", str(one_run.db))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith("no golden file is given; use --golden FILE")


# --- an export ---------------------------------------------------------------------------------------------


def test_an_export_takes_the_place_of_duckdb_files_alone(capsys: Capture) -> None:
    Path("notes.md").write_text("a long text of mine")
    assert "is not a DuckDB file" in refused(capsys, "export", "duckdb", "notes.md", "--replace")
    assert Path("notes.md").read_text() == "a long text of mine"
    duckdb.connect("o.duckdb").close()
    assert call(capsys, "export", "duckdb", "o.duckdb", "--replace")[0] == 0


def test_changes_that_another_program_left_are_not_taken_for_ours(capsys: Capture) -> None:
    """DuckDB keeps changes next to the file, and would apply them to the new one, or refuse to open it."""
    code = (
        "import duckdb, os\nc = duckdb.connect('o.duckdb')\nc.execute('CREATE TABLE t AS FROM range(5)')\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert Path("o.duckdb.wal").exists()
    before = Path("o.duckdb").read_bytes()
    assert "o.duckdb.wal exists" in refused(capsys, "export", "duckdb", "o.duckdb", "--replace")
    assert Path("o.duckdb").read_bytes() == before


@pytest.mark.slow
def test_an_export_that_is_killed_leaves_no_half_file(one_run: Workspace) -> None:
    one_run.add_run("many", {f"q{n}": {"hits_top_k": hits(*[None] * 50)} for n in range(200)})
    command = [sys.executable, "-m", "kbeval", "export", "duckdb", "o.duckdb"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not (drafts := list(Path().glob(".o.duckdb.*/o.duckdb"))):
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert drafts
    assert not Path("o.duckdb").exists()
    # What is left does no harm.
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with duckdb.connect("o.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT COUNT(*) FROM hits").fetchall() == [(10_002,)]


# --- memory --------------------------------------------------------------------------------------------------


def test_a_query_without_an_end_is_refused(capsys: Capture) -> None:
    if Path("/dev/zero").exists():
        assert f"more than {LONGEST_QUERY:,} characters" in refused(capsys, "sql", "-f", "/dev/zero")
    os.mkfifo("pipe")
    with subprocess.Popen(["sh", "-c", "echo 'SELECT 5 AS x' > pipe"]):
        assert call(capsys, "sql", "-f", "pipe", "--format", "csv")[1] == "x\n5\n"


def test_large_rows_come_in_small_batches(one_run: Workspace) -> None:
    with open_explorer(one_run.db) as explorer:
        sql = "SELECT repeat('x', 1000000) AS text FROM range(300)"
        with explorer.answering(explorer.one(sql)) as answer:
            sizes = [len(batch) for batch in answer.batches]
    assert sum(sizes) == 300
    assert max(sizes) <= max(100, BATCH_CHARACTERS // 1_000_000)


def test_running_out_of_memory_is_one_line(capsys: Capture) -> None:
    query = "SELECT list(i) FROM range(1000000000) AS t(i)"
    assert "--memory-limit" in refused(capsys, "sql", query, "--memory-limit", "50MB")


# --- what the engine knows and Python does not ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("UPDATE EXTENSIONS", "this kind of statement is not allowed: only read-only queries"),
        ("SELECT to_days(2147483647)", "cannot be shown"),
        ("SELECT INTERVAL 2147483647 DAY + INTERVAL 2147483647 MONTH", "cannot be shown"),
        ("SELECT to_years(2147483647)", "the query failed"),
        (f"SELECT {'abs(' * 2000}1{')' * 2000}", "this statement is nested too deeply; simplify it"),
    ],
)
def test_values_that_python_cannot_hold_are_one_line(capsys: Capture, query: str, said: str) -> None:
    assert said in refused(capsys, "sql", query)


# --- what a terminal would interpret -------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "csv", "md"])
def test_no_control_sequence_is_printed(capsys: Capture, one_run: Workspace, form: str) -> None:
    """Not in values, in lists, in names of columns or in run ids: C0 and C1 controls, and what turns lines around."""
    nasty = "a\x1b[31m\x9b31m\u202e\u2028\u200b\x7fz"
    one_run.add_run(nasty, {})
    _, out, _ = call(capsys, "sql", f"SELECT run_id AS \"{nasty}\", [run_id] AS l FROM runs WHERE run_id > 'a\x1b'"
                     " AND run_id < 'b'", "--format", form)  # fmt: skip
    assert not {"\x1b", "\x9b", "\u202e", "\u2028", "\u200b", "\x7f"} & set(out)
    assert "\\u202e" in out
    if form in ("json", "jsonl"):
        # It is still the same text.
        found = json.loads(out)
        assert found in ([{nasty: nasty, "l": [nasty]}], {nasty: nasty, "l": [nasty]})


def test_ordinary_letters_of_any_script_stay_what_they_are(capsys: Capture) -> None:
    for form in ("json", "jsonl"):
        assert "Größe\u00a0日本" in call(capsys, "sql", "SELECT 'Größe\u00a0日本' AS x", "--format", form)[1]


# --- times ---------------------------------------------------------------------------------------------------


def test_times_with_a_zone_can_be_shown_and_mean_the_same_everywhere(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    query = (
        "SELECT i, TIMESTAMPTZ '2026-01-01 00:00' + INTERVAL (i) MINUTE AS t, [TIMESTAMPTZ '2026-01-01 01:00+02'] AS l,"
        " i AS i FROM range(30000) AS r(i) ORDER BY r.i DESC; -- last"
    )
    out = call(capsys, "sql", query, "--format", "csv")[1].splitlines()
    assert out[0] == "i,t,l,i_1"
    assert out[-1] == '0,2026-01-01 00:00:00+00,"[""2025-12-31 23:00:00+00""]",0'
    assert [int(line.split(",")[0]) for line in out[1:]] == list(range(29_999, -1, -1))
    for form in ("table", "json", "jsonl", "md"):
        assert "2026-01-01 00:00:00+00" in call(capsys, "sql", query.replace("30000", "2"), "--format", form)[1]
    call(capsys, "sql", query, "-o", "t.parquet")
    assert str(pq.ParquetFile("t.parquet").schema_arrow.field("t").type) == "timestamp[us, tz=UTC]"
