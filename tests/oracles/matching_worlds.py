"""Invented databases: documents that were cut several times, and runs over each of the cuttings.

`invent` makes a whole `World` from a seed and a few sizes, always the same one from the same arguments; `store` writes
it as a SQLite file with its golden file; `smaller` makes the worlds that have one part less.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbeval.engine.relations import read_sql
from tests.oracles.matching_oracle import Chunk, Run, World, hits_of

KINDS = ("line", "line", "line", "code", "char", "byte", "time", "page", "region")
POLICIES = ("constant", "changing", "changing", "none")
IDS = ("new", "new", "content", "numbered", "counted")
CUT_TEXT = "x" * 200 + "..."
SEPARATORS = {"chunks": None, "hits": (",", ":")}


@dataclass(frozen=True)
class Document:
    doc_id: str
    path: str
    kind: str
    length: int


@dataclass(frozen=True)
class Chunking:
    version: str
    policy: str
    chunks: tuple[Chunk, ...]


def span(kind: str, start: int, end: int) -> dict[str, Any]:
    """From `start` up to and without `end`, in units from 0."""
    return {
        "line": {"kind": "line", "start": start + 1, "end": end},
        "code": {"kind": "code", "line_start": start + 1, "line_end": end},
        "byte": {"kind": "byte", "start": start, "end": end},
        "char": {"kind": "char", "start": start, "end": end},
        "time": {"kind": "time", "start_ms": 250 * start, "end_ms": 250 * end},
        "page": {"kind": "page", "page": 1, "char_start": start, "char_end": end},
        "region": {"kind": "region", "x": 10, "y": start, "w": 3, "h": end - start},
    }[kind]


class Inventor:
    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self.source.random() < share

    def documents(self, count: int) -> list[Document]:
        main = self.source.choice(KINDS)
        kinds = [main if self.chance(0.7) else self.source.choice(KINDS) for _ in range(count)]
        return [Document(f"d{n}", f"docs/{n}.md", kind, self.source.randint(8, 30)) for n, kind in enumerate(kinds, 1)]

    def spans(self, document: Document, start: int, end: int) -> Any:
        """A range as a chunker writes it: whole, in two parts that touch or overlap, with a gap, or not at all."""
        luck = self.source.random()
        if luck < 0.03:
            return self.source.choice([[], [{}], [{"kind": "line", "start": 9, "end": 1}], [{"kind": "other"}]])
        if luck < 0.05:
            return [{"kind": "caption", "path": document.path}]
        if document.kind == "page" and luck < 0.12:
            return [{"kind": "page", "page": 1}]
        if end - start > 2 and luck < 0.35:
            middle = self.source.randint(start + 1, end - 1)
            back = self.source.choice([0, 0, 1, -1])
            second = min(max(start, middle - back), end - 1)
            return [span(document.kind, start, middle), span(document.kind, second, end)]
        return [span(document.kind, start, end)]

    def chunking(self, number: int, documents: list[Document], ids: str, version: str, policy: str) -> Chunking:
        found: dict[str, Chunk] = {}
        size = self.source.choice([2, 4, 7, 12])
        back = self.source.choice([0, 0, 0, 1, 2])
        count = 0
        for document in documents:
            for place, start in enumerate(range(0, document.length, size)):
                begin, end = max(0, start - back), min(start + size, document.length)
                name = {
                    "new": f"v{number}-{document.doc_id}-{place}",
                    "content": f"{document.doc_id}:{begin}-{end}",
                    "numbered": f"{document.doc_id}#{place}",
                    "counted": f"c{count}",
                }[ids]
                count += 1
                tokens = (end - begin) * self.source.choice([40, 125, 250])
                found[name] = Chunk(
                    name, version, policy, document.doc_id, self.spans(document, begin, end), tokens, 4 * tokens + 1
                )
        return Chunking(version, policy, tuple(found.values()))

    def chunkings(self, count: int, documents: list[Document]) -> list[Chunking]:
        keeps_version, policies = self.chance(0.5), self.source.choice(POLICIES)
        ids = self.source.choice(IDS)
        found = []
        for number in range(1, count + 1):
            version = "md@1" if keeps_version else f"md@{number}"
            policy = {"constant": "p", "changing": f"p{number}", "none": ""}[policies]
            found.append(self.chunking(number, documents, ids, version, policy))
        return found

    def table(self, chunkings: list[Chunking]) -> list[Chunk]:
        which = self.source.choice(["all", "newest", "newest", "oldest", "nothing"])
        chosen = {"all": chunkings, "newest": chunkings[-1:], "oldest": chunkings[:1], "nothing": []}[which]
        found = {chunk.chunk_id: chunk for chunking in chosen for chunk in chunking.chunks}  # an id has one row
        has_tokens = self.chance(0.7)
        return [c if has_tokens else replace(c, tokens=None) for c in found.values()]

    def kept(self, chunkings: list[Chunking]) -> list[Chunk]:
        """What earlier scorings kept, of some chunkings, the older ones first."""
        found: dict[tuple[str, ...], Chunk] = {}
        if self.chance(0.35):
            return []
        for number, chunking in enumerate(chunkings, 1):
            share = self.source.choice([0.0, 0.5, 1.0, 1.0])
            seen_in = self.source.choice(["chunks", "chunks", "hits"])
            knows_policy = self.chance(0.75) if seen_in == "chunks" else self.chance(0.3)
            for chunk in chunking.chunks:
                if self.chance(share):
                    one = replace(
                        chunk,
                        policy=chunk.policy if knows_policy else "",
                        seen_in=seen_in,
                        first_seen=f"2026-01-0{number}T00:00:00Z",
                        tokens=self.source.choice([None, chunk.tokens, (chunk.characters or 0) / 4]),
                        characters=None,
                    )
                    # An id that was used again has a row for each of its places.
                    where = (one.doc_id, json.dumps(one.spans))
                    found.setdefault((one.chunk_id, one.version, one.policy, *where), one)
        return list(found.values())

    # --- labels ------------------------------------------------------------------------------------

    def expected_span(self, documents: list[Document]) -> dict[str, Any]:
        document = self.source.choice(documents)
        start = self.source.randrange(document.length)
        end = min(document.length, start + self.source.choice([1, 2, 4, 8]))
        kind = document.kind if self.chance(0.85) else self.source.choice(KINDS)
        found = span(kind, start, end)
        if kind == "page" and self.chance(0.3):
            found = {"kind": "page", "page": 1}
        named = {"doc_id": document.doc_id} if self.chance(0.6) else {"path": document.path}
        return {**named, **found}

    def entry(self, query_id: str, documents: list[Document], chunkings: list[Chunking], main: int) -> dict[str, Any]:
        """Most labels name chunks of one chunking."""

        def some_chunks() -> list[str]:
            chunking = chunkings[main] if self.chance(0.85) else self.source.choice(chunkings)
            picked = self.source.sample(chunking.chunks, min(len(chunking.chunks), self.source.choice([1, 1, 2, 3])))
            return [chunk.chunk_id for chunk in picked] + (["gone"] if self.chance(0.1) else [])

        found: dict[str, Any] = {"id": query_id, "query": "?", "category": query_id}
        what = self.source.choices(
            ["chunks", "spans", "docs", "both", "unknown", "two", "nothing"], [10, 3, 1, 1, 1, 1, 0.5]
        )[0]
        if what in {"chunks", "both"}:
            found["expected_chunk_ids"] = some_chunks()
        if what == "two":
            found["expected_chunk_ids"] = sorted({*some_chunks(), *some_chunks(), *some_chunks()})
        if what == "unknown":
            found["expected_chunk_ids"] = [f"unknown-{query_id}"]
        if what in {"spans", "both"}:
            found["expected_spans"] = [self.expected_span(documents) for _ in range(self.source.choice([1, 1, 2]))]
        if what == "docs" or self.chance(0.3):
            docs = [document.doc_id for document in documents]
            found["expected_doc_ids"] = self.source.sample(docs, self.source.choice([1, 1, 2]))
        return found

    # --- runs --------------------------------------------------------------------------------------

    def run(
        self, number: int, documents: list[Document], chunkings: list[Chunking], golden: list[dict[str, Any]]
    ) -> Run:
        which = self.source.randrange(len(chunkings))
        chunking = chunkings[which]
        config: dict[str, Any] = {}
        if self.chance(0.7):
            config["chunker_version"] = chunking.version
        if chunking.policy and self.chance(0.3):
            config["policy_hash"] = chunking.policy
        habits = {
            "source_spans": self.source.choice([0.0, 0.0, 0.9, 1.0]),
            "citation": self.source.choice([0.0, 0.8, 1.0]),
            "doc_id": self.source.choice([0.0, 1.0, 1.0, 0.8]),
            "doc_path": self.source.choice([0.0, 1.0, 0.5]),
            "chunker_version": self.source.choice([0.0, 0.0, 1.0, 0.5]),
            "token_count": self.source.choice([0.0, 0.0, 1.0, 0.8]),
            "text": self.source.choice([0.0, 0.0, 1.0, 0.8]),
            "rank": self.source.choice([0.0, 1.0, 1.0]),
            "stray": self.source.choice([0.0, 0.0, 0.1]),
            "foreign": self.source.choice([0.0, 0.0, 0.0, 0.2]),
            "nameless": self.source.choice([0.0, 0.0, 0.0, 0.0, 0.3, 0.7, 1.0]),
        }
        rows = {entry["id"]: self.row(chunking, chunkings, documents, habits) for entry in golden if self.chance(0.9)}
        if self.chance(0.2):
            rows["not-golden"] = self.row(chunking, chunkings, documents, habits)
        return Run(f"run{number}", config, rows, f"2026-01-{20 - which - number % 3:02}")

    def row(
        self, chunking: Chunking, chunkings: list[Chunking], documents: list[Document], habits: Mapping[str, float]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.chance(0.2):
            found["error"] = self.source.choice([None, "", "timeout", "no answer"])
        if self.chance(0.05):
            return {**found, **self.source.choice([{}, {"hits_top_k": None}, {"hits_top_k": []}])}
        chosen = self.source.sample(chunking.chunks, min(len(chunking.chunks), self.source.choice([3, 6, 12])))
        by_id = {document.doc_id: document for document in documents}
        hits = []
        for chunk in chosen:
            if self.chance(habits["foreign"]):
                other = self.source.choice(chunkings)
                chunk = self.source.choice(other.chunks)  # noqa: PLW2901
            hits.append(self.hit(chunk, by_id[chunk.doc_id], habits))
        ranks = list(range(1, len(hits) + 1))
        if self.chance(0.2):
            self.source.shuffle(ranks)
        if self.chance(habits["rank"]):
            hits = [{"rank": rank, **hit} for rank, hit in zip(ranks, hits, strict=True)]
            if self.chance(0.2):  # a chunk that comes back again
                hits.append({**self.source.choice(hits), "rank": len(hits) + 1})
        return {**found, "hits_top_k": hits}

    def hit(self, chunk: Chunk, document: Document, habits: Mapping[str, float]) -> dict[str, Any]:
        start = self.source.randrange(document.length)
        citations: list[dict[str, Any]] = [
            first_block(chunk, document),
            first_block(chunk, document),
            {"kind": "page", "page": 1},
            span("line" if document.kind != "line" else "byte", start, start + 1),
            {"kind": "caption"},
            {},
        ]
        values: dict[str, Any] = {
            "source_spans": chunk.spans,
            "citation": {**self.source.choice(citations), "path": document.path},
            "doc_id": chunk.doc_id,
            "doc_path": document.path,
            "chunker_version": chunk.version if self.chance(0.97) else "md@9",
            "token_count": self.source.choice([0, 10, 120, 499.5, 500, 1000]),
            "text": self.source.choice(["x" * 41, "ü" * 61, CUT_TEXT]),
        }
        name = "stray" if self.chance(habits["stray"]) else chunk.chunk_id
        # A hit that names neither its chunk nor its document, and has no rank, cannot be read.
        is_nameless = self.chance(habits["nameless"])
        named = {"doc_id": chunk.doc_id} if is_nameless else {"chunk_id": name}
        return {**named, **{field: values[field] for field in values if self.chance(habits[field])}}


def first_block(chunk: Chunk, document: Document) -> dict[str, Any]:
    """A citation as real systems write it: the first unit of the chunk, usually its heading."""
    first = chunk.spans[0] if chunk.spans else {}
    for name in ("start", "line_start", "char_start", "y"):
        if name in first:
            low = first[name] - (1 if first["kind"] in {"line", "code"} else 0)
            return span(document.kind, low, low + 1)
    return first if first.get("kind") == "time" else {"kind": "line", "start": 1, "end": 1}


def invent(seed: int, documents: int = 2, chunkings: int = 2, runs: int = 6, queries: int = 6) -> World:
    inventor = Inventor(seed)
    texts = inventor.documents(documents)
    cut = inventor.chunkings(chunkings, texts)
    main = inventor.source.choice([0, 0, 0, len(cut) - 1])
    golden = [inventor.entry(f"q{number}", texts, cut, main) for number in range(queries)]
    table = inventor.table(cut)
    kept = inventor.kept(cut)
    made = [inventor.run(number, texts, cut, golden) for number in range(runs)]
    paths = {document.path: document.doc_id for document in texts if inventor.chance(0.85)}
    if table and inventor.chance(0.2):  # a table from before policies
        table = [replace(chunk, policy="") for chunk in table]
    return World(golden, made, table, kept, paths)


# --- files -------------------------------------------------------------------------------------------


def store(world: World, folder: Path) -> tuple[Path, Path]:
    """The database and the golden file. Columns of which no chunk has a value are left out of the table."""
    folder.mkdir(parents=True, exist_ok=True)
    db, golden = folder / "kb.db", folder / "golden.json"
    golden.write_text(json.dumps(list(world.golden)), encoding="utf-8")
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.executescript(read_sql("schema/workspace.sql"))
        if world.table and not any(chunk.policy for chunk in world.table):
            connection.execute("ALTER TABLE chunks DROP COLUMN policy_hash")
        if world.table and all(chunk.tokens is None for chunk in world.table):
            connection.execute("ALTER TABLE chunks DROP COLUMN token_estimate")
        columns = [row[1] for row in connection.execute("PRAGMA table_info(chunks)")]
        for chunk in world.table:
            values = {
                "chunk_id": chunk.chunk_id,
                "doc_id": chunk.doc_id,
                "text": "t" * (chunk.characters or 0),
                "heading_path_json": "[]",
                "source_spans_json": json.dumps(chunk.spans),
                "token_estimate": chunk.tokens,
                "chunker_version": chunk.version,
                "policy_hash": chunk.policy,
                "block_ids_json": "[]",
                "created_at": "now",
            }
            insert(connection, "chunks", {name: value for name, value in values.items() if name in columns})
        connection.executemany(
            "INSERT INTO documents (doc_id, workspace_path) VALUES (?, ?)", [(d, p) for p, d in world.documents.items()]
        )
        if world.kept:
            connection.execute(read_sql("schema/kbeval_chunk_spans.sql"))
        for chunk in world.kept:
            kept = {
                "chunk_id": chunk.chunk_id,
                "chunker_version": chunk.version,
                "policy_hash": chunk.policy,
                "doc_id": chunk.doc_id,
                # As the table had them, or as kbeval writes what it saw in hits.
                "source_spans_json": json.dumps(chunk.spans, separators=SEPARATORS[chunk.seen_in]),
                "tokens": chunk.tokens,
                "seen_in": chunk.seen_in,
                "first_seen": chunk.first_seen,
            }
            insert(connection, "kbeval_chunk_spans", kept)
        for run in world.runs:
            connection.execute(
                "INSERT INTO eval_runs VALUES (?, 'suite', ?, '', NULL, ?)",
                (run.run_id, json.dumps(run.config), run.created_at),
            )
            rows = [(run.run_id, query_id, json.dumps(row)) for query_id, row in run.rows.items()]
            connection.executemany("INSERT INTO eval_query_results VALUES (?, ?, ?)", rows)
    return db, golden


def insert(connection: sqlite3.Connection, table: str, values: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", list(values.values()))


# --- less of it --------------------------------------------------------------------------------------


def smaller(world: World) -> Iterator[World]:
    """The same world with one part less: the large parts first."""
    for name in ("kept", "table", "runs", "golden"):
        parts = list(getattr(world, name))
        for size in (len(parts), len(parts) // 2, 1):
            for start in range(0, len(parts), size or 1):
                less: dict[str, Any] = {name: [*parts[:start], *parts[start + (size or 1) :]]}
                yield replace(world, **less)
    for number, run in enumerate(world.runs):

        def having(number: int = number, run: Run = run, **changed: Any) -> World:
            runs = list(world.runs)
            runs[number] = replace(run, **changed)
            return replace(world, runs=runs)

        for query_id, row in run.rows.items():
            yield having(rows={q: r for q, r in run.rows.items() if q != query_id})
            hits = hits_of(row)
            for place, hit in enumerate(hits):
                others = [h for other, h in enumerate(hits) if other != place]
                yield having(rows={**run.rows, query_id: {**row, "hits_top_k": others}})
                for field in hit:
                    if field != "chunk_id":
                        bare = [{f: v for f, v in h.items() if h is not hit or f != field} for h in hits]
                        yield having(rows={**run.rows, query_id: {**row, "hits_top_k": bare}})
            for field in row:
                if field != "hits_top_k":
                    yield having(rows={**run.rows, query_id: {f: v for f, v in row.items() if f != field}})
        for field in run.config:
            yield having(config={f: v for f, v in run.config.items() if f != field})
    for number, entry in enumerate(world.golden):
        for field in ("expected_chunk_ids", "expected_spans", "expected_doc_ids"):
            for place in range(len(entry.get(field) or ())):
                values = [value for other, value in enumerate(entry[field]) if other != place]
                golden = list(world.golden)
                golden[number] = {**entry, field: values} if values else {f: v for f, v in entry.items() if f != field}
                yield replace(world, golden=golden)
