"""How values are written to a golden file: YAML in flow or block style, JSON in the style of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kbeval.golden.reading import Plain

# Text that every YAML parser reads as that text without quotes, also in flow style.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9][A-Za-z0-9_./-]*)*")
_OTHERWISE = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf", "infinity"))
# Characters that YAML requires to be escaped: control characters, Unicode line ends, unpaired surrogates.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_BARE = re.compile(r"[-+]?[0-9][0-9_.eE+-]*")
# Longer lists are written one item per line.
WIDEST = 110


def yaml_text(value: str) -> str:
    """A scalar, quoted if necessary."""
    if _PLAIN.fullmatch(value) and value.lower() not in _OTHERWISE:
        return value
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def yaml_flow(value: Any) -> str:  # noqa: ANN401  (what a golden file holds)
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{yaml_text(str(name))}: {yaml_flow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(yaml_flow, value)) + "]"
    if is_bare(value):
        return str(value)
    return yaml_text(value) if isinstance(value, str) else json_value(value)


def yaml_field(name: str, value: Any, indent: str, line_end: str) -> str:  # noqa: ANN401
    """A field of a block mapping: on one line, or a long list with a line for each item."""
    line = f"{yaml_text(name)}: {yaml_flow(value)}"
    if len(indent) + len(line) <= WIDEST or not isinstance(value, list) or not value:
        return line
    return line_end.join([f"{yaml_text(name)}:", *(f"{indent}- {yaml_flow(item)}" for item in value)])


def is_bare(value: Any) -> bool:  # noqa: ANN401
    """Is it an unquoted number or boolean, as read from a file?"""
    return isinstance(value, Plain) and (_BARE.fullmatch(value) is not None or value.lower() in _OTHERWISE)


def json_value(value: Any, *, is_ascii: bool = False, is_compact: bool = False) -> str:  # noqa: ANN401
    """A value on one line. Whole numbers are written as such."""
    separators = (",", ":") if is_compact else (", ", ": ")
    return json.dumps(_whole(value), ensure_ascii=is_ascii, separators=separators)


def _whole(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_bare(value):
        return json.loads(value)
    if isinstance(value, Mapping):
        return {name: _whole(inner) for name, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list | tuple) else value
