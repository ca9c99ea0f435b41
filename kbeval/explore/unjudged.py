"""Hits with neither a label nor a decision. If there are many, the numbers are less reliable than they seem."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from kbeval.explore.pool import DEFAULT_DEPTH, build_pool, decided_items
from kbeval.scoring.row_checks import built_rows
from kbeval.scoring.scorer import open_scoring
from kbeval.storage.labels import stored_decisions
from kbeval.storage.source import with_or_without_copy
from kbeval.util.numbers import rounded

if TYPE_CHECKING:
    from kbeval.golden import Golden
    from kbeval.scoring.options import ScoreOptions
    from kbeval.scoring.scorer import Scoring
    from kbeval.storage.labels import Decision
    from kbeval.storage.runs import Run

# How many of the latest runs are checked.
_RECENT = 10
UNJUDGED = f"recent runs with hits in the top {DEFAULT_DEPTH} that are not judged"
ABOUT_UNJUDGED = "they count as wrong although some may be correct; 'kbeval label --since-run RUN' shows them"


@dataclass(frozen=True)
class JudgedHits:
    """How many of the first hits of a run a label names or a person decided on."""

    hits: int
    judged: int
    # The mean over the queries with hits of the share that is judged.
    share: float

    @property
    def unjudged(self) -> int:
        """How many were not judged."""
        return self.hits - self.judged

    def to_dict(self) -> dict[str, float]:
        """As JSON."""
        return {"k": DEFAULT_DEPTH, "hits": self.hits, "judged": self.judged, "share": rounded(self.share) or 0.0}

    def __str__(self) -> str:
        return f"{self.judged:,} of {self.hits:,}"


def judged_hits(scoring: Scoring, runs: Sequence[Run], decisions: Sequence[Decision]) -> dict[str, JudgedHits]:
    """For each run that returned anything; empty if people do not label here, because then no hit is judged."""
    more = decided_items(decisions)
    if not more or not runs:
        return {}
    build_pool(scoring.session, runs, more, DEFAULT_DEPTH)
    counted: dict[str, list[tuple[int, int, int]]] = {}
    for run_id, hits, judged, queries in built_rows(scoring, "judged_hits"):
        counted.setdefault(run_id, []).append((hits, judged, queries))
    return {run_id: _summed(rows) for run_id, rows in counted.items()}


def judged_in(
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    run_ids: Sequence[str],
    options: ScoreOptions,
) -> dict[str, JudgedHits]:
    """For stored runs, by their ids."""
    decisions = stored_decisions(database)
    if not run_ids or not decided_items(decisions):
        return {}

    def counted(options: ScoreOptions) -> dict[str, JudgedHits]:
        with open_scoring(database, golden, run_ids, options, lazily=True, leave_out=True) as scoring:
            return judged_hits(scoring, list(scoring.runs), decisions)

    return with_or_without_copy(replace(options, by=None, suite=None), counted)


def _summed(rows: Sequence[tuple[int, int, int]]) -> JudgedHits:
    share = sum((Fraction(judged, hits) * queries for hits, judged, queries in rows), Fraction(0))
    return JudgedHits(
        sum(hits * queries for hits, _, queries in rows),
        sum(judged * queries for _, judged, queries in rows),
        float(share / sum(queries for *_, queries in rows)),
    )


def unjudged_hits(scoring: Scoring, decisions: Sequence[Decision]) -> list[str]:
    """One line per run, the latest first."""
    recent = scoring.runs[-_RECENT:]
    found: Mapping[str, JudgedHits] = judged_hits(scoring, recent, decisions)
    return [
        f"{run.run_id}: {found[run.run_id].unjudged:,} of {found[run.run_id].hits:,}"
        for run in reversed(recent)
        if run.run_id in found and found[run.run_id].unjudged
    ]
