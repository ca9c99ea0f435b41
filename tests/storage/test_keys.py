"""The keys of runs and rows are checked, not assumed: duplicate ids, ids that a collation treats as equal, ids that are
not text, and runs without a date.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbeval.cli import run as kbeval
from kbeval.errors import BrokenRunsError, DatabaseError
from kbeval.scoring.aggregate import compute_aggregate, store_aggregate
from kbeval.storage.runs import Run, read_as_positions
from kbeval.systems import ImportedRun
from kbeval.systems.writing import write_runs
from tests.support.workspace import Workspace, hits


@pytest.fixture
def here(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace that commands find by themselves, with labels and no runs."""
    monkeypatch.chdir(workspace.db.parent)
    (workspace.db.parent / "kbeval.toml").write_text(
        f'db = "{workspace.db.name}"\ngolden = "{workspace.golden.name}"\n'
    )
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]}, {"id": "Q", "expected_chunk_ids": ["c"]})
    return workspace


def without_key(workspace: Workspace, collation: str = "BINARY") -> None:
    """Tables as careless programs create them: no primary key, and a collation."""
    workspace.execute_script(
        "DROP TABLE eval_query_results; DROP TABLE eval_runs;"
        f"CREATE TABLE eval_runs (run_id TEXT COLLATE {collation}, suite TEXT, config_snapshot_json TEXT,"
        " aggregate_json TEXT, commit_hash TEXT, created_at TEXT);"
        f"CREATE TABLE eval_query_results (run_id TEXT COLLATE {collation}, query_id TEXT COLLATE {collation},"
        " result_json TEXT);"
    )


# --- a duplicate run id ------------------------------------------------------------------------------


@pytest.fixture
def doubled(here: Workspace) -> Workspace:
    """Runs `a` and `b`, and between them `twice`, which is in eval_runs two times."""
    without_key(here)
    for day, (run_id, chunk) in enumerate((("a", "c"), ("twice", "c"), ("b", None)), start=1):
        here.add_run(run_id, {"q": {"hits_top_k": hits(chunk)}}, created_at=f"2026-01-0{day}")
    here.execute("INSERT INTO eval_runs SELECT * FROM eval_runs WHERE run_id = 'twice'")
    return here


