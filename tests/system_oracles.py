"""The metrics of the other two systems again, in slow plain Python, from the rows as those systems write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tests.oracle import KS, mean

Row = Mapping[str, Any]
Entry = Mapping[str, Any]


# --- anchors -----------------------------------------------------------------------------------------


def headings(value: Any) -> list[str]:
    parts = value if isinstance(value, list) else (value or "").split(" > ")
    cleaned = [re.sub(r"^ ?#+ ?", "", re.sub(r"\s+", " ", part)).strip() for part in parts]
    return [part for part in cleaned if part]


def same_place(passage: Row, support: Row) -> bool:
    wanted, found = headings(support.get("heading_path")), headings(passage.get("heading_path"))
    return passage.get("rel_path") == support["rel_path"] and found[: len(wanted)] == wanted


def is_support(chunk: Row, support: Row) -> bool:
    if not same_place(chunk, support):
        return False
    text, snippets = chunk.get("text"), support.get("snippets") or []
    if not snippets or any(snippet.lower() in (text or "").lower() for snippet in snippets):
        return True
    return text is None or (text.endswith("...") and 200 <= len(text) <= 203)


def anchors(rows: Sequence[Row], golden: Sequence[Entry], own_k: int | None = None) -> dict[str, Any]:
    labels = {entry["id"]: entry for entry in golden}
    known = [(labels[row["test_case_id"]], row) for row in rows if row["test_case_id"] in labels]
    with_supports = [(entry, row) for entry, row in known if entry.get("gold_supports")]
    ks = sorted({*KS, *([own_k] if own_k else [])})
    found: dict[str, Any] = {}

    def put(name: str, values: Sequence[Fraction | int]) -> None:
        if values:
            found[name] = mean(values, None)

    def put_at(name: str, values: Mapping[int, Sequence[Fraction | int]]) -> None:
        if any(values.values()):
            found[name] = {str(k): mean(each, None) for k, each in values.items()}

    ranked = [(entry, row, support_ranks(entry, row)) for entry, row in with_supports]
    put_at("support_recall_any_at_k", {k: [int(any(r <= k for r in ranks)) for _, _, ranks in ranked] for k in ks})
    put_at(
        "support_precision_at_k", {k: [Fraction(sum(r <= k for r in ranks), k) for _, _, ranks in ranked] for k in ks}
    )
    put("support_mrr", [Fraction(1, min(ranks)) if ranks else 0 for _, _, ranks in ranked])
    grouped = [(entry, row) for entry, row in known if any(entry.get("required_support_groups") or [])]
    put_at("support_recall_all_at_k", {k: [int(has_group(entry, row, k)) for entry, row in grouped] for k in ks})
    scoped = [(entry, folders(row)) for entry, row in with_supports if folders(row)]
    put(
        "scope_miss_rate",
        [int(not any(lies_in(s["rel_path"], f) for s in e["gold_supports"] for f in fs)) for e, fs in scoped],
    )
    attributable = [
        (entry, row)
        for entry, row in with_supports
        if entry.get("answerable") is not False and (row.get("answer") is not None or row.get("references"))
    ]
    put(
        "attribution_hit_rate",
        [
            int(any(same_place(r, s) for r in row.get("references") or [] for s in entry["gold_supports"]))
            for entry, row in attributable
        ],
    )
    unanswerable = [
        row
        for entry, row in known
        if entry.get("answerable") is False and (row.get("answer") is not None or row.get("abstained") is not None)
    ]
    put("abstention_accuracy", [int(refused(row)) for row in unanswerable])
    put("hallucination_rate_unanswerable", [int(not refused(row)) for row in unanswerable])
    put("error_rate", [int(bool(row.get("error"))) for row in rows])
    put("timeout_rate", [int("timeout" in (row.get("error") or "").lower()) for row in rows])
    put("empty_response_rate", [int(not row.get("error") and not (row.get("answer") or "").strip()) for row in rows])
    for name, path in (("judge_groundedness", "groundedness"), ("judge_correctness", "correctness")):
        put(name, [row[path]["score"] for row in rows if row.get(path)])
    return found


def hits_of(row: Row) -> list[Row]:
    return [] if row.get("error") else list(row.get("retrieved_chunks") or [])


def support_ranks(entry: Entry, row: Row) -> list[int]:
    """The ranks of the hits that are supports; a chunk counts once, at its best rank."""
    best: dict[str, int] = {}
    for chunk in hits_of(row):
        if any(is_support(chunk, support) for support in entry["gold_supports"]):
            best[chunk["chunk_id"]] = min(chunk["rank"], best.get(chunk["chunk_id"], chunk["rank"]))
    return list(best.values())


def has_group(entry: Entry, row: Row, k: int) -> bool:
    top = [chunk for chunk in hits_of(row) if chunk["rank"] <= k]
    there = {n for n, support in enumerate(entry["gold_supports"]) if any(is_support(chunk, support) for chunk in top)}
    return any(group and set(group) <= there for group in entry["required_support_groups"])


def folders(row: Row) -> list[str]:
    found = row.get("folder_selection") or (row.get("debug") or {}).get("folder_selection") or []
    return found if isinstance(found, list) else found.get("selected_folders") or []


def lies_in(path: str, folder: str) -> bool:
    return path.startswith(folder.strip("/") + "/") if folder.strip("./") else True


def refused(row: Row) -> bool:
    if row.get("abstained") is not None:
        return bool(row["abstained"])
    return not (row.get("answer") or "").strip()


# --- grounded ----------------------------------------------------------------------------------------


def grounded(traces: Sequence[Row], gold: Sequence[Entry], k: int = 5) -> dict[str, Any]:
    last = {trace["qid"]: trace for trace in traces}
    items = [(item, last.get(item["qid"], {})) for item in gold]
    answered = [(item, trace) for item, trace in items if not is_refusal(trace)]
    answerable = [(item, trace) for item, trace in items if item["answerable"]]
    unanswerable = [(item, trace) for item, trace in items if not item["answerable"]]
    right = [item["answerable"] and is_cited(item, trace) for item, trace in answered]
    precise = [good and contains(item, trace) for good, (item, trace) in zip(right, answered, strict=True)]
    return {
        "answered": len(answered),
        "refused": len(items) - len(answered),
        "answerable": len(answerable),
        "unanswerable": len(unanswerable),
        "answer_precision": mean(list(map(int, precise)), 1.0),
        "citation_hit_rate": mean(list(map(int, right)), 1.0),
        "under_refusal_rate": mean([int(not is_refusal(trace)) for _, trace in unanswerable], 0.0),
        "over_refusal_rate": mean([int(is_refusal(trace)) for _, trace in answerable], 0.0),
        "citation_recall_at_k": mean(
            [
                int(set(item["gold_citations"]) <= set((trace.get("retrieved_ids") or [])[:k]))
                for item, trace in answerable
            ],
            0.0,
        ),
        # A trace never fails, and always has an answer.
        **({"error_rate": 0.0, "timeout_rate": 0.0} if last else {}),
        **(
            {"empty_response_rate": mean([int(not claim_of(trace).strip()) for trace in last.values()], None)}
            if last
            else {}
        ),
    }


def claim_of(trace: Row) -> str:
    return (trace.get("answer_json") or {}).get("claim") or ""


def is_refusal(trace: Row) -> bool:
    return claim_of(trace).strip().lower() == "not in context"


def contains(item: Entry, trace: Row) -> bool:
    wanted = item["gold_claim_substr"]
    return not wanted or any(len(w) >= 5 and w.lower() in claim_of(trace).lower() for w in wanted)


def is_cited(item: Entry, trace: Row) -> bool:
    citations = set((trace.get("answer_json") or {}).get("citations") or [])
    if not item["gold_citations"]:
        return not citations
    return citations <= set(trace.get("retrieved_ids") or []) and bool(citations & set(item["gold_citations"]))
