"""Limits: a number is held against one by its exact value, and printed with as many digits as show why.

A limit is a decimal: 0.8 means 8/10. A number that is exactly at its limit keeps it. Fixed-point sums of values such as
1/3 are a hair off, so that a difference below 1e-13 is none; no real one is as small.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

_TIE = Fraction(1, 10**13)
_DIGITS = (6, 8, 10, 12, 15, 17)


def as_written(number: float) -> Fraction:
    """A number as its shortest decimal says, which is how people write it."""
    return Fraction(Decimal(repr(number)))


def side(value: Fraction, limit: Fraction) -> int:
    """1 above the limit, -1 below it, 0 at it."""
    return 0 if abs(value - limit) <= _TIE else 1 if value > limit else -1


def limit_text(limit: float) -> str:
    """A limit as short as can be without changing it."""
    short = f"{limit:g}"
    return short if float(short) == limit else repr(limit)


def as_stored(number: float) -> tuple[str, str]:
    """A stored number as text: short, and whole."""
    return (str(number) if isinstance(number, int) else f"{number:g}"), repr(number)


def telling(value: Fraction, stored: float, limit: float) -> str:
    """A number as text: as it is stored, or with more digits where that would be on another side of the limit."""
    wanted = as_written(limit)
    texts = (*as_stored(stored), *(f"{float(value):.{digits}g}" for digits in _DIGITS))
    return next((text for text in texts if side(Fraction(text), wanted) == side(value, wanted)), texts[-1])


def telling_change(before: tuple[Fraction, float], after: tuple[Fraction, float], limit: float) -> tuple[str, str]:
    """Two numbers as text, each given exactly and as stored, so that their difference is on its side of the limit."""
    wanted = as_written(limit)
    truth = _sides(after[0] - before[0], wanted)
    pairs = [(as_stored(before[1])[0], as_stored(after[1])[0])]
    pairs += [(f"{float(before[0]):.{digits}g}", f"{float(after[0]):.{digits}g}") for digits in _DIGITS]
    fitting = (pair for pair in pairs if _sides(Fraction(pair[1]) - Fraction(pair[0]), wanted) == truth)
    return next(fitting, pairs[-1])


def _sides(change: Fraction, limit: Fraction) -> tuple[int, int]:
    """Of a change that may be for the better or for the worse."""
    return side(change, limit), side(-change, limit)
