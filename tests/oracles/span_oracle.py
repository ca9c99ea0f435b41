"""Positions again, in slow plain Python: spans as boxes, sizes as sums over the cells between all their edges.

Written from the definition. A position is a box on an axis: `line` and `code` are one axis, `byte`, `char`, `time` and
`region` are others, and so is each page. All but areas are one unit high. A page that is named whole is larger than
anything on it; whole pages are equally large. If a place is a whole page, any text on it is as good as all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

Span = Mapping[str, Any]
Box = tuple[tuple[Any, ...], Fraction, Fraction, Fraction, Fraction]  # the axis, from and to, from and to
Place = tuple[str | None, Sequence[Box]]  # the document, and where in it
OVERLAP_OF = ("smaller", "expected", "hit", "union")
WHOLE_PAGE = 10**15
TOLERANCE = Fraction(1, 10**9)
FIELDS = {
    "line": ("start", "end", 1),
    "code": ("line_start", "line_end", 1),
    "byte": ("start", "end", 0),
    "char": ("start", "end", 0),
    "time": ("start_ms", "end_ms", 0),
}
# Where each kind begins to count; areas begin anywhere.
LEAST = {"line": 1, "code": 1, "byte": 0, "char": 0, "time": 0, "page": 0}


def real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def box(span: Any) -> Box | None:
    """The position of a span; None if it has none."""
    if not isinstance(span, Mapping):
        return None
    kind = span.get("kind")
    axis: tuple[Any, ...] = ("line" if kind == "code" else kind,)
    edges: list[Any] = [None, None, 0, 1]
    if kind in FIELDS:
        first, last, more = FIELDS[kind]
        edges[:2] = [span.get(first), span.get(last)]
        if real(edges[1]):
            edges[1] += more
    elif kind == "page" and real(span.get("page")) and span["page"] >= 1 and span["page"] == int(span["page"]):
        axis = ("page", span["page"])
        edges[:2] = [span.get("char_start"), span.get("char_end")]
        if edges[0] is None and edges[1] is None:
            edges[:2] = [0, WHOLE_PAGE]
    elif kind == "region" and all(real(span.get(name)) for name in "xywh"):
        x, y, w, h = (Fraction(span[name]) for name in "xywh")
        edges = [x, x + w, y, y + h]
    if not all(map(real, [e for e in edges if not isinstance(e, Fraction)])):
        return None
    x0, x1, y0, y1 = map(Fraction, edges)
    if kind in LEAST and x0 < LEAST[kind]:
        return None
    if kind not in {"time", "region"} and not (x0.denominator == x1.denominator == 1):
        return None
    return (axis, x0, x1, y0, y1) if x0 < x1 and y0 < y1 else None


def covered(spans: Any) -> tuple[Box, ...]:
    """The real positions among spans."""
    return tuple(found for span in spans if (found := box(span))) if isinstance(spans, Sequence) else ()


def kinds(boxes: Sequence[Box]) -> set[Any]:
    """Their kinds of position; pages of any number are one kind."""
    return {one[0][0] for one in boxes}


def is_caption(spans: Any) -> bool:
    return isinstance(spans, Sequence) and any(isinstance(s, Mapping) and s.get("kind") == "caption" for s in spans)


def says_something(spans: Any) -> bool:
    """It has a position, or is known to be a caption."""
    return bool(covered(spans)) or is_caption(spans)


def sizes(a: Sequence[Box], b: Sequence[Box]) -> tuple[Fraction, Fraction, Fraction]:
    """How large what they share is, and each of the two."""
    shared = of_a = of_b = Fraction(0)
    for axis in {one[0] for one in (*a, *b)}:
        mine, theirs = ([one for one in side if one[0] == axis] for side in (a, b))
        xs = sorted({edge for one in (*mine, *theirs) for edge in one[1:3]})
        ys = sorted({edge for one in (*mine, *theirs) for edge in one[3:5]})
        for x0, x1 in pairwise(xs):
            for y0, y1 in pairwise(ys):
                in_a, in_b = (
                    any(one[1] <= x0 and x1 <= one[2] and one[3] <= y0 and y1 <= one[4] for one in side)
                    for side in (mine, theirs)
                )
                cell = (x1 - x0) * (y1 - y0)
                shared += cell * (in_a and in_b)
                of_a += cell * in_a
                of_b += cell * in_b
    return shared, of_a, of_b


def share_of(side: str, shared: Fraction, hit: Fraction, place: Fraction) -> Fraction:
    return {"smaller": min(hit, place), "expected": place, "hit": hit, "union": hit + place - shared}[side]


def as_coarse_as(place: Sequence[Box], hit: Sequence[Box]) -> tuple[Box, ...]:
    """The hit, with any text on a page that the place names whole as all of that page."""
    whole = {one[0]: one for one in place if one[2] == WHOLE_PAGE and one[0][0] == "page"}
    return tuple(whole.get(one[0], one) for one in hit)


def is_match(hit: Sequence[Box], place: Sequence[Box], least: Fraction, of: str) -> bool:
    shared, of_hit, of_place = sizes(as_coarse_as(place, hit), place)
    return shared > 0 and shared / share_of(of, shared, of_hit, of_place) + TOLERANCE >= least


def correct_ranks(
    hits: Sequence[Mapping[str, Any]],
    places: Sequence[Place],
    least: Fraction = Fraction(1, 2),
    of: str = "smaller",
) -> list[int]:
    """The ranks of the correct hits, which state their own position; a repeated chunk counts once."""
    best: dict[str, int] = {}
    for position, hit in enumerate(hits, start=1):
        found = covered(hit.get("source_spans"))
        if any(hit["doc_id"] == doc and is_match(found, place, least, of) for doc, place in places):
            rank = int(hit.get("rank") or position)
            best[hit["chunk_id"]] = min(rank, best.get(hit["chunk_id"], rank))
    return sorted(best.values())
