"""Numbers that can be checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

import kbeval
from tests.support.workspace import Workspace, answer, hits


def three_queries(workspace: Workspace) -> None:
    """Expected chunks at rank 1, rank 4 and not at all."""
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": [f"c{n}"]} for n in (1, 2, 3)))
    workspace.add_run(
        "run",
        {
            "q1": {"hits_top_k": hits("c1", None, None)},
            "q2": {"hits_top_k": hits(None, None, None, "c2")},
            "q3": {"hits_top_k": hits(None, None)},
        },
    )


def test_hit_at_k_counts_queries_with_an_expected_chunk_in_the_top_k(workspace: Workspace) -> None:
    three_queries(workspace)
    assert workspace.aggregate()["hit_at_k"] == {"1": 0.3333, "3": 0.3333, "5": 0.6667, "10": 0.6667}


def test_mrr_is_the_mean_of_one_over_the_first_rank(workspace: Workspace) -> None:
    three_queries(workspace)
    assert workspace.aggregate()["mrr"] == 0.4167


def test_mrr_is_zero_beyond_rank_ten(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("ten", {"q": {"hits_top_k": [{"rank": 10, "chunk_id": "c"}]}})
    workspace.add_run("eleven", {"q": {"hits_top_k": [{"rank": 11, "chunk_id": "c"}]}})
    assert workspace.aggregate("ten")["mrr"] == 0.1
    assert workspace.aggregate("eleven")["mrr"] == 0.0


def test_recall_with_one_of_two_documents_is_a_half(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_doc_ids": ["d1", "d2"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c1", "c2", doc="d1")}})
    assert set(workspace.aggregate()["recall_at_k_doc"].values()) == {0.5}


@pytest.mark.parametrize(
    ("found", "at_5", "at_10"),
    [
        (("c1", None, "c2", "c3", None), 0.6, 0.3),
        (("c1", "c2", None), 0.4, 0.2),
        ((None, None), 0.0, 0.0),
    ],
)
def test_precision_divides_by_k_even_when_fewer_came_back(
    workspace: Workspace, found: tuple[str | None, ...], at_5: float, at_10: float
) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c1", "c2", "c3"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits(*found)}})
    precision = workspace.aggregate()["precision_at_k_chunk"]
    assert (precision["5"], precision["10"]) == (at_5, at_10)


def test_precision_is_averaged_over_queries(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": q, "expected_chunk_ids": ["c1", "c2"]} for q in ("a", "b")))
    workspace.add_run("run", {"a": {"hits_top_k": hits("c1", "c2")}, "b": {"hits_top_k": hits(None, "c1")}})
    assert workspace.aggregate()["precision_at_k_chunk"]["5"] == 0.3


def test_without_expected_chunks_the_chunk_metrics_are_zero_and_say_that_nothing_was_scored(
    workspace: Workspace,
) -> None:
    workspace.add_golden({"id": "q", "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c1")}})
    found = workspace.aggregate()
    assert found["precision_at_k_chunk"] == {"1": 0.0, "3": 0.0, "5": 0.0, "10": 0.0}
    assert found["mrr"] == 0.0
    assert found["ledger"]["metrics"]["precision_at_k_chunk"] == {"scored": 0, "not_applicable": 1}


def test_a_repeated_chunk_counts_once_at_its_best_rank(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    repeated = [{"rank": 3, "chunk_id": "c"}, {"rank": 2, "chunk_id": "c"}, {"rank": 1, "chunk_id": "x"}]
    workspace.add_run("run", {"q": {"hits_top_k": repeated}})
    found = workspace.aggregate()
    assert found["mrr"] == 0.5
    assert found["precision_at_k_chunk"]["3"] == 0.3333
    assert found["ledger"]["repeated_hits"] == 1


def test_a_hit_without_rank_has_its_place_in_the_list(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {"q": {"hits_top_k": [{"chunk_id": "x"}, {"chunk_id": "c"}]}})
    assert workspace.aggregate()["mrr"] == 0.5


# --- answers ---------------------------------------------------------------------------------------

LINES_1_TO_9 = {"kind": "line", "path": "docs/d1.md", "start": 1, "end": 9, "section": None}


def cited(workspace: Workspace, *citations: dict[str, object]) -> object:
    workspace.add_document("d1", "docs/d1.md")
    workspace.add_chunk("c1", "d1", [{"kind": "line", "start": 5, "end": 20}])
    workspace.add_golden({"id": "q", "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q": {"answer": answer("yes", *citations)}})
    return workspace.aggregate()["citation_coverage"]


def test_a_citation_that_meets_a_chunk_resolves(workspace: Workspace) -> None:
    assert cited(workspace, LINES_1_TO_9) == 1.0


def test_one_broken_citation_breaks_the_answer(workspace: Workspace) -> None:
    assert cited(workspace, LINES_1_TO_9, {**LINES_1_TO_9, "end": 4}) == 0.0


def test_a_citation_of_an_unknown_document_is_broken(workspace: Workspace) -> None:
    assert cited(workspace, {**LINES_1_TO_9, "path": "docs/gone.md"}) == 0.0


def test_an_answer_without_citations_is_not_covered(workspace: Workspace) -> None:
    assert cited(workspace) == 0.0


def test_a_path_alone_resolves_when_its_document_has_a_chunk(workspace: Workspace) -> None:
    assert cited(workspace, {"kind": "caption", "path": "docs/d1.md"}) == 1.0


def test_a_citation_that_names_a_chunk_resolves_when_the_chunk_is_known(workspace: Workspace) -> None:
    assert cited(workspace, {"chunk_id": "c1"}) == 1.0
    workspace.execute("DELETE FROM chunks")
    workspace.add_chunk("c2", "d1", [])
    assert workspace.aggregate()["citation_coverage"] == 0.0


def test_without_known_chunks_coverage_is_null_and_a_warning_says_why(workspace: Workspace) -> None:
    workspace.execute("DROP TABLE chunks")
    workspace.execute("DROP TABLE documents")
    workspace.add_golden({"id": "q", "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q": {"answer": answer("yes", LINES_1_TO_9)}})
    scored = workspace.score("run")
    assert scored.aggregates["run"].citation_coverage is None
    assert any("citation_coverage" in warning and "chunks" in warning for warning in scored.warnings)


@pytest.mark.parametrize(
    ("text", "value"),
    [("it takes fifteen minutes", 1.0), ("it takes a while", 0.0), ("fifteen minutes, or forever", 0.0)],
)
def test_groundedness_wants_every_must_contain_and_no_forbidden(workspace: Workspace, text: str, value: float) -> None:
    workspace.add_golden({"id": "q", "must_contain": ["fifteen minutes"], "forbidden": ["forever"]})
    workspace.add_run("run", {"q": {"answer": answer(text)}})
    assert workspace.aggregate()["groundedness"] == value


def test_groundedness_compares_normalised_text_case_by_case(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "must_contain": ["caf\u00e9"]}, {"id": "r", "must_contain": ["CAFE"]})
    workspace.add_run("run", {"q": {"answer": answer("cafe\u0301")}, "r": {"answer": answer("cafe")}})
    assert workspace.aggregate()["groundedness"] == 0.5


def test_groundedness_checked_leaves_out_queries_without_rules(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "must_contain": ["a"]}, {"id": "r"})
    workspace.add_run("run", {"q": {"answer": answer("b")}, "r": {"answer": answer("b")}})
    found = workspace.aggregate()
    assert (found["groundedness"], found["groundedness_checked"]) == (0.5, 0.0)


def test_refusal_correctness_is_one_when_all_refuse(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_doc_ids": []}, {"id": "r", "answerable": False})
    workspace.add_run("run", {q: {"answer": answer("", grounded=False)} for q in ("q", "r")})
    assert workspace.aggregate()["refusal_correctness"] == 1.0


def test_refusal_correctness_is_null_for_a_retrieval_only_run(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_doc_ids": []})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c"), "answer": None}})
    assert workspace.aggregate()["refusal_correctness"] is None


def test_a_query_that_leaves_expected_docs_out_is_not_one_to_refuse(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q"})
    workspace.add_run("run", {"q": {"answer": answer("", grounded=False)}})
    assert workspace.aggregate()["refusal_correctness"] is None


@pytest.mark.parametrize(
    ("row", "refused"),
    [
        ({"answer": {"answer": "text", "grounded": False}}, 1.0),
        ({"answer": {"answer": "text", "grounded": True}}, 0.0),
        ({"answer": {"answer": "text"}, "abstained": True}, 1.0),
        ({"answer": {"answer": " \n"}}, 1.0),
        ({"answer": {"answer": "text"}}, 0.0),
    ],
)
def test_refused_means_not_grounded_or_abstained_or_empty(
    workspace: Workspace, row: dict[str, object], refused: float
) -> None:
    workspace.add_golden({"id": "q", "answerable": False})
    workspace.add_run("run", {"q": row})
    assert workspace.aggregate()["refusal_correctness"] == refused


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


def test_a_failed_query_keeps_its_hits_and_is_a_miss_without_any(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": q, "expected_chunk_ids": ["c"]} for q in ("q", "r", "s", "t")))
    failed: dict[str, Any] = {
        "r": {"error": "the model failed", "hits_top_k": hits("c")},
        "s": {"error": "timeout", "hits_top_k": []},
    }
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}, "t": {"hits_top_k": hits(None)}, **failed})
    found = workspace.aggregate()
    assert (found["hit_at_k"]["1"], found["empty_result_rate"], found["failed_queries"]) == (0.5, 0.25, 2)


def test_a_row_that_is_not_in_the_golden_file_counts_in_totals_only(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"], "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}, "z": {"error": "boom"}, "y": {"answer": answer("")}})
    found = workspace.aggregate()
    assert (found["total_queries"], found["failed_queries"]) == (3, 1)
    assert found["empty_result_rate"] == 0.6667
    assert (found["mrr"], found["groundedness"]) == (1.0, 0.0)
    assert found["ledger"]["unknown"] == 2


def test_missing_queries_are_averaged_in_only_when_asked(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": q, "expected_chunk_ids": ["c"]} for q in ("q", "r")))
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    assert workspace.aggregate()["mrr"] == 1.0
    zero = workspace.aggregate(missing="zero")
    assert (zero["mrr"], zero["total_queries"], zero["empty_result_rate"]) == (0.5, 1, 0.0)
    assert zero["ledger"]["missing"] == 1


def test_the_ledger_adds_up(workspace: Workspace) -> None:
    three_queries(workspace)
    ledger = workspace.aggregate()["ledger"]
    assert {name: ledger[name] for name in ("golden", "rows", "missing", "unknown", "failed")} == {
        "golden": 3,
        "rows": 3,
        "missing": 0,
        "unknown": 0,
        "failed": 0,
    }
    for counts in ledger["metrics"].values():
        assert counts["scored"] + counts["not_applicable"] == 3


def test_keys_are_in_the_order_of_the_contract(workspace: Workspace) -> None:
    three_queries(workspace)
    assert list(workspace.aggregate()) == [
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


def test_extra_ks_are_added_to_the_usual_ones(workspace: Workspace) -> None:
    three_queries(workspace)
    assert list(workspace.aggregate(extra_ks=(4, 20))["hit_at_k"]) == ["1", "3", "4", "5", "10", "20"]


def test_scoring_twice_gives_the_same_bytes(workspace: Workspace) -> None:
    three_queries(workspace)
    texts = {workspace.score("run").aggregates["run"].to_json() for _ in range(2)}
    assert len(texts) == 1


def test_provenance_changes_with_the_labels_and_the_definitions(workspace: Workspace) -> None:
    three_queries(workspace)
    before = workspace.aggregate()["provenance"]
    assert before["kbeval"] == kbeval.__version__
    assert before["matching"] == "exact"
    assert workspace.aggregate(extra_ks=(2,))["provenance"]["metrics"] != before["metrics"]
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["other"]})
    assert workspace.aggregate()["provenance"]["golden"] != before["golden"]


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


@pytest.mark.parametrize("field", ["category", "difficulty", "lang", "tags", "group"])
def test_every_slice_field_works(workspace: Workspace, field: str) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"], field: ["x"] if field == "tags" else "x"})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    assert workspace.score("run", by=field).slices["run"]["x"].mrr == 1.0


def test_an_unknown_slice_field_names_the_nearest(workspace: Workspace) -> None:
    three_queries(workspace)
    with pytest.raises(kbeval.KbevalError, match="did you mean 'category'"):
        workspace.score("run", by="categry")
