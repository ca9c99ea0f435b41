"""The text of a golden file as nodes with exact positions, so that a value can be changed without touching other bytes.

Positions are code points. `yaml_nodes` and `json_nodes` make nodes; `editing` changes the text between them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in the stubs
from typing import TYPE_CHECKING, Any

from kbeval.util.strict_json import SPACE

if TYPE_CHECKING:
    import yaml

SCALAR, LIST, MAPPING, ALIAS = "scalar", "list", "mapping", "alias"


@dataclass
class Node:
    """A value in the text. `end` is where its own text ends, without comments or line ends after it."""

    kind: str
    start: int
    end: int
    # Written in brackets rather than as a block of lines?
    is_flow: bool = True
    # A scalar with | or >: where the next token begins.
    block_end: int | None = None
    # For scalars in YAML: '' plain, else how it is quoted.
    style: str = ""
    text: str | None = None
    items: list[Node] = field(default_factory=list)
    # For mappings: a key for each item.
    keys: list[Node] = field(default_factory=list)

    @cached_property
    def fields(self) -> dict[str, int]:
        """The number of each item of a mapping, by its key."""
        return {str(key.text): number for number, key in enumerate(self.keys)}


class UnreadableTextError(ValueError):
    """The text cannot be parsed into nodes; reading it as a golden file reports what is wrong."""


# --- YAML -------------------------------------------------------------------------------------------


def yaml_nodes(text: str) -> Node:
    """The list of entries of a YAML file."""
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    stack: list[Node] = []
    root: Node | None = None
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.CollectionStartEvent):
                kind = LIST if isinstance(event, yaml.SequenceStartEvent) else MAPPING
                start = _at(event.start_mark)
                stack.append(Node(kind, start, start, bool(event.flow_style)))
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                node = stack.pop()
                parts = [*node.keys, *node.items]
                node.end = _at(event.end_mark) if node.is_flow or not parts else max(part.end for part in parts)
            elif isinstance(event, yaml.ScalarEvent):
                node = _yaml_scalar(text, event)
            elif isinstance(event, yaml.AliasEvent):
                node = Node(ALIAS, _at(event.start_mark), _at(event.end_mark))
            else:
                continue
            if not stack:
                root = node
                continue
            parent = stack[-1]
            (parent.keys if parent.kind == MAPPING and len(parent.keys) == len(parent.items) else parent.items).append(
                node
            )
    except yaml.YAMLError as error:
        raise UnreadableTextError(str(error)) from error
    if root is None or root.kind != LIST:
        raise UnreadableTextError
    return root


def _at(mark: Any) -> int:  # noqa: ANN401  (a position of either parser)
    return int(mark.index)


def _yaml_scalar(text: str, event: yaml.ScalarEvent) -> Node:
    start, end = _at(event.start_mark), _at(event.end_mark)
    block_end = None
    if event.style in ("|", ">"):
        block_end, end = end, start + len(text[start:end].rstrip())
    return Node(SCALAR, start, end, block_end=block_end, style=event.style or "", text=event.value)


# --- JSON -------------------------------------------------------------------------------------------

_ATOM_ENDS = frozenset(",]} \t\r\n")
_LINE_END = re.compile(r"\r\n|\r|\n")


def json_nodes(text: str, at: int = 0) -> Node:
    """The value that begins at a position; a list of entries, or one entry."""
    try:
        return _value(text, _skip(text, at))
    except (IndexError, ValueError) as error:
        raise UnreadableTextError(str(error)) from error


def jsonl_nodes(text: str) -> Node:
    """The lines of a JSONL file as a list that has no brackets."""
    root = Node(LIST, 0, len(text), is_flow=False)
    at = 0
    for end in (*(match.start() for match in _LINE_END.finditer(text)), len(text)):
        if text[at:end].strip(SPACE):
            root.items.append(json_nodes(text, at))
        at = end
    return root


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _string(text: str, at: int) -> Node:
    value, end = scanstring(text, at + 1, True)  # noqa: FBT003  (positional only)
    return Node(SCALAR, at, end, style='"', text=value)


def _value(text: str, at: int) -> Node:
    first = text[at]
    if first == '"':
        return _string(text, at)
    if first not in "[{":
        end = at
        while end < len(text) and text[end] not in _ATOM_ENDS:
            end += 1
        return Node(SCALAR, at, end, text=text[at:end])
    node = Node(LIST if first == "[" else MAPPING, at, at)
    at = _skip(text, at + 1)
    while text[at] not in "]}":
        if node.kind == MAPPING:
            node.keys.append(_string(text, at))
            at = _skip(text, node.keys[-1].end)
            if text[at] != ":":
                msg = "expected ':'"
                raise json.JSONDecodeError(msg, text, at)
            at = _skip(text, at + 1)
        node.items.append(_value(text, at))
        at = _skip(text, node.items[-1].end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    node.end = at + 1
    return node
