"""Odd input of every kind, for a bounded time: no traceback, no hang, no internal error, nothing changed.

The cases are the same each time. `KBEVAL_FUZZ_SECONDS=600` looks for longer (in each area), `KBEVAL_FUZZ_SEED=7`
elsewhere; `python -m tests.fuzz --help` does the same by hand.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.__main__ import corpus, supervise
from tests.fuzz.cases import Case
from tests.fuzz.invention import AREAS
from tests.fuzz.judging import Fault, judge
from tests.fuzz.reduction import reduced
from tests.support.examples import sized

# Seconds of processor time, ten in all: what an area costs to score, and how much there is to look for. The profile
# `thorough` looks for half a minute.
SECONDS = {"rows": 8, "stored": 6, "golden": 3, "settings": 3, "metrics": 3, "questions": 5, "imports": 2, "ways_in": 6}
SHARE = sized(30, 100) / 100


@pytest.mark.parametrize("area", SECONDS)
def test_no_invented_input_breaks_a_command(area: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seconds = float(os.environ.get("KBEVAL_FUZZ_SECONDS") or SECONDS[area] * SHARE)
    code = supervise(area, os.environ.get("KBEVAL_FUZZ_SEED") or "1", seconds, tmp_path)
    said = capfd.readouterr()
    assert code == 0, said.out + said.err
    print(said.out)


@pytest.mark.parametrize("name", corpus())
def test_earlier_crashes_stay_fixed(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    case = corpus()[name]
    if case.open:
        request.applymarker(pytest.mark.xfail(reason=f"{case.about}: {case.open}"))
    assert judge(case, tmp_path / "case") is None


# --- the judge itself ------------------------------------------------------------------------------

SMALL = Case(
    [["runs", "--db", "kb.db", "--format", "json"]],
    {"golden.json": "[]"},
    {
        "eval_runs": [
            {
                "run_id": "a",
                "suite": "s",
                "config_snapshot_json": "{}",
                "aggregate_json": "",
                "created_at": "2026-01-01",
            }
        ],
        "eval_query_results": [{"run_id": "a", "query_id": "q", "result_json": "{}"}],
    },
)


IMPOSSIBLE = '{"mrr": 2, "total_queries": 1}'


def _raise() -> None:
    raise IndexError


def _work_for_ever() -> None:
    while True:
        pass


def _execute(sql: str) -> None:
    with closing(sqlite3.connect("kb.db")) as connection, connection:
        connection.execute(sql)


@pytest.mark.parametrize(
    ("misbehave", "kind"),
    [
        (lambda: None, "None"),
        (_raise, "internal error: IndexError"),
        (_work_for_ever, "hang"),
        (lambda: print("\x1b[31m"), "stdout has hidden characters"),
        (lambda: print("NaN"), "impossible number"),
        (lambda: print('{"a": '), "output is not JSON"),
        (lambda: print("\u202e", file=sys.stderr), "stderr has hidden characters"),
        (lambda: _execute("UPDATE eval_query_results SET result_json = '[]'"), "eval_query_results changed"),
        (lambda: _execute("UPDATE eval_runs SET suite = 'other'"), "eval_runs changed"),
        (lambda: _execute(f"UPDATE eval_runs SET aggregate_json = '{IMPOSSIBLE}'"), "impossible number: mrr"),
        (lambda: Path("golden.json").write_text("", encoding="utf-8"), "input changed"),
        (lambda: Path(".draft").touch(), "files left behind"),
        (lambda: Path(tempfile.gettempdir(), "spilled").touch(), "files left behind"),
        (lambda: Path("kb.db").write_bytes(b"x" * 5000), "database is damaged"),
    ],
)  # fmt: skip
def test_the_judge_sees_what_a_command_does_wrong(
    misbehave: Callable[[], Any], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fuzz.judging.PATIENCE", 0.5)
    monkeypatch.setattr("kbeval.cli.runs.runs_command.callback", lambda **_: [misbehave(), 0][1])
    assert str(judge(SMALL, tmp_path / "case")).startswith(kind)


def test_a_case_is_the_same_each_time_and_as_a_file() -> None:
    for area, invented in AREAS.items():
        case = invented(f"{area} 1 0")
        assert case == invented(f"{area} 1 0")
        assert Case.from_json(case.to_json()) == case
        assert case != invented(f"{area} 1 1")


def test_a_case_is_made_smaller_while_it_shows_the_same(tmp_path: Path) -> None:
    rows = [{"run_id": "a", "query_id": f"q{number}", "result_json": '{"hits_top_k": [{}, 7]}'} for number in range(9)]
    large = replace(SMALL, calls=[["a"], ["b"], ["c"]], tables={"eval_query_results": rows})

    def judged(case: Case) -> Fault | None:
        found = [row for row in case.tables["eval_query_results"] if "7" in str(row["result_json"])]
        return Fault("seven", "") if found and ["b"] in case.calls else None

    small = reduced(large, "seven", judged)
    assert small.calls == [["b"]]
    assert not small.files
    assert [row["result_json"] for row in small.tables["eval_query_results"]] == ["[7]"]
