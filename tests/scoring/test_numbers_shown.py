"""What people see of numbers: no value where nothing was scored, every system's times and costs, and what to doubt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import kbeval
from kbeval.cli import run
from kbeval.compare.run import compare_runs
from kbeval.metrics.catalogue import catalogue
from kbeval.metrics.model import CONTRACT, AggregateMetrics
from kbeval.scoring.scorer import open_scoring
from tests.support.workspace import Workspace, answer, hits


def add_metric(workspace: Workspace, name: str, text: str) -> Path:
    folder = workspace.db.parent / "own"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.sql").write_text(f"-- {name}: of our own.\n{text}\n", encoding="utf-8")
    return folder


@pytest.fixture
def answering(made_answering: Workspace, tmp_path: Path) -> Workspace:
    """A copy of `made_answering`, to change."""
    for file in (made_answering.db, made_answering.golden):
        shutil.copy(file, tmp_path)
    return Workspace(tmp_path)


@pytest.fixture(scope="module")
def made_answering(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A run that only retrieves, and after it one that answers; scored and stored."""
    workspace = Workspace(tmp_path_factory.mktemp("answering"))
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c1"], "must_contain": ["yes"]} for n in range(4)))
    workspace.add_run("a", {f"q{n}": {"hits_top_k": hits("c1"), "answer": None} for n in range(4)}, created_at="1")
    rows = {f"q{n}": {"hits_top_k": hits("c1"), "answer": answer("yes" if n else "no")} for n in range(4)}
    workspace.add_run("b", rows, created_at="2")
    kbeval.store_scored(workspace.score(to_store=True), db=workspace.db)
    return workspace


# --- a number scored on no query ----------------------------------------------------------------------


def test_the_stored_json_keeps_to_the_contract(answering: Workspace) -> None:
    stored = json.loads(answering.stored("a"))
    assert stored["groundedness"] == 0.0
    assert stored["ledger"]["metrics"]["groundedness"] == {"scored": 0, "not_applicable": 4}
    assert tuple(stored)[: len(CONTRACT)] == CONTRACT
    assert AggregateMetrics.from_dict(stored).to_json() == answering.stored("a")


def test_a_trend_begins_with_the_first_run_that_has_a_value(answering: Workspace) -> None:
    with open_scoring(answering.db, None, lazily=True) as scoring:
        scoring.session.need("metric_trend", "aggregates")
        assert scoring.session.rows(
            "SELECT run_id, value, previous_value, change, scored FROM metric_trend WHERE metric = 'groundedness'"
            " ORDER BY run_id"
        ) == [("a", None, None, None, 0), ("b", 0.75, None, None, 4)]
        assert scoring.session.rows("SELECT value FROM aggregates WHERE metric = 'groundedness' ORDER BY run_id") == [
            (None,),
            (0.75,),
        ]


