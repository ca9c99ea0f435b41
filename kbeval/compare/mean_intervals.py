"""The 95 % confidence interval of the mean of a metric.

For values of 0 and 1 it is Wilson's score interval. Values in between vary less for the same mean, so they carry the
information of a larger number of binary values, in proportion to their smaller variance. Half a value of 0 or 1 is
assumed to have been missed, so that values that happen to be equal do not look certain. (E. B. Wilson, Journal of the
American Statistical Association 22, 1927.)

The independent units are clusters: a query, or all queries of one group.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from kbeval.compare.intervals import CONFIDENCE
from kbeval.compare.stats import Floats, Ints
from kbeval.util.numbers import rounded

_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_MISSED = 0.5
_FEWEST = 2


def mean_interval(values: Floats, clusters: Ints | None = None) -> tuple[float, float] | None:
    """The 95 % interval of a mean of shares; None if there are too few values, or if they are not shares.

    `clusters`: the number of the cluster that each value belongs to.
    """
    count = len(values)
    if not count or values.min() < 0 or values.max() > 1:
        return None
    numbers = np.arange(count) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    sizes = np.bincount(numbers)
    # The effective number of clusters: as many of equal size would carry the same information.
    weight = count**2 / int(sizes @ sizes)
    if weight < _FEWEST:
        return None
    # Sorted, so that no sum depends on the order of rows.
    mean = math.fsum(np.sort(values).tolist()) / count
    sums = [math.fsum(part) for part in _parts(values, numbers, len(sizes))]
    squares = math.fsum(sorted((one - mean * size) ** 2 for one, size in zip(sums, sizes.tolist(), strict=True)))
    # The same for binary values that are equal within each cluster, which have the largest variance.
    most = mean * (1 - mean) * int(sizes @ sizes)
    ratio = min(1.0, (squares + _MISSED) / (most + _MISSED))
    weight /= ratio
    center = (mean + _Z**2 / (2 * weight)) / (1 + _Z**2 / weight)
    half = _Z / (1 + _Z**2 / weight) * math.sqrt(mean * (1 - mean) / weight + _Z**2 / (4 * weight**2))
    return rounded(max(0.0, center - half)) or 0.0, rounded(min(1.0, center + half)) or 0.0


def _parts(values: Floats, numbers: Ints, clusters: int) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in range(clusters)]
    for number, value in sorted(zip(numbers.tolist(), values.tolist(), strict=True)):
        found[number].append(value)
    return found
