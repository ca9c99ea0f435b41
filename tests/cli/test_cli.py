"""The commands as a user sees them: what is printed where, and the exit codes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from kbeval.cli import cli, run
from kbeval.cli.overview import COMMANDS, overview
from tests.support.workspace import Workspace, answer, hits


@pytest.fixture
def two_runs(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace.add_golden(
        {"id": "q1", "query": "first?", "expected_chunk_ids": ["c1"], "category": "a", "must_contain": ["yes"]},
        {"id": "q2", "query": "second?", "expected_chunk_ids": ["c2"], "category": "b"},
    )
    workspace.add_run(
        "2026-a", {"q1": {"hits_top_k": hits("c1"), "answer": answer("yes")}, "q2": {"hits_top_k": hits(None)}}
    )
    workspace.add_run(
        "2026-b", {"q1": {"hits_top_k": hits("c1")}, "q2": {"hits_top_k": hits(None, "c2")}}, created_at="2026-02-01"
    )
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    return workspace


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """One line on stderr, nothing on stdout, exit code 2."""
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("kbeval: ")
    assert "Traceback" not in err
    return err


# --- score -----------------------------------------------------------------------------------------


def test_score_stores_the_numbers_and_prints_a_table(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "score", "--all")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["run", "2026-a", "2026-b"]
    assert "stored the numbers of 2 runs" in err
    assert json.loads(two_runs.stored("2026-b"))["mrr"] == 0.75


def test_json_is_what_is_stored(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "score", "latest", "--format", "json")
    (found,) = json.loads(out)
    assert found["run_id"] == "2026-b"
    assert found["aggregate"] == json.loads(two_runs.stored("2026-b"))


def test_csv_and_markdown_have_every_number(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, csv, _ = call(capsys, "score", "latest", "--format", "csv")
    head, row = csv.splitlines()
    values = dict(zip(head.split(","), row.split(","), strict=True))
    assert (values["run_id"], values["mrr"], values["citation_coverage"]) == ("2026-b", "0.75", "")
    _, md, _ = call(capsys, "score", "latest", "--format", "md")
    assert md.splitlines()[0].startswith("| run | match | queries | failed | hit@1 | hit@3 | ")
    assert "| 0.7500 |" in md


def test_a_dry_run_stores_nothing(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "score", "--all", "--dry-run")
    assert code == 0
    assert "0.7500" in out
    assert "nothing was stored" in err
    assert two_runs.stored("2026-a") == ""


def test_scoring_twice_stores_the_same_bytes(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "score", "--all")
    first = two_runs.stored("2026-a")
    call(capsys, "score", "2026-a", "--threads", "1")
    assert two_runs.stored("2026-a") == first


def test_slices_are_printed_next_to_the_whole(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "score", "latest", "--by", "category")
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["(all)", "a", "b"]
    _, out, _ = call(capsys, "score", "latest", "--by", "category", "--format", "json")
    assert json.loads(out)[0]["slices"]["b"]["mrr"] == 0.5


def test_more_values_of_k_are_shown_and_stored(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "score", "latest", "--k", "1,2,20")
    assert [h for h in out.split() if h.startswith("hit@")] == ["hit@1", "hit@2", "hit@5", "hit@10", "hit@20"]
    assert json.loads(two_runs.stored("2026-b"))["hit_at_k"]["2"] == 1.0


def test_own_metrics_come_from_a_folder_and_from_the_config(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "deepest.sql").write_text("-- deepest: how deep do the hits go?\nMAX(rank)\n")
    (tmp_path / "kbeval.toml").write_text('[metrics]\nhits_seen = "COUNT(rank)"\n')
    _, out, _ = call(capsys, "score", "latest", "--metrics", str(folder), "--format", "json")
    aggregate = json.loads(out)[0]["aggregate"]
    assert (aggregate["deepest"], aggregate["hits_seen"]) == (1.5, 1.5)


def test_one_broken_row_stops_the_named_runs(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs.add_run("broken", {"q1": "{", "q2": {}})
    err = refused(capsys, "score", "broken", "2026-a")
    assert "run broken, query q1: is not valid JSON" in err
    assert "--skip-bad-rows" in err
    assert two_runs.stored("2026-a") == two_runs.stored("broken") == ""


def test_score_all_stores_the_healthy_runs_and_lists_the_broken(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs.add_run("broken", {"q1": "{", "q2": {}})
    code, out, err = call(capsys, "score", "--all")
    assert code == 2
    assert "broken" not in out
    assert "run broken, query q1: is not valid JSON" in err
    assert two_runs.stored("2026-a") != ""
    assert two_runs.stored("broken") == ""


def test_skipped_rows_are_counted_and_reported(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs.add_run("broken", {"q1": "{", "q2": {}})
    code, _, err = call(capsys, "score", "broken", "--skip-bad-rows")
    assert code == 0
    assert "1 unreadable row counted as failed, first run broken, query q1" in err
    assert json.loads(two_runs.stored("broken"))["failed_queries"] == 1


# --- the others ------------------------------------------------------------------------------------


def test_runs_lists_what_is_there_before_and_after_scoring(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, err = call(capsys, "runs")
    assert "not been scored yet" in err
    call(capsys, "score", "--all")
    _, out, err = call(capsys, "runs", "--format", "json")
    assert err == ""
    assert [(run["run_id"], run["rows"], run["mrr"]) for run in json.loads(out)] == [
        ("2026-a", 2, 0.5),
        ("2026-b", 2, 0.75),
    ]


def test_show_prints_numbers_with_their_counts(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "score", "--all")
    code, out, _ = call(capsys, "show", "2026-b")
    assert code == 0
    assert ["mrr", "0.7500", "2", "0"] in [line.split() for line in out.splitlines()]
    assert "ledger: 2 golden, 2 rows" in out


def test_show_computes_what_was_not_stored(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "show", "2026-b")
    assert code == 0
    assert "0.7500" in out
    assert "computed now, not stored" in err


def test_show_recomputes_when_labels_or_definitions_are_named(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    call(capsys, "score", "--all")
    _, out, err = call(capsys, "show", "2026-b", "--k", "2")
    assert "hit_at_k.2 " in out
    assert "computed now" in err
    other = tmp_path / "other.json"
    other.write_text('[{"id": "q1", "query": "?", "expected_chunk_ids": ["nowhere"]}]')
    _, out, _ = call(capsys, "show", "2026-b", "--golden", str(other), "--format", "json")
    assert json.loads(out)["aggregate"]["mrr"] == 0.0
    assert "no such golden file" in refused(capsys, "show", "2026-b", "--golden", "nothing.yaml")


def test_numbers_computed_over_unreadable_rows_say_so(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs.add_run("broken", {"q1": "{", "q2": {}})
    _, _, err = call(capsys, "show", "broken")
    assert "1 unreadable row counted as failed, first run broken, query q1: is not valid JSON" in err


def test_short_names_are_names(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "show", "latest", "--worst", "1", "--metric", "hit@1", "--format", "json")
    assert json.loads(out)[0]["hit_at_k.1"] == 0.0
    assert call(capsys, "explain", "cited")[1].startswith("citation_coverage: ")


def test_rows_and_queries_without_each_other_are_warned_about(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs.add_run("partial", {"q1": {"hits_top_k": hits("c1")}, "stray": {}})
    _, _, err = call(capsys, "score", "partial")
    assert "no row for 1 golden query, left out" in err
    assert "1 row without a golden query, counted only in totals" in err


def test_show_worst_puts_the_worst_first(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "show", "latest~1", "--worst", "5", "--metric", "hit_at_k.5", "--format", "json")
    assert [(row["query_id"], row["hit_at_k.5"]) for row in json.loads(out)] == [("q2", 0.0), ("q1", 1.0)]


def test_show_query_says_where_a_number_comes_from(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "show", "2026-b", "--query", "q2")
    assert "second?" in out
    assert "c2" in out
    _, out, _ = call(capsys, "show", "2026-b", "--query", "q2", "--format", "json")
    found = json.loads(out)
    assert found["scores"]["mrr"] == 0.5
    assert [hit["is_expected_chunk"] for hit in found["hits"]] == [False, True]


def test_metrics_and_explain_come_from_the_files(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "metrics")
    assert "was any expected chunk among the first k hits?" in out
    _, out, _ = call(capsys, "explain", "hit_at_k.5")
    assert "MAX(CASE WHEN is_expected_chunk AND rank <= :k" in out
    assert "n_expected_chunks > 0" in out


def test_check_exits_with_one_when_it_finds_something(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "check")
    assert code == 0, out
    two_runs.add_run("odd", {"q1": {"hits_top_k": hits("c1", "c1")}})
    code, out, err = call(capsys, "check")
    assert code == 1
    assert "repeated hits: 1  [repeated-hit]" in out
    assert "what to do" in out
    assert "2 findings in 2 golden queries and 3 runs" in err
    code, out, _ = call(capsys, "check", "--format", "json")
    assert code == 1
    assert {finding["code"] for finding in json.loads(out)} == {"repeated-hit", "query-without-row"}


# --- wrong input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score"], "specify runs to score, or use --all"),
        (["score", "x", "--all"], "not both"),
        (["score", "nope"], "there is no run 'nope'"),
        (["score", "2026"], "matches 2 runs"),
        (["score", "2026-c"], "did you mean '2026-"),
        (["score", "latest~9"], "has 2 runs"),
        (["score", "latest~99999999999999999999"], "there is no run"),
        (["score", "--all", "--k", "0"], "integers from 1"),
        (["score", "--all", "--k", "a,b"], "integers from 1"),
        (["score", "--all", "--k", "99999999999999999999"], "integers from 1"),
        (["score", "--all", "--by", "colour"], "cannot slice by 'colour'"),
        (["score", "--all", "--threads", "0"], "threads"),
        (["score", "--all", "--memory-limit", "much"], "is not a size"),
        (["score", "--all", "--metrics", "nowhere"], "is not a folder"),
        (["score", "--all", "--db", "nothing.db"], "there is no database nothing.db"),
        (["score", "--all", "--db", "."], "is a directory"),
        (["score", "--all", "--golden", "nothing.yaml"], "there is no such golden file"),
        (["score", "--all", "--golden", "."], "is a directory"),
        (["export"], "'kbeval export' requires a subcommand: anchors, duckdb, trec; see 'kbeval export --help'"),
        (["scoer"], "did you mean 'score'"),
        (["explain", "hit_at"], "did you mean 'hit_at_k'"),
        (["show", "latest", "--query", "q9"], "has no query 'q9'"),
        (["show", "latest", "--worst", "3", "--metric", "mmr"], "did you mean 'mrr'"),
        (["show", "latest", "--worst", "3", "--metric", "mrr.7"], "not computed at '7'"),
        (["show", "latest", "--metric", "mrr"], "--metric requires --worst"),
        (["show", "latest", "--worst", "0"], "worst"),
        (["show", "a\x1b[31mb"], "there is no run"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_two(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    err = refused(capsys, *arguments)
    assert message in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"just text, no database", "is not a SQLite database"),
        (b"SQLite format 3\x00garbage", "cannot be read"),
    ],
)
def test_files_that_are_not_databases_are_distinguished(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "odd.db"
    path.write_bytes(content)
    for command in (["score", "--all"], ["runs"], ["check"], ["show", "latest"]):
        assert message in refused(capsys, *command, "--db", str(path))
    assert path.read_bytes() == content


def test_a_database_without_the_tables_says_which(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = Workspace(tmp_path, "other.db")
    other.execute("DROP TABLE eval_query_results")
    assert "has no table 'eval_query_results'" in refused(capsys, "score", "--all", "--db", str(other.db))


def test_a_database_without_runs(two_runs: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    empty = str(Workspace(tmp_path, "empty.db").db)
    assert "no runs" in refused(capsys, "score", "--all", "--db", empty)
    assert "no runs" in refused(capsys, "show", "latest", "--db", empty)
    code, _, err = call(capsys, "runs", "--db", empty)
    assert (code, "holds no runs yet" in err) == (0, True)


def test_without_a_database_or_golden_file_it_says_how_to_name_one(
    capsys: pytest.CaptureFixture[str], workspace: Workspace
) -> None:
    assert "--db FILE, set KBEVAL_DB, or put db" in refused(capsys, "score", "--all")
    assert "--golden FILE" in refused(capsys, "score", "--all", "--db", str(workspace.db))


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kbeval.toml").write_text('db = "from-file.db"\n')
    assert call(capsys, "runs")[0] == 0
    assert "from-flag.db" in refused(capsys, "runs", "--db", "from-flag.db")
    monkeypatch.delenv("KBEVAL_DB")
    assert str(tmp_path / "from-file.db") in refused(capsys, "runs")


def test_an_unknown_key_in_the_config_names_the_nearest(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "kbeval.toml").write_text('goldn = "x"\n')
    assert "unknown key 'goldn'; did you mean 'golden'" in refused(capsys, "runs")


def test_golden_faults_are_all_listed(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs.golden.write_text('[{"id": "a"}, {"query": "b"}]')
    err = refused(capsys, "score", "--all")
    assert "2 errors" in err
    assert "entry 1 (a)" in err
    assert "entry 2" in err


HOSTILE = "x\x1b]0;PWNED\x07\nkbeval: forged"


def test_no_id_from_the_data_reaches_the_terminal_raw(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    two_runs.add_run(HOSTILE, {HOSTILE: "{", "q1": {}}, chunker=HOSTILE)
    golden = tmp_path / "hostile.json"
    golden.write_text(json.dumps([{"id": HOSTILE, "query": 5, HOSTILE: 1}, {"id": HOSTILE, "query": "x"}, {"id": []}]))
    commands = [
        ["score", HOSTILE],
        ["score", "--all"],
        ["score", HOSTILE, "--skip-bad-rows"],
        ["check"],
        ["runs"],
        ["show", HOSTILE],
        ["show", HOSTILE, "--query", HOSTILE],
        ["show", "latest", "--query", HOSTILE],
        ["score", "--all", "--golden", str(golden)],
        ["score", "--all", "--by", HOSTILE],
        ["explain", HOSTILE],
        ["runs", "--format", "csv"],
        ["runs", "--format", "md"],
        ["show", HOSTILE, "--worst", "2"],
    ]
    for command in commands:
        _, out, err = call(capsys, *command)
        assert "\x1b" not in out + err, command
        assert "\x07" not in out + err, command
        assert not any(line.startswith("kbeval: forged") for line in err.splitlines()), command


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("threads = 0", "threads must be between 1"),
        ("threads = 1000000000000000000000", "threads must be between 1"),
        ("k = [0]", "integers from 1"),
        ("k = 5", "k must be a list"),
        ('memory_limit = "-5GB"', "is not a size"),
        ("db = 3", "db must be a string"),
        ('db = "a\\u0000b"', "NUL"),
        ("[metrics]\nmine = 3", "must be a string with an SQL aggregate"),
        ("[metrics.mine]\nbetter = 'lower'", "or a table like { expression ="),
        ("[metrics.mine]\nexpression = 'MAX(rank)'\nbeter = 'lower'", "did you mean 'better'?"),
        ("db = ", "is not valid TOML"),
        ("k = " + "[" * 5000, "is not valid TOML"),
    ],
)
def test_a_wrong_config_file_is_one_line(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path, config: str, message: str
) -> None:
    (tmp_path / "kbeval.toml").write_text(config)
    assert message in refused(capsys, "score", "--all")


def test_without_arguments_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys)
    assert (code, err) == (0, "")
    assert "Try 'kbeval demo' first" in out


# --- as a process ----------------------------------------------------------------------------------


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom kbeval.cli import run\nassert run(['--help']) == 0\n"
        "heavy = {'polars', 'duckdb', '_duckdb', 'pyarrow', 'numpy', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = process("-c", code)
    assert result.returncode == 0, result.stderr


def test_every_command_has_help_that_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    _, overview, _ = call(capsys, "--help")
    for name in COMMANDS:
        code, out, _ = call(capsys, name, "--help")
        assert code == 0
        assert len(out.splitlines()) > 4
        assert f"  {name} " in overview


def test_the_overview_says_of_each_command_what_its_own_help_begins_with() -> None:
    context = click.Context(cli)
    for name, (_, summary) in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert " ".join((command.help or "").split()).startswith(summary), name


@pytest.mark.parametrize("width", [40, 80, 100])
def test_the_overview_fits_the_terminal(width: int) -> None:
    lines = overview(width).splitlines()
    assert max(map(len, lines[1:])) <= width
    # Nothing is left out, however narrow it is.
    assert " ".join(" ".join(lines).split()).count("check its gates.") == 1


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_the_overview_needs_nothing_but_python(arguments: tuple[str, ...]) -> None:
    code = (
        "import sys\nfrom kbeval.__main__ import main\nbefore = set(sys.modules)\n"
        f"sys.argv[1:] = {list(arguments)}\nmain()\n"
        "assert set(sys.modules) - before <= {'kbeval.cli', 'kbeval.cli.overview'}, set(sys.modules) - before\n"
    )
    result = process("-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{overview(80)}\n"


@pytest.mark.parametrize("arguments", [("gate", "latest", "--min", "hit@5=0"), ("sql", "SELECT 1"), ("explain", "mrr")])
def test_numpy_is_loaded_only_to_compare(two_runs: Workspace, arguments: tuple[str, ...]) -> None:
    code = f"import sys\nfrom kbeval.cli import run\nassert run({list(arguments)}) == 0\n"
    result = process("-c", f"{code}assert 'numpy' not in sys.modules\n")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("command", "wanted", "threads"),
    [("compare", None, "1"), ("compare", "3", "3"), ("run", None, None), ("run", "3", "3")],
)
def test_no_thread_of_numpy_spins_unless_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, command: str, wanted: str | None, threads: str | None
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if wanted is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", wanted)
    code = (
        "import os, sys\nfrom kbeval.__main__ import main\nfrom kbeval import cli\n"
        f"sys.argv[1:] = [{command!r}]\ncli.main = lambda: None\nmain()\n"
        "before = len(os.listdir('/proc/self/task'))\nimport numpy\n"
        "print(os.environ.get('OPENBLAS_NUM_THREADS'), len(os.listdir('/proc/self/task')) - before)\n"
    )
    found, started = process("-c", code).stdout.split()
    assert found == str(threads)
    assert started == "0" or threads != "1"


def test_an_overview_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "kbeval", "--help"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("kbeval: cannot write the output: ")
    assert result.stderr.count("\n") == 1


def test_it_runs_as_a_module_and_prints_its_version() -> None:
    import kbeval

    assert process("-m", "kbeval", "--version").stdout.strip() == f"kbeval, version {kbeval.__version__}"


def test_piped_output_has_no_colours_and_no_progress(two_runs: Workspace) -> None:
    result = process("-m", "kbeval", "score", "--all")
    assert "\x1b" not in result.stdout + result.stderr
    assert "\r" not in result.stderr


def shell(command: str) -> subprocess.CompletedProcess[str]:
    command = command.replace("kbeval", f"{sys.executable} -m kbeval")
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)


def test_a_closed_pipe_is_not_an_error(two_runs: Workspace) -> None:
    result = shell("kbeval runs --format json | true")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_reported(two_runs: Workspace) -> None:
    result = shell("kbeval score --all > /dev/full")
    assert result.returncode == 2
    assert "stored the numbers of 2 runs" in result.stderr
    assert "kbeval: cannot write the output: No space left on device" in result.stderr
    assert shell("kbeval runs >&-").returncode == 0


def test_no_noise_from_the_engine_on_any_error(two_runs: Workspace, tmp_path: Path) -> None:
    (tmp_path / "kbeval.toml").write_text('[metrics]\nbad = "MAX(nothing)"\n')
    for command in ("score --all", "score --all --memory-limit x", "show nope", "score --all --db nope"):
        result = shell(f"kbeval {command}")
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1, result.stderr


def wait_until_it_computes(process: subprocess.Popen[str]) -> None:
    """Until a process has used more processor time than it needs to start."""
    ticks = os.sysconf("SC_CLK_TCK")
    used = 0.0
    while used < 1.5:
        assert process.poll() is None
        time.sleep(0.02)
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used = (int(fields[11]) + int(fields[12])) / ticks


def test_ctrl_c_exits_with_130_and_stores_nothing(two_runs: Workspace, tmp_path: Path) -> None:
    # Enough rows to be interrupted in the middle, and a metric that takes long.
    two_runs.add_run("big", {f"q{n}": {"hits_top_k": hits(*["c"] * 50)} for n in range(500)})
    (tmp_path / "kbeval.toml").write_text(
        "[metrics]\nslow = \"SUM(levenshtein(repeat('ab', 2000 + rank), repeat('ba', 2000)))\"\n"
    )
    command = [sys.executable, "-m", "kbeval", "score", "big"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until_it_computes(process)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()  # it would run forever
    assert process.returncode == 130, err
    assert err.strip() == "kbeval: interrupted; no partial results were written"
    assert out == ""
    assert two_runs.stored("big") == ""


def at_terminal(*arguments: str, **environment: str) -> str:
    """Everything that a real terminal would receive."""
    leader, follower = pty.openpty()
    text = b""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", **environment},
    ):
        os.close(follower)
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # the other end is gone
                break
            if not part:
                break
            text += part
    os.close(leader)
    return text.decode()


def test_a_terminal_gets_colours_and_no_color_takes_them_away(two_runs: Workspace) -> None:
    assert "\x1b[1m" in at_terminal("-m", "kbeval", "runs")
    assert "\x1b[1m" not in at_terminal("-m", "kbeval", "runs", NO_COLOR="1")


def test_long_work_shows_what_it_is_doing_at_a_terminal_and_cleans_up() -> None:
    code = (
        "import time\nfrom kbeval.cli.common import Progress\n"
        "with Progress() as progress:\n    progress.step('reading results')\n    time.sleep(1.2)\n"
        "print('done')\n"
    )
    text = at_terminal("-c", code)
    assert "reading results … 1 s" in text
    assert text.rstrip().endswith("\x1b[Kdone")


def test_short_work_at_a_terminal_shows_no_progress(two_runs: Workspace) -> None:
    assert " … " not in at_terminal("-m", "kbeval", "explain", "mrr")
