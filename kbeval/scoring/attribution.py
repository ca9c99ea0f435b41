"""What scoring again would change, and why: the definitions, the labels or the data.

Between the stored number and the new one are the numbers that would have resulted if only some of the causes had
changed. They are computed, not guessed: with the labels of the stored numbers, which the database keeps, and with their
rows, if the cache still has them. Causes that cannot be separated share one step, and this is reported.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbeval.golden import Golden, load_golden
from kbeval.metrics.model import AggregateMetrics, Number
from kbeval.scoring.aggregate import Scored, score_runs
from kbeval.scoring.incremental import Due, due_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.provenance import DATA, LABELS
from kbeval.storage.database_file import refuse_database
from kbeval.storage.source import one_snapshot, open_source
from kbeval.util.numbers import difference

Numbers = Mapping[str, Number]


@dataclass(frozen=True)
class Step:
    """One step from the stored numbers to the new ones: its causes, and the numbers after it."""

    causes: tuple[str, ...]
    after: Numbers


@dataclass(frozen=True)
class Movement:
    """One number that changed, and how much each cause contributed."""

    run_id: str
    metric: str
    stored: Number
    now: Number
    because: Mapping[str, float | int | None]

    def to_dict(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "metric": self.metric,
            "stored": self.stored,
            "now": self.now,
            "change": difference(self.stored, self.now),
            "because": dict(self.because),
        }


@dataclass
class Recomputed:
    """Every run that would be scored again, and the numbers that would change."""

    due: Due
    scored: Scored
    movements: list[Movement] = field(default_factory=list)
    # With `explain`, for each run whose rows or labels changed: the queries that changed, by cause; None: unknown.
    queries: dict[str, dict[str, list[str] | None]] = field(default_factory=dict)


def recompute(  # noqa: PLR0913  (what to score, and how)
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: ScoreOptions,
    runs: Sequence[str] | None = None,
    *,
    explain: bool = False,
    to_store: bool = False,
) -> Recomputed:
    """Rescore runs that changed since they were scored, and report which numbers would change. Nothing is stored.

    `explain`: split each change by cause, and name the queries whose rows or labels changed. `to_store`: as in
    `score_runs`.
    """
    refuse_database(golden, database)
    labels = golden if isinstance(golden, Golden) else load_golden(golden)
    with one_snapshot(database, options.cache):
        return _recompute(database, labels, options, runs, explain=explain, to_store=to_store)


def _recompute(  # noqa: PLR0913  (as above)
    database: str | os.PathLike[str],
    labels: Golden,
    options: ScoreOptions,
    runs: Sequence[str] | None,
    *,
    explain: bool,
    to_store: bool,
) -> Recomputed:
    due = due_runs(database, labels, options, runs)
    if not due.reasons:
        return Recomputed(due, Scored([]))
    scored = score_runs(database, labels, list(due.reasons), options, to_store=to_store)
    stored = {run.run_id: run.aggregate() for run in due.runs}
    known = {run_id: numbers for run_id in due.reasons if (numbers := stored[run_id]) is not None}
    attribution = _Attribution(database, labels, options, due, known)
    queries = attribution.changed_queries() if explain else {}
    between = attribution.steps() if explain else {}
    found = Recomputed(due, scored, queries=queries)
    for run_id, aggregate in known.items():
        now = scored.aggregates[run_id].numbers()
        steps = [*between.get(run_id, ()), Step(tuple(attribution.remaining_causes(run_id)), now)]
        found.movements += _movements(run_id, aggregate.numbers(), steps)
    return found


def _movements(run_id: str, stored: Numbers, steps: Sequence[Step]) -> Iterable[Movement]:
    now = steps[-1].after
    for metric in dict.fromkeys((*stored, *now)):
        if stored.get(metric) == now.get(metric):
            continue
        because: dict[str, float | int | None] = {}
        before = stored.get(metric)
        for step in steps:
            after = step.after.get(metric)
            if after != before:
                because[" and ".join(step.causes)] = difference(before, after)
            before = after
        yield Movement(run_id, metric, stored.get(metric), now.get(metric), because)


def _entries(golden: Golden) -> dict[str, str]:
    """The entries of a golden file, by query."""
    return {entry["id"]: json.dumps(entry, sort_keys=True) for entry in golden.entries}


def _different(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ, including keys that only one of them has."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


class _Attribution:
    """The states between the stored numbers and the new ones: first definitions change, then labels, then rows."""

    def __init__(
        self,
        database: str | os.PathLike[str],
        golden: Golden,
        options: ScoreOptions,
        due: Due,
        stored: Mapping[str, AggregateMetrics],
    ) -> None:
        self._database = database
        self._golden = golden
        self._options = options
        self._due = due
        self._stored = stored
        self._causes = {run_id: list(due.reasons[run_id]) for run_id in stored}

    def remaining_causes(self, run_id: str) -> list[str]:
        """The causes that no step has accounted for yet."""
        return self._causes[run_id]

    def steps(self) -> dict[str, list[Step]]:
        """The steps in between, for each run with more than one cause."""
        found: dict[str, list[Step]] = {}
        several = [run_id for run_id, causes in self._causes.items() if len(causes) > 1]
        rows, labels = self._earlier
        for golden_hash in sorted({self._made_with(run_id, "golden") for run_id in several}):
            same = [run_id for run_id in several if self._made_with(run_id, "golden") == golden_hash]
            relabelled = [run_id for run_id in same if LABELS in self._causes[run_id]]
            earlier = labels.get(golden_hash)
            # With the earlier labels and, if they changed, the earlier rows, only the rest has changed.
            if earlier is not None:
                self._add_step(found, relabelled, earlier, rows, keep=(LABELS, DATA))
            # With the new labels and the earlier rows, everything but the rows has changed.
            changed = [run_id for run_id in same if DATA in self._causes[run_id] and run_id in rows]
            self._add_step(found, changed, self._golden, rows, keep=(DATA,))
        return found

    def _made_with(self, run_id: str, what: str) -> str:
        return str(self._stored[run_id].provenance.get(what))

    def changed_queries(self) -> dict[str, dict[str, list[str] | None]]:
        """For each run, the queries whose rows or labels changed; None if unknown."""
        _, labels = self._earlier
        found: dict[str, dict[str, list[str] | None]] = {}
        changed = self._changed_rows()
        for run_id, causes in self._causes.items():
            if LABELS in causes:
                earlier = labels.get(self._made_with(run_id, "golden"))
                known = None if earlier is None else _different(_entries(earlier), _entries(self._golden))
                found.setdefault(run_id, {})[LABELS] = known
            if DATA in causes:
                found.setdefault(run_id, {})[DATA] = changed.get(run_id)
        return found

    def _changed_rows(self) -> dict[str, list[str]]:
        """The queries of runs whose stored row was changed, added or deleted."""
        copied, _ = self._earlier
        before = self._marks(copied, copied) if copied else {}
        digests = {run_id: self._made_with(run_id, "rows") for run_id, why in self._causes.items() if DATA in why}
        with open_source(self._database, self._options) as (_, source):
            before = source.row_marks(digests) | before
        now = self._marks(before, None) if before else {}
        return {run_id: _different(marks, now.get(run_id, {})) for run_id, marks in before.items()}

    def _marks(self, run_ids: Iterable[str], earlier: Mapping[str, str] | None) -> dict[str, dict[str, int]]:
        """The mark of each row of the runs: of the current row, or with `earlier` of the earlier one."""
        found: dict[str, dict[str, int]] = {}
        with open_source(self._database, self._options) as (session, source):
            source.runs()
            source.feed(session, list(run_ids), earlier)
            session.need("results")
            for run_id, query_id, mark in session.rows("SELECT run_id, query_id, row_mark FROM results"):
                found.setdefault(run_id, {})[query_id] = mark
        return found

    @functools.cached_property
    def _earlier(self) -> tuple[dict[str, str], dict[str, Golden]]:
        """The rows and the labels that are still available: digests of rows by run, labels by their hash."""
        with open_source(self._database, self._options) as (_, source):
            source.runs()
            rows = {run_id: self._made_with(run_id, "rows") for run_id, why in self._causes.items() if DATA in why}
            kept = source.still_kept(rows)
            hashes = {self._made_with(run_id, "golden") for run_id in self._causes}
            labels = {golden_hash: source.labels(golden_hash) for golden_hash in hashes}
        return (
            {run_id: digest for run_id, digest in rows.items() if run_id in kept},
            {golden_hash: found for golden_hash, found in labels.items() if found is not None},
        )

    def _add_step(
        self,
        found: dict[str, list[Step]],
        run_ids: Sequence[str],
        golden: Golden,
        rows: Mapping[str, str],
        keep: Sequence[str],
    ) -> None:
        """Score in a state in which everything but `keep` has changed, and add a step for those causes."""
        if not run_ids:
            return
        earlier = {run_id: rows[run_id] for run_id in run_ids if run_id in rows}
        scored = score_runs(self._database, golden, run_ids, self._options, earlier=earlier or None)
        for run_id in run_ids:
            # Rows that are no longer available have already changed in this state.
            left = [cause for cause in self._causes[run_id] if cause in keep and (cause != DATA or run_id in rows)]
            taken = tuple(cause for cause in self._causes[run_id] if cause not in left)
            if taken and left:
                found.setdefault(run_id, []).append(Step(taken, scored.aggregates[run_id].numbers()))
                self._causes[run_id] = left
