"""Which part of a hit's text is the expected text.

Positions are positions in a document. They can be marked in the text of a chunk only if the text is exactly as long as
its span: then both are counted in the same way. Otherwise the lines that also occur in the expected text are marked, if
that text is known. If it is not, nothing is marked, and the label still says how much is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbeval.report.texts import Ranges


@dataclass(frozen=True)
class Shared:
    """The overlap of a hit's place with an expected place, on their common axis."""

    axis: str
    # The hit's own place, and the shared part; the ends are excluded.
    low: int
    high: int
    start: int
    end: int


def marked_ranges(text: str, shared: Sequence[Shared]) -> Ranges:
    """The positions of the shared parts in the text, in order; adjacent parts are merged."""
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
    """Where a shared part begins and ends in the text of the hit; None if it cannot be located."""
    size, start, end = one.high - one.low, one.start - one.low, one.end - one.low
    if one.axis == "char" and size == len(text):
        return start, end
    if one.axis == "byte":
        whole = text.encode("utf-8", "surrogatepass")
        if size == len(whole):
            return (len(whole[:start].decode("utf-8", "ignore")), len(whole[:end].decode("utf-8", "ignore")))
    if one.axis == "line":
        lines = text.split("\n")
        # A newline at the end does not start another line.
        if len(lines) - (not lines[-1]) == size or len(lines) == size:
            before = len("\n".join(lines[:start])) + (start > 0)
            return before, before + len("\n".join(lines[start:end]))
        if start == 0 and end == size:
            # The whole text, regardless of its length.
            return 0, len(text.rstrip("\n"))
    return None


def found_words(text: str, words: Sequence[str]) -> Ranges:
    """The positions of these words in the text, each once; overlapping ones are left out."""
    found: list[tuple[int, int]] = []
    for word in words:
        start = text.find(word) if word else -1
        if start >= 0 and all(start >= high or start + len(word) <= low for low, high in found):
            found.append((start, start + len(word)))
    return sorted(found)


def common_lines(text: str, others: Sequence[str]) -> Ranges:
    """The lines that also occur in one of the other texts; adjacent lines are merged."""
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
