"""The classics of information retrieval: against plain Python, by hand, and that they appear where labels allow."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.errors import GoldenError
from kbeval.golden import load_golden
from kbeval.metrics.names import Name
from kbeval.scoring.aggregate import Scored, aggregate_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from tests.oracles import classics_oracle
from tests.support.examples import scorings
from tests.support.workspace import Workspace, hits

GRADED = ("ndcg_at_k", "map_at_k", "rr_at_k", "r_precision", "bpref", "rbp", "judged_at_k", "unjudged_at_k")
ON_SPANS = ("span_recall_at_k", "span_precision_at_k", "span_iou_at_k")
CHUNKS = [f"c{number}" for number in range(9)]
RANKINGS = st.lists(
    st.fixed_dictionaries(
        {"chunk_id": st.sampled_from(CHUNKS), "doc_id": st.just("d")},
        optional={"rank": st.none() | st.integers(1, 14)},
    ),
    max_size=11,
)


@st.composite
def graded_entries(draw: st.DrawFn) -> dict[str, Any]:
    grades = draw(st.dictionaries(st.sampled_from(CHUNKS), st.sampled_from([0, 0, 1, 2, 3, 0.5]), max_size=7))
    entry: dict[str, Any] = {"query": "?", "relevance": grades}
    if draw(st.booleans()):
        positive = [chunk for chunk in CHUNKS if grades.get(chunk, 1) > 0]
        entry["expected_chunk_ids"] = draw(st.lists(st.sampled_from(positive), max_size=4)) if positive else []
    return entry


SPANS = st.tuples(st.integers(1, 12), st.integers(0, 5)).map(
    lambda found: {"kind": "line", "start": found[0], "end": found[0] + found[1]}
)
PLACED = st.lists(
    st.fixed_dictionaries(
        {"chunk_id": st.sampled_from(CHUNKS), "doc_id": st.sampled_from(["d1", "d2", "d3"])},
        optional={"source_spans": st.lists(SPANS, min_size=1, max_size=3), "rank": st.integers(1, 12)},
    ),
    max_size=6,
)
SPAN_ENTRIES = st.lists(
    st.tuples(SPANS, st.sampled_from(["d1", "d2"])).map(lambda found: {**found[0], "doc_id": found[1]}),
    min_size=1,
    max_size=3,
).map(lambda spans: {"query": "?", "expected_spans": spans})

Entries = Mapping[str, Mapping[str, Any]]
Runs = list[dict[str, list[dict[str, Any]]]]


def scored_values(workspace: Workspace, **options: Any) -> tuple[Scored, dict[tuple[str, str], dict[str, float]]]:
    """The aggregates, and the value of every number by run and query."""
    with open_scoring(workspace.db, workspace.golden, None, ScoreOptions(**options)) as scoring:
        scored = aggregate_runs(scoring)
        found: dict[tuple[str, str], dict[str, float]] = {}
        for row in scoring.session.frame("SELECT * FROM query_scores").iter_rows(named=True):
            found[row["run_id"], row["query_id"]] = row
    return scored, found


def check(golden: Entries, runs: Runs, metrics: tuple[str, ...], oracle: Callable[..., Any], seed: int) -> None:
    with TemporaryDirectory() as folder:
        aggregates = []
        for name, order in (("a", None), ("b", random.Random(seed))):
            workspace = filled(Path(folder) / name, golden, runs, order)
            scored, values = scored_values(workspace, threads=1 if order else 2)
            aggregates.append({run: aggregate.to_json() for run, aggregate in scored.aggregates.items()})
        assert aggregates[0] == aggregates[1]
        for number, run in enumerate(runs):
            expected = {query: oracle(golden[query], ranking) for query, ranking in run.items() if query in golden}
            for query, numbers in expected.items():
                found = values[f"run{number}", query]
                for name in (name for name in found if Name.parse(name).metric in metrics):
                    assert found[name] == pytest.approx(numbers.get(name), abs=1e-9), (number, query, name)
            stored = scored.aggregates[f"run{number}"].numbers()
            for name in {name for numbers in expected.values() for name in numbers}:
                there = [numbers[name] for numbers in expected.values() if numbers.get(name) is not None]
                mean = sum(there) / len(there) if there else None
                assert stored.get(name) == (None if mean is None else pytest.approx(mean, abs=5.1e-5)), (number, name)


def filled(folder: Path, golden: Entries, runs: Runs, order: random.Random | None) -> Workspace:
    def arranged(items: Any) -> list[Any]:
        found = list(items)
        if order is not None:
            order.shuffle(found)
        return found

    folder.mkdir()
    workspace = Workspace(folder)
    workspace.golden.write_text(json.dumps([{"id": query, **entry} for query, entry in arranged(golden.items())]))
    for number, run in arranged(enumerate(runs)):
        rows = {query: {"hits_top_k": ranking} for query, ranking in arranged(run.items())}
        workspace.add_run(f"run{number}", rows)
    return workspace


QUERIES = st.sampled_from(["q1", "q2", "q3", "q4", "q5", "q6"])


@scorings(4)
@given(
    golden=st.dictionaries(QUERIES, graded_entries(), min_size=4),
    runs=st.lists(st.dictionaries(QUERIES, RANKINGS, min_size=3), min_size=5, max_size=9),
    seed=st.integers(0, 2**16),
)
def test_graded_labels_agree_with_plain_python(golden: Entries, runs: Runs, seed: int) -> None:
    check(golden, runs, GRADED, classics_oracle.classics, seed)


@scorings(4)
@given(
    golden=st.dictionaries(QUERIES, SPAN_ENTRIES, min_size=4),
    runs=st.lists(st.dictionaries(QUERIES, PLACED, min_size=3), min_size=5, max_size=9),
    seed=st.integers(0, 2**16),
)
def test_text_of_spans_agrees_with_plain_python(golden: Entries, runs: Runs, seed: int) -> None:
    check(golden, runs, ON_SPANS, classics_oracle.on_spans, seed)


def test_they_appear_only_where_labels_allow(workspace: Workspace) -> None:
    run: dict[str, Any] = {"q1": {"hits_top_k": hits("c1", "c2")}, "q2": {"hits_top_k": []}}
    workspace.add_run("run", run)
    plain = {"id": "q1", "expected_chunk_ids": ["c1"]}
    workspace.add_golden(plain, {"id": "q2", "expected_chunk_ids": ["c9"]})
    without = workspace.aggregate()
    assert not {*GRADED, *ON_SPANS} & without.keys()
    workspace.add_golden({**plain, "relevance": {"c2": 0}}, {"id": "q2", "expected_chunk_ids": ["c9"]})
    graded = workspace.aggregate()
    assert set(GRADED) <= graded.keys()
    assert not set(ON_SPANS) & graded.keys()
    # The numbers that were there keep their values and their order, and those of the contract come first.
    assert [name for name in graded if name in without] == list(without)
    assert {name: graded[name] for name in without if name not in ("ledger", "provenance")} == {
        name: value for name, value in without.items() if name not in ("ledger", "provenance")
    }
    assert graded["ledger"]["metrics"]["judged_at_k"] == {"scored": 1, "not_applicable": 1}
    assert graded["ledger"]["metrics"]["ndcg_at_k"] == {"scored": 2, "not_applicable": 0}


def test_a_missing_query_counts_as_zero_if_asked(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q1", "relevance": {"c1": 2}}, {"id": "q2", "relevance": {"c1": 2}})
    workspace.add_run("run", {"q1": {"hits_top_k": hits("c1")}})
    for missing, value in (("skip", 1.0), ("zero", 0.5)):
        found = workspace.aggregate(missing=missing)
        assert (found["ndcg_at_k"]["5"], found["map_at_k"]["5"], found["bpref"]) == (value,) * 3


def test_by_spans_a_hit_with_two_places_takes_two_ranks(workspace: Workspace) -> None:
    """Chunks a (lines 1–4, grade 1) and b (5–8, grade 3) are expected; the run was re-chunked."""
    for chunk, first in (("a", 1), ("b", 5), ("z", 20)):
        workspace.add_chunk(chunk, "d1", [{"kind": "line", "start": first, "end": first + 3}], "old@1")
    workspace.add_document("d1", "d1.md")
    workspace.add_golden({"id": "q", "relevance": {"a": 1, "b": 3, "z": 0}}, {"id": "p", "relevance": {"a": 1, "b": 3}})

    def hit(rank: int, first: int, last: int) -> dict[str, Any]:
        span = {"kind": "line", "start": first, "end": last}
        return {"rank": rank, "chunk_id": f"new{first}", "doc_id": "d1", "source_spans": [span]}

    # The whole of both in one hit is the best ranking possible; in p, b comes at rank 2.
    rows = {"q": {"hits_top_k": [hit(1, 1, 8)]}, "p": {"hits_top_k": [hit(1, 30, 39), hit(2, 5, 8)]}}
    workspace.add_run("run", rows, chunker="new@2")
    scored, values = scored_values(workspace)
    assert scored.aggregates["run"].provenance["matching"] == "span"
    both, second = values["run", "q"], values["run", "p"]
    assert (both["ndcg_at_k.5"], both["map_at_k.5"], both["r_precision"]) == (1.0, 1.0, 1.0)
    assert second["map_at_k.5"] == pytest.approx(0.25)
    assert second["rr_at_k.5"] == 0.5
    # Which of the hits were judged is not known.
    assert both["bpref"] is both["judged_at_k.5"] is both["unjudged_at_k.5"] is None
    assert not any("null for" in warning for warning in scored.warnings)


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"relevance": {"c1": -1}}, "'c1' has another one"),
        ({"relevance": {"c1": 1e10}}, "'c1' has another one"),
        ({"relevance": {"c1": "2"}}, "one must be a number"),
        ({"relevance": ["c1"]}, "must map chunk ids to grades"),
        ({"relevance": {"c1": 0}, "expected_chunk_ids": ["c1"]}, "gives 'c1' the grade 0"),
    ],
)
def test_wrong_grades_are_faults_of_the_file(workspace: Workspace, entry: dict[str, Any], complaint: str) -> None:
    workspace.add_golden({"id": "q", **entry})
    with pytest.raises(GoldenError, match=complaint):
        load_golden(workspace.golden)


def test_grades_say_what_is_expected_unless_the_file_does(workspace: Workspace) -> None:
    workspace.add_golden(
        {"id": "a", "relevance": {"c1": 2, "c2": 0, "c3": 0.5}},
        {"id": "b", "relevance": {"c1": 2, "c3": 1}, "expected_chunk_ids": ["c1", "c4"]},
        {"id": "c", "relevance": {"c2": 0}},
    )
    found = {entry["id"]: entry.get("expected_chunk_ids") for entry in load_golden(workspace.golden).entries}
    assert found == {"a": ["c1", "c3"], "b": ["c1", "c4"], "c": None}
