"""Hits in the order of trec_eval: by score in single precision, then by id, both descending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kbeval.util.text import cut

Hit = dict[str, Any]


def single(scores: Sequence[float]) -> list[float]:
    """Scores in single precision, as trec_eval compares them; the two zeros are one."""
    with np.errstate(over="ignore"):
        found: list[float] = (np.asarray(scores, dtype=np.float64).astype(np.float32) + np.float32(0)).tolist()
    return found


def by_score(hits: Sequence[Hit], given: str | None, faults: list[str]) -> list[Hit]:
    """The hits of one query with ranks from their scores. A rank that differs stays in the hit, under the name `given`.

    A hit without an id or a score, and a duplicate hit, are faults.
    """
    names: list[str] = []
    seen: set[str] = set()
    for place, hit in enumerate(hits, start=1):
        name, score = hit.get("chunk_id") or hit.get("doc_id"), hit.get("score")
        if not isinstance(name, str):
            faults.append(f"hit {place:,} has neither chunk_id nor doc_id; the order of scores needs one")
        elif isinstance(score, bool) or not isinstance(score, int | float):
            faults.append(f"{cut(name, 60)!r} has no score; without scores, use --order rank")
        elif name in seen:
            faults.append(f"{cut(name, 60)!r} occurs twice; a ranking by score contains each document once")
        names.append(str(name))
        seen.add(names[-1])
    if faults:
        return list(hits)
    order = sorted(zip(single([hit["score"] for hit in hits]), names, range(len(hits)), strict=True), reverse=True)
    found = []
    for rank, (_, _, place) in enumerate(order, start=1):
        hit = hits[place]
        kept = {given: hit["rank"]} if given is not None and hit.get("rank") not in (None, rank) else {}
        found.append({"rank": rank, **{name: value for name, value in hit.items() if name != "rank"}, **kept})
    return found
