"""Changes single fields of single entries of a golden file (YAML, JSON or JSONL) without touching any other byte.

A change is tried in a few ways, and the result is read back each time: the first text in which exactly the wanted
fields differ is used. If there is none (for example because of an anchor that another entry uses), the change is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval.errors import GoldenError
from kbeval.golden.labels import SPELLINGS
from kbeval.golden.nodes import LIST, MAPPING, Node, UnreadableTextError, json_nodes, jsonl_nodes, yaml_nodes
from kbeval.golden.reading import JSON, JSONL, YAML, Entry, Plain, entries_in, format_of
from kbeval.golden.writing_values import is_bare, json_value, yaml_field, yaml_flow, yaml_text

# A field that is to be removed.
REMOVED = object()
# The order of fields: a new field is inserted after the last existing field that precedes it here.
_ORDER = (
    "id",
    "query",
    "answerable",
    "expected_doc_ids",
    "expected_chunk_ids",
    "expected_spans",
    "gold_supports",
    "must_contain",
)
_COLON = re.compile(r"[ \t]*:")


class NotEditableError(GoldenError):
    """The entry cannot be changed without changing something else."""


@dataclass(frozen=True)
class Document:
    """The parsed text of a golden file."""

    path: Path
    text: str
    format: str
    root: Node
    entries: Sequence[Entry]

    @property
    def line_end(self) -> str:
        """The line ending of the file."""
        return "\r\n" if "\r\n" in self.text else "\n"

    def number_of(self, query_id: str) -> int | None:
        """The index of an entry, by its id."""
        return next((n for n, entry in enumerate(self.entries) if id_of(entry.fields) == query_id), None)

    def entry_text(self, number: int) -> str:
        """An entry as it is written."""
        start, end = self.reach(number)
        return self.text[start:end]

    def reach(self, number: int) -> tuple[int, int]:
        """Where an entry begins and ends; a comment after its last value belongs to it."""
        node = self.root.items[number]
        return node.start, node.end if node.is_flow else _line_stop(self.text, node.end)


def id_of(fields: Mapping[str, Any]) -> str | None:
    """The id of an entry, under any spelling of the field."""
    found = next((fields[name] for name in ("id", "qid", "q_id") if fields.get(name) is not None), None)
    return None if found is None else str(found)


def take_apart(path: Path, text: str) -> Document:
    """A golden file's text as nodes and entries. Raises GoldenError if it cannot be read."""
    entries = entries_in(path, text) if text.strip() else []
    written = format_of(path, text)
    try:
        root = {YAML: yaml_nodes, JSON: json_nodes, JSONL: jsonl_nodes}[written](text)
    except UnreadableTextError as error:
        raise GoldenError(str(path), ["the file is not a list of entries"]) from error
    if len(root.items) != len(entries):
        raise GoldenError(str(path), ["the file is not a list of entries"])
    return Document(path, text, written, root, entries)


def change_entry(document: Document, number: int, changes: Mapping[str, Any]) -> Document:
    """Set or remove fields of one entry. Fields keep the spelling that the entry has for them."""
    own = document.entries[number].fields
    spelt = {_spelling(own, name): value for name, value in changes.items()}
    wanted = {name: value for name, value in {**own, **spelt}.items() if value is not REMOVED}
    for name, value in spelt.items():
        if value is REMOVED and name not in own:
            continue
        if value is not REMOVED and name in own and _same(own[name], value):
            continue
        step = {k: v for k, v in {**document.entries[number].fields, name: value}.items() if v is not REMOVED}
        document = _first_right(document, number, _ways(document, number, name, value), step)
    if not _same_fields(document.entries[number].fields, wanted):
        raise _refused(document, number)
    return document


def replace_entry(document: Document, number: int, text: str) -> Document:
    """Replace the text of an entry; the other entries must stay the same."""
    start, end = document.reach(number)
    changed = take_apart(document.path, document.text[:start] + text + document.text[end:])
    others = [entry.fields for n, entry in enumerate(document.entries) if n != number]
    if [entry.fields for n, entry in enumerate(changed.entries) if n != number] != others:
        raise _refused(document, number)
    return changed


