"""Hides secrets in configurations. Within one output, different secrets have different numbers.

`(hidden 1)` reveals nothing about a secret except whether it equals another one: numbers are assigned in order of
appearance, not computed from the secrets. What was hidden before (in an archive, in an export that was imported again)
is renumbered in the same way, so that hiding twice gives the same result as hiding once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kbeval.util.secrets import (
    LOGIN,
    PLAIN,
    SECRET,
    SUSPICIOUS,
    is_secret_value,
    judge_key,
    known_parts,
    secret_parts,
)

_MARK = re.compile(r"\(hidden(?: ([0-9]{1,9}))?\)")
# Lists of pairs: {"name": "Authorization", "value": "…"}.
_NAMES = ("name", "key", "header", "field", "variable", "var", "option", "env", "id", "k", "param", "parameter")
_VALUES = ("value", "val", "v", "data", "content", "default", "values", "secret_value")


def is_hidden(value: object) -> bool:
    """Is it the replacement of a secret?"""
    return isinstance(value, str) and _MARK.fullmatch(value) is not None


class Hider:
    """Hides secrets, for one output."""

    def __init__(self, numbers: Mapping[str, int] | None = None, after: int = 0) -> None:
        """`numbers`: secrets that already have a number. `after`: the last number in use."""
        self.numbers = dict(numbers or {})
        self.last = max(after, *self.numbers.values(), 0)
        # Every secret found, including repetitions, in order.
        self.met: list[str] = []

    def hide_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A configuration as it may be shown."""
        found: dict[str, Any] = self.hide(config)
        return found

    def hide(self, value: Any, key: str = "") -> Any:  # noqa: ANN401  (any JSON value)
        """A value as it may be shown. `key`: its path, with dots between the keys."""
        level = PLAIN
        for step in _steps(key):
            level = max(_beneath(level), judge_key(step))
        return self._hide(value, level)

    def hide_text(self, text: str) -> str:
        """A text as it may be shown, judged by its form alone."""
        parts: list[str] = []
        end = 0
        # Treat what is hidden already as one word, so that hiding it again gives the same result.
        for start, stop in secret_parts(_MARK.sub(lambda match: match[0].replace(" ", "\0"), text)):
            parts += [self._renumbered(text[end:start]), self._mark(text[start:stop])]
            end = stop
        return "".join([*parts, self._renumbered(text[end:])])

    def _hide(self, value: Any, level: int) -> Any:  # noqa: ANN401
        if isinstance(value, dict):
            return self._hide_object(value, level)
        if isinstance(value, list):
            return self._hide_list(value, level)
        if value is None or isinstance(value, bool) or not isinstance(value, str | int | float):
            return value
        if isinstance(value, str) and is_hidden(value):
            return self._mark(value)
        if is_secret_value(level, value):
            return self._mark(value)
        return self.hide_text(value) if isinstance(value, str) else value

    def _hide_object(self, value: Mapping[str, Any], level: int) -> dict[str, Any]:
        named = next((value[name] for name in _NAMES if isinstance(value.get(name), str)), "")
        of_pair = judge_key(named) if len(value) <= 6 else PLAIN
        inner = _beneath(level)
        found = {}
        for name, one in value.items():
            own = max(inner, judge_key(name))
            if name.lower() in _VALUES:
                own = max(own, of_pair, level)
            elif name.lower() in _NAMES and isinstance(one, str) and of_pair != PLAIN:
                # This is the name of the pair, not a secret value.
                own = PLAIN
            # A key may also contain a secret: {"sk-…": 3}.
            found[self.hide_text(name)] = self._hide(one, own)
        return found

    def _hide_list(self, value: list[Any], level: int, *, is_item: bool = False) -> list[Any]:
        """Items have the level of the list; an item that names an option or a header sets the level of the next one.

        `is_item`: the list is an item of another list, like a header with its value.
        """
        found: list[Any] = []
        announced = PLAIN
        is_pair = len(value) == 2 and isinstance(value[0], str)
        is_login = level == LOGIN and is_pair and isinstance(value[1], str)
        for place, one in enumerate(value):
            own = SECRET if is_login and place == 1 else max(level, announced)
            found.append(self._hide_list(one, own, is_item=True) if isinstance(one, list) else self._hide(one, own))
            announced = PLAIN
            if isinstance(one, str) and (
                (is_item and is_pair and place == 0) or re.fullmatch(r"--?[A-Za-z][\w.-]*", one)
            ):
                announced = judge_key(one)
        return found

    def _mark(self, secret: Any) -> str:  # noqa: ANN401  (text or a number)
        name = secret if isinstance(secret, str) and is_hidden(secret) else json.dumps(secret)
        self.met.append(name)
        if name not in self.numbers:
            self.last += 1
            self.numbers[name] = self.last
        return f"(hidden {self.numbers[name]})"

    def _renumbered(self, text: str) -> str:
        return _MARK.sub(lambda match: self._mark(match[0]), text) if "(hidden" in text else text


def _beneath(level: int) -> int:
    """The level of values inside a secret object: they are secret, whatever their key."""
    return SUSPICIOUS if level == LOGIN else level


def _steps(key: str) -> list[str]:
    return re.split(r"\.(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", key) if key else []


def without_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """A single snapshot as it may be shown."""
    return Hider().hide_config(config)


def hide_known(text: str) -> str:
    """A message without unmistakable secrets: tokens of well-known forms, credentials in URLs."""
    parts: list[str] = []
    end = 0
    for start, stop in sorted(known_parts(text)):
        if start >= end:
            parts += [text[end:start], "(hidden)"]
        end = max(end, stop)
    return "".join([*parts, text[end:]])


def hidden_text(config_json: str, config: Mapping[str, Any] | None, hider: Hider | None = None) -> str:
    """A stored configuration as text that may be kept: unchanged if nothing in it is secret.

    `config`: its parsed contents; None if it cannot be parsed.
    """
    hider = hider or Hider()
    if config is None:
        return hider.hide_text(config_json)
    shown = hider.hide_config(config)
    if shown == config:
        return config_json
    return json.dumps(_finite(shown), ensure_ascii=False)


def marks_in(text: str) -> list[str]:
    """The replacements of secrets in a text, in order."""
    return [match[0] for match in _MARK.finditer(text)]


def number_of(mark: str) -> int:
    """The number in the replacement of a secret; 0 if it has none."""
    match = _MARK.fullmatch(mark)
    return int(match[1] or 0) if match else 0


def _finite(value: Any) -> Any:  # noqa: ANN401  (any JSON value)
    """Replace NaN and infinities by null: JSON cannot express them."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124  (NaN)
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value
