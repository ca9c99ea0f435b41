"""Hits that are correct by their position, whatever their ids."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbeval
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from tests.oracles import span_oracle
from tests.scoring.test_scoring_against_oracle import spans
from tests.support.examples import scorings
from tests.support.workspace import Workspace


def region(x: float, y: float, w: float, h: float) -> dict[str, Any]:
    return {"kind": "region", "x": x, "y": y, "w": w, "h": h}


def line(start: int, end: int) -> dict[str, Any]:
    return {"kind": "line", "start": start, "end": end}


def hit(chunk: str, *found: Mapping[str, Any], doc: str = "d", **more: Any) -> dict[str, Any]:
    return {"chunk_id": chunk, "doc_id": doc, "source_spans": list(found), **more}


def correct_ranks(workspace: Workspace, run: str = "run", **options: Any) -> dict[str, list[int]]:
    """For each query the ranks of the hits that count."""
    with open_scoring(workspace.db, workspace.golden, [run], ScoreOptions(match="span", **options)) as scoring:
        scoring.session.need("correct_hits")
        found: dict[str, list[int]] = {}
        for query_id, rank in scoring.session.rows(
            "SELECT r.query_id, c.rank FROM results AS r LEFT JOIN correct_hits AS c ON c.result_no = r.result_no"
        ):
            found.setdefault(query_id, []).extend([] if rank is None else [rank])
        return {query_id: sorted(ranks) for query_id, ranks in found.items()}


def matches(workspace: Workspace, *pairs: tuple[Sequence[Any], Sequence[Any]], **options: Any) -> list[bool]:
    """Does a hit with these spans count as a chunk with those? Each pair in a document of its own, all in one run."""
    names = [f"{number:02}" for number in range(len(pairs))]
    workspace.add_golden(*({"id": name, "expected_chunk_ids": [f"old{name}"]} for name in names))
    rows = {}
    for name, (expected, found) in zip(names, pairs, strict=True):
        workspace.add_chunk(f"old{name}", name, list(expected), "old@1")
        rows[name] = {"hits_top_k": [hit(f"new{name}", *found, doc=name)]}
    workspace.add_run("run", rows, chunker="new@2")
    ranks = correct_ranks(workspace, **options)
    return [ranks[name] == [1] for name in names]


HALVES: list[tuple[list[Any], list[Any], bool]] = [
    ([line(1, 10)], [line(1, 10)], True),
    ([line(1, 10)], [line(6, 15)], True),  # half of either
    ([line(1, 10)], [line(7, 16)], False),
    ([line(1, 40)], [line(11, 17)], True),  # a chunker that splits
    ([line(11, 17)], [line(1, 40)], True),  # a chunker that joins
    ([line(1, 10)], [line(11, 20)], False),  # touching is not sharing
    ([line(1, 4), line(5, 8)], [line(1, 8)], True),  # touching spans are one
    ([line(1, 8), line(3, 4), line(1, 8)], [line(5, 12)], True),  # nested and repeated ones count once
    ([line(1, 10)], [line(1, 2), line(90, 99)], False),
    ([line(1, 10)], [{"kind": "code", "line_start": 1, "line_end": 10}], True),  # one axis
    # Two kinds of position: it is not known, so the document decides.
    ([line(1, 10)], [{"kind": "byte", "start": 100, "end": 110}], True),
    ([{"kind": "page", "page": 3}], [{"kind": "page", "page": 3, "char_start": 10, "char_end": 20}], True),
    ([{"kind": "page", "page": 3}], [{"kind": "page", "page": 3}], True),
    ([{"kind": "page", "page": 3}], [{"kind": "page", "page": 4}], False),
    ([{"kind": "page", "page": 3}, {"kind": "page", "page": 4}], [{"kind": "page", "page": 4}], True),
    ([{"kind": "time", "start_ms": 0, "end_ms": 10}], [{"kind": "time", "start_ms": 5, "end_ms": 15}], True),
    ([{"kind": "byte", "start": 0, "end": 10}], [{"kind": "byte", "start": 10, "end": 20}], False),
    ([{"kind": "char", "start": 0, "end": 10}], [{"kind": "char", "start": 10, "end": 20}], False),
    ([{"kind": "char", "start": 0, "end": 10}], [{"kind": "char", "start": 5, "end": 20}], True),
    ([{"kind": "char", "start": 0, "end": 10}], [{"kind": "byte", "start": 50, "end": 60}], True),
    (
        [region(0, 0, 10, 10)],
        [region(5, 5, 10, 10)],  # a quarter of the area
        False,
    ),
    (
        [
            {"kind": "region", "x": 0, "y": 0, "w": 10, "h": 10},
            {"kind": "region", "x": 5, "y": 0, "w": 10, "h": 10},
        ],
        [region(0, 0, 15, 20)],  # covers both; together they are 150, not 200
        True,
    ),
    (
        [{"kind": "caption", "path": "p"}],
        [{"kind": "caption", "path": "p"}],
        True,
    ),  # no place: the document decides
    ([line(1, 10)], [{"kind": "caption", "path": "p"}], False),
]


def test_half_of_the_smaller_side_makes_a_match(workspace: Workspace) -> None:
    found = matches(workspace, *((expected, hit_spans) for expected, hit_spans, _ in HALVES))
    assert [case for case, is_match in zip(HALVES, found, strict=True) if case[2] is not is_match] == []


SIDES: dict[str, list[tuple[Any, bool]]] = {
    "smaller": [(line(1, 2), True)],
    "expected": [(line(1, 2), False), (line(1, 50), True)],
    "hit": [(line(1, 2), True), (line(1, 50), False)],
    "union": [(line(1, 2), False), (line(3, 12), True)],
}


@pytest.mark.parametrize("of", SIDES)
def test_the_share_may_be_of_another_side(workspace: Workspace, of: str) -> None:
    found = matches(workspace, *(([line(1, 10)], [place]) for place, _ in SIDES[of]), overlap_of=of)
    assert found == [is_match for _, is_match in SIDES[of]]


@pytest.mark.parametrize(("least", "is_match"), [(0.3, True), (0.31, False), (1.0, False)])
def test_the_least_share_can_be_chosen(workspace: Workspace, least: float, is_match: bool) -> None:
    assert matches(workspace, ([line(1, 10)], [line(8, 17)]), min_overlap=least) == [is_match]


def test_a_fraction_of_an_area_that_is_just_enough_is_enough(workspace: Workspace) -> None:
    assert matches(workspace, ([region(0.1, 0.1, 0.2, 0.1)], [region(0.2, 0.1, 0.2, 0.1)])) == [True]


def test_the_same_place_in_another_document_is_another_place(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old"], "expected_doc_ids": ["d", "e"]})
    workspace.add_chunk("old", "d", [line(1, 10)], "old@1")
    found = [hit("n1", line(1, 10), doc="e"), hit("n2", line(1, 10), doc="f"), hit("n3", line(1, 10))]
    workspace.add_run("run", {"q": {"hits_top_k": found}}, chunker="new@2")
    assert correct_ranks(workspace) == {"q": [3]}


# --- where the spans of a hit come from --------------------------------------------------------------


def test_a_hit_without_spans_has_those_of_its_citation_or_of_its_chunk(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    workspace.add_chunk("old", "d", [line(1, 10)], "old@1")
    workspace.add_chunk("n2", "d", [line(1, 5)], "new@2")
    workspace.add_document("d", "d.md")
    found = [
        {"chunk_id": "n1", "doc_id": "d", "citation": {"kind": "line", "path": "d.md", "start": 1, "end": 5}},
        {"chunk_id": "n2", "doc_id": "d"},
        {"chunk_id": "n3", "doc_path": "d.md", "source_spans": [line(9, 10)]},
        {"chunk_id": "n4", "doc_id": "d", "source_spans": [], "citation": {"kind": "line", "start": 50, "end": 60}},
    ]
    workspace.add_run("run", {"q": {"hits_top_k": found}}, chunker="new@2")
    assert correct_ranks(workspace) == {"q": [1, 2, 3]}


USELESS: list[Any] = [
    [],
    [{}],
    [[1]],
    [{"kind": "LINE", "start": 1, "end": 2}],
    [{"kind": "line", "start": 9, "end": 1}],
    [{"kind": "line", "start": "x", "end": 2}],
    [{"kind": "line", "start": 1, "end": "NaN"}],
    "text",
]


def test_spans_that_say_nothing_do_not_hide_what_is_known_of_the_chunk(workspace: Workspace) -> None:
    """Each in a document of its own."""
    names = [f"d{number}" for number in range(len(USELESS))]
    workspace.add_golden(*({"id": name, "expected_chunk_ids": [f"old-{name}"]} for name in names))
    rows = {}
    for name, useless in zip(names, USELESS, strict=True):
        workspace.add_chunk(f"old-{name}", name, [line(1, 10)], "old@1")
        workspace.add_chunk(f"n1-{name}", name, [line(50, 60)], "new@2")
        path, cited = {"path": f"{name}.md"}, {"kind": "line", "start": 2, "end": 3}
        found = [
            {"chunk_id": f"n1-{name}", "doc_id": name, "source_spans": useless, "citation": path},
            {"chunk_id": f"n2-{name}", "doc_id": name, "source_spans": useless, "citation": cited},
        ]
        rows[name] = {"hits_top_k": found}
    workspace.add_run("run", rows, chunker="new@2")
    assert correct_ranks(workspace) == {name: [2] for name in names}
    workspace.execute("DELETE FROM chunks WHERE chunk_id LIKE 'n1-%'")
    # The position of the first hits is unknown: the document decides.
    assert correct_ranks(workspace) == {name: [1, 2] for name in names}


def test_a_chunk_whose_row_says_nothing_stands_where_a_hit_says(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    workspace.add_chunk("old", "d", [{}], "old@1")
    workspace.add_run("before", {"x": {"hits_top_k": [hit("old", line(30, 39))]}}, chunker="old@1")
    found = [hit("n1", line(1, 10)), hit("n2", line(30, 39))]
    workspace.add_run("run", {"q": {"hits_top_k": found}}, chunker="new@2")
    assert correct_ranks(workspace) == {"q": [2]}


def test_documents_are_the_same_where_their_paths_are(workspace: Workspace) -> None:
    workspace.add_golden(
        {"id": "q", "expected_spans": [{"path": "d.md", **line(1, 10)}]}, {"id": "r", "expected_chunk_ids": ["seen"]}
    )
    nameless = {"chunk_id": "n1", "doc_path": "d.md", "source_spans": [line(1, 10)]}
    empty = {"chunk_id": "n2", "doc_id": "", "doc_path": "d.md", "source_spans": [line(3, 12)]}
    workspace.add_run("before", {"x": {"hits_top_k": [{**nameless, "chunk_id": "seen"}]}}, chunker="old@1")
    workspace.add_run("run", {"q": {"hits_top_k": [nameless, empty]}, "r": {"hits_top_k": [empty]}}, chunker="new@2")
    assert correct_ranks(workspace) == {"q": [1, 2], "r": [1]}


def test_a_table_that_holds_a_chunk_twice_counts_it_once(workspace: Workspace) -> None:
    workspace.execute_script("ALTER TABLE chunks RENAME TO kept; CREATE TABLE chunks AS SELECT * FROM kept WHERE 0;")
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    workspace.add_chunk("old", "d", [line(1, 10)], "old@1")
    for _ in range(2):
        workspace.add_chunk("n1", "d", [line(8, 17)], "new@2")
    workspace.add_run("run", {"q": {"hits_top_k": [{"chunk_id": "n1", "doc_id": "d"}]}}, chunker="new@2")
    assert correct_ranks(workspace) == {"q": []}


@pytest.mark.slow
def test_a_thousand_overlapping_spans_in_a_chunk_are_merged_in_no_time(workspace: Workspace) -> None:
    spans_of_one = [line(n, n + 9) for n in range(1, 1001)]
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    workspace.add_chunk("old", "d", spans_of_one, "old@1")
    found = [hit(f"n{n}", *spans_of_one) for n in range(10)]
    workspace.add_run("run", {"q": {"hits_top_k": found}}, chunker="new@2")
    started = time.perf_counter()
    assert correct_ranks(workspace)["q"] == list(range(1, 11))
    assert time.perf_counter() - started < 10


def test_if_the_place_of_a_hit_is_unknown_the_document_decides(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    workspace.add_chunk("old", "d", [line(1, 10)], "old@1")
    found = [hit("n1", line(50, 60)), {"chunk_id": "n2", "doc_id": "d"}, hit("n3", line(1, 10), doc="e")]
    workspace.add_run("run", {"q": {"hits_top_k": found}}, chunker="new@2")
    aggregate = workspace.aggregate(match="span")
    assert aggregate["ledger"]["matched"] == {"span": 0, "doc": 1}
    assert correct_ranks(workspace) == {"q": [1, 2]}


# --- where the spans of the expected chunks come from ------------------------------------------------


def test_the_golden_file_comes_first_then_the_table_then_other_runs(workspace: Workspace) -> None:
    workspace.add_golden(
        {"id": "q1", "expected_chunk_ids": ["old"], "expected_spans": [{"doc_id": "d", **line(70, 79)}]},
        {"id": "q2", "expected_chunk_ids": ["old"]},
        {"id": "q3", "expected_chunk_ids": ["older"]},
        {"id": "q4", "expected_chunk_ids": ["nowhere"], "expected_doc_ids": ["d"]},
        {"id": "q5", "expected_spans": [{"path": "d.md", **line(50, 59)}]},
    )
    workspace.add_document("d", "d.md")
    workspace.add_chunk("old", "d", [line(1, 10)], "old@1")
    workspace.add_run("before", {"x": {"hits_top_k": [hit("older", line(30, 39))]}}, chunker="old@0")
    found = [hit("n1", line(1, 10)), hit("n2", line(30, 39)), hit("n3", line(50, 59)), hit("n4", line(70, 79))]
    rows = {f"q{number}": {"hits_top_k": found} for number in range(1, 6)}
    workspace.add_run("run", rows, chunker="new@2")
    assert correct_ranks(workspace) == {"q1": [4], "q2": [1], "q3": [2], "q4": [1, 2, 3, 4], "q5": [3]}
    assert workspace.aggregate(match="span")["ledger"]["matched"] == {"span": 4, "doc": 1}


@pytest.mark.parametrize("matching", ["exact", "span"])
def test_labels_that_name_a_place_and_no_chunk_are_as_good(workspace: Workspace, matching: str) -> None:
    workspace.add_golden(
        {"id": "q", "expected_spans": [{"doc_id": "d", **line(1, 9)}]},
        {"id": "r", "expected_chunk_ids": ["a"]},
        {"id": "s", "expected_doc_ids": ["d"]},
    )
    workspace.add_chunk("a", "d", [line(20, 29)])
    found = {"hits_top_k": [hit("a", line(20, 29)), hit("b", line(1, 9))]}
    workspace.add_run("run", {"q": found, "r": found, "s": found})
    aggregate = workspace.aggregate(match=matching)
    assert aggregate["ledger"]["metrics"]["hit_at_k"] == {"scored": 2, "not_applicable": 1}
    assert aggregate["mrr"] == 0.75


# --- the oracle --------------------------------------------------------------------------------------

DOCS = st.sampled_from(["d1", "d2"])


@st.composite
def chunkings(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Chunks of the same two documents, cut anywhere, with several spans each."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        kinds = st.lists(spans().filter(lambda span: span["kind"] != "page" or "char_start" in span), max_size=3)
        found.append({"doc_id": draw(DOCS), "source_spans": draw(kinds), "number": number})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("of", span_oracle.OVERLAP_OF)
@scorings(3)
@given(
    st.lists(chunkings(), min_size=6, max_size=24),
    chunkings(),
    st.sampled_from([Fraction(1, 2), Fraction(1, 4), Fraction(1, 10), Fraction(1)]),
    st.randoms(use_true_random=False),
)
def test_matching_agrees_with_the_oracle(
    of: str,
    rankings: list[list[dict[str, Any]]],
    chunks: list[dict[str, Any]],
    least: Fraction,
    source: random.Random,
) -> None:
    with TemporaryDirectory() as name:
        workspace = Workspace(Path(name))
        golden, rows, wanted = [], {}, {}
        for chunk in chunks:
            workspace.add_chunk(f"old-{chunk['number']}", chunk["doc_id"], chunk["source_spans"], "old@1")
        for number, ranking in enumerate(rankings):
            expected = source.sample(chunks, source.randint(1, len(chunks)))
            golden.append({"id": f"q{number}", "expected_chunk_ids": [f"old-{chunk['number']}" for chunk in expected]})
            found = [{**h, "chunk_id": f"new-{h['number']}"} for h in ranking]
            rows[f"q{number}"] = {"hits_top_k": found}
            places = [(chunk["doc_id"], span_oracle.covered(chunk["source_spans"])) for chunk in expected]
            docs = {doc for doc, _ in places}
            unknown = any(not span_oracle.says_something(h["source_spans"]) and h["doc_id"] in docs for h in found)
            unmet = any(
                h["doc_id"] == doc
                and (mine := span_oracle.kinds(span_oracle.covered(h["source_spans"])))
                and (others := span_oracle.kinds(units))
                and not mine & others
                for h in found
                for doc, units in places
            )
            if unknown or unmet or not any(units for _, units in places):
                wanted[f"q{number}"] = [rank for rank, h in enumerate(found, start=1) if h["doc_id"] in docs]
            else:
                wanted[f"q{number}"] = span_oracle.correct_ranks(found, places, least, of)
        workspace.add_golden(*golden)
        workspace.add_run("run", rows, chunker="new@2")
        assert correct_ranks(workspace, min_overlap=float(least), overlap_of=of) == wanted


# --- chunkings of the same documents, compared -------------------------------------------------------


@st.composite
def cut_documents(draw: st.DrawFn, name: str) -> list[dict[str, Any]]:
    """Two documents of thirty lines cut anywhere; some chunks reach back into the one before."""
    found = []
    for doc in ("d1", "d2"):
        cuts = sorted({1, *draw(st.sets(st.integers(2, 30), max_size=6))})
        for number, (start, end) in enumerate(zip(cuts, [*cuts[1:], 31], strict=True)):
            begin = max(1, start - draw(st.integers(0, 4)))
            found.append({"chunk_id": f"{name}-{doc}-{number}", "doc_id": doc, "source_spans": [line(begin, end - 1)]})
    return found


@pytest.mark.slow
@scorings(4)
@given(cut_documents("gold"), cut_documents("a"), cut_documents("b"), st.randoms(use_true_random=False))
def test_runs_over_any_chunkings_compare_as_the_oracle_says(
    gold: list[dict[str, Any]], a: list[dict[str, Any]], b: list[dict[str, Any]], source: random.Random
) -> None:
    with TemporaryDirectory() as name:
        workspace = Workspace(Path(name))
        for chunk in gold:
            workspace.add_chunk(chunk["chunk_id"], chunk["doc_id"], chunk["source_spans"], "gold@1")
        labels = {f"q{number}": source.sample(gold, source.randint(1, 2)) for number in range(80)}
        workspace.add_golden(
            *({"id": q, "expected_chunk_ids": [c["chunk_id"] for c in expected]} for q, expected in labels.items())
        )
        ranks: dict[str, list[int | None]] = {}
        for run, chunks in (("a", a), ("b", b)):
            rows = {q: source.sample(chunks, min(len(chunks), 5)) for q in labels}
            workspace.add_run(run, {q: {"hits_top_k": found} for q, found in rows.items()}, chunker=f"{run}@1")
            for q, found in rows.items():
                places = [(c["doc_id"], span_oracle.covered(c["source_spans"])) for c in labels[q]]
                ranks.setdefault(q, []).append(min(span_oracle.correct_ranks(found, places), default=None))
        report = kbeval.compare_runs("a", "b", db=workspace.db, golden=workspace.golden)
    assert {one.query_id: [one.a_hit_rank, one.b_hit_rank] for one in report.per_query} == ranks
    assert {one.matching for one in report.per_query} == {"span"}
