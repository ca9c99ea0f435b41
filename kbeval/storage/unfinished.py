"""Runs that `kbeval run` has started but not finished: they are in separate tables, which scoring does not read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval.database.connection import Database
from kbeval.errors import KbevalError, UsageError
from kbeval.util.text import as_argument, counted, shown


@dataclass(frozen=True)
class Unfinished:
    """A run that is not complete."""

    run_id: str
    suite: str
    config: Mapping[str, Any]
    plan: Mapping[str, Any]
    commit_hash: str | None
    started_at: str
    answered: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """How many queries it has."""
        return len(self.plan.get("queries", ()))

    @property
    def state(self) -> str:
        """How far it is, and how to continue."""
        failed = f", {self.failed:,} failed" if self.failed else ""
        return (
            f"{self.answered:,} of {counted(self.total, 'query', 'queries')} answered and stored{failed};"
            f" continue with 'kbeval run --resume {as_argument(self.run_id)}'"
        )


def read_unfinished(database: Database) -> list[Unfinished]:
    """The unfinished runs of an open database, oldest first; none if it has no such table."""
    if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'kbeval_unfinished_runs'").first() is None:
        return []
    rows = database.execute(
        "SELECT u.run_id, u.suite, u.config_json, u.plan_json, u.commit_hash, u.started_at,"
        "       (SELECT COUNT(DISTINCT a.query_id) FROM kbeval_attempts AS a"
        "        WHERE a.run_id = u.run_id AND a.error_kind IS NULL),"
        "       (SELECT COUNT(DISTINCT a.query_id) FROM kbeval_attempts AS a WHERE a.run_id = u.run_id)"
        " FROM kbeval_unfinished_runs AS u ORDER BY u.started_at, u.rowid"
    )
    return [
        Unfinished(
            str(run_id),
            str(suite),
            json.loads(config),
            json.loads(plan),
            commit,
            str(started),
            answered,
            asked - answered,
        )
        for run_id, suite, config, plan, commit, started, answered, asked in rows
    ]


def unfinished_runs(path: Path) -> list[Unfinished]:
    """The unfinished runs of a database, without changing it."""
    if not path.is_file():
        return []
    with Database(path) as database:
        database.check()
        database.open("ro")
        return read_unfinished(database)


def said_of_unfinished(name: str, database: str) -> str | None:
    """Why there is no such run, if it is an unfinished one. `name`: an id, the beginning of one, or `latest`."""
    try:
        run = find_unfinished(unfinished_runs(Path(database)), name, Path(database))
    except (KbevalError, OSError, ValueError):
        return None
    return f"run {shown(run.run_id)!r} is unfinished: {run.state}"


def find_unfinished(runs: Sequence[Unfinished], name: str, path: Path) -> Unfinished:
    """One by its id, a unique prefix, or `latest`."""
    if name == "latest" and runs:
        return runs[-1]
    exact = [run for run in runs if run.run_id == name]
    found = exact or [run for run in runs if run.run_id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        msg = f"{name!r} is ambiguous: {', '.join(run.run_id for run in found[:5])}"
    elif runs:
        many = counted(len(runs), "unfinished run")
        msg = f"{path} has no unfinished run {name!r}; it has {many}: {', '.join(run.run_id for run in runs[:5])}"
    else:
        msg = f"{path} has no unfinished runs"
    raise UsageError(msg)
