"""Numbers that come out the same every time.

Per-query values are summed by the engine as fixed-point whole numbers (15 decimals), which no order of
rows or threads can change. Here such a sum becomes the stored number: the mean, rounded to four decimals,
half away from zero. A third has no exact 15-decimal form, so a mean that is exactly half-way may arrive a
hair below; ties are decided with a tolerance of 1e-13, far above that error and far below a real difference.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

SCALE = 15
# Up to 1e15, so that the sum of a hundred million of them still fits; larger values count as none.
FIXED_POINT = f"DECIMAL(30, {SCALE})"
LARGEST = 1e15
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


def exact_mean(total: Decimal, count: int) -> Fraction:
    """The same mean before rounding."""
    return Fraction(int(total.scaleb(SCALE)), 10**SCALE * count)


def rounded(value: float) -> float | None:
    """One value, rounded as stored numbers are; None where it is too large to be one, or no number."""
    if not abs(value) < LARGEST:
        return None
    with localcontext(prec=40):
        return rounded_mean(Decimal(value).quantize(Decimal(1).scaleb(-SCALE)), 1)


def difference(a: float | None, b: float | None) -> float | int | None:
    """How much more b is than a, two stored numbers, as a stored number; None where either is missing."""
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return b - a
    steps = float(10**DECIMALS)
    return (round(b * steps) - round(a * steps)) / steps
