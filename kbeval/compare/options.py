"""Options of a comparison. Separate from `compare.run`, which loads NumPy: gates without a baseline do not need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kbeval.scoring.options import ScoreOptions

RESAMPLES = 10_000
SEED = 1


@dataclass(frozen=True)
class CompareOptions:
    """How to compare; every field has a default. `scoring.by` repeats the comparison for each slice."""

    scoring: ScoreOptions = field(default_factory=ScoreOptions)
    strict_chunker_version: bool = False
    ignore_invariants: bool = False
    skip_bad_rows: bool = False
    # Test only these metrics: fewer tests give more statistical power.
    only: Sequence[str] = ()
    resamples: int = RESAMPLES
    seed: int = SEED