def test_a_duplicate_run_is_named_and_the_others_are_scored(
    doubled: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbeval(["score", "--all"]) == 2
    err = capsys.readouterr().err
    assert "stored the numbers of 2 runs" in err
    assert "1 run not scored, because it has several rows in eval_runs" in err
    assert "run twice: 2 rows in eval_runs" in err
    assert json.loads(doubled.stored("a"))["mrr"] == 1.0
    assert doubled.execute("SELECT DISTINCT aggregate_json FROM eval_runs WHERE run_id = 'twice'") == [("",)]


def test_check_names_a_duplicate_run(doubled: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["twice"]):
        assert kbeval(["check", *arguments]) == 1
        out = capsys.readouterr().out
        assert "[repeated-run]" in out
        assert "twice: 2 rows in eval_runs" in out


@pytest.mark.parametrize(
    "command",
    [
        "score twice",
        "show twice",
        "show twice --query q",
        "compare a twice",
        "gate twice --min mrr=0",
        "recompute twice",
    ],
)
def test_commands_about_it_refuse_by_name(doubled: Workspace, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbeval(command.split()) == 2
    assert "run twice: 2 rows in eval_runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "code"),
    [("runs", 0), ("compare a b", 0), ("history mrr", 0), ("sql SELECT\t*\tFROM\truns", 0), ("archive old", 2)],
)
def test_every_other_command_copes_and_says_so(
    doubled: Workspace, command: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbeval(["score", "a", "b"]) == 0
    capsys.readouterr()
    assert kbeval([part.replace("\t", " ") for part in command.split(" ")]) == code
    err = capsys.readouterr().err
    assert command == "compare a b" or "2 rows in eval_runs" in err
    if command.startswith("archive"):
        assert kbeval(["score", "--all", "--db", "old"]) == 0


def test_a_place_that_is_counted_past_it_is_refused(doubled: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbeval(["show", "latest~2"]) == 2
    assert "run twice: 2 rows in eval_runs" in capsys.readouterr().err


def test_nothing_is_stored_under_a_duplicate_id(doubled: Workspace) -> None:
    with pytest.raises(BrokenRunsError, match="run twice: 2 rows in eval_runs"):
        compute_aggregate("twice", db=doubled.db, golden=doubled.golden)
    numbers = compute_aggregate("a", db=doubled.db, golden=doubled.golden)
    with pytest.raises(DatabaseError, match="eval_runs has 2 rows for run 'twice'"):
        store_aggregate("twice", numbers, db=doubled.db)
    assert doubled.execute("SELECT DISTINCT aggregate_json FROM eval_runs") == [("",)]


# --- ids that a column takes for equal ------------------------------------------------------------------


@pytest.mark.parametrize(("collation", "one", "other"), [("NOCASE", "run", "RUN"), ("RTRIM", "run", "run  ")])
def test_ids_that_a_collation_takes_for_equal_are_two_runs(
    here: Workspace, collation: str, one: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    without_key(here, collation)
    # One finds what is expected at once, the other last; and each has two queries that only look the same.
    here.add_run(one, {"q": {"hits_top_k": hits("c")}, "Q": {"hits_top_k": hits("c")}})
    here.add_run(other, {"q": {"hits_top_k": hits(None, "c")}, "Q": {"hits_top_k": hits(None, None, "c")}})
    assert kbeval(["score", "--all"]) == 0
    stored = dict(here.execute("SELECT run_id, aggregate_json FROM eval_runs"))
    assert {run_id: json.loads(text)["mrr"] for run_id, text in stored.items()} == {one: 1.0, other: 0.4167}
    assert {run_id: json.loads(text)["total_queries"] for run_id, text in stored.items()} == {one: 2, other: 2}
    # The same by name, and from each row.
    capsys.readouterr()
    assert kbeval(["score", other, "--dry-run", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["aggregate"]["mrr"] == 0.4167
    capsys.readouterr()
    assert kbeval(["show", other, "--query", "Q", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "3" in json.dumps(shown)
    assert kbeval(["runs", "--format", "json"]) == 0
    assert {row["run_id"]: row["rows"] for row in json.loads(capsys.readouterr().out)} == {one: 2, other: 2}
    assert kbeval(["check", "--ignore", "rank-gap"]) == 0
    assert kbeval(["recompute"]) == 0


def test_an_import_replaces_the_run_of_its_own_id_alone(here: Workspace) -> None:
    without_key(here, "NOCASE")
    here.add_run("run", {"q": {"hits_top_k": hits("c")}})
    row = json.dumps({"hits_top_k": hits(None)})
    new = ImportedRun("RUN", "suite", "anchors", {}, [("q", row)], "2026-01-02T00:00:00Z", [])
    assert write_runs(here.db, [new]) == {"RUN": "imported"}
    other = ImportedRun("RUN", "suite", "anchors", {}, [("q", row), ("Q", row)], "2026-01-02T00:00:00Z", [])
    assert write_runs(here.db, [other], replace=True) == {"RUN": "replaced"}
    rows = here.execute("SELECT run_id, query_id FROM eval_query_results ORDER BY CAST(run_id AS BLOB), rowid")
    assert rows == [("RUN", "q"), ("RUN", "Q"), ("run", "q")]


def test_an_id_that_is_stored_as_text_and_as_bytes_is_repeated(
    here: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_run("good", {"q": {"hits_top_k": hits("c")}})
    here.add_run("run", {"q": {"hits_top_k": hits("c")}})
    # To the primary key these are two.
    here.execute("INSERT INTO eval_query_results SELECT run_id, CAST('q' AS BLOB), result_json FROM eval_query_results"
                 " WHERE run_id = 'run'")  # fmt: skip
    assert kbeval(["score", "--all"]) == 2
    assert "run run, query q: 2 rows" in capsys.readouterr().err
    assert json.loads(here.stored("good"))["mrr"] == 1.0


# --- ids that are not text ------------------------------------------------------------------------------


def test_a_query_id_that_is_not_utf8_costs_only_its_own_run(
    here: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kbeval.explore.check._EXAMPLES", 100)
    here.add_run("good", {"q": {"hits_top_k": hits("c")}})
    bad = ("71FF", "EDA080", "C0AF", "F4908080")
    for stored in bad:
        here.add_run(stored, {"q": {"hits_top_k": hits("c")}, "x": {"hits_top_k": hits("c")}})
        here.execute(f"UPDATE eval_query_results SET query_id = CAST(x'{stored}' AS TEXT) WHERE query_id = 'x'")
    assert kbeval(["score", "--all"]) == 2
    err = capsys.readouterr().err
    assert "stored the numbers of 1 run" in err
    assert json.loads(here.stored("good"))["mrr"] == 1.0
    assert kbeval(["check"]) == 1
    out = capsys.readouterr().out
    for stored in bad:
        (named,) = (line for line in err.splitlines() if f"run {stored}, query " in line)
        assert "its query_id is not UTF-8 text" in named
        (named,) = (line for line in out.splitlines() if f" {stored} " in line and "query_id" in line)
        assert "its query_id is not UTF-8 text" in named
        assert here.stored(stored) == ""
    assert kbeval(["score", *bad, "--skip-bad-rows"]) == 0
    assert [json.loads(here.stored(stored))["failed_queries"] for stored in bad] == [1] * len(bad)


@pytest.mark.parametrize("column", ["run_id", "suite"])
def test_a_run_id_or_suite_that_is_not_utf8_is_named_and_the_others_work(
    here: Workspace, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here.add_run("good", {"q": {"hits_top_k": hits("c")}})
    here.add_run("bad", {"q": {"hits_top_k": hits("c")}}, created_at="2026-01-02")
    for table in ("eval_runs", "eval_query_results") if column == "run_id" else ("eval_runs",):
        here.execute(f"UPDATE {table} SET {column} = CAST(x'62FF' AS TEXT) WHERE run_id = 'bad'")
    assert kbeval(["score", "--all"]) == 2
    err = capsys.readouterr().err
    assert "1 run not scored, because its run_id or suite is not UTF-8 text" in err
    assert json.loads(here.stored("good"))["mrr"] == 1.0
    assert kbeval(["check"]) == 1
    assert "[unreadable-key]" in capsys.readouterr().out
    for command in ("runs", "history mrr", "show good", "sql SELECT\trun_id\tFROM\truns", "gate good --min mrr=1"):
        assert kbeval([part.replace("\t", " ") for part in command.split(" ")]) == 0, command
        assert "good" in capsys.readouterr().out
    assert kbeval(["archive", "old"]) == 2
    assert "1 run not archived" in capsys.readouterr().err


def test_other_columns_of_a_run_that_are_not_utf8_do_no_harm(
    here: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("config_snapshot_json", "aggregate_json", "commit_hash", "created_at")
    for column in columns:
        here.add_run(column, {"q": {"hits_top_k": hits("c")}})
        sql = f"UPDATE eval_runs SET {column} = CAST(x'7B2261223A22FF227D' AS TEXT) WHERE run_id = ?"
        here.execute(sql, (column,))
    for command in ("runs", "score --all", "history mrr", "sql SELECT\t*\tFROM\truns,\tconfigurations", "recompute"):
        assert kbeval([part.replace("\t", " ") for part in command.split(" ")]) == 0, capsys.readouterr().err
    for column in columns:
        assert json.loads(here.stored(column))["mrr"] == 1.0, column


# --- runs without a place in time -----------------------------------------------------------------------


@pytest.fixture
def undated(here: Workspace) -> Workspace:
    """Two nights, and a newest run of which nothing says when it was made."""
    for run_id, created_at in (("n-1", "2026-01-01"), ("n-2", "2026-01-02"), ("new", "Jan 3, 2026")):
        here.add_run(run_id, {"q": {"hits_top_k": hits("c")}}, created_at=created_at)
    return here


@pytest.mark.parametrize(
    "command",
    [
        "gate latest --min mrr=0.1",
        "gate n-2 --baseline previous --max-drop mrr=0.1",
        "gate n-2 --baseline latest~1 --max-drop mrr=0.1",
        "show latest",
        "score latest",
        "compare latest~1 latest",
        "compare n-1 n-2~1",
    ],
)
def test_names_by_place_are_refused_where_a_run_has_no_date(
    undated: Workspace, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbeval(command.split()) == 2
    err = capsys.readouterr().err
    assert "created_at of run new is 'Jan 3, 2026', not a time; use the run's id" in err
    assert "\n" not in err.strip()


def test_check_and_score_name_a_run_without_a_date(undated: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbeval(["check"]) == 1
    out = capsys.readouterr().out
    assert "[undated-run]" in out
    assert "new: 'Jan 3, 2026'" in out
    assert kbeval(["score", "--all"]) == 0
    assert "run new: created_at 'Jan 3, 2026' is not a time" in capsys.readouterr().err
    assert kbeval(["sql", "SELECT run_id, is_dated FROM run_order ORDER BY run_no", "--format", "json"]) == 0
    order = {row["run_id"]: row["is_dated"] for row in json.loads(capsys.readouterr().out)}
    assert list(order.items()) == [("new", False), ("n-1", True), ("n-2", True)]


def test_a_run_called_latest_is_not_taken_for_the_latest(here: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    here.add_run("latest", {"q": {"hits_top_k": hits("c")}}, created_at="2026-01-01")
    here.add_run("n-2", {"q": {"hits_top_k": hits(None)}}, created_at="2026-01-02")
    assert kbeval(["gate", "latest", "--min", "mrr=0.5"]) == 2
    assert "'latest' is ambiguous: it is the id of a run" in capsys.readouterr().err
    assert kbeval(["score", "--all"]) == 0
    assert kbeval(["gate", "lates", "--min", "mrr=0.5"]) == 0
    assert kbeval(["gate", "n-2", "--min", "mrr=0.5"]) == 1


@pytest.mark.parametrize(
    ("run_id", "is_named"),
    [
        ("latest", True),
        ("latest~1", True),
        ("previous", True),
        ("~2", True),
        ("night-1~1", True),
        ("night~3", True),  # the beginning of an id means that run
        ("late", False),
        ("latest-build", False),
        ("other~1", False),
        ("night-1~x", False),
        ("night-1~", False),
    ],
)
def test_an_id_also_means_a_position(run_id: str, is_named: bool) -> None:
    runs = [Run(one, "s", "2026-01-01", None, "{}", "{}", 0) for one in ("night-1", run_id)]
    assert read_as_positions(runs) == [run_id] * is_named


def test_check_names_a_run_whose_id_also_means_a_position(here: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    for place, run_id in enumerate(("night-1", "latest", "night-1~1"), start=1):
        here.add_run(run_id, {"q": {"hits_top_k": hits("c")}}, created_at=f"2026-01-0{place}")
    assert kbeval(["check"]) == 1
    out = capsys.readouterr().out
    assert "runs whose id also means a position: 2  [reserved-id]\n  for example  latest; night-1~1\n" in out


def test_an_archive_keeps_runs_of_ids_that_look_alike_apart(here: Workspace, tmp_path: Path) -> None:
    without_key(here, "NOCASE")
    here.add_run("run", {"q": {"hits_top_k": hits("c")}})
    here.add_run("RUN", {"q": {"hits_top_k": hits(None, "c")}})
    assert kbeval(["archive", str(tmp_path / "old")]) == 0
    found = {run: compute_aggregate(run, db=tmp_path / "old", golden=here.golden).mrr for run in ("run", "RUN")}
    assert found == {"run": 1.0, "RUN": 0.5}
