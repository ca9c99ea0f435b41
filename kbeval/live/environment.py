"""Values from environment variables (`${NAME}`), and how they are kept out of everything that is stored or shown."""

from __future__ import annotations

import base64
import json
import os
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

from kbeval.errors import UsageError
from kbeval.util.hiding import hide_known

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Shorter values occur in ordinary text.
_SHORTEST = 6
HIDDEN = "(hidden)"


class Secrets:
    """Values that must never be stored or shown."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: list[str] = []
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Hide this value from now on, including the forms in which servers and libraries quote it."""
        if len(value) < _SHORTEST:
            return
        found = {
            value,
            urllib.parse.unquote(value),
            urllib.parse.quote(value),
            urllib.parse.quote(value, safe=""),
            urllib.parse.quote_plus(value),
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            base64.b64encode(value.encode("utf-8", "surrogateescape")).decode(),
            repr(value)[1:-1],
        }
        # The longest first, because one may contain another.
        self._forms = sorted({*self._forms, *found}, key=lambda form: (-len(form), form))

    def hide(self, text: str) -> str:
        """The text without these values, and without anything that is unmistakably a secret by its form."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        return hide_known(text)

    def hide_in(self, value: Any) -> Any:  # noqa: ANN401  (any JSON value)
        """A JSON value without these values; what only looks like a secret stays, as it may be an answer."""
        if isinstance(value, str):
            for form in self._forms:
                if form in value:
                    value = value.replace(form, HIDDEN)
            return value
        if isinstance(value, dict):
            return {self.hide_in(name): self.hide_in(inner) for name, inner in value.items()}
        return [self.hide_in(inner) for inner in value] if isinstance(value, list) else value


class Environment:
    """Replaces `${NAME}` by environment variables, and remembers their values as secrets."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = os.environ if variables is None else variables
        self.secrets = Secrets()

    def get(self, name: str, where: str) -> str:
        """The value of a variable; `where`: the setting that needs it, for the message if it is not set."""
        value = self._variables.get(name)
        if not value:
            msg = f"{where}: the environment variable {name} is not set; set it, e.g. export {name}=…"
            raise UsageError(msg)
        self.secrets.add(value)
        return value

    def get_if_set(self, name: str) -> str | None:
        """The value of a variable that need not be set."""
        value = self._variables.get(name)
        if value:
            self.secrets.add(value)
        return value or None

    def expand(self, text: str, where: str) -> str:
        """The text with the values of all variables that it refers to."""

        def value(match: re.Match[str]) -> str:
            if not _NAME.fullmatch(match[1]):
                msg = f"{where}: {match[0]} does not name an environment variable"
                raise UsageError(msg)
            return self.get(match[1], where)

        return _REFERENCE.sub(value, text)

    def expand_in(self, value: Any, where: str) -> Any:  # noqa: ANN401  (any TOML value)
        """The same for every text in a structure."""
        if isinstance(value, str):
            return self.expand(value, where)
        if isinstance(value, Mapping):
            return {name: self.expand_in(inner, f"{where}.{name}") for name, inner in value.items()}
        return [self.expand_in(inner, where) for inner in value] if isinstance(value, list) else value
