"""Reading a judge's reply in both wire formats: a score on the scale, or the reason why there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbeval.live.exchange import Response
from kbeval.live.judge_replies import Reading, Reply, read_reply
from kbeval.live.rubrics import shipped
from kbeval.live.wire import Judge, asked_again, question, read_response
from tests.support import judge_server

GROUNDEDNESS, CORRECTNESS = shipped("groundedness"), shipped("correctness")
OPENAI = Judge("openai", "gpt", "https://api.openai.com/v1")
ANTHROPIC = Judge("anthropic", "claude", "https://api.anthropic.com")


def read(text: str) -> Reading:
    return read_reply(Reply(text), CORRECTNESS)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"reasoning": "r", "score": 4}', 4),
        ('{"reasoning": "r", "score": "4"}', 4),
        ('{"reasoning": "r", "score": " 4.0 "}', 4),
        ('{"score": 0}', 0),
        ('{"score": 5.0}', 5),
        ('Sure.\n```json\n{"score": 3}\n```\nDone.', 3),
        ('```\n{"score": 3}\n```', 3),
        ('My judgement is {"reasoning": "a {brace} in it", "score": 2}. Goodbye.', 2),
        ('{"example": 1} and {"score": 2}', 2),
    ],
)
def test_a_score_that_can_be_read_in_one_way_is_read(text: str, score: int) -> None:
    found = read(text)
    assert (found.score, found.fault) == (score, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("I would give it 4 out of 5.", "no JSON object"),
        ('{"reasoning": "r", "score": 7}', "off the scale"),
        ('{"score": -1}', "off the scale"),
        ('{"score": 3.5}', "not a whole number"),
        ('{"score": "four"}', "not a number"),
        ('{"score": true}', "not a number"),
        ('{"score": null}', "not a number"),
        ('{"score": [4]}', "not a number"),
        ('{"reasoning": "r"}', "not a number"),
        ('{"score": 1, "score": 5}', "no JSON object"),
        ('{"reasoning": "r", "sco', "no JSON object"),
        ('{"score": NaN}', "no JSON object"),
        ('{"score": 1} or {"score": 5}', "2 JSON objects"),
        ("[4]", "no JSON object"),
        ("4", "no JSON object"),
    ],
)
def test_a_reply_without_one_clear_score_has_none(text: str, why: str) -> None:
    found = read(text)
    assert found.score is None
    assert found.fault is not None
    assert why in found.fault


def test_claims_are_read_where_the_rubric_asks_for_them() -> None:
    text = json.dumps({"reasoning": "r", "supported_claims": ["a", 1], "unsupported_claims": "x", "score": 4})
    found = read_reply(Reply(text), GROUNDEDNESS)
    assert (found.supported, found.unsupported) == (("a",), ())
    assert (read(text).supported, read(text).unsupported) == (None, None)


# --- the two wire shapes -----------------------------------------------------------------------------------


def asked(judge: Judge) -> dict[str, Any]:
    request = question(judge, GROUNDEDNESS, [{"role": "user", "content": "prompt"}], {"x": "y"})
    assert request.content is not None
    found: dict[str, Any] = json.loads(request.content)
    return found


def test_openai_is_asked_for_a_schema_with_temperature_and_seed() -> None:
    body = asked(OPENAI)
    assert OPENAI.url == "https://api.openai.com/v1/chat/completions"
    assert (body["model"], body["temperature"], body["seed"]) == ("gpt", 0, 0)
    assert (body["max_completion_tokens"], "max_tokens" in body) == (2000, False)
    form = body["response_format"]
    assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)
    names = list(form["json_schema"]["schema"]["properties"])
    assert names == ["reasoning", "supported_claims", "unsupported_claims", "score"]


def test_anthropic_is_asked_with_a_forced_tool_and_no_seed() -> None:
    body = asked(ANTHROPIC)
    assert ANTHROPIC.url == "https://api.anthropic.com/v1/messages"
    assert (body["temperature"], "seed" in body) == (0, False)
    assert body["tool_choice"] == {"type": "tool", "name": body["tools"][0]["name"]}
    assert next(iter(body["tools"][0]["input_schema"]["properties"])) == "reasoning"


def test_what_only_some_servers_send_is_read() -> None:
    text = json.dumps({"reasoning": "r", "score": 4})
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": text}]
    chat = {"choices": [{"message": {"content": parts, "reasoning_content": "hm"}, "finish_reason": "stop"}]}
    assert read_reply(read_response(OPENAI, Response(200, {}, json.dumps(chat).encode())), CORRECTNESS).score == 4
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    full = {"type": "message", "content": blocks, "stop_reason": "model_context_window_exceeded"}
    found = read_response(ANTHROPIC, Response(200, {}, json.dumps(full).encode()))
    assert found.fault is not None
    assert "cut off" in found.fault


EXPECTED = {
    "good": (3, None),
    "fenced": (3, None),
    "quoted": (3, None),
    "prose": (None, "no JSON object"),
    "seven": (None, "off the scale"),
    "nothing": (None, "empty"),
    "refusal": (None, "refused"),
    "truncated": (None, "cut off"),
    "half": (None, "no JSON object"),
}


@pytest.mark.parametrize("kind", EXPECTED)
@pytest.mark.parametrize("judge", [OPENAI, ANTHROPIC], ids=lambda judge: judge.provider)
def test_every_kind_of_reply_is_read_in_both_shapes(judge: Judge, kind: str) -> None:
    body = asked(judge) | {"messages": [{"role": "user", "content": f"REPLY:{kind} SCORE:3"}]}
    answer = judge_server.chat(body) if judge is OPENAI else judge_server.messages(body)
    reply = read_response(judge, Response(200, {}, json.dumps(answer).encode()))
    found = read_reply(reply, GROUNDEDNESS)
    score, why = EXPECTED[kind]
    assert found.score == score
    assert (why or "") in (found.fault or "")
    assert (reply.tokens_in, reply.tokens_out) == judge_server.USAGE


@pytest.mark.parametrize("judge", [OPENAI, ANTHROPIC], ids=lambda judge: judge.provider)
@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b"<html>",
            b"[]",
            b"null",
            b"{}",
            b'{"choices": []}',
            b'{"choices": {}}',
            b'{"choices": [null]}',
            b"\xff",
        ),
        *(
            b'{"content": null}',
            b'{"content": [7, {"type": "tool_use", "input": 3}]}',
            b'{"type": "error", "content": []}',
        ),
        *(b'{"choices": [{"message": {"content": [1]}}], "usage": {"prompt_tokens": "9"}}', b'{"choices": [{}]}'),
    ],
)
def test_a_response_of_any_other_shape_is_a_reply_without_a_score(judge: Judge, body: bytes) -> None:
    reply = read_response(judge, Response(200, {}, body))
    found = read_reply(reply, CORRECTNESS)
    assert found.score is None
    assert found.fault
    assert reply.tokens_in is None


def test_a_reply_that_cannot_be_read_is_asked_for_again_with_the_reason() -> None:
    messages = asked_again("the prompt", Reply("five"), "it is not JSON", CORRECTNESS)
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"] == "the prompt"
    assert "it is not JSON" in messages[2]["content"]
    # Servers refuse an empty message.
    (only,) = asked_again("the prompt", Reply(""), "it is empty", CORRECTNESS)
    assert only["content"].startswith("the prompt")
    assert "it is empty" in only["content"]
