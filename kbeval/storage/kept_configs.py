"""The configurations of archived runs: without their secrets, and still comparable.

In an archive each secret is replaced by a number, the same in all runs that have the same secret, so comparing runs
gives the same result for an archive as for the database. The number reveals nothing else: it is not computed from the
secret, so the archive cannot be used to test a guess. A secret keeps its number for as long as a run of the database
has it; if it returns after that, it gets a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kbeval.storage.run_config import kept_config
from kbeval.storage.runs import Run
from kbeval.util.hiding import Hider, is_hidden, marks_in, number_of


def without_secrets_of(now: Sequence[Run], before: Sequence[Run], gone: Sequence[Run]) -> list[Run]:
    """Runs as they are to be archived.

    `now`: as they are in the database. `before`: those of them that were archived already, as archived. `gone`: runs
    that are only in the archive.
    """
    taken = {mark: number_of(mark) for run in (*before, *gone) for mark in marks_in(run.config_json)}
    hider = Hider(dict(_numbered(now, before)), after=max(taken.values(), default=0))
    found = [replace(run, config_json=kept_config(run.config_json, hider)) for run in now]
    # What is already hidden stays unchanged; what an earlier version did not hide gets the numbers used here.
    own = {name: number for name, number in hider.numbers.items() if not is_hidden(name)}
    past = Hider({**own, **{mark: number for mark, number in taken.items() if number}}, after=hider.last)
    return [*found, *(replace(run, config_json=kept_config(run.config_json, past)) for run in gone)]


def _numbered(now: Sequence[Run], before: Sequence[Run]) -> Iterator[tuple[str, int]]:
    """The secrets of runs whose configuration did not change, with their archived numbers."""
    earlier = {run.run_id: run.config_json for run in before}
    used: set[int] = set()
    named: set[str] = set()
    for run in now:
        there = earlier.get(run.run_id, "")
        marks = marks_in(there)
        if not marks or kept_config(there) != kept_config(run.config_json):
            continue
        hider = Hider()
        kept_config(run.config_json, hider)
        if len(hider.met) != len(marks):
            continue
        for name, mark in zip(hider.met, marks, strict=True):
            number = number_of(mark)
            if number and name not in named and number not in used:
                named.add(name)
                used.add(number)
                yield name, number
