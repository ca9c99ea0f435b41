"""How far may the mean of a metric over all such queries be from the mean over these?

The same interval as for differences (`kbeval.compare.intervals`), with the distance of each value from 0 or from 1 in
place of a difference: from the one that more queries reach, so that what varies is what is measured. For values of 0
and 1 without groups it is Wilson's score interval.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from kbeval.compare.intervals import interval
from kbeval.compare.stats import Floats, Ints, clustered, whole_numbers
from kbeval.util.numbers import rounded


def mean_interval(values: Floats, clusters: Ints | None = None) -> tuple[float, float] | None:
    """The 95 % interval of a mean of shares; None where there are too few values, or they are not shares.

    `clusters`: the number of the cluster that each value belongs to.
    """
    if not len(values) or values.min() < 0 or values.max() > 1:
        return None
    from_one = int((values == 1).sum()) > int((values == 0).sum())
    units, scale = whole_numbers(1 - values if from_one else values)
    sums, sizes = clustered(units, clusters)
    is_binary = bool(np.isin(values, (0, 1)).all())
    found = interval(sums, sizes, largest=max(1.0, float(scale)), is_binary=is_binary)
    if found is None:
        return None
    low, high = (min(1.0, max(0.0, float(Fraction(limit) / scale))) for limit in found)
    low, high = (1 - high, 1 - low) if from_one else (low, high)
    return rounded(low) or 0.0, rounded(high) or 0.0
