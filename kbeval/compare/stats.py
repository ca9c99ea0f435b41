"""Significance tests over the queries that two runs share, one pair of values per query.

Queries of one group move together, so they count as one cluster: the tests use the sums of their differences. A
query without a group is a cluster by itself.

*p* is the probability of a difference at least this large if the runs were interchangeable: from flipping the sign of
each cluster's sum or, for binary metrics without groups, McNemar's mid-p. *The interval* bounds the true mean
difference; see `kbeval.compare.intervals`. The two answer different questions but never contradict each other: if p is
above .05, the interval contains 0.

Only the distinct sums and how often each occurs matter, so flips are drawn as counts instead of cluster by cluster: the
same distribution, at a cost that hardly grows with their number. Differences are stored as integers, so that sums are
exact and do not depend on the order of rows. Everything is seeded; if there are few flips, all are enumerated.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kbeval.compare.intervals import interval
from kbeval.compare.options import RESAMPLES, SEED
from kbeval.compare.power import MCNEMAR, SIGN_FLIP, Rule, detectable
from kbeval.metrics.catalogue import HIGHER, NEITHER
from kbeval.util.numbers import rounded

ALPHA = 0.05
# With fewer clusters than this, an interval is rough.
ROUGH = 10

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Sums of integers stay exact below this, in integer and in float arithmetic.
_EXACT = 2**52
_FINEST = 9
# Enumerate up to this many: 2^13 signs.
_ENUMERATED_FLIPS = 13
# With more distinct sums than this, drawing them one by one is faster than drawing counts.
_MANY = 400
_BLOCK = 2_000_000


@dataclass(frozen=True)
class Pairs:
    """A metric's values in both runs, per query; NaN where it does not apply."""

    a: Floats
    b: Floats
    better: str = HIGHER
    # False: the number is shown, but a difference in it is not evidence of quality.
    decides: bool = True
    # The number of the cluster that each query belongs to; None: each query is its own cluster.
    clusters: Ints | None = None

    def only(self, chosen: NDArray[np.bool_]) -> Pairs:
        """The pairs of some queries."""
        clusters = None if self.clusters is None else self.clusters[chosen]
        return replace(self, a=self.a[chosen], b=self.b[chosen], clusters=clusters)


@dataclass(frozen=True)
class Changes:
    """The absolute changes of clusters, how many changed by each amount, and the number of units per one."""

    sizes: Ints
    counts: Ints
    scale: Fraction


@dataclass(frozen=True)
class Significance:
    """The statistics of a metric's difference, over the queries that have a value in both runs."""

    n: int
    # How many of them differ.
    changed: int
    # The number of clusters, and how many of those differ.
    clusters: int
    clusters_changed: int
    mean_delta: float
    # The limits of the 95 % interval; None if there is none.
    low: float | None
    high: float | None
    # The test, and the level at which p is significant whatever the other p values are.
    rule: Rule
    p: float
    p_sign_flip: float
    better: str
    decides: bool
    changes: Changes = field(compare=False, repr=False)
    p_holm: float = 1.0
    holds: bool = False
    # An earlier number that changed equally for every query, up to the sign: both count as one in the correction.
    same_as: str | None = None

    @property
    def test(self) -> str:
        return self.rule.test

    @property
    def needed(self) -> int | None:
        """How many clusters would have to change in one direction before p can be significant; None: no number
        suffices.
        """
        return self.rule.fewest

    @property
    def is_grouped(self) -> bool:
        """Do some queries share a cluster?"""
        return self.clusters < self.n

    @property
    def is_rough(self) -> bool:
        """Is the interval based on few clusters?"""
        return self.clusters < ROUGH

    @property
    def direction(self) -> str | None:
        """`better` or `worse` if the difference is significant, otherwise None."""
        return self.leaning if self.holds else None

    @property
    def leaning(self) -> str | None:
        """`better` or `worse`, significant or not."""
        if not self.mean_delta or not self.decides:
            return None
        return BETTER if (self.mean_delta > 0) is (self.better == HIGHER) else WORSE

    @cached_property
    def detectable(self) -> float | None:
        """The mean difference that would be significant in 80 % of trials, see `kbeval.compare.power`; None if fewer
        clusters changed than the test needs.
        """
        size = detectable(self.changes.sizes, self.changes.counts, self.clusters, self.rule)
        return None if size is None else _stored(Fraction(size) * self.clusters / self.n / self.changes.scale)

    def to_dict(self) -> dict[str, object]:
        return {
            "n": self.n,
            "changed": self.changed,
            "clusters": self.clusters,
            "clusters_changed": self.clusters_changed,
            "mean_delta": self.mean_delta,
            "interval": None if self.low is None else [self.low, self.high],
            "rough": self.is_rough,
            "test": self.test,
            "p": self.p,
            "p_sign_flip": self.p_sign_flip,
            "p_holm": self.p_holm,
            "holds": self.holds,
            "needed": self.needed,
            "detectable": self.detectable,
            "better": self.better,
            "decides": self.decides,
            "same_as": self.same_as,
        }