def add_entry(document: Document, fields: Mapping[str, Any]) -> Document:
    """Append an entry."""
    for text in _additions(document, fields):
        changed = _tried(document.path, text)
        if changed is not None and _is_added(document, changed, fields):
            return changed
    msg = "an entry cannot be added without changing others; add it by hand"
    raise NotEditableError(str(document.path), [msg])


def remove_entry(document: Document, number: int) -> Document:
    """Remove an entry with its lines."""
    node, text = document.root.items[number], document.text
    ways = []
    if document.format == JSONL or not document.root.is_flow:
        begin, end = _line_start(text, node.start), _next_line(text, node.end)
        ways = [text[:begin] + text[end:], text[: _line_start(text, max(0, begin - 1))] + text[end:]]
        # Together with the empty line before it.
        if text[_line_start(text, max(0, begin - 1)) : begin].strip():
            ways = ways[:1]
        else:
            ways.reverse()
    else:
        ways = [_without_item(text, document.root, number)]
    for way in ways:
        changed = _tried(document.path, way)
        left = [entry.fields for n, entry in enumerate(document.entries) if n != number]
        if changed is not None and [entry.fields for entry in changed.entries] == left:
            return changed
    raise _refused(document, number)


# --- one field ---------------------------------------------------------------------------------------


def _spelling(own: Mapping[str, Any], name: str) -> str:
    return next((spelt for spelt, known in SPELLINGS.items() if known == name and spelt in own), name)


def _ways(document: Document, number: int, name: str, value: Any) -> Iterator[str]:  # noqa: ANN401
    """Candidate texts with the field set or removed, the best first."""
    entry, text = document.root.items[number], document.text
    if entry.kind != MAPPING:
        return
    emit = _emitter(document, number)
    place = entry.fields.get(name)
    if value is REMOVED:
        if place is not None and entry.is_flow:
            yield _without_item(text, entry, place)
        elif place is not None:
            yield from _without_lines(text, entry, place)
        # It comes from a merged mapping, or is the only field.
        yield from _ways(document, number, name, None)
    elif place is None:
        yield from _with_new_field(document, entry, name, value, emit)
    else:
        own = document.entries[number].fields.get(name)
        if entry.items[place].kind == LIST and isinstance(value, list) and isinstance(own, list):
            yield from _with_items(document, entry.items[place], own, value, emit)
        yield from _with_value(document, entry, place, emit(value))


def _with_value(document: Document, entry: Node, place: int, written: str) -> Iterator[str]:
    """Replace the value of an existing field."""
    text, key, old = document.text, entry.keys[place], entry.items[place]
    if old.is_flow and old.block_end is None and (old.start < old.end or text[key.end : old.start].strip()):
        space = " " if old.start == old.end and text[old.start - 1 : old.start] == ":" else ""
        yield text[: old.start] + space + written + text[old.end :]
    colon = _COLON.match(text, key.end)
    if colon is not None:
        # A block becomes one line; a comment after the colon stays where it is.
        between = text[colon.end() : old.start]
        kept = between[: between.rfind(document.line_end)] if document.line_end in between else ""
        for end in _ends(old):
            yield f"{text[: colon.end()]} {written}{kept}{text[end:]}"
            yield f"{text[: colon.end()]} {written}{kept}{document.line_end}{text[end:]}"


def _emitter(document: Document, number: int) -> Callable[[Any], str]:
    if document.format == YAML:
        return yaml_flow
    text = document.entry_text(number)
    is_compact = re.search(r'":\S', text) is not None
    is_ascii = document.text.isascii() and "\\u" in document.text
    return lambda value: json_value(value, is_ascii=is_ascii, is_compact=is_compact)


def _with_new_field(
    document: Document,
    entry: Node,
    name: str,
    value: Any,  # noqa: ANN401
    emit: Callable[[Any], str],
) -> Iterator[str]:
    text = document.text
    known = [SPELLINGS.get(str(key.text), str(key.text)) for key in entry.keys]
    rank = _ORDER.index(name) if name in _ORDER else len(_ORDER)
    before = [place for place, other in enumerate(known) if other in _ORDER and _ORDER.index(other) < rank]
    places = [*([max(before)] if before else []), len(entry.items) - 1, 0]
    for place in dict.fromkeys(places):
        after = entry.items[place]
        if entry.is_flow:
            key = yaml_text(name) if document.format == YAML else emit(name)
            colon = ":" if emit({"a": 1}) == '{"a":1}' else ": "
            yield text[: after.end] + _separator(text, entry, place) + key + colon + emit(value) + text[after.end :]
            continue
        indent = " " * _column(text, entry.keys[0].start)
        field = yaml_field(name, value, indent, document.line_end)
        for end in _ends(after):
            line = _line_stop(text, end)
            if end == after.block_end:
                yield text[:end] + indent + field + document.line_end + text[end:]
            else:
                yield text[:line] + document.line_end + indent + field + text[line:]


