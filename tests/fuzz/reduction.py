"""A case made smaller while it shows the same fault: fewer commands, files, rows, parts of JSON, characters."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.fuzz.cases import Case
from tests.fuzz.judging import Fault
from tests.fuzz.mutation import dumped, places

MOST_TRIES = 3000


def reduced(case: Case, kind: str, judged: Callable[[Case], Fault | None]) -> Case:
    """The smallest case that could be found; each step is kept that leaves the fault as it was."""
    tries = 0

    def still(other: Case) -> bool:
        nonlocal tries
        tries += 1
        with contextlib.suppress(Exception):
            fault = judged(other)
            return fault is not None and fault.kind == kind
        return False

    is_smaller = True
    while is_smaller and tries < MOST_TRIES:
        is_smaller = False
        for steps in STEPS:
            # What was tried before a step was taken is tried again only in the next round.
            skipped = 0
            while (other := next(itertools.islice(steps(case), skipped, None), None)) and tries < MOST_TRIES:
                if still(other):
                    case, is_smaller = other, True
                else:
                    skipped += 1
    return case


def _fewer_calls(case: Case) -> Iterator[Case]:
    yield from (replace(case, calls=fewer) for fewer in _shorter(list(case.calls)) if fewer)


def _fewer_files(case: Case) -> Iterator[Case]:
    for name in case.files:
        yield replace(case, files={other: content for other, content in case.files.items() if other != name})


def _fewer_rows(case: Case) -> Iterator[Case]:
    for table, rows in case.tables.items():
        for fewer in _shorter(list(rows)):
            yield replace(case, tables={**case.tables, table: fewer})


def _shorter_calls(case: Case) -> Iterator[Case]:
    for number, call in enumerate(case.calls):
        for place in range(1, len(call)):
            texts = [[]] if len(call[place]) < 12 else [[], *([text] for text in _shorter_text(call[place]))]
            for text in texts:
                changed = [*call[:place], *text, *call[place + 1 :]]
                yield replace(case, calls=[*case.calls[:number], changed, *case.calls[number + 1 :]])


def _shorter_files(case: Case) -> Iterator[Case]:
    for name, content in case.files.items():
        if isinstance(content, str):
            yield from (replace(case, files={**case.files, name: text}) for text in _texts(content))


def _shorter_rows(case: Case) -> Iterator[Case]:
    for table, rows in case.tables.items():
        for number, row in enumerate(rows):
            for name, value in row.items():
                for text in _texts(value) if isinstance(value, str) and len(value) > 3 else ():
                    changed = [*rows[:number], {**row, name: text}, *rows[number + 1 :]]
                    yield replace(case, tables={**case.tables, table: changed})


STEPS = (_fewer_calls, _fewer_rows, _fewer_files, _shorter_rows, _shorter_files, _shorter_calls)


def _shorter(items: list[Any]) -> Iterator[list[Any]]:
    size = len(items)
    while size:
        for start in range(0, len(items), size):
            yield [*items[:start], *items[start + size :]]
        size //= 2


def _texts(text: str) -> Iterator[str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        yield from _shorter_text(text)
        return
    yield from (spelt for spelt in map(dumped, _values(value)) if spelt != text)
    if len(text) < 200:
        yield from _shorter_text(text)


def _values(value: Any) -> Iterator[Any]:
    """The value without one of its parts."""
    for number in range(len(list(places([value])))):
        holder = [copy.deepcopy(value)]
        container, key = list(places(holder))[number]
        if container is holder:
            continue
        del container[key]
        yield holder[0]


def _shorter_text(text: str) -> Iterator[str]:
    size = max(1, len(text) // 2)
    while size:
        for start in range(0, len(text), size):
            yield text[:start] + text[start + size :]
        size //= 2
