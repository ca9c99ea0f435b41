"""`kbeval sql` and `kbeval export duckdb` as a user or a program sees them."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kbeval.cli import run
from kbeval.render.rows import write_rows
from kbeval.render.table import render
from tests.cli.test_cli import at_terminal, call, refused, wait_until_it_computes
from tests.support.workspace import Workspace, answer, hits


def fill(workspace: Workspace) -> Workspace:
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c1"]}, {"id": "q2", "expected_chunk_ids": ["c2"]})
    workspace.add_run("a", {"q1": {"hits_top_k": hits("c1"), "answer": answer("yes")}})
    workspace.add_run(
        "b", {"q1": {"hits_top_k": hits(None, "c1")}, "q2": {"error": "timeout"}}, created_at="2026-02-01"
    )
    return workspace


@pytest.fixture
def two_runs(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    fill(workspace)
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    return workspace


pytestmark = pytest.mark.usefixtures("two_runs")

Capture = pytest.CaptureFixture[str]

# One of everything that a query can give.
EVERYTHING = r"""
SELECT NULL AS nothing, true AS yes, 170141183460469231731687303715884105727::HUGEINT AS huge,
    -1.50::DECIMAL(9, 2) AS dec,
    'nan'::DOUBLE AS nan, '-inf'::DOUBLE AS inf, [1, NULL] AS list, {'a': 'x', 'b': [1]} AS struct, MAP {1: 'x'} AS map,
    DATE '2026-01-02' AS day, TIMESTAMP '2026-01-02 03:04:05' AS moment, INTERVAL 3 DAY AS span, '\xAB'::BLOB AS blob,
    '=1+1' AS formula, chr(27) || '[31mred' AS escape, '<b>|' AS html, 1e-9::DOUBLE AS tiny,
    'two' || chr(10) || 'lines' AS long
