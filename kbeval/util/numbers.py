"""Reproducible numbers.

DuckDB sums per-query values as fixed-point numbers (15 decimals), so the order of rows and threads does not matter.
This module turns such a sum into the stored number: the mean, rounded to four decimals, half away from zero. A third
has no exact 15-decimal form, so a mean that is exactly half-way may be slightly too low; ties are decided with a
tolerance of 1e-13, far above that error and far below a real difference.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

SCALE = 15
# Up to 1e15, so that the sum of a hundred million values still fits; larger values count as missing.
FIXED_POINT = f"DECIMAL(30, {SCALE})"
LARGEST = 1e15
DECIMALS = 4
TIE = 10 ** (SCALE - 13)
# No grade of relevance is larger, so that sums of gains stay exact.
MAX_GRADE = 10**9
# Sizes are summed as floats; a hit with exactly the required overlap must not fail because of rounding.
OVERLAP_TOLERANCE = 1e-9


def rounded_mean(total: Decimal, count: int) -> float:
    """Mean of `count` values that sum to `total`, rounded like stored numbers."""
    units = int(total.scaleb(SCALE))
    step = 10 ** (SCALE - DECIMALS) * count
    tolerance = TIE * count
    magnitude: int = (2 * abs(units) + step + 2 * tolerance) // (2 * step)
    signed = magnitude if units >= 0 else -magnitude
    return float(signed) / float(10**DECIMALS)


def exact_mean(total: Decimal, count: int) -> Fraction:
    """The same mean before rounding."""
    return Fraction(int(total.scaleb(SCALE)), 10**SCALE * count)


def rounded(value: float) -> float | None:
    """One value, rounded like stored numbers; None if it is too large or not a number."""
    if not abs(value) < LARGEST:
        return None
    with localcontext(prec=40):
        return rounded_mean(Decimal(value).quantize(Decimal(1).scaleb(-SCALE)), 1)


def difference(a: float | None, b: float | None) -> float | int | None:
    """The difference b - a of two stored numbers, as a stored number; None if either is missing."""
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return b - a
    steps = float(10**DECIMALS)
    return (round(b * steps) - round(a * steps)) / steps