def test_frames_have_no_value_for_it(answering: Workspace) -> None:
    frame = answering.score().frame().filter(metric="groundedness").sort("run_id")
    assert frame["value"].to_list() == [None, 0.75]
    report = compare_runs("a", "b", db=answering.db, golden=answering.golden)
    ((a, b, delta),) = report.deltas_frame().filter(metric="groundedness").select("a", "b", "delta").rows()
    assert (a, b, delta) == (None, 0.75, None)
    assert report.deltas["groundedness"] is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["score", "a", "--dry-run"], ""),
        (["show", "a"], "groundedness,,0,4"),
        (["history", "grounded"], ""),
    ],
)
def test_csv_has_an_empty_cell_for_it(
    answering: Workspace, command: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = [] if command[0] == "history" else ["--golden", str(answering.golden)]
    assert run([*command, "--db", str(answering.db), *golden, "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    if expected:
        assert expected in lines
        return
    row = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    assert row["groundedness"] == ""


def test_a_count_of_no_queries_is_zero(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c1"]})
    workspace.add_run("run", {})
    numbers = workspace.score().aggregates["run"].numbers()
    assert (numbers["total_queries"], numbers["failed_queries"], numbers["mrr"]) == (0, 0, None)


def test_numbers_stored_before_there_was_a_ledger_are_shown_as_stored() -> None:
    old = AggregateMetrics.from_json('{"mrr": 0.0, "groundedness": 0.0, "hit_at_k": {"1": 0.0}}')
    assert old.value("groundedness") == 0.0
    assert old.numbers()["hit_at_k.1"] == 0.0


def test_a_number_without_an_earlier_value_has_no_change(
    answering: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps({"hits_top_k": hits("c1"), "answer": answer("yes")})
    answering.execute("UPDATE eval_query_results SET result_json = ? WHERE run_id = 'a'", (text,))
    where = ["--db", str(answering.db), "--golden", str(answering.golden), "--format", "json"]
    assert run(["recompute", "a", *where]) == 0
    moved = {one["metric"]: one for one in json.loads(capsys.readouterr().out)["moved"]}
    assert moved["groundedness"]["stored"] is None
    assert moved["groundedness"]["change"] is None
    assert moved["groundedness"]["now"] == 1.0


# --- times, errors, tokens and costs of every system ----------------------------------------------------


@pytest.fixture
def timed(workspace: Workspace) -> Workspace:
    """A knowledge base's own run: three queries that took 10, 20 and 90 ms, the last of which timed out."""
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c1"]} for n in range(3)))
    rows: dict[str, dict[str, Any]] = {
        "q0": {"elapsed_ms": 10, "hits_top_k": hits("c1")},
        "q1": {"elapsed_ms": 20, "hits_top_k": hits("c1")},
        "q2": {"elapsed_ms": 90, "error": "request timed out"},
    }
    workspace.add_run("run", rows)
    return workspace


def test_a_knowledge_base_run_has_times_and_errors(timed: Workspace) -> None:
    found = timed.aggregate()
    assert found["latency_ms"] == {"p50": 20.0, "p95": 83.0, "total": 120.0}
    assert found["error_rate"] == found["timeout_rate"] == 0.3333
    assert tuple(found)[: len(CONTRACT)] == CONTRACT
    # No row holds an answer, so that none can be empty; and none says what it cost.
    assert not {"empty_response_rate", "tokens_total", "cost_usd"} & found.keys()


def test_empty_responses_are_of_rows_with_an_answer(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q0"}, {"id": "q1"}, {"id": "q2"})
    workspace.add_run("run", {"q0": {"answer": answer("")}, "q1": {"answer": answer("yes")}, "q2": {"answer": None}})
    found = workspace.aggregate()
    assert found["empty_response_rate"] == 0.5
    assert found["ledger"]["metrics"]["empty_response_rate"] == {"scored": 2, "not_applicable": 1}


def test_every_command_knows_them(timed: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {f"q{n}": {"elapsed_ms": 5, "hits_top_k": hits("c1")} for n in range(3)}
    timed.add_run("later", rows, created_at="2026-02-01")
    where = ["--db", str(timed.db), "--golden", str(timed.golden)]
    assert run(["score", "--all", *where]) == 0
    capsys.readouterr()
    assert run(["show", "run", "--worst", "3", "--metric", "latency_ms", *where]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["q2", "q1", "q0"]
    assert run(["gate", "run", "--max", "latency_ms.p95=100", *where]) == 0
    assert run(["gate", "run", "--max", "latency_ms.p95=80", *where]) == 1
    capsys.readouterr()
    assert run(["history", "latency_ms.p95", "--db", str(timed.db)]) == 0
    assert "-78.0000" in capsys.readouterr().out
    assert run(["compare", "run", "later", "--only", "error_rate", *where]) == 0
    assert "error_rate  0.3333  0.0000  -0.3333" in capsys.readouterr().out


SPENT: list[tuple[dict[str, Any], float | None, float | None]] = [
    ({"tokens": 12}, 12, None),
    ({"tokens": {"prompt": 7, "completion": 3}}, 10, None),
    ({"tokens": {"prompt": 7, "completion": 3, "total": 11}}, 11, None),
    ({"usage": {"total_tokens": 9, "prompt_tokens": 1}}, 9, None),
    ({"usage": {"prompt_tokens": 4, "completion_tokens": 2}}, 6, None),
    ({"usage": {"input_tokens": 4, "output_tokens": 1}}, 5, None),
    ({"usage": {"output_tokens": 3}}, 3, None),
    ({"tokens": 12, "usage": {"total_tokens": 9}}, 12, None),
    ({"cost": 0.25}, None, 0.25),
    ({"cost_usd": 0.5, "cost": 9}, None, 0.5),
    ({"cost": {"usd": 0.125}}, None, 0.125),
    ({"tokens": "12", "cost": "much", "usage": 3}, None, None),
    ({"tokens": None, "cost": None, "usage": None, "cost_usd": True}, None, None),
    ({"cost": {"judge_tokens": 900, "judge_cost_usd": 0.01}}, None, None),
]


def test_tokens_and_costs_are_summed_where_rows_say_them(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q0"}, {"id": "q1"}, {"id": "q2"})
    for number, (row, _, _) in enumerate(SPENT):
        workspace.add_run(f"run{number}", {"q0": row, "q1": row, "q2": {"hits_top_k": []}})
    scored = workspace.score().aggregates
    for number, (row, tokens, cost) in enumerate(SPENT):
        found = scored[f"run{number}"].to_dict()
        assert found.get("tokens_total") == (None if tokens is None else 2 * tokens), row
        assert found.get("cost_usd") == (None if cost is None else 2 * cost), row
        if tokens is not None:
            assert found["ledger"]["metrics"]["tokens_total"] == {"scored": 2, "not_applicable": 1}, row


def test_the_catalogue_says_whose_runs_a_metric_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["metrics", "--format", "json"]) == 0
    systems = {one["metric"]: one["system"] for one in json.loads(capsys.readouterr().out)}
    assert systems == {metric.name: metric.system for metric in catalogue()}
    assert (systems["abstention_accuracy"], systems["answered"], systems["latency_ms"]) == ("anchors", "grounded", None)
    assert run(["explain", "abstention_accuracy"]) == 0
    assert "in runs of   anchors" in capsys.readouterr().out
    assert run(["explain", "mrr"]) == 0
    assert "in runs of   any system" in capsys.readouterr().out


# --- what to doubt --------------------------------------------------------------------------------------


def null_warnings(workspace: Workspace, **options: Any) -> list[str]:
    return [text for text in workspace.score(**options).warnings if "was null" in text]


def test_a_metric_that_is_null_where_it_applies_says_for_how_many(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c1"]} for n in range(4)))
    rows = {f"q{n}": {"hits_top_k": hits("c1") if n else []} for n in range(4)}
    workspace.add_run("run", rows)
    folder = add_metric(workspace, "ap", "AVG(CASE WHEN is_expected_chunk THEN 1.0 / rank END)")
    (warning,) = null_warnings(workspace, metric_folders=(folder,))
    assert warning.startswith("`ap`: the expression was null for 1 of the 4 queries that it applies to of run run;")
    assert "left out of the mean (COALESCE(…, 0) counts them as 0)" in warning
    workspace.add_run("other", rows)
    (warning,) = null_warnings(workspace, metric_folders=(folder,))
    assert "null for 2 of the 8 queries that it applies to (in 2 runs, first other)" in warning
    add_metric(workspace, "ap", "COALESCE(AVG(CASE WHEN is_expected_chunk THEN 1.0 / rank END), 0)")
    assert null_warnings(workspace, metric_folders=(folder,)) == []
    add_metric(workspace, "ap", "-- where: n_hits > 0\nAVG(CASE WHEN is_expected_chunk THEN 1.0 / rank END)")
    assert null_warnings(workspace, metric_folders=(folder,)) == []


def test_a_value_that_is_too_large_is_not_null(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q"})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c1")}})
    assert null_warnings(workspace, metric_folders=(add_metric(workspace, "vast", "MAX(1e40)"),)) == []


def test_shipped_metrics_are_never_null_where_they_apply(stored: Workspace, timed: Workspace) -> None:
    assert null_warnings(stored) == null_warnings(timed) == []


def depth_warnings(workspace: Workspace, *ks: int) -> list[str]:
    return [text for text in workspace.score(extra_ks=ks).warnings if "at most" in text]


def test_a_k_beyond_the_hits_of_a_run_says_nothing_new(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c1"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits(None, None, "c1", *[None] * 7)}})
    assert depth_warnings(workspace, 20) == ["hit@20 of run run equals hit@10: the run holds 10 hits per query at most"]
    assert depth_warnings(workspace, 8) == depth_warnings(workspace) == []
    workspace.add_run("short", {"q": {"hits_top_k": hits("c1")}})
    assert depth_warnings(workspace, 20, 50) == [
        "hit@20 and hit@50 of run run equal hit@10: the run holds 10 hits per query at most",
        "hit@20 and hit@50 of run short equal hit@1: the run holds 1 hit per query at most",
    ]


def test_a_run_that_asked_for_more_than_came_holds_all_there_is(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c1"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c1", None)}})
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ?", (json.dumps({"eval_k": 50}),))
    assert depth_warnings(workspace, 20) == []
    assert len(depth_warnings(workspace, 60)) == 1


# --- tables and options -----------------------------------------------------------------------------------


def test_own_percentiles_are_in_the_table(timed: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    folder = add_metric(timed, "waited", "-- grain: per_query\n-- agg: percentiles\nelapsed_ms")
    where = ["--db", str(timed.db), "--golden", str(timed.golden), "--metrics", str(folder)]
    assert run(["score", "run", "--dry-run", *where]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-3:] == ["waited.p50", "waited.p95", "waited.total"]
    assert row.split()[-3:] == ["20.0000", "83.0000", "120.0000"]


def test_show_knows_numbers_that_are_stored(answering: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--db", str(answering.db), "--golden", str(answering.golden)]
    assert run(["show", "b", *where]) == 0
    assert "the same numbers are stored" in capsys.readouterr().err
    assert run(["show", "b", "--k", "7", *where]) == 0
    assert "computed now, not stored" in capsys.readouterr().err
    answering.add_golden({"id": "q0", "expected_chunk_ids": ["c2"]})
    assert run(["show", "b", *where]) == 0
    assert "computed now, not stored" in capsys.readouterr().err


def test_the_settings_show_every_k_that_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kbeval.toml").write_text("k = [5, 20]\n", encoding="utf-8")
    assert run(["config", "--format", "json"]) == 0
    (found,) = [one for one in json.loads(capsys.readouterr().out) if one["setting"] == "k"]
    assert found["value"] == [1, 3, 5, 10, 20]
    assert found["from"].endswith("kbeval.toml (adds 20 to 1, 3, 5, 10)")


@pytest.mark.parametrize("command", [["score", "run", "--dry-run"], ["history", "mrr"]])
def test_an_option_for_one_field_does_not_take_two(
    timed: Workspace, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--db", str(timed.db), "--by", "category", "--by", "lang"]) == 2
    assert "expected one value, got 2: category, lang" in capsys.readouterr().err


def test_two_plots_are_two_files(answering: Workspace, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plots = ["--plot", "a.svg", "--plot", "b.png"]
    assert run(["history", "mrr", "--db", str(answering.db), *plots]) == 0
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_scoring_a_trace_offers_no_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["grounded", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--threads" in shown
    assert "--cache" not in shown
