"""Checks golden entries and brings their three spellings to one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbeval.golden.reading import Entry, Plain
from kbeval.text import did_you_mean

_TRUE = frozenset(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"))
_FALSE = frozenset(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"))

SPELLINGS = {"qid": "id", "question": "query", "gold_citations": "expected_chunk_ids"}

_MAX_WARNINGS = 20

Value = Any
Fault = tuple[int, str]


class _WrongError(ValueError):
    """A value that does not fit its field."""


def _text(value: Value) -> str:
    if not isinstance(value, str) or not value:
        msg = "must be text" if value != "" else "must not be empty"
        raise _WrongError(msg)
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            msg = "holds half a character (a lone surrogate)"
            raise _WrongError(msg) from None
    return str(value)


def _any_text(value: Value) -> str:
    return "" if value == "" else _text(value)


def _texts(value: Value) -> list[str]:
    if not isinstance(value, list):
        msg = "must be a list of text"
        raise _WrongError(msg)
    try:
        return list(map(_text, value))
    except _WrongError as error:
        msg = f"must be a list of text; an item {error}"
        raise _WrongError(msg) from None


def _truth(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, Plain) and (value in _TRUE or value in _FALSE):
        return value in _TRUE
    msg = "must be true or false"
    raise _WrongError(msg)


def _number(value: Value) -> float:
    try:
        number = float(value) if isinstance(value, Plain) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        msg = "must be a number"
        raise _WrongError(msg)
    return number


def _grades(value: Value) -> dict[str, float]:
    if not isinstance(value, dict):
        msg = "must map chunk ids to grades"
        raise _WrongError(msg)
    try:
        return {_text(chunk): _number(grade) for chunk, grade in value.items()}
    except _WrongError as error:
        msg = f"must map chunk ids to grades; one {error}"
        raise _WrongError(msg) from None


def _spans(value: Value) -> list[dict[str, Value]]:
    if not isinstance(value, list) or not all(isinstance(span, dict) for span in value):
        msg = "must be a list of {doc_id or path, kind, start, end}"
        raise _WrongError(msg)
    spans = []
    for span in value:
        if not ("doc_id" in span or "path" in span) or "kind" not in span:
            msg = "must name doc_id or path, and kind, in every span"
            raise _WrongError(msg)
        texts = {name: _text(span[name]) for name in ("doc_id", "path", "kind") if span.get(name) is not None}
        numbers = {_text(name): _number(span[name]) for name in span if name not in texts and span[name] is not None}
        spans.append({**texts, **numbers})
    return spans


def _supports(value: Value) -> list[dict[str, Value]]:
    if not isinstance(value, list) or not all(isinstance(support, dict) for support in value):
        msg = "must be a list of {rel_path, heading_path, snippets}"
        raise _WrongError(msg)
    supports = []
    for number, support in enumerate(value):
        try:
            heading = support.get("heading_path")
            supports.append(
                {
                    "rel_path": _text(support.get("rel_path")),
                    "heading_path": _texts(heading) if isinstance(heading, list) else _any_text(heading or ""),
                    "snippets": _texts(support.get("snippets") or []),
                }
            )
        except _WrongError as error:
            msg = f"support {number}: rel_path, heading_path or snippets {error}"
            raise _WrongError(msg) from None
    return supports


def _groups(value: Value) -> list[list[int]]:
    msg = "must be lists of support numbers, like [[0, 1], [2]]"
    if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
        raise _WrongError(msg)
    numbers = [[_number(item) for item in group] for group in value]
    if any(number != int(number) or number < 0 for group in numbers for number in group):
        raise _WrongError(msg)
    return [[int(number) for number in group] for group in numbers]


FIELDS: dict[str, Callable[[Value], Value]] = {
    "id": _text,
    "query": _text,
    "expected_chunk_ids": _texts,
    "expected_doc_ids": _texts,
    "expected_spans": _spans,
    "relevance": _grades,
    "must_contain": _texts,
    "forbidden": _texts,
    "gold_claim_substr": _texts,
    "gold_supports": _supports,
    "required_support_groups": _groups,
    "answerable": _truth,
    "lang": _text,
    "difficulty": _text,
    "category": _text,
    "tags": _texts,
    "group": _text,
    "vaults": _texts,
    "folders": _texts,
    "expected_key_facts": _texts,
    "recency_conflict_rule": _text,
    "constraints": _texts,
}


@dataclass
class Checked:
    """What the checks made of a file."""

    entries: list[dict[str, Value]] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_entries(entries: Sequence[Entry]) -> Checked:
    """Check every entry; collect all faults instead of stopping at the first."""
    checked = Checked()
    unknown: dict[str, list[int]] = {}
    for number, entry in enumerate(entries, start=1):
        _check_entry(number, entry, checked, unknown)
    for name, lines in list(unknown.items())[:_MAX_WARNINGS]:
        where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines):,} entries, first at line {lines[0]}"
        hint = did_you_mean(name, [*FIELDS, *SPELLINGS])
        checked.warnings.append(f"unknown field {name!r} is ignored ({where}){hint}")
    if len(unknown) > _MAX_WARNINGS:
        checked.warnings.append(f"{len(unknown) - _MAX_WARNINGS:,} more unknown fields are ignored")
    return checked


def _check_entry(number: int, entry: Entry, checked: Checked, unknown: dict[str, list[int]]) -> None:
    texts = [entry.fault] if entry.fault is not None else []
    values: dict[str, Value] = {}
    if entry.fault is None:
        texts = _read_fields(entry, values, unknown)
        if "required_support_groups" in values:
            texts += _group_numbers(values)
        if "id" in values:
            if values["id"] in checked.lines:
                texts.append(f"id {values['id']!r} is used before, at line {checked.lines[values['id']]}")
            else:
                checked.lines[values["id"]] = entry.line
                checked.entries.append(values)
    if texts:
        name = entry.fields.get("id", entry.fields.get("qid"))
        label = f"entry {number} ({name!s})" if isinstance(name, str) and name else f"entry {number}"
        checked.faults += [(entry.line, f"line {entry.line}, {label}: {text}") for text in texts]


def _read_fields(entry: Entry, values: dict[str, Value], unknown: dict[str, list[int]]) -> list[str]:
    """Bring the fields to their one spelling in `values`; returns what is wrong."""
    faults = []
    given: dict[str, str] = {}
    for spelling, value in entry.fields.items():
        known = SPELLINGS.get(spelling, spelling)
        if known not in FIELDS:
            unknown.setdefault(spelling, []).append(entry.line)
        elif known in given:
            faults.append(f"{given[known]!r} and {spelling!r} mean the same; keep one")
        elif value is not None:
            given[known] = spelling
            try:
                values[known] = FIELDS[known](value)
            except _WrongError as error:
                faults.append(f"{spelling} {error}")
    faults += [
        f"has no {required!r} (or {also!r})"
        for required, also in (("id", "qid"), ("query", "question"))
        if required not in given
    ]
    return faults


def _group_numbers(values: dict[str, Value]) -> list[str]:
    supports = len(values.get("gold_supports", []))
    wrong = {number for group in values["required_support_groups"] for number in group if number >= supports}
    return [
        f"required_support_groups points at support {number}, but there are {supports}, counted from 0"
        for number in sorted(wrong)
    ]


def group_faults(checked: Checked) -> list[Fault]:
    """Queries of one group are the same question in other words, so they expect the same documents."""
    faults: list[Fault] = []
    seen: dict[str, dict[str, Value]] = {}
    for entry in checked.entries:
        if "group" not in entry or "expected_doc_ids" not in entry:
            continue
        other = seen.setdefault(entry["group"], entry)
        if set(other["expected_doc_ids"]) != set(entry["expected_doc_ids"]):
            line = checked.lines[entry["id"]]
            text = f"group {entry['group']!r}: expected_doc_ids differ from those of {other['id']!r}"
            faults.append((line, f"line {line}, entry {entry['id']}: {text}"))
    return faults
