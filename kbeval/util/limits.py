"""Thresholds: a number is compared with one by its exact value, and printed with enough digits to show the outcome.

A threshold is a decimal: 0.8 means 8/10. A number that is exactly at its threshold passes. Fixed-point sums of values
such as 1/3 are slightly off, so a difference below 1e-13 counts as none; real differences are never that small.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

_TIE = Fraction(1, 10**13)
_DIGITS = (6, 8, 10, 12, 15, 17)


def as_written(number: float) -> Fraction:
    """The exact value of a number's shortest decimal form, which is how people write it."""
    return Fraction(Decimal(repr(number)))


def side(value: Fraction, limit: Fraction) -> int:
    """1 above the threshold, -1 below it, 0 at it."""
    return 0 if abs(value - limit) <= _TIE else 1 if value > limit else -1


def limit_text(limit: float) -> str:
    """A threshold in its shortest exact form."""
    short = f"{limit:g}"
    return short if float(short) == limit else repr(limit)


def as_stored(number: float) -> tuple[str, str]:
    """A stored number as text: short, and in full."""
    return (str(number) if isinstance(number, int) else f"{number:g}"), repr(number)


def telling(value: Fraction, stored: float, limit: float) -> str:
    """A number as text: as stored, or with more digits if that would be on another side of the threshold."""
    wanted = as_written(limit)
    texts = (*as_stored(stored), *(f"{float(value):.{digits}g}" for digits in _DIGITS))
    return next((text for text in texts if side(Fraction(text), wanted) == side(value, wanted)), texts[-1])


def telling_change(before: tuple[Fraction, float], after: tuple[Fraction, float], limit: float) -> tuple[str, str]:
    """Two numbers as text, each given exactly and as stored; their difference stays on its side of the threshold."""
    wanted = as_written(limit)
    truth = _sides(after[0] - before[0], wanted)
    pairs = [(as_stored(before[1])[0], as_stored(after[1])[0])]
    pairs += [(f"{float(before[0]):.{digits}g}", f"{float(after[0]):.{digits}g}") for digits in _DIGITS]
    fitting = (pair for pair in pairs if _sides(Fraction(pair[1]) - Fraction(pair[0]), wanted) == truth)
    return next(fitting, pairs[-1])


def _sides(change: Fraction, limit: Fraction) -> tuple[int, int]:
    """The sides of a change and of its opposite."""
    return side(change, limit), side(-change, limit)
