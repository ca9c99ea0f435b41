"""A workspace in which every text is written to break a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kbeval.scoring.scorer import open_scoring
from kbeval.storage.judgements import Asked, Judged, JudgementStore, NewJudging, Said
from tests.support.workspace import Workspace

# What each of them would do if it were read as markup, as a template, or as commands to a terminal.
SCRIPT = "</script><script>window.broken=1</script>"
IMAGE = "\"'><img src=x onerror=window.broken=1><svg onload=window.broken=1>"
COMMENT = "<!--<script>"
TEMPLATE = "{{ 7*7 }}{% raw %}${window.broken=1}"
BIDI = "abc\u202edcba\u2066\u200f"
ANSI = "\x1b[31mred\x1b]0;title\x07\x9b31m"
NULL = "a\x00b\ufffe\ud7ff"
LONG = "x" * 100_000
EMOJI = "👩‍👩‍👧‍👦 🇩🇪 e\u0301"
RIGHT_TO_LEFT = "שלום עולם، مرحبا بالعالم"
STYLE = "</style><style>*{display:none}</style>"
EVERY = (SCRIPT, IMAGE, COMMENT, TEMPLATE, BIDI, ANSI, NULL, EMOJI, RIGHT_TO_LEFT, STYLE)
ALL = " ".join(EVERY)
RUN_A, RUN_B = f"a{SCRIPT}{IMAGE}", f"b{BIDI}{TEMPLATE}"


def make_hostile(folder: Path) -> Workspace:
    """Two runs over queries whose every field holds such texts."""
    workspace = Workspace(folder)
    golden: list[dict[str, Any]] = []
    rows_a: dict[str, Any] = {}
    rows_b: dict[str, Any] = {}
    for place, text in enumerate((*EVERY, LONG, ALL)):
        query_id = f"q{place} {text}"[:3_000]
        chunk_id = f"c{text}"[:2_000]
        golden.append(
            {
                "id": query_id,
                "query": f"? {text}",
                "expected_chunk_ids": [chunk_id],
                "expected_doc_ids": [f"d{text}"[:2_000]],
                "must_contain": [text],
                "forbidden": [f"no {text}"],
                "category": text,
                "tags": [text, f"tag {text}"],
                "difficulty": text,
                "group": text,
                "lang": text,
                "expected_key_facts": [text],
            }
        )
        hit = {
            "rank": 1,
            "chunk_id": chunk_id,
            "doc_id": f"d{text}"[:2_000],
            "doc_path": f"p/{text}",
            "heading_path": [text, text],
            "text": f"{text}\n{text}",
            "score": 1e308,
            "source_spans": [{"kind": text}],
            "citation": {"kind": "line", "path": text, "start": 1, "end": 2},
        }
        other = {**hit, "rank": 2, "chunk_id": f"other {text}"[:2_000], "doc_id": "d", "text": text}
        answer = {
            "answer": f"{text} and more",
            "grounded": True,
            "citations": [{"marker": text, "chunk_id": chunk_id}, {"marker": text, "citation": {"path": text}}, text],
        }
        rows_a[query_id] = {"hits_top_k": [hit, other], "answer": answer, "elapsed_ms": 3, "query": text}
        rows_b[query_id] = {"hits_top_k": [other], "answer": {**answer, "answer": text}, "elapsed_ms": 1e300}
    failed = golden[0]["id"]
    rows_b[failed] = {"error": ALL, "hits_top_k": []}
    workspace.add_golden(*golden)
    workspace.add_run(RUN_A, rows_a)
    workspace.add_run(RUN_B, rows_b, created_at="2026-01-02")
    config = json.dumps({"chunker_version": "md@1", ALL: ALL, "llm": {"model_id": ALL}})
    workspace.execute(
        "UPDATE eval_runs SET suite = ?, config_snapshot_json = ?, commit_hash = ? WHERE run_id = ?",
        (ALL, config, ALL, RUN_B),
    )
    workspace.execute("UPDATE eval_runs SET suite = ? WHERE run_id = ?", (ALL, RUN_A))
    _judge(workspace, golden[3]["id"])
    return workspace


def _judge(workspace: Workspace, query_id: str) -> None:
    with open_scoring(workspace.db, None, None) as scoring:
        scoring.session.need("results")
        ((mark,),) = scoring.session.rows(
            "SELECT CAST(row_mark AS VARCHAR) FROM results WHERE query_id = $1 AND run_id = $2", [query_id, RUN_A]
        )
    listed = [{"name": "correctness", "hash": "h", "low": 0, "high": 5, "text": "t"}]
    new = NewJudging(RUN_A, "i", "j", "local", ALL, "http://j", "{}", json.dumps(listed), "{}", 1)
    with JudgementStore(workspace.db) as database:
        database.make_tables()
        judging = database.begin(new)
        asked = Asked("k", "local", ALL, "http://j", "correctness", "h", "{}", "i", 0)
        claims = json.dumps([ALL.replace("\x00", "")])
        said = Said(
            "scored", 1, score=3.0, reasoning=ALL.replace("\x00", ""), supported_json=claims, unsupported_json=claims
        )
        database.add(asked, said, "{}", judging.judging_id, [Judged(query_id, "correctness", "k", mark, False)])
