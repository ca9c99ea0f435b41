"""Which part of a hit's text is the text that is expected.

Positions are positions in a document. They are marked in the text of a chunk only where the text is as long as its
place says: then both are counted in the same way. Where it is not, lines that the expected text has too are marked, if
that text is known; otherwise nothing is, and the label still says how much is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbeval.report.texts import Ranges


@dataclass(frozen=True)
class Shared:
    """A part of a hit's place that is a part of an expected place, on the axis of both."""

    axis: str
    # The hit's own place, and the shared part; the ends are excluded.
    low: int
    high: int
    start: int
    end: int


def marked_ranges(text: str, shared: Sequence[Shared]) -> Ranges:
    """Where in the text the shared parts are, in order; parts that touch are one."""
    found: list[tuple[int, int]] = []
    for one in sorted(set(shared), key=lambda part: (part.start, part.end)):
        ends = ends_in(text, one)
        if ends is None or ends[0] >= ends[1]:
            continue
        if found and ends[0] <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], ends[1]))
        else:
            found.append(ends)
    return found


def ends_in(text: str, one: Shared) -> tuple[int, int] | None:
    """Where a shared part begins and ends in the text of the hit; None where positions do not tell."""
    size, start, end = one.high - one.low, one.start - one.low, one.end - one.low
    if one.axis == "char" and size == len(text):
        return start, end
    if one.axis == "byte":
        whole = text.encode("utf-8", "surrogatepass")
        if size == len(whole):
            return (len(whole[:start].decode("utf-8", "ignore")), len(whole[:end].decode("utf-8", "ignore")))
    if one.axis == "line":
        lines = text.split("\n")
        # A newline at the end does not begin another line.
        if len(lines) - (not lines[-1]) == size or len(lines) == size:
            before = len("\n".join(lines[:start])) + (start > 0)
            return before, before + len("\n".join(lines[start:end]))
        if start == 0 and end == size:
            # All of it, however long it is.
            return 0, len(text.rstrip("\n"))
    return None


def found_words(text: str, words: Sequence[str]) -> Ranges:
    """Where these words are in the text, each once; parts that overlap are left out."""
    found: list[tuple[int, int]] = []
    for word in words:
        start = text.find(word) if word else -1
        if start >= 0 and all(start >= high or start + len(word) <= low for low, high in found):
            found.append((start, start + len(word)))
    return sorted(found)


def common_lines(text: str, others: Sequence[str]) -> Ranges:
    """The lines that one of the other texts has too, where positions do not tell; lines that touch are one."""
    known = {line.strip() for other in others for line in other.split("\n")} - {""}
    found: list[tuple[int, int]] = []
    place = 0
    for line in text.split("\n"):
        if line.strip() in known:
            if found and place - found[-1][1] == 1:
                found[-1] = (found[-1][0], place + len(line))
            else:
                found.append((place, place + len(line)))
        place += len(line) + 1
    return found
