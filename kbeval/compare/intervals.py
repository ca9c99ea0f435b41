"""The 95 % confidence interval of a mean difference, with correct coverage for few queries too.

The independent units are clusters: a query, or all queries of one group. Two intervals are computed, and weighted by
how many clusters did not change at all:

*If most clusters did not change*, the uncertainty is mostly about how many will, and in which direction. Student's
interval cannot express that: three queries that did not change show no variation. So the differences are modelled as
-r, 0 or +r, and the interval is Tango's score interval for paired proportions. For a metric with the values 0 and 1, r
is 1 and it is exactly that interval. Otherwise r is the size that gives the same mean and the same mean square as the
differences, plus half a change of the size of the largest value: if few changes were observed, a larger one may have
been missed.

*If every cluster changed*, and by different amounts, it is Student's interval with the jackknife variance, which is
valid for groups of different sizes too. Student's interval misses too often on the side of a long tail, which a small
sample underrepresents. On that side it is extended by twice Johnson's correction for skewness: once would be enough if
the skewness were known, but samples underestimate it. (N. J. Johnson, Journal of the American Statistical Association
73, 1978.)

In between, the limits are weighted: the score interval by the share of queries in clusters that did not change,
Student's by the rest. If all changes have one size, it is the score interval alone. There is no interval if nothing is
known about the spread: with one cluster (or one that outweighs all others), or if all values moved by the same amount
and the metric is not binary.

The inputs are sums that do not depend on the order of rows, and every step is symmetric, so that swapping the runs
swaps the limits.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95

Ints = NDArray[np.int64]

_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
# The number of changes of the size of the largest value that are assumed to have been missed.
_MISSED = 0.5
_FEWEST = 2
_TWICE = 2
_HALVINGS = 60
_NODES = 64


def interval(sums: Ints, sizes: Ints, *, largest: float, is_binary: bool) -> tuple[float, float] | None:
    """The limits of the mean difference; None if there is no interval.

    sums, sizes: each cluster's sum of differences and number of queries. largest: the largest value of any query in
    either run. is_binary: all values are 0 or 1. All are in the same unit; differences below one unit count as zero.
    """
    total = int(sizes.sum())
    # The effective number of clusters: as many of equal size would carry the same information.
    weight = total**2 / int(sizes @ sizes)
    if weight < _FEWEST:
        return None
    moved = np.abs(sums) / sizes
    changed = moved > 0
    is_one_size = bool(np.ptp(moved[changed]) <= 1) if changed.any() else True
    if is_one_size and not is_binary and abs(int(sums.sum())) == int(np.abs(sums).sum()) and changed.all():
        return None
    by_score = _by_score(sums, sizes, weight, largest)
    if is_one_size:
        return by_score
    unchanged = int(sizes[~changed].sum()) / total
    low, high = (
        unchanged * score + (1 - unchanged) * limit
        for score, limit in zip(by_score, _by_student(sums, sizes, weight), strict=True)
    )
    return low, high


def _by_student(sums: Ints, sizes: Ints, weight: float) -> tuple[float, float]:
    """Student's interval with the jackknife's standard error, extended on the side of the longer tail."""
    total, count = int(sizes.sum()), len(sums)
    mean = int(sums.sum()) / total
    # By how much the mean changes if one cluster is left out.
    moves = (sums - mean * sizes) / (total - sizes)
    # Products, not powers: the result of numpy's power may depend on the position in the array.
    squares, cubes = (math.fsum(powers.tolist()) for powers in (moves * moves, moves * moves * moves))
    error = math.sqrt((1 - 1 / count) * squares)
    quantile = student(weight - 1)
    half, more = quantile * error, 0.0
    if count > _FEWEST and squares:
        skewness = cubes / count / (squares / count) ** 1.5 * math.sqrt(count * (count - 1)) / (count - 2)
        more = _TWICE * error * skewness * (1 + 2 * quantile**2) / (6 * math.sqrt(weight))
    return mean - half + min(0.0, more), mean + half + max(0.0, more)


def _by_score(sums: Ints, sizes: Ints, weight: float, largest: float) -> tuple[float, float]:
    """Tango's interval for differences of -r, 0 and +r with the given mean and mean square."""
    total = int(sizes.sum())
    mean, far = int(sums.sum()) / total, int(np.abs(sums).sum()) / total
    square = math.fsum((sums.astype(np.float64) ** 2).tolist()) / int(sizes @ sizes)
    size = max(far, (weight * square + _MISSED * largest**2) / (weight * far + _MISSED * largest))
    up, down = (weight * (far + side) / 2 / size for side in (mean, -mean))
    return size * _lowest(up, down, weight), -size * _lowest(down, up, weight)


def _lowest(up: float, down: float, n: float) -> float:
    """The lowest difference of two paired proportions that is compatible with n pairs, given how many went up and down.
    (T. Tango, Statistics in Medicine 17, 1998.)
    """
    low, high = -1.0, (up - down) / n
    for _ in range(_HALVINGS):
        true = (low + high) / 2
        # The most likely number that would go down if that were the difference.
        linear = (2 * n - up + down) * true - up - down
        down_then = (math.sqrt(max(0.0, linear**2 + 8 * n * down * true * (1 - true))) - linear) / (4 * n)
        variance = n * max(0.0, 2 * down_then + true * (1 - true))
        if (up - down - n * true) ** 2 <= _Z**2 * variance:
            high = true
        else:
            low = true
    return high


@cache
def student(freedom: float) -> float:
    """The two-sided quantile of Student's t at level CONFIDENCE, for one or more degrees of freedom.

    With t = √f tan φ, the density of φ is cos φ to the power of f - 1.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    every = math.sqrt(math.pi) / 2 * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        angle = (low + high) / 2
        inside = angle / 2 * float(weights @ np.cos(angle / 2 * (nodes + 1)) ** (freedom - 1))
        low, high = (angle, high) if inside < CONFIDENCE * every else (low, angle)
    return math.sqrt(freedom) * math.tan(high)
