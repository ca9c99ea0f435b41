"""JSON as all readers of kbeval accept it: well-formed by RFC 8259, and unambiguous.

Python's own reader accepts NaN and Infinity, duplicate keys (it keeps the last one), lone surrogates, and numbers
beyond the range of floats. Programs disagree about all of these, so text that contains any of them is rejected.
`sql/macros.sql` (`loose_fault`) implements the same rules, with the same messages, in DuckDB.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

# The white space allowed around a value; Python allows more.
SPACE = " \t\r\n"
REPEATED_KEY = "has a duplicate key in an object"
TOO_LARGE = "contains a number that is too large"
HALF_A_CHARACTER = "contains an unpaired surrogate (half a character)"
TOO_DEEP = "is nested too deeply"

# A number with at most this many digits is within the range of floats.
_SURELY_FINITE = 300
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class NotStrictError(ValueError):
    """Text that Python accepts as JSON but that is ambiguous. The message continues a sentence such as 'the row …'."""


def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with these fields. Raises an error if a field is duplicate."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"{REPEATED_KEY}: {twice!r:.60}"
        raise NotStrictError(msg)
    return found


def refuse_constant(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which are not JSON."""
    msg = f"{constant} is not a number in JSON"
    raise json.JSONDecodeError(msg, "", 0)


def finite(text: str) -> float:
    """A number with a fraction or an exponent. Raises an error if it is beyond the range of floats."""
    found = float(text)
    if math.isinf(found):
        raise NotStrictError(TOO_LARGE)
    return found


def _whole(text: str) -> int:
    if len(text) > _SURELY_FINITE:
        finite(text)
    return int(text)


DECODER = json.JSONDecoder(
    object_pairs_hook=as_object, parse_constant=refuse_constant, parse_float=finite, parse_int=_whole
)


def parse(text: str) -> Any:  # noqa: ANN401  (anything that JSON can hold)
    """Parse a text. Raises ValueError with what is wrong with it."""
    try:
        found = DECODER.decode(text)
        check_characters(text, found)
    except RecursionError:
        raise NotStrictError(TOO_DEEP) from None
    return found


def check_characters(text: str, found: Any) -> None:  # noqa: ANN401
    """Raise an error if a value that was read from a text contains a lone surrogate."""
    if not _SURROGATE.search(text):
        return
    try:
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise NotStrictError(HALF_A_CHARACTER) from None


def fault_of(error: ValueError) -> str:
    """What is wrong with a text that `parse` rejected, as a part of a sentence."""
    if isinstance(error, NotStrictError):
        return str(error)
    return f"is not valid JSON: {getattr(error, 'msg', error)}"