@dataclass(frozen=True)
class Verdict:
    """Is B better? And if no difference was found: which difference would have been found."""

    answer: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    # The headline metric and its statistics; None if nothing could be compared.
    metric: str | None
    evidence: Significance | None

    @property
    def n(self) -> int:
        return 0 if self.evidence is None else self.evidence.n

    @property
    def detectable(self) -> float | None:
        return None if self.evidence is None else self.evidence.detectable

    def to_dict(self) -> dict[str, object]:
        one = self.evidence
        return {
            "answer": self.answer,
            "better": list(self.better),
            "worse": list(self.worse),
            "metric": self.metric,
            "n": self.n,
            "changed": 0 if one is None else one.changed,
            "clusters": 0 if one is None else one.clusters,
            "needed": None if one is None else one.needed,
            "detectable": self.detectable,
        }


BETTER, WORSE, MIXED, NO_DIFFERENCE = "better", "worse", "mixed", "no detectable difference"


def assess(metrics: Mapping[str, Pairs], *, resamples: int = RESAMPLES, seed: int = SEED) -> dict[str, Significance]:
    """Test every metric and correct for multiple testing. Metrics without pairs are left out.

    Numbers that changed equally for every query, or exactly in reverse, are one number under several names and count
    once in the correction. This is determined from the values: a declaration could be wrong for the given rows, and
    user-defined metrics would need one. It does not bias the test, because it does not depend on which run is which:
    swapping the runs for any cluster changes the sign in all of its numbers at once.
    """
    found: dict[str, Significance] = {}
    first_of: dict[tuple[str, bytes], str] = {}
    same_as: dict[str, str] = {}
    for name, pairs in metrics.items():
        applies = ~(np.isnan(pairs.a) | np.isnan(pairs.b))
        if not applies.any():
            continue
        one = _tested(pairs.only(applies), resamples=resamples, seed=seed)
        found[name] = one
        if one.decides:
            first = first_of.setdefault((one.test, _fingerprint(pairs)), name)
            if first != name:
                same_as[name] = first
    adjusted = holm({name: found[name].p for name in first_of.values()})
    return {
        name: _corrected(one, adjusted.get(same_as.get(name, name)), len(adjusted), same_as.get(name))
        for name, one in found.items()
    }


def _fingerprint(pairs: Pairs) -> bytes:
    """The differences per query, up to a common sign; a query without a value counts as unchanged."""
    deltas = np.round(np.nan_to_num(pairs.b - pairs.a), _FINEST) + 0.0
    changed = np.flatnonzero(deltas)
    return (-deltas + 0.0 if len(changed) and deltas[changed[0]] < 0 else deltas).tobytes()


def verdict(significance: Mapping[str, Significance], headline: str | None) -> Verdict:
    """The verdict from all significant differences. `headline`: the metric to report if none is significant."""
    better = tuple(name for name, one in significance.items() if one.direction == BETTER)
    worse = tuple(name for name, one in significance.items() if one.direction == WORSE)
    answer = MIXED if better and worse else BETTER if better else WORSE if worse else NO_DIFFERENCE
    deciding = [name for name, one in significance.items() if one.decides]
    metric = headline if headline in deciding else next(iter(deciding), None)
    return Verdict(answer, better, worse, metric, None if metric is None else significance[metric])


