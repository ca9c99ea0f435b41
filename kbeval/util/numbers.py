"""Reproducible numbers: the operations that may be used to compute them.

The engine sums per-query values as integers, so the order of rows and threads does not matter: the integer part of each
value, and its remainder in units of the 15th decimal. Only operations that give the same bits in every engine are used:
comparing doubles, FLOOR, the difference between a double and its FLOOR (which has no rounding error from zero upwards),
one product, and sums of integers as DECIMAL. Casting a double to a decimal with decimals is not one of them: engines
differ, and DuckDB's conversion is inexact for large values. Neither are the engine's own percentiles: it finds the two
neighbouring values, and the interpolation is computed here, like everything that is divided or rounded.

Within a query, four metrics (bpref, map_at_k, ndcg_at_k, rbp) round each gain to 15 decimals before they are added, so
the order of hits does not matter. There engines may differ in the last place, as LOG2 and POWER do: by about 1e-15 of a
value of at most 1. That is a hundredth of the tolerance below, so the stored numbers are the same.

This module turns such a sum into the stored number: the mean, rounded to four decimals, half away from zero. A third
has no exact 15-decimal form, so a mean that is exactly half-way may come out slightly too low; ties are decided with a
tolerance of 1e-13, far above that error and far below a real difference.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

SCALE = 15
# Up to 1e15, so that the sums of a hundred million values still fit; larger values count as missing.
LARGEST = 1e15
SUMMABLE = "CASE WHEN ABS({value}) < 1e15 THEN {value} END"
# The integer part of a value, and the sums of both parts.
WHOLE = "FLOOR({value})"
SUMS = (
    "SUM(CAST({whole} AS DECIMAL(16, 0)))",
    "SUM(CAST(FLOOR(({value} - {whole}) * 1e15 + 0.5) AS DECIMAL(16, 0)))",
)
DECIMALS = 4
TIE = 10 ** (SCALE - 13)
# The largest grade of relevance, so that sums of gains stay exact.
MAX_GRADE = 10**9
# Sizes are summed as floats; a hit with exactly the required overlap must not fail because of rounding.
OVERLAP_TOLERANCE = 1e-9


def units(whole: Decimal | int, rest: Decimal | int = 0) -> int:
    """A sum in units of the 15th decimal, from the sums of integer parts and of remainders."""
    total: int = int(whole) * 10**SCALE + int(rest)
    return total


def plain(units: int) -> Decimal:
    """A sum in units as a decimal number, exactly."""
    with localcontext(prec=100):
        return Decimal(units).scaleb(-SCALE)


def rounded_mean(units: int, count: int) -> float:
    """Mean of `count` values with this sum in units, rounded like stored numbers."""
    step = 10 ** (SCALE - DECIMALS) * count
    tolerance = TIE * count
    magnitude: int = (2 * abs(units) + step + 2 * tolerance) // (2 * step)
    signed: int = magnitude if units >= 0 else -magnitude
    mean: float = signed / 10**DECIMALS
    return mean


def exact_mean(units: int, count: int) -> Fraction:
    """The same mean before rounding."""
    return Fraction(units, 10**SCALE * count)


def between(low: float, high: float, percent: int, count: int) -> Fraction:
    """A percentile of `count` values, exactly, from the two neighbouring values."""
    return Fraction(low) + (Fraction(high) - Fraction(low)) * Fraction(percent * (count - 1) % 100, 100)


def rounded(value: float | Fraction) -> float | None:
    """One value, rounded like stored numbers; None if it is too large or not a number."""
    if not abs(float(value)) < LARGEST:
        return None
    return rounded_mean(round(Fraction(value) * 10**SCALE), 1)


def difference(a: float | None, b: float | None) -> float | int | None:
    """The difference b - a of two stored numbers, as a stored number; None if either is missing."""
    if a is None or b is None:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return b - a
    steps = float(10**DECIMALS)
    return (round(b * steps) - round(a * steps)) / steps
