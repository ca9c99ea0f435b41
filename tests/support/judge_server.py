"""A judge on loopback, in a process of its own, in both wire shapes: `/v1/chat/completions` and `/v1/messages`.

The answer that is judged says how the judge replies: `REPLY:fenced` in its text chooses a kind of `KINDS`, and
`SCORE:3` the score (5 otherwise). With `:once` (`REPLY:prose:once`) only the first reply is of that kind. The model
`harsh` gives one point less, `random` a score that depends on the whole question; the model `silent` tells no usage,
and `thinking` refuses a temperature, as newer models of both companies do, each in its words.
Everything else as in `live_server`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.support import live_server
from tests.support.live_server import LiveServer, serve

KINDS = ("good", "fenced", "prose", "seven", "quoted", "nothing", "refusal", "truncated", "half")
USAGE = (900, 100)


def _judged(body: dict[str, Any]) -> tuple[str, int, bool]:
    """The kind of reply, the score, and whether claims are asked for."""
    prompt = str(body["messages"][0]["content"])
    is_second = len(body["messages"]) > 1 or "That reply cannot be used" in prompt
    kind = re.search(r"REPLY:(\w+)(:once)?", prompt)
    name = "good" if kind is None or (kind[2] and is_second) else kind[1]
    score = re.search(r"SCORE:(\d+)", prompt)
    value = int(score[1]) if score else 5
    if body["model"] == "harsh":
        value = max(0, value - 1)
    if body["model"] == "random":
        value = int(hashlib.sha256(prompt.encode()).hexdigest(), 16) % 6
    return name, value, "supported_claims" in json.dumps(body)


def _content(kind: str, score: int, *, claims: bool) -> str:
    fields: dict[str, Any] = {"reasoning": "Because."}
    if claims:
        fields |= {"supported_claims": ["one", "two"], "unsupported_claims": ["three"] if score < 5 else []}
    text = json.dumps({**fields, "score": score})
    return {
        "fenced": f"Here it is:\n```json\n{text}\n```\n",
        "prose": f"I would give this answer {score} out of 5.",
        "seven": json.dumps({**fields, "score": 7}),
        "quoted": json.dumps({**fields, "score": str(score)}),
        "nothing": "",
        "refusal": "",
        "truncated": text[: len(text) // 2],
        "half": text[:-1],
    }.get(kind, text)


def chat(body: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's shape."""
    if body["model"] == "thinking" and body.get("temperature", 1) != 1:
        said = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported."
        error = {"message": said, "type": "invalid_request_error", "param": "temperature", "code": "unsupported_value"}
        return {"kbeval_status": 400, "error": error}
    kind, score, claims = _judged(body)
    message: dict[str, Any] = {"role": "assistant", "content": _content(kind, score, claims=claims)}
    if kind == "refusal":
        message |= {"content": None, "refusal": "I cannot help with that."}
    reason = "length" if kind == "truncated" else "stop"
    found: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    if body["model"] == "silent":
        return found
    return {**found, "usage": {"prompt_tokens": USAGE[0], "completion_tokens": USAGE[1], "total_tokens": sum(USAGE)}}


def messages(body: dict[str, Any]) -> dict[str, Any]:
    """Anthropic's shape: the forced tool, or text where the reply is odd."""
    if body["model"] == "thinking" and "temperature" in body:
        error = {"type": "invalid_request_error", "message": "`temperature` is deprecated for this model."}
        return {"kbeval_status": 400, "type": "error", "error": error, "request_id": "req_1"}
    kind, score, claims = _judged(body)
    content = _content(kind, score, claims=claims)
    reason = {"refusal": "refusal", "truncated": "max_tokens"}.get(kind, "tool_use")
    block: dict[str, Any] = {"type": "text", "text": content}
    if kind in ("good", "seven", "quoted") and "tools" in body:
        block = {"type": "tool_use", "id": "t1", "name": body["tools"][0]["name"], "input": json.loads(content)}
    blocks = [] if kind in ("nothing", "refusal") else [block]
    found: dict[str, Any] = {"type": "message", "role": "assistant", "content": blocks, "stop_reason": reason}
    return {**found, "usage": {"input_tokens": USAGE[0], "output_tokens": USAGE[1]}}


class JudgeServer(LiveServer):
    """Starts and ends the process."""

    def __enter__(self) -> Self:
        root = Path(__file__).parents[2]
        command = [sys.executable, "-m", "tests.support.judge_server", json.dumps(self._settings), str(self._port)]
        self.process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        return self


if __name__ == "__main__":
    live_server.ROUTES.update({"/v1/chat/completions": chat, "/v1/messages": messages})
    asyncio.run(serve(json.loads(sys.argv[1]), int(sys.argv[2])))