def _tested(pairs: Pairs, *, resamples: int, seed: int) -> Significance:
    a, b = pairs.a, pairs.b
    units, scale = _whole_numbers(b - a)
    n, changed = len(units), int(np.count_nonzero(units))
    sums, sizes = _clustered(units, pairs.clusters)
    values, counts = np.unique(sums, return_counts=True)
    changes = _changes(values, counts, scale)
    is_binary = bool(np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all())
    p_sign_flip = _sign_flip(values, counts, changed, resamples, seed)
    by_mcnemar = is_binary and len(sums) == n
    p = mcnemar_mid_p(int((b > a).sum()), int((b < a).sum())) if by_mcnemar else p_sign_flip
    low, high = _limits(pairs, sums, sizes, scale, is_binary=is_binary)
    if low is not None and high is not None and p > ALPHA:
        low, high = min(0.0, low), max(0.0, high)
    return Significance(
        n=n,
        changed=changed,
        clusters=len(sums),
        clusters_changed=int(changes.counts.sum()),
        mean_delta=_stored(Fraction(int(units.sum()), n) / scale),
        low=low,
        high=high,
        rule=Rule(MCNEMAR if by_mcnemar else SIGN_FLIP, ALPHA, resamples),
        p=p,
        p_sign_flip=_stored(Fraction(p_sign_flip)),
        better=pairs.better,
        decides=pairs.decides and pairs.better != NEITHER,
        changes=changes,
    )


def _clustered(units: Ints, clusters: Ints | None) -> tuple[Ints, Ints]:
    """The sum of each cluster's differences, and how many queries it has."""
    if clusters is None:
        return units, np.ones(len(units), dtype=np.int64)
    _, place, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    sums = np.bincount(place, weights=units).astype(np.int64)
    # A third is not a whole number of units: each is off by at most half a unit, and differences that cancel must
    # cancel here too.
    off = np.bincount(place, weights=units != 0) / 2
    return np.where(np.abs(sums) <= off, 0, sums), sizes


def _limits(
    pairs: Pairs, sums: Ints, sizes: Ints, scale: Fraction, *, is_binary: bool
) -> tuple[float | None, float | None]:
    largest = 1.0 if is_binary else float(max(np.abs(pairs.a).max(), np.abs(pairs.b).max()))
    found = interval(sums, sizes, largest=max(1.0, largest * float(scale)), is_binary=is_binary)
    if found is None:
        return None, None
    low, high = (_stored(Fraction(limit) / scale) for limit in found)
    if min(pairs.a.min(), pairs.b.min()) < 0 or largest > 1:
        return low, high
    # The values are shares, so no mean of them can move further.
    return max(-1.0, low), min(1.0, high)


