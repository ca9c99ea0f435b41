"""The depth of the stored hits of runs: a k beyond it adds no information, and is not comparable with a deeper run."""

from __future__ import annotations

from kbeval.scoring.scorer import Scoring
from kbeval.storage.run_config import config_of, eval_k

# This many rankings of one length are not a coincidence: the run stored that many hits.
_ENOUGH = 10


def stored_depths(scoring: Scoring) -> dict[str, tuple[int, bool]]:
    """The depth of each run with hits, and whether it was cut there: by its configuration, or because all its rankings
    end there. A run that requested more hits than were returned has all of them.
    """
    scoring.session.need("run_depths")
    found = {}
    for run_id, depth, rankings, is_even in scoring.session.rows("SELECT * FROM run_depths ORDER BY run_id"):
        run = next(run for run in scoring.runs if run.run_id == run_id)
        asked = eval_k(config_of(run), default=0)
        is_cut = bool(asked) or (is_even and rankings >= _ENOUGH)
        found[run_id] = (max(depth, asked), is_cut)
    return found
