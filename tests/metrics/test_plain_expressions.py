"""A metric of the grain of one row per query is a plain expression; definitions in former words still count."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import kbeval
from kbeval.cli import run
from kbeval.errors import DeprecatedMetricWarning, MetricError
from kbeval.metrics.catalogue import catalogue, metrics_in_config, parse_metric
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from tests.support.workspace import Workspace, hits


@pytest.fixture
def three(workspace: Workspace) -> Workspace:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": [f"c{n}"]} for n in (1, 2, 3)))
    found = {"q1": hits("c1", None), "q2": hits(None, None, None, "c2"), "q3": []}
    workspace.add_run("run", {query: {"hits_top_k": each, "elapsed_ms": 10} for query, each in found.items()})
    return workspace


def of(**fields: Any) -> list[Any]:
    return metrics_in_config({"mine": {"expression": "n_hits", "grain": "per_query", **fields}}, "kbeval.toml")


def quiet(workspace: Workspace, metrics: list[Any]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecatedMetricWarning)
        found: dict[str, Any] = workspace.aggregate(configured_metrics=metrics)
    return found


def test_the_grain_of_one_row_per_query_takes_a_plain_expression(three: Workspace) -> None:
    assert three.aggregate(configured_metrics=of())["mine"] == 2.0
    at_k = of(expression="CASE WHEN n_hits >= :k THEN 1 ELSE 0 END", k="2 4")
    assert three.aggregate(configured_metrics=at_k)["mine"] == {"2": 0.6667, "4": 0.3333}


def test_no_shipped_metric_of_one_row_takes_a_pass_of_its_own(three: Workspace) -> None:
    """What is read from the row of a query costs no grouping."""
    with open_scoring(three.db, three.golden, ["run"], ScoreOptions()) as scoring:
        sql = scoring.scoring_sql()
    assert "FROM per_expected_hit GROUP BY" in sql
    assert "FROM per_query GROUP BY" not in sql


AGGREGATES: list[tuple[str, object]] = [
    ("MAX(n_hits)", 2.0),
    ("max(COALESCE(n_hits, 0)) - MIN(n_hits)", 0.0),
    ("SUM(n_hits)", 2.0),
    ("COUNT(*)", 1.0),
    ("COUNT(*) FILTER (WHERE n_hits > 0)", 0.6667),
    ("MAX(CASE WHEN query_id = ')' THEN 0 ELSE 1 END)", 1.0),
    ("CAST(SUM(n_hits) AS DOUBLE) / MAX(2)", 1.0),
    ("AVG(n_hits -- )\n)", 2.0),
    ("wavg(n_hits, 1)", 2.0),
    ("MAX(CASE WHEN n_hits >= :k THEN 1 ELSE 0 END)", {"1": 0.6667, "3": 0.3333, "5": 0.0, "10": 0.0}),
]


@pytest.mark.parametrize("grain", ["per_query", "answered"])
def test_aggregates_over_the_one_row_of_a_query_still_work(three: Workspace, grain: str) -> None:
    """In the former words each is what it was."""
    table = {
        f"mine{number}": {"expression": expression, "grain": grain} for number, (expression, _) in enumerate(AGGREGATES)
    }
    found = quiet(three, metrics_in_config(table, "kbeval.toml"))
    for number, (expression, value) in enumerate(AGGREGATES):
        assert found[f"mine{number}"] == value, expression


@pytest.mark.parametrize("expression", ["MAX(n_hits)", "AVG(n_hits -- )\n)"])
def test_an_aggregate_over_the_one_row_of_a_query_is_deprecated(three: Workspace, expression: str) -> None:
    with pytest.warns(DeprecatedMetricWarning, match=r"metric mine: an aggregate at the grain per_query is deprecated"):
        three.aggregate(configured_metrics=of(expression=expression))
    # In the former words those are what the warning is about.
    with pytest.warns(DeprecatedMetricWarning, match="'grain: per_query' for 'grain: answered'") as said:
        three.aggregate(configured_metrics=of(expression=expression, grain="answered"))
    assert len({str(one.message) for one in said}) == 1


def test_former_words_mean_what_the_new_ones_mean(three: Workspace) -> None:
    three.add_golden(*({"id": f"q{n}", "expected_chunk_ids": [f"c{n}"]} for n in (1, 2, 3, 4)))
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"where": "n_hits > 2"}, {"over": "n_hits > 2"}),
        ({"where": "n_hits > 9", "if_empty": 0.25}, {"over": "n_hits > 9", "none": 0.25}),
        ({"missing": "include"}, {"missing": "counted"}),
        ({"missing": "exclude"}, {"missing": "left out"}),
        *(
            ({"grain": grain, "expression": text.format(grain)}, {"grain": former, "expression": text.format(former)})
            for grain, former, text in (
                ("per_hit", "ranked", "MAX({}.rank)"),
                ("per_expected_hit", "matched", "MAX({}.rank)"),
                ("per_query", "answered", "MAX({}.n_hits)"),
            )
        ),
    ]
    usual = {"expression": "n_hits", "grain": "per_query"}
    table = {
        f"{name}_{number}": {**usual, **fields}
        for number, pair in enumerate(pairs)
        for name, fields in zip(("new", "old"), pair, strict=True)
    }
    found = quiet(three, metrics_in_config(table, "kbeval.toml"))
    for number, (_, old) in enumerate(pairs):
        assert found.get(f"old_{number}", "none") == found.get(f"new_{number}", "none"), old
    # All but the one that applies to no query.
    assert [number for number in range(len(pairs)) if f"new_{number}" not in found] == [1]


def test_a_former_word_next_to_the_new_one_is_an_error() -> None:
    with pytest.raises(MetricError, match="'over' is the former name of 'where'; keep one"):
        of(over="n_hits > 0", where="n_hits > 1")
    with pytest.raises(MetricError, match="'none' is the former name of 'if_empty'; keep one"):
        parse_metric("-- mine: what?\n-- if_empty: 0\n-- none: 1\nMAX(rank)", "own")


def test_the_warning_is_one_line_whatever_number_of_files_use_former_words(tmp_path: Path) -> None:
    for number in range(5):
        text = f"-- own{number}: how deep?\n-- grain: ranked\n-- over: n_hits > 0\n-- none: 0\nMAX(rank)\n"
        (tmp_path / f"own{number}.sql").write_text(text)
    with pytest.warns(DeprecatedMetricWarning) as said:
        catalogue([tmp_path])
    (line,) = {str(one.message) for one in said}
    assert "own0.sql" in line
    assert "and 2 more: deprecated words; write" in line
    for advice in ("'grain: per_hit' for 'grain: ranked'", "'where' for 'over'", "'if_empty' for 'none'"):
        assert line.count(advice) == 1


def test_a_command_says_it_once_on_stderr_and_does_its_work(
    three: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.sql").write_text("-- mine: how many?\n-- grain: answered\n-- over: in_run\nMAX(n_hits)\n")
    files = ["--db", str(three.db), "--golden", str(three.golden), "--metrics", str(tmp_path / "own")]
    for command in (["score", "run"], ["compare", "run", "run"]):
        assert run([*command, *files, "--format", "json"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)
        assert err.count("deprecated words") == 1, command
        assert "Warning" not in err
    assert run(["explain", "mine", "--metrics", str(tmp_path / "own"), "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["where"] == "in_run"
    assert err.startswith("kbeval: warning: ")
    assert err.count("\n") == 1
    assert run(["explain", "mine", "--metrics", str(tmp_path / "own")]) == 0
    assert "computed on  per_query: one row per query" in capsys.readouterr().out


def test_an_expression_with_several_values_per_row_is_refused(three: Workspace) -> None:
    with pytest.raises(MetricError, match=r"UNNEST|several values"):
        three.score(configured_metrics=of(expression="UNNEST([1, 2, 3])"))


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("n_hit", "did you mean 'n_hits'"),
        ("n_hits + MAX(n_hits)", "GROUP BY"),
        ("query_id", "returns VARCHAR, not a number"),
        ("(n_hits", "syntax"),
        ("1); DROP TABLE hits; SELECT (1", "single expression"),
        ("n_hits, n_hits", "not a number|single expression"),
        ("SUM(n_hits) OVER ()", "window function"),
        ("CAST(query_id AS BIGINT)", "(?i)could not convert"),
    ],
)
def test_a_wrong_plain_expression_is_shown_with_what_is_wrong(
    three: Workspace, expression: str, complaint: str
) -> None:
    with pytest.raises(MetricError, match=complaint) as caught:
        three.score(configured_metrics=of(expression=expression))
    assert "kbeval.toml, metric mine" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_former_names_of_grains_can_be_asked_about_and_are_not_listed(three: Workspace) -> None:
    with kbeval.open_explorer(three.db, three.golden) as explorer:
        for old, new in (("answered", "per_query"), ("ranked", "per_hit"), ("matched", "per_expected_hit")):
            counted = [explorer.query(f"SELECT COUNT(*) FROM {name}").rows() for name in (old, new)]
            assert counted[0] == counted[1] != [(0,)]
            assert old not in {table.name for table in explorer.listed(every=True)}
            assert new in {table.name for table in explorer.listed(every=True)}
