"""Runs by name: an id, a unique prefix, `latest`, or `latest~N` for the Nth before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kbeval.errors import UsageError
from kbeval.metrics import did_you_mean
from kbeval.sources.sqlite import Run
from kbeval.text import shown

_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")


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
