"""The texts of a report: each is stored once, cut if it is long, and safe to show.

Text from data is never markup: templates escape it, and the script sets it as text. Here, only characters that would
hide or reorder the text around them are escaped.
"""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Sequence
from urllib.parse import quote

from kbeval.util.text import readable, shown

# Chunks and answers are rarely longer. A text that is cut says so.
LONGEST = 3_000
_LONGEST_LINK = 160
_LONGEST_NAME = 80
_ONE_PLACE = (
    r"(?:lines|bytes|characters|ms|page) (?:-?[\d.]+|None)(?:–(?:-?[\d.]+|None))?(?:, characters [\d.]+–[\d.]+)?"
)
_PLACE = re.compile(rf"{_ONE_PLACE}(?:; {_ONE_PLACE})*")

Ranges = Sequence[tuple[int, int]]


class Texts:
    """Texts by number. With `redact`, only their lengths are kept.

    Only the texts since the last `take` are in memory; earlier ones are recognized by a digest.
    """

    def __init__(self, *, redact: bool = False) -> None:
        self.redact = redact
        self._numbers: dict[bytes, int] = {}
        self._new: list[str] = []

    def add(self, text: str) -> int:
        """The number of a text."""
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self._new.append(text)
        return self._numbers[key]

    def take(self) -> list[str]:
        """The texts that were added since the last time, in the order of their numbers."""
        new, self._new = self._new, []
        return new

    def words(self, text: str, most: int = LONGEST) -> str:
        """A text of the data as it may be shown: questions, answers, reasons."""
        return without(text) if self.redact else cut_text(readable(text), most)

    def line(self, text: str, most: int = 400) -> str:
        """The same on one line."""
        return without(text) if self.redact else cut_text(shown(text), most)

    def place(self, text: str) -> str:
        """A place as readable text. With `redact`, only places made of numbers are shown: others may contain a text."""
        return without(text) if self.redact and not _PLACE.fullmatch(text) else name(text)

    def called(self, text: str) -> str:
        """The name of a model. With `redact`, names with spaces are left out: they may be a text."""
        return without(text) if self.redact and not is_name(text) else name(text)

    def marked(self, text: str, ranges: Ranges) -> tuple[int, list[int]]:
        """The number of a text, and a flat list of where its marks begin and end, in UTF-16 units for the script."""
        if self.redact:
            return self.add(without(text)), []
        whole = readable(text)
        if whole != text:
            ranges = _moved(text, ranges)
        cut = cut_text(whole, LONGEST)
        kept = min(len(whole), LONGEST)
        ends = [(min(start, kept), min(end, kept)) for start, end in ranges if start < kept]
        return self.add(cut), [place for one in ends for place in _as_utf16(cut, one)]


def name(text: str, most: int = 160) -> str:
    """An id, a path or another name from the data: one line of limited length."""
    return cut_text(shown(text), most)


def is_name(text: str) -> bool:
    """Is it one short word, as names of versions and models are?"""
    return len(text) <= _LONGEST_NAME and not re.search(r"\s", text)


def without(text: str) -> str:
    """What is shown in place of a text with `redact`."""
    return f"({len(text):,} characters left out)" if text else ""


def cut_text(text: str, most: int) -> str:
    """A text, or its beginning and a note about what is left out."""
    return text if len(text) <= most else f"{text[:most]} … (cut: {most:,} of {len(text):,} characters)"


def _moved(text: str, ranges: Ranges) -> list[tuple[int, int]]:
    """The same positions in the escaped text."""
    places = sorted({place for one in ranges for place in one})
    new: dict[int, int] = {}
    before = length = 0
    for place in places:
        length += len(readable(text[before:place]))
        new[place], before = length, place
    return [(new[start], new[end]) for start, end in ranges]


def _as_utf16(text: str, one: tuple[int, int]) -> tuple[int, int]:
    """Positions in a text as JavaScript counts them: characters beyond 16 bits count as two."""
    if text.isascii():
        return one
    start, end = (len(text[:place].encode("utf-16-le", "surrogatepass")) // 2 for place in one)
    return start, end


def from_utf16(text: str, places: Sequence[int]) -> list[int]:
    """The reverse: positions as Python counts them."""
    if text.isascii() or not places:
        return list(places)
    units, found = 0, [0]
    for character in text:
        units += 2 if ord(character) > 0xFFFF else 1
        found.append(units)
    return [bisect.bisect_left(found, place) for place in places]


def segments(text: str, places: Sequence[int]) -> list[tuple[bool, str]]:
    """A text in pieces, each with whether it is marked. `places`: as in `Texts.marked`."""
    ends = from_utf16(text, places)
    found, before = [], 0
    for start, end in zip(ends[::2], ends[1::2], strict=True):
        found += [(False, text[before:start]), (True, text[start:end])]
        before = end
    return [(marked, piece) for marked, piece in [*found, (False, text[before:])] if piece]


def link(query_id: str) -> str:
    """The fragment that leads to a query, the same in every report."""
    name = quote(query_id, safe="", errors="surrogatepass")
    if len(name) > _LONGEST_LINK:
        digest = hashlib.sha256(query_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        name = f"{quote(query_id[:20], safe='', errors='surrogatepass')}-{digest}"
    return f"q-{name}"
