"""The scorer that anyone would write in an afternoon: sqlite3, json.loads and dicts, one query at a time.

The benchmarks measure kbeval against it on the same file. It computes the same metrics and is checked to
give the same numbers, but it has no ledger, no row checks and no exact sums.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import unicodedata
from collections import defaultdict
from pathlib import Path
from typing import Any

KS = (1, 3, 5, 10)


def load_golden(path: str) -> dict[str, dict[str, Any]]:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return {entry["id"]: entry for entry in map(json.loads, lines)}


def load_chunks(connection: sqlite3.Connection) -> dict[str, list[tuple[int, int]]]:
    """Line spans of every chunk, by the path of its document."""
    paths = dict(connection.execute("SELECT doc_id, workspace_path FROM documents"))
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for doc_id, spans_json in connection.execute("SELECT doc_id, source_spans_json FROM chunks"):
        for span in json.loads(spans_json):
            spans[paths.get(doc_id, "")].append((span["start"], span["end"]))
    return spans


def score(database: str, golden_path: str) -> dict[str, dict[str, Any]]:
    golden = load_golden(golden_path)
    connection = sqlite3.connect(database)
    chunks = load_chunks(connection)
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    rows = connection.execute("SELECT run_id, query_id, result_json FROM eval_query_results")
    for run_id, query_id, result_json in rows:
        score_query(values[run_id], golden.get(query_id), json.loads(result_json), chunks)
    aggregates = {}
    for run_id, metrics in values.items():
        aggregates[run_id] = {name: round(sum(v) / len(v), 4) for name, v in metrics.items()}
    with connection:
        for run_id, aggregate in aggregates.items():
            connection.execute(
                "UPDATE eval_runs SET aggregate_json = ? WHERE run_id = ?", (json.dumps(aggregate), run_id)
            )
    connection.close()
    return aggregates


def score_query(
    values: dict[str, list[float]],
    entry: dict[str, Any] | None,
    result: dict[str, Any],
    chunks: dict[str, list[tuple[int, int]]],
) -> None:
    failed = result.get("error") is not None
    hits = [] if failed else result.get("hits_top_k") or []
    values["empty_result_rate"].append(0 if hits else 1)
    values["failed_queries"].append(1 if failed else 0)
    if entry is None:
        return
    first: dict[str, int] = {}
    first_doc: dict[str, int] = {}
    for position, hit in enumerate(hits, start=1):
        rank = hit.get("rank") or position
        chunk, doc = hit.get("chunk_id"), hit.get("doc_id")
        first[chunk] = min(rank, first.get(chunk, rank))
        first_doc[doc] = min(rank, first_doc.get(doc, rank))
    expected = set(entry.get("expected_chunk_ids") or ())
    if expected:
        ranks = [first[chunk] for chunk in expected if chunk in first]
        best = min(ranks, default=None)
        for k in KS:
            found = sum(1 for rank in ranks if rank <= k)
            values[f"hit_at_k.{k}"].append(1 if found else 0)
            values[f"precision_at_k_chunk.{k}"].append(found / k)
        values["mrr"].append(1 / best if best is not None and best <= 10 else 0)
    docs = set(entry.get("expected_doc_ids") or ())
    if docs:
        doc_ranks = [first_doc[doc] for doc in docs if doc in first_doc]
        for k in KS:
            values[f"recall_at_k_doc.{k}"].append(sum(1 for rank in doc_ranks if rank <= k) / len(docs))
    answer = result.get("answer")
    if answer is not None and not failed:
        text = unicodedata.normalize("NFC", answer.get("answer") or "")
        must = [unicodedata.normalize("NFC", needle) for needle in entry.get("must_contain") or ()]
        forbidden = [unicodedata.normalize("NFC", needle) for needle in entry.get("forbidden") or ()]
        holds = all(needle in text for needle in must) and not any(needle in text for needle in forbidden)
        values["groundedness"].append(1 if holds else 0)
        if answer.get("grounded"):
            citations = answer.get("citations") or []
            good = bool(citations) and all(resolves(item["citation"], chunks) for item in citations)
            values["citation_coverage"].append(1 if good else 0)
    answerable = entry.get("answerable")
    should_refuse = answerable is False or (answerable is None and entry.get("expected_doc_ids") == [] and not expected)
    if should_refuse and answer is not None:
        values["refusal_correctness"].append(0 if answer.get("grounded") else 1)


def resolves(citation: dict[str, Any], chunks: dict[str, list[tuple[int, int]]]) -> bool:
    return any(start <= citation["end"] and citation["start"] <= end for start, end in chunks.get(citation["path"], ()))


if __name__ == "__main__":
    json.dump(score(sys.argv[1], sys.argv[2]), sys.stdout)
