"""The smallest detectable difference: the size at which kbeval's own tests are significant in 80 % of trials.

*The model.* A trial draws the same number of clusters, each a query or the queries of one group. Each changes at the
observed rate, by an amount drawn from the observed absolute changes, and a share q of the changes goes in one
direction. The true mean difference is then rate × mean amount × (2q - 1). The smallest detectable one belongs to the q
at which the test is significant in that direction in four trials out of five. If even q = 1 does not suffice, because
too few clusters change, the rate is raised instead, with all changes in one direction.

*The test* is the one that comparisons use: McNemar's mid-p for binary metrics, sign flips otherwise, at the level that
Holm's correction requires of the smallest p (0.05 / number of tests, where metrics that changed alike are one test).
That level suffices whatever the other p values are. Trials that are significant in the wrong direction do not count.

If all changes have one size, the power is that of the binomial test, computed exactly. Otherwise the critical value
depends on the sizes: it is found by sign flips for few changes, and by a normal approximation with a correction for
heavy tails for many. All draws are seeded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

POWER = 0.8
MCNEMAR, SIGN_FLIP = "mcnemar", "sign-flip"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SEED = 1
_NEVER = 1e-6
# Up to this many changes, the binomial test is computed term by term.
_TERMS = 400
# Changes of several sizes: up to this many signs are flipped, all of them up to _EVERY_SIGN changes.
_FLIPPED = 120
_EVERY_SIGN = 11
_FLIPS = 1000
_NODES = 16
_TRIALS = 20
_THROWS = 4
_FEWEST_BEYOND = 4
_FINEST_LEVEL = 0.0005
_SIZES = 64
_COUNTS = 200


@dataclass(frozen=True)
class Rule:
    """A test and the level that its p must reach. `resamples`: the number of sign flips drawn if it cannot try all of
    them.
    """

    test: str
    level: float
    resamples: int

    @property
    def fewest(self) -> int | None:
        """The number of clusters that must change in one direction before the test can be significant; None: no number
        suffices.
        """
        if self.test == SIGN_FLIP and self.level * (self.resamples + 1) < 1:
            return None  # the smallest p possible with so few flips is larger
        return math.ceil(math.log2((1 if self.test == MCNEMAR else 2) / self.level))


def detectable(sizes: Ints, counts: Ints, n: int, rule: Rule) -> float | None:
    """The smallest detectable mean difference for n clusters, in the unit of `sizes`: the absolute changes, and how
    many clusters changed by each. None if too few changed for any test to be significant.
    """
    changed, fewest = int(counts.sum()), rule.fewest
    if fewest is None or changed < fewest:
        return None
    rate = changed / n
    amount = float(sizes @ counts) / changed
    if _at_least(fewest, n, rate) < POWER:
        return _crossing(lambda raised: _at_least(fewest, n, raised), rate, 1.0) * amount
    if rule.test == MCNEMAR or len(sizes) == 1:
        share = _share_of_equal_changes(n, rate, rule)
    elif changed <= _FLIPPED and rule.level >= _FINEST_LEVEL:
        share = _share_by_flipping(sizes / sizes.max(), counts / changed, (n, rate), rule.level)
    else:
        share = _share_of_many_changes(sizes / sizes.max(), counts, n, rule.level)
    return rate * amount * (2 * share - 1)


def _crossing(power: Callable[[float], float], low: float, high: float) -> float:
    """The point at which an increasing power reaches the target."""
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle) < POWER else (low, middle)
    return high


# --- how many clusters change ------------------------------------------------------------------------


def _at_least(fewest: int, n: int, rate: float) -> float:
    """The probability that at least this many of n clusters change."""
    if rate >= 1:
        return 1.0
    logs = _logs_of_choices(n, np.arange(min(fewest, n + 1)))
    few = np.arange(len(logs))
    return 1 - math.fsum(np.exp(logs + few * math.log(rate) + (n - few) * math.log1p(-rate)).tolist())


def _logs_of_choices(n: int, few: Ints) -> Floats:
    """Logarithms of the binomial coefficients of n over 0, 1, 2, …"""
    steps = few[1:]
    return np.concatenate(([0.0], np.cumsum(np.log(n - steps + 1) - np.log(steps))))


def _changes(n: int, rate: float) -> tuple[Ints, Floats]:
    """The plausible numbers of changes, and the probability of each."""
    if rate >= 1:
        return np.full(1, n), np.ones(1)
    mean, reach = n * rate, 6 * math.sqrt(n * rate * (1 - rate)) + 6
    low, high = max(0, math.floor(mean - reach)), min(n, math.ceil(mean + reach))
    steps = np.arange(low + 1, high + 1)
    ratios = np.log((n - steps + 1) / steps) + (math.log(rate) - math.log1p(-rate))
    logs = np.concatenate(([0.0], np.cumsum(ratios)))
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    matter = chances > _NEVER
    return np.arange(low, high + 1)[matter], chances[matter]


# --- changes of one size -----------------------------------------------------------------------------


def _share_of_equal_changes(n: int, rate: float, rule: Rule) -> float:
    changes, chances = _changes(n, rate)
    power = _exact_power if changes[-1] <= _TERMS else _nearly_exact_power
    return _crossing(power(changes, chances, rule), 0.5, 1.0)


def _exact_power(changes: Ints, weights: Floats, rule: Rule) -> Callable[[float], float]:
    factorials = _logs_of_factorials()
    changed, other_way = changes[:, None], np.arange(changes[-1] // 2 + 1)[None, :]
    is_side = 2 * other_way <= changed
    rest = np.where(is_side, changed - other_way, 0)
    logs = np.where(is_side, factorials[changed] - factorials[other_way] - factorials[rest], -np.inf)
    chances = np.exp(logs - changed * math.log(2))
    p = 2 * np.cumsum(chances, axis=1) - (chances if rule.test == MCNEMAR else 0)
    rejects = (p <= rule.level) & is_side
    logs = np.where(rejects, logs, -np.inf)

    def power(share: float) -> float:
        less = math.log1p(-share) if share < 1 else -1e9
        return float(weights @ np.exp(logs + rest * math.log(share) + other_way * less).sum(axis=1))

    return power


@cache
def _logs_of_factorials() -> Floats:
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, _TERMS + 1)))))


def _nearly_exact_power(changes: Ints, weights: Floats, rule: Rule) -> Callable[[float], float]:
    z = NormalDist().inv_cdf(1 - rule.level / 2)
    most = np.floor(changes / 2 - z * np.sqrt(changes) / 2 - (0 if rule.test == MCNEMAR else 0.5))

    def power(share: float) -> float:
        spread = np.sqrt(changes * share * (1 - share)) + 1e-9
        return float(weights @ _below((most + 0.5 - changes * (1 - share)) / spread))

    return power


def _below(z: Floats) -> Floats:
    """The normal distribution function."""
    return np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in z.tolist()])


# --- changes of several sizes ------------------------------------------------------------------------


def _share_by_flipping(sizes: Floats, chances: Floats, drawn: tuple[int, float], alpha: float) -> float:
    """Draw trials; in each, turn changes one by one until the test is significant. The number needed determines the
    share q from which it would be: the number turned at share q is binomial, so the share is drawn from a beta
    distribution.
    """
    generator = np.random.default_rng(_SEED)
    changes, chances_of_changes = _changes(*drawn)
    # Representative numbers of changes, each equally probable.
    places = np.searchsorted(np.cumsum(chances_of_changes), (np.arange(_NODES) + 0.5) / _NODES)
    places, weights = np.unique(np.minimum(places, len(changes) - 1), return_counts=True)
    up_to = np.cumsum(chances)
    begins = []
    for changed, weight in zip(changes[places].tolist(), (weights * _TRIALS).tolist(), strict=True):
        drawn_sizes = np.searchsorted(up_to, generator.random((weight, changed)) * up_to[-1])
        found = sizes[drawn_sizes]
        too_low = (found.sum(axis=1) + _too_low(generator, found, alpha)) / 2 + 1e-9
        # The changes of a trial are in random order, so any order of turning is equivalent.
        for turned in (found, found[:, ::-1]):
            missing = (np.cumsum(turned, axis=1) <= too_low[:, None]).sum(axis=1)
            holds = missing < changed
            taken = np.where(holds, missing + 1, 1)
            begins.append(np.where(holds, generator.beta(taken, changed - taken + 1, size=(_THROWS, weight)), 1.0))
    every = np.sort(np.concatenate(begins, axis=None))
    return float(every[math.ceil(POWER * len(every)) - 1])


def _too_low(generator: np.random.Generator, found: Floats, alpha: float) -> Floats:
    """The largest sum of each trial that is not significant."""
    changed = found.shape[1]
    signs: Floats
    if changed <= _EVERY_SIGN:
        signs = _every_sign(changed)
        most = math.floor(alpha * len(signs) + 1e-9)
    else:
        # The tail beyond the k-th largest of F is (k - 1/2) / F, on the scale on which critical values are drawn.
        most = max(_FEWEST_BEYOND, math.floor(_FLIPS * alpha)) - 1
        flips = math.ceil((most + 0.5) / alpha)
        signs = 2 * generator.integers(2, size=(flips, changed), dtype=np.int8).astype(np.float64) - 1
    sums = np.abs(found @ signs.T)
    place = len(signs) - 1 - most
    return np.asarray(np.partition(sums, place, axis=1)[:, place])


@cache
def _every_sign(changed: int) -> Floats:
    """All combinations of signs with the last one fixed; the others are their mirror images."""
    ways = np.arange(2 ** (changed - 1))[:, None] >> np.arange(changed)[None, :]
    return 1 - 2 * (ways & 1).astype(np.float64)


def _share_of_many_changes(sizes: Floats, counts: Ints, n: int, alpha: float) -> float:
    """Draw trials as counts of changes of each size; given those, the sum is approximately normal."""
    chances, *moments = _grouped(sizes, counts)
    generator = np.random.default_rng(_SEED)
    drawn = generator.multinomial(n, np.append(chances, max(0.0, n - counts.sum())) / n, size=_COUNTS)[:, :-1]
    total, squares, fourths = (drawn @ moment for moment in moments)
    z = NormalDist().inv_cdf(1 - alpha / 2)
    critical = (z - (z**3 - 3 * z) * fourths / squares**2 / 12) * np.sqrt(squares)

    def power(share: float) -> float:
        spread = np.sqrt(4 * share * (1 - share) * squares) + 1e-9
        return float(_below(((2 * share - 1) * total - critical) / spread).mean())

    return _crossing(power, 0.5, 1.0)


def _grouped(sizes: Floats, counts: Ints) -> tuple[Floats, Floats, Floats, Floats]:
    """Sizes in a manageable number of groups: the count of each, and the means of their first, second and fourth
    powers.
    """
    below = np.cumsum(counts) - counts
    group = np.arange(len(sizes)) if len(sizes) <= _SIZES else below * _SIZES // counts.sum()
    each: Floats = np.bincount(group, weights=counts).astype(np.float64)
    first, second, fourth = (np.bincount(group, weights=counts * sizes**power) for power in (1, 2, 4))
    kept = each > 0
    each = each[kept]
    return each, first[kept] / each, second[kept] / each, fourth[kept] / each
