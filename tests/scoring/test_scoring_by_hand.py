"""Numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import kbeval
from tests.support.workspace import Workspace, answer, hits


@dataclass(frozen=True)
class Case:
    """A run: its labels, its rows, and numbers of it by their place in the aggregate (`mrr`, `hit_at_k.5`)."""

    golden: dict[str, dict[str, Any]]
    rows: dict[str, dict[str, Any]]
    numbers: dict[str, Any]


def three_queries() -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Expected chunks at rank 1, rank 4 and not at all."""
    golden = {f"q{n}": {"expected_chunk_ids": [f"c{n}"]} for n in (1, 2, 3)}
    rows = {
        "q1": {"hits_top_k": hits("c1", None, None)},
        "q2": {"hits_top_k": hits(None, None, None, "c2")},
        "q3": {"hits_top_k": hits(None, None)},
    }
    return golden, rows


def one(label: dict[str, Any], row: dict[str, Any], **numbers: Any) -> Case:
    return Case({"q": label}, {"q": row}, {name.replace("__", "."): value for name, value in numbers.items()})


def ranked(*found: dict[str, Any]) -> dict[str, Any]:
    return {"hits_top_k": list(found)}


def precise(*found: str | None, at_5: float, at_10: float) -> Case:
    label = {"expected_chunk_ids": ["c1", "c2", "c3"]}
    numbers = {"precision_at_k_chunk__5": at_5, "precision_at_k_chunk__10": at_10}
    return one(label, {"hits_top_k": hits(*found)}, **numbers)


def checked(text: str, value: float) -> Case:
    rules = {"must_contain": ["fifteen minutes"], "forbidden": ["forever"]}
    return one(rules, {"answer": answer(text)}, groundedness=value)


def refusing(row: dict[str, Any], value: float) -> Case:
    return one({"answerable": False}, row, refusal_correctness=value)


C = {"expected_chunk_ids": ["c"]}
REFUSED = {"answer": answer("", grounded=False)}
CASES: dict[str, Case] = {
    "hit@k counts queries with an expected chunk in the top k": Case(
        *three_queries(), {"hit_at_k": {"1": 0.3333, "3": 0.3333, "5": 0.6667, "10": 0.6667}}
    ),
    "MRR is the mean of one over the first rank": Case(*three_queries(), {"mrr": 0.4167}),
    "MRR at rank ten": one(C, ranked({"rank": 10, "chunk_id": "c"}), mrr=0.1),
    "MRR is zero beyond rank ten": one(C, ranked({"rank": 11, "chunk_id": "c"}), mrr=0.0),
    "recall with one of two documents is a half": one(
        {"expected_doc_ids": ["d1", "d2"]},
        {"hits_top_k": hits("c1", "c2", doc="d1")},
        recall_at_k_doc={"1": 0.5, "3": 0.5, "5": 0.5, "10": 0.5},
    ),
    "precision divides by k": precise("c1", None, "c2", "c3", None, at_5=0.6, at_10=0.3),
    "precision divides by k even when fewer came back": precise("c1", "c2", None, at_5=0.4, at_10=0.2),
    "precision of nothing right": precise(None, None, at_5=0.0, at_10=0.0),
    "precision is averaged over queries": Case(
        {q: {"expected_chunk_ids": ["c1", "c2"]} for q in ("a", "b")},
        {"a": {"hits_top_k": hits("c1", "c2")}, "b": {"hits_top_k": hits(None, "c1")}},
        {"precision_at_k_chunk.5": 0.3},
    ),
    "without expected chunks the chunk metrics are zero and say that nothing was scored": one(
        {"expected_doc_ids": ["d1"]},
        {"hits_top_k": hits("c1")},
        precision_at_k_chunk={"1": 0.0, "3": 0.0, "5": 0.0, "10": 0.0},
        mrr=0.0,
        ledger__metrics__precision_at_k_chunk={"scored": 0, "not_applicable": 1},
    ),
    "a repeated chunk counts once, at its best rank": one(
        C,
        ranked({"rank": 3, "chunk_id": "c"}, {"rank": 2, "chunk_id": "c"}, {"rank": 1, "chunk_id": "x"}),
        mrr=0.5,
        precision_at_k_chunk__3=0.3333,
        ledger__repeated_hits=1,
    ),
    "a hit without rank has its place in the list": one(C, ranked({"chunk_id": "x"}, {"chunk_id": "c"}), mrr=0.5),
    "groundedness wants every must_contain": checked("it takes fifteen minutes", 1.0),
    "groundedness without a must_contain": checked("it takes a while", 0.0),
    "groundedness wants no forbidden": checked("fifteen minutes, or forever", 0.0),
    "groundedness compares normalised text case by case": Case(
        {"q": {"must_contain": ["caf\u00e9"]}, "r": {"must_contain": ["CAFE"]}},
        {"q": {"answer": answer("cafe\u0301")}, "r": {"answer": answer("cafe")}},
        {"groundedness": 0.5},
    ),
    "groundedness_checked leaves out queries without rules": Case(
        {"q": {"must_contain": ["a"]}, "r": {}},
        {"q": {"answer": answer("b")}, "r": {"answer": answer("b")}},
        {"groundedness": 0.5, "groundedness_checked": 0.0},
    ),
    "refusal_correctness is one when all refuse": Case(
        {"q": {"expected_doc_ids": []}, "r": {"answerable": False}},
        {"q": REFUSED, "r": REFUSED},
        {"refusal_correctness": 1.0},
    ),
    "refusal_correctness is null for a retrieval-only run": one(
        {"expected_doc_ids": []}, {"hits_top_k": hits("c"), "answer": None}, refusal_correctness=None
    ),
    "a query that leaves expected docs out is not one to refuse": one({}, REFUSED, refusal_correctness=None),
    "not grounded is refused": refusing({"answer": {"answer": "text", "grounded": False}}, 1.0),
    "grounded is not refused": refusing({"answer": {"answer": "text", "grounded": True}}, 0.0),
    "abstained is refused": refusing({"answer": {"answer": "text"}, "abstained": True}, 1.0),
    "empty is refused": refusing({"answer": {"answer": " \n"}}, 1.0),
    "an answer is not refused": refusing({"answer": {"answer": "text"}}, 0.0),
    "a failed query keeps its hits and is a miss without any": Case(
        dict.fromkeys(("q", "r", "s", "t"), C),
        {
            "q": {"hits_top_k": hits("c")},
            "t": {"hits_top_k": hits(None)},
            "r": {"error": "the model failed", "hits_top_k": hits("c")},
            "s": {"error": "timeout", "hits_top_k": []},
        },
        {"hit_at_k.1": 0.5, "empty_result_rate": 0.25, "failed_queries": 2},
    ),
    "a row that is not in the golden file counts in totals only": Case(
        {"q": {**C, "expected_doc_ids": ["d1"]}},
        {"q": {"hits_top_k": hits("c")}, "z": {"error": "boom"}, "y": {"answer": answer("")}},
        {
            "total_queries": 3,
            "failed_queries": 1,
            "empty_result_rate": 0.6667,
            "mrr": 1.0,
            "groundedness": 0.0,
            "ledger.unknown": 2,
        },
    ),
}