"""


def test_a_question_is_answered(capsys: Capture) -> None:
    code, out, err = call(capsys, "sql", "SELECT run_id, COUNT(*) AS n FROM results GROUP BY run_id ORDER BY run_id")
    assert (code, err) == (0, "")
    assert out == "run_id  n\na       1\nb       2\n"


def test_several_statements_are_answered_in_turn(capsys: Capture) -> None:
    _, out, _ = call(capsys, "sql", "SELECT 1 AS x; -- and\nSELECT 2 AS y;")
    assert out == "x\n1\n\ny\n2\n"
    assert "one statement at a time" in refused(capsys, "sql", "SELECT 1; SELECT 2", "--format", "json")
    # Nothing is answered before all of it has been checked.
    assert "DROP is not allowed" in refused(capsys, "sql", "SELECT 1; DROP TABLE runs")


def test_a_query_from_a_file_or_from_standard_input(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.sql").write_text("\ufeffSELECT 'file' AS x")
    assert call(capsys, "sql", "-f", "q.sql")[1] == "x\nfile\n"
    for arguments in (["sql", "-"], ["sql"], ["sql", "-f", "-"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 'stdin' AS x;"))
        assert call(capsys, *arguments)[1] == "x\nstdin\n"
    assert "cannot be read" in refused(capsys, "sql", "-f", "nope.sql")
    (tmp_path / "bad.sql").write_bytes(b"\xff\xfe")
    assert "bad.sql cannot be read" in refused(capsys, "sql", "-f", "bad.sql")
    assert "not both" in refused(capsys, "sql", "SELECT 1", "-f", "q.sql")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "the query is empty" in refused(capsys, "sql")


def test_everything_that_a_query_gives_can_be_shown_in_json(capsys: Capture) -> None:
    (row,) = json.loads(call(capsys, "sql", EVERYTHING, "--format", "json")[1], parse_constant=pytest.fail)
    assert row["nothing"] is row["nan"] is row["inf"] is None
    assert (row["yes"], row["huge"], row["dec"]) == (True, 2**127 - 1, -1.5)
    assert (row["list"], row["struct"], row["map"]) == ([1, None], {"a": "x", "b": [1]}, {"1": "x"})
    assert (row["day"], row["moment"], row["blob"]) == ("2026-01-02", "2026-01-02 03:04:05", "ab")
    lines = call(capsys, "sql", EVERYTHING, "--format", "jsonl")[1]
    assert json.loads(lines) == row
    assert lines.count("\n") == 1


def test_everything_that_a_query_gives_can_be_shown_in_csv(capsys: Capture) -> None:
    out = call(capsys, "sql", EVERYTHING, "--format", "csv")[1]
    head, values = csv.reader(io.StringIO(out))
    row = dict(zip(head, values, strict=True))
    assert (row["nothing"], row["yes"], row["huge"], row["dec"]) == ("", "true", str(2**127 - 1), "-1.50")
    assert (row["list"], row["struct"], row["day"]) == ("[1, null]", '{"a": "x", "b": [1]}', "2026-01-02")
    assert (row["formula"], row["tiny"], row["nan"]) == ("'=1+1", "1e-09", "nan")
    assert "\x1b" not in out


def test_everything_that_a_query_gives_is_safe_at_a_terminal_and_in_markdown(capsys: Capture) -> None:
    out = call(capsys, "sql", EVERYTHING)[1]
    assert len(out.splitlines()) == 2
    assert "\x1b" not in out
    assert "1e-09" in out  # with four decimals it would look like zero
    assert "two lines" in out
    md = call(capsys, "sql", EVERYTHING, "--format", "md")[1]
    assert len(md.splitlines()) == 3
    assert "&lt;b&gt;\\|" in md
    nasty = call(capsys, "sql", 'SELECT 1 AS "\x1b[31m|"')[1]
    assert "\x1b" not in nasty


def test_an_answer_in_pieces_is_the_same_text_as_an_answer_in_one() -> None:
    rows = [(number, f"row {number}\nof\n{number}", None) for number in range(7)]
    names = ["n", "te\nxt", "x"]
    for form in ("json", "csv", "md"):
        pieces: list[str] = []
        write_rows(names, [rows[:3], rows[3:4], rows[4:]], form, pieces.append)
        whole: list[str] = []
        write_rows(names, [rows], form, whole.append)
        assert "".join(pieces) == "".join(whole)
    assert len(whole[0].splitlines()) == 9
    empty: list[str] = []
    write_rows(["n"], [], "json", empty.append)
    write_rows(["n"], [], "csv", empty.append)
    assert "".join(empty) == "[]\nn\n"
    assert render([], [], "json") == "[]"


def test_columns_of_one_name_all_survive(capsys: Capture) -> None:
    assert json.loads(call(capsys, "sql", "SELECT 1 AS a, 2 AS a", "--format", "json")[1]) == [{"a": 1, "a_1": 2}]


@pytest.mark.parametrize(
    ("name", "start"),
    [("o.csv", "x\n5"), ("o.json", "[\n  {"), ("o.jsonl", '{"x": 5}'), ("o.md", "| x |"), ("o.txt", "x\n5")],
)
def test_the_ending_of_a_file_says_its_format(capsys: Capture, name: str, start: str) -> None:
    code, out, err = call(capsys, "sql", "SELECT 5 AS x", "-o", name)
    assert (code, out, err) == (0, "", f"wrote {name}\n")
    assert Path(name).read_text().startswith(start)
    assert "\x1b" not in Path(name).read_text()


def test_parquet(capsys: Capture) -> None:
    assert "write it to a file" in refused(capsys, "sql", "FROM runs", "--format", "parquet")
    query = "SELECT run_id, rank, rank AS rank FROM hits JOIN results USING (result_no)"
    assert call(capsys, "sql", query, "-o", "o.parquet")[0] == 0
    file = pq.ParquetFile("o.parquet")
    assert file.schema_arrow.names == ["run_id", "rank", "rank_1"]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert sorted(file.read().column("rank").to_pylist()) == [1, 1, 2]
    call(capsys, "sql", "SELECT * FROM range(100000)", "-o", "few.parquet", "--limit", "15000")
    assert pq.ParquetFile("few.parquet").metadata.num_rows == 15_000
    assert "CAST(… AS VARCHAR)" in refused(capsys, "sql", "SELECT INTERVAL 1 MONTH", "-o", "no.parquet")
    assert not Path("no.parquet").exists()


def test_no_file_is_half_written_and_none_of_ours_is_overwritten(capsys: Capture, two_runs: Workspace) -> None:
    Path("o.csv").write_text("old")
    query = "SELECT CASE WHEN i < 50000 THEN i ELSE error('no') END FROM range(60000) AS t(i)"
    assert "the query failed: no" in refused(capsys, "sql", query, "-o", "o.csv")
    assert Path("o.csv").read_text() == "old"
    assert [path.name for path in Path().iterdir() if path.name.startswith(".o.csv")] == []
    before = two_runs.db.read_bytes()
    for path in (two_runs.db, two_runs.golden):
        assert "choose another file" in refused(capsys, "sql", "SELECT 1", "-o", str(path), "--format", "csv")
    assert two_runs.db.read_bytes() == before
    assert "cannot tell the format" in refused(capsys, "sql", "SELECT 1", "-o", "o.weird")
    assert "is a directory" in refused(capsys, "sql", "SELECT 1", "-o", str(two_runs.db.parent), "--format", "csv")


def test_the_limit(capsys: Capture) -> None:
    code, out, err = call(capsys, "sql", "SELECT * FROM range(100000000000)", "--limit", "3", "--format", "csv")
    assert (code, out.splitlines()[1:]) == (0, ["0", "1", "2"])
    assert "use --limit 0 to show all" in err
    _, out, err = call(capsys, "sql", "SELECT * FROM range(3)", "--limit", "3")
    assert (len(out.splitlines()), err) == (4, "")
    # To a pipe everything goes.
    assert len(call(capsys, "sql", "SELECT * FROM range(25000)")[1].splitlines()) == 25_001


def test_a_screenful_at_a_terminal() -> None:
    text = at_terminal("-m", "kbeval", "sql", "SELECT i AS n FROM range(5000) AS t(i)", NO_COLOR="1")
    assert len([line for line in text.splitlines() if line.strip().isdigit()]) == 100
    assert "showing the first 100 rows; use --limit 0 to show all" in text
    text = at_terminal("-m", "kbeval", "sql", "SELECT i AS n FROM range(150) AS t(i)", "--limit", "0", NO_COLOR="1")
    assert len([line for line in text.splitlines() if line.strip().isdigit()]) == 150


def test_without_labels_one_note_says_so(capsys: Capture, monkeypatch: pytest.MonkeyPatch, two_runs: Workspace) -> None:
    monkeypatch.delenv("KBEVAL_GOLDEN")
    code, out, err = call(
        capsys, "sql", "SELECT COUNT(*) AS n FROM queries; SELECT COUNT(*) FROM scores", "--format", "md"
    )
    assert (code, out.splitlines()[2]) == (0, "| 0 |")
    assert err == "no golden file given, so there are no labels; use --golden FILE\n"
    assert call(capsys, "sql", "SELECT COUNT(*) FROM hits")[2] == ""
    assert call(capsys, "sql", "SELECT COUNT(*) AS n FROM queries", "--golden", str(two_runs.golden))[1:] == (
        "n\n2\n",
        "",
    )


def test_errors_are_one_line(capsys: Capture, two_runs: Workspace) -> None:
    assert "did you mean 'runs'?" in refused(capsys, "sql", "FROM run")
    err = refused(capsys, "sql", "SELECT chunker FROM runs")
    assert "(line 1, column 8: chunker FROM runs)" in err
    assert len(err.splitlines()) == 1
    assert "INSERT is not allowed: only read-only queries" in refused(capsys, "sql", "INSERT INTO runs VALUES (1)")


def test_a_plan_is_drawn(capsys: Capture) -> None:
    out = call(capsys, "sql", "EXPLAIN SELECT * FROM runs")[1]
    assert len(out.splitlines()) > 4
    assert "runs" in out


def test_an_own_metric_is_a_score(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "kbeval.toml").write_text('[metrics]\ndeepest = "MAX(rank)"\n')
    out = call(capsys, "sql", "SELECT MAX(value) AS deepest FROM scores WHERE metric = 'deepest'", "--format", "csv")[1]
    assert out == "deepest\n2.0\n"


def test_help_needs_no_engine() -> None:
    code = (
        "import sys\nfrom kbeval.cli import run\nrun(['--help'])\nrun(['sql', '--help'])\n"
        "assert not {'duckdb', 'polars', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_ctrl_c_stops_a_query_with_130() -> None:
    command = [
        sys.executable,
        "-m",
        "kbeval",
        "sql",
        "SELECT COUNT(*) FROM range(10000000000000) AS t(i) WHERE i % 7 = 8",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until_it_computes(process)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=10)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "kbeval: interrupted; no partial results were written"


@pytest.mark.slow
def test_a_large_answer_is_never_held_at_once() -> None:
    """As Python objects these rows would take some 200 MB."""
    code = (
        "import resource, sys\nfrom kbeval.cli import run\n"
        "run(['sql', \"SELECT i, 'row ' || i AS t, i / 7 AS d FROM range(1000) AS t(i)\", '-o', 'a.csv'])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "run(['sql', \"SELECT i, 'row ' || i AS t, i / 7 AS d FROM range(600000) AS t(i)\", '-o', 'b.csv'])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    grown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert int(grown) < 80_000  # kilobytes
    with Path("b.csv").open() as file:
        assert sum(1 for _ in file) == 600_001


# --- export duckdb ---------------------------------------------------------------------------------


def elsewhere(path: str | Path, *queries: str) -> list[list[list[object]]]:
    """Query a file in another process, without kbeval."""
    code = (
        "import duckdb, json, sys\n"
        "with duckdb.connect(sys.argv[1], read_only=True) as c:\n"
        "    print(json.dumps([c.execute(sql).fetchall() for sql in sys.argv[2:]]))\n"
    )
    command = [sys.executable, "-I", "-c", code, str(path), *queries]
    found: list[list[list[object]]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the same two runs, made once; read-only."""
    folder = tmp_path_factory.mktemp("exported")
    workspace = fill(Workspace(folder))
    where = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    assert run(["export", "duckdb", str(folder / "o.duckdb"), *where]) == 0
    return folder / "o.duckdb"


