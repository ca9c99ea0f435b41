"""Numbers that come out the same every time.

Per-query values are summed by the engine as fixed-point whole numbers (15 decimals), which no order of
rows or threads can change. Here such a sum becomes the stored number: the mean, rounded to four decimals,
half away from zero. A third has no exact 15-decimal form, so a mean that is exactly half-way may arrive a
hair below; ties are decided with a tolerance of 1e-13, far above that error and far below a real difference.
"""

from __future__ import annotations

from decimal import Decimal

SCALE = 15
FIXED_POINT = f"DECIMAL(38, {SCALE})"
DECIMALS = 4
_TIE = 10 ** (SCALE - 13)


def rounded_mean(total: Decimal, count: int) -> float:
    """Mean of `count` values that sum to `total`, rounded as stored numbers are."""
    units = int(total.scaleb(SCALE))
    step = 10 ** (SCALE - DECIMALS) * count
    tolerance = _TIE * count
    magnitude: int = (2 * abs(units) + step + 2 * tolerance) // (2 * step)
    signed = magnitude if units >= 0 else -magnitude
    return float(signed) / float(10**DECIMALS)


def rounded(value: float) -> float:
    """One value, rounded as stored numbers are."""
    return rounded_mean(Decimal(value).quantize(Decimal(1).scaleb(-SCALE)), 1)
