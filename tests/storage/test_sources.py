"""Databases as they come: tables missing, columns added, other kinds of tables."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from pathlib import Path

import pytest

import kbeval
from kbeval.cli import run
from kbeval.engine.relations import read_sql
from kbeval.errors import DatabaseError, KbevalError
from kbeval.storage.source import stored_runs
from tests.support.workspace import Workspace, answer, hits


@pytest.fixture
def one_run(workspace: Workspace) -> Workspace:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    return workspace


def test_optional_tables_may_be_missing(one_run: Workspace) -> None:
    one_run.execute("DROP TABLE chunks")
    one_run.execute("DROP TABLE documents")
    assert one_run.aggregate()["mrr"] == 1.0


def test_additional_columns_do_no_harm(one_run: Workspace) -> None:
    for table in ("eval_runs", "eval_query_results", "chunks", "documents"):
        one_run.execute(f"ALTER TABLE {table} ADD COLUMN more BLOB")
    assert one_run.aggregate()["mrr"] == 1.0


def test_other_kinds_of_tables_score_the_same(one_run: Workspace) -> None:
    before = one_run.aggregate()
    one_run.execute("CREATE TABLE old AS SELECT * FROM eval_query_results")
    for definition in (
        "CREATE TABLE eval_query_results (run_id, query_id, result_json, PRIMARY KEY (run_id, query_id)) WITHOUT ROWID",
        "CREATE TABLE eval_query_results (run_id VARCHAR(10), query_id ANY, result_json JSON)",
        "CREATE VIEW eval_query_results AS SELECT run_id, query_id, result_json FROM old",
    ):
        one_run.execute("DROP TABLE eval_query_results")
        one_run.execute(definition)
        if "TABLE" in definition:
            one_run.execute("INSERT INTO eval_query_results SELECT * FROM old")
        assert one_run.aggregate() == before, definition


def test_a_missing_column_is_named(one_run: Workspace) -> None:
    one_run.execute("ALTER TABLE chunks RENAME COLUMN source_spans_json TO spans")
    with pytest.raises(DatabaseError, match="table 'chunks' has no column 'source_spans_json'"):
        one_run.score()


def test_chunks_with_broken_spans_are_chunks_without_spans(one_run: Workspace) -> None:
    one_run.execute("INSERT INTO chunks VALUES ('c9', 'd', '', '', '', 'broken', 1, 'v', '', '', '')")
    assert one_run.aggregate()["mrr"] == 1.0


def test_run_ids_are_text_and_nothing_else(one_run: Workspace) -> None:
    names = ["../../etc/passwd", "a/b", "o'hara", 'q"uote', "new\nline", "ünï", "x" * 500, "-x", "%s"]
    for number, name in enumerate(names):
        one_run.add_run(name, {"q": {"hits_top_k": hits(*[None] * number, "c")}})
    # By their names, which select nothing else.
    found = one_run.score(*names).aggregates
    assert list(found) == names
    for number, (name, numbers) in enumerate(found.items(), start=1):
        assert numbers.mrr == round(1 / number, 4), name
        assert one_run.stored(name) == ""
        kbeval.store_aggregate(name, numbers, db=one_run.db)
        assert one_run.stored(name) == numbers.to_json(), name
    assert one_run.stored("run") == ""


def test_a_path_with_odd_characters_is_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c#d%20&e"
    folder.mkdir()
    workspace = Workspace(folder)
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    aggregate = kbeval.compute_aggregate("run", db=workspace.db, golden=workspace.golden)
    kbeval.store_aggregate("run", aggregate, db=workspace.db)
    assert workspace.stored() == aggregate.to_json()


def test_runs_come_oldest_first_with_what_is_stored(one_run: Workspace) -> None:
    one_run.add_run("newer", {}, created_at="2027-01-01")
    one_run.add_run("older", {}, created_at="2025-01-01")
    assert [(run.run_id, run.rows) for run in stored_runs(one_run.db)] == [("older", 0), ("run", 1), ("newer", 0)]
    assert stored_runs(one_run.db)[0].aggregate() is None


def test_a_damaged_file_is_an_error_not_a_traceback(one_run: Workspace) -> None:
    for number in range(200):
        one_run.add_run(f"r{number}", {"q": {"hits_top_k": hits("c" * 3000)}})
    data = bytearray(one_run.db.read_bytes())
    data[20000:-5000] = b"\xaa" * (len(data) - 25000)
    one_run.db.write_bytes(data)
    with pytest.raises(kbeval.KbevalError, match="cannot be read"):
        one_run.score()


def test_scoring_leaves_other_tables_and_columns_alone(one_run: Workspace) -> None:
    before = one_run.execute("SELECT * FROM eval_query_results"), one_run.execute("SELECT sql FROM sqlite_master")
    aggregate = kbeval.compute_aggregate("run", db=one_run.db, golden=one_run.golden)
    kbeval.store_aggregate("run", aggregate, db=one_run.db)
    assert (
        one_run.execute("SELECT * FROM eval_query_results"),
        one_run.execute("SELECT sql FROM sqlite_master"),
    ) == before


def test_a_column_called_rowid_is_just_a_column(one_run: Workspace) -> None:
    before = one_run.aggregate()
    one_run.execute("ALTER TABLE eval_query_results ADD COLUMN rowid")
    for value in ("7", "NULL", "'text'"):
        one_run.execute(f"UPDATE eval_query_results SET rowid = {value}")
        assert one_run.aggregate() == before, value


def test_names_in_another_case_and_generated_columns_are_found(one_run: Workspace) -> None:
    before = one_run.aggregate()
    one_run.execute("ALTER TABLE eval_query_results RENAME TO old")
    one_run.execute(
        "CREATE TABLE Eval_Query_Results (Run_ID TEXT, Query_ID TEXT, stored TEXT,"
        " Result_JSON TEXT GENERATED ALWAYS AS (stored) VIRTUAL)"
    )
    one_run.execute("INSERT INTO eval_query_results SELECT run_id, query_id, result_json FROM old")
    assert one_run.aggregate() == before


def test_run_ids_that_are_not_text_are_refused_not_skipped(one_run: Workspace) -> None:
    one_run.execute("UPDATE eval_runs SET run_id = CAST(run_id AS BLOB)")
    with pytest.raises(DatabaseError, match="the run_id of 1 run is not stored as text"):
        one_run.score()


def test_several_rows_for_one_query_are_refused(one_run: Workspace) -> None:
    one_run.execute("CREATE TABLE loose AS SELECT * FROM eval_query_results")
    one_run.execute("INSERT INTO loose SELECT * FROM loose")
    one_run.execute("DROP TABLE eval_query_results")
    one_run.execute("ALTER TABLE loose RENAME TO eval_query_results")
    with pytest.raises(KbevalError, match="run run, query q: 2 rows"):
        one_run.score("run")


def test_a_journal_that_a_killed_writer_left_is_rolled_back(one_run: Workspace, tmp_path: Path) -> None:
    """The file as it is in the middle of a commit: changed pages, and the journal that undoes them."""
    before = one_run.aggregate()
    connection = sqlite3.connect(one_run.db, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN IMMEDIATE")
    for number in range(200):
        connection.execute("INSERT INTO eval_runs VALUES (?, 's', ?, '', NULL, '2027')", (f"n{number}", "x" * 3000))
    copy = Workspace(tmp_path, "copy.db")
    copy.golden = one_run.golden
    copy.db.write_bytes(one_run.db.read_bytes())
    Path(f"{copy.db}-journal").write_bytes(Path(f"{one_run.db}-journal").read_bytes())
    connection.execute("ROLLBACK")
    connection.close()
    assert copy.aggregate() == before


def test_a_path_that_two_documents_share_leads_to_either(one_run: Workspace) -> None:
    one_run.execute("DROP TABLE documents")
    one_run.execute("CREATE TABLE documents (doc_id TEXT, workspace_path TEXT)")
    one_run.execute("INSERT INTO documents VALUES ('old', 'a.md'), ('d1', 'a.md')")
    one_run.add_chunk("c", "d1", [{"kind": "line", "start": 1, "end": 5}])
    cite = {"kind": "line", "path": "a.md", "start": 2, "end": 3}
    one_run.add_run("cites", {"q": {"answer": answer("x", cite)}})
    assert one_run.aggregate("cites")["citation_coverage"] == 1.0


def test_positions_out_of_bounds_are_ignored(one_run: Workspace) -> None:
    one_run.add_document("d1", "a.md")
    one_run.add_chunk("c", "d1", [{"kind": "page", "page": 1e30}, {"kind": "line", "start": 1, "end": 1e300}])
    one_run.add_run("cites", {"q": {"answer": answer("x", {"kind": "page", "page": 1e30, "path": "a.md"})}})
    assert one_run.aggregate("cites")["citation_coverage"] == 0.0


def test_a_fifo_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DatabaseError, match="not a regular file"):
        stored_runs(tmp_path / "pipe")


@pytest.mark.parametrize(
    "stored",
    [
        '{"ledger": 5}',
        '{"provenance": [1]}',
        '{"ledger": {"metrics": [1]}}',
        '{"ledger": {"metrics": {"mrr": 5}}}',
        '{"hit_at_k": {"²": 1}}',
        '{"mrr": NaN}',
        '{"mrr": 1e999}',
        '{"x": "\\ud800"}',
        "[1]",
        "{bad",
        "5",
    ],
)
def test_nonsense_in_a_stored_aggregate_stops_no_command(
    one_run: Workspace, stored: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one_run.execute("UPDATE eval_runs SET aggregate_json = ?", (stored,))
    for command in (["runs"], ["runs", "--format", "csv"], ["show", "run"], ["show", "run", "--format", "json"]):
        run([*command, "--db", str(one_run.db)])
        captured = capsys.readouterr()
        assert "internal error" not in captured.err, captured.err


# --- other encodings, views, and files that are none -----------------------------------------------------


def test_a_database_in_another_encoding_is_read_and_written_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain = Workspace(tmp_path / "plain")
    plain.add_golden({"id": "größe", "expected_chunk_ids": ["c→1"]})
    others = []
    for encoding in ("UTF-16le", "UTF-16be"):
        other = Workspace.__new__(Workspace)
        other.db, other.golden = tmp_path / f"{encoding}.db", plain.golden
        other.execute_script(f"PRAGMA encoding = '{encoding}'; {read_sql('schema/workspace.sql')}")
        assert other.execute("PRAGMA encoding") == [(encoding,)]
        others.append(other)
    for workspace in (plain, *others):
        workspace.add_run("nächtlich '1'", {"größe": {"hits_top_k": hits("c→1"), "query": "日本 😀"}})
        workspace.add_run("a\0b", {"größe": {"hits_top_k": hits("x")}})
        workspace.add_chunk("c→1", "d1", [{"kind": "line", "start": 1, "end": 5}])
        assert run(["score", "--all", "--db", str(workspace.db), "--golden", str(workspace.golden)]) == 0
    assert json.loads(plain.stored("nächtlich '1'"))["mrr"] == 1.0
    for other in others:
        for run_id in ("nächtlich '1'", "a\0b"):
            assert other.stored(run_id) == plain.stored(run_id) != "", other.db
        report = kbeval.compare_runs("nächtlich '1'", "a\0b", db=other.db, golden=other.golden)
        assert (report.aggregate_a.mrr, report.aggregate_b.mrr) == (1.0, 0.0), other.db
        with kbeval.open_explorer(other.db, other.golden) as explorer:
            assert ("größe", "c→1") in explorer.query("SELECT query_id, chunk_id FROM ranked").rows(), other.db


def as_view(workspace: Workspace, trigger: str) -> None:
    workspace.execute("ALTER TABLE eval_runs RENAME TO runs_before")
    workspace.execute("CREATE VIEW eval_runs AS SELECT * FROM runs_before")
    if trigger:
        workspace.execute(f"CREATE TRIGGER storing INSTEAD OF UPDATE ON eval_runs BEGIN {trigger}; END")


def test_numbers_are_stored_through_a_view(one_run: Workspace) -> None:
    as_view(one_run, "UPDATE runs_before SET aggregate_json = NEW.aggregate_json WHERE run_id = OLD.run_id")
    kbeval.store_scored(one_run.score(), db=one_run.db)
    assert '"mrr":1.0' in one_run.stored().replace(" ", "")


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        ("", "cannot modify eval_runs because it is a view"),
        ("SELECT 1", "eval_runs is a view, and its triggers did not store the numbers of run 'run'"),
    ],
)
def test_a_view_that_stores_nothing_is_named(one_run: Workspace, trigger: str, message: str) -> None:
    as_view(one_run, trigger)
    with pytest.raises(DatabaseError, match=message):
        kbeval.store_scored(one_run.score(), db=one_run.db)


EVERY_COMMAND = [
    ["runs"],
    ["score", "--all"],
    ["show", "run"],
    ["compare", "a", "b"],
    ["check"],
    ["gate", "run", "--min", "mrr=0"],
    ["history", "mrr"],
    ["recompute"],
    ["sql", "SELECT 1 FROM runs"],
    ["archive", "old"],
    ["export", "duckdb", "x.duckdb"],
    ["export", "anchors", "run", "folder"],
    ["import", "grounded", "trace.jsonl", "--run-id", "new"],
]


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda command: "-".join(command[:2]))
@pytest.mark.parametrize("what", ["fifo", "socket", "device"])
def test_what_is_not_a_file_is_refused_by_every_command_at_once(
    one_run: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], what: str
) -> None:
    path = tmp_path / "pipe"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    else:
        path.symlink_to("/dev/zero")
    (tmp_path / "trace.jsonl").write_text('{"qid": "q", "retrieved_ids": [], "answer_json": {"claim": "x"}}\n')
    golden = ["--golden", str(one_run.golden)] if command[0] not in ("runs", "history", "import") else []
    started = time.monotonic()
    assert run([*command, "--db", str(path), *golden]) == 2
    assert time.monotonic() - started < 10
    assert "not a regular file" in capsys.readouterr().err
