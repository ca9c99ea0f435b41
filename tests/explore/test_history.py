"""A metric over time, on runs made by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

import kbeval
from kbeval.errors import UsageError
from kbeval.explore.history import History, HistoryOptions, history_of
from kbeval.metrics.catalogue import parse_metric
from kbeval.render.history import changed, history_table, signed, spark_line, spark_lines
from kbeval.storage.run_config import Difference
from kbeval.storage.runs import Run
from kbeval.util.times import moment, since
from tests.support.workspace import Workspace

SCORED_WITH = {"golden": "g1", "metrics": "m1", "match": "auto", "matching": "exact"}


def a_run(
    run_id: str,
    numbers: dict[str, Any] | str | None,
    *,
    created_at: str = "2026-03-01",
    suite: str = "nightly",
    config: Any = None,
    **provenance: Any,
) -> Run:
    stored = numbers
    if isinstance(numbers, dict):
        stored = json.dumps({**numbers, "provenance": {**SCORED_WITH, **provenance}})
    snapshot = config if isinstance(config, str) else json.dumps(config or {})
    return Run(run_id, suite, created_at, "abc", snapshot, stored if isinstance(stored, str) else "", 1)


def days(*values: float | None, **more: Any) -> list[Run]:
    """One run per day with these values of mrr; None: not scored."""
    return [
        a_run(f"r{day}", None if value is None else {"mrr": value}, created_at=f"2026-03-{day:02}", **more)
        for day, value in enumerate(values, start=1)
    ]


def history(runs: list[Run], *names: str, **options: Any) -> History:
    return history_of(runs, names or ("mrr",), HistoryOptions(**options))


def changes(found: History, name: str = "mrr") -> list[float | int | None]:
    (series,) = found.series
    return [point.values[name].change for point in series.points]


# --- values and their changes ----------------------------------------------------------------------


def test_a_change_is_the_exact_difference_to_the_run_before() -> None:
    # 0.3 - 0.1 is 0.19999999999999998 in binary.
    found = history(days(0.1, 0.3, 0.3, 0.25))
    assert changes(found) == [None, 0.2, 0, -0.05]
    assert [point.values["mrr"].better for point in found.series[0].points] == [None, True, None, False]


def test_a_run_without_a_value_is_skipped_and_reported() -> None:
    found = history(days(0.5, None, 0.75))
    assert [point.run_id for point in found.series[0].points] == ["r1", "r2", "r3"]
    assert found.series[0].values("mrr") == [0.5, None, 0.75]
    assert changes(found) == [None, None, 0.25]
    assert [point.scored for point in found.series[0].points] == [True, False, True]
    (note,) = found.notes
    assert note == "1 run without numbers has not been scored yet (r2): run 'kbeval score --all'"


def test_if_lower_is_better_a_drop_is_an_improvement() -> None:
    runs = [
        a_run("a", {"empty_result_rate": 0.2, "total_queries": 10, "failed_queries": 3, "mine": 1.0}),
        a_run("b", {"empty_result_rate": 0.1, "total_queries": 12, "failed_queries": 4, "mine": 2.0}),
    ]
    found = history(runs, "empty_result_rate", "queries", "failed", "mine")
    assert [metric.higher_is_better for metric in found.metrics] == [False, None, False, None]
    values = found.series[0].points[1].values
    assert {name: (value.change, value.better) for name, value in values.items()} == {
        "empty_result_rate": (-0.1, True),
        "total_queries": (2, None),
        "failed_queries": (1, False),
        "mine": (1.0, None),
    }


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("mrr", "mrr"),
        ("hit@5", "hit_at_k.5"),
        ("hit_at_k.5", "hit_at_k.5"),
        ("hit_at_k@5", "hit_at_k.5"),
        ("hit@7", "hit_at_k.7"),
        ("grounded", "groundedness"),
        ("latency_ms.p95", "latency_ms.p95"),
        ("deep@2", "deep_at_k.2"),
        ("mine", "mine"),
        ("abstention.unsupported_rate", "abstention.unsupported_rate"),
        ("abstention.refused_with_evidence", "abstention.refused_with_evidence"),
        ("recall@3", "recall_at_k_doc.3"),
    ],
)
def test_numbers_are_named_as_elsewhere(written: str, name: str) -> None:
    stored = {
        "hit_at_k": {"5": 0.5, "7": 0.5},
        "latency_ms": {"p50": 1.0, "p95": 2.0, "total": 3.0},
        "deep_at_k": {"2": 1.0},
        "mine": 1.0,
        "abstention": {"k": 10, "unsupported_rate": 0.5, "refused_with_evidence": 3},
    }
    (metric,) = history([a_run("a", stored)], written).metrics
    assert metric.name == name


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("mmr", "there is no metric 'mmr'; did you mean 'mrr'?"),
        ("mein", "did you mean 'mine'?"),
        ("qqqqqq", "there is no metric 'qqqqqq'; see 'kbeval metrics'"),
        ("hit@7", "no run has hit_at_k at 7; 'kbeval score --all --k 7' stores it"),
        ("hit@" + "9" * 5000, "hit_at_k is not computed at '999"),
        ("latency_ms", "'latency_ms' is ambiguous: specify which, for example latency_ms.p50"),
        ("parts", "'parts' is ambiguous: specify which, for example parts.x"),
        ("abstention.k", "there is no metric"),
        ("words", "there is no metric"),
        ("", "there is no metric"),
    ],
)
def test_an_unknown_number_is_refused(written: str, message: str) -> None:
    stored = {"mrr": 0.5, "mine": 1.0, "parts": {"x": 1, "y": 2}, "words": "text", "abstention": {"k": 10}}
    with pytest.raises(UsageError, match=r".") as refusal:
        history([a_run("a", stored)], written)
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 1500


def test_each_number_is_shown_once_and_one_is_needed() -> None:
    assert [metric.name for metric in history(days(0.5), "mrr", "hit@5", "mrr").metrics] == ["mrr", "hit_at_k.5"]
    with pytest.raises(UsageError, match="specify a metric"):
        history_of(days(0.5), (), HistoryOptions())


def test_values_that_are_not_ordinary_numbers_are_missing() -> None:
    odd: list[Any] = [True, "0.5", [1], 1e300, -1e15, 10**30]
    runs = [a_run(f"r{place}", {"mine": value}) for place, value in enumerate([0.5, *odd, 0.75])]
    runs.append(a_run("r9", '{"mine": NaN}'))
    runs.append(a_run("s", "[1]"))
    runs.append(a_run("t", "{" * 100_000))
    found = history(runs, "mine")
    assert found.series[0].values("mine") == [0.5, *[None] * len(odd), 0.75, None, None, None]
    assert changes(found, "mine")[7] == 0.25


def test_a_number_scored_on_no_query_has_no_value() -> None:
    ledger = {"metrics": {"mrr": {"scored": 0, "not_applicable": 9}}}
    found = history([a_run("a", {"mrr": 0.5}), a_run("b", {"mrr": 0.0, "ledger": ledger})])
    assert found.series[0].values("mrr") == [0.5, None]


def test_a_whole_number_among_decimals_is_a_decimal() -> None:
    values = history([a_run("a", {"mrr": 1}), a_run("b", {"mrr": 0.5})]).series[0].values("mrr")
    assert [type(value) for value in values] == [float, float]
    values = history([a_run("a", {"failed_queries": 1})], "failed").series[0].values("failed_queries")
    assert [type(value) for value in values] == [int]


def test_a_metric_without_any_value_is_reported() -> None:
    assert history(days(0.5), "latency_ms.p95").notes == ["latency_ms.p95 has no value in any of these runs"]


# --- which runs, and in which series -----------------------------------------------------------------


def test_each_suite_is_a_series_of_its_own() -> None:
    runs = [
        a_run("n1", {"mrr": 0.5}, created_at="2026-03-01"),
        a_run("w1", {"mrr": 0.9}, created_at="2026-03-02", suite="weekly"),
        a_run("n2", {"mrr": 0.6}, created_at="2026-03-03"),
    ]
    found = history(runs)
    assert [(series.suite, series.values("mrr")) for series in found.series] == [
        ("nightly", [0.5, 0.6]),
        ("weekly", [0.9]),
    ]
    assert found.series[0].points[1].values["mrr"].change == 0.1
    assert [found.label(series) for series in found.series] == ["nightly", "weekly"]
    assert [series.suite for series in history(runs, suite="weekly").series] == ["weekly"]
    with pytest.raises(UsageError, match=r"there is no suite 'wekly'.*; did you mean 'weekly'\?$"):
        history(runs, suite="wekly")


def test_runs_are_put_in_the_order_of_time_not_of_text() -> None:
    runs = [
        a_run("third", {"mrr": 0.3}, created_at="2026-03-01T12:00:00Z"),
        a_run("first", {"mrr": 0.1}, created_at="2026-03-01T13:00:00+05:00"),
        a_run("second", {"mrr": 0.2}, created_at="2026-03-01 11:00"),
        a_run("fourth", {"mrr": 0.4}, created_at=str(int(datetime(2026, 3, 2, tzinfo=UTC).timestamp()))),
        a_run("odd", {"mrr": 0.5}, created_at="last tuesday"),
    ]
    found = history(runs)
    assert [point.run_id for point in found.series[0].points] == ["odd", "first", "second", "third", "fourth"]
    assert found.notes == ["created_at is not a date in 1 run (odd), put first; write it e.g. as 2026-03-01T14:00:00Z"]
    found = history(runs, since="2026-03-01T11:30Z")
    assert [point.run_id for point in found.series[0].points] == ["third", "fourth"]
    assert "created_at is not a date in 1 run (odd), left out by --since" in found.notes[0]
    assert [point.run_id for point in history(runs, since=datetime(2026, 3, 2)).series[0].points] == ["fourth"]  # noqa: DTZ001


def test_the_last_runs_are_the_last_of_each_series() -> None:
    runs = [*days(0.1, 0.2, 0.3), *(a_run(run.run_id + "w", {"mrr": 0.9}, suite="weekly") for run in days(1, 1))]
    found = history(runs, last=2)
    assert [[point.run_id for point in series.points] for series in found.series] == [["r2", "r3"], ["r1w", "r2w"]]
    # The first one shown has nothing to be compared with.
    assert found.series[0].points[0].values["mrr"].change is None


def test_a_field_of_the_configuration_makes_series() -> None:
    runs = [
        a_run("a", {"mrr": 0.1}, config={"retriever": {"name": "bm25"}}),
        a_run("b", {"mrr": 0.2}, config={"retriever": {"name": "dense"}}),
        a_run("c", {"mrr": 0.4}, config={"retriever": {"name": "bm25"}}),
        a_run("d", {"mrr": 0.5}, config={"k": 5, "llm": {"model": "m"}}),
        a_run("e", {"mrr": 0.6}, config="{broken"),
    ]
    found = history(runs, by="retriever.name")
    assert {series.group: series.values("mrr") for series in found.series} == {
        "bm25": [0.1, 0.4],
        "dense": [0.2],
        "(none)": [0.5, 0.6],
    }
    assert {found.label(series) for series in found.series} == {"bm25", "dense", "(none)"}
    assert {series.group for series in history(runs, by="k").series} == {"(none)", "5"}
    assert {series.group for series in history(runs, by="commit_hash").series} == {"abc"}
    assert [series.group for series in history(runs, by="suite").series] == [None]
    weekly = a_run("f", {"mrr": 0.1}, suite="weekly", config={"retriever": {"name": "bm25"}})
    found = history([*runs, weekly], by="retriever.name")
    assert "weekly, bm25" in [found.label(series) for series in found.series]


def test_series_are_in_the_order_that_a_person_expects() -> None:
    names = ["v10", "v2", "v2-b", "v2-a", "", "x", 20, 3]
    runs = [a_run(f"r{place}", {"mrr": 0.1}, config={"version": name}) for place, name in enumerate(names)]
    groups = [series.group for series in history(runs, by="version").series]
    assert groups == ["3", "20", "(none)", "v2", "v2-a", "v2-b", "v10", "x"]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("retriver.name", "no run has a field 'retriver.name'; did you mean 'retriever.name'?"),
        ("retriever", "'retriever' is not a single value; specify one of its parts, such as retriever.name"),
        ("zzzzzzz", "no run has a field 'zzzzzzz'; known fields: api_key, chunker_version, commit_hash, retriever"),
        ("api_key", "the values of 'api_key' look secret and are not shown"),
    ],
)
def test_a_field_that_cannot_make_series_is_refused(by: str, message: str) -> None:
    runs = [a_run("a", {"mrr": 0.1}, config={"retriever": {"name": "bm25"}, "api_key": "sk-1"})]
    with pytest.raises(UsageError, match=r".") as refusal:
        history(runs, by=by)
    assert message in str(refusal.value)
    assert "sk-1" not in str(refusal.value)


# --- what changed ------------------------------------------------------------------------------------


def test_a_change_of_the_configuration_is_seen_once_and_secrets_are_not() -> None:
    old = {"llm": {"model": "small"}, "api_key": "sk-1", "k": 5}
    new = {"llm": {"model": "large"}, "api_key": "sk-2", "k": 5}
    runs = [a_run("a", {"mrr": 0.1}, config=old)]
    runs += [a_run(name, {"mrr": 0.1}, config=new) for name in ("b", "d")]
    runs.insert(2, a_run("c", {"mrr": 0.1}, config="no json"))
    points = history(runs).series[0].points
    assert [len(point.config) for point in points] == [0, 2, 0, 0]
    assert changed(points[1]) == "api_key (hidden 1) → (hidden 2); llm.model small → large"
    assert "sk-" not in json.dumps(history(runs).to_dict())


def test_many_changed_keys_are_a_short_list_for_people_and_complete_for_programs() -> None:
    runs = [a_run("a", {"mrr": 0.1}), a_run("b", {"mrr": 0.1}, config=dict.fromkeys("uvwxyz", "v" * 50))]
    found = history(runs)
    _, rows = history_table(found)
    assert str(rows[1][-1]).endswith("; 3 more")
    assert str(rows[1][-1]).startswith(f"u – → {'v' * 23}…; v ")
    _, rows = history_table(found, for_programs=True)
    assert str(rows[1][-1]).count("→") == 6


@pytest.mark.parametrize(
    ("provenance", "says"),
    [
        ({"golden": "g2"}, ["labels changed"]),
        ({"metrics": "m2"}, ["definitions changed"]),
        ({"match": "span", "matching": "span", "min_overlap": 0.5, "overlap_of": "smaller"}, ["matching changed"]),
        ({"matching": "span", "min_overlap": 0.5, "overlap_of": "auto"}, []),
        ({"missing": "zero"}, ["missing rule changed"]),
        ({"golden": "g2", "metrics": "m2"}, ["labels changed", "definitions changed"]),
        ({"kbeval": "9.9"}, []),
        ({"golden": None}, []),
    ],
)
def test_numbers_that_are_not_comparable_are_marked_and_not_judged(provenance: dict[str, Any], says: list[str]) -> None:
    found = history(
        [a_run("a", {"mrr": 0.1}), a_run("b", {"mrr": 0.3}, **provenance), a_run("c", {"mrr": 0.3}, **provenance)]
    )
    _, point, after = found.series[0].points
    assert list(point.breaks) == says
    assert point.values["mrr"].change == 0.2
    assert point.values["mrr"].comparable is not bool(says)
    assert point.values["mrr"].better is (None if says else True)
    assert (list(after.breaks), after.values["mrr"].comparable) == ([], True)
    assert any("not comparable" in note for note in found.notes) is bool(says)


def test_missing_provenance_is_not_a_break() -> None:
    bare = a_run("b", json.dumps({"mrr": 0.3}))
    found = history([a_run("a", {"mrr": 0.1}), bare, a_run("c", {"mrr": 0.3}, golden="g2")])
    assert [list(point.breaks) for point in found.series[0].points] == [[], [], []]


def test_a_break_is_not_lost_behind_a_run_without_a_value() -> None:
    found = history([a_run("a", {"mrr": 0.1}), a_run("b", {}, golden="g2"), a_run("c", {"mrr": 0.3}, golden="g2")])
    _, second, third = found.series[0].points
    assert (list(second.breaks), list(third.breaks)) == (["labels changed"], [])
    assert third.values["mrr"].comparable is False


def test_a_break_is_not_lost_behind_a_run_that_is_not_scored() -> None:
    found = history([a_run("a", {"mrr": 0.1}), a_run("b", None), a_run("c", {"mrr": 0.3}, golden="g2")])
    assert [list(point.breaks) for point in found.series[0].points] == [[], [], ["labels changed"]]


def test_chunk_ids_of_two_chunkers_are_not_comparable() -> None:
    numbers = {"mrr": 0.5, "recall_at_k_doc": {"5": 0.5}, "precision_at_k_chunk": {"5": 0.5}}
    other = {"mrr": 0.1, "recall_at_k_doc": {"5": 0.1}, "precision_at_k_chunk": {"5": 0.1}}
    names = ("mrr", "recall@5", "prec@5")

    def judged(**provenance: Any) -> tuple[list[str], list[bool | None]]:
        runs = [a_run("a", numbers, config={"chunker_version": "md@1"}, **provenance)]
        runs += [a_run("b", other, config={"chunker_version": "md@2"}, **provenance)]
        point = history(runs, *names).series[0].points[1]
        return list(point.breaks), [value.better for value in point.values.values()]

    assert judged() == (["chunk ids changed"], [None, False, None])
    # Precision counts chunks: with other chunks it says nothing, however they were matched.
    assert judged(matching="span", min_overlap=0.5, overlap_of="auto") == ([], [False, False, None])
    runs = [a_run(name, numbers, config={"chunker_version": name}) for name in "ab"]
    assert list(history(runs, "recall@5").series[0].points[1].breaks) == []
    assert "kbeval score --all" in history(runs, "mrr").notes[0]


# --- moments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T12:30:00Z",
        "2026-03-01T12:30:00z",
        "2026-03-01 12:30",
        " 2026-03-01T12:30:00.000000000+00:00 ",
        "2026-03-01T14:30:00+02:00",
        "2026-03-01T14:30+0200",
        "2026-03-01T07:30:00-05",
        "2026-03-01 12:30:00 UTC",
        "20260301T123000Z",
        "1772368200",
        "1772368200.0",
        "1772368200000",
    ],
)
def test_every_spelling_of_a_time_is_the_same_time(text: str) -> None:
    assert moment(text) == datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2026-13-01", "2026-02-30", "2026-03-01T25:00", "03/01/2026", "12", "2026", "٢٠٢٦-٠٣-٠١"),
        *("0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "2026-03-01x12:00", "9" * 5000, "2026-03-01T12:00+99:00"),
    ],
)
def test_invalid_times_are_none(text: str) -> None:
    assert moment(text) is None
    with pytest.raises(UsageError, match="is not a date; use"):
        since(text)


def test_fractions_of_a_second_count() -> None:
    first, second = moment("2026-03-01T12:30:00.25Z"), moment("2026-03-01T12:30:00,123456789Z")
    assert first is not None
    assert second is not None
    assert first - second == timedelta(microseconds=126_544)
    assert since("2026-03-01") == datetime(2026, 3, 1, tzinfo=UTC)


# --- for people, and as a frame ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([0.0, 0.5, 1.0], "▁▅█"),
        ([1.0, None, 0.0], "█ ▁"),
        ([0.7, 0.7], "▄▄"),
        ([None, 3, None], " ▄ "),
        ([None, None], "  "),
        ([], ""),
        ([-1, 1], "▁█"),
    ],
)
def test_a_spark_line(values: list[float | int | None], line: str) -> None:
    assert spark_line(values) == line


def test_spark_lines_say_what_they_are_of_and_fit() -> None:
    runs = [*days(*[0.1 * (day % 5) for day in range(28)]), a_run("w", {"mrr": 0.5}, suite="日本")]
    wide, other = spark_lines(history(runs), 200)
    assert wide.startswith("nightly  mrr  ▁▃▅▇█")
    assert wide.endswith("  min 0.0000  max 0.4000  last 0.2000")
    assert other.startswith("日本  mrr     ▄  min 0.5000")
    narrow, _ = spark_lines(history(runs), 70)
    assert len(narrow) <= 70
    assert "…" in narrow
    assert "▅  min 0.0000" in narrow
    (line,) = spark_lines(history([a_run("a", {"empty_result_rate": 0.5})], "empty_result_rate"), 80)
    assert line.endswith("(lower is better)")


def test_a_change_has_its_sign() -> None:
    assert [signed(value) for value in (0.1, -0.25, 0.0, 0, 1200, None)] == [
        "+0.1000",
        "-0.2500",
        "0",
        "0",
        "+1,200",
        None,
    ]


def test_own_metrics_say_whether_higher_is_better() -> None:
    metric = parse_metric("-- slow: how slow?\n-- better: lower\nMAX(rank)", "own")
    runs = [a_run("a", {"slow": 2.0}), a_run("b", {"slow": 1.0})]
    found = history(runs, "slow", metrics=[metric])
    assert found.series[0].points[1].values["slow"].better is True


def test_a_history_is_a_polars_frame(workspace: Workspace) -> None:
    workspace.add_run("a", {})
    workspace.add_run("b", {}, created_at="2026-02-01", chunker="md@2")
    for run, value in (("a", 1), ("b", 3)):
        stored = json.dumps({"failed_queries": value, "provenance": {"golden": run}})
        workspace.execute("UPDATE eval_runs SET aggregate_json = ? WHERE run_id = ?", (stored, run))
    frame = kbeval.metric_history("failed", "queries", db=workspace.db, options=kbeval.HistoryOptions(last=5)).frame()
    assert isinstance(frame, pl.DataFrame)
    assert frame.select("run_id", "metric", "value", "change", "comparable", "breaks", "changed_keys").rows() == [
        ("a", "failed_queries", 1.0, None, True, [], []),
        ("a", "total_queries", None, None, True, [], []),
        ("b", "failed_queries", 3.0, 2.0, False, ["labels changed"], ["chunker_version"]),
        ("b", "total_queries", None, None, True, ["labels changed"], ["chunker_version"]),
    ]
    assert kbeval.metric_history("mrr", db=workspace.db, options=HistoryOptions(since="2027-01-01")).frame().is_empty()


def test_a_difference_is_shown_by_key() -> None:
    runs = [a_run("a", {"mrr": 0.1}, config={"k": 5}), a_run("b", {"mrr": 0.1}, config={"k": 10})]
    assert list(history(runs).series[0].points[1].config) == [Difference("k", 5, 10)]
