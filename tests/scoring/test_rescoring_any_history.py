"""Whatever happened between two nights: scoring what changed gives the bytes that scoring everything gives.

Rows, labels, configurations, chunks and documents are edited at random. After each night of edits one copy of the
database is scored by what changed, in small steps; another whole; and in the last night a third run by run. All must
hold the same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.metrics.catalogue import metrics_in_config
from kbeval.scoring import incremental as rescoring
from tests.support.examples import scorings
from tests.support.nights import (
    Edit,
    Night,
    drop_chunk,
    drop_document,
    drop_row,
    drop_run,
    set_chunk,
    set_config,
    set_document,
    set_row,
)

# Few of each, so that they meet.
RUNS, QUERIES, CHUNKS, DOCS = ("r1", "r2", "r3"), ("q1", "q2"), ("c1", "c2"), ("d1", "d2")
VERSIONS, PATHS = ("v1", "v2"), ("one.md", "two.md")
# Columns that only imported runs fill, and a number that is there at some k alone.
OWN_METRICS = {
    "held": "MAX(CASE WHEN claim_holds AND claim_cited THEN 1 ELSE 0 END)",
    "judged": "MAX(COALESCE(judge_groundedness, 0) + elapsed_ms)",
    "deep_at_k": "CASE WHEN MAX(rank) > :k - 4 THEN 1 END",
}


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def without_nones(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}


def records(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields).map(without_nones)


lines = st.sampled_from([(1, 4), (3, 8), (1, 9)]).map(lambda ends: {"kind": "line", "start": ends[0], "end": ends[1]})
hits = records(
    chunk_id=maybe(st.sampled_from(CHUNKS)),
    doc_id=maybe(st.sampled_from(DOCS)),
    doc_path=maybe(st.sampled_from(PATHS)),
    chunker_version=maybe(st.sampled_from(VERSIONS)),
    source_spans=maybe(st.lists(lines, min_size=1, max_size=2)),
    rank=st.integers(1, 5),
)
citations = st.builds(lambda path, span: {"citation": {"path": path, **span}}, st.sampled_from(PATHS), lines)
answers = records(answer=st.just("the claim"), grounded=st.just(value=True), citations=st.lists(citations, max_size=1))
rows = records(
    hits_top_k=st.lists(hits, max_size=3),
    answer=maybe(answers),
    elapsed_ms=st.just(7),
    latency=maybe(st.just({"total_ms": 9})),
    groundedness=maybe(st.just({"score": 4})),
)
configs = records(
    chunker_version=maybe(st.sampled_from(VERSIONS)),
    k=maybe(st.sampled_from([2, 7])),
    kbeval=maybe(st.sampled_from([{"system": "anchors"}, {"system": "grounded"}])),
)
spans = st.builds(lambda path, span: {"path": path, **span}, st.sampled_from(PATHS), lines)
labels = records(
    expected_chunk_ids=maybe(st.lists(st.sampled_from(CHUNKS), max_size=2, unique=True)),
    expected_doc_ids=maybe(st.lists(st.sampled_from(DOCS), max_size=1)),
    expected_spans=maybe(st.lists(spans, min_size=1, max_size=1)),
    gold_claim_substr=maybe(st.just(["the claim"])),
)
run_ids, query_ids = st.sampled_from(RUNS), st.sampled_from(QUERIES)
table_spans = st.lists(lines, max_size=1)
edits: st.SearchStrategy[list[Edit]] = st.one_of(
    st.builds(set_row, run_ids, query_ids, rows).map(lambda edit: [edit]),
    st.builds(drop_row, run_ids, query_ids).map(lambda edit: [edit]),
    st.builds(set_config, run_ids, configs).map(lambda edit: [edit]),
    run_ids.map(lambda run_id: list(drop_run(run_id))),
    st.builds(set_chunk, st.sampled_from(CHUNKS), st.sampled_from(DOCS), st.sampled_from(VERSIONS), table_spans).map(
        lambda edit: [edit]
    ),
    st.sampled_from(CHUNKS).map(lambda chunk: [drop_chunk(chunk)]),
    st.builds(set_document, st.sampled_from(DOCS), st.sampled_from(PATHS)).map(lambda edit: [edit]),
    st.sampled_from(DOCS).map(lambda doc: [drop_document(doc)]),
)
goldens = st.tuples(labels, labels)
first_night = st.tuples(
    st.lists(st.builds(set_config, run_ids, configs), min_size=3, max_size=5),
    st.lists(st.builds(set_row, run_ids, query_ids, rows), min_size=3, max_size=6),
    st.lists(edits, max_size=4),
).map(lambda parts: [*parts[0], *parts[1], *(edit for several in parts[2] for edit in several)])


def label(night: Night, golden: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
    night.add_golden(*({"id": query_id, **entry} for query_id, entry in zip(QUERIES, golden, strict=True)))


@pytest.mark.slow
@scorings(3)
@given(
    first_night,
    goldens,
    st.lists(st.lists(edits, min_size=1, max_size=2) | goldens, min_size=1, max_size=2),
    st.sampled_from(["exact", "span"]),
)
def test_scoring_what_changed_gives_the_bytes_of_scoring_everything(
    first: list[Edit], golden: Any, nights: list[Any], matching: str
) -> None:
    own = metrics_in_config(OWN_METRICS, "test")
    options: dict[str, Any] = {"match": matching, "configured_metrics": own, "threads": 1}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        by_change, whole = Night(Path(folder), "by_change.db"), Night(Path(folder), "whole.db")
        label(whole, golden)
        by_change.edit(*first)
        whole.edit(*first)
        by_change.night(**options)
        whole.night(force=True, **options)
        for number, change in enumerate(nights):
            if isinstance(change, tuple):
                label(whole, change)
            else:
                by_change.edit(*(edit for several in change for edit in several))
                whole.edit(*(edit for several in change for edit in several))
            one_by_one = whole.copy(Path(folder) / str(number))
            # One or two rows per step.
            patch.setattr(rescoring, "STEP_ROWS", 2)
            by_change.night(**options)
            assert by_change.reasons(**options) == {}
            patch.undo()
            whole.night(force=True, **options)
            assert by_change.numbers() == whole.numbers()
        for run_id in sorted(one_by_one.numbers(), reverse=True):
            one_by_one.night_of(run_id, **options)
        assert one_by_one.numbers() == whole.numbers()
