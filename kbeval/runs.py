"""Stored runs, and how they are named: an id, a unique prefix, `latest`, or `latest~N` for the Nth before it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kbeval.config import MATCHES, MISSING, OVERLAPS_OF
from kbeval.errors import UsageError
from kbeval.metrics import did_you_mean
from kbeval.model import AggregateMetrics
from kbeval.moments import moment
from kbeval.text import shown

_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")


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

    def order(self) -> tuple[bool, datetime | str, str, str]:
        """Oldest first. A run without a date has no place in time, and stands before those that have one."""
        made = moment(self.created_at)
        return made is not None, made or "", self.created_at, self.run_id

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


def is_reserved(name: str) -> bool:
    """Does it mean a run by its place, and is no good as an id?"""
    return _LATEST.fullmatch(name) is not None


def find_runs(runs: Sequence[Run], names: Sequence[str], database: str) -> list[Run]:
    """The runs of these names, each once, in the order asked for. `runs`: oldest first."""
    return list({run.run_id: run for run in (find_run(runs, name, database) for name in names)}.values())


def find_run(runs: Sequence[Run], name: str, database: str) -> Run:
    """One run by name."""
    if not runs:
        msg = f"{database} holds no runs yet"
        raise UsageError(msg)
    by_id = {run.run_id: run for run in runs}
    if name in by_id:
        return by_id[name]
    if latest := _LATEST.fullmatch(name):
        back = int(latest.group(1) or 0)
        if back >= len(runs):
            msg = f"there is no run {name!r}: {database} holds {len(runs)} run{'s' if len(runs) != 1 else ''}"
            raise UsageError(msg)
        return runs[-1 - back]
    beginning = [run for run in runs if name and run.run_id.startswith(name)]
    if len(beginning) == 1:
        return beginning[0]
    if beginning:
        some = ", ".join(shown(run.run_id) for run in beginning[:3])
        more = ", …" if len(beginning) > 3 else ""
        msg = f"{shown(name)!r} fits {len(beginning)} runs ({some}{more}); write more of it"
        raise UsageError(msg)
    hint = did_you_mean(name, by_id) or "; see 'kbeval runs'"
    msg = f"there is no run {shown(name)!r} in {database}{hint}"
    raise UsageError(msg)
