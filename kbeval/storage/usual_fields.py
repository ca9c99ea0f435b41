"""The objects that rows usually have, and their fields, as a few rows show them.

A system writes all of its rows in one way, so their objects have the same few sets of fields. If every object of a row
is in a usual place and has a usual set of fields, no key is duplicate, and the engine sees that in half the time. All
other rows are looked at in full.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kbeval.engine.quoting import literal

# Names that are the same in JSON, in a path and in SQL.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INDEX = re.compile(r"\[\d+\]")
# More of them take longer than looking at every field.
_MOST_PLACES, _MOST_SETS = 400, 60
# The share of rows that must be as usual to make it worth while.
_WORTH = 0.75


class _UnusualError(Exception):
    """A row that says nothing about others."""


class _Fields(list[tuple[str, Any]]):
    """An object, with all of its fields."""


class _Row(NamedTuple):
    """The places of the objects of one row, and the names of the fields of each."""

    objects: dict[str, tuple[str, ...]]
    braces: int

    def is_usual(self, places: frozenset[str], sets: frozenset[tuple[str, ...]]) -> bool:
        objects = self.objects
        return len(objects) == self.braces and places >= objects.keys() and sets.issuperset(objects.values())


def usual_fields(texts: Sequence[str]) -> dict[str, str]:
    """The macros `has_usual_fields` and `is_usual_field` for rows like these, or none if they differ too much."""
    rows = list(_rows(texts))
    # What one half shows must hold for the other.
    places, sets = _seen(rows[::2])
    others = rows[1::2]
    if not others or sum(row.is_usual(places, sets) for row in others) < _WORTH * len(texts[1::2]):
        return {}
    places, sets = _seen(rows)
    if not places or len(sets) > _MOST_SETS:
        return {}
    return _macros(sorted(places), sorted(sets))


def _macros(places: Sequence[str], sets: Sequence[Sequence[str]]) -> dict[str, str]:
    keys = f"json_keys(t, [{', '.join(map(literal, places))}])"
    usual = ", ".join(f"[{', '.join(map(literal, names))}]" for names in sets)
    # Every list with names is of an object in another place. If there are as many of them as braces, there is no object
    # anywhere else. Each expression occurs once: within CASE, the engine would compute it as often as it occurs.
    # Counting is faster than filtering.
    n_usual = f"list_count(list_transform({keys}, lambda names: CASE WHEN names IN ({usual}) THEN true END))"
    names = ", ".join(map(literal, sorted(set(itertools.chain.from_iterable(sets)))))
    return {
        "has_usual_fields": f"CREATE MACRO has_usual_fields(t) AS {n_usual} = strlen(t) - strlen(replace(t, '{{', ''))",
        "is_usual_field": f"CREATE MACRO is_usual_field(name) AS name IN ({names})",
    }


def _rows(texts: Sequence[str]) -> Iterator[_Row]:
    for text in texts:
        # It has more objects than there may be places.
        if text.count("{") > _MOST_PLACES:
            continue
        try:
            objects = dict(_objects(json.loads(text, object_pairs_hook=_Fields), "$"))
        except (ValueError, RecursionError, _UnusualError):
            continue
        yield _Row(objects, text.count("{"))


def _objects(value: Any, place: str) -> Iterator[tuple[str, tuple[str, ...]]]:  # noqa: ANN401  (any JSON)
    if isinstance(value, _Fields):
        names = tuple(name for name, _ in value)
        if not names or len(set(names)) < len(names) or not all(map(_PLAIN.fullmatch, names)):
            raise _UnusualError
        yield place, names
        for name, field in value:
            yield from _objects(field, f"{place}.{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _objects(item, f"{place}[{number}]")


def _seen(rows: Sequence[_Row]) -> tuple[frozenset[str], frozenset[tuple[str, ...]]]:
    """The places of the objects of these rows, each list as long as the longest of its kind, and the sets of fields.
    None of them if there are too many places.
    """
    lengths: dict[str, list[int]] = {}
    for place in itertools.chain.from_iterable(row.objects for row in rows):
        found = [int(number[1:-1]) + 1 for number in _INDEX.findall(place)]
        longest = lengths.setdefault(_INDEX.sub("[]", place), found)
        longest[:] = map(max, longest, found)
    if sum(map(math.prod, lengths.values())) > _MOST_PLACES:
        return frozenset(), frozenset()
    places = set()
    for kind, longest in lengths.items():
        pieces = kind.split("[]")
        for numbers in itertools.product(*map(range, longest)):
            indexes = (*(f"[{number}]" for number in numbers), "")
            places.add("".join(map("".join, zip(pieces, indexes, strict=True))))
    return frozenset(places), frozenset(itertools.chain.from_iterable(row.objects.values() for row in rows))
