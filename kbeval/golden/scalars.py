"""Checks the scalars of golden entries: text, numbers and truth values."""

from __future__ import annotations

import math
from typing import Any

from kbeval.golden.reading import Plain

_TRUE = frozenset(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"))
_FALSE = frozenset(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"))

Value = Any


class WrongError(ValueError):
    """A value that is invalid for its field; each argument is one fault."""


def text(value: Value) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        msg = "must be text" if value != "" else "must not be empty"
        raise WrongError(msg)
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            msg = "contains an unpaired surrogate (half a character)"
            raise WrongError(msg) from None
    return str(value)


def is_blank(value: Value) -> bool:
    """Is it blank text? That counts as not given."""
    return isinstance(value, str) and not value.strip()


def text_or_nothing(value: Value) -> str | None:
    """Text; None if it is blank."""
    return None if is_blank(value) else text(value)


def texts(value: Value) -> list[str]:
    """A list of text without empty items."""
    if not isinstance(value, list):
        msg = "must be a list of text"
        raise WrongError(msg)
    try:
        return list(map(text, value))
    except WrongError as error:
        msg = f"must be a list of text; an item {error}"
        raise WrongError(msg) from None


def texts_that_say_something(value: Value) -> list[str]:
    """A list of text; blank items are dropped."""
    return texts([item for item in value if not is_blank(item)] if isinstance(value, list) else value)


def truth(value: Value) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Plain) and (value in _TRUE or value in _FALSE):
        return value in _TRUE
    msg = "must be true or false"
    raise WrongError(msg)


def number(value: Value) -> float:
    """A number; quoted text that looks like one is not accepted."""
    try:
        found = float(value) if isinstance(value, Plain) else math.nan
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        msg = "must be a number"
        raise WrongError(msg)
    return found
