"""The two ways to ask a language model over HTTP: OpenAI's chat completions, which local servers speak too, and
Anthropic's messages. Pure functions: nothing is sent here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kbeval.errors import UsageError
from kbeval.live.environment import Environment
from kbeval.live.exchange import InvalidResponseError, Request, Response, json_request
from kbeval.live.judge_replies import Reply
from kbeval.live.rubrics import Rubric

LOCAL, OPENAI, ANTHROPIC = PROVIDERS = ("local", "openai", "anthropic")
BASE_URLS = {OPENAI: "https://api.openai.com/v1", ANTHROPIC: "https://api.anthropic.com"}
# A local server never gets the key of a provider, even if one is set.
KEYS = {LOCAL: "KBEVAL_JUDGE_API_KEY", OPENAI: "OPENAI_API_KEY", ANTHROPIC: "ANTHROPIC_API_KEY"}
TEMPERATURE = 0
SEED = 0
MOST_TOKENS = 2_000
_TOOL = "judgement"
_ANTHROPIC_VERSION = "2023-06-01"

Message = Mapping[str, str]


@dataclass(frozen=True)
class Judge:
    """A model on a server."""

    provider: str
    model: str
    base_url: str
    # None: not sent, for models that refuse it.
    temperature: float | None = TEMPERATURE
    seed: int = SEED
    max_tokens: int = MOST_TOKENS

    @property
    def name(self) -> str:
        """As it is named on the command line."""
        return self.model if self.provider == LOCAL else f"{self.provider}:{self.model}"

    @property
    def parameters(self) -> dict[str, Any]:
        """What is sent with each question and may change its answer."""
        found: dict[str, Any] = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        # Anthropic's servers do not accept a seed.
        return found if self.provider == ANTHROPIC else {**found, "seed": self.seed}

    @property
    def url(self) -> str:
        """The address that questions are sent to."""
        base = self.base_url.rstrip("/")
        if self.provider == ANTHROPIC:
            return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"
        return f"{base}/chat/completions"

    def headers(self, environment: Environment) -> dict[str, str]:
        """The headers, with the key from the environment; a local server may need none."""
        variable = KEYS[self.provider]
        if self.provider == LOCAL:
            key = environment.get_if_set(variable)
            return {"Authorization": f"Bearer {key}"} if key else {}
        key = environment.get(variable, f"the judge {self.name}")
        if self.provider == OPENAI:
            return {"Authorization": f"Bearer {key}"}
        return {"x-api-key": key, "anthropic-version": _ANTHROPIC_VERSION}


def parse_judge(
    name: str, base_url: str | None, temperature: float | None = TEMPERATURE, max_tokens: int = MOST_TOKENS
) -> Judge:
    """`openai:NAME`, `anthropic:NAME`, or the name of a model on a local server, which needs its address."""
    provider, sign, model = name.partition(":")
    if not sign or provider not in (OPENAI, ANTHROPIC):
        # Local models have names with a colon, such as qwen2.5:14b.
        provider, model = LOCAL, name
    if not model.strip():
        msg = f"{name!r} is not the name of a model; use NAME, openai:NAME or anthropic:NAME"
        raise UsageError(msg)
    url = base_url or BASE_URLS.get(provider)
    if url is None:
        msg = (
            f"no address for the model {model!r}: pass --judge-base-url, e.g. http://localhost:11434/v1,"
            f" or name it openai:{model} or anthropic:{model}"
        )
        raise UsageError(msg)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        msg = f"--judge-base-url {url!r} is not an address like http://localhost:11434/v1"
        raise UsageError(msg)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        msg = f"--judge-base-url must not contain a password, a query or a fragment; put the key in {KEYS[provider]}"
        raise UsageError(msg)
    return Judge(provider, model, url.rstrip("/"), temperature, max_tokens=max_tokens)


def question(judge: Judge, rubric: Rubric, messages: Sequence[Message], headers: Mapping[str, str]) -> Request:
    """The request that asks a judge for a judgement, in its server's own way of asking for JSON."""
    body: dict[str, Any] = {
        "model": judge.model,
        "messages": list(messages),
        **({} if judge.temperature is None else {"temperature": judge.temperature}),
        # OpenAI's newer models refuse the old name; other servers do not know the new one.
        "max_completion_tokens" if judge.provider == OPENAI else "max_tokens": judge.max_tokens,
    }
    if judge.provider == ANTHROPIC:
        tool = {"name": _TOOL, "description": "Give your judgement.", "input_schema": rubric.schema()}
        body |= {"tools": [tool], "tool_choice": {"type": "tool", "name": _TOOL}}
    else:
        form = {"name": _TOOL, "strict": True, "schema": rubric.schema()}
        body |= {"seed": judge.seed, "response_format": {"type": "json_schema", "json_schema": form}}
    return json_request("POST", judge.url, headers, body)