def value_at(found: Any, place: str) -> Any:
    for part in place.split("."):
        found = found[part]
    return found


def check(workspace: Workspace, cases: dict[str, Case]) -> None:
    """Score all cases at once: each is a run, and its queries have names of their own."""
    workspace.add_golden(
        *({"id": f"{name}: {q}", **label} for name, case in cases.items() for q, label in case.golden.items())
    )
    for name, case in cases.items():
        workspace.add_run(name, {f"{name}: {q}": row for q, row in case.rows.items()})
    scored = workspace.score().aggregates
    for name, case in cases.items():
        found = scored[name].to_dict()
        assert {place: value_at(found, place) for place in case.numbers} == case.numbers, name


def test_numbers_are_those_that_were_worked_out_by_hand(workspace: Workspace) -> None:
    check(workspace, CASES)


# --- citations -------------------------------------------------------------------------------------

LINES_1_TO_9 = {"kind": "line", "path": "docs/d1.md", "start": 1, "end": 9, "section": None}


def cited(*citations: dict[str, Any], covered: float) -> Case:
    return one({"expected_doc_ids": ["d1"]}, {"answer": answer("yes", *citations)}, citation_coverage=covered)


CITED: dict[str, Case] = {
    "a citation that meets a chunk resolves": cited(LINES_1_TO_9, covered=1.0),
    "one broken citation breaks the answer": cited(LINES_1_TO_9, {**LINES_1_TO_9, "end": 4}, covered=0.0),
    "a citation of an unknown document is broken": cited({**LINES_1_TO_9, "path": "docs/gone.md"}, covered=0.0),
    "an answer without citations is not covered": cited(covered=0.0),
    "a path alone resolves when its document has a chunk": cited(
        {"kind": "caption", "path": "docs/d1.md"}, covered=1.0
    ),
    "a citation that names a known chunk resolves": cited({"chunk_id": "c1"}, covered=1.0),
    "a citation that names an unknown chunk is broken": cited({"chunk_id": "c2"}, covered=0.0),
}


def test_a_citation_resolves_where_a_known_chunk_is(workspace: Workspace) -> None:
    workspace.add_document("d1", "docs/d1.md")
    workspace.add_chunk("c1", "d1", [{"kind": "line", "start": 5, "end": 20}])
    check(workspace, CITED)


def test_without_known_chunks_coverage_is_null_and_a_warning_says_why(workspace: Workspace) -> None:
    workspace.execute("DROP TABLE chunks")
    workspace.execute("DROP TABLE documents")
    workspace.add_golden({"id": "q", "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q": {"answer": answer("yes", LINES_1_TO_9)}})
    scored = workspace.score("run")
    assert scored.aggregates["run"].citation_coverage is None
    assert any("citation_coverage" in warning and "chunks" in warning for warning in scored.warnings)


