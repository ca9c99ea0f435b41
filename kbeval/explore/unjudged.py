"""Hits with neither a label nor a decision. If there are many, the numbers are less reliable than they seem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbeval.explore.pool import DEFAULT_DEPTH, build_pool, decided_items
from kbeval.scoring.row_checks import built_rows

if TYPE_CHECKING:
    from kbeval.scoring.scorer import Scoring
    from kbeval.storage.labels import Decision

# How many of the latest runs are checked.
_RECENT = 10
UNJUDGED = f"recent runs with hits in the top {DEFAULT_DEPTH} that are not judged"
ABOUT_UNJUDGED = "they count as wrong although some may be correct; 'kbeval label --since-run RUN' shows them"


def unjudged_hits(scoring: Scoring, decisions: Sequence[Decision]) -> list[str]:
    """One line per run, latest first. Only if people label: otherwise no hit counts as judged."""
    if not decisions:
        return []
    recent = scoring.runs[-_RECENT:]
    build_pool(scoring.session, recent, decided_items(decisions), DEFAULT_DEPTH)
    found = {run_id: (hits, unjudged) for run_id, hits, unjudged in built_rows(scoring, "unjudged_hits")}
    return [
        f"{run.run_id}: {found[run.run_id][1]:,} of {found[run.run_id][0]:,}"
        for run in reversed(recent)
        if run.run_id in found and found[run.run_id][1]
    ]
