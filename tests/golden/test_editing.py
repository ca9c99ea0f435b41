"""Golden files are edited in place: everything else stays the same, byte for byte."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from kbeval.golden.editing import (
    REMOVED,
    Document,
    NotEditableError,
    add_entry,
    change_entry,
    remove_entry,
    replace_entry,
    take_apart,
)

YAML_FILE, JSON_FILE, JSONL_FILE = Path("golden.yaml"), Path("golden.json"), Path("golden.jsonl")
SPAN = {"doc_id": "d1", "kind": "line", "start": 3, "end": 4}


def second_opinion(text: str) -> Any:
    """The file as another YAML library reads it."""
    return YAML(typ="safe", pure=True).load(io.StringIO(text))


def others(document: Document, number: int) -> list[str]:
    """All text except that of one entry: before it, and after it."""
    start, end = document.reach(number)
    return [document.text[:start], document.text[end:]]


# --- generated files -----------------------------------------------------------------------------------

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Cn", "Co", "Zl", "Zp"), exclude_characters="\ufeff"),
    min_size=1,
    max_size=30,
)
SCALARS = st.one_of(TEXTS, st.integers(0, 99), st.booleans(), st.just(None))
WORDS = st.lists(TEXTS, max_size=4)
COMMENTS = st.sampled_from(["", "  # a comment", "  # é – ü: [x] {y}", "   "])
BETWEEN = st.sampled_from(["", "\n", "# between\n", "\n# two\n\n"])


def quoted(value: Any, style: str) -> str:
    if isinstance(value, str):
        if style == "single" and value.isprintable():
            return "'" + value.replace("'", "''") + "'"
        return json.dumps(value, ensure_ascii=style == "ascii" and max(value) < "\U00010000")
    return json.dumps(value)


@st.composite
def yaml_entry(draw: st.DrawFn, number: int) -> tuple[str, dict[str, Any]]:
    """An entry in one of the ways in which people write them."""
    indent = "  "
    fields: dict[str, Any] = {"id": f"q{number}", "query": draw(TEXTS)}
    fields |= draw(st.fixed_dictionaries({}, optional={"own_field": SCALARS, "tags": WORDS, "must_contain": WORDS}))
    fields |= draw(st.fixed_dictionaries({}, optional={"expected_chunk_ids": WORDS}))
    style = draw(st.sampled_from(["single", "double", "ascii"]))
    names = draw(st.permutations(list(fields)))
    if draw(st.integers(0, 3)) == 0:
        inner = ", ".join(f"{name}: {flow(fields[name], style)}" for name in names)
        return "{" + inner + "}" + draw(COMMENTS) + "\n", fields
    lines = []
    for name in names:
        value = fields[name]
        comment = draw(COMMENTS)
        if isinstance(value, list) and value and draw(st.booleans()):
            items = [f"{indent}- {quoted(item, style)}{draw(COMMENTS)}" for item in value]
            lines += [f"{name}:{comment}", *items]
        elif name == "own_field" and isinstance(value, str) and draw(st.booleans()):
            mark = draw(st.sampled_from(["|", "|-", ">", "|+"]))
            words = "".join(c for c in value if c.isalnum() and c.isascii()) or "text"
            fields[name] = words + ("" if mark == "|-" else "\n")
            lines += [f"{name}: {mark}", f"    {words}"]
        else:
            lines.append(f"{name}: {flow(value, style)}{comment}")
    return f"\n{indent}".join(lines) + "\n", fields


def flow(value: Any, style: str) -> str:
    return "[" + ", ".join(quoted(v, style) for v in value) + "]" if isinstance(value, list) else quoted(value, style)


@st.composite
def yaml_file(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    entries = [draw(yaml_entry(number)) for number in range(draw(st.integers(1, 4)))]
    if draw(st.booleans()):
        # An anchor that every entry after it uses, and a text that goes over lines.
        long = "a word " * 40 + "at the end"
        first = "id: base\n  kept: &one [x, 'y']\n  query: >-\n    " + long.replace(" at", "\n    at") + "\n"
        fields = {"id": "base", "kept": ["x", "y"], "query": long}
        others = [
            (text, one) if text.startswith("{") else (f"same: *one\n  {text}", {**one, "same": ["x", "y"]})
            for text, one in entries
        ]
        entries = [(first, fields), *others]
    text = draw(st.sampled_from(["", "# head\n", "---\n", "# head\n---\n# more\n"]))
    for entry, _ in entries:
        text += f"- {entry}{draw(BETWEEN)}"
    if draw(st.booleans()):
        text = text.rstrip("\n") if "|" not in text and ">" not in text else text
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))), [fields for _, fields in entries]


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "expected_spans": st.lists(st.just(SPAN), min_size=1, max_size=4),
        "expected_chunk_ids": WORDS,
        "must_contain": WORDS,
        "answerable": st.booleans(),
        "query": TEXTS,
        "tags": st.just(REMOVED),
    },
)


def after(fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in {**fields, **changes}.items() if v is not REMOVED and v is not None}


@given(yaml_file(), CHANGES, st.data())
def test_yaml_only_the_changed_entry_changes(
    made: tuple[str, list[dict[str, Any]]], changes: dict[str, Any], data: st.DataObject
) -> None:
    text, fields = made
    document = take_apart(YAML_FILE, text)
    number = data.draw(st.integers(0, len(fields) - 1))
    changed = change_entry(document, number, changes)
    assert others(changed, number)[0] == others(document, number)[0]
    tail, before = others(changed, number)[1], others(document, number)[1]
    # Of a block scalar at the end of an entry, the empty lines may be inside the entry now.
    assert before.lstrip("\r\n") == tail.lstrip("\r\n")
    found = [{k: v for k, v in one.items() if v is not None} for one in second_opinion(changed.text)]
    wanted = [after(one, changes if place == number else {}) for place, one in enumerate(fields)]
    assert found == wanted
    # Back again: byte for byte.
    if before == tail:
        assert replace_entry(changed, number, document.entry_text(number)).text == text
    added = add_entry(changed, {"id": "new-1", "query": "what: is #this?"})
    assert added.text.startswith(changed.text.rstrip("\r\n"))
    assert second_opinion(added.text)[-1] == {"id": "new-1", "query": "what: is #this?"}
    assert remove_entry(added, len(fields)).entries == changed.entries


@st.composite
def json_file(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]], Path]:
    entries = []
    for number in range(draw(st.integers(1, 4))):
        fields: dict[str, Any] = {"id": f"q{number}", "query": draw(TEXTS)}
        fields |= draw(st.fixed_dictionaries({}, optional={"own": SCALARS, "tags": WORDS, "must_contain": WORDS}))
        fields |= draw(st.fixed_dictionaries({}, optional={"expected_chunk_ids": WORDS, "o": st.just({"a": [1, {}]})}))
        entries.append(fields)
    ascii_only = draw(st.booleans())
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    if draw(st.booleans()):
        lines = [json.dumps(entry, ensure_ascii=ascii_only, separators=separators) for entry in entries]
        end = draw(st.sampled_from(["\n", "\r\n"]))
        return end.join(lines) + draw(st.sampled_from(["", end, end + end])), entries, JSONL_FILE
    indent = draw(st.sampled_from([None, 1, 2, 4]))
    text = json.dumps(entries, ensure_ascii=ascii_only, separators=separators, indent=indent)
    return text + draw(st.sampled_from(["", "\n"])), entries, JSON_FILE


@given(json_file(), CHANGES, st.data())
def test_json_only_the_changed_entry_changes(
    made: tuple[str, list[dict[str, Any]], Path], changes: dict[str, Any], data: st.DataObject
) -> None:
    text, fields, path = made
    document = take_apart(path, text)
    number = data.draw(st.integers(0, len(fields) - 1))
    changed = change_entry(document, number, changes)
    assert others(changed, number) == others(document, number)
    added = add_entry(changed, {"id": "new-1", "query": "é"})
    lines = [added.text] if path == JSON_FILE else [line for line in added.text.split("\n") if line.strip()]
    read = json.loads(lines[0]) if path == JSON_FILE else list(map(json.loads, lines))
    found = [{k: v for k, v in one.items() if v is not None} for one in read]
    wanted = [after(one, changes if place == number else {}) for place, one in enumerate(fields)]
    assert found == [*wanted, {"id": "new-1", "query": "é"}]
    assert replace_entry(changed, number, document.entry_text(number)).text == document.text


# --- by hand -------------------------------------------------------------------------------------------

HAND = """# The golden file.
- id: q1   # the first
  query: "How?"  # why
  expected_chunk_ids:   # ids
    - a   # the best one
    - b
  tags: [x]

