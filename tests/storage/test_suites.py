"""Which run a name means if a database contains several suites, and what a run is compared with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbeval.errors import UsageError
from kbeval.storage.runs import Run, find_baseline, find_run, is_reserved
from tests.cli.test_cli import call, refused
from tests.support.workspace import Workspace, hits

# Oldest first: two suites in turns.
DAYS = {"n-1": "nightly", "p-1": "pr", "n-2": "nightly", "p-2": "pr", "n-3": "nightly"}


def some_runs(suites: dict[str, str] | None = None) -> list[Run]:
    suites = DAYS if suites is None else suites
    return [
        Run(run_id, suite, f"2026-01-0{day}", None, "{}", "", 1)
        for day, (run_id, suite) in enumerate(suites.items(), start=1)
    ]


@pytest.mark.parametrize(
    ("name", "suite", "found"),
    [
        ("latest", None, "n-3"),
        ("latest~0", None, "n-3"),
        ("latest~1", None, "n-2"),
        ("latest~2", None, "n-1"),
        ("latest", "pr", "p-2"),
        ("latest~1", "pr", "p-1"),
        ("n-2~1", None, "n-1"),
        ("p-2~1", None, "p-1"),
        ("p-2~1", "pr", "p-1"),
        ("p", "nightly", None),
        ("p-2", "nightly", None),
        ("p-1~1", None, None),
        ("latest~3", None, None),
        ("latest~2", "pr", None),
        ("~1", None, None),
        ("previous", None, None),
        ("", None, None),
        ("p~1", None, None),
        ("latest", "weekly", None),
    ],
)
def test_a_name_stays_within_a_suite(name: str, suite: str | None, found: str | None) -> None:
    if found is not None:
        assert find_run(some_runs(), name, "kb.db", suite).run_id == found
        return
    with pytest.raises(UsageError):
        find_run(some_runs(), name, "kb.db", suite)


@pytest.mark.parametrize(
    ("name", "suite", "said"),
    [
        ("n-1~1", None, "there is no run before n-1: it is the first of suite 'nightly' in kb.db; specify another run"),
        ("latest~9", None, "no run 9 positions before n-3: suite 'nightly' in kb.db has 3 runs up to it"),
        ("latest", "nihgtly", "there is no suite 'nihgtly' in kb.db; did you mean 'nightly'?"),
        ("latest", "weekly", "there is no suite 'weekly' in kb.db; available: nightly, pr"),
        ("p-2", "nightly", "run 'p-2' belongs to suite 'pr', not to 'nightly'"),
        ("x-1", "nightly", "there is no run 'x-1' in suite 'nightly' of kb.db; did you mean"),
        ("p~1", None, "'p' is ambiguous: it matches 2 runs (p-1, p-2)"),
    ],
)
def test_an_unknown_run_is_reported_with_its_suite(name: str, suite: str | None, said: str) -> None:
    with pytest.raises(UsageError) as error:
        find_run(some_runs(), name, "kb.db", suite)
    assert said in str(error.value)


def test_a_beginning_and_a_place_before_it() -> None:
    runs = some_runs({"2026-11-13-x": "nightly", "2026-11-13-y": "pr", "2026-11-14-x": "nightly"})
    assert find_run(runs, "2026-11-14~1", "kb.db").run_id == "2026-11-13-x"
    assert find_run(runs, "2026-11-13", "kb.db", "pr").run_id == "2026-11-13-y"


def test_an_id_that_looks_like_a_place_comes_first() -> None:
    runs = some_runs({"a": "s", "b~1": "s", "b": "s", "c": "s", "latest~1": "s"})
    assert find_run(runs, "b~1", "kb.db").run_id == "b~1"
    assert find_run(runs, "b~2", "kb.db").run_id == "a"
    assert find_run(runs, "b~1~1", "kb.db").run_id == "a"
    assert find_baseline(runs, "b~1", runs[-1], "kb.db").run_id == "b~1"


@pytest.mark.parametrize("name", ["latest", "latest~1", "previous", "~1"])
def test_an_id_that_always_means_a_place_is_ambiguous(name: str) -> None:
    runs = some_runs({"a": "s", name: "s", "c": "s", "d": "s"})
    with pytest.raises(UsageError, match="is ambiguous: it is the id of a run, and also means a position"):
        find_run(runs, name, "kb.db")
    with pytest.raises(UsageError, match="is ambiguous"):
        find_baseline(runs, name, runs[-1], "kb.db")
    # The beginning of its id names it, and ids name the others.
    assert find_run(runs, name[:-1], "kb.db").run_id == name
    assert find_run(runs, "d", "kb.db").run_id == "d"


def test_the_newest_run_may_be_called_latest() -> None:
    assert find_run(some_runs({"a": "s", "latest": "s"}), "latest", "kb.db").run_id == "latest"


@pytest.mark.parametrize("name", ["latest", "latest~1", "b~1"])
@pytest.mark.parametrize("created_at", ["", "yesterday", "03/04/2026", "2026-02-30"])
def test_a_place_is_not_guessed_where_a_run_has_no_date(name: str, created_at: str) -> None:
    runs = [Run("x", "s", created_at, None, "{}", "", 1), *some_runs({"a": "s", "b": "s", "other": "t"})]
    with pytest.raises(UsageError, match=r"created_at of run x is '.*', not a time; use the run's id"):
        find_run(runs, name, "kb.db", "s")
    with pytest.raises(UsageError, match="created_at of run x"):
        find_baseline(runs, "previous", runs[2], "kb.db")
    assert find_run(runs, "b", "kb.db").run_id == "b"
    assert find_run(runs, "latest", "kb.db", "t").run_id == "other"


@pytest.mark.parametrize(
    ("run", "baseline", "found"),
    [
        ("n-2", "latest~1", "n-1"),
        ("n-3", "latest~1", "n-2"),
        ("n-3", "latest~2", "n-1"),
        ("p-2", "latest~1", "p-1"),
        ("p-2", "previous", "p-1"),
        ("n-3", "~2", "n-1"),
        ("p-2", "latest", "p-2"),
        ("p-1", "n-3", "n-3"),
        ("p-1", "n-3~1", "n-2"),
    ],
)
def test_a_baseline_by_its_place_is_before_the_gated_run_in_its_suite(run: str, baseline: str, found: str) -> None:
    runs = some_runs()
    assert find_baseline(runs, baseline, find_run(runs, run, "kb.db"), "kb.db").run_id == found


@pytest.mark.parametrize("name", ["latest", "latest~2", "previous", "~1"])
def test_a_name_that_means_a_position_is_not_allowed_as_an_id(name: str) -> None:
    assert is_reserved(name)
    assert not any(map(is_reserved, (f"x{name}", "", "~", "2026~1")))


@pytest.fixture
def two_suites(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Nights get better and better, pull requests worse; each finds as many of ten as its entry says."""
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in range(10)))
    found = {"n-1": 4, "p-1": 9, "n-2": 6, "p-2": 2, "n-3": 8}
    for day, (run_id, suite) in enumerate(DAYS.items(), start=1):
        rows = {f"q{n}": {"hits_top_k": hits("c" if n < found[run_id] else None)} for n in range(10)}
        workspace.add_run(run_id, rows, created_at=f"2026-01-0{day}")
        workspace.execute("UPDATE eval_runs SET suite = ? WHERE run_id = ?", (suite, run_id))
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    return workspace


