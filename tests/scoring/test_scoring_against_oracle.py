"""Invented workspaces: kbeval and the oracle agree on every key, to the last digit."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbeval.metrics.model import CONTRACT
from tests.oracles import oracle
from tests.support.examples import scorings
from tests.support.workspace import Workspace

IDS = st.sampled_from(["c1", "c2", "c3", "c4", "Ünï-5", "c 6", "7", "c'8\"", "{c9"])
DOCS = st.sampled_from(["d1", "d2", "d3"])
PATHS = {"p1.md": "d1", "p2.md": "d2", "ü/p3.md": "d3"}
TEXT = st.sampled_from(
    ["", "fifteen minutes", "Fifteen Minutes, or never", "cafe\u0301 never", "caf\u00e9", " ", "[1]", "{x}"]
)
SMALL = st.integers(0, 12)


@st.composite
def spans(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["line", "code", "byte", "char", "time", "page", "region", "caption"]))
    low, size = draw(SMALL), draw(st.integers(0, 4))
    whole = draw(st.booleans())
    kinds: dict[str, dict[str, Any]] = {
        "line": {"kind": "line", "start": low, "end": low + size},
        "code": {"kind": "code", "line_start": low, "line_end": low + size},
        "byte": {"kind": "byte", "start": low, "end": low + size},
        "char": {"kind": "char", "start": low, "end": low + size},
        "time": {"kind": "time", "start_ms": low, "end_ms": low + size},
        "page": {
            "kind": "page",
            "page": draw(st.integers(1, 2)),
            **({} if whole else {"char_start": low, "char_end": low + size}),
        },
        "region": {"kind": "region", "x": low, "y": draw(SMALL), "w": size, "h": draw(st.integers(0, 4))},
        "caption": {"kind": "caption"},
    }
    return kinds[kind]


@st.composite
def citations(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.integers(0, 4)) == 0:
        return {"chunk_id": draw(IDS)}
    return {"citation": {**draw(spans()), "path": draw(st.sampled_from([*PATHS, "gone.md"]))}}


RANKS = st.one_of(st.none(), st.integers(1, 12), st.sampled_from([10**6, 2**53]))
HITS = st.lists(
    st.fixed_dictionaries({"chunk_id": IDS}, optional={"rank": RANKS, "doc_id": DOCS, "score": st.floats(0, 1)}),
    max_size=12,
)
ANSWERS = st.none() | st.fixed_dictionaries(
    {},
    optional={"answer": TEXT, "grounded": st.none() | st.booleans(), "citations": st.lists(citations(), max_size=3)},
)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "error": st.sampled_from([None, "", "timeout"]),
        "hits_top_k": st.none() | HITS,
        "answer": ANSWERS,
        "abstained": st.booleans(),
        "elapsed_ms": st.integers(0, 1000),
        "tokens": SMALL | st.fixed_dictionaries({"prompt": SMALL}, optional={"completion": SMALL, "total": SMALL}),
        "usage": st.fixed_dictionaries(
            {"input_tokens": SMALL, "output_tokens": SMALL}, optional={"total_tokens": SMALL}
        ),
        "cost_usd": st.sampled_from([0, 0.125, 0.0625]),
        "unknown": st.just({"deep": [1, 2]}),
    },
)
ENTRIES = st.fixed_dictionaries(
    {"query": st.just("?")},
    optional={
        "expected_chunk_ids": st.lists(IDS, max_size=4),
        "expected_doc_ids": st.lists(DOCS, max_size=3),
        "must_contain": st.lists(TEXT.filter(bool), max_size=2),
        "forbidden": st.lists(TEXT.filter(bool), max_size=2),
        "answerable": st.booleans(),
    },
)
QUERY_IDS = ["q1", "q2", "q3", "007", "1e5", "no", "ü"]
CHUNKS = st.lists(
    st.fixed_dictionaries({"chunk_id": IDS, "doc_id": DOCS, "spans": st.lists(spans(), max_size=3)}),
    unique_by=lambda chunk: chunk["chunk_id"],
    max_size=5,
)


@scorings(4)
@given(
    golden=st.dictionaries(st.sampled_from(QUERY_IDS), ENTRIES, min_size=1),
    runs=st.lists(st.dictionaries(st.sampled_from([*QUERY_IDS, "unknown"]), ROWS, max_size=8), min_size=6, max_size=16),
    chunks=CHUNKS,
    seed=st.integers(0, 2**16),
)
def test_kbeval_and_the_oracle_agree_to_the_last_digit(
    golden: dict[str, Any], runs: list[dict[str, Any]], chunks: list[dict[str, Any]], seed: int
) -> None:
    entries = [{"id": query_id, **entry} for query_id, entry in golden.items()]
    with TemporaryDirectory() as folder:
        workspace = build(Path(folder), "a.db", entries, runs, chunks)
        scored = workspace.score(threads=2)
        for number, rows in enumerate(runs):
            others = [other for place, other in enumerate(runs) if place != number]
            expected = oracle.score(rows, entries, chunks, PATHS, others)
            found = scored.aggregates[f"run{number}"].to_dict()
            assert {name: found[name] for name in expected} == expected
            assert set(found) - {"ledger", "provenance"} == set(expected) | set(CONTRACT)
        shuffled = build(Path(folder), "b.db", entries, runs, chunks, order=random.Random(seed))
        again = shuffled.score(threads=1)
        for run_id, aggregate in scored.aggregates.items():
            assert again.aggregates[run_id].to_json() == aggregate.to_json()


def build(
    folder: Path,
    name: str,
    entries: list[dict[str, Any]],
    runs: list[dict[str, Any]],
    chunks: list[dict[str, Any]],
    *,
    order: random.Random | None = None,
) -> Workspace:
    def arranged(items: Any) -> list[Any]:
        found = list(items)
        if order is not None:
            order.shuffle(found)
        return found

    workspace = Workspace(folder, name)
    workspace.golden = folder / f"{name}.json"
    workspace.golden.write_text(json.dumps(arranged(entries)), encoding="utf-8")
    for path, doc_id in arranged(PATHS.items()):
        workspace.add_document(doc_id, path)
    for chunk in arranged(chunks):
        workspace.add_chunk(chunk["chunk_id"], chunk["doc_id"], chunk["spans"])
    for number, rows in arranged(enumerate(runs)):
        workspace.add_run(f"run{number}", dict(arranged(rows.items())))
    return workspace


def test_many_rows_give_the_same_bytes_in_any_order_and_with_any_number_of_threads(tmp_path: Path) -> None:
    """Thirds and sevenths in thousands: parallel float sums would differ here."""
    source = random.Random(7)
    entries: list[dict[str, Any]] = [
        {
            "id": f"q{n}",
            "query": "?",
            "expected_chunk_ids": ["c"],
            "expected_doc_ids": [f"d{d}" for d in range(n % 7 + 1)],
        }
        for n in range(3000)
    ]
    rows = {
        entry["id"]: {
            "hits_top_k": [
                {"rank": source.randint(1, 12), "chunk_id": "c", "doc_id": f"d{source.randint(0, 6)}"} for _ in range(4)
            ]
        }
        for entry in entries
    }
    texts = set()
    for name, seed, threads in (("a.db", None, 1), ("b.db", 1, 2), ("c.db", 2, 2)):
        workspace = build(tmp_path, name, entries, [rows], [], order=None if seed is None else random.Random(seed))
        texts.add(workspace.score(threads=threads).aggregates["run0"].to_json())
    assert len(texts) == 1
    found = json.loads(texts.pop())
    expected = oracle.score(rows, entries)
    assert {name: found[name] for name in expected} == expected
