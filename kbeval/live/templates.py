"""Request templates: `{{ query }}`, `{{ k }}` and any field of the golden entry.

A value that is a single placeholder keeps its type: `"{{ k }}"` becomes 5, not "5". `{{ folders? }}` may be missing:
the key that holds it is then left out. Inside a longer text, and in an address, values become text.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from kbeval.util.text import did_you_mean

_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)(\??)\s*\}\}")
_OMITTED = object()


class TemplateError(Exception):
    """A placeholder that has no value for a query; the message names it."""


def render(template: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  (any TOML value, any JSON value)
    """The template with its values filled in. Text from values is never treated as a template."""
    found = _render(template, values)
    return None if found is _OMITTED else found


def render_url(template: str, values: Mapping[str, Any]) -> str:
    """An address; values are percent-encoded."""
    return _fill(template, values, lambda text: urllib.parse.quote(text, safe=""))


def render_text(template: str, values: Mapping[str, Any]) -> str:
    """A text, such as a header."""
    return _fill(template, values, lambda text: text)


def _render(template: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  (the same)
    if isinstance(template, str):
        if single := _PLACEHOLDER.fullmatch(template.strip()):
            return _value(single, values)
        return render_text(template, values)
    if isinstance(template, Mapping):
        filled = {name: _render(inner, values) for name, inner in template.items()}
        return {name: inner for name, inner in filled.items() if inner is not _OMITTED}
    if isinstance(template, list):
        return [inner for inner in (_render(one, values) for one in template) if inner is not _OMITTED]
    return template


def _fill(template: str, values: Mapping[str, Any], encode: Callable[[str], str]) -> str:
    def text(match: re.Match[str]) -> str:
        value = _value(match, values)
        if value is _OMITTED:
            return ""
        return encode(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

    return _PLACEHOLDER.sub(text, template)


def _value(match: re.Match[str], values: Mapping[str, Any]) -> Any:  # noqa: ANN401  (a golden field)
    name, is_optional = match[1], bool(match[2])
    if values.get(name) is not None:
        return values[name]
    if is_optional:
        return _OMITTED
    hint = did_you_mean(name, list(values)) or f"; write {{{{ {name}? }}}} if it may be missing"
    msg = f"{{{{ {name} }}}} has no value{hint}"
    raise TemplateError(msg)