def gated(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code, out, _ = call(capsys, "gate", *arguments, "--format", "json")
    found = json.loads(out)
    return code, found["run"], found["baseline"]


def test_gates_compare_a_run_with_the_one_before_in_its_suite(
    two_suites: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drop = ("--max-drop", "mrr=0.02")
    assert gated(capsys, "latest", "--baseline", "latest~1", *drop) == (0, "n-3", "n-2")
    assert gated(capsys, "latest", "--suite", "pr", "--baseline", "latest~1", *drop) == (1, "p-2", "p-1")
    (tmp_path / "kbeval.toml").write_text('[gates]\nbaseline = "latest~1"\nmax_drop = { mrr = 0.02 }\n')
    assert gated(capsys, "n-2") == (0, "n-2", "n-1")
    assert gated(capsys, "p-2") == (1, "p-2", "p-1")
    assert "it is the first of suite 'nightly'" in refused(capsys, "gate", "n-1")
    # A baseline that is named may be of another suite.
    assert gated(capsys, "latest", "--suite", "pr", "--baseline", "n-1") == (1, "p-2", "n-1")


def test_a_run_that_is_its_own_baseline_is_warned_about(
    two_suites: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(capsys, "gate", "latest", "--baseline", "latest", "--no-regressions")
    assert code == 0
    assert "the baseline is n-3 itself" in err


def test_a_suite_may_be_named_wherever_runs_are(two_suites: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        code, out, _ = call(capsys, *arguments, "--suite", "pr")
        assert code == 0
        return out

    (scored,) = json.loads(said("score", "latest", "--format", "json"))
    assert scored["run_id"] == "p-2"
    assert [one["run_id"] for one in json.loads(said("score", "--all", "--format", "json"))] == ["p-1", "p-2"]
    assert [one["run_id"] for one in json.loads(said("runs", "--format", "json"))] == ["p-1", "p-2"]
    assert json.loads(said("show", "latest", "--format", "json"))["run_id"] == "p-2"
    assert said("show", "latest", "--worst", "1", "--format", "csv").splitlines()[1].startswith("q2,")
    compared = json.loads(said("compare", "latest~1", "latest", "--format", "json"))
    assert (compared["run_a"], compared["run_b"]) == ("p-1", "p-2")
    assert json.loads(said("recompute", "--format", "json"))["reasons"] == {}
    (series,) = json.loads(said("history", "mrr", "--format", "json"))["series"]
    assert [point["run_id"] for point in series["points"]] == ["p-1", "p-2"]
    assert "and 2 runs" in call(capsys, "check", "--suite", "pr")[2]
    assert "there is no suite 'rp'" in refused(capsys, "score", "--all", "--suite", "rp")
    assert "there is no suite 'rp'" in refused(capsys, "runs", "--suite", "rp")


def test_two_runs_by_place_are_of_one_suite(two_suites: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "compare", "latest~1", "latest", "--format", "json")
    assert (json.loads(out)["run_a"], json.loads(out)["run_b"]) == ("n-2", "n-3")
    lost = "SELECT COUNT(*) AS lost FROM compare('p-2~1', 'p-2') WHERE kind = 'regression'"
    assert call(capsys, "sql", lost, "--format", "csv")[1].split() == ["lost", "7"]