def _separator(text: str, node: Node, place: int) -> str:
    """The separator between the items of a list or mapping in brackets."""
    starts = [key.start for key in node.keys] or [item.start for item in node.items]
    if place + 1 < len(node.items):
        found = text[node.items[place].end : starts[place + 1]]
    elif place > 0:
        found = text[node.items[place - 1].end : starts[place]]
    else:
        lead = text[node.start + 1 : starts[0]]
        found = "," + (lead if "\n" in lead else " ")
    return found if found.strip() == "," else ", "


def _without_item(text: str, node: Node, place: int) -> str:
    starts = [key.start for key in node.keys] or [item.start for item in node.items]
    if place + 1 < len(node.items):
        return text[: starts[place]] + text[starts[place + 1] :]
    begin = node.items[place - 1].end if place else node.start + 1
    return text[:begin] + text[node.items[place].end :]


def _without_lines(text: str, entry: Node, place: int) -> Iterator[str]:
    key, item = entry.keys[place], entry.items[place]
    begin = _line_start(text, key.start)
    if not text[begin : key.start].strip():
        for end in _ends(item):
            yield text[:begin] + text[end if end == item.block_end else _next_line(text, end) :]
    elif place + 1 < len(entry.items):
        # The first field, on the line of the dash.
        yield text[: key.start] + text[entry.keys[place + 1].start :]


def _with_items(
    document: Document, old: Node, own: Sequence[Any], wanted: Sequence[Any], emit: Callable[[Any], str]
) -> Iterator[str]:
    """Remove some items of a list and append others; the remaining items are not touched."""
    text = document.text
    kept: list[int] = []
    for place, item in enumerate(own):
        if len(kept) < len(wanted) and _same(item, wanted[len(kept)]):
            kept.append(place)
    more = wanted[len(kept) :]
    if not kept or len(own) != len(old.items):
        return
    if more:
        last = old.items[kept[-1]] if len(kept) == len(own) else old.items[-1]
        if old.is_flow:
            place = len(old.items) - 1
            new = "".join(_separator(text, old, place) + emit(item) for item in more)
            text = text[: last.end] + new + text[last.end :]
        else:
            dash = text.rfind("-", 0, last.start)
            indent = " " * _column(text, dash)
            at = _line_stop(text, last.end)
            new = "".join(f"{document.line_end}{indent}- {emit(item)}" for item in more)
            text = text[:at] + new + text[at:]
    for place in sorted(set(range(len(own))) - set(kept), reverse=True):
        item = old.items[place]
        if old.is_flow:
            if place + 1 < len(old.items):
                text = text[: item.start] + text[old.items[place + 1].start :]
            elif more:
                # The items after it are the new ones.
                comma = re.compile(r"\s*,\s*").match(text, item.end)
                text = text[: item.start] + text[item.end if comma is None else comma.end() :]
            else:
                text = _without_item(text, old, place)
        else:
            text = text[: _line_start(text, item.start)] + text[_next_line(text, item.end) :]
    yield text


# --- a new entry -------------------------------------------------------------------------------------