# --- rows ------------------------------------------------------------------------------------------


def test_a_run_without_rows_has_nothing_to_divide(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {})
    found = workspace.aggregate()
    assert found["mrr"] == 0.0
    assert found["citation_coverage"] is None
    assert found["refusal_correctness"] is None
    assert (found["total_queries"], found["failed_queries"]) == (0, 0)
    assert found["ledger"]["missing"] == 1


def test_missing_queries_are_averaged_in_only_when_asked(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": q, "expected_chunk_ids": ["c"]} for q in ("q", "r")))
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    assert workspace.aggregate()["mrr"] == 1.0
    zero = workspace.aggregate(missing="zero")
    assert (zero["mrr"], zero["total_queries"], zero["empty_result_rate"]) == (0.5, 1, 0.0)
    assert zero["ledger"]["missing"] == 1


@pytest.fixture
def three(workspace: Workspace) -> Workspace:
    golden, rows = three_queries()
    workspace.add_golden(*({"id": query_id, **label} for query_id, label in golden.items()))
    workspace.add_run("run", rows)
    return workspace


def test_the_ledger_adds_up_and_keys_are_in_the_order_of_the_contract(three: Workspace) -> None:
    found = three.aggregate()
    ledger = found["ledger"]
    assert {name: ledger[name] for name in ("golden", "rows", "missing", "unknown", "failed")} == {
        "golden": 3,
        "rows": 3,
        "missing": 0,
        "unknown": 0,
        "failed": 0,
    }
    for counts in ledger["metrics"].values():
        assert counts["scored"] + counts["not_applicable"] == 3

    assert list(found) == [
        "hit_at_k",
        "mrr",
        "recall_at_k_doc",
        "precision_at_k_chunk",
        "citation_coverage",
        "groundedness",
        "empty_result_rate",
        "refusal_correctness",
        "total_queries",
        "failed_queries",
        "error_rate",
        "recall_at_k_chunk",
        "timeout_rate",
        "ledger",
        "provenance",
    ]


def test_scoring_twice_gives_the_same_bytes_and_provenance_changes_with_labels_and_definitions(
    three: Workspace,
) -> None:
    first, second = (three.score("run").aggregates["run"] for _ in range(2))
    assert first.to_json() == second.to_json()
    before = first.to_dict()["provenance"]
    assert before["kbeval"] == kbeval.__version__
    assert before["matching"] == "exact"
    with_more = three.aggregate(extra_ks=(4, 20))
    # They are added to the usual ones.
    assert list(with_more["hit_at_k"]) == ["1", "3", "4", "5", "10", "20"]
    assert with_more["provenance"]["metrics"] != before["metrics"]
    three.add_golden({"id": "q1", "expected_chunk_ids": ["other"]})
    assert three.aggregate()["provenance"]["golden"] != before["golden"]


# --- slices ----------------------------------------------------------------------------------------


def test_slices_have_the_same_metrics_with_counts(workspace: Workspace) -> None:
    workspace.add_golden(
        {"id": "q", "expected_chunk_ids": ["c"], "category": "billing"},
        {"id": "r", "expected_chunk_ids": ["c"], "category": "account"},
        {"id": "s", "expected_chunk_ids": ["c"]},
    )
    rows = {"q": hits("c"), "r": hits(None, "c"), "s": hits(None)}
    workspace.add_run("run", {query: {"hits_top_k": found} for query, found in rows.items()})
    slices = workspace.score("run", by="category").slices["run"]
    assert {name: part.mrr for name, part in slices.items()} == {"(none)": 0.0, "account": 0.5, "billing": 1.0}
    assert slices["billing"].ledger["metrics"]["mrr"] == {"scored": 1, "not_applicable": 0}


def test_a_query_is_in_the_slice_of_each_of_its_tags(workspace: Workspace) -> None:
    workspace.add_golden(
        {"id": "q", "expected_chunk_ids": ["c"], "tags": ["a", "b"]},
        {"id": "r", "expected_chunk_ids": ["c"], "tags": ["b"]},
    )
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}, "r": {"hits_top_k": []}})
    slices = workspace.score("run", by="tags").slices["run"]
    assert {name: (part.mrr, part.total_queries) for name, part in slices.items()} == {"a": (1.0, 1), "b": (0.5, 2)}


# By category and by tags: above.
@pytest.mark.parametrize("field", ["difficulty", "lang", "group"])
def test_every_slice_field_works(workspace: Workspace, field: str) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"], field: "x"})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    assert workspace.score("run", by=field).slices["run"]["x"].mrr == 1.0


def test_an_unknown_slice_field_names_the_nearest(three: Workspace) -> None:
    with pytest.raises(kbeval.KbevalError, match="did you mean 'category'"):
        three.score("run", by="categry")
