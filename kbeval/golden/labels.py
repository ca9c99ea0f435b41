"""Checks golden entries and normalizes the three spellings of their fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kbeval.golden import scalars, spans
from kbeval.golden.reading import Entry
from kbeval.golden.scalars import Value, WrongError
from kbeval.util.numbers import MAX_GRADE
from kbeval.util.text import did_you_mean

SPELLINGS = {"qid": "id", "question": "query", "gold_citations": "expected_chunk_ids"}
# Read as the id if there is no other; otherwise it is treated like any unknown field.
OTHER_ID = "q_id"
_IDS = ("id", "qid", OTHER_ID)
# Distinguishes fields of the spans in an entry from fields of the entry.
_OF_SPANS = "expected_spans."

_MAX_WARNINGS = 20

Fault = tuple[int, str]


def _grades(value: Value) -> dict[str, float]:
    if not isinstance(value, dict):
        msg = "must map chunk ids to grades"
        raise WrongError(msg)
    try:
        grades = {scalars.text(chunk): scalars.number(grade) for chunk, grade in value.items()}
    except WrongError as error:
        msg = f"must map chunk ids to grades; one {error}"
        raise WrongError(msg) from None
    if wrong := next((chunk for chunk, grade in grades.items() if not 0 <= grade <= MAX_GRADE), None):
        msg = f"must map chunk ids to grades from 0 (judged, not relevant) to {MAX_GRADE:,}; {wrong!r} has another one"
        raise WrongError(msg)
    return grades


def _heading(value: Value) -> str | list[str]:
    """A heading path as text or a list; an empty one means the whole file."""
    if isinstance(value, list):
        return scalars.texts_that_say_something(value)
    return "" if value is None else scalars.text_or_nothing(value) or ""


def _snippets(value: Value) -> list[str]:
    return scalars.texts(value or [])


_SUPPORT: dict[str, Callable[[Value], Value]] = {
    "rel_path": scalars.text,
    "heading_path": _heading,
    "snippets": _snippets,
}


def _supports(value: Value) -> list[dict[str, Value]]:
    if not isinstance(value, list) or not all(isinstance(support, dict) for support in value):
        msg = "must be a list of {rel_path, heading_path, snippets}"
        raise WrongError(msg)
    faults: list[str] = []
    supports: list[dict[str, Value]] = []
    for number, support in enumerate(value):
        supports.append({})
        for name, read in _SUPPORT.items():
            try:
                supports[-1][name] = read(support.get(name))
            except WrongError as error:
                faults.append(f"support {number}: {name} {error}")
    if faults:
        raise WrongError(*faults)
    return supports


def _groups(value: Value) -> list[list[int]]:
    msg = "must be lists of support numbers, like [[0, 1], [2]]"
    if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
        raise WrongError(msg)
    numbers = [[scalars.number(item) for item in group] for group in value]
    if any(number != int(number) or number < 0 for group in numbers for number in group):
        raise WrongError(msg)
    return [[int(number) for number in group] for group in numbers]


FIELDS: dict[str, Callable[[Value], Value]] = {
    "id": scalars.text,
    "query": scalars.text,
    "expected_chunk_ids": scalars.texts,
    "expected_doc_ids": scalars.texts,
    "expected_spans": spans.spans,
    "relevance": _grades,
    # Every answer contains the empty string, so as a rule it is a fault.
    "must_contain": scalars.texts,
    "forbidden": scalars.texts,
    "gold_claim_substr": scalars.texts,
    "gold_supports": _supports,
    "required_support_groups": _groups,
    "answerable": scalars.truth,
    # Descriptions of the query. Blank ones count as not given.
    "lang": scalars.text_or_nothing,
    "difficulty": scalars.text_or_nothing,
    "category": scalars.text_or_nothing,
    "group": scalars.text_or_nothing,
    "recency_conflict_rule": scalars.text_or_nothing,
    "tags": scalars.texts_that_say_something,
    "vaults": scalars.texts_that_say_something,
    "folders": scalars.texts_that_say_something,
    "expected_key_facts": scalars.texts_that_say_something,
    "constraints": scalars.texts_that_say_something,
}


@dataclass
class Checked:
    """The result of checking a file."""

    entries: list[dict[str, Value]] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # Unknown fields, by id.
    own: dict[str, dict[str, Value]] = field(default_factory=dict)


def check_entries(entries: Sequence[Entry]) -> Checked:
    """Check every entry; collect all faults instead of stopping at the first."""
    checked = Checked()
    unknown: dict[str, list[int]] = {}
    for number, entry in enumerate(entries, start=1):
        _check_entry(number, entry, checked, unknown)
    for name, lines in list(unknown.items())[:_MAX_WARNINGS]:
        where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines):,} entries, first at line {lines[0]}"
        checked.warnings.append(f"unknown field {name!r} is ignored ({where}){_hint(name)}")
    if len(unknown) > _MAX_WARNINGS:
        checked.warnings.append(f"{len(unknown) - _MAX_WARNINGS:,} more unknown fields are ignored")
    return checked


def _hint(name: str) -> str:
    """The most similar known name of a field, which may be a field of a span."""
    if not name.startswith(_OF_SPANS):
        return did_you_mean(name, [*FIELDS, *SPELLINGS])
    own = name.removeprefix(_OF_SPANS)
    return "" if own in spans.NAMES else did_you_mean(own, spans.NAMES)


def _check_entry(number: int, entry: Entry, checked: Checked, unknown: dict[str, list[int]]) -> None:
    texts = [entry.fault] if entry.fault is not None else []
    values: dict[str, Value] = {}
    own: dict[str, Value] = {}
    if entry.fault is None:
        texts = _read_fields(entry, values, unknown, own)
        if "required_support_groups" in values:
            texts += _group_numbers(values)
        if "relevance" in values:
            texts += _expect_relevant(values)
        if "id" in values:
            if values["id"] in checked.lines:
                texts.append(f"duplicate id {values['id']!r}, first used at line {checked.lines[values['id']]}")
            else:
                checked.lines[values["id"]] = entry.line
                checked.entries.append(values)
                if own:
                    checked.own[values["id"]] = own
    if texts:
        name = next((entry.fields[name] for name in _IDS if entry.fields.get(name) is not None), None)
        label = f"entry {number} ({name!s})" if isinstance(name, str) and name else f"entry {number}"
        checked.faults += [(entry.line, f"line {entry.line}, {label}: {text}") for text in texts]


def _read_fields(
    entry: Entry, values: dict[str, Value], unknown: dict[str, list[int]], own: dict[str, Value]
) -> list[str]:
    """Store the fields under their normalized names in `values`, unknown ones in `own`; returns what is wrong."""
    faults: list[str] = []
    given: dict[str, str] = {}
    spellings = SPELLINGS if _has_id(entry.fields) else {**SPELLINGS, OTHER_ID: "id"}
    for spelling, value in entry.fields.items():
        known = spellings.get(spelling, spelling)
        if known not in FIELDS:
            unknown.setdefault(spelling, []).append(entry.line)
            own[spelling] = value
        elif known in given:
            faults.append(f"{given[known]!r} and {spelling!r} mean the same; keep one")
        elif value is not None:
            given[known] = spelling
            try:
                read = FIELDS[known](value)
            except WrongError as error:
                faults += [f"{spelling} {fault}" for fault in error.args]
                continue
            if read is not None:
                values[known] = read
            if known == "expected_spans":
                for name in dict.fromkeys(spans.unread_names(value)):
                    unknown.setdefault(f"{_OF_SPANS}{name}", []).append(entry.line)
    faults += [
        f"has no {required!r} (or {also!r})"
        for required, also in (("id", "qid"), ("query", "question"))
        if required not in given
    ]
    return faults


def _expect_relevant(values: dict[str, Value]) -> list[str]:
    """Without expected_chunk_ids, the chunks with a grade above 0 are expected; returns what contradicts itself."""
    grades = values["relevance"]
    if "expected_chunk_ids" not in values:
        if relevant := [chunk for chunk, grade in grades.items() if grade > 0]:
            values["expected_chunk_ids"] = relevant
        return []
    wrong = [chunk for chunk in dict.fromkeys(values["expected_chunk_ids"]) if grades.get(chunk) == 0]
    return [f"relevance gives {chunk!r} the grade 0 (not relevant), but it is expected" for chunk in wrong]


def _has_id(fields: Mapping[str, Value]) -> bool:
    return any(fields.get(name) is not None for name in _IDS if name != OTHER_ID)


def _group_numbers(values: dict[str, Value]) -> list[str]:
    supports = len(values.get("gold_supports", []))
    wrong = {number for group in values["required_support_groups"] for number in group if number >= supports}
    return [
        f"required_support_groups refers to support {number}, but there are only {supports}, counted from 0"
        for number in sorted(wrong)
    ]


def group_faults(checked: Checked) -> list[Fault]:
    """Queries of one group are paraphrases of the same question, so they must expect the same documents."""
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