- {id: q2, query: what, expected_chunk_ids: [a, "b"]}  # flow
# between
- id: q3
  note: |+
    kept

- id: q4
  query: >-
    folded
    text
  group: &g one
- id: q5
  query: q
  group: *g
"""


def test_a_list_keeps_its_items_and_their_comments() -> None:
    document = take_apart(YAML_FILE, HAND)
    changed = change_entry(document, 0, {"expected_chunk_ids": ["a", "c: d"], "expected_spans": [SPAN]})
    assert changed.entry_text(0) == (
        'id: q1   # the first\n  query: "How?"  # why\n'
        '  expected_chunk_ids:   # ids\n    - a   # the best one\n    - "c: d"\n'
        "  expected_spans: [{doc_id: d1, kind: line, start: 3, end: 4}]\n  tags: [x]"
    )
    changed = change_entry(changed, 1, {"expected_chunk_ids": ["b", "z"]})
    assert changed.entry_text(1) == '{id: q2, query: what, expected_chunk_ids: ["b", z]}'
    back = change_entry(changed, 0, {"expected_spans": REMOVED, "expected_chunk_ids": REMOVED})
    assert back.entry_text(0) == 'id: q1   # the first\n  query: "How?"  # why\n  tags: [x]'


def test_an_anchor_that_another_entry_uses_is_not_changed() -> None:
    document = take_apart(YAML_FILE, HAND)
    with pytest.raises(NotEditableError, match="entry q4: it cannot be changed"):
        change_entry(document, 3, {"group": "two"})
    assert change_entry(document, 4, {"group": "two"}).entry_text(4).endswith("group: two")


def test_a_merged_field_is_overridden_and_not_removed_elsewhere() -> None:
    text = "- &base {id: a, query: x, tags: [t]}\n- <<: *base\n  id: b\n"
    changed = change_entry(take_apart(YAML_FILE, text), 1, {"tags": REMOVED, "answerable": True})
    assert (
        changed.text == "- &base {id: a, query: x, tags: [t]}\n- <<: *base\n  id: b\n  answerable: true\n  tags: null\n"
    )
