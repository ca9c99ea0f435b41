"""Matching by spans again, in slow plain Python: positions as sets of whole units, one hit at a time.

Written from the definition: a hit is correct when it stands in the document of an expected place and shares enough
units with it. A page that is named whole is as large as the largest page of the invented documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tests.oracle import rank_of, units

Place = tuple[str | None, set[tuple[Any, ...]]]  # the document, and the units that it covers
OVERLAP_OF = ("smaller", "expected", "hit", "union")


def share_of(side: str, shared: int, hit: int, place: int) -> int:
    return {"smaller": min(hit, place), "expected": place, "hit": hit, "union": hit + place - shared}[side]


def covered(spans: Sequence[Mapping[str, Any]] | None) -> set[tuple[Any, ...]]:
    return {unit for span in spans or () for unit in units(span) or ()}


def says_something(spans: Sequence[Mapping[str, Any]]) -> bool:
    """It stands somewhere, or is known to be a caption."""
    return bool(covered(spans)) or any(span["kind"] == "caption" for span in spans)


def own_spans(hit: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """A hit's own spans, else its citation's; None where it does not say."""
    return hit.get("source_spans") or ([hit["citation"]] if hit.get("citation") else None)


def is_match(hit: set[tuple[Any, ...]], place: set[tuple[Any, ...]], least: Fraction, of: str) -> bool:
    shared = len(hit & place)
    return shared > 0 and Fraction(shared, share_of(of, shared, len(hit), len(place))) >= least


def correct_ranks(
    hits: Sequence[Mapping[str, Any]],
    places: Sequence[Place],
    least: Fraction = Fraction(1, 2),
    of: str = "smaller",
) -> list[int]:
    """The ranks of the correct hits; a chunk that comes back twice counts once, at its best rank."""
    best: dict[str, int] = {}
    for position, hit in enumerate(hits, start=1):
        found = covered(own_spans(hit))
        if any(hit["doc_id"] == doc and is_match(found, place, least, of) for doc, place in places):
            rank = rank_of(hit, position)
            best[hit["chunk_id"]] = min(rank, best.get(hit["chunk_id"], rank))
    return sorted(best.values())