def _corrected(one: Significance, p_holm: float | None, family: int, same_as: str | None) -> Significance:
    """`p_holm` is None if the number decides nothing, because it was tested by itself."""
    return replace(
        one,
        p=_stored(Fraction(one.p)),
        p_holm=_stored(Fraction(one.p if p_holm is None else p_holm)),
        holds=p_holm is not None and p_holm <= ALPHA,
        rule=one.rule if p_holm is None else replace(one.rule, level=ALPHA / family),
        same_as=same_as,
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down correction: each p, corrected for the number of tests."""
    ordered = sorted(p_values.items(), key=lambda item: (item[1], item[0]))
    adjusted: dict[str, float] = {}
    worst = 0.0
    for place, (name, p) in enumerate(ordered):
        worst = max(worst, min(1.0, p * (len(ordered) - place)))
        adjusted[name] = worst
    return adjusted


def mcnemar_mid_p(gained: int, lost: int) -> float:
    """Two-sided mid-p of McNemar's test: among the queries that changed, is one direction more frequent than chance
    explains?
    """
    changed, fewer = gained + lost, min(gained, lost)
    if not changed:
        return 1.0
    # Binomial probabilities for 0 … fewer, as logarithms: they are far too small for floats when many changed.
    steps = np.arange(1, fewer + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log(changed - steps + 1) - np.log(steps)))) - changed * math.log(2)
    chances = np.exp(logs)
    return min(1.0, 2 * math.fsum(chances) - float(chances[-1]))


# --- whole numbers -----------------------------------------------------------------------------------


def _whole_numbers(deltas: Floats) -> tuple[Ints, Fraction]:
    """Differences as multiples of a power of ten small enough that any sum is exact, and the number of units per
    one.
    """
    largest = float(np.abs(deltas).max())
    if largest < 10.0**-_FINEST:
        # Float noise, not a difference.
        return np.zeros(len(deltas), dtype=np.int64), Fraction(10) ** _FINEST
    exponent = min(_FINEST, math.floor(math.log10(_EXACT / (largest * len(deltas)))))
    scale = Fraction(10) ** exponent
    return np.rint(deltas * float(scale)).astype(np.int64), scale


def _stored(value: Fraction) -> float:
    found = rounded(float(value))
    # Too large for four decimals to matter.
    return float(value) if found is None else found or 0.0


# --- resampling --------------------------------------------------------------------------------------


def _changes(values: Ints, counts: Ints, scale: Fraction) -> Changes:
    sizes, place = np.unique(np.abs(values), return_inverse=True)
    each = np.bincount(place, weights=counts).astype(np.int64)
    return Changes(sizes[sizes > 0], each[sizes > 0], scale)


def _sign_flip(values: Ints, counts: Ints, inexact: int, resamples: int, seed: int) -> float:
    """If the runs were interchangeable, each cluster could as well have the other sign: how often is the sum then at
    least as far from zero? (b + 1) / (B + 1) for b of B flips; the added one is the observed signs. `inexact`: how many
    whole numbers the values are sums of.
    """
    changes = _changes(values, counts, Fraction(1))
    # Each is off by at most half a unit, and equal sums must count as equal.
    observed = abs(int(values @ counts)) - inexact
    return _share_as_far(changes.sizes.tobytes(), changes.counts.tobytes(), observed, resamples, seed)


# Many numbers change alike, such as hit@1 and precision@1.
@functools.lru_cache(256)
def _share_as_far(of_sizes: bytes, of_counts: bytes, observed: int, resamples: int, seed: int) -> float:
    sizes, each = np.frombuffer(of_sizes, dtype=np.int64), np.frombuffer(of_counts, dtype=np.int64)
    moving = int(each.sum())
    if moving <= _ENUMERATED_FLIPS:
        every = np.repeat(sizes, each)
        signs = np.array(list(itertools.product((1, -1), repeat=moving)), dtype=np.int64)
        return float(np.mean(np.abs(signs @ every) >= observed))
    generator = np.random.default_rng(seed)
    blocks = _flipped_one_by_one if len(sizes) > _MANY else _flipped_as_counts
    as_far = sum(int((np.abs(sums) >= observed).sum()) for sums in blocks(generator, sizes, each, resamples))
    return (as_far + 1) / (resamples + 1)


def _flipped_as_counts(generator: np.random.Generator, sizes: Ints, each: Ints, resamples: int) -> Iterator[Ints]:
    for size in _blocks(resamples, len(sizes)):
        kept = generator.binomial(each, 0.5, size=(size, len(sizes)))
        yield (2 * kept - each) @ sizes


def _flipped_one_by_one(generator: np.random.Generator, sizes: Ints, each: Ints, resamples: int) -> Iterator[Ints]:
    every = np.repeat(sizes, each).astype(np.float64)  # still integers, and far faster to multiply
    for size in _blocks(resamples, len(every)):
        kept = generator.integers(2, size=(size, len(every)), dtype=np.int8).astype(np.float64)
        yield (2 * (kept @ every) - every.sum()).astype(np.int64)


def _blocks(resamples: int, width: int) -> Iterator[int]:
    """Resamples in blocks that fit into memory."""
    size = max(1, _BLOCK // max(1, width))
    for start in range(0, resamples, size):
        yield min(size, resamples - start)
