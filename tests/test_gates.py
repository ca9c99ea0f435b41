"""Gates: what passes, what fails and says why, and what CI reads."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run
from kbeval.errors import UsageError
from kbeval.gates import check_gates
from tests.workspace import Workspace, hits


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


def gate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["gate", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--min", "mrr=0.625"], 0, "mrr is 0.625"),
        (["--min", "mrr=0.6251"], 1, "mrr is 0.625; wanted: at least 0.6251"),
        (["--min", "hit@1=0.5", "--min", "hit_at_k.5=0.75"], 0, "hit_at_k.5 is 0.75"),
        (["--min", "hit@2=0.76"], 1, "hit_at_k.2 is 0.75"),
        (["--max", "empty_result_rate=0"], 0, "empty_result_rate is 0"),
        (["--max", "failed=0"], 0, "failed_queries is 0"),
        (["--max", "mrr=0.5"], 1, "wanted: at most 0.5"),
        (["--min", "groundedness=0"], 1, "groundedness has no value: it applies to no query of this run"),
        (["--max", "citation_coverage=1"], 1, "citation_coverage has no value"),
        (["--min-scored", "hit_at_k=4"], 0, "scored on 4 queries"),
        (["--min-scored", "mrr=5"], 1, "scored on 4 queries; wanted: at least 5"),
        (["--max-missing", "1"], 0, "no row for 1 golden query"),
        (["--max-missing", "0"], 1, "wanted: at most 0"),
        (["--baseline", "a", "--max-drop", "mrr=0.375"], 0, "mrr went from 1 to 0.625"),
        (["--baseline", "a", "--max-drop", "mrr=0.37"], 1, "worse by at most 0.37"),
        (["--baseline", "a", "--max-drop", "empty_result_rate=0"], 0, "empty_result_rate went from 0 to 0"),
        (["--baseline", "a", "--max-drop", "groundedness=1"], 1, "has no value"),
        (["--baseline", "a", "--no-regressions"], 1, "2 regressions: q3, q4"),
        (["--baseline", "b", "--no-regressions"], 0, "no regression"),
    ],
)
def test_a_gate_passes_or_fails_and_says_why(
    two_runs: Workspace, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    found, out, _ = gate(capsys, "b", *arguments)
    assert (found, said in out) == (code, True), out


def test_a_metric_that_should_fall_may_not_rise(two_runs: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs.execute("UPDATE eval_query_results SET result_json = '{}' WHERE run_id = 'b' AND query_id = 'q0'")
    assert gate(capsys, "b", "--baseline", "a", "--max-drop", "empty_result_rate=0.2")[0] == 1
    assert gate(capsys, "b", "--baseline", "a", "--max-drop", "empty_result_rate=0.25")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there are no gates"),
        (["--min", "mmr=1"], "there is no metric 'mmr'; did you mean 'mrr'?"),
        (["--min", "hit_at_k=1"], "'hit_at_k' has several values: say which, like hit_at_k.1"),
        (["--min", "mrr"], "'mrr' is no limit; write it like hit_at_k.5=0.8"),
        (["--min", "mrr=high"], "--min mrr: 'high' is not a number"),
        (["--min", "mrr=nan"], "is not a number"),
        (["--min-scored", "nothing=1"], "there is no metric 'nothing'"),
        (["--max-drop", "mrr=0.1"], "--max-drop mrr=0.1 needs something to compare with: --baseline RUN"),
        (["--no-regressions"], "needs something to compare with"),
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
    with pytest.raises(UsageError, match="there are no gates"):
        check({})
    two_runs.execute(
        "UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = 'a'", ('{"chunker_version":"md@0"}',)
    )
    report = check_gates("b", {"baseline": "a", "min": {"mrr": 0}}, db=two_runs.db, golden=two_runs.golden)
    assert any("matched by document alone" in warning for warning in report.warnings)
