"""The metrics of the other two systems again, in slow plain Python, from the rows as those systems write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tests.oracles.matching_oracle import KS, mean

Row = Mapping[str, Any]
Entry = Mapping[str, Any]


# --- anchors -----------------------------------------------------------------------------------------


MASKS = "*█■•…. "
OPENING, CLOSING = "[(<{", "])>}"


def headings(value: Any) -> list[str]:
    parts = value if isinstance(value, list) else (value or "").split(" > ")
    return [words for words in map(heading_words, parts) if words]


def heading_words(heading: str) -> str:
    """Without the marks around it: those before it, and those after it that follow a space."""
    words = heading.lstrip("# \t\u00a0").split()
    while words and not words[-1].strip("#"):
        words.pop()
    return " ".join(words)


def same_place(passage: Row, support: Row) -> bool:
    wanted, found = headings(support.get("heading_path")), headings(passage.get("heading_path"))
    return passage.get("rel_path") == support["rel_path"] and found[: len(wanted)] == wanted


def kept(text: str | None) -> str | None:
    """A stored text; None where nothing of it was kept."""
    bare = (text or "").strip().strip(MASKS).strip()
    inner = bare.strip(OPENING + CLOSING + " ")
    if not bare or bare.lower() == "redacted":
        return None
    in_brackets = bare[0] in OPENING and bare[-1] in CLOSING and not set(inner) & set(CLOSING)
    return None if in_brackets and inner.lower().startswith("redacted") else text


def is_proven(chunk: Row, support: Row) -> bool:
    """Does the text of the chunk hold what the support asks for?"""
    snippets = support.get("snippets") or []
    text = kept(chunk.get("text")) or ""
    return not snippets or any(snippet.lower() in text.lower() for snippet in snippets)


def is_support(chunk: Row, support: Row) -> bool:
    if not same_place(chunk, support):
        return False
    text = kept(chunk.get("text"))
    return is_proven(chunk, support) or text is None or (text.endswith("...") and 200 <= len(text) <= 203)


def unverified(rows: Sequence[Row], golden: Sequence[Entry]) -> int:
    """How many supports were taken for found though no text proves it."""
    labels = {entry["id"]: entry.get("gold_supports") or [] for entry in golden}
    pairs = [(c, s) for row in rows for c in hits_of(row) for s in labels.get(row["test_case_id"], ())]
    return sum(is_support(chunk, support) and not is_proven(chunk, support) for chunk, support in pairs)


def anchors(rows: Sequence[Row], golden: Sequence[Entry], config: Mapping[str, Any]) -> dict[str, Any]:
    labels = {entry["id"]: entry for entry in golden}
    known = [(labels[row["test_case_id"]], row) for row in rows if row["test_case_id"] in labels]
    with_supports = [(entry, row) for entry, row in known if entry.get("gold_supports")]
    ks = sorted({*KS, *([config["k"]] if "k" in config else [])})
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
    scopes = Scopes(rows, golden, config)
    scoped = [(entry, row) for entry, row in with_supports if scopes.chosen(row)]
    put("scope_miss_rate", [int(not scopes.holds_a_support(entry, row)) for entry, row in scoped])
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
        if entry.get("answerable") is False and (row.get("answer") is not None or abstained(row) is not None)
    ]
    put("abstention_accuracy", [int(refused(row)) for row in unanswerable])
    put("hallucination_rate_unanswerable", [int(not refused(row)) for row in unanswerable])
    put("error_rate", [int(bool(row.get("error"))) for row in rows])
    put("timeout_rate", [int("timeout" in (row.get("error") or "").lower()) for row in rows])
    put("empty_response_rate", [int(is_empty(row)) for row in rows])
    for name, path in (("judge_groundedness", "groundedness"), ("judge_correctness", "correctness")):
        put(name, [row[path]["score"] for row in rows if row.get(path)])
    return found


def hits_of(row: Row) -> list[Row]:
    return list(row.get("retrieved_chunks") or [])


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


class Scopes:
    """Which folders the rows of a run chose, and what lies in them. Paths and folders are lists of names."""

    def __init__(self, rows: Sequence[Row], golden: Sequence[Entry], config: Mapping[str, Any]) -> None:
        self.config = config
        passages = [p for row in rows for name in ("retrieved_chunks", "references") for p in row.get(name) or []]
        paths = [p["rel_path"] for p in [*passages, *(s for e in golden for s in e.get("gold_supports") or [])]]
        self.tops = {path.split("/")[0] for path in paths if "/" in path}
        self.vaults = {passage["vault"] for passage in passages if passage.get("vault")}
        self.is_like_paths = any(f[0] in self.tops for row in rows for f in self.chosen(row) if f)

    def chosen(self, row: Row) -> list[list[str]]:
        modes = ((row.get("config") or {}).get("folder_mode"), self.config.get("folder_mode"))
        mode = next((mode for mode in modes if mode not in (None, "")), None)
        if mode is False or str(mode).lower() == "off":
            return []
        places = (row.get("folder_selection"), (row.get("debug") or {}).get("folder_selection"))
        named = [p if isinstance(p, list) else (p or {}).get("selected_folders") or [] for p in places]
        return [[part for part in f.split("/") if part not in ("", ".")] for f in next(filter(None, named), [])]

    def holds_a_support(self, entry: Entry, row: Row) -> bool:
        paths = [support["rel_path"].split("/")[:-1] for support in entry["gold_supports"]]
        return any(self._holds(folder, path, entry) for folder in self.chosen(row) for path in paths)

    def _holds(self, folder: list[str], path: list[str], entry: Entry) -> bool:
        named = set(entry.get("vaults") or self.vaults)
        if path[: len(folder)] == folder:
            return True
        if path and path[0] in named and path[1 : len(folder) + 1] == folder:
            return True
        if len(folder) == 1:
            return folder[0] in named - self.tops
        is_vault = folder[0] in named or not (entry.get("vaults") or self.is_like_paths)
        return is_vault and path[: len(folder) - 1] == folder[1:]


def abstained(row: Row) -> bool | None:
    """The harness's own object first, then the flag of the live system; None where neither says."""
    nested = (row.get("abstention") or {}).get("abstained")
    return row.get("abstained") if nested is None else nested


def is_empty(row: Row) -> bool:
    return not row.get("error") and not (row.get("answer") or "").strip() and abstained(row) is not True


def refused(row: Row) -> bool:
    said = abstained(row)
    return not (row.get("answer") or "").strip() if said is None else said


# --- grounded ----------------------------------------------------------------------------------------


def grounded(traces: Sequence[Row], gold: Sequence[Entry], k: int = 5) -> dict[str, Any]:
    last = {trace.get("qid") or trace.get("q_id"): trace for trace in traces}
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
