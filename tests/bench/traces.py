"""Traces of grounded answering by the hundred thousand, and the scorer that anyone would write for them."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REFUSAL = "not in context"


def make_traces(folder: Path, questions: int) -> tuple[Path, Path]:
    """A gold file and a trace file."""
    folder.mkdir(exist_ok=True)
    source = random.Random(1)
    gold, trace = folder / "gold.jsonl", folder / "trace.jsonl"
    with gold.open("w") as golds, trace.open("w") as traces:
        for number in range(questions):
            answerable = number % 5 != 0
            right = [f"c{number % 5000}"] if answerable else []
            item = {
                "qid": f"q{number:06d}",
                "question": f"what about topic {number}?",
                "answerable": answerable,
                "gold_claim_substr": [f"topic {number} is"] if answerable else [],
                "gold_citations": right,
            }
            golds.write(json.dumps(item) + "\n")
            ids = [f"c{source.randrange(5000)}" for _ in range(10)]
            if answerable and source.random() < 0.8:
                ids[source.randrange(10)] = right[0]
            refuses = answerable if source.random() < 0.1 else not answerable
            claim = REFUSAL if refuses else f"The handbook says that topic {number} is settled in the second section."
            cited = [] if refuses else ids[:1] if source.random() < 0.3 else right
            answer = {"claim": claim, "citations": cited}
            found = {"qid": item["qid"], "q": item["question"], "retrieved_ids": ids, "answer_json": answer}
            traces.write(json.dumps(found) + "\n")
    return gold, trace


def score(gold: str, trace: str, k: int = 5) -> dict[str, float]:
    items = [json.loads(line) for line in Path(gold).read_text().splitlines() if line.strip()]
    traces = {found["qid"]: found for found in map(json.loads, Path(trace).read_text().splitlines())}
    answered = right = cited_right = answerable = unanswerable = under = over = recalled = 0
    for item in items:
        found: Mapping[str, Any] = traces.get(item["qid"], {})
        answer = found.get("answer_json") or {}
        claim, ids = answer.get("claim") or "", found.get("retrieved_ids") or []
        refused = claim.strip().lower() == REFUSAL
        wanted, citations = set(item["gold_citations"]), set(answer.get("citations") or [])
        cited = (citations <= set(ids) and bool(citations & wanted)) if wanted else not citations
        needles = item["gold_claim_substr"]
        holds = not needles or any(len(needle) >= 5 and needle.lower() in claim.lower() for needle in needles)
        if item["answerable"]:
            answerable += 1
            over += refused
            recalled += wanted <= set(ids[:k])
        else:
            unanswerable += 1
            under += not refused
        if not refused:
            answered += 1
            right += item["answerable"] and cited and holds
            cited_right += item["answerable"] and cited
    return {
        "precision": right / answered,
        "chr": cited_right / answered,
        "under_refusal": under / unanswerable,
        "over_refusal": over / answerable,
        "recall@k": recalled / answerable,
    }


if __name__ == "__main__":
    json.dump(score(sys.argv[1], sys.argv[2]), sys.stdout)
