"""Stored runs, and how they are named: by id, by unique prefix, as `latest`, or as one of these followed by `~N`.

`latest` is the newest run of all, or of the given suite. `RUN~N` is the Nth run before RUN in its suite: runs of other
suites are not counted. A run whose id equals the name takes precedence, unless the name is reserved for a position
(`latest`, `previous`, `~1`): then it is ambiguous. Positions are defined only if every run counted has a valid
`created_at`; otherwise names by position are refused, never guessed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbeval.errors import BrokenRunsError, KbevalError, UsageError
from kbeval.metrics.model import AggregateMetrics
from kbeval.settings import MATCHES, MISSING, OVERLAPS_OF
from kbeval.storage.unfinished import said_of_unfinished
from kbeval.util.text import counted, cut, did_you_mean, is_utf8, shown
from kbeval.util.times import moment

if TYPE_CHECKING:
    from kbeval.storage.source import Source

LATEST, PREVIOUS = "latest", "previous"
# What can be wrong with the keys of a run, by the code under which `check` reports it.
REPEATED_ROW, REPEATED_RUN, UNREADABLE_KEY = "repeated-row", "repeated-run", "unreadable-key"
_BACK = re.compile(r"(.*)~([0-9]{1,9})", re.DOTALL)
_BY_PLACE = re.compile(r"previous|latest(~[0-9]{1,9})?|~[0-9]{1,9}")


class RunId(str):
    """The id of a stored run. Used as a name it means that run, never a position."""

    __slots__ = ()


@dataclass(frozen=True)
class Run:
    """A stored run, without its rows."""

    run_id: str
    suite: str
    created_at: str
    commit_hash: str | None
    # Configurations may contain secrets, which must not appear in logs.
    config_json: str = field(repr=False)
    aggregate_json: str = field(repr=False)
    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "run_id", RunId(self.run_id))

    def order(self) -> tuple[bool, datetime | str, str, str]:
        """Sort key: oldest first. Runs without a valid date come before all others."""
        made = moment(self.created_at)
        return made is not None, made or "", self.created_at, self.run_id

    @property
    def is_dated(self) -> bool:
        """Is its `created_at` a valid time?"""
        return moment(self.created_at) is not None

    def aggregate(self) -> AggregateMetrics | None:
        """The stored numbers; None if the run has not been scored, or its numbers cannot be read."""
        try:
            stored = json.loads(self.aggregate_json)
        except (ValueError, RecursionError):
            return None
        return AggregateMetrics.from_dict(stored) if isinstance(stored, dict) and stored else None

    def scored_with(self, what: str) -> str | None:
        """An entry in the provenance of its stored numbers; None if it is not recorded."""
        aggregate = self.aggregate()
        found = aggregate.provenance.get(what) if aggregate is not None else None
        return found if isinstance(found, str) else None

    def scored_how(self) -> dict[str, Any]:
        """How its stored numbers were computed, as options for scoring it again; empty if that is not recorded."""
        aggregate = self.aggregate()
        made = aggregate.provenance if aggregate is not None else {}
        known = {"match": MATCHES, "overlap_of": OVERLAPS_OF, "missing": MISSING}
        found = {name: made[name] for name, values in known.items() if made.get(name) in values}
        least = made.get("min_overlap")
        if isinstance(least, int | float) and not isinstance(least, bool) and 0 < least <= 1:
            found["min_overlap"] = float(least)
        if isinstance(judge := made.get("judge_named"), str) and judge:
            found["judge"] = judge
        return found


@dataclass(frozen=True)
class KeyFault:
    """Why a run cannot be scored: it is unclear which rows belong to it, or which of them count."""

    # One of REPEATED_ROW, REPEATED_RUN, UNREADABLE_KEY.
    code: str
    run_id: str
    query_id: str | None = None
    count: int = 0

    @property
    def what(self) -> str:
        """What is wrong, without naming the run."""
        if self.code == UNREADABLE_KEY:
            return "its run_id or suite is not UTF-8 text"
        if self.query_id is None:
            return f"{self.count:,} rows in eval_runs"
        return f"query {cut(self.query_id, 80)}: {self.count:,} rows"

    def __str__(self) -> str:
        separator = ", " if self.query_id is not None else ": "
        return f"run {cut(self.run_id, 80)}{separator}{self.what}"


def run_faults(stored: Sequence[Run], chosen: Sequence[Run] | None = None) -> list[KeyFault]:
    """Runs (all, or the chosen ones) with an unreadable key, or with duplicate rows in eval_runs."""
    times = Counter(run.run_id for run in stored)
    found: dict[str, KeyFault] = {}
    for run in stored if chosen is None else chosen:
        if not is_utf8(run.run_id) or not is_utf8(run.suite):
            found[run.run_id] = KeyFault(UNREADABLE_KEY, run.run_id)
        elif times[run.run_id] > 1:
            found[run.run_id] = KeyFault(REPEATED_RUN, run.run_id, count=times[run.run_id])
    return list(found.values())


def key_faults(source: Source, stored: Sequence[Run], chosen: Sequence[Run]) -> list[KeyFault]:
    """All problems with the keys of these runs and of their rows. `stored`: all stored runs."""
    found = run_faults(stored, chosen)
    broken = {fault.run_id for fault in found}
    return [*found, *source.repeated_rows([run.run_id for run in chosen if run.run_id not in broken])]


def broken_runs(faults: Sequence[KeyFault], what: str = "cannot be scored") -> BrokenRunsError:
    """The error that lists these faults."""
    codes = {fault.code for fault in faults}
    runs = len({fault.run_id for fault in faults})
    return BrokenRunsError([str(fault) for fault in faults], runs, what, codes)


def is_reserved(name: str) -> bool:
    """Does the name mean a run by its position? Then it is not suitable as an id."""
    return _BY_PLACE.fullmatch(name) is not None


def read_as_positions(runs: Sequence[Run]) -> list[str]:
    """The ids of these runs that also mean a position: reserved names, and `RUN~N` where RUN is, or begins the id of,
    another run.
    """
    ids = {str(run.run_id) for run in runs}

    def counts_back(run_id: str) -> bool:
        back = _BACK.fullmatch(run_id)
        return back is not None and any(other.startswith(back.group(1)) for other in ids if other != run_id)

    return [run_id for run_id in sorted(ids) if is_reserved(run_id) or counts_back(run_id)]


def of_suite(runs: Sequence[Run], suite: str | None, database: str) -> list[Run]:
    """The runs of a suite; all runs if none is given."""
    if suite is None or not runs:
        return list(runs)
    found = [run for run in runs if run.suite == suite]
    if not found:
        suites = sorted({run.suite for run in runs})
        some = ", ".join(cut(name, 40) for name in suites[:10]) + (", …" if len(suites) > 10 else "")
        hint = did_you_mean(suite, suites) or f"; available: {some}"
        msg = f"there is no suite {cut(suite, 60)!r} in {database}{hint}"
        raise UsageError(msg)
    return found


def chosen_runs(runs: Sequence[Run], names: Sequence[str] | None, database: str, suite: str | None = None) -> list[Run]:
    """The runs with these names, without duplicates, in the given order; without names, all runs, or all of a suite.

    `runs`: oldest first. Their keys are not checked here; see `key_faults`.
    """
    if names is None:
        return of_suite(runs, suite, database)
    if isinstance(names, str):
        names = [names]
    return list({run.run_id: run for run in (_find(runs, name, database, suite) for name in names)}.values())


def find_run(runs: Sequence[Run], name: str, database: str, suite: str | None = None) -> Run:
    """One run by name. `suite`: consider only its runs, so that `latest` is the latest of the suite."""
    found = _find(runs, name, database, suite)
    if faults := run_faults(runs, [found]):
        raise broken_runs(faults, "cannot be used")
    return found


def _find(runs: Sequence[Run], name: str, database: str, suite: str | None) -> Run:
    if not runs:
        unfinished = said_of_unfinished(name, database)
        msg = f"{database} holds no runs yet{'; ' if unfinished else ''}{unfinished or ''}"
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
        msg = f"{shown(name)!r} is ambiguous: it matches {len(beginning)} runs ({some}{more})"
        raise UsageError(msg)
    if (back := _BACK.fullmatch(name)) and back.group(1):
        return run_before(runs, _find(runs, back.group(1), database, suite), int(back.group(2)), database)
    raise _unknown(runs, chosen, name, database, suite)


def find_baseline(runs: Sequence[Run], name: str, run: Run, database: str) -> Run:
    """The run that another one is compared with. `previous`, `~N` and `latest~N` count back from that run in its
    suite, `latest` is the newest of its suite; any other name is a run of any suite.
    """
    if name in {one.run_id for one in runs}:
        return find_run(runs, name, database)
    if name == PREVIOUS:
        return run_before(runs, run, 1, database)
    if (back := _BACK.fullmatch(name)) and back.group(1) in ("", LATEST):
        return run_before(runs, run, int(back.group(2)), database)
    return find_run(runs, name, database, run.suite if name == LATEST else None)


def run_before(runs: Sequence[Run], run: Run, back: int, database: str) -> Run:
    """The run that is `back` positions before another one in its suite."""
    suite = [one for one in runs if one.suite == run.suite]
    _require_dates(suite, f"{run.run_id}~{back}")
    place = next(place for place, one in enumerate(suite) if one.run_id == run.run_id)
    if back <= place:
        # A position depends on every run that is counted.
        if faults := run_faults(runs, suite[place - back : place + 1]):
            raise broken_runs(faults, "cannot be used")
        return suite[place - back]
    whose = f"suite {shown(run.suite)!r} in {database}"
    why = f"it is the first of {whose}" if not place else f"{whose} has {counted(place + 1, 'run')} up to it"
    many = "" if back == 1 else f"{back:,} positions "
    msg = f"there is no run {many}before {shown(run.run_id)}: {why}; specify another run, see 'kbeval runs'"
    raise UsageError(msg)


def previous_run(runs: Sequence[Run], run: Run) -> Run | None:
    """The run before another one in its suite; None if there is none, or if it cannot be determined."""
    try:
        return run_before(runs, run, 1, "the database")
    except KbevalError:
        return None


def _require_dates(runs: Sequence[Run], name: str) -> None:
    """Refuse a name by position if a run has no valid date: its position is unknown."""
    undated = [run for run in runs if not run.is_dated]
    if not undated:
        return
    first = undated[0]
    others = f" (and of {counted(len(undated) - 1, 'other run')})" if len(undated) > 1 else ""
    msg = (
        f"cannot tell which run {shown(name)!r} is: created_at of run {shown(first.run_id)}{others} is"
        f" {cut(shown(first.created_at), 40)!r}, not a time; use the run's id, or correct created_at,"
        " e.g. 2026-03-01T14:00:00Z"
    )
    raise UsageError(msg)


def _require_unambiguous(chosen: Sequence[Run], name: str) -> None:
    """Refuse an id that is reserved for a position, unless the run is at that position."""
    if not is_reserved(name) or (name == LATEST and chosen[-1].run_id == name and all(run.is_dated for run in chosen)):
        return
    alike = [run.run_id for run in chosen if run.run_id != name and run.run_id.startswith(name[:-1])]
    other = "" if alike or len(name) < 2 else f"use {name[:-1]!r} (the beginning of its id) for that run, "
    msg = f"{name!r} is ambiguous: it is the id of a run, and also means a position; {other}use the id for other runs"
    raise UsageError(msg)


def _unknown(runs: Sequence[Run], chosen: Sequence[Run], name: str, database: str, suite: str | None) -> UsageError:
    elsewhere = next((run for run in runs if run.run_id == name), None)
    if elsewhere is not None:
        return UsageError(
            f"run {shown(name)!r} belongs to suite {shown(elsewhere.suite)!r}, not to {shown(suite or '')!r}"
        )
    if name and (unfinished := said_of_unfinished(name, database)):
        return UsageError(unfinished)
    where = database if suite is None else f"suite {shown(suite)!r} of {database}"
    hint = did_you_mean(name, [run.run_id for run in chosen]) or "; see 'kbeval runs'"
    return UsageError(f"there is no run {shown(name)!r} in {where}{hint}")
