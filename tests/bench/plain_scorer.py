"""The scorer that anyone would write in an afternoon: sqlite3, json.loads, dicts, one function per metric.

The benchmarks measure kbeval against it on the same file. It gives the same numbers, but has no ledger, no
checks of the rows and no exact sums. `streaming` is the same with an eye on speed: one row at a time, all
metrics of a row in one go, nothing kept.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

KS = (1, 3, 5, 10)
Entry = Mapping[str, Any]
Result = Mapping[str, Any]
Spans = Mapping[str, list[tuple[int, int]]]
Pairs = list[tuple[Entry, Result]]


def load_golden(path: str) -> dict[str, Entry]:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return {entry["id"]: entry for entry in map(json.loads, lines)}


def load_spans(connection: sqlite3.Connection) -> Spans:
    """Line spans of every chunk, by the path of its document."""
    paths = dict(connection.execute("SELECT doc_id, workspace_path FROM documents"))
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for doc_id, spans_json in connection.execute("SELECT doc_id, source_spans_json FROM chunks"):
        for span in json.loads(spans_json):
            spans[paths.get(doc_id, "")].append((span["start"], span["end"]))
    return spans


def store(connection: sqlite3.Connection, aggregates: Mapping[str, Any]) -> None:
    with connection:
        for run_id, aggregate in aggregates.items():
            text = json.dumps(aggregate)
            connection.execute("UPDATE eval_runs SET aggregate_json = ? WHERE run_id = ?", (text, run_id))


# --- the plain way: a run's results in a dict, one function per metric -----------------------------------


def score(database: str, golden_path: str) -> dict[str, dict[str, float]]:
    golden = load_golden(golden_path)
    connection = sqlite3.connect(database)
    spans = load_spans(connection)
    aggregates = {}
    for (run_id,) in connection.execute("SELECT run_id FROM eval_runs").fetchall():
        rows = connection.execute("SELECT query_id, result_json FROM eval_query_results WHERE run_id = ?", (run_id,))
        results = {query_id: json.loads(text) for query_id, text in rows}
        aggregates[run_id] = score_run(results, golden, spans)
    store(connection, aggregates)
    connection.close()
    return aggregates


def score_run(results: Mapping[str, Result], golden: Mapping[str, Entry], spans: Spans) -> dict[str, float]:
    pairs = [(golden[query_id], result) for query_id, result in results.items() if query_id in golden]
    found: dict[str, float] = {}
    for k in KS:
        found[f"hit_at_k.{k}"] = mean(1 if expected(e) & top(r, "chunk_id", k) else 0 for e, r in labelled(pairs))
        found[f"precision_at_k_chunk.{k}"] = mean(
            len(expected(e) & top(r, "chunk_id", k)) / k for e, r in labelled(pairs)
        )
        found[f"recall_at_k_doc.{k}"] = mean(
            len(set(e["expected_doc_ids"]) & top(r, "doc_id", k)) / len(set(e["expected_doc_ids"]))
            for e, r in pairs
            if e.get("expected_doc_ids")
        )
    found["mrr"] = mean(reciprocal_rank(e, r) for e, r in labelled(pairs))
    answered = [(e, r) for e, r in pairs if r.get("answer") is not None and not failed(r)]
    found["groundedness"] = mean(1 if keeps_rules(e, r) else 0 for e, r in answered)
    found["citation_coverage"] = mean(
        1 if is_covered(r, spans) else 0 for _, r in answered if r["answer"].get("grounded")
    )
    found["refusal_correctness"] = mean(
        0 if r["answer"].get("grounded") else 1 for e, r in pairs if should_refuse(e) and r.get("answer") is not None
    )
    found["empty_result_rate"] = mean(0 if hits(r) else 1 for r in results.values())
    return found


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return round(sum(found) / len(found), 4) if found else 0.0


def labelled(pairs: Pairs) -> Pairs:
    return [(entry, result) for entry, result in pairs if entry.get("expected_chunk_ids")]


def expected(entry: Entry) -> set[str]:
    return set(entry["expected_chunk_ids"])


def failed(result: Result) -> bool:
    return result.get("error") is not None


def hits(result: Result) -> list[Mapping[str, Any]]:
    """Those of a failed query, too: its system may have retrieved well."""
    return result.get("hits_top_k") or []


def top(result: Result, field: str, k: int) -> set[str]:
    return {hit[field] for position, hit in enumerate(hits(result), start=1) if (hit.get("rank") or position) <= k}


def reciprocal_rank(entry: Entry, result: Result) -> float:
    wanted = expected(entry)
    ranks = [hit.get("rank") or n for n, hit in enumerate(hits(result), start=1) if hit["chunk_id"] in wanted]
    return 1 / min(ranks) if ranks and min(ranks) <= 10 else 0


def keeps_rules(entry: Entry, result: Result) -> bool:
    text = unicodedata.normalize("NFC", result["answer"].get("answer") or "")
    must = [unicodedata.normalize("NFC", needle) for needle in entry.get("must_contain") or ()]
    forbidden = [unicodedata.normalize("NFC", needle) for needle in entry.get("forbidden") or ()]
    return all(needle in text for needle in must) and not any(needle in text for needle in forbidden)


def is_covered(result: Result, spans: Spans) -> bool:
    citations = result["answer"].get("citations") or []
    return bool(citations) and all(resolves(item["citation"], spans) for item in citations)


def resolves(citation: Mapping[str, Any], spans: Spans) -> bool:
    return any(start <= citation["end"] and citation["start"] <= end for start, end in spans.get(citation["path"], ()))


def should_refuse(entry: Entry) -> bool:
    if entry.get("answerable") is not None:
        return not entry["answerable"]
    return entry.get("expected_doc_ids") == [] and not entry.get("expected_chunk_ids")


# --- the streaming way: everything about a row at once ---------------------------------------------------


def streaming(database: str, golden_path: str) -> dict[str, dict[str, float]]:
    golden = load_golden(golden_path)
    connection = sqlite3.connect(database)
    spans = load_spans(connection)
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run_id, query_id, text in connection.execute("SELECT run_id, query_id, result_json FROM eval_query_results"):
        for name, value in score_row(golden.get(query_id), json.loads(text), spans):
            values[run_id][name].append(value)
    aggregates = {run_id: {name: mean(v) for name, v in found.items()} for run_id, found in values.items()}
    store(connection, aggregates)
    connection.close()
    return aggregates


def score_row(entry: Entry | None, result: Result, spans: Spans) -> Iterator[tuple[str, float]]:
    found = hits(result)
    yield "empty_result_rate", 0 if found else 1
    if entry is None:
        return
    chunks: dict[str, int] = {}
    docs: dict[str, int] = {}
    for position, hit in enumerate(found, start=1):
        rank = hit.get("rank") or position
        chunk, doc = hit["chunk_id"], hit["doc_id"]
        chunks[chunk] = min(rank, chunks.get(chunk, rank))
        docs[doc] = min(rank, docs.get(doc, rank))
    wanted = set(entry.get("expected_chunk_ids") or ())
    if wanted:
        ranks = [chunks[chunk] for chunk in wanted if chunk in chunks]
        for k in KS:
            seen = sum(1 for rank in ranks if rank <= k)
            yield f"hit_at_k.{k}", 1 if seen else 0
            yield f"precision_at_k_chunk.{k}", seen / k
        yield "mrr", 1 / min(ranks) if ranks and min(ranks) <= 10 else 0
    wanted_docs = set(entry.get("expected_doc_ids") or ())
    if wanted_docs:
        doc_ranks = [docs[doc] for doc in wanted_docs if doc in docs]
        for k in KS:
            yield f"recall_at_k_doc.{k}", sum(1 for rank in doc_ranks if rank <= k) / len(wanted_docs)
    answer = result.get("answer")
    if answer is not None and not failed(result):
        yield "groundedness", 1 if keeps_rules(entry, result) else 0
        if answer.get("grounded"):
            yield "citation_coverage", 1 if is_covered(result, spans) else 0
    if answer is not None and should_refuse(entry):
        yield "refusal_correctness", 0 if answer.get("grounded") else 1


WAYS: dict[str, Callable[[str, str], dict[str, dict[str, float]]]] = {"plain": score, "streaming": streaming}

if __name__ == "__main__":
    json.dump(WAYS[sys.argv[1]](sys.argv[2], sys.argv[3]), sys.stdout)
