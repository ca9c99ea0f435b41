"""Stored runs, and how they are named: an id, a unique prefix, `latest`, or one of these and `~N`.

`latest` is the newest run of all, or of the suite that was asked for. `RUN~N` is the Nth run before RUN in its suite:
runs of other suites are not counted. A run whose id is the whole name comes first, unless the name always means a place
(`latest`, `previous`, `~1`): then it is ambiguous. A place is known only where every run that it is counted among has a
moment as its `created_at`; otherwise names by place are refused, never guessed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from kbeval.config import MATCHES, MISSING, OVERLAPS_OF
from kbeval.errors import BrokenRunsError, KbevalError, UsageError
from kbeval.model import AggregateMetrics
from kbeval.moments import moment
from kbeval.text import counted, cut, did_you_mean, is_utf8, shown

LATEST, PREVIOUS = "latest", "previous"
# What can be wrong with the keys of a run, by the code under which `check` reports it.
REPEATED_ROW, REPEATED_RUN, UNREADABLE_KEY = "repeated-row", "repeated-run", "unreadable-key"
_BACK = re.compile(r"(.*)~([0-9]{1,9})", re.DOTALL)
_BY_PLACE = re.compile(r"previous|latest(~[0-9]{1,9})?|~[0-9]{1,9}")


class RunId(str):
    """The id of a stored run. Given as a name it means that run, and never a place."""

    __slots__ = ()


@dataclass(frozen=True)
class Run:
    """A stored run, without its rows."""

    run_id: str
    suite: str
    created_at: str
    commit_hash: str | None
    config_json: str
    aggregate_json: str
    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "run_id", RunId(self.run_id))

    def order(self) -> tuple[bool, datetime | str, str, str]:
        """Oldest first. A run without a date has no place in time, and stands before those that have one."""
        made = moment(self.created_at)
        return made is not None, made or "", self.created_at, self.run_id

    @property
    def is_dated(self) -> bool:
        """Is it known when it was made?"""
        return moment(self.created_at) is not None

    def aggregate(self) -> AggregateMetrics | None:
        """The stored numbers; None where the run has not been scored, or not by anything we can read."""
        try:
            stored = json.loads(self.aggregate_json)
        except (ValueError, RecursionError):
            return None
        return AggregateMetrics.from_dict(stored) if isinstance(stored, dict) and stored else None

    def scored_with(self, what: str) -> str | None:
        """What its stored numbers were made with, by its name in their provenance; None where nothing says."""
        aggregate = self.aggregate()
        found = aggregate.provenance.get(what) if aggregate is not None else None
        return found if isinstance(found, str) else None

    def scored_how(self) -> dict[str, Any]:
        """How its stored numbers were made, as options for scoring it again; empty where nothing says."""
        aggregate = self.aggregate()
        made = aggregate.provenance if aggregate is not None else {}
        known = {"match": MATCHES, "overlap_of": OVERLAPS_OF, "missing": MISSING}
        found = {name: made[name] for name, values in known.items() if made.get(name) in values}
        least = made.get("min_overlap")
        if isinstance(least, int | float) and not isinstance(least, bool) and 0 < least <= 1:
            found["min_overlap"] = float(least)
        return found


@dataclass(frozen=True)
class KeyFault:
    """Why a run cannot be scored: it cannot be told which rows are its own, or which of them count."""

    # One of REPEATED_ROW, REPEATED_RUN, UNREADABLE_KEY.
    code: str
    run_id: str
    query_id: str | None = None
    count: int = 0

    @property
    def what(self) -> str:
        """What is wrong, without the run."""
        if self.code == UNREADABLE_KEY:
            return "its run_id or suite is not UTF-8 text"
        if self.query_id is None:
            return f"{self.count:,} rows in eval_runs"
        return f"query {cut(self.query_id, 80)}: {self.count:,} rows"

    def __str__(self) -> str:
        separator = ", " if self.query_id is not None else ": "
        return f"run {cut(self.run_id, 80)}{separator}{self.what}"


class RowKeys(Protocol):
    """What knows the keys of stored rows."""

    def repeated_rows(self, run_ids: Sequence[str]) -> list[KeyFault]: ...


def run_faults(stored: Sequence[Run], chosen: Sequence[Run] | None = None) -> list[KeyFault]:
    """Runs (all, or the chosen ones) that eval_runs does not name, or names more than once."""
    times = Counter(run.run_id for run in stored)
    found: dict[str, KeyFault] = {}
    for run in stored if chosen is None else chosen:
        if not is_utf8(run.run_id) or not is_utf8(run.suite):
            found[run.run_id] = KeyFault(UNREADABLE_KEY, run.run_id)
        elif times[run.run_id] > 1:
            found[run.run_id] = KeyFault(REPEATED_RUN, run.run_id, count=times[run.run_id])
    return list(found.values())


def key_faults(source: RowKeys, stored: Sequence[Run], chosen: Sequence[Run]) -> list[KeyFault]:
    """Everything that is wrong with the keys of these runs and of their rows. `stored`: all runs that there are."""
    found = run_faults(stored, chosen)
    broken = {fault.run_id for fault in found}
    return [*found, *source.repeated_rows([run.run_id for run in chosen if run.run_id not in broken])]


def broken_runs(faults: Sequence[KeyFault], what: str = "cannot be scored") -> BrokenRunsError:
    """The error that names them."""
    codes = {fault.code for fault in faults}
    runs = len({fault.run_id for fault in faults})
    return BrokenRunsError([str(fault) for fault in faults], runs, what, codes)


def is_reserved(name: str) -> bool:
    """Does it mean a run by its place, and is no good as an id?"""
    return _BY_PLACE.fullmatch(name) is not None


def of_suite(runs: Sequence[Run], suite: str | None, database: str) -> list[Run]:
    """The runs of a suite; all of them where none is named."""
    if suite is None or not runs:
        return list(runs)
    found = [run for run in runs if run.suite == suite]
    if not found:
        suites = sorted({run.suite for run in runs})
        some = ", ".join(cut(name, 40) for name in suites[:10]) + (", …" if len(suites) > 10 else "")
        hint = did_you_mean(suite, suites) or f"; there is {some}"
        msg = f"there is no suite {cut(suite, 60)!r} in {database}{hint}"
        raise UsageError(msg)
    return found


def chosen_runs(runs: Sequence[Run], names: Sequence[str] | None, database: str, suite: str | None = None) -> list[Run]:
    """The runs of these names, each once, in the order asked for; where there are no names, all, or all of a suite.

    `runs`: oldest first. Whether their keys are sound is for `key_faults` to say.
    """
    if names is None:
        return of_suite(runs, suite, database)
    return list({run.run_id: run for run in (_find(runs, name, database, suite) for name in names)}.values())


def find_run(runs: Sequence[Run], name: str, database: str, suite: str | None = None) -> Run:
    """One run by name. `suite`: look among its runs alone, so that `latest` is its latest."""
    found = _find(runs, name, database, suite)
    if faults := run_faults(runs, [found]):
        raise broken_runs(faults, "cannot be used")
    return found


def _find(runs: Sequence[Run], name: str, database: str, suite: str | None) -> Run:
    if not runs:
        msg = f"{database} holds no runs yet"
        raise UsageError(msg)
    chosen = of_suite(runs, suite, database)
    by_id = {run.run_id: run for run in chosen}
    if name in by_id:
        if not isinstance(name, RunId):
            _require_unambiguous(chosen, name)
        return by_id[name]
    if name == LATEST:
        _require_dates(chosen, name)
        return chosen[-1]
    beginning = list({run.run_id: run for run in chosen if name and run.run_id.startswith(name)}.values())
    if len(beginning) == 1:
        return beginning[0]
    if beginning:
        some = ", ".join(shown(run.run_id) for run in beginning[:3])
        more = ", …" if len(beginning) > 3 else ""
        msg = f"{shown(name)!r} fits {len(beginning)} runs ({some}{more}); write more of it"
        raise UsageError(msg)
    if (back := _BACK.fullmatch(name)) and back.group(1):
        return run_before(runs, _find(runs, back.group(1), database, suite), int(back.group(2)), database)
    raise _unknown(runs, chosen, name, database, suite)


def find_baseline(runs: Sequence[Run], name: str, run: Run, database: str) -> Run:
    """What a run is held against. `previous`, `~N` and `latest~N` are so many runs before it in its suite, `latest` is
    the newest of its suite; any other name is a run of any suite.
    """
    if name in {one.run_id for one in runs}:
        return find_run(runs, name, database)
    if name == PREVIOUS:
        return run_before(runs, run, 1, database)
    if (back := _BACK.fullmatch(name)) and back.group(1) in ("", LATEST):
        return run_before(runs, run, int(back.group(2)), database)
    return find_run(runs, name, database, run.suite if name == LATEST else None)


def run_before(runs: Sequence[Run], run: Run, back: int, database: str) -> Run:
    """The run that is so many places before another one in its suite."""
    suite = [one for one in runs if one.suite == run.suite]
    _require_dates(suite, f"{run.run_id}~{back}")
    place = next(place for place, one in enumerate(suite) if one.run_id == run.run_id)
    if back <= place:
        # Which place is which depends on all that are counted.
        if faults := run_faults(runs, suite[place - back : place + 1]):
            raise broken_runs(faults, "cannot be used")
        return suite[place - back]
    whose = f"suite {shown(run.suite)!r} in {database}"
    why = f"it is the first of {whose}" if not place else f"{whose} holds {counted(place + 1, 'run')} up to it"
    many = "" if back == 1 else f"{back:,} places "
    msg = f"there is no run {many}before {shown(run.run_id)}: {why}; name another run, see 'kbeval runs'"
    raise UsageError(msg)


def previous_run(runs: Sequence[Run], run: Run) -> Run | None:
    """The run before another one in its suite; None where there is none, or where it is not known which it is."""
    try:
        return run_before(runs, run, 1, "the database")
    except KbevalError:
        return None


def _require_dates(runs: Sequence[Run], name: str) -> None:
    """A run that was made nobody knows when may stand anywhere in the order."""
    undated = [run for run in runs if not run.is_dated]
    if not undated:
        return
    first = undated[0]
    others = f" (and of {counted(len(undated) - 1, 'other run')})" if len(undated) > 1 else ""
    msg = (
        f"it is not known which run {shown(name)!r} is: created_at of run {shown(first.run_id)}{others} is"
        f" {cut(shown(first.created_at), 40)!r}, not a time; name the run by its id, or correct created_at,"
        " like 2026-03-01T14:00:00Z"
    )
    raise UsageError(msg)


def _require_unambiguous(chosen: Sequence[Run], name: str) -> None:
    """An id that always means a place names no run, unless it is the run at that place."""
    if not is_reserved(name) or (name == LATEST and chosen[-1].run_id == name and all(run.is_dated for run in chosen)):
        return
    alike = [run.run_id for run in chosen if run.run_id != name and run.run_id.startswith(name[:-1])]
    other = "" if alike or len(name) < 2 else f"name that run {name[:-1]!r} (the beginning of its id), "
    msg = f"{name!r} is ambiguous: it is the id of a run, and means a run by its place; {other}name others by their id"
    raise UsageError(msg)


def _unknown(runs: Sequence[Run], chosen: Sequence[Run], name: str, database: str, suite: str | None) -> UsageError:
    elsewhere = next((run for run in runs if run.run_id == name), None)
    if elsewhere is not None:
        return UsageError(f"run {shown(name)!r} is of suite {shown(elsewhere.suite)!r}, not of {shown(suite or '')!r}")
    where = database if suite is None else f"suite {shown(suite)!r} of {database}"
    hint = did_you_mean(name, [run.run_id for run in chosen]) or "; see 'kbeval runs'"
    return UsageError(f"there is no run {shown(name)!r} in {where}{hint}")
