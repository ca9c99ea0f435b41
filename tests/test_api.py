"""The public functions, as a program uses them."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest

import kbeval
from tests.support.workspace import Workspace, hits


@pytest.fixture
def one_run(workspace: Workspace) -> Workspace:
    workspace.add_golden(
        {"id": "q", "expected_chunk_ids": ["c"], "category": "a"}, {"id": "r", "expected_chunk_ids": ["c"]}
    )
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}, "r": {"hits_top_k": hits(None, "c")}})
    return workspace


def test_every_public_name_is_there_and_documented() -> None:
    for name in kbeval.__all__:
        value = getattr(kbeval, name)
        assert name == "__version__" or value.__doc__, name
    with pytest.raises(AttributeError):
        kbeval.nothing  # noqa: B018


def test_every_option_of_scoring_is_documented() -> None:
    for field in dataclasses.fields(kbeval.ScoreOptions):
        assert f"- `{field.name}`: " in (kbeval.ScoreOptions.__doc__ or ""), field.name


def test_an_aggregate_is_computed_and_stored(one_run: Workspace) -> None:
    aggregate = kbeval.compute_aggregate("latest", db=one_run.db, golden=one_run.golden)
    assert aggregate.mrr == 0.75
    kbeval.store_aggregate("run", aggregate, db=one_run.db)
    assert kbeval.AggregateMetrics.from_json(one_run.stored()) == aggregate


def test_results_are_returned_as_polars_frames(one_run: Workspace) -> None:
    options = kbeval.ScoreOptions(by="category")
    frame = kbeval.score_runs(one_run.db, one_run.golden, options=options).frame()
    assert isinstance(frame, pl.DataFrame)
    assert frame.columns == ["run_id", "slice", "metric", "k", "value", "scored", "not_applicable"]
    whole = frame.filter(pl.col("slice").is_null(), pl.col("metric") == "hit_at_k", pl.col("k") == 1)
    assert whole["value"].to_list() == [0.5]


def test_scores_of_every_query_are_a_frame(one_run: Workspace) -> None:
    with kbeval.open_scoring(one_run.db, one_run.golden) as scoring:
        scoring.build_scores()
        frame = scoring.frame()
    assert frame.columns == ["run_id", "query_id", "metric", "k", "value"]
    assert frame.filter(pl.col("metric") == "mrr").rows() == [
        ("run", "q", "mrr", None, 1.0),
        ("run", "r", "mrr", None, 0.5),
    ]
    assert frame.filter(pl.col("metric") == "hit_at_k", pl.col("query_id") == "r")["value"].to_list() == [0, 1, 1, 1]


def test_a_loaded_golden_file_can_be_used_again(one_run: Workspace) -> None:
    golden = kbeval.load_golden(one_run.golden)
    first = kbeval.compute_aggregate("run", db=one_run.db, golden=golden)
    assert kbeval.compute_aggregate("run", db=one_run.db, golden=golden) == first
