"""The pool against plain Python: overlaps, several chunkers, chains of windows, depth, filters, order."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kbeval.explore.pool import MoreItem, Pool, build_pool
from kbeval.live.labelling.session import Chosen, Labelling
from kbeval.scoring.scorer import open_scoring
from tests.oracles.pool_oracle import QueryFound, Text, order, pool, spans_json
from tests.support.examples import sized
from tests.support.workspace import Workspace

DOCUMENTS, LINES = 3, 48
# Sizes and steps of chunks: two ways to cut, windows of which each overlaps the next by more than half, and pieces.
CHUNKERS = {"a@1": (8, 8), "b@1": (12, 12), "w@1": (10, 4), "p@1": (6, 6)}


class World:
    """Documents, chunks, runs and labels, all invented."""

    def __init__(self, seed: int) -> None:
        self.source = source = random.Random(seed)
        self.chunks: dict[str, Text] = {}
        for version, (size, step) in CHUNKERS.items():
            for doc in range(DOCUMENTS):
                for low in range(1, LINES - size + 2, step):
                    spans: tuple[tuple[int, int], ...] = ((low, low + size - 1),)
                    if version == "p@1":
                        # Two pieces of a document, sometimes one inside the other.
                        spans = (*spans, (min(LINES, low + source.randrange(9)), LINES))
                    name = f"{version[0]}{doc}-{low:02d}"
                    self.chunks[name] = Text(name, version, f"d{doc}", spans)
        # With some chunks missing from the table, rows say where they are; else the rows have ids alone.
        self.missing = {name for name in self.chunks if source.random() < 0.2} if seed % 2 else set()
        self.queries = [f"q{n}" for n in range(14)]
        self.rankings: dict[str, dict[str, list[Text]]] = {}
        near = {query: self._near() for query in self.queries}
        for number in range(5):
            version = source.choice(list(CHUNKERS))
            self.rankings[f"run{number}"] = {
                query: self._ranking(version, near[query]) for query in self.queries if source.random() < 0.85
            }
        self.entries = [self._entry(query, near[query]) for query in self.queries]
        # Texts that a person decided on, under any chunker.
        self.decided = {
            query: source.sample(self._of(source.choice(list(CHUNKERS)), near[query]), 1)
            for query in self.queries
            if source.random() < 0.5
        }

    def _near(self) -> list[tuple[str, int]]:
        return [(f"d{self.source.randrange(DOCUMENTS)}", self.source.randint(1, LINES)) for _ in range(3)]

    def _of(self, version: str, near: Sequence[tuple[str, int]]) -> list[Text]:
        """The chunks of a chunker that are near some places."""
        return [
            text
            for text in self.chunks.values()
            if text.version == version
            and any(text.doc_id == doc and abs(text.spans[0][0] - line) < 14 for doc, line in near)
        ]

    def _ranking(self, version: str, near: Sequence[tuple[str, int]]) -> list[Text]:
        own = self._of(version, near)
        found = self.source.sample(own, min(len(own), self.source.randrange(1, 9)))
        if self.missing and self.source.random() < 0.4:
            # A hit that says where it is and has no id.
            low = self.source.randint(1, LINES - 8)
            found.insert(self.source.randrange(len(found) + 1), Text(None, version, "d0", ((low, low + 7),)))
        return found

    def _entry(self, query: str, near: Sequence[tuple[str, int]]) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": query, "query": query, "category": self.source.choice(["x", "y"])}
        kind = self.source.randrange(4)
        if kind == 1:
            entry["expected_chunk_ids"] = [self.source.choice(self._of("a@1", near)).chunk_id]
        elif kind == 2:
            doc, line = near[0]
            entry["expected_spans"] = [{"doc_id": doc, "kind": "line", "start": line, "end": line + 4}]
        elif kind == 3 and self.source.random() < 0.5:
            entry["answerable"] = False
        return entry

    def store(self, folder: Path) -> Workspace:
        workspace = Workspace(folder)
        workspace.golden.write_text("\n".join(map(json.dumps, self.entries)), encoding="utf-8")
        for doc in range(DOCUMENTS):
            workspace.add_document(f"d{doc}", f"docs/{doc}.md")
        for name, text in self.chunks.items():
            if name not in self.missing:
                workspace.execute(
                    "INSERT INTO chunks VALUES (?, ?, ?, '[]', NULL, ?, 1, ?, 'p', '[]', 'now')",
                    (name, text.doc_id, f"The text of {name}.", spans_json(text.spans), text.version),
                )
        for number, (run_id, rows) in enumerate(self.rankings.items()):
            versions = {text.version for ranking in rows.values() for text in ranking}
            (version,) = versions or {"a@1"}
            stored = {query: {"hits_top_k": [self._hit(text) for text in ranking]} for query, ranking in rows.items()}
            workspace.add_run(run_id, stored, created_at=f"2026-01-0{number + 1}", chunker=str(version))
        return workspace

    def _hit(self, text: Text) -> dict[str, Any]:
        hit: dict[str, Any] = {"doc_id": text.doc_id, "text": f"The text of {text.chunk_id or text.spans}."}
        if text.chunk_id is not None:
            hit["chunk_id"] = text.chunk_id
        if text.chunk_id is None or text.chunk_id in self.missing:
            hit["source_spans"] = json.loads(spans_json(text.spans))
        return hit

    def more(self) -> list[MoreItem]:
        return [
            MoreItem(
                query, text.chunk_id, text.version, text.doc_id, None, spans_json(text.spans), f"hash {text.chunk_id}"
            )
            for query, texts in self.decided.items()
            for text in texts
        ]


def known_labels(world: World) -> dict[str, Text]:
    """What labels by id mean: a chunk that is in the table, or that a run returned with its place."""
    return {name: text for name, text in world.chunks.items() if name not in world.missing}


def as_sets(query: QueryFound) -> list[Any]:
    return sorted(
        (
            # A hit without an id is known by its place, whatever the chunker of its run.
            sorted(
                {(one.chunk_id or "", one.doc_id or "", () if one.chunk_id else one.spans[0]) for one in found.texts}
            ),
            len(found.runs),
            found.best_rank,
            found.is_labelled,
        )
        for found in query.candidates
    )


def pooled_sets(found: Pool, query_id: str) -> list[Any]:
    groups: dict[int, list[Any]] = {}
    for item in found.items(query_id):
        groups.setdefault(item.leader_no, []).append(item)
    rows = []
    for members in groups.values():
        own = [one for one in members if one.run_id is not None]
        if not own:
            continue
        texts = set()
        for one in own:
            span = json.loads(one.spans_text or "[]")[0]
            texts.add(
                (one.chunk_id or "", one.doc_id or "", (span["start"], span["end"]) if one.chunk_id is None else ())
            )
        ranks = [one.best_rank for one in own]
        rows.append((sorted(texts), members[0].n_runs, min(ranks), any(one.is_labelled for one in own)))
    return sorted(rows)


@pytest.mark.parametrize("seed", range(sized(6, 60)))
def test_the_pool_is_that_of_plain_python(seed: int, tmp_path: Path) -> None:
    world = World(seed)
    workspace = world.store(tmp_path)
    depth = world.source.choice([1, 3, 10])
    later = {run_id: rows for run_id, rows in world.rankings.items() if run_id >= "run2"}
    for rankings in (world.rankings, later):
        wanted = pool(rankings, world.entries, known_labels(world), world.decided, depth)
        with open_scoring(workspace.db, workspace.golden, lazily=True) as scoring:
            runs = [run for run in scoring.runs if run.run_id in rankings]
            build_pool(scoring.session, runs, world.more(), depth)
            found = Pool(scoring.session)
        for query in world.queries:
            own = found.queries.get(query)
            if query not in wanted:
                assert own is None
                continue
            assert own is not None
            assert pooled_sets(found, query) == as_sets(wanted[query]), query
            assert (own.most_runs, own.open) == (wanted[query].most_runs, wanted[query].open), query
            assert own.disagreement == pytest.approx(float(wanted[query].disagreement), abs=1e-12), query


@pytest.mark.parametrize("seed", range(100, 100 + sized(2, 20)))
def test_the_order_and_the_filters_are_those_of_plain_python(seed: int, tmp_path: Path) -> None:
    world = World(seed)
    workspace = world.store(tmp_path)
    found = pool(world.rankings, world.entries, known_labels(world), {}, 10)
    wanted = order(world.entries, found)
    values = [(found[query].most_runs, found[query].disagreement) for query in wanted if query in found]
    assert values == sorted(values, key=lambda value: (-value[0], -value[1]))
    assert len(set(values)) > 4

    def queue(**chosen: Any) -> list[str]:
        with Labelling(workspace.db, workspace.golden, Chosen("ann", **chosen)) as session:
            counts = [session.view(query).open for query in session.queue if query in found]
            if not chosen:
                assert counts == [found[query].open for query in session.queue if query in found]
                assert session.left() == (
                    sum(map(bool, counts)) + len(set(world.queries) - set(found)),
                    session.left()[1],
                )
            return session.queue

    entries = {entry["id"]: entry for entry in world.entries}
    assert queue() == wanted
    assert queue(category="x") == [query for query in wanted if entries[query]["category"] == "x"]
    assert queue(only=["q3", "q1"]) == [query for query in wanted if query in ("q1", "q3")]
    names = ("expected_chunk_ids", "expected_spans", "answerable")
    assert queue(unlabelled=True) == [query for query in wanted if not any(name in entries[query] for name in names)]
    later = {run_id: rows for run_id, rows in world.rankings.items() if run_id >= "run3"}
    since = pool(later, world.entries, known_labels(world), {}, 10)
    assert queue(since_run="run3") == [q for q in order(world.entries, since) if since.get(q, QueryFound()).open]
