from __future__ import annotations

import json
from typing import Any

import pytest

from kbeval.storage.run_config import Difference, changed_parts, config_diff, config_of, eval_k
from kbeval.storage.runs import Run


def run(config: str) -> Run:
    return Run("r", "s", "2026", None, config, "", 0)


def test_every_key_that_differs_is_named_by_its_path() -> None:
    a = {"chunker_version": "md@1", "embedding": {"model": "e1", "dimensions": 384}, "k": 5, "same": [1, {"x": 2}]}
    b = {"chunker_version": "md@2", "embedding": {"model": "e1", "dimensions": 768}, "k": 5.0, "same": [1, {"x": 2}]}
    assert config_diff(a, b) == [
        Difference("chunker_version", "md@1", "md@2"),
        Difference("embedding.dimensions", 384, 768),
    ]


def test_a_key_that_one_run_lacks_differs_and_null_is_not_a_value() -> None:
    assert config_diff({"a": {"b": 1}, "n": None}, {}) == [Difference("a.b", 1, None)]
    assert config_diff({"a": {"b": 1}}, {"a": "text"}) == [Difference("a", None, "text"), Difference("a.b", 1, None)]
    assert config_diff({"on": True}, {"on": 1}) == [Difference("on", True, 1)]


def test_keys_with_dots_cannot_be_taken_for_nested_ones() -> None:
    found = config_diff({"a.b": 1, "a": {"b": 1}}, {"a.b": 2, "a": {"b": 3}})
    assert [one.key for one in found] == ['"a.b"', "a.b"]


@pytest.mark.parametrize(
    "key", ["api_key", "OPENAI_API_KEY", "token", "auth_token", "password", "client-secret", "openaiApiKey", "api_keys"]
)
def test_secrets_are_not_shown(key: str) -> None:
    assert config_diff({"llm": {key: "s3cret"}}, {"llm": {key: "other"}}) == [
        Difference(f"llm.{key}", "(hidden 1)", "(hidden 2)")
    ]


def test_secrets_in_odd_places_are_not_shown_either() -> None:
    def config(secret: str) -> dict[str, Any]:
        return {
            "openai.api_key": secret,
            "headers": [{"authorization": secret}],
            "credentials": {"user": secret},
            "url": f"https://me:{secret}@host/path",
        }

    found = config_diff(config("s3cret"), config("0ther"))
    assert len(found) == 4
    assert "s3cret" not in str(found)
    assert "0ther" not in str(found)
    assert found[-1].a == "https://(hidden 2)@host/path"


def test_what_only_sounds_like_a_secret_is_shown() -> None:
    assert config_diff({"max_tokens": 1, "keyword_boost": 1}, {"max_tokens": 2, "keyword_boost": 2})[1].b == 2


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "[" * 100_000, '{"a":' + "[" * 700 + "]" * 700 + "}", '{"n": ' + "9" * 5000 + "}"]
)
def test_a_snapshot_that_is_not_an_object_is_empty(text: str) -> None:
    assert config_of(run(text)) == {}


def test_deep_snapshots_are_compared() -> None:
    deep: dict[str, Any] = {}
    place = deep
    for _ in range(40):
        place["x"] = {}
        place = place["x"]
    place["end"] = 1
    (found,) = config_diff(json.loads(json.dumps(deep)), {})
    assert found.key.endswith("x.end")


def test_the_parts_that_can_move_a_query() -> None:
    found = config_diff(
        {"embedding": {"model": 1}, "llm": {"model_id": 1}, "prompt_template_version": 1, "other": 1},
        {"embedding": {"model": 2}, "llm": {"model_id": 2}, "prompt_template_version": 2, "other": 2},
    )
    assert changed_parts(found) == ["embedding", "model", "prompt"]


@pytest.mark.parametrize(("config", "k"), [({}, 10), ({"eval_k": 5}, 5), ({"k": 3}, 3), ({"eval_k": "x"}, 10)])
def test_the_runs_own_k(config: dict[str, Any], k: int) -> None:
    assert eval_k(config) == k
