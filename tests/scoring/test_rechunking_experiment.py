"""A real experiment: the same documents in three chunkings, searched by SQLite's full-text index.

Each question has a known answer line, marked by words that occur nowhere else, so that every chunking finds it. The
runs retrieve equally well, and a comparison must not show the change of chunk ids as regressions. Labels are made in
two ways: by the answer's line, and, as people do it, by the chunk of 20 lines that holds it. The second is coarser: a
small chunk can hold the answer at its edge and share less than half of itself with the labelled chunk.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import kbeval
from kbeval.compare.options import CompareOptions
from tests.support.workspace import Workspace

DOCUMENTS = 6
LINES = 400
QUESTIONS = 60
CHUNKERS = {"lines-20": (20, 20), "lines-7": (7, 7), "lines-40": (40, 25)}  # size, and step: the last one overlaps


def documents(source: random.Random) -> list[list[str]]:
    vowels, consonants = "aeiou", "bdfgklmnprstvz"
    words = ["".join(source.choice(consonants) + source.choice(vowels) for _ in range(3)) for _ in range(600)]
    return [[" ".join(source.choices(words, k=9)) for _ in range(LINES)] for _ in range(DOCUMENTS)]


def chunks(texts: list[list[str]], name: str) -> Iterator[tuple[str, str, int, int, str]]:
    size, step = CHUNKERS[name]
    for number, lines in enumerate(texts):
        for place, start in enumerate(range(0, len(lines), step)):
            end = min(start + size, len(lines))
            yield f"{name}:{number}:{place}", f"d{number}", start + 1, end, "\n".join(lines[start:end])


class Index:
    """BM25 by SQLite."""

    def __init__(self, found: list[tuple[str, str, int, int, str]]) -> None:
        self.chunks = {chunk[0]: chunk for chunk in found}
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("CREATE VIRTUAL TABLE texts USING fts5 (chunk_id UNINDEXED, text)")
        self.connection.executemany("INSERT INTO texts VALUES (?, ?)", ((c[0], c[4]) for c in found))

    def search(self, words: list[str], k: int = 10) -> list[dict[str, Any]]:
        rows = self.connection.execute(
            "SELECT chunk_id, bm25(texts) FROM texts WHERE texts MATCH ? ORDER BY bm25(texts), chunk_id LIMIT ?",
            (" OR ".join(words), k),
        ).fetchall()
        return [
            {
                "rank": rank,
                "chunk_id": chunk_id,
                "doc_id": self.chunks[chunk_id][1],
                "score": -score,
                "source_spans": [{"kind": "line", "start": self.chunks[chunk_id][2], "end": self.chunks[chunk_id][3]}],
            }
            for rank, (chunk_id, score) in enumerate(rows, start=1)
        ]


@pytest.fixture(scope="module")
def by_line(experiment: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The same, and the labels name the position of the answer in the chunk that contains it; read-only."""
    entries = json.loads(experiment.golden.read_text())
    for entry in entries:
        line = int(entry["tags"][0])
        entry["expected_spans"] = [{"doc_id": entry["expected_doc_ids"][0], "kind": "line", "start": line, "end": line}]
    folder = tmp_path_factory.mktemp("by_line")
    shutil.copy(experiment.db, folder)
    workspace = Workspace(folder)
    workspace.add_golden(*entries)
    return workspace


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Labels are the chunks of lines-20; one run for each chunking, and one whose index lost half of its texts.

    Read-only.
    """
    source = random.Random(42)
    texts = documents(source)
    workspace = Workspace(tmp_path_factory.mktemp("experiment"))
    spots = source.sample([(doc, line) for doc in range(DOCUMENTS) for line in range(LINES)], QUESTIONS)
    for number, (doc, line) in enumerate(spots):
        texts[doc][line] += f" answer{number}a answer{number}b"
    found = {name: list(chunks(texts, name)) for name in CHUNKERS}
    golden = []
    for number, (doc, line) in enumerate(spots):
        (label,) = [c for c in found["lines-20"] if c[1] == f"d{doc}" and c[2] <= line + 1 <= c[3]]
        entry = {"id": f"q{number:02d}", "expected_chunk_ids": [label[0]], "expected_doc_ids": [f"d{doc}"]}
        golden.append({**entry, "tags": [str(line + 1)]})
    workspace.add_golden(*golden)
    for doc in range(DOCUMENTS):
        workspace.add_document(f"d{doc}", f"docs/{doc}.md")
    for name, cut in found.items():
        with closing(sqlite3.connect(workspace.db)) as connection, connection:
            connection.executemany(
                "INSERT INTO chunks VALUES (?, ?, 'text', '[]', NULL, ?, 1, ?, 'p', '[]', 'now')",
                (
                    (chunk_id, doc_id, json.dumps([{"kind": "line", "start": start, "end": end}]), name)
                    for chunk_id, doc_id, start, end, _ in cut
                ),
            )
        for run, kept in ((name, cut), (f"{name}-broken", cut[::2])):
            with closing((index := Index(kept)).connection):
                rows = {}
                for number, (doc, line) in enumerate(spots):
                    # The words of the answer, and some of its surroundings to have something to rank.
                    asked = [f"answer{number}a", f"answer{number}b", *texts[doc][line].split()[:2]]
                    rows[f"q{number:02d}"] = {"hits_top_k": index.search(asked)}
            workspace.add_run(run, rows, chunker=name)
    return workspace


def compare(workspace: Workspace, a: str, b: str, **options: Any) -> kbeval.CompareReport:
    return kbeval.compare_runs(a, b, db=workspace.db, golden=workspace.golden, options=CompareOptions(**options))


PAIRS = [("lines-20", "lines-7"), ("lines-20", "lines-40"), ("lines-7", "lines-40"), ("lines-40", "lines-20")]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_equally_good_retrieval_is_not_a_regression_whatever_the_chunks(by_line: Workspace, a: str, b: str) -> None:
    report = compare(by_line, a, b)
    assert report.chunker_version_match == "fallback_doc_span"
    assert report.matching == {"exact": 0, "span": QUESTIONS, "doc": 0, "none": 0}
    assert report.whole.counts == {"win": 0, "draw": QUESTIONS, "loss": 0, "regression": 0}
    assert report.aggregate_a.hit_at_k[1] == report.aggregate_b.hit_at_k[1] == 1.0
    assert report.verdict.answer == "no detectable difference"


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_labelled_by_chunks_only_answers_at_their_edges_are_lost(experiment: Workspace, a: str, b: str) -> None:
    report = compare(experiment, a, b)
    assert report.verdict.answer == "no detectable difference"
    assert report.whole.counts["regression"] + report.whole.counts["loss"] <= QUESTIONS // 12
    assert report.whole.counts["draw"] >= QUESTIONS * 5 // 6


@pytest.mark.parametrize("chunker", ["lines-7", "lines-40"])
def test_a_real_loss_is_still_seen_across_chunkings(by_line: Workspace, chunker: str) -> None:
    report = compare(by_line, "lines-20", f"{chunker}-broken")
    assert report.verdict.answer == "worse"
    assert report.whole.counts["regression"] >= 5
    assert report.whole.counts["win"] == 0


def test_by_ids_alone_the_same_runs_would_look_ruined(experiment: Workspace) -> None:
    assert experiment.score("lines-7", match="exact").aggregates["lines-7"].hit_at_k[10] == 0.0
    assert (experiment.score("lines-7").aggregates["lines-7"].hit_at_k[1] or 0) > 0.9


def test_the_same_chunking_under_another_name_agrees_query_by_query(experiment: Workspace, tmp_path: Path) -> None:
    by_id = compare(experiment, "lines-20", "lines-20-broken")
    for file in (experiment.db, experiment.golden):
        shutil.copy(file, tmp_path)
    renamed = Workspace(tmp_path)
    renamed.execute(
        "UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = 'lines-20-broken'",
        ('{"chunker_version": "lines-20-renamed"}',),
    )
    by_span = compare(renamed, "lines-20", "lines-20-broken")
    assert by_id.matching["exact"] == by_span.matching["span"] == QUESTIONS
    for one, other in zip(by_id.per_query, by_span.per_query, strict=True):
        assert (one.kind, one.a_hit_rank, one.b_hit_rank) == (other.kind, other.a_hit_rank, other.b_hit_rank)
    assert by_id.deltas["hit_at_k"] == by_span.deltas["hit_at_k"]
    assert by_id.deltas["mrr"] == by_span.deltas["mrr"]
