from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kbeval.engine.relations import relations, sql_folder
from kbeval.errors import KbevalError, MetricError, UsageError
from kbeval.explore.inspect import worst_queries
from kbeval.metrics.catalogue import Metric, catalogue, metrics_in_config, parse_metric
from kbeval.metrics.model import CONTRACT
from kbeval.metrics.names import Names
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from tests.support.workspace import Workspace, hits


def test_the_catalogue_is_what_the_folder_holds() -> None:
    files = {path.stem for path in (sql_folder() / "metrics").glob("*.sql")}
    assert {metric.name for metric in catalogue()} == files
    assert set(CONTRACT) <= files


def test_every_metric_says_what_it_measures() -> None:
    for metric in catalogue():
        assert metric.summary.endswith((".", "?")), metric.name


def test_every_relation_says_what_it_is_and_names_its_columns() -> None:
    for relation in relations().values():
        lines = relation.sql.splitlines()
        assert lines[0].startswith(f"-- {relation.name}: "), relation.name
        assert any(line.startswith("-- columns:") for line in lines), relation.name


@pytest.fixture
def three(workspace: Workspace) -> Workspace:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": [f"c{n}"], "category": "a"} for n in (1, 2, 3)))
    rows = {"q1": hits("c1", None), "q2": hits(None, None, None, "c2"), "q3": hits(None)}
    workspace.add_run("run", {query: {"hits_top_k": found} for query, found in rows.items()})
    return workspace


def own(folder: Path, name: str, text: str) -> Path:
    path = folder / "own"
    path.mkdir(exist_ok=True)
    (path / f"{name}.sql").write_text(text)
    return path


def test_an_own_metric_is_one_file(three: Workspace, tmp_path: Path) -> None:
    folder = own(
        tmp_path,
        "top_share",
        "-- top_share: what share of the hits is expected?\n"
        "-- where: n_hits > 0\n"
        "CAST(SUM(CASE WHEN is_expected_chunk THEN 1 ELSE 0 END) AS DOUBLE) / MAX(n_hits)\n",
    )
    found = three.aggregate(metric_folders=[folder])
    assert found["top_share"] == 0.25
    assert found["ledger"]["metrics"]["top_share"] == {"scored": 3, "not_applicable": 0}


def test_a_metric_with_k_gets_the_usual_values(three: Workspace, tmp_path: Path) -> None:
    folder = own(tmp_path, "seen", "-- seen: hits in the top k.\nSUM(CASE WHEN rank <= :k THEN 1 ELSE 0 END)\n")
    assert three.aggregate(metric_folders=[folder])["seen"] == {"1": 1.0, "3": 2.0, "5": 2.3333, "10": 2.3333}


def test_a_metric_can_be_one_line_of_the_config(three: Workspace) -> None:
    metrics = metrics_in_config({"depth": "MAX(rank)"}, "kbeval.toml")
    assert three.aggregate(configured_metrics=metrics)["depth"] == 2.3333


