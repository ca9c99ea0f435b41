"""Gates: what passes, what fails and says why, and what CI reads."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run
from kbeval.compare.gates import GateResult, check_gates
from kbeval.errors import UsageError
from kbeval.metrics.model import AggregateMetrics
from tests.support.workspace import Workspace, answer, hits


@pytest.fixture
def two_runs(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A finds all four at rank 1; B three of them, one at rank 2, and has no row for the fifth. mrr 1.0 and 0.625."""
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in range(5)))
    first, second, none = ({"hits_top_k": found} for found in (hits("c"), hits(None, "c"), hits(None)))
    workspace.add_run("a", {f"q{n}": first for n in range(5)})
    workspace.add_run("b", {"q0": first, "q1": first, "q2": second, "q3": none}, created_at="2026-02-01")
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    return workspace


def test_a_metric_without_a_better_direction_cannot_drop(
    two_runs: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "kbeval.toml"
    config.write_text('[metrics]\ndepth = "MAX(rank)"\n')
    code, out, err = gate(capsys, "b", "--baseline", "a", "--max-drop", "depth=1")
    assert (code, out) == (2, "")
    assert "--max-drop depth has no direction; use --min or --max; add 'better' (higher or lower)" in err
    assert "kbeval.toml" in err
    assert gate(capsys, "b", "--max", "depth=9")[0] == 0
    config.write_text('[metrics.depth]\nexpression = "MAX(rank)"\nbetter = "lower"\n')
    assert gate(capsys, "b", "--baseline", "a", "--max-drop", "depth=1")[0] == 0
    code, _, err = gate(capsys, "b", "--baseline", "a", "--max-drop", "queries=0")
    assert (code, "a higher total_queries is neither better nor worse" in err) == (2, True)


def gate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["gate", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


# Gates that pass and gates that fail, each with its message; those of one call are checked together.
JUDGED: list[tuple[list[str], bool, list[tuple[str, str]]]] = [
    (
        [],
        True,
        [
            ("--min mrr=0.625", "mrr is 0.625"),
            ("--min hit@1=0.5", "hit_at_k.1 is 0.5"),
            ("--min hit_at_k.5=0.75", "hit_at_k.5 is 0.75"),
            ("--max empty_result_rate=0", "empty_result_rate is 0"),
            ("--max failed=0", "failed_queries is 0"),
            ("--min-scored hit_at_k=4", "scored on 4 queries"),
            ("--max-missing 1", "no row for 1 golden query"),
        ],
    ),
    (
        [],
        False,
        [
            ("--min mrr=0.6251", "mrr is 0.625; wanted: at least 0.6251"),
            ("--min hit@2=0.76", "hit_at_k.2 is 0.75"),
            ("--max mrr=0.5", "wanted: at most 0.5"),
            ("--min groundedness=0", "groundedness has no value: it does not apply to any query of this run"),
            ("--max citation_coverage=1", "citation_coverage has no value"),
            ("--min-scored mrr=5", "scored on 4 queries; wanted: at least 5"),
            ("--max-missing 0", "wanted: at most 0"),
        ],
    ),
    (
        ["--baseline", "a"],
        True,
        [
            ("--max-drop mrr=0.375", "mrr went from 1 to 0.625"),
            ("--max-drop empty_result_rate=0", "empty_result_rate went from 0 to 0"),
        ],
    ),
    (
        ["--baseline", "a"],
        False,
        [
            ("--max-drop mrr=0.37", "worse by at most 0.37"),
            ("--max-drop groundedness=1", "has no value"),
            ("--no-regressions", "2 regressions: q3, q4"),
        ],
    ),
    (["--baseline", "b"], True, [("--no-regressions", "no regression")]),
]


@pytest.mark.parametrize(("base", "passes", "gates"), JUDGED)
def test_a_gate_passes_or_fails_and_says_why(
    two_runs: Workspace,
    capsys: pytest.CaptureFixture[str],
    base: list[str],
    passes: bool,
    gates: list[tuple[str, str]],
) -> None:
    arguments = [part for named, _ in gates for part in named.split()]
    code, out, _ = gate(capsys, "b", *base, *arguments, "--format", "json")
    assert code == (0 if passes else 1), out
    found = json.loads(out)["gates"]
    assert [one["pass"] for one in found] == [passes] * len(gates), out
    for named, said in gates:
        assert any(said in one["why"] for one in found), named


@pytest.mark.parametrize(("arguments", "code"), [(["--min", "mrr=0.625"], 0), (["--max-missing", "0"], 1)])
def test_one_gate_alone_decides_the_exit_code(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    assert gate(capsys, "b", *arguments)[0] == code


def test_a_metric_that_should_fall_may_not_rise(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs.execute("UPDATE eval_query_results SET result_json = '{}' WHERE run_id = 'b' AND query_id = 'q0'")
    assert gate(capsys, "b", "--baseline", "a", "--max-drop", "empty_result_rate=0.2")[0] == 1
    assert gate(capsys, "b", "--baseline", "a", "--max-drop", "empty_result_rate=0.25")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no gates given"),
        (["--min", "mmr=1"], "there is no metric 'mmr'; did you mean 'mrr'?"),
        (["--min", "hit_at_k=1"], "'hit_at_k' is ambiguous: specify k, for example hit@5"),
        (["--min", "mrr"], "expects METRIC=VALUE, such as hit_at_k.5=0.8"),
        (["--min", "mrr=high"], "--min mrr: 'high' is not a number"),
        (["--min", "mrr=nan"], "is not a number"),
        (["--min-scored", "nothing=1"], "there is no metric 'nothing'"),
        (["--max-drop", "mrr=0.1"], "--max-drop mrr=0.1 requires a baseline: use --baseline RUN"),
        (["--no-regressions"], "requires a baseline"),
        (["--min", "mrr=1", "--baseline", "gone"], "there is no run 'gone'"),
    ],
)
def test_a_gate_that_makes_no_sense_is_a_usage_error(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, out, err = gate(capsys, "b", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_json_says_it_all(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = gate(capsys, "b", "--min", "mrr=0.7", "--max-missing", "3", "--format", "json")
    assert json.loads(out) == {
        "run": "b",
        "baseline": None,
        "pass": False,
        "gates": [
            {
                "gate": "min",
                "metric": "mrr",
                "limit": 0.7,
                "value": 0.625,
                "pass": False,
                "why": "mrr is 0.625; wanted: at least 0.7",
            },
            {
                "gate": "max_missing",
                "metric": None,
                "limit": 3,
                "value": 1,
                "pass": True,
                "why": "no row for 1 golden query",
            },
        ],
    }


def rename(workspace: Workspace, name: str) -> None:
    workspace.execute("UPDATE eval_query_results SET run_id = ? WHERE run_id = 'b'", (name,))
    workspace.execute("UPDATE eval_runs SET run_id = ? WHERE run_id = 'b'", (name,))


def test_junit_is_valid_whatever_the_run_is_called(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    rename(two_runs, 'b<&">\x00\x1b\ud7ff')
    code, out, _ = gate(capsys, "latest", "--min", "mrr=0.7", "--min", "hit@1=0.1", "--format", "junit")
    suite = ET.fromstring(out)
    assert code == 1
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("name") for case in suite] == ["--min mrr=0.7", "--min hit_at_k.1=0.1"]
    assert suite[0][0].get("message") == "mrr is 0.625; wanted: at least 0.7"


def test_github_gets_annotations_that_data_cannot_forge(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    rename(two_runs, "b\n::error::forged%0A")
    _, out, _ = gate(capsys, "latest", "--min", "mrr=0.7", "--format", "github")
    lines = out.splitlines()
    assert lines[0] == "::error title=kbeval gate --min mrr=0.7::mrr is 0.625; wanted: at least 0.7"
    assert lines[1].startswith("::notice title=kbeval gate::b ")
    assert "%250A" in lines[1]
    assert len(lines) == 2


# --- the config file ---------------------------------------------------------------------------------


def test_gates_in_the_config_file_are_added_to_and_overridden(
    two_runs: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kbeval.toml").write_text(
        '[gates]\nbaseline = "a"\nmin = { mrr = 0.9, "hit@1" = 0.1 }\nmax_drop = { mrr = 0.5 }\n'
    )
    code, out, _ = gate(capsys, "b", "--format", "json")
    assert code == 1
    assert [(g["gate"], g["metric"], g["pass"]) for g in json.loads(out)["gates"]] == [
        ("min", "mrr", False),
        ("min", "hit_at_k.1", True),
        ("max_drop", "mrr", True),
    ]
    code, out, _ = gate(capsys, "b", "--min", "mrr=0.6", "--max-missing", "1", "--format", "json")
    assert (code, len(json.loads(out)["gates"])) == (0, 4)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[gates]\nmni = {}", "unknown key 'mni' in [gates]; did you mean 'min'?"),
        ("[gates]\nmin = 3", "min in [gates] must be a table of metric = number"),
        ('[gates]\nmin = { mrr = "x" }', "min mrr: 'x' is not a number"),
        ("[gates]\nmax_missing = true", "max_missing in [gates] must be a whole number"),
        ("gates = 3", "gates must be a table"),
    ],
)
def test_wrong_gates_in_the_config_file_are_named(
    two_runs: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, said: str
) -> None:
    (tmp_path / "kbeval.toml").write_text(table)
    code, _, err = gate(capsys, "b", "--min", "mrr=0")
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_the_config_command_shows_where_each_value_comes_from(
    two_runs: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kbeval.toml").write_text('k = [1, 20]\ndb = "other.db"\n[gates]\nmin = { mrr = 0.9 }\n')
    assert run(["config", "--format", "json"]) == 0
    found = {row["setting"]: (row["value"], row["from"]) for row in json.loads(capsys.readouterr().out)}
    assert found["db"] == (str(two_runs.db), "the environment (KBEVAL_DB)")
    assert found["k"] == ([1, 3, 5, 10, 20], f"{tmp_path / 'kbeval.toml'} (adds 20 to 1, 3, 5, 10)")
    assert found["gates.min.mrr"] == (0.9, str(tmp_path / "kbeval.toml"))
    assert found["memory_limit"] == ("400MB", "default")
    assert found["metrics_dir"] == (None, "not set")
    assert run(["config"]) == 0
    assert "k              1, 3, 5, 10, 20" in capsys.readouterr().out


def test_gates_work_from_python_and_across_chunkers(two_runs: Workspace) -> None:
    def check(table: dict[str, Any]) -> bool:
        return check_gates("b", table, db=two_runs.db, golden=two_runs.golden).passed

    assert check({"min": {"mrr": 0.6}, "max_missing": 1})
    assert not check({"baseline": "a", "max_drop": {"mrr": 0.1}})
    with pytest.raises(UsageError, match="no gates given"):
        check({})
    two_runs.execute(
        "UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = 'a'", ('{"chunker_version":"md@0"}',)
    )
    report = check_gates("b", {"baseline": "a", "min": {"mrr": 0}}, db=two_runs.db, golden=two_runs.golden)
    assert any("matched by document alone" in warning for warning in report.warnings)


# --- exact values ------------------------------------------------------------------------------------


def make_run(workspace: Workspace, run_id: str, ranks: Sequence[int | None], created_at: str = "2026-01-01") -> None:
    """A run whose queries find what is expected at these ranks; None: not at all."""
    found = [hits(*[None] * (rank - 1), "c") if rank else hits(None) for rank in ranks]
    rows = {f"q{n}": {"hits_top_k": ranking} for n, ranking in enumerate(found)}
    workspace.add_run(run_id, rows, created_at=created_at)


@pytest.fixture
def graded(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Six queries: `thirds` finds four of them, `third` two, `three_tenths` has an mrr of 0.3."""
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in range(6)))
    make_run(workspace, "thirds", [1, 1, 1, 1, None, None])
    make_run(workspace, "third", [3] * 6)
    make_run(workspace, "three_tenths", [1, 2, 5, 10, None, None], "2026-02-01")
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    return workspace


# The run, its baseline, and gates that are checked together: each with whether it passes, and what it says. Of `thirds`
# every hit@k is 2/3; of `third` mrr and the precision at 3 are 1/3.
EXACT: list[tuple[str, str | None, list[tuple[str, bool, str]]]] = [
    (
        "thirds",
        None,
        [
            # 2/3 is stored as 0.6667, and is less.
            ("--min hit@1=0.6667", False, "hit_at_k.1 is 0.666667; wanted: at least 0.6667"),
            ("--min hit@3=0.6666", True, "hit_at_k.3 is 0.6667"),
            ("--min hit@5=0.66666667", False, "hit_at_k.5 is 0.6666666667; wanted: at least 0.66666667"),
            ("--max hit@1=0.6667", True, "hit_at_k.1 is 0.666667"),
        ],
    ),
    (
        "third",
        None,
        [
            # A third is not a decimal; the closest limit counts as equal.
            ("--min mrr=0.3333333333333333", True, "mrr is 0.333333"),
            ("--max mrr=0.3333333333333333", True, "mrr is 0.333333"),
            (
                "--max precision_at_k_chunk.3=0.3333",
                False,
                "precision_at_k_chunk.3 is 0.333333; wanted: at most 0.3333",
            ),
        ],
    ),
    (
        "three_tenths",
        "third",
        [
            ("--min mrr=0.3", True, "mrr is 0.3"),
            ("--max mrr=0.3", True, "mrr is 0.3"),
            # The drop is 0.03333…, and 0.0333 as a difference of stored numbers.
            ("--max-drop mrr=0.0334", True, "mrr went from 0.3333 to 0.3"),
        ],
    ),
    (
        "three_tenths",
        "third",
        [
            ("--min mrr=0.30000000001", False, "mrr is 0.3; wanted: at least 0.30000000001"),
            ("--max-drop mrr=0.0333", False, "went from 0.333333 to 0.3; wanted"),
        ],
    ),
    ("third", "three_tenths", [("--max-drop mrr=0", True, "mrr went from 0.3 to 0.3333")]),
]


def test_a_limit_is_compared_with_the_exact_value(graded: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    for run_id, baseline, gates in EXACT:
        arguments = [part for named, _, _ in gates for part in named.split()]
        base = ["--baseline", baseline] if baseline else []
        code, out, _ = gate(capsys, run_id, *base, *arguments, "--format", "json")
        found = json.loads(out)["gates"]
        assert len(found) == len(gates)
        assert code == (0 if all(passes for _, passes, _ in gates) else 1), out
        for one, (named, passes, said) in zip(found, gates, strict=True):
            assert f"--{one['gate'].replace('_', '-')}" == named.split()[0], out
            assert (one["pass"], said in one["why"]) == (passes, True), (run_id, named, out)


def test_a_hair_above_a_limit_is_above_it(workspace: Workspace) -> None:
    """100 of 1999 is 0.050025, which is stored as 0.05."""
    workspace.add_golden({"id": "q0"})
    make = {f"q{n}": {"hits_top_k": [] if n < 100 else hits("c")} for n in range(1999)}
    workspace.add_run("a", make)

    def judged(limit: float) -> GateResult:
        table = {"max": {"empty_result_rate": limit}}
        (found,) = check_gates("a", table, db=workspace.db, golden=workspace.golden).results
        return found

    assert workspace.aggregate("a")["empty_result_rate"] == 0.05
    at_limit, above = judged(0.05), judged(0.0501)
    assert not at_limit.passed
    assert at_limit.why == "empty_result_rate is 0.050025; wanted: at most 0.05"
    assert at_limit.value == 0.050025
    assert above.passed
    assert above.value == 0.05


def test_rates_of_abstention_percentiles_and_counts_are_exact_too(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"], "answerable": True} for n in range(3)))
    workspace.add_run(
        "a", {f"q{n}": {"hits_top_k": hits("c" if n else None), "answer": answer("yes")} for n in range(3)}
    )

    def passes(table: dict[str, Any]) -> list[bool]:
        return [one.passed for one in check_gates("a", table, db=workspace.db, golden=workspace.golden).results]

    rate = "abstention.unsupported_rate"
    assert workspace.aggregate("a")["abstention"]["unsupported_rate"] == 0.3333
    assert passes({"max": {rate: 0.3333}, "min": {"queries": 3.00001}}) == [False, False]
    assert passes({"max": {rate: 0.3334, "queries": 3}, "min": {rate: 0.3333, "queries": 3}}) == [True] * 4


def test_exact_values_are_neither_stored_nor_compared(graded: Workspace) -> None:
    aggregate = graded.score("thirds").aggregates["thirds"]
    assert aggregate.exact["hit_at_k.1"] == Fraction(2, 3)
    assert aggregate == AggregateMetrics.from_json(aggregate.to_json())
    assert "exact" not in aggregate.to_dict()
    assert AggregateMetrics.from_json(aggregate.to_json()).exact_value("hit_at_k.1") == Fraction(6667, 10000)


# --- a verdict, and every query that was lost --------------------------------------------------------


def test_not_worse_fails_where_the_comparison_says_so(graded: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    graded.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in range(40)))
    make_run(graded, "good", [1] * 40, "2026-03-01")
    make_run(graded, "same", [1] * 39 + [2], "2026-03-02")
    make_run(graded, "bad", [4] * 40, "2026-03-03")
    assert gate(capsys, "same", "--baseline", "good", "--not-worse")[0] == 0
    code, out, _ = gate(capsys, "bad", "--baseline", "good", "--not-worse", "--format", "json")
    (found,) = json.loads(out)["gates"]
    assert (code, found["gate"], found["metric"], found["pass"]) == (1, "not_worse", None, False)
    assert "worse in hit@1, hit@3, mrr" in found["why"]
    assert gate(capsys, "good", "--baseline", "bad", "--not-worse")[0] == 0
    code, out, err = gate(capsys, "bad", "--not-worse")
    assert (code, out) == (2, "")
    assert "--not-worse requires a baseline: use --baseline RUN" in err


def test_not_worse_fails_where_some_numbers_are_better_and_others_worse(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"], "expected_doc_ids": ["d1"]} for n in range(40)))
    workspace.add_run("a", {f"q{n}": {"hits_top_k": hits("c", doc="other")} for n in range(40)})
    workspace.add_run("b", {f"q{n}": {"hits_top_k": hits(None)} for n in range(40)}, created_at="2026-02-01")
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    (tmp_path / "kbeval.toml").write_text('[gates]\nbaseline = "previous"\nnot_worse = true\n')
    code, out, _ = gate(capsys, "b", "--format", "json")
    assert code == 1
    why = json.loads(out)["gates"][0]["why"]
    assert "mrr" in why
    assert "recall@" not in why.replace("chunk_recall@", "")


def test_every_lost_query_is_named_for_programs(graded: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(graded, "all", [1] * 6, "2026-03-01")
    make_run(graded, "none", [None] * 6, "2026-03-02")
    lost = [f"q{n}" for n in range(6)]
    _, out, _ = gate(capsys, "none", "--baseline", "all", "--no-regressions")
    assert "6 regressions: q0, q1, q2, …" in out
    assert "q3" not in out
    _, out, _ = gate(capsys, "none", "--baseline", "all", "--no-regressions", "--format", "json")
    assert json.loads(out)["gates"][0]["queries"] == lost
    _, out, _ = gate(capsys, "none", "--baseline", "all", "--no-regressions", "--format", "junit")
    (failure,) = ET.fromstring(out).iter("failure")
    assert (failure.text or "").split() == lost


# --- as the stored numbers were made -----------------------------------------------------------------


def test_missing_queries_count_as_they_did_in_the_stored_numbers(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """B has no row for one of five queries: its mrr is 0.625 over four and 0.5 over five."""

    def mrr(*arguments: str) -> float:
        _, out, _ = gate(capsys, "b", "--min", "mrr=0", "--format", "json", *arguments)
        return float(json.loads(out)["gates"][0]["value"])

    assert (mrr(), mrr("--missing", "zero")) == (0.625, 0.5)
    assert run(["score", "b", "--missing", "zero"]) == 0
    capsys.readouterr()
    code, out, err = gate(capsys, "b", "--min", "mrr=0.6")
    assert code == 1
    assert "mrr is 0.5" in out
    assert "no row for 1 golden query, counted as zero" in err
    assert (mrr(), mrr("--missing", "skip")) == (0.5, 0.625)
    # Against a baseline, too: both are counted alike.
    assert (mrr("--baseline", "a"), mrr("--baseline", "a", "--missing", "skip")) == (0.5, 0.625)


def test_the_job_for_ci_goes_on_after_a_query_was_added(graded: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(graded, "night-1", [1] * 6, "2026-03-01")
    make_run(graded, "night-2", [1] * 5 + [2], "2026-03-02")
    assert run(["score", "--all"]) == 0
    graded.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in range(7)))
    make_run(graded, "night-3", [1] * 6 + [2], "2026-03-03")

    def job(limit: str) -> tuple[list[int], str]:
        commands = (
            ["score", "latest"],
            ["gate", "latest", "--baseline", "latest~1", "--max-drop", f"mrr={limit}"],
            ["compare", "latest~1", "latest"],
        )
        return [run(command) for command in commands], capsys.readouterr().err

    codes, err = job("0.02")
    assert codes == [0, 0, 0]
    assert "night-2 was last scored with another golden file: both runs are recomputed" in err
    make_run(graded, "night-4", [4] * 7, "2026-03-04")
    assert job("0.02")[0] == [0, 1, 0]
