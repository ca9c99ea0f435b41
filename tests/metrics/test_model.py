from __future__ import annotations

import json

import pytest

from kbeval.metrics.model import CONTRACT, AggregateMetrics


def test_json_written_before_a_key_existed_still_loads() -> None:
    old = {"hit_at_k": {"1": 0.5, "3": 0.75}, "mrr": 0.6, "total_queries": 4, "failed_queries": 0}
    found = AggregateMetrics.from_json(json.dumps(old))
    assert found.hit_at_k == {1: 0.5, 3: 0.75}
    assert found.precision_at_k_chunk == {}
    assert found.citation_coverage is None


def test_what_has_no_value_is_written_as_null() -> None:
    written = json.loads(AggregateMetrics().to_json())
    assert list(written) == list(CONTRACT)
    assert written["citation_coverage"] is None
    assert written["precision_at_k_chunk"] == {}


def test_a_round_trip_keeps_everything() -> None:
    aggregate = AggregateMetrics(
        hit_at_k={10: 1.0, 1: 0.3333},
        mrr=0.5,
        total_queries=3,
        failed_queries=0,
        extra={"mine": 0.25, "also_at_k": {1: 0.0}},
        ledger={"golden": 3},
        provenance={"kbeval": "1"},
    )
    text = aggregate.to_json()
    assert AggregateMetrics.from_json(text) == aggregate
    assert AggregateMetrics.from_json(text).to_json() == text
    assert text.startswith('{"hit_at_k":{"1":0.3333,"10":1.0},"mrr":0.5,')


def test_numbers_are_found_by_their_printed_names() -> None:
    aggregate = AggregateMetrics(hit_at_k={5: 0.5}, extra={"mine": 0.25})
    assert aggregate.value("hit_at_k.5") == 0.5
    assert aggregate.value("mine") == 0.25
    assert aggregate.value("hit_at_k.7") is None
    assert aggregate.value("mrr.5") is None
    assert aggregate.numbers()["hit_at_k.5"] == 0.5


@pytest.mark.parametrize("text", ["", "[]", "5", "{bad"])
def test_what_is_not_an_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        AggregateMetrics.from_json(text)


def test_nonsense_in_stored_numbers_becomes_no_value() -> None:
    found = AggregateMetrics.from_dict({"mrr": "high", "hit_at_k": [1], "recall_at_k_doc": {"1": "x", "k": 2}})
    assert (found.mrr, found.hit_at_k, found.recall_at_k_doc) == (None, {}, {1: None})