def test_values_that_are_not_numbers_do_not_count(three: Workspace) -> None:
    metrics = metrics_in_config({"odd": "CAST(1 AS DOUBLE) / SUM(CASE WHEN rank = 2 THEN 1 ELSE 0 END)"}, "f")
    assert three.aggregate(configured_metrics=metrics)["ledger"]["metrics"]["odd"]["scored"] == 2


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("MAX(rnk)", "rnk"),
        ("MAX(rank", "syntax"),
        ("rank", "GROUP BY"),
        ("MAX(chunk_id)", "returns VARCHAR, not a number"),
        ("1); DROP TABLE hits; SELECT (1", "single expression"),
        ("(SELECT MAX(size) FROM read_text('/etc/passwd'))", "'read_text' in a subquery is not allowed"),
        ("MAX(CAST(chunk_id AS BIGINT))", "could not convert"),
        ("LIST(score ORDER BY rank)", "returns DOUBLE[], not a number"),
        ("MAX(INTERVAL 1 DAY)", "returns INTERVAL, not a number"),
        ("MAX(1)) AS value, (MAX(2)", "single expression"),
        ("MAX(COLUMNS(*))", "single expression"),
        ("MAX(CASE WHEN :k = 3 THEN error('no') ELSE 1 END)", "no"),
        ("MAX(rank) -- comment", None),
    ],
)
def test_a_wrong_expression_is_shown_with_what_is_wrong(
    three: Workspace, expression: str, complaint: str | None
) -> None:
    metrics = metrics_in_config({"mine": expression}, "kbeval.toml")
    if complaint is None:
        assert three.aggregate(configured_metrics=metrics)["mine"] == 2.3333
        return
    with pytest.raises(KbevalError) as caught:
        three.score(configured_metrics=metrics)
    message = str(caught.value)
    assert expression in message
    assert "kbeval.toml, metric mine" in message
    assert complaint.lower() in message.lower()
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("MAX(rank)", "the first line must be"),
        ("-- other: what?\nMAX(rank)", "the file is called 'mine'"),
        ("-- mine: what?\n-- gran: per_hit\nMAX(rank)", "did you mean 'grain'"),
        ("-- mine: what?\n-- grain: rows\nMAX(rank)", "must be one of per_hit, per_expected_hit, per_query"),
        ("-- mine: what?\n-- k: five\nMAX(:k)", "must be numbers"),
        ("-- mine: what?\n-- k: 5\nMAX(rank)", "has no :k"),
        ("-- mine: what?\n", "has no SQL expression"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(MetricError, match=complaint):
        parse_metric(text, "own/mine.sql", "mine")


def test_a_wrong_condition_is_shown_as_one(three: Workspace, tmp_path: Path) -> None:
    folder = own(tmp_path, "mine", "-- mine: what?\n-- where: nothing > 0\nMAX(rank)\n")
    with pytest.raises(MetricError, match="where: nothing > 0"):
        three.score(metric_folders=[folder])


def test_a_condition_may_use_every_column_of_a_query(three: Workspace, tmp_path: Path) -> None:
    folder = own(tmp_path, "mine", "-- mine: what?\n-- where: result_no > 0 AND query_id <> 'q3'\nMAX(rank)\n")
    assert three.aggregate(metric_folders=[folder])["mine"] == 3.0


def test_an_expression_with_several_values_cannot_multiply_the_numbers(three: Workspace) -> None:
    metrics = metrics_in_config({"mine": "UNNEST([1, 2, 3]) + MAX(rank)"}, "kbeval.toml")
    with pytest.raises(MetricError, match="mine returns several values for one query"):
        three.score(configured_metrics=metrics)


def test_count_counts_the_queries_that_have_it(three: Workspace, tmp_path: Path) -> None:
    folder = own(
        tmp_path, "deep", "-- deep: has a fourth hit.\n-- agg: count\nMAX(CASE WHEN rank > 3 THEN rank ELSE 0 END)\n"
    )
    assert three.aggregate(metric_folders=[folder])["deep"] == 1


def test_values_too_large_to_be_exact_do_not_count(three: Workspace) -> None:
    values = {"mine": "9e22", "larger": "1e300", "none": "CAST('nan' AS DOUBLE)"}
    table = {name: {"expression": f"MAX({value})", "better": "higher"} for name, value in values.items()}
    metrics = metrics_in_config(table, "kbeval.toml")
    assert not values.keys() & three.aggregate(configured_metrics=metrics).keys()
    for name in values:
        with open_scoring(three.db, three.golden, ["run"], ScoreOptions(configured_metrics=metrics)) as scoring:
            assert [found.value for found in worst_queries(scoring, name, 1)[1]] == [None], name


def test_a_metric_in_the_config_file_improves_neither_way_unless_it_says_so(three: Workspace) -> None:
    plain, table = metrics_in_config(
        {
            "depth": "MAX(rank)",
            "early": {
                "expression": "MAX(CASE WHEN rank <= :k THEN 1 ELSE 0 END)",
                "better": "lower",
                "summary": "anything there?",
                "k": [1, 2],
                "if_empty": 0,
            },
        },
        "kbeval.toml",
    )
    assert (plain.better, plain.ks) == ("neither", ())
    assert (table.better, table.ks, table.if_empty, table.summary) == ("lower", (1, 2), 0.0, "anything there?")
    assert set(three.aggregate(configured_metrics=[table])["early"]) == {"1", "2"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"expression": "MAX(rank)", "beter": "lower"}, "unknown key 'beter'; did you mean 'better'?"),
        ({"expression": "MAX(rank)", "better": "more"}, "better is 'more'; it must be one of higher, lower, neither"),
        ({"expression": "MAX(rank)", "better": True}, "better must be text or a number"),
        ({"expression": "MAX(rank)", "k": {"a": 1}}, "k must be text or a number, or a list of numbers"),
        ({"better": "lower"}, "has no SQL expression"),
    ],
)
def test_a_wrong_table_for_a_metric_is_named(table: dict[str, Any], said: str) -> None:
    with pytest.raises(MetricError, match=re.escape(said)) as raised:
        metrics_in_config({"mine": table}, "kbeval.toml")
    assert "kbeval.toml, metric mine" in str(raised.value)


def test_without_a_better_direction_no_query_is_worst(three: Workspace) -> None:
    options = ScoreOptions(configured_metrics=metrics_in_config({"depth": "MAX(rank)"}, "kbeval.toml"))
    with (
        open_scoring(three.db, three.golden, ["run"], options) as scoring,
        pytest.raises(UsageError, match=r"no query is worst; add 'better' \(higher or lower\).*kbeval.toml"),
    ):
        worst_queries(scoring, "depth", 1)


def test_counts_improve_neither_way_unless_they_say_so() -> None:
    better = {metric.name: metric.better for metric in catalogue()}
    assert {better[name] for name in ("total_queries", "answered", "refused", "answerable")} == {"neither"}
    assert (better["failed_queries"], better["mrr"]) == ("lower", "higher")
    assert parse_metric("-- mine: how many?\n-- agg: count\nMAX(rank)", "own").better == "neither"


@pytest.mark.parametrize("name", ["ledger", "provenance", "run_id", "query_id"])
def test_names_with_a_meaning_of_their_own_cannot_be_taken(name: str) -> None:
    with pytest.raises(MetricError, match="choose another name"):
        metrics_in_config({name: "MAX(rank)"}, "kbeval.toml")


def test_a_shipped_name_cannot_be_taken(tmp_path: Path) -> None:
    folder = own(tmp_path, "mrr", "-- mrr: mine.\nMAX(rank)\n")
    with pytest.raises(MetricError, match="already a metric 'mrr'"):
        catalogue([folder])


def test_printed_names_parse_back() -> None:
    metrics: list[Metric] = catalogue()
    names = Names(metrics)
    for metric in metrics:
        for number in metric.numbers:
            assert names.number(number.long) == names.number(number.short) == number
    with pytest.raises(UsageError, match="did you mean 'hit_at_k'"):
        names.number("hit_at.5")
    with pytest.raises(UsageError, match=r"hit_at_k\.10"):
        names.number("hit_at_k.7")
