"""Response expressions (JMESPath): where hits, answer and the rest are found in a response.

An expression that finds something of the wrong kind is an error that says what it found instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kbeval.errors import UsageError
from kbeval.live.exchange import InvalidResponseError
from kbeval.util.text import cut

_SHOWN = 120
_MOST_KEYS = 12


@dataclass(frozen=True)
class _Kind:
    wanted: str
    fits: Callable[[Any], bool]
    # Is null an error?
    is_required: bool = False


def _is_hits(value: Any) -> bool:  # noqa: ANN401  (any JSON value, here and below)
    return isinstance(value, list) and all(isinstance(one, dict | str) for one in value)


def _is_text(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("answer"), str))


def _is_flag(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, dict) or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_anything(value: Any) -> bool:  # noqa: ANN401, ARG001
    return True


# The expressions with a meaning; any other name becomes a field of the stored row.
_KINDS = {
    "hits": _Kind("a list of objects, or of chunk ids", _is_hits, is_required=True),
    "answer": _Kind("a string, or an object with the field answer", _is_text, is_required=True),
    "citations": _Kind("a list of objects, or of chunk ids", _is_hits),
    "references": _Kind("a list of objects", _is_hits),
    "abstained": _Kind("true or false", _is_flag),
    "grounded": _Kind("true or false", _is_flag),
    "tokens": _Kind("a number or an object", _is_count),
    "latency": _Kind("a number of milliseconds or an object", _is_count),
}
NAMES = tuple(_KINDS)
RESERVED = ("query_id", "query", "error", "elapsed_ms", "attempts", "total_ms", "hits_top_k", "mode")


class Expressions:
    """The response expressions of a target."""

    def __init__(self, texts: Mapping[str, Any], where: str = "target.response") -> None:
        import jmespath
        import jmespath.exceptions

        self._where = where
        self._texts: dict[str, str] = {}
        self._compiled: dict[str, Any] = {}
        for name, text in texts.items():
            if not isinstance(text, str):
                msg = f"{where}.{name} must be a string with a JMESPath expression"
                raise UsageError(msg)
            if name in RESERVED:
                msg = f"{where}.{name}: kbeval sets {name} itself; choose another name"
                raise UsageError(msg)
            try:
                self._compiled[name] = jmespath.compile(text)
            except jmespath.exceptions.JMESPathError as error:
                said = " ".join(str(error).split())
                msg = f"{where}.{name} is not a JMESPath expression: {cut(said, 200)}"
                raise UsageError(msg) from error
            self._texts[name] = text

    def read(self, body: Any) -> dict[str, Any]:  # noqa: ANN401  (any JSON value)
        """What the expressions find. Raises `InvalidResponseError` that says what was found instead."""
        import jmespath.exceptions

        found: dict[str, Any] = {}
        for name, compiled in self._compiled.items():
            try:
                found[name] = compiled.search(body)
            except jmespath.exceptions.JMESPathError as error:
                said = " ".join(str(error).split())
                msg = f"{self._named(name)} cannot be applied: {cut(said, 200)}{_context(body)}"
                raise InvalidResponseError(msg) from error
        for name, value in found.items():
            kind = _KINDS.get(name, _Kind("", _is_anything))
            if value is None:
                if kind.is_required and not (name == "answer" and found.get("abstained") is True):
                    msg = f"{self._named(name)} found nothing{_context(body)}"
                    raise InvalidResponseError(msg)
            elif not kind.fits(value):
                msg = f"{self._named(name)} found {described(value)} instead of {kind.wanted}{_context(body)}"
                raise InvalidResponseError(msg)
        return found

    def _named(self, name: str) -> str:
        return f"{self._where}.{name} ({cut(self._texts[name], 60)})"


def _context(body: Any) -> str:  # noqa: ANN401
    """What the response contains, so that the expression can be corrected."""
    said = body.get("error") if isinstance(body, dict) else None
    if said:
        return f"; the response says: {cut(said if isinstance(said, str) else json.dumps(said), _SHOWN)}"
    return f"; the response is {described(body)}"


def described(value: Any) -> str:  # noqa: ANN401
    """A JSON value in a few words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {cut(value, 40)!r}"
    if isinstance(value, list):
        return f"a list of {len(value)}" + (f", the first of which is {described(value[0])}" if value else "")
    keys = ", ".join(cut(key, 30) for key in list(value)[:_MOST_KEYS])
    return f"an object with {keys}{', …' if len(value) > _MOST_KEYS else ''}" if value else "an empty object"
