"""Text from data, made safe for the place where it is shown. Data is never trusted to be harmless."""

from __future__ import annotations

import difflib
import json
import unicodedata
from collections.abc import Iterable

# Control characters could move the cursor or recolour a terminal; format characters could reorder a line.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_SPREADSHEET_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # the wide ones work too


def shown(text: str) -> str:
    """For a terminal: one line, nothing that a terminal would obey."""
    if text.isprintable():
        return text
    parts = []
    for character in text:
        if character in "\n\r\t":
            parts.append(" ")
        elif unicodedata.category(character) in _HIDDEN:
            parts.append(f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}")
        else:
            parts.append(character)
    return "".join(parts)


def is_utf8(text: str) -> bool:
    """Can it be written as UTF-8? Not where it holds half a character, or stands for bytes that were no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_shown(text: str) -> str:
    """For a terminal, and still the same JSON: what `shown` would hide is written as an escape."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        character
        if character == "\n" or unicodedata.category(character) not in _HIDDEN
        # As JSON itself does it: characters beyond the sixteen bits are two halves.
        else json.dumps(character)[1:-1]
        for character in text
    )


def cut(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where something is missing."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def cut_inside(text: str, width: int) -> str:
    """As `cut`, but what is missing is in the middle: names that begin alike often differ at their end."""
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
    """For a CSV cell: never a formula when a spreadsheet opens it, nothing that a terminal would obey."""
    safe = text if text.isprintable() else "\n".join(shown(line) for line in text.split("\n"))
    return "'" + safe if text.lstrip().startswith(_SPREADSHEET_FORMULA) else safe


def display_width(text: str) -> int:
    """Columns that a terminal uses for it: wide characters take two, combining ones none."""
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
    """A hint to the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
