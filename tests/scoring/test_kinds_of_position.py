"""Labels and hits by different kinds of position: the document decides, and everything says so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kbeval.cli import run as kbeval
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from tests.support.workspace import Workspace

QUERIES = [f"q{number:02d}" for number in range(30)]
LINES = {"kind": "line", "start": 1, "end": 9}
CODE = {"kind": "code", "line_start": 1, "line_end": 9}
BYTES = {"kind": "byte", "start": 0, "end": 400}
OTHER_LINES = {"kind": "line", "start": 50, "end": 60}


def page(number: int) -> dict[str, Any]:
    return {"kind": "page", "page": number}


def hit(rank: int, *spans: Mapping[str, Any], doc: str = "d1") -> dict[str, Any]:
    return {"rank": rank, "chunk_id": f"c{rank}", "doc_id": doc, "source_spans": list(spans)}


def label_all(workspace: Workspace, *spans: Mapping[str, Any]) -> None:
    workspace.add_document("d1", "d1.md")
    expected = [{"doc_id": "d1", **span} for span in spans]
    workspace.add_golden(*({"id": query, "expected_spans": expected} for query in QUERIES))


def add(workspace: Workspace, run_id: str, *hits: Mapping[str, Any]) -> None:
    workspace.add_run(run_id, {query: {"hits_top_k": list(hits)} for query in QUERIES})


def decided(workspace: Workspace, run_id: str = "run") -> tuple[set[str], Sequence[int]]:
    """What decided in a run in which all rows are alike, and the ranks of the correct hits of each."""
    with open_scoring(workspace.db, workspace.golden, [run_id], ScoreOptions()) as scoring:
        scoring.session.need("matching", "correct_hits")
        how = {found for (found,) in scoring.session.rows("SELECT matching FROM matching")}
        ranks = scoring.session.rows("SELECT DISTINCT rank FROM correct_hits ORDER BY 1")
    return how, [rank for (rank,) in ranks]


def options(workspace: Workspace) -> list[str]:
    return ["--db", str(workspace.db), "--golden", str(workspace.golden)]


def test_a_run_by_bytes_is_not_worse_than_one_by_lines(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    label_all(workspace, LINES)
    add(workspace, "a", hit(1, LINES))
    add(workspace, "b", hit(1, BYTES))
    assert kbeval(["compare", "a", "b", *options(workspace), "--format", "json"]) == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert {row["kind"] for row in report["per_query"]} == {"draw"}
    assert report["matching"]["doc"] == 30
    assert report["matching"]["span"] == 0
    assert report["deltas"]["mrr"] == 0
    assert "run b: 30 queries labelled by line (first q00), but hits in their documents are by byte" in said.err


def test_score_and_check_say_so_too(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    label_all(workspace, LINES)
    add(workspace, "b", hit(1, BYTES))
    assert kbeval(["score", "b", *options(workspace)]) == 0
    assert "run b: 30 queries labelled by line" in capsys.readouterr().err
    assert json.loads(workspace.stored("b"))["ledger"]["other_kinds_of_position"] == 30
    assert kbeval(["check", *options(workspace)]) == 1
    assert "hits in their documents are by byte: the document alone decides there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "found", "how", "ranks"),
    [
        ([LINES], [hit(1, OTHER_LINES), hit(2, LINES)], "span", [2]),
        ([LINES], [hit(1, CODE)], "span", [1]),  # lines of text and of code are one kind
        ([page(5)], [hit(1, page(3))], "span", []),  # and so are all pages: this is a true miss
        ([page(5)], [hit(1, page(3)), hit(2, page(5))], "span", [2]),
        ([LINES], [hit(1, BYTES, OTHER_LINES)], "span", []),  # one kind in common is enough
        ([LINES], [hit(1, {"kind": "caption", "path": "p"})], "span", []),
        ([LINES], [hit(1, BYTES, doc="d2")], "span", []),  # another document: a miss by any kind
        ([LINES], [], "span", []),
        # If one hit cannot be compared with the answer, the document decides for the whole query.
        ([LINES], [hit(1, OTHER_LINES), hit(2, BYTES)], "doc", [1, 2]),
        # And so does one expected place.
        ([LINES, BYTES], [hit(1, OTHER_LINES)], "doc", [1]),
        ([LINES], [hit(1, page(1))], "doc", [1]),
    ],
)
def test_what_decides(
    workspace: Workspace, labels: Sequence[Any], found: Sequence[Any], how: str, ranks: Sequence[int]
) -> None:
    label_all(workspace, *labels)
    add(workspace, "run", *found)
    assert decided(workspace) == ({how}, ranks)


def part(number: int, start: int, end: int) -> dict[str, Any]:
    return {**page(number), "char_start": start, "char_end": end}


def test_any_text_on_a_page_that_a_label_names_whole_is_in_it(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """How long the page is, is not known; what is on other pages is a miss."""
    label_all(workspace, page(7))
    add(workspace, "parts", hit(1, part(8, 0, 900)), hit(2, part(7, 0, 900), part(7, 1200, 1300)))
    add(workspace, "wholes", hit(1, page(8)), hit(2, page(7)))
    for rule in ("expected", "hit", "smaller", "union"):
        how = ["--overlap-of", rule, "--format", "json"]
        assert kbeval(["compare", "parts", "wholes", *options(workspace), *how]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["aggregate_a"]["mrr"], found["aggregate_b"]["mrr"]) == (0.5, 0.5), rule
        assert found["aggregate_a"]["precision_at_k_chunk"]["3"] == 0.3333
    assert decided(workspace, "parts") == ({"span"}, [2])
    assert kbeval(["show", "parts", "--query", "q00", *options(workspace)]) == 0
    assert "(1.00 of it, 1.00 of the hit)" in capsys.readouterr().out


def test_of_two_pages_that_a_label_names_a_hit_on_one_has_half(workspace: Workspace) -> None:
    label_all(workspace, page(7))
    expected = {"expected_spans": [{"doc_id": "d1", **page(7)}, {"doc_id": "d1", **page(9)}]}
    workspace.add_golden(*({"id": query, **expected} for query in QUERIES))
    add(workspace, "run", hit(1, part(9, 5, 10)))
    with open_scoring(workspace.db, workspace.golden, ["run"], ScoreOptions()) as scoring:
        scoring.session.need("found_places")
        assert scoring.session.rows("SELECT DISTINCT place FROM found_places") == [("span 2",)]


def test_labels_that_are_chunks_are_held_to_the_same(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    workspace.add_chunk("old", "d1", [LINES], "old@1")
    workspace.add_run("run", {"q": {"hits_top_k": [hit(1, BYTES)]}}, chunker="new@2")
    assert decided(workspace) == ({"doc"}, [1])


def test_a_hit_without_a_position_decides_nothing_where_no_place_is_expected(workspace: Workspace) -> None:
    """It is a miss wherever it is, and the document does not decide for the other hits."""
    workspace.add_golden(
        *({"id": q, "expected_spans": [{"doc_id": "d1", **LINES}], "expected_doc_ids": ["d1", "d2"]} for q in QUERIES)
    )
    nowhere = {"rank": 2, "chunk_id": "c2"}
    add(workspace, "other", hit(1, OTHER_LINES), {**nowhere, "doc_id": "d2"})
    add(workspace, "same", hit(1, OTHER_LINES), {**nowhere, "doc_id": "d1"})
    assert decided(workspace, "other") == ({"span"}, [])
    assert decided(workspace, "same") == ({"doc"}, [1, 2])


def test_a_query_with_a_place_that_answers_it_is_not_to_be_refused(workspace: Workspace) -> None:
    """Even if it says that no document is expected."""
    place = {"doc_id": "d1", **LINES}
    workspace.add_golden(
        {"id": "q00", "expected_spans": [place], "expected_doc_ids": []}, {"id": "q01", "expected_doc_ids": []}
    )
    row = {"hits_top_k": [hit(1, LINES)], "answer": {"answer": "Yes.", "grounded": True}}
    workspace.add_run("run", {"q00": row, "q01": row})
    with open_scoring(workspace.db, workspace.golden, ["run"], ScoreOptions()) as scoring:
        scoring.session.need("queries")
        found = scoring.session.rows("SELECT query_id, should_refuse FROM queries ORDER BY 1")
    assert found == [("q00", None), ("q01", True)]
    assert workspace.aggregate()["refusal_correctness"] == 0.0
    assert workspace.aggregate()["mrr"] == 1.0


@pytest.mark.parametrize("name", ["2", "x2", ""])
def test_a_hit_without_a_chunk_id_is_no_repetition_of_a_chunk_whose_id_is_its_place(
    workspace: Workspace, name: str
) -> None:
    label_all(workspace, LINES)
    nameless = {"rank": 2, "doc_id": "d1", "source_spans": [LINES]}
    add(workspace, "run", {**hit(1, LINES), "chunk_id": name or None}, nameless)
    assert workspace.aggregate()["precision_at_k_chunk"]["3"] == 0.6667
