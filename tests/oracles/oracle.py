"""Every metric again, in slow plain Python with exact fractions and no SQL. What kbeval must agree with.

Written from the definitions, not from the code: one query at a time, citations as sets of units. What makes a hit
correct, and the numbers that follow from it, are in `matching_oracle`.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Any

from tests.oracles.matching_oracle import Chunk, Oracle, Run, World, hit_at, mean, rounded

Row = Mapping[str, Any]
Entry = Mapping[str, Any]


def score(
    rows: Mapping[str, Row],
    golden: Sequence[Entry],
    chunks: Sequence[Mapping[str, Any]] = (),
    documents: Mapping[str, str] | None = None,
    others: Sequence[Mapping[str, Row]] = (),
) -> dict[str, Any]:
    """The contract's keys for one run. `documents`: path → doc_id; `others`: the other runs of the database.

    All runs and chunks are of one chunker version and policy, as `Workspace` stores them.
    """
    stored = [Run(f"run{n}", {"chunker_version": "md@1"}, found) for n, found in enumerate([rows, *others])]
    table = [Chunk(c["chunk_id"], "md@1", "p", c["doc_id"], c["spans"], tokens=1, characters=4) for c in chunks]
    oracle = Oracle(World(golden, stored, table, documents=documents or {}))
    labels = {entry["id"]: entry for entry in golden}
    known = [(labels[query_id], row) for query_id, row in rows.items() if query_id in labels]
    found = oracle.score("run0")
    answered = [(e, row) for e, row in known if row.get("answer") is not None and not failed(row)]
    cited = [row["answer"].get("citations") or [] for _, row in answered if row["answer"].get("grounded") is True]
    resolvable = resolver(chunks, documents or {})
    can_resolve = bool(chunks) and bool(documents)
    found["citation_coverage"] = mean(
        [1 if citations and all(map(resolvable, citations)) else 0 for citations in cited] if can_resolve else [], None
    )
    found["groundedness"] = mean([1 if grounded(e, row) else 0 for e, row in answered], 0.0)
    found["refusal_correctness"] = mean(
        [1 if refused(row) else 0 for e, row in known if should_refuse(e) and row.get("answer") is not None], None
    )
    checked = mean(
        [1 if grounded(e, row) else 0 for e, row in answered if e.get("must_contain") or e.get("forbidden")], None
    )
    if checked is not None:
        found["groundedness_checked"] = checked
    if seen := abstention(known, oracle):
        found["abstention"] = seen
    return {**found, **cost_of(list(rows.values()))}


def cost_of(rows: Sequence[Row]) -> dict[str, Any]:
    """How often it failed, how long it took and what it cost; only what at least one row says something about."""
    answers = [(row, row["answer"]) for row in rows if row.get("answer") is not None]
    empty = [
        not failed(row)
        and answer.get("grounded") is not False
        and row.get("abstained") is not True
        and not (answer.get("answer") or "").strip(" \t\r\n")
        for row, answer in answers
    ]
    times = sorted(row["elapsed_ms"] for row in rows if row.get("elapsed_ms") is not None)
    tokens = [count for row in rows if (count := tokens_of(row)) is not None]
    costs = [Fraction(row["cost_usd"]) for row in rows if row.get("cost_usd") is not None]
    found: dict[str, Any] = {
        "error_rate": mean([int(failed(row)) for row in rows], None),
        "timeout_rate": mean([int("timeout" in (row.get("error") or "")) for row in rows], None),
        "empty_response_rate": mean(list(map(int, empty)), None),
        "latency_ms": None,
        "tokens_total": float(sum(tokens)) if tokens else None,
        "cost_usd": rounded(sum(costs, Fraction())) if costs else None,
    }
    if times:
        quantiles = (quantile(times, Fraction(1, 2)), quantile(times, Fraction(95, 100)))
        found["latency_ms"] = dict(zip(("p50", "p95", "total"), (*quantiles, float(sum(times))), strict=True))
    return {name: value for name, value in found.items() if value is not None}


def quantile(ordered: Sequence[int], share: Fraction) -> float:
    """Between the two values that it lies between."""
    place = share * (len(ordered) - 1)
    low = floor(place)
    high = min(low + 1, len(ordered) - 1)
    return rounded(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def tokens_of(row: Row) -> int | None:
    said, usage = row.get("tokens"), row.get("usage") or {}
    if isinstance(said, int):
        return said
    if said:
        return int(said["total"]) if "total" in said else int(said.get("prompt", 0) + said.get("completion", 0))
    if usage:
        return int(usage["total_tokens"] if "total_tokens" in usage else usage["input_tokens"] + usage["output_tokens"])
    return None


def abstention(known: Sequence[tuple[Entry, Row]], oracle: Oracle, k: int = 10) -> dict[str, Any]:
    """What was answered and what refused, with and without the evidence."""
    counts: Counter[str] = Counter()
    for entry, row in known:
        flagged = (row.get("answer") or {}).get("grounded") is not None or row.get("abstained") is not None
        if failed(row) or should_refuse_or_not(entry) is None or (row.get("answer") is None and not flagged):
            continue
        what = "refused" if refused({"answer": {}, **{n: v for n, v in row.items() if v is not None}}) else "answered"
        if should_refuse_or_not(entry):
            counts[f"unanswerable_{what}"] += 1
            continue
        counts[f"answerable_{what}"] += 1
        judged = oracle.judge(oracle.runs["run0"], entry["id"], oracle.matching(oracle.runs["run0"]))
        if judged.matching in {"exact", "span", "doc"}:
            there = hit_at(judged, k)
            counts[f"{what}_{'with' if there else 'without'}_evidence"] += 1
    if not counts:
        return {}
    kinds = [f"{a}_{b}" for a in ("answerable", "unanswerable") for b in ("answered", "refused")]
    kinds += [f"{a}_{b}_evidence" for a in ("answered", "refused") for b in ("with", "without")]
    supported, unsupported = counts["answered_with_evidence"], counts["answered_without_evidence"]
    cautious = counts["refused_with_evidence"]
    return {
        "k": k,
        **{kind: counts[kind] for kind in kinds},
        "unsupported_rate": mean([1] * unsupported + [0] * supported, None),
        "over_cautious_rate": mean([1] * cautious + [0] * supported, None),
    }


def should_refuse_or_not(entry: Entry) -> bool | None:
    """True, false, or None where the labels do not say."""
    if should_refuse(entry):
        return True
    return False if entry.get("answerable") is not None or entry.get("expected_doc_ids") else None


def failed(row: Row) -> bool:
    return bool(row.get("error"))


def grounded(entry: Entry, row: Row) -> bool:
    text = nfc(row["answer"].get("answer") or "")
    return all(nfc(needle) in text for needle in entry.get("must_contain") or ()) and not any(
        nfc(needle) in text for needle in entry.get("forbidden") or ()
    )


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def should_refuse(entry: Entry) -> bool:
    if entry.get("answerable") is not None:
        return not entry["answerable"]
    where = ("expected_chunk_ids", "expected_spans")
    return entry.get("expected_doc_ids") == [] and not any(map(entry.get, where))


def refused(row: Row) -> bool:
    flag, abstained = row["answer"].get("grounded"), row.get("abstained")
    if flag is None and abstained is None:
        return not (row["answer"].get("answer") or "").strip(" \t\r\n")
    return flag is False or abstained is True


# --- citations: positions as sets of whole units ---------------------------------------------------


def units(span: Mapping[str, Any]) -> set[tuple[Any, ...]] | None:
    """Every unit that a position covers, by axis; None where it has none (the path alone)."""
    kind = span.get("kind")
    found: set[tuple[Any, ...]] = set()
    if kind == "line":
        found = {("line", n) for n in numbers(span.get("start"), span.get("end"), 1)}
    elif kind == "code":
        found = {("line", n) for n in numbers(span.get("line_start"), span.get("line_end"), 1)}
    elif kind in {"byte", "char"}:
        found = {(kind, n) for n in numbers(span.get("start"), span.get("end"), 0)}
    elif kind == "time":
        found = {("time", n) for n in numbers(span.get("start_ms"), span.get("end_ms"), 0)}
    elif kind == "region":
        x, y, w, h = (int(span[name]) for name in "xywh")
        found = {("region", i, j) for i in range(x, x + w) for j in range(y, y + h)}
    elif kind == "page":
        start, end = span.get("char_start"), span.get("char_end")
        whole = start is None or end is None
        found = {("page", span["page"], n) for n in (range(200) if whole else numbers(start, end, 0))}
    return found or None


def numbers(start: int | None, end: int | None, more: int) -> Iterable[int]:
    return () if start is None or end is None else range(start, end + more)


def resolver(chunks: Sequence[Mapping[str, Any]], documents: Mapping[str, str]) -> Callable[[Mapping[str, Any]], bool]:
    ids = {chunk["chunk_id"] for chunk in chunks}
    docs = {chunk["doc_id"] for chunk in chunks}

    def resolves(item: Mapping[str, Any]) -> bool:
        citation = item.get("citation") or {}
        named = item.get("chunk_id") or citation.get("chunk_id")
        if named is not None:
            return named in ids
        doc = documents.get(citation.get("path") or "")
        if doc is None:
            return False
        wanted = units(citation)
        if wanted is None:
            # A path alone, or something that is wrong about where.
            says_where = citation.keys() - {"path", "kind", "section"}
            return (
                doc in docs
                and citation.get("kind") in {None, "caption"}
                and not (citation.get("kind") is None and any(citation[name] is not None for name in says_where))
            )
        return any(
            wanted & (units(span) or set()) for chunk in chunks if chunk["doc_id"] == doc for span in chunk["spans"]
        )

    return resolves