def test_an_export_opens_in_any_client(exported: Path, two_runs: Workspace) -> None:
    """Its tables; a view, which reads other views and tables of the file; and macros."""
    assert elsewhere(
        exported,
        "SELECT run_id, chunker_version FROM runs ORDER BY 1",
        "SELECT run_id, AVG(value) FROM scores WHERE metric = 'mrr' GROUP BY ALL ORDER BY 1",
        "SELECT COUNT(*), SUM(rank) FROM per_hit",
        "SELECT table_type FROM information_schema.tables WHERE table_name IN ('per_hit', 'scores') ORDER BY 1",
        "SELECT json_rank('3')",
    ) == [
        [["a", "md@1"], ["b", "md@1"]],
        [[run_id, found.to_dict()["mrr"]] for run_id, found in two_runs.score().aggregates.items()],
        [[4, 4]],
        [["BASE TABLE"], ["VIEW"]],
        [[3]],
    ]


def test_everything_in_an_export_can_be_read_and_is_what_the_session_has(capsys: Capture, exported: Path) -> None:
    (tables,) = elsewhere(exported, "SELECT table_name FROM information_schema.tables ORDER BY 1")
    names = [str(row[0]) for row in tables]
    assert {"runs", "results", "hits", "queries", "per_query", "query_scores", "scores"} <= set(names)
    count = " UNION ALL ".join(f"SELECT '{name}' AS name, COUNT(*) AS n FROM {name}" for name in names)
    _, out, _ = call(capsys, "sql", f"SELECT * FROM ({count}) ORDER BY name", "--format", "jsonl")
    asked = [list(json.loads(line).values()) for line in out.splitlines()]
    assert elsewhere(exported, f"SELECT * FROM ({count}) ORDER BY name") == [asked]


