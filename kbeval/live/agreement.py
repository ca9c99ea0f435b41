"""How well two judges agree, or one judge with itself: scores of the same answers on the same scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RESAMPLES = 2_000
SEED = 0
# With fewer resamples in which kappa is defined, no interval is given.
_LEAST_DEFINED = 100


@dataclass(frozen=True)
class Agreement:
    """Exact agreement and agreement within one point are shares; the shift is second − first."""

    pairs: int
    exact: float | None
    within_one: float | None
    mean_shift: float | None
    # Quadratic weighted kappa and its 95 % interval; None: not defined, for example if all scores are equal.
    kappa: float | None
    interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "pairs": self.pairs,
            "exact": self.exact,
            "within_one": self.within_one,
            "mean_shift": self.mean_shift,
            "kappa": self.kappa,
            "kappa_interval": None if self.interval is None else list(self.interval),
        }


def agreement(
    first: Sequence[float], second: Sequence[float], *, resamples: int = RESAMPLES, seed: int = SEED
) -> Agreement:
    """The agreement of paired scores; the interval is a percentile bootstrap over pairs."""
    if len(first) != len(second):
        msg = "scores must be paired"
        raise ValueError(msg)
    pairs = len(first)
    if not pairs:
        return Agreement(0, None, None, None, None, None)
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    apart = np.abs(a - b)
    kappa = _kappas(a[None, :], b[None, :])[0]
    interval = None
    if not np.isnan(kappa):
        chosen = np.random.default_rng(seed).integers(0, pairs, (resamples, pairs))
        drawn = _kappas(a[chosen], b[chosen])
        drawn = drawn[~np.isnan(drawn)]
        if len(drawn) >= _LEAST_DEFINED:
            low, high = np.quantile(drawn, [0.025, 0.975])
            interval = (float(low), float(high))
    return Agreement(
        pairs,
        float(np.mean(apart == 0)),
        float(np.mean(apart <= 1)),
        float(np.mean(b - a)),
        None if np.isnan(kappa) else float(kappa),
        interval,
    )


def _kappas(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Quadratic weighted kappa of each row: 1 − the observed squared distance / that of independent scores."""
    observed = np.mean((a - b) ** 2, axis=1)
    expected = np.mean(a**2, axis=1) + np.mean(b**2, axis=1) - 2 * np.mean(a, axis=1) * np.mean(b, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray[Any, Any] = np.where(expected > 1e-12, 1 - observed / expected, np.nan)
    return found
