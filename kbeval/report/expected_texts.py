"""The text at an expected place, assembled from the texts of chunks and hits that cover it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbeval.report.facts import Place
from kbeval.report.marks import Shared, ends_in

NOT_STORED = "no stored text covers this place"
FROM_HIT = "a hit"
_GAP = "\n…\n"


@dataclass(frozen=True)
class Covering:
    """A text that overlaps a place: its own place, and its origin."""

    axis: str
    low: int
    high: int
    text: str
    origin: str


class Found(NamedTuple):
    """The text at a place, and a note about its origin."""

    text: str
    note: str


def text_at(places: Sequence[Place], covering: Iterable[Covering]) -> Found | None:
    """The text at these places; None if nothing covers any of them.

    It is exact if the texts are as long as their own places. Otherwise it is the whole text that overlaps the first
    place most, and the note says so.
    """
    known = sorted(set(covering), key=lambda one: (one.low, -one.high, one.origin == FROM_HIT, one.origin, one.text))
    parts: list[str] = []
    origins: list[str] = []
    is_whole = True
    for place in places:
        pieces, used, is_covered = _pieces(place, [one for one in known if one.axis == place.axis])
        is_whole = is_whole and is_covered
        origins += used
        if pieces:
            parts.append(("\n" if place.axis == "line" else "").join(pieces))
    if parts:
        said = f"text {_from(origins)}"
        return Found(_GAP.join(parts), said if is_whole else f"{said}; the rest of the place is not stored")
    return _around(places, known)


def _pieces(place: Place, known: Sequence[Covering]) -> tuple[list[str], list[str], bool]:
    """The pieces from the beginning of the place to its end, each from the text that reaches farthest."""
    pieces: list[str] = []
    used: list[str] = []
    is_covered = True
    at = place.low
    while at < place.high:
        reaching = [one for one in known if one.low <= at < one.high and _part(one, at, at + 1) is not None]
        if not reaching:
            is_covered = False
            after = [
                one.low for one in known if at < one.low < place.high and _part(one, one.low, one.low + 1) is not None
            ]
            if not after:
                break
            at = min(after)
            if pieces:
                pieces.append("…")
            continue
        best = max(reaching, key=lambda one: one.high)
        end = min(best.high, place.high)
        pieces.append(_part(best, at, end) or "")
        used.append(best.origin)
        at = end
    return pieces, used, is_covered


def _part(one: Covering, start: int, end: int) -> str | None:
    """A part of a text by its place in the document; None if it cannot be located."""
    ends = ends_in(one.text, Shared(one.axis, one.low, one.high, start, min(end, one.high)))
    return None if ends is None else one.text[slice(*ends)]


def _around(places: Sequence[Place], known: Sequence[Covering]) -> Found | None:
    """The whole text that overlaps a place most, if the part that is meant cannot be located."""
    for place in places:
        near = [
            (min(one.high, place.high) - max(one.low, place.low), -(one.high - one.low), one)
            for one in known
            if one.axis == place.axis and one.low < place.high and place.low < one.high
        ]
        if near:
            shared, _, best = max(near, key=lambda found: found[:2])
            size = place.high - place.low
            part = "which contains this place" if shared == size else "which overlaps this place in part"
            return Found(best.text, f"text {_from([best.origin])}, {part}; the exact words cannot be located")
    return None


def _from(origins: Sequence[str]) -> str:
    names = list(dict.fromkeys(origins))
    return f"of {names[0]}" if len(names) == 1 else f"of {names[0]} and {len(names) - 1} more"