def _additions(document: Document, fields: Mapping[str, Any]) -> Iterator[str]:
    text, root, end = document.text, document.root, document.line_end
    if document.format == JSONL:
        emit = _emitter(document, 0) if root.items else json_value
        yield text + ("" if not text or text.endswith("\n") else end) + emit(dict(fields)) + end
        return
    if not root.items:
        return
    last = root.items[-1]
    if root.is_flow:
        emit = _emitter(document, len(root.items) - 1)
        new = emit(dict(fields))
        own = document.entry_text(len(root.items) - 1)
        if "\n" in own and document.format == JSON:
            margin = text[_line_start(text, last.start) : last.start]
            step = re.search(r"\n([ \t]*)\S", own)
            inner = step[1] if step is not None else margin + "  "
            new = "{" + ",".join(f"{end}{inner}{emit(k)}: {emit(v)}" for k, v in fields.items()) + f"{end}{margin}}}"
        yield text[: last.end] + _separator(text, root, len(root.items) - 1) + new + text[last.end :]
        return
    dash = text.rfind("-", 0, last.start)
    indent = " " * _column(text, dash)
    lines = [
        f"{indent}{'- ' if place == 0 else '  '}{yaml_field(name, value, indent + '  ', end)}"
        for place, (name, value) in enumerate(fields.items())
    ]
    gap = text[root.items[-2].end : last.start] if len(root.items) > 1 else ""
    space = end if gap.replace("\r", "").count("\n\n") else ""
    new = end.join(lines) + end
    yield text + ("" if text.endswith("\n") else end) + ("" if text.endswith(end + end) else space) + new
    for stop in _ends(last):
        at = _next_line(text, stop)
        yield text[:at] + space + new + text[at:]


def _is_added(before: Document, after: Document, fields: Mapping[str, Any]) -> bool:
    same = [entry.fields for entry in after.entries[:-1]] == [entry.fields for entry in before.entries]
    return same and _same_fields(after.entries[-1].fields, fields)


# --- reading back ------------------------------------------------------------------------------------


def _first_right(document: Document, number: int, ways: Iterator[str], wanted: Mapping[str, Any]) -> Document:
    for text in ways:
        changed = _tried(document.path, text)
        if changed is not None and _is_right(document, changed, number, wanted):
            return changed
    raise _refused(document, number)


def _is_right(before: Document, after: Document, number: int, wanted: Mapping[str, Any]) -> bool:
    if len(before.entries) != len(after.entries):
        return False
    return all(
        _same_fields(new.fields, wanted) if place == number else new.fields == old.fields and new.fault == old.fault
        for place, (old, new) in enumerate(zip(before.entries, after.entries, strict=True))
    )


def _tried(path: Path, text: str) -> Document | None:
    try:
        return take_apart(path, text)
    except GoldenError:
        return None


def _refused(document: Document, number: int) -> NotEditableError:
    entry = document.entries[number]
    name = id_of(entry.fields)
    msg = (
        f"line {entry.line}, entry {name}: it cannot be changed without changing something else, such as an anchor that"
        " is used elsewhere; edit it by hand"
    )
    return NotEditableError(str(document.path), [msg])


def _same_fields(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Null counts as missing, as in the checks."""
    names = [name for name in {**found, **wanted} if found.get(name) is not None or wanted.get(name) is not None]
    return all(_same(found.get(name), wanted.get(name)) for name in names)


def _same(read: Any, wanted: Any) -> bool:  # noqa: ANN401  (what a file holds; what is written)
    """Does a value that was read equal the intended one? Text must have been read as text."""
    if isinstance(wanted, Mapping):
        return (
            isinstance(read, Mapping)
            and read.keys() == wanted.keys()
            and all(_same(read[name], inner) for name, inner in wanted.items())
        )
    if isinstance(wanted, list | tuple):
        return isinstance(read, list) and len(read) == len(wanted) and all(map(_same, read, wanted))
    if isinstance(wanted, str | None):
        return bool(read == wanted) and (not is_bare(wanted) or isinstance(read, Plain))
    if isinstance(read, bool) or isinstance(wanted, bool):
        return str(read).lower() == str(wanted).lower()
    try:
        return isinstance(read, Plain | int | float) and float(read) == float(wanted)
    except ValueError:
        return False


# --- positions ---------------------------------------------------------------------------------------


def _ends(node: Node) -> list[int]:
    """Where text can be inserted after a value: after its own text, or after the lines that may belong to it."""
    last = node
    while last.items:
        last = last.items[-1]
    return [node.end] if last.block_end is None else [node.end, last.block_end]


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_stop(text: str, at: int) -> int:
    found = text.find("\n", at)
    if found < 0:
        return len(text)
    return found - 1 if text[found - 1 : found] == "\r" else found


def _next_line(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _column(text: str, at: int) -> int:
    return at - _line_start(text, at)
