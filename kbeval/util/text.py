"""Makes text from data safe for the place where it is shown. Data is never trusted to be harmless."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable
from datetime import date, time
from typing import Any

# Control characters could move the cursor of a terminal or change its colours; format characters could reorder a line.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_SPREADSHEET_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # full-width ones are recognised too
# Commands to a continuous-integration service: `::name::` at the start of a line, with or without leading spaces, and
# `##[name]`, `##vso[name]` or `##teamcity[name]` anywhere in a line.
_COMMAND_AT_START = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_COMMAND_ANYWHERE = re.compile(r"##(?=[\w.-]{0,40}\[)")


# What a shell takes as it is, and what it interprets even within double quotes.
_PLAIN_ARGUMENT = re.compile(r"[\w@%+=:,./-]+")
_SPECIAL_IN_QUOTES = re.compile(r'["$`\\]')


def shown(text: str) -> str:
    """For a terminal or a log: one line, without control sequences or commands to a continuous-integration service."""
    return without_runner_commands(text if text.isprintable() else "".join(map(_shown_character, text)))


def _shown_character(character: str) -> str:
    if character in "\n\r\t":
        return " "
    return _escaped(character) if _is_hidden(character) else character


# Characters of Unicode's class for formatting that belong to words and emoji: joiners, and hyphens that may be shown.
_IN_WORDS = frozenset("\u00ad\u200c\u200d")


def as_argument(text: str) -> str:
    """A text as an argument of a command that a message recommends. Single quotes are around the whole command."""
    printable = shown(text)
    if _PLAIN_ARGUMENT.fullmatch(printable):
        return printable
    return '"' + _SPECIAL_IN_QUOTES.sub(r"\\\g<0>", printable) + '"'


def readable(text: str) -> str:
    """For a page: lines, tabs and joined characters stay; characters that would hide or reorder text are escaped."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join(
        character if character in "\n\t" or character in _IN_WORDS or not _is_hidden(character) else _escaped(character)
        for character in text
    )


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN or _is_none(ord(character))


def _is_none(code: int) -> bool:
    """Is it a noncharacter of Unicode? XML allows none of those in the first plane."""
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def without_runner_commands(text: str) -> str:
    r"""The text with commands to a service that reads the log made harmless: `:\:error::`, `#\#[error]`."""
    if "::" in text:
        text = _COMMAND_AT_START.sub(r"\1:\\", text)
    return _COMMAND_ANYWHERE.sub(r"#\\#", text) if "##" in text else text


def is_utf8(text: str) -> bool:
    """Can it be written as UTF-8? Not if it contains a lone surrogate, which may represent bytes that are not text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_shown(text: str) -> str:
    """For a terminal or a log, and still the same JSON: characters that `shown` would change are escaped."""
    # A line of JSON begins with a bracket, a quotation mark or a value, never with a command.
    if "##" in text:
        text = _COMMAND_ANYWHERE.sub(r"#\\u0023", text)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        character
        if character == "\n" or not _is_hidden(character)
        # As in JSON: characters beyond 16 bits are written as a surrogate pair.
        else json.dumps(character)[1:-1]
        for character in text
    )


def cut(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where something is missing."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def cut_inside(text: str, width: int) -> str:
    """Like `cut`, but the ellipsis is in the middle: names that begin alike often differ at the end."""
    if len(text) <= width:
        return text
    start = (width - 1) // 2
    return f"{text[:start]}…{text[len(text) - (width - 1 - start) :]}"


def markdown(text: str) -> str:
    """For a cell of a Markdown table: no new rows or columns, no HTML, no formatting."""
    safe = shown(text)
    for character in "\\`*[]|~":
        safe = safe.replace(character, "\\" + character)
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def csv_cell(text: str) -> str:
    """For a CSV cell: never a formula in a spreadsheet, and without control sequences or commands, as in `shown`."""
    safe = shown(text) if text.isprintable() else "\n".join(shown(line) for line in text.split("\n"))
    return "'" + safe if text.lstrip().startswith(_SPREADSHEET_FORMULA) else safe


def display_width(text: str) -> int:
    """The number of terminal columns: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    width = 0
    for character in text:
        if unicodedata.combining(character):
            continue
        width += 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
    return width


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 run`, `2 runs`, `1,000 queries`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the most similar known name, or the empty text."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def json_text(value: Any) -> str:  # noqa: ANN401  (anything that JSON can hold)
    """JSON for programs, readable for people. What JSON cannot express (NaN, a date, a lone surrogate) is replaced."""
    return json_shown(json.dumps(_sayable(value), ensure_ascii=False, indent=2, allow_nan=False))


def _sayable(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _sayable(inner) for key, inner in value.items()}
    # TOML has dates and times.
    if isinstance(value, date | time):
        return value.isoformat()
    return [_sayable(inner) for inner in value] if isinstance(value, list | tuple) else value