def asked_again(prompt: str, reply: Reply, fault: str, rubric: Rubric) -> list[Message]:
    """The messages that ask again after a reply that could not be read."""
    again = f"That reply cannot be used: {fault}. {rubric.how_to_reply()}"
    said = reply.raw.strip()
    if not said:
        return [{"role": "user", "content": f"{prompt}\n\n{again}"}]
    return [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": said},
        {"role": "user", "content": again},
    ]


def read_response(judge: Judge, response: Response) -> Reply:
    """The reply in a response with a status below 300. It never raises; a reply that cannot be read has a fault."""
    try:
        found = response.json()
    except InvalidResponseError as error:
        return Reply(response.text(), fault=str(error))
    if not isinstance(found, dict):
        return Reply(response.text(), fault="the response is not a JSON object")
    return _anthropic_reply(found) if judge.provider == ANTHROPIC else _openai_reply(found)


def _openai_reply(found: Mapping[str, Any]) -> Reply:
    usage = _object(found.get("usage"))
    tokens = (_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
    choices = found.get("choices")
    choice = _object(choices[0]) if isinstance(choices, list) and choices else {}
    message = _object(choice.get("message"))
    text = _text(message.get("content"))
    refusal = message.get("refusal")
    fault = None
    if not choice:
        fault = "the response has no choices"
        text = json.dumps(found, ensure_ascii=False)
    elif isinstance(refusal, str) and refusal:
        fault = "the model refused to judge"
        text = text or refusal
    elif choice.get("finish_reason") == "content_filter":
        fault = "the model refused to judge (content filter)"
    elif choice.get("finish_reason") == "length":
        fault = "the reply was cut off at the token limit"
    return Reply(text, None, fault, *tokens)


def _anthropic_reply(found: Mapping[str, Any]) -> Reply:
    usage = _object(found.get("usage"))
    tokens = (_count(usage.get("input_tokens")), _count(usage.get("output_tokens")))
    content = found.get("content")
    blocks = [_object(block) for block in content] if isinstance(content, list) else []
    text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    called = [_object(block.get("input")) for block in blocks if block.get("type") == "tool_use"]
    fields = called[0] if len(called) == 1 and called[0] else None
    fault = None
    if found.get("type") == "error" or not isinstance(content, list):
        fault = "the response has no content"
        text = json.dumps(found, ensure_ascii=False)
    elif found.get("stop_reason") == "refusal":
        fault = "the model refused to judge"
    elif found.get("stop_reason") in ("max_tokens", "model_context_window_exceeded"):
        fault = "the reply was cut off at the token limit"
    elif len(called) > 1:
        fault = f"the reply has {len(called)} judgements"
        text = text or json.dumps(called, ensure_ascii=False)
    return Reply(text, fields, fault, *tokens)


def _text(content: Any) -> str:  # noqa: ANN401  (any JSON value)
    """A text, or the texts of a list of parts; parts of other types, such as thoughts, are not the reply."""
    if isinstance(content, list):
        parts = [_object(part) for part in content]
        return "".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def why_rejected(judge: Judge, said: str) -> str:
    """What a server says about a request that it rejects, with what to do about it."""
    if "temperature" in said.lower() and judge.temperature is not None:
        return f"{said}; this model does not accept a temperature: use --judge-temperature none"
    return said


def _object(value: Any) -> dict[str, Any]:  # noqa: ANN401  (any JSON value)
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:  # noqa: ANN401  (any JSON value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40
    return value if is_count else None
