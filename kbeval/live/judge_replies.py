"""Reads a judge's reply: a score on the scale, or the reason why there is none. It never guesses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from kbeval.live.rubrics import Rubric
from kbeval.util.strict_json import parse
from kbeval.util.text import cut

_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_WHOLE = re.compile(r"[+-]?\d{1,6}(?:\.0+)?")
_MOST_CLAIMS = 200
_MOST_CHARACTERS = 20_000


@dataclass(frozen=True)
class Reply:
    """A reply as received: its text or the fields of a tool call, and the tokens used."""

    text: str = ""
    fields: dict[str, Any] | None = None
    # Why the server itself reports no complete answer: a refusal, or a reply that was cut off.
    fault: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None

    @property
    def raw(self) -> str:
        """The reply as text, to be stored."""
        return self.text if self.fields is None else json.dumps(self.fields, ensure_ascii=False)


@dataclass(frozen=True)
class Reading:
    """What was read in a reply; `fault` says why there is no score."""

    score: int | None = None
    reasoning: str | None = None
    supported: tuple[str, ...] | None = None
    unsupported: tuple[str, ...] | None = None
    fault: str | None = None


def read_reply(reply: Reply, rubric: Rubric) -> Reading:
    """Read a reply by a rubric."""
    if reply.fault is not None:
        return Reading(fault=reply.fault)
    fields = reply.fields
    if fields is None:
        if not reply.text.strip():
            return Reading(fault="the reply is empty")
        found = _objects_in(reply.text)
        if len(found) != 1:
            what = "contains no JSON object" if not found else f"contains {len(found)} JSON objects with a score"
            return Reading(fault=f"the reply {what}: {cut(' '.join(reply.text.split()), 80)!r}")
        (fields,) = found
    score, fault = _score(fields.get("score"), rubric)
    if fault is not None:
        return Reading(fault=fault)
    reasoning = fields.get("reasoning")
    return Reading(
        score,
        reasoning[:_MOST_CHARACTERS] if isinstance(reasoning, str) else None,
        _claims(fields.get("supported_claims")) if rubric.claims else None,
        _claims(fields.get("unsupported_claims")) if rubric.claims else None,
    )


def _objects_in(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a reply: the whole reply, a fenced block, or objects with a score within the text."""
    for candidate in (text.strip(), *(match.strip() for match in _FENCE.findall(text))):
        try:
            found = parse(candidate)
        except ValueError:
            continue
        if isinstance(found, dict):
            return [found]
    decoder = json.JSONDecoder()
    objects: list[dict[str, Any]] = []
    place = text.find("{")
    while place >= 0:
        try:
            found, end = decoder.raw_decode(text, place)
            parse(text[place:end])
        except (ValueError, RecursionError):
            place = text.find("{", place + 1)
            continue
        if isinstance(found, dict) and "score" in found:
            objects.append(found)
        place = text.find("{", end)
    return objects


def _score(value: Any, rubric: Rubric) -> tuple[int | None, str | None]:  # noqa: ANN401  (any JSON value)
    """The score, or what is wrong with it. A whole number in quotes is accepted, because it is unambiguous."""
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = float(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, f"the score is {cut(json.dumps(value), 60)}, not a number"
    if value != int(value):
        return None, f"the score is {value}, not a whole number"
    if not rubric.low <= value <= rubric.high:
        return None, f"the score is {int(value)}, off the scale of {rubric.low} to {rubric.high}"
    return int(value), None


def _claims(value: Any) -> tuple[str, ...]:  # noqa: ANN401  (any JSON value)
    found = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return tuple(item[:_MOST_CHARACTERS] for item in found[:_MOST_CLAIMS])
