"""A workspace in which everything is odd: all kinds of position, letters that fold differently, rows of every system,
unreadable ones, repeated hits, and numbers of every size."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import yaml

from kbeval.cli import run
from tests.support.workspace import Workspace

FIXTURES = Path(__file__).parents[2] / "fixtures"
LETTERS = (
    "İstanbul",
    "ΟΔΟΣ",
    "ὁδός",
    "STRAẞE",
    "ﬁne",
    "🤦🏼‍♂️",
    "e\u0301",
    "naïve",
    "it's 100% _sure_",
    'a "quoted" `name`',
)
ERRORS = ("TIMEOUT", "TİMEOUT after 5 s", "Timed Out", "tımed out", "connection reset", "ẞ: timeout")
DOCS = ("d1", "d2", "docs/ΟΔΟΣ.md", "İ")
VERSIONS = ("lines@1", "ẞ@2")


class _Inventor:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def span(self) -> dict[str, Any]:
        low = self.chance.randrange(0, 60)
        high = low + self.chance.randrange(1, 30)
        kind = self.chance.choice(("line", "char", "byte", "page", "region", "time", "caption"))
        if kind == "page":
            whole = self.chance.random() < 0.3
            chars = {} if whole else {"char_start": low, "char_end": high}
            return {"kind": kind, "page": self.chance.randrange(1, 4), **chars}
        if kind == "region":
            x, y = self.chance.randrange(0, 40) / 4, self.chance.randrange(0, 40) / 3
            return {"kind": kind, "page": 1, "x": x, "y": y, "w": self.chance.uniform(0.5, 9), "h": 2.5}
        if kind == "time":
            return {"kind": kind, "start_ms": low * 100, "end_ms": high * 100}
        return {"kind": kind} if kind == "caption" else {"kind": kind, "start": low, "end": high}

    def spans(self) -> list[dict[str, Any]]:
        """Several regions, which may overlap, or positions of one kind or of several."""
        found = [self.span() for _ in range(self.chance.randrange(1, 5))]
        return (
            found
            if self.chance.random() < 0.5
            else [{**found[0]}, *(s for s in found if s["kind"] == found[0]["kind"])]
        )

    def hit(self, version: str) -> dict[str, Any]:
        chance = self.chance
        found: dict[str, Any] = {"chunk_id": f"{version}-{chance.randrange(40)}", "doc_id": chance.choice(DOCS)}
        if chance.random() < 0.3:
            found["source_spans"] = self.spans()
        if chance.random() < 0.2:
            found["rank"] = chance.randrange(1, 12)
        if chance.random() < 0.3:
            found["text"] = " ".join(chance.choices(LETTERS, k=4))
        if chance.random() < 0.2:
            found["token_count"] = chance.choice((1, 17, 400, 0.25))
        if chance.random() < 0.1:
            del found[chance.choice(("chunk_id", "doc_id"))]
        return found

    def row(self, version: str) -> dict[str, Any] | str:
        chance = self.chance
        if chance.random() < 0.05:
            return chance.choice(("{", "[]", '{"hits_top_k": 7}', '{"hits_top_k": [], "elapsed_ms": NaN}'))
        hits = [self.hit(version) for _ in range(chance.randrange(0, 9))]
        hits += chance.choices(hits, k=1) if hits and chance.random() < 0.3 else []
        found: dict[str, Any] = {
            "hits_top_k": hits,
            "elapsed_ms": chance.choice((chance.randrange(10**10) / 1e5, 1e14 / 3, 0, 22043.82365)),
        }
        if chance.random() < 0.15:
            found["error"] = chance.choice(ERRORS)
        if chance.random() < 0.6:
            cited = [self.citation(version) for _ in range(chance.randrange(0, 3))]
            text = " ".join(chance.choices(LETTERS, k=chance.randrange(0, 5)))
            found["answer"] = {"answer": text, "grounded": chance.choice((True, False, None)), "citations": cited}
        if chance.random() < 0.3:
            found |= {
                "cost_usd": chance.choice((0.1, 1e-9, 12.34567)),
                "usage": {"total_tokens": chance.randrange(900)},
            }
        return found

    def citation(self, version: str) -> dict[str, Any]:
        if self.chance.random() < 0.5:
            return {"chunk_id": f"{version}-{self.chance.randrange(50)}"}
        return {"citation": {**self.span(), "path": self.chance.choice(DOCS)}}

    def entry(self, number: int) -> dict[str, Any]:
        chance = self.chance
        found: dict[str, Any] = {
            "id": f"q{number}",
            "query": chance.choice(LETTERS),
            "tags": chance.sample(LETTERS, k=chance.randrange(3)),
        }
        if chance.random() < 0.7:
            found["expected_chunk_ids"] = [
                f"{VERSIONS[0]}-{chance.randrange(40)}" for _ in range(chance.randrange(1, 4))
            ]
        elif chance.random() < 0.6:
            found["expected_spans"] = [{"doc_id": chance.choice(DOCS), **self.span()} for _ in range(2)]
        if chance.random() < 0.5:
            found["expected_doc_ids"] = chance.sample(DOCS, k=chance.randrange(0, 3))
        if chance.random() < 0.4:
            found |= {"must_contain": [chance.choice(LETTERS)], "forbidden": [chance.choice(LETTERS)]}
        if chance.random() < 0.4:
            found["gold_claim_substr"] = [chance.choice(LETTERS)]
        if chance.random() < 0.3:
            found["group"] = chance.choice(LETTERS)
        return found


def _add_grades(entries: list[dict[str, Any]]) -> None:
    """Relevance of every size, also of chunks that are not expected. Drawn apart from everything else."""
    chance = random.Random(23)
    for entry in entries[::2]:
        graded = chance.sample(range(40), k=chance.randrange(1, 9))
        grades = {f"{VERSIONS[0]}-{number}": chance.choice((0, 0, 1, 1, 2, 0.1, 1 / 3, 10**9)) for number in graded}
        wanted = entry.get("expected_chunk_ids", ())
        if "expected_spans" not in entry:
            # What is expected cannot be irrelevant.
            entry["relevance"] = {chunk: grade for chunk, grade in grades.items() if grade or chunk not in wanted}


def make_hostile(folder: Path, seed: int = 19) -> Workspace:
    """The workspace, with five invented runs, one of each other system, and their labels."""
    made = _Inventor(seed)
    workspace = Workspace(folder)
    for doc in DOCS:
        workspace.add_document(doc, doc)
    for version in VERSIONS:
        for number in range(40):
            workspace.add_chunk(f"{version}-{number}", made.chance.choice(DOCS), made.spans(), version)
    entries = [made.entry(number) for number in range(30)]
    _add_grades(entries)
    for number in range(5):
        version = VERSIONS[number % 2]
        asked = made.chance.sample([entry["id"] for entry in entries], k=26)
        rows = {query_id: made.row(version) for query_id in (*asked, "unknown")}
        workspace.add_run(f"run-{number} {LETTERS[number]}", rows, created_at=f"2026-01-0{number + 1}", chunker=version)
    anchors = FIXTURES / "anchors" / "2026-03-05-hybrid"
    trace = shutil.copy(FIXTURES / "grounded" / "trace.jsonl", folder)
    database = ["--db", str(workspace.db)]
    assert run(["import", "anchors", str(anchors), *database]) == 0
    assert run(["import", "grounded", str(trace), "--run-id", "traced", *database]) == 0
    entries += yaml.safe_load((FIXTURES / "anchors" / "golden.yaml").read_text())
    gold = map(json.loads, (FIXTURES / "grounded" / "gold.jsonl").read_text().splitlines())
    entries += [
        {
            "id": item["qid"],
            "query": item["question"],
            "answerable": item["answerable"],
            "gold_claim_substr": item["gold_claim_substr"],
            "expected_chunk_ids": item["gold_citations"],
        }
        for item in gold
    ]
    workspace.add_golden(*entries)
    return workspace
