"""Scoring a whole history: only runs that changed since they were scored, in steps that are stored one by one.

Every stored number records what it was computed from. If that has not changed, scoring would give the same bytes, and
the run is skipped. After an interruption, the next call finds what was stored and continues with the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbeval.engine.memory import DEFAULT_MEMORY_LIMIT, megabytes
from kbeval.golden import Golden, load_golden
from kbeval.scoring.aggregate import Scored, score_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.provenance import (
    DATA,
    FORCED,
    NEW,
    LabelVersions,
    by_places,
    judges,
    of_places,
    of_run,
    provenance,
    reasons,
)
from kbeval.scoring.variants import stored_choices
from kbeval.storage.database_file import refuse_database
from kbeval.storage.run_config import chunker_version, config_of
from kbeval.storage.runs import KeyFault, Run, broken_runs, chosen_runs, key_faults
from kbeval.storage.source import open_source
from kbeval.util.text import counted

# At most this many rows are scored and stored in one step, with the usual memory limit or more. Cached rows are not
# counted.
STEP_ROWS = 250_000
_PARSED_WEIGHT = 0.15


@dataclass
class Due:
    """Every stored run, and the reasons why some must be scored again."""

    golden: Golden | str | os.PathLike[str]
    runs: list[Run]
    reasons: dict[str, list[str]] = field(default_factory=dict)
    # Stored runs that were left out because their keys are invalid.
    key_faults: list[KeyFault] = field(default_factory=list)

    @property
    def unchanged(self) -> list[Run]:
        return [run for run in self.runs if run.run_id not in self.reasons]

    def steps(self, memory_limit: str | None = None) -> Iterator[list[str]]:
        """The runs to score, in portions that are scored and stored together and fit into a memory limit."""
        usual = megabytes(DEFAULT_MEMORY_LIMIT)
        most = STEP_ROWS * min(1, megabytes(memory_limit or DEFAULT_MEMORY_LIMIT) / usual)
        step: list[str] = []
        weight = 0.0
        for run in self.runs:
            if run.run_id not in self.reasons:
                continue
            is_parsed = not {NEW, DATA} & set(self.reasons[run.run_id])
            own_weight = run.rows * (_PARSED_WEIGHT if is_parsed else 1)
            if step and weight + own_weight > most:
                yield step
                step, weight = [], 0.0
            step.append(run.run_id)
            weight += own_weight
        if step:
            yield step


def due_runs(  # noqa: PLR0913  (what to look at, and how)
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: ScoreOptions,
    names: Sequence[str] | None = None,
    *,
    force: bool = False,
    within: Callable[[str], bool] | None = None,
) -> Due:
    """Which runs of a database (all, or those of `names`) must be scored again, and why. `within`: consider only runs
    with these ids.
    """
    refuse_database(golden, database)
    with open_source(database, options) as (session, source):
        found = source.runs()
        chosen = chosen_runs(found, names, str(database), options.suite)
        if within is not None:
            chosen = [run for run in chosen if within(run.run_id)]
        faults = key_faults(source, found, chosen)
        if faults and names is not None:
            raise broken_runs(faults)
        broken = {fault.run_id for fault in faults}
        due = Due(golden, [run for run in chosen if run.run_id not in broken], key_faults=faults)
        stored = {run.run_id: run.aggregate() for run in due.runs}
        if force or not any(stored.values()):
            due.reasons = {run_id: [NEW if numbers is None else FORCED] for run_id, numbers in stored.items()}
            return due
        due.golden = golden if isinstance(golden, Golden) else load_golden(golden)
        source.feed(session, [])
        session.add_loaders({"golden_entries": due.golden.loader(), "settings": options.load_settings})
        session.add_choices(stored_choices())
        now = provenance(session, due.golden, options)
        labels = LabelVersions(session, due.golden, options, {chunker_version(config_of(run)) for run in found})
        if any(numbers is not None and by_places(numbers.provenance) for numbers in stored.values()):
            now |= of_places(session, options)
        judged = judges(session) if source.rubrics() else {}
        # Only stored numbers can be out of date. The rows are read last, all in one pass.
        scored = [run.run_id for run in due.runs if stored[run.run_id] is not None]
        rows = source.row_digests(session, scored)
        for run in due.runs:
            own: dict[str, Any] = of_run(rows.get(run.run_id, ""), run.config_json) | labels.of_run(
                chunker_version(config_of(run))
            )
            own |= {"judge": judged[run.run_id]} if run.run_id in judged else {}
            if why := reasons(stored[run.run_id], {**now, **own}):
                due.reasons[run.run_id] = why
    return due


def rescore(
    database: str | os.PathLike[str],
    due: Due,
    options: ScoreOptions,
    store: Callable[[Scored], None],
    *,
    to_store: bool = True,
) -> Scored:
    """Score the runs that are due, step by step, and call `store` after each step. Returns the numbers of all runs.

    `to_store`: as in `score_runs`.
    """
    whole = Scored(due.runs, key_faults=due.key_faults)
    for run in due.unchanged:
        aggregate = run.aggregate()
        if aggregate is not None:
            whole.aggregates[run.run_id] = aggregate
            if unreadable := aggregate.ledger.get("unreadable"):
                whole.warnings.append(f"run {run.run_id}: {counted(unreadable, 'unreadable row')} counted as failed")
    # An engine elsewhere has no limit here, and each step costs it a start.
    steps = [list(due.reasons)] if options.engine and due.reasons else list(due.steps(options.memory_limit))
    if len(steps) > 1 and not isinstance(due.golden, Golden):
        due.golden = load_golden(due.golden)
    for step in steps:
        scored = score_runs(database, due.golden, step, options, to_store=to_store)
        store(scored)
        _add(whole, scored)
    whole.aggregates = {run.run_id: whole.aggregates[run.run_id] for run in due.runs if run.run_id in whole.aggregates}
    return whole


def _add(whole: Scored, step: Scored) -> None:
    whole.aggregates |= step.aggregates
    whole.slices |= step.slices
    whole.bad_rows += step.bad_rows
    whole.warnings += [text for text in step.warnings if text not in whole.warnings]
    whole.notes += step.notes


def summary(due: Due, most: int = 5, without: Collection[str] = ()) -> Sequence[str]:
    """Which runs are rescored and why, in a few lines. `without`: runs that could not be scored."""
    by_reason: dict[str, list[str]] = {}
    for run_id, found in due.reasons.items():
        if run_id in without:
            continue
        by_reason.setdefault(", ".join(found), []).append(run_id)
    lines = []
    for reason, run_ids in by_reason.items():
        some = ", ".join(run_ids[:most]) + (f" and {len(run_ids) - most:,} more" if len(run_ids) > most else "")
        lines.append(f"  {reason}: {some}")
    return lines
