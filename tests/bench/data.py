"""Databases of realistic size: rows of about nine kilobytes, as a hybrid retriever with an answerer writes them."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from kbeval.engine.relations import read_sql

DOCUMENTS = 1500
LINES_PER_DOCUMENT = 300
LINES_PER_CHUNK = {"md@1": 15, "md@2": 25}


def _path(doc: int) -> str:
    return f"docs/area-{doc % 40:02d}/note-{doc:05d}.md"


def _chunks(version: str) -> list[dict[str, Any]]:
    size = LINES_PER_CHUNK[version]
    places = range(LINES_PER_DOCUMENT // size)
    prefix = "chunk" if version == "md@1" else "piece"
    return [
        _chunk(f"{prefix}-{doc:05d}-{place:02d}", doc, place, version) for doc in range(DOCUMENTS) for place in places
    ]


def _chunk(chunk_id: str, doc: int, place: int, version: str) -> dict[str, Any]:
    start = place * LINES_PER_CHUNK[version] + 1
    end = start + LINES_PER_CHUNK[version] - 1
    return {
        "chunk_id": chunk_id,
        "doc_id": f"doc-{doc:05d}",
        "doc_path": _path(doc),
        "heading_path": ["Handbook", f"Area {doc % 40}", f"Section {place}"],
        "chunker_version": version,
        "citation": {"kind": "line", "path": _path(doc), "start": start, "end": end, "section": f"Section {place}"},
        "source_spans": [{"kind": "line", "start": start, "end": end}],
    }


def make_database(
    folder: Path, runs: int, queries: int, hits: int, *, snippet: int = 390, chunkers: Sequence[str] = ("md@1",)
) -> tuple[Path, Path]:
    """A database and its golden file (JSONL), labelled with the chunks of md@1. Runs take the chunkers in turn."""
    folder.mkdir(exist_ok=True)
    source = random.Random(20260301)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 9))) for _ in range(4000)]
    texts = [" ".join(source.choices(words, k=max(1, snippet // 6))) + ".\n" for _ in range(3000)]
    chunks = {version: _chunks(version) for version in chunkers}
    labels = [source.randrange(len(chunks["md@1"])) for _ in range(queries)]
    golden = folder / f"golden-{queries}.jsonl"
    golden.write_text("".join(json.dumps(_entry(n, chunks["md@1"][c], source)) + "\n" for n, c in enumerate(labels)))
    database = folder / f"bench-{runs}x{queries}x{hits}.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(read_sql("schema/workspace.sql"))
        connection.executemany(
            "INSERT INTO documents VALUES (?, ?, NULL, 'en')",
            ((f"doc-{n:05d}", _path(n)) for n in range(DOCUMENTS)),
        )
        connection.executemany(
            "INSERT INTO chunks VALUES (?, ?, '', '[]', NULL, ?, 100, ?, 'p', '[]', '2026-03-01')",
            (
                (c["chunk_id"], c["doc_id"], json.dumps(c["source_spans"]), c["chunker_version"])
                for each in chunks.values()
                for c in each
            ),
        )
        for run in range(runs):
            name = f"nightly-{run:04d}"
            chunker = chunkers[run % len(chunkers)]
            right = [_same_place(label, chunker) for label in labels]
            connection.execute(
                "INSERT INTO eval_runs VALUES (?, 'nightly', ?, '', NULL, ?)",
                (name, json.dumps({"chunker_version": chunker, "eval_k": hits}), f"2026-03-{run % 28 + 1:02d}"),
            )
            found = _rows(source, right, chunks[chunker], texts, hits)
            rows = ((name, f"q{n:06d}", row) for n, row in enumerate(found))
            connection.executemany("INSERT INTO eval_query_results VALUES (?, ?, ?)", rows)
        connection.commit()
    return database, golden


def make_history(folder: Path, runs: int, queries: int, hits: int, *, first: int = 0) -> tuple[Path, Path]:
    """As `make_database`, for a history too large to be written one value at a time: rows are put together from
    pieces that are JSON already. `first`: the number of the first run, for another part of the same history.
    """
    folder.mkdir(exist_ok=True, parents=True)
    database, golden = make_database(folder, runs=0, queries=queries, hits=hits)
    source = random.Random(20260400 + first)
    chunks = _chunks("md@1")
    snippets = ["".join(source.choices("abcdefgh ", k=390)) for _ in range(500)]
    labels = [json.loads(line) for line in golden.read_text().splitlines()]
    places = {chunk["chunk_id"]: place for place, chunk in enumerate(chunks)}
    right = [places[entry["expected_chunk_ids"][0]] if "expected_chunk_ids" in entry else -1 for entry in labels]
    hit_texts = [json.dumps({**chunk, "snippet": source.choice(snippets)})[1:] for chunk in chunks]
    citations = [json.dumps({"marker": "[#1]", "citation": chunk["citation"]}) for chunk in chunks]
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        for run in range(first, first + runs):
            name = f"nightly-{run:04d}"
            created = f"{2020 + run // 336}-{run // 28 % 12 + 1:02d}-{run % 28 + 1:02d}"
            connection.execute(
                "INSERT INTO eval_runs VALUES (?, 'nightly', ?, '', NULL, ?)",
                (name, json.dumps({"chunker_version": "md@1", "eval_k": hits}), created),
            )
            rows = []
            for number, label in enumerate(right):
                found = [source.randrange(len(chunks)) for _ in range(hits)]
                if label >= 0 and source.random() < 0.8:
                    found[min(int(source.expovariate(0.5)), hits - 1)] = label
                ranked = ", ".join(f'{{"rank": {rank}, {hit_texts[c]}' for rank, c in enumerate(found, start=1))
                cited = ", ".join(citations[c] for c in found[:2])
                grounded = "true" if number % 25 else "false"
                rows.append(
                    (
                        name,
                        f"q{number:06d}",
                        (
                            f'{{"query_id": "q{number:06d}", "elapsed_ms": {source.randint(20, 900)}, "error": null,'
                            f' "hits_top_k": [{ranked}], "answer": {{"answer": "{source.choice(snippets)}",'
                            f' "grounded": {grounded}, "citations": [{cited}]}}}}'
                        ),
                    )
                )
            connection.executemany("INSERT INTO eval_query_results VALUES (?, ?, ?)", rows)
        connection.commit()
    named = folder / f"history-{runs}x{queries}x{hits}.db"
    database.rename(named)
    return named, golden


def _same_place(label: int, version: str) -> int:
    """The chunk of another version that holds the middle of a chunk of md@1."""
    doc, place = divmod(label, LINES_PER_DOCUMENT // LINES_PER_CHUNK["md@1"])
    line = place * LINES_PER_CHUNK["md@1"] + LINES_PER_CHUNK["md@1"] // 2
    return doc * (LINES_PER_DOCUMENT // LINES_PER_CHUNK[version]) + line // LINES_PER_CHUNK[version]


def _entry(number: int, chunk: dict[str, Any], source: random.Random) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": f"q{number:06d}", "query": f"what does the handbook say about topic {number}?"}
    if number % 25 == 0:
        return {**entry, "expected_doc_ids": [], "category": "refuse"}
    entry["expected_chunk_ids"] = [chunk["chunk_id"]]
    entry["expected_doc_ids"] = [chunk["doc_id"]]
    entry["category"] = f"area {number % 8}"
    if number % 3 == 0:
        entry["must_contain"] = [source.choice("etaoin")]
    return entry


def _rows(
    source: random.Random, labels: list[int], chunks: list[dict[str, Any]], texts: list[str], hits: int
) -> Iterator[str]:
    for number, label in enumerate(labels):
        found = source.sample(range(len(chunks)), hits)
        if source.random() < 0.8:
            found[min(int(source.expovariate(0.5)), hits - 1)] = label
        ranked = [
            {"rank": rank, **chunks[c], "snippet": source.choice(texts), "score": round(source.random(), 6)}
            for rank, c in enumerate(found, start=1)
        ]
        yield json.dumps(
            {
                "query_id": f"q{number:06d}",
                "query": f"what does the handbook say about topic {number}?",
                "mode": "hybrid",
                "elapsed_ms": source.randint(20, 900),
                "error": "timeout" if number % 500 == 7 else None,
                "hits_top_k": ranked,
                "answer": {
                    "answer": source.choice(texts),
                    "grounded": number % 25 != 0,
                    "refusal_reason": None,
                    "citations": [
                        {"marker": f"[#{n + 1}]", "citation": ranked[n]["citation"]} for n in range(min(2, hits))
                    ],
                },
            }
        )