def test_an_export_replaces_a_file_only_when_told_and_never_ours(
    capsys: Capture, two_runs: Workspace, exported: Path
) -> None:
    mine = exported.read_bytes()
    Path("o.duckdb").write_bytes(mine)
    two_runs.add_run("c", {})
    assert "use --replace to overwrite it" in refused(capsys, "export", "duckdb", "o.duckdb")
    assert Path("o.duckdb").read_bytes() == mine
    before = two_runs.db.read_bytes()
    for path in (two_runs.db, two_runs.golden):
        assert "choose another file" in refused(capsys, "export", "duckdb", str(path), "--replace")
    assert two_runs.db.read_bytes() == before
    code, out, err = call(capsys, "export", "duckdb", "o.duckdb", "--replace")
    assert (code, out) == (0, "")
    assert err.startswith("wrote ")
    assert elsewhere("o.duckdb", "SELECT COUNT(*) FROM runs") == [[[3]]]
    assert sorted(path.name for path in Path().iterdir()) == ["golden.json", "kb.db", "o.duckdb"]


def test_an_export_that_fails_leaves_nothing(capsys: Capture, two_runs: Workspace, exported: Path) -> None:
    mine = exported.read_bytes()
    Path("o.duckdb").write_bytes(mine)
    two_runs.golden.write_text("[{}]")
    refused(capsys, "export", "duckdb", "o.duckdb", "--replace")
    assert Path("o.duckdb").read_bytes() == mine
    assert sorted(path.name for path in Path().iterdir()) == ["golden.json", "kb.db", "o.duckdb"]
    if os.geteuid():  # root may write everywhere
        Path("locked").mkdir(mode=0o500)
        assert "cannot be written" in refused(capsys, "export", "duckdb", "locked/o.duckdb")


def test_an_export_without_labels(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KBEVAL_GOLDEN")
    assert "contains no labels" in call(capsys, "export", "duckdb", "o.duckdb")[2]
    assert elsewhere("o.duckdb", "SELECT (SELECT COUNT(*) FROM queries), (SELECT COUNT(*) FROM hits)") == [[[0, 3]]]
