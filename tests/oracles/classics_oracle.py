"""The classics of information retrieval again, in slow plain Python, one query at a time, from the definitions.

Labels by id: a ranking is a list of (rank, chunk id), and a label a grade. Labels by span: text is a set of units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tests.oracles.matching_oracle import KS, Hit, ranks_of

Text = set[tuple[str | None, str, int]]


def ranks_by_id(hits: Sequence[Hit]) -> dict[str, int]:
    """The best rank of each chunk."""
    found: dict[str, int] = {}
    for hit, rank in zip(hits, ranks_of(hits), strict=True):
        found[hit["chunk_id"]] = min(rank, found.get(hit["chunk_id"], rank))
    return found


def classics(entry: Mapping[str, Any], hits: Sequence[Hit]) -> dict[str, float | None]:
    """Every value of one query, by long name; empty where nothing is expected."""
    grades: dict[str, float] = dict(entry.get("relevance") or {})
    expected = set(entry.get("expected_chunk_ids", [chunk for chunk, grade in grades.items() if grade > 0]))
    grades |= {chunk: 1 for chunk in expected if chunk not in grades}
    if not expected:
        return {}
    ranks = {chunk: rank for chunk, rank in ranks_by_id(hits).items() if chunk in grades}
    relevant = sorted(rank for chunk, rank in ranks.items() if chunk in expected)
    others = sorted(rank for chunk, rank in ranks.items() if chunk not in expected)
    n = len(expected)
    found: dict[str, float | None] = {}
    for k in KS:
        gain = math.fsum(grades[chunk] / math.log2(rank + 1) for chunk, rank in ranks.items() if rank <= k)
        ideal = sorted(grades.values(), reverse=True)[:k]
        best = math.fsum(grade / math.log2(place + 1) for place, grade in enumerate(ideal, start=1))
        found[f"ndcg_at_k.{k}"] = gain / best if best else 0.0
        precisions = [Fraction(place, rank) for place, rank in enumerate(relevant, start=1) if rank <= k]
        found[f"map_at_k.{k}"] = float(sum(precisions, Fraction()) / n)
        found[f"rr_at_k.{k}"] = next((1 / rank for rank in relevant if rank <= k), 0.0)
        judged = Fraction(sum(rank <= k for rank in ranks.values()), min(k, len(hits))) if hits else None
        found[f"judged_at_k.{k}"] = None if judged is None else float(judged)
        found[f"unjudged_at_k.{k}"] = None if judged is None else float(1 - judged)
    found["r_precision"] = float(Fraction(sum(rank <= n for rank in relevant), n))
    found["rbp"] = math.fsum(0.2 * 0.8 ** (rank - 1) for rank in relevant)
    nonrelevant = len(grades.keys() - expected)
    preferences = Fraction()
    for rank in relevant:
        before = sum(other < rank for other in others)
        preferences += 1 - (Fraction(min(before, n), min(nonrelevant, n)) if before else 0)
    found["bpref"] = float(preferences / n)
    return found


def lines(doc: str | None, spans: Sequence[Mapping[str, Any]]) -> Text:
    return {(doc, span["kind"], line) for span in spans for line in range(span["start"], span["end"] + 1)}


def on_spans(entry: Mapping[str, Any], hits: Sequence[Hit]) -> dict[str, float | None]:
    """The metrics of text, where every position is in lines; empty without expected_spans."""
    expected: Text = set()
    for span in entry.get("expected_spans") or ():
        expected |= lines(span["doc_id"], [span])
    if not expected:
        return {}
    docs = {doc for doc, _, _ in expected}
    unplaced = [hit for hit in hits if not hit.get("source_spans")]
    found: dict[str, float | None] = {}
    for k in KS:
        text: Text = set()
        for hit, rank in zip(hits, ranks_of(hits), strict=True):
            if rank <= k:
                text |= lines(hit["doc_id"], hit.get("source_spans") or ())
        both = len(expected & text)
        is_near_clear = not any(hit["doc_id"] in docs for hit in unplaced)
        found[f"span_recall_at_k.{k}"] = both / len(expected) if is_near_clear else None
        found[f"span_precision_at_k.{k}"] = None if unplaced else both / len(text) if text else 0.0
        found[f"span_iou_at_k.{k}"] = None if unplaced else both / len(expected | text)
    return found
