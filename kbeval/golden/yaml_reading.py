"""Golden files in YAML, with the line of every entry, in about a second for ten thousand of them.

The C parser makes nodes, not values: nodes know their lines and whether a scalar was quoted, and an alias is
the same node twice, so a file that would unfold to millions of values is refused before it does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kbeval.errors import GoldenError
from kbeval.golden.reading import Entry, Plain, RepeatedFieldError, as_entry

# Anchors may be used, but what they stand for must stay in proportion to what is written.
_MAX_NODES = 5_000_000
_ALIAS_FACTOR = 10
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_MERGE = "<<"


def read_yaml(path: Path, text: str) -> list[Entry]:
    """The entries of a YAML list. Raises GoldenError where the file as a whole cannot be read."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise GoldenError(str(path), [f"{where}not valid YAML: {error.problem or error.context}"]) from error
    except yaml.YAMLError as error:
        raise GoldenError(str(path), [f"not valid YAML: {' '.join(str(error).split())}"]) from error
    if root is None:
        return []
    if not isinstance(root, yaml.SequenceNode):
        fault = f"line {root.start_mark.line + 1}: the file must be a list of entries, each beginning with '- id: …'"
        raise GoldenError(str(path), [fault])
    if (fault_of_aliases := _alias_fault(root)) is not None:
        raise GoldenError(str(path), [fault_of_aliases])
    return [_entry(node) for node in root.value]


def _entry(node: yaml.Node) -> Entry:
    line = node.start_mark.line + 1
    try:
        return as_entry(_value(node), line)
    except RepeatedFieldError as error:
        return Entry(line, {}, str(error))


def _value(node: yaml.Node) -> Any:  # noqa: ANN401  (whatever a file may hold)
    if isinstance(node, yaml.ScalarNode):
        # Plain scalars have no style with the C parser (None or "") and with the Python one ("").
        if node.style:
            return str(node.value)
        return None if node.value in _NULLS else Plain(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_value(child) for child in node.value]
    return _mapping(node)


def _mapping(node: yaml.Node) -> dict[str, Any]:
    found: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, child in node.value:
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
        if name == _MERGE:
            bases = child.value if isinstance(child, yaml.SequenceNode) else [child]
            for base in bases:
                if isinstance(base, yaml.MappingNode):
                    merged = {**_mapping(base), **merged}
        elif name in found:
            msg = f"field {name!r} is written twice"
            raise RepeatedFieldError(msg)
        else:
            found[name] = _value(child)
    return {**merged, **found}


def _alias_fault(root: yaml.Node) -> str | None:
    """Refuse files whose anchors unfold to far more than is written, without unfolding them."""
    sizes: dict[int, int] = {}
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    open_nodes: set[int] = set()
    while stack:
        node, done = stack.pop()
        if done:
            open_nodes.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in _children(node))
            continue
        if id(node) in sizes:
            continue
        if isinstance(node, yaml.ScalarNode):
            sizes[id(node)] = 1
            continue
        open_nodes.add(id(node))
        stack.append((node, True))
        for child in _children(node):
            if id(child) in open_nodes:
                return f"line {child.start_mark.line + 1}: an anchor holds itself"
            stack.append((child, False))
    if sizes[id(root)] > min(_MAX_NODES, _ALIAS_FACTOR * len(sizes) + 1000):
        return f"its anchors unfold to {sizes[id(root)]:,} values from {len(sizes):,} written ones; write them out"
    return None


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
