"""Two runs side by side: how each query changed, the numbers, and whether the runs may be compared."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbeval
from kbeval.compare.options import CompareOptions
from kbeval.compare.report import CompareReport, QueryComparison
from kbeval.compare.run import IncomparableError
from kbeval.errors import BadRowsError, UsageError
from kbeval.metrics.catalogue import metrics_in_config
from kbeval.render.comparison import delta_table, legend, render_report_md, slice_table, verdict_sentence
from kbeval.scoring.options import ScoreOptions
from tests.support.examples import scorings
from tests.support.workspace import Workspace, answer, hits

FIXTURE = Path(__file__).parents[2] / "fixtures" / "eval" / "compare-1.json"


def compare(workspace: Workspace, a: str = "a", b: str = "b", **options: Any) -> CompareReport:
    return kbeval.compare_runs(a, b, db=workspace.db, golden=workspace.golden, options=CompareOptions(**options))


def ranking(rank: int | None, chunk: str = "c") -> dict[str, Any]:
    """A row whose expected chunk has this rank; None: it was not retrieved."""
    return {"hits_top_k": hits(*([None] * (rank - 1)), chunk) if rank else hits(None, None)}


# --- the kinds ---------------------------------------------------------------------------------------


def many_queries(workspace: Workspace, *cases: tuple[dict[str, Any], Any, Any]) -> list[QueryComparison]:
    """How queries q00, q01, … changed, each with its labels and its rows in both runs, in one comparison."""
    named = {f"q{number:02}": case for number, case in enumerate(cases)}
    workspace.add_golden(
        *({"id": query, "expected_chunk_ids": ["c"], **label} for query, (label, _, _) in named.items())
    )
    workspace.add_run("a", {query: a for query, (_, a, _) in named.items()})
    workspace.add_run("b", {query: b for query, (_, _, b) in named.items()})
    return sorted(compare(workspace).per_query, key=lambda one: one.query_id)


def test_every_kind(workspace: Workspace) -> None:
    kinds: list[tuple[int | None, int | None, str, str]] = [
        (None, 3, "win", "miss→hit"),
        (4, 1, "win", "rank 4→1"),
        (2, 2, "draw", "rank 2 in both"),
        (1, 2, "loss", "rank 1→2"),
        (1, None, "regression", "hit→miss; not retrieved"),
        (None, None, "draw", "miss in both"),
    ]
    found = many_queries(workspace, *(({}, ranking(a), ranking(b)) for a, b, _, _ in kinds))
    assert [(one.a_hit_rank, one.b_hit_rank, one.kind, one.note) for one in found] == kinds


def test_a_query_that_one_run_does_not_have_is_a_miss_there_and_says_so(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in (1, 2, 3)))
    workspace.add_run("a", {"q1": ranking(1), "q2": ranking(1)})
    workspace.add_run("b", {"q2": ranking(1), "q3": ranking(2), "unknown": ranking(1)})
    report = compare(workspace)
    assert [(one.query_id, one.kind, one.note) for one in report.per_query] == [
        ("q1", "regression", "hit→miss; not in B"),
        ("q2", "draw", "rank 1 in both"),
        ("q3", "win", "miss→hit; not in A"),
        ("unknown", "draw", "nothing expected; not in A"),
    ]
    assert report.whole.significance["mrr"].n == 1
    assert any("3 queries in one run only" in warning for warning in report.warnings)


PLACE = {"kind": "line", "start": 1, "end": 9}
# What a query expects, its rows in both runs, and what is said of it.
LABELLED: dict[str, tuple[dict[str, Any], Any, Any, dict[str, Any]]] = {
    "ranks beyond ten are hits too": ({}, ranking(12), ranking(11), {"kind": "win", "note": "rank 12→11"}),
    "documents alone are matched by document": (
        {"expected_chunk_ids": [], "expected_doc_ids": ["d"]},
        {"hits_top_k": [*hits(None, doc="x"), {"rank": 2, "chunk_id": "k", "doc_id": "d"}]},
        {"hits_top_k": hits(None, doc="d")},
        {"kind": "win", "a_hit_rank": 2, "b_hit_rank": 1, "matching": "doc"},
    ),
    "spans alone are matched by span whatever the versions": (
        {"expected_chunk_ids": [], "expected_spans": [{"doc_id": "d", **PLACE}]},
        {"hits_top_k": [{"chunk_id": "k", "doc_id": "d", "source_spans": [PLACE]}]},
        {"hits_top_k": [{"chunk_id": "k", "doc_id": "d", "source_spans": [{**PLACE, "start": 9, "end": 30}]}]},
        {"kind": "regression", "matching": "span"},
    ),
    "a lost chunk whose document still comes back": (
        {"expected_doc_ids": ["d1"]},
        ranking(1),
        ranking(None),
        {"note": "hit→miss; not retrieved, though its document is at rank 1"},
    ),
    "an expected chunk that is lost while another is found": (
        {"expected_chunk_ids": ["c", "e"]},
        {"hits_top_k": hits("c", "e")},
        {"hits_top_k": hits("e")},
        {"kind": "draw", "note": "rank 1 in both; lost expected chunk c while another was found"},
    ),
}


def test_a_query_is_matched_by_what_its_labels_name_and_says_what_was_lost(workspace: Workspace) -> None:
    found = many_queries(workspace, *((label, a, b) for label, a, b, _ in LABELLED.values()))
    for one, (name, (_, _, _, said)) in zip(found, LABELLED.items(), strict=True):
        assert {key: getattr(one, key) for key in said} == said, name


# --- causes ------------------------------------------------------------------------------------------


CAUSES: list[tuple[Any, Any, str]] = [
    (ranking(1), {"error": "timeout"}, "now errors"),
    ({"error": "timeout"}, ranking(1), "no longer errors"),
    (ranking(1), {"hits_top_k": []}, "not retrieved"),
    (ranking(1), {"hits_top_k": hits(None, doc="x")}, "not retrieved"),
    (ranking(1), ranking(2), "ranked lower"),
    (ranking(2), ranking(1), "ranked higher"),
    (ranking(3), ranking(11), "below the top 10"),
    (ranking(11), ranking(3), "now in the top 10"),
    (
        {**ranking(1), "answer": answer("yes")},
        {**ranking(1), "answer": answer("", grounded=False)},
        "answer now refuses",
    ),
    (
        {**ranking(1), "answer": answer("", grounded=False)},
        {**ranking(1), "answer": answer("yes")},
        "no longer refuses",
    ),
]


def test_the_cause_is_what_the_data_shows(workspace: Workspace) -> None:
    found = many_queries(workspace, *(({}, a, b) for a, b, _ in CAUSES))
    for one, (_, _, cause) in zip(found, CAUSES, strict=True):
        assert cause in one.causes, one.query_id


def test_the_runs_own_k_says_what_is_below_the_top(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("a", {"q": ranking(3)})
    workspace.add_run("b", {"q": ranking(7)})
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ?", ('{"chunker_version":"md@1","eval_k":5}',))
    assert compare(workspace).per_query[0].note == "rank 3→7; below the top 5"


FLIPS: list[tuple[dict[str, Any], Any, Any, str, str]] = [
    ({"must_contain": ["yes"]}, answer("yes"), answer("no"), "answer now breaks its rules", "worse"),
    ({"must_contain": ["yes"]}, answer("no"), answer("yes"), "answer now keeps its rules", "better"),
    (
        {"answerable": False},
        answer("", grounded=False),
        answer("sure"),
        "refused correctly, now answers",
        "worse",
    ),
    ({"answerable": False}, answer("sure"), answer("", grounded=False), "now refuses, rightly", "better"),
    (
        {},
        answer("x", {"kind": "line", "path": "p.md", "start": 1, "end": 2}),
        answer("x", {"kind": "line", "path": "p.md", "start": 90, "end": 99}),
        "citation broke",
        "worse",
    ),
]


def test_answers_that_flip_are_reported_even_if_ranks_stay(workspace: Workspace) -> None:
    workspace.add_document("d1", "p.md")
    workspace.add_chunk("c", "d1", [{"kind": "line", "start": 1, "end": 9}])
    rows = ((label, {**ranking(1), "answer": a}, {**ranking(1), "answer": b}) for label, a, b, _, _ in FLIPS)
    for one, (_, _, _, flip, way) in zip(many_queries(workspace, *rows), FLIPS, strict=True):
        assert (one.kind, one.answer) == ("draw", way), flip
        assert flip in one.note


def test_what_changed_in_the_configuration_is_a_cause_of_what_moved(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in (1, 2)))
    workspace.add_run("a", {"q1": ranking(1), "q2": ranking(1)})
    workspace.add_run("b", {"q1": ranking(2), "q2": ranking(1)})
    config = {"chunker_version": "md@1", "embedding": {"model": "e2"}, "llm": {"model_id": "m"}}
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = 'b'", (json.dumps(config),))
    report = compare(workspace)
    assert [one.note for one in report.per_query] == ["rank 1→2; embedding changed, model changed", "rank 1 in both"]
    assert [(one.key, one.a, one.b) for one in report.config_diff] == [
        ("embedding.model", None, "e2"),
        ("llm.model_id", None, "m"),
    ]


# --- the fixed pair ----------------------------------------------------------------------------------


@pytest.fixture
def fixed_pair(workspace: Workspace) -> Workspace:
    """Three queries. Ranks of the expected chunk in A: 1, 4, none; in B: 2, 1, 1."""
    return make_fixed_pair(workspace)


@pytest.fixture(scope="module")
def fixed_report(tmp_path_factory: pytest.TempPathFactory) -> CompareReport:
    """Their comparison, made once; read-only."""
    return compare(make_fixed_pair(Workspace(tmp_path_factory.mktemp("pair"))), "run-a", "run-b")


def make_fixed_pair(workspace: Workspace) -> Workspace:
    workspace.add_golden(
        *({"id": f"q-00{n}", "expected_chunk_ids": [f"c{n}"], "query": f"query {n}"} for n in (1, 2, 3))
    )
    for run, ranks in {"run-a": (1, 4, None), "run-b": (2, 1, 1)}.items():
        workspace.add_run(run, {f"q-00{n}": ranking(rank, f"c{n}") for n, rank in enumerate(ranks, start=1)})
    return workspace


def test_the_fixed_pair_gives_the_fixture_byte_for_byte(fixed_report: CompareReport) -> None:
    assert fixed_report.to_json() + "\n" == FIXTURE.read_text(encoding="utf-8")


def test_the_fixture_holds_the_numbers_worked_out_by_hand() -> None:
    report = json.loads(FIXTURE.read_text(encoding="utf-8"))
    assert report["deltas"]["hit_at_k"] == {"1": 0.3334, "3": 0.6667, "5": 0.3333, "10": 0.3333}
    assert report["deltas"]["mrr"] == 0.4166
    assert report["deltas"]["precision_at_k_chunk"] == {"1": 0.3334, "3": 0.2222, "5": 0.0667, "10": 0.0333}
    assert report["deltas"]["chunker_version_match"] == "exact"
    keys = ("query_id", "kind", "a_hit_rank", "b_hit_rank", "note")
    assert [tuple(one[key] for key in keys) for one in report["per_query"]] == [
        ("q-001", "loss", 1, 2, "rank 1→2"),
        ("q-002", "win", 4, 1, "rank 4→1"),
        ("q-003", "win", None, 1, "miss→hit"),
    ]
    assert list(report)[:6] == ["run_a", "run_b", "aggregate_a", "aggregate_b", "deltas", "per_query"]


def test_the_report_is_the_same_with_any_number_of_threads_and_after_shuffling(fixed_pair: Workspace) -> None:
    with closing(sqlite3.connect(fixed_pair.db)) as connection, connection:
        rows = connection.execute("SELECT * FROM eval_query_results ORDER BY query_id DESC").fetchall()
        connection.execute("DELETE FROM eval_query_results")
        connection.executemany("INSERT INTO eval_query_results VALUES (?, ?, ?)", rows)
    for threads in (1, 2):
        shuffled = compare(fixed_pair, "run-a", "run-b", scoring=ScoreOptions(threads=threads))
        assert shuffled.to_json() + "\n" == FIXTURE.read_text(encoding="utf-8")


def test_the_numbers_of_an_exact_comparison_are_those_that_score_stores(
    fixed_pair: Workspace, fixed_report: CompareReport
) -> None:
    assert fixed_report.aggregate_a.to_json() == fixed_pair.score("run-a").aggregates["run-a"].to_json()


def test_the_report_hands_out_frames(fixed_report: CompareReport) -> None:
    report = fixed_report
    queries = report.per_query_frame()
    assert queries.filter(pl.col("kind") == "win")["query_id"].to_list() == ["q-002", "q-003"]
    (mrr,) = report.deltas_frame().filter(pl.col("metric") == "mrr").rows(named=True)
    assert (mrr["slice"], mrr["delta"], mrr["n"]) == (None, 0.4166, 3)


# --- mirrored ----------------------------------------------------------------------------------------

MIRRORED = {"win": ("loss", "regression"), "loss": ("win",), "regression": ("win",), "draw": ("draw",)}
RANKS = st.none() | st.integers(1, 12)


@scorings(3)
@given(
    st.lists(st.tuples(RANKS, RANKS, st.booleans(), st.booleans()), min_size=1, max_size=60),
    st.sampled_from(["md@1", "md@2"]),
)
def test_the_other_order_mirrors_everything(queries: list[tuple[Any, Any, bool, bool]], chunker: str) -> None:
    with TemporaryDirectory() as name:
        workspace = Workspace(Path(name))
        workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in range(len(queries))))
        workspace.add_chunk("c", "d1", [{"kind": "line", "start": 1, "end": 9}])
        workspace.add_run("a", {f"q{n}": ranking(a) for n, (a, _, there, _) in enumerate(queries) if there})
        rows = {f"q{n}": ranking(b) for n, (_, b, _, there) in enumerate(queries) if there}
        workspace.add_run("b", rows, chunker=chunker)
        there, back = compare(workspace, "a", "b"), compare(workspace, "b", "a")
    for one, other in zip(there.per_query, back.per_query, strict=True):
        assert (one.a_hit_rank, one.b_hit_rank) == (other.b_hit_rank, other.a_hit_rank)
        assert other.kind in MIRRORED[one.kind]
        assert one.matching == other.matching
    for one_row, other_row in zip(there.whole.rows(), back.whole.rows(), strict=True):
        assert one_row.delta is None or other_row.delta is not None
        assert one_row.delta == (None if other_row.delta is None else -other_row.delta)
        one_test, other_test = one_row.significance, other_row.significance
        if one_test is not None and other_test is not None:
            assert one_test.p == other_test.p
            if one_test.low is None or other_test.low is None or other_test.high is None:
                assert one_test.low is one_test.high is other_test.low is other_test.high is None
            else:
                assert (one_test.low, one_test.high) == (-other_test.high, -other_test.low)
    mirror = {"better": "worse", "worse": "better"}
    assert back.verdict.answer == mirror.get(there.verdict.answer, there.verdict.answer)


def test_a_run_compared_with_itself_is_a_draw(fixed_pair: Workspace) -> None:
    report = compare(fixed_pair, "run-a", "run-a")
    assert report.whole.counts == {"win": 0, "draw": 3, "loss": 0, "regression": 0}
    assert report.verdict.answer == "no detectable difference"


# --- across chunker versions -------------------------------------------------------------------------


def place(start: int, end: int) -> list[dict[str, Any]]:
    return [{"kind": "line", "start": start, "end": end}]


@pytest.fixture
def rechunked(workspace: Workspace) -> Workspace:
    """A finds q1 at 1 and q2 at 2, B the same text at the same ranks in chunks of other sizes and names."""
    return make_rechunked(workspace)


@pytest.fixture(scope="module")
def rechunked_report(tmp_path_factory: pytest.TempPathFactory) -> CompareReport:
    """Their comparison with slices, made once; read-only."""
    workspace = make_rechunked(Workspace(tmp_path_factory.mktemp("rechunked")))
    return compare(workspace, scoring=ScoreOptions(by="category"))


def make_rechunked(workspace: Workspace) -> Workspace:
    workspace.add_golden(
        {"id": "q1", "expected_chunk_ids": ["old-1"], "category": "x"},
        {"id": "q2", "expected_chunk_ids": ["old-2"], "expected_doc_ids": ["d"], "category": "y"},
        {"id": "q3", "expected_doc_ids": ["d"], "category": "y"},
    )
    workspace.add_document("d", "d.md")
    workspace.add_chunk("old-1", "d", place(1, 10), "old@1")
    workspace.add_chunk("old-2", "d", place(11, 20), "old@1")
    old = [{"chunk_id": f"old-{n}", "doc_id": "d", "source_spans": place(10 * n - 9, 10 * n)} for n in (1, 2)]
    new = [{"chunk_id": f"new-{n}", "doc_id": "d", "source_spans": place(5 * n - 4, 5 * n)} for n in (1, 4)]
    workspace.add_run("a", {q: {"hits_top_k": old} for q in ("q1", "q2", "q3")}, chunker="old@1")
    workspace.add_run("b", {q: {"hits_top_k": new} for q in ("q1", "q2", "q3")}, chunker="new@2")
    return workspace


def test_the_same_text_in_other_chunks_is_a_draw(rechunked_report: CompareReport) -> None:
    report = rechunked_report
    assert report.chunker_version_match == "fallback_doc_span"
    assert [(one.kind, one.b_hit_rank, one.matching) for one in report.per_query] == [
        ("draw", 1, "span"),
        ("draw", 2, "span"),
        ("draw", 1, "doc"),
    ]
    assert report.matching == {"exact": 0, "span": 2, "doc": 1, "none": 0}
    assert report.deltas["hit_at_k"] == {"1": 0.0, "3": 0.0, "5": 0.0, "10": 0.0}
    assert report.aggregate_b.mrr == report.aggregate_a.mrr == 0.75
    assert report.to_dict()["chunker_versions"] == {"a": "old@1", "b": "new@2"}


def test_the_numbers_across_versions_are_those_of_score_match_span(
    rechunked: Workspace, rechunked_report: CompareReport
) -> None:
    report, scored = compare(rechunked, scoring=ScoreOptions(match="span")), rechunked.score(match="span")
    assert report.aggregate_a.to_json() == scored.aggregates["a"].to_json()
    assert report.aggregate_b.to_json() == scored.aggregates["b"].to_json()
    assert (rechunked_report.aggregate_a.numbers(), rechunked_report.aggregate_b.numbers()) == (
        report.aggregate_a.numbers(),
        report.aggregate_b.numbers(),
    )


def test_strict_runs_of_different_chunkers_are_refused_and_both_named(rechunked: Workspace) -> None:
    with pytest.raises(IncomparableError, match=r"old@1 \(a\) and new@2 \(b\)"):
        compare(rechunked, strict_chunker_version=True)
    assert compare(rechunked, "a", "a", strict_chunker_version=True).chunker_version_match == "exact"


def test_both_runs_are_matched_the_same_way_where_one_does_not_know(rechunked: Workspace) -> None:
    for run, query, row in rechunked.execute("SELECT * FROM eval_query_results WHERE run_id = 'b'"):
        bare = [{key: hit[key] for key in ("chunk_id", "doc_id")} for hit in json.loads(row)["hits_top_k"]]
        rechunked.execute(
            "UPDATE eval_query_results SET result_json = ? WHERE run_id = ? AND query_id = ?",
            (json.dumps({"hits_top_k": bare}), run, query),
        )
    report = compare(rechunked)
    assert report.matching == {"exact": 0, "span": 0, "doc": 3, "none": 0}
    assert [one.a_hit_rank for one in report.per_query] == [1, 1, 1]
    # The third is labelled by its document, and means it.
    assert any("2 queries of 3 matched by document alone" in warning for warning in report.warnings)


def test_a_version_that_only_the_hits_name_counts(rechunked: Workspace) -> None:
    rechunked.execute("UPDATE eval_runs SET config_snapshot_json = '{}'")
    rechunked.execute("DELETE FROM chunks")
    assert compare(rechunked).chunker_version_match == "exact"
    for run, version in (("a", "old@1"), ("b", "new@2")):
        for _, query, row in rechunked.execute("SELECT * FROM eval_query_results WHERE run_id = ?", (run,)):
            named = [{**hit, "chunker_version": version} for hit in json.loads(row)["hits_top_k"]]
            rechunked.execute(
                "UPDATE eval_query_results SET result_json = ? WHERE run_id = ? AND query_id = ?",
                (json.dumps({"hits_top_k": named}), run, query),
            )
    report = compare(rechunked)
    assert report.chunker_versions == ("old@1", "new@2")
    assert report.chunker_version_match == "fallback_doc_span"


def test_a_version_that_only_the_table_of_chunks_knows_counts(rechunked: Workspace) -> None:
    rechunked.execute("UPDATE eval_runs SET config_snapshot_json = '{}'")
    assert compare(rechunked).chunker_versions == ("old@1", None)
    for number, start in ((1, 1), (4, 16)):
        rechunked.add_chunk(f"new-{number}", "d", place(start, start + 4), "new@2")
    assert compare(rechunked).chunker_versions == ("old@1", "new@2")


def test_one_unknown_version_is_compared_by_spans_with_a_warning(rechunked: Workspace) -> None:
    rechunked.execute("UPDATE eval_runs SET config_snapshot_json = 'broken {' WHERE run_id = 'b'")
    report = compare(rechunked)
    assert report.chunker_version_match == "fallback_doc_span"
    assert report.warnings[0] == "the configuration of run b cannot be read, so it counts as empty"
    assert "the chunker versions may differ: old@1 (a) and unknown (b)" in report.warnings[1]


def test_two_runs_of_the_new_chunker_with_the_old_labels_are_compared_by_spans(rechunked: Workspace) -> None:
    rechunked.execute("UPDATE eval_runs SET config_snapshot_json = ?", ('{"chunker_version":"new@2"}',))
    report = compare(rechunked)
    assert report.aggregate_b.mrr == 0.75
    assert report.chunker_version_match == "fallback_doc_span"
    assert "the runs hold chunks of new@2 and the expected chunks are of old@1" in report.warnings[0]
    assert report.whole.significance["precision_at_k_chunk.5"].decides


def test_spans_can_be_asked_for_within_one_version(rechunked: Workspace) -> None:
    assert compare(rechunked, "a", "a").chunker_version_match == "exact"
    assert compare(rechunked, "a", "a", scoring=ScoreOptions(match="span")).matching == {
        "exact": 0,
        "span": 2,
        "doc": 1,
        "none": 0,
    }


def test_numbers_that_count_chunks_do_not_decide_between_chunkers(rechunked_report: CompareReport) -> None:
    significance = rechunked_report.whole.significance
    assert not significance["precision_at_k_chunk.5"].decides
    assert significance["hit_at_k.5"].decides


def test_the_overlap_can_be_chosen(rechunked: Workspace) -> None:
    strict = compare(rechunked, scoring=ScoreOptions(min_overlap=0.9, overlap_of="expected"))
    assert [one.kind for one in strict.per_query] == ["regression", "regression", "draw"]


# --- slices and metrics ------------------------------------------------------------------------------


def test_slices_repeat_the_comparison(rechunked_report: CompareReport) -> None:
    report = rechunked_report
    assert list(report.slices) == ["x", "y"]
    assert report.slices["x"].counts == {"win": 0, "draw": 1, "loss": 0, "regression": 0}
    assert report.slices["y"].aggregate_a.mrr == 0.5
    assert report.to_dict()["slices"]["y"]["significance"]["mrr"]["n"] == 1
    assert set(report.deltas_frame()["slice"]) == {None, "x", "y"}


def test_only_the_metrics_that_are_named_are_tested(fixed_pair: Workspace) -> None:
    report = compare(fixed_pair, "run-a", "run-b", only=("mrr", "hit@5", "precision_at_k_chunk"))
    assert list(report.whole.significance) == [
        "hit_at_k.5",
        "mrr",
        *(f"precision_at_k_chunk.{k}" for k in (1, 3, 5, 10)),
    ]
    assert "hit_at_k" in report.deltas
    with pytest.raises(UsageError, match="did you mean 'mrr'"):
        compare(fixed_pair, "run-a", "run-b", only=("mmr",))


def test_own_metrics_and_more_ks_are_compared_too(fixed_pair: Workspace, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "deepest.sql").write_text("-- deepest: how deep?\nMAX(rank)")
    scoring = ScoreOptions(extra_ks=(2,), metric_folders=(tmp_path / "own",))
    report = compare(fixed_pair, "run-a", "run-b", scoring=scoring)
    assert report.deltas["hit_at_k"]["2"] == 0.6667
    assert report.whole.significance["deepest"].test == "sign-flip"


def test_the_verdict_says_what_was_tested(workspace: Workspace) -> None:
    queries = [f"q{n}" for n in range(20)]
    workspace.add_golden(*({"id": q, "expected_chunk_ids": ["c"]} for q in queries))
    workspace.add_run("a", {q: {**ranking(1), "elapsed_ms": 5} for q in queries})
    workspace.add_run("b", {q: {**ranking(1), "elapsed_ms": 5000} for q in queries})
    workspace.add_run("c", {q: ranking(None) for q in queries})
    report = compare(workspace, "a", "b")
    assert report.deltas["latency_ms"]["p50"] == 4995
    assert verdict_sentence(report.whole) == "no detectable difference: no tested number changed for any query"
    worse = verdict_sentence(compare(workspace, "a", "c").whole)
    # They all changed alike.
    assert re.search(r"^worse in (\S+, ){3}\S+ and \d+ more", worse)
    tested = re.search(r"\(of (\d+) numbers, (\d+) of which changed differently and were tested\)$", worse)
    assert tested is not None, worse
    assert int(tested[1]) > 10 > int(tested[2])


def test_a_metric_that_improves_neither_way_is_shown_and_decides_nothing(workspace: Workspace) -> None:
    queries = [f"q{n}" for n in range(20)]
    workspace.add_golden(*({"id": q, "expected_chunk_ids": ["c"]} for q in queries))
    workspace.add_run("a", {q: ranking(1) for q in queries})
    workspace.add_run("b", {q: {"hits_top_k": hits("c", None)} for q in queries})
    verdicts = {}
    for better in ("neither", "higher"):
        own = metrics_in_config({"depth": {"expression": "MAX(rank)", "better": better}}, "kbeval.toml")
        report = compare(workspace, scoring=ScoreOptions(configured_metrics=own))
        verdicts[better] = verdict_sentence(report.whole)
        assert report.whole.significance["depth"].p < 0.001
        (row,) = [row for row in delta_table(report.whole)[1] if row[0] == "depth"]
        assert row[-1] == {"neither": "(differs?)", "higher": "better"}[better]
    assert verdicts["higher"].startswith("better in depth")
    assert verdicts["neither"].startswith("no detectable difference: too few queries changed to tell: 0 of 20 in mrr")
    assert "(differs?): likewise" not in legend(report.whole)


@pytest.mark.parametrize(
    ("labels", "headline"),
    [
        ({"expected_chunk_ids": ["c"], "expected_doc_ids": ["d1"]}, "mrr"),
        ({"expected_doc_ids": ["d1"], "must_contain": ["yes"]}, "recall_at_k_doc.10"),
        ({"must_contain": ["yes"]}, "groundedness_checked"),
        ({"answerable": False}, "refusal_correctness"),
        ({}, "empty_result_rate"),
    ],
)
def test_the_verdict_speaks_of_the_metric_that_the_labels_are_about(
    workspace: Workspace, labels: dict[str, Any], headline: str
) -> None:
    queries = [f"q{n}" for n in range(9)]
    workspace.add_golden(*({"id": q, **labels} for q in queries), {"id": "one", "expected_chunk_ids": ["c"]})
    rows = {q: {**ranking(1), "answer": answer("yes")} for q in queries}
    workspace.add_run("a", rows)
    workspace.add_run("b", {**rows, "q0": {"hits_top_k": [], "answer": answer("no")}})
    report = compare(workspace)
    assert report.verdict.metric == headline
    assert report.verdict.n == 9


def test_queries_of_the_finest_label_are_counted_not_those_that_a_metric_applies_to(workspace: Workspace) -> None:
    """Documents are expected everywhere, chunks in five queries of eight."""
    labels: list[dict[str, Any]] = [{"expected_doc_ids": ["d1"]} for _ in range(8)]
    for label in labels[:5]:
        label["expected_chunk_ids"] = ["c"]
    workspace.add_golden(*({"id": f"q{n}", **label} for n, label in enumerate(labels)))
    for run in ("a", "b"):
        workspace.add_run(run, {f"q{n}": ranking(1) for n in range(8)})
    assert compare(workspace).verdict.metric == "mrr"
    assert compare(workspace, only=("recall@5",)).verdict.metric == "recall_at_k_doc.5"


def test_deltas_for_people_are_rounded_once_and_those_for_programs_are_of_stored_numbers(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"], "category": "x"} for n in range(60)))
    for run, found in (("a", 44), ("b", 40)):
        workspace.add_run(run, {f"q{n}": ranking(1 if n < found else None) for n in range(60)})
    report = compare(workspace, scoring=ScoreOptions(by="category"))
    assert report.deltas["mrr"] == -0.0666
    assert report.slices["x"].deltas()["mrr"] == -0.0666
    (mrr,) = [row for row in delta_table(report.whole)[1] if row[0] == "mrr"]
    assert mrr[1:4] == [0.7333, 0.6667, "-0.0667"]
    assert "-0.0667" in slice_table(report)[1][0]
    assert "| mrr | 0.7333 | 0.6667 | -0.0667 |" in render_report_md(report)
    assert "-0.0666" not in render_report_md(report)
    assert "exact" not in report.aggregate_a.to_dict()


def test_a_delta_of_runs_with_other_queries_is_that_of_the_runs(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in range(7)))
    workspace.add_run("a", {f"q{n}": ranking(1 if n < 2 else None) for n in range(3)})
    workspace.add_run("b", {f"q{n}": ranking(1 if n < 5 else None) for n in range(7)})
    (mrr,) = [row for row in compare(workspace).whole.rows() if row.name == "mrr"]
    # 5/7 - 2/3 is 0.04762.
    assert (mrr.delta, mrr.exact_delta) == (0.0476, 0.0476)
    assert mrr.significance is not None
    assert mrr.significance.mean_delta == 0.3333


def test_numbers_that_neither_run_has_are_not_printed_unless_asked_for(
    fixed_pair: Workspace, fixed_report: CompareReport
) -> None:
    report = fixed_report
    names = [row[0] for row in delta_table(report.whole)[1]]
    assert "mrr" in names
    assert not {"cited", "grounded", "refused", "recall@5"} & set(names)
    assert not {"cited", "grounded"} & set(render_report_md(report).replace("|", " ").split())
    assert "citation_coverage" in report.to_dict()["deltas"]
    asked = compare(fixed_pair, "run-a", "run-b", only=("cited", "mrr"))
    assert [row[0] for row in delta_table(asked.whole, asked.shown)[1]] == ["mrr", "cited"]


def test_few_changes_are_reported_as_too_few_whatever_their_size(workspace: Workspace) -> None:
    """Four of forty-four move from a miss to the first rank: no test could tell, and no small size is promised."""
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c"]} for n in range(44)))
    workspace.add_run("a", {f"q{n}": ranking(2 if n > 3 else None) for n in range(44)})
    workspace.add_run("b", {f"q{n}": ranking(2 if n > 3 else 1) for n in range(44)})
    report = compare(workspace, only=("mrr",))
    assert (
        verdict_sentence(report.whole) == "no detectable difference: too few queries changed to tell: 4 of 44 in mrr;"
        " at least 6 would have to change in one direction"
    )
    detail = report.to_dict()["verdict_detail"]
    assert (detail["changed"], detail["needed"], detail["detectable"]) == (4, 6, None)


# --- groups of queries -------------------------------------------------------------------------------


@pytest.fixture
def paraphrased(workspace: Workspace) -> Workspace:
    """Eleven questions, ten of them in five words each; the first six are found in B alone, in any words."""
    labels = [
        {"id": f"q{n:02}-{words}", "group": f"g{n}", "expected_chunk_ids": ["c"], "category": "x" if n < 4 else "y"}
        for n in range(10)
        for words in range(5)
    ]
    # A group with the name of another query is still a different group.
    workspace.add_golden(*labels, {"id": "g0", "expected_chunk_ids": ["c"], "category": "y"})
    ids = [str(label["id"]) for label in labels]
    found = {query_id: ranking(1 if query_id < "q06" else 2) for query_id in ids}
    workspace.add_run("a", {"g0": ranking(2)} | {query_id: ranking(2) for query_id in ids})
    workspace.add_run("b", {"g0": ranking(2)} | found)
    return workspace


def test_queries_of_one_group_count_as_one(paraphrased: Workspace) -> None:
    mrr = compare(paraphrased, only=("mrr",)).to_dict()["significance"]["mrr"]
    assert (mrr["n"], mrr["changed"], mrr["clusters"], mrr["clusters_changed"]) == (51, 30, 11, 6)
    # Six of six groups, not thirty of thirty queries.
    assert (mrr["test"], mrr["p"], mrr["needed"]) == ("sign-flip", 0.0313, 6)


def test_the_number_of_groups_is_reported(paraphrased: Workspace) -> None:
    report = compare(paraphrased)
    hit = report.whole.significance["hit_at_k.1"]
    assert (hit.test, hit.p) == ("sign-flip", 0.0313)
    assert report.to_dict()["verdict_detail"]["clusters"] == 11
    assert (
        verdict_sentence(report.whole) == "no detectable difference: too few groups changed to tell: 6 of 11 in mrr;"
        " at least 7 would have to change in one direction"
    )
    assert "51 queries in 11 groups: a group counts as one" in legend(report.whole)
    columns, rows = delta_table(report.whole)
    assert [row[[column.title for column in columns].index("groups")] for row in rows if row[0] == "mrr"] == [11]
    (row,) = report.deltas_frame().filter(pl.col("metric") == "mrr").rows(named=True)
    assert (row["n"], row["clusters"]) == (51, 11)


def test_slices_have_groups_of_their_own_and_few_are_rough(paraphrased: Workspace) -> None:
    report = compare(paraphrased, scoring=ScoreOptions(by="category"), only=("mrr",))
    found = {name: part.significance["mrr"] for name, part in report.slices.items()}
    assert {name: (one.n, one.clusters, one.is_rough) for name, one in found.items()} == {
        "x": (20, 4, True),
        "y": (31, 7, True),
    }
    columns, rows = slice_table(report)
    assert [row[[column.title for column in columns].index("groups")] for row in rows] == [4, 7]
    # All of them moved by one half: there is no spread to see.
    intervals = [row[[column.name for column in columns].index("interval")] for row in rows]
    assert intervals[0] is None
    assert str(intervals[1]).startswith("~")
    assert verdict_sentence(report.slices["x"]).endswith("20 queries in 4 groups are too few to show a difference")
    assert "rough" not in legend(report.whole)
    assert "~: fewer than 10 queries or groups, so the interval is approximate" in legend(report.slices["y"])


def test_without_groups_none_are_mentioned(fixed_report: CompareReport) -> None:
    assert "in 3 groups" not in legend(fixed_report.whole)
    assert "groups" not in [column.title for column in delta_table(fixed_report.whole)[0]]


# --- may they be compared? ---------------------------------------------------------------------------


JUDGES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "settings of the judge": (
        {"judge_model": "m1", "judge_prompt_version": "1", "judge_temperature": 0},
        {"judge_model": "m2", "judge_prompt_version": "2", "judge_temperature": 0.7},
        ["judge model: m1 and m2", "judge prompt version: 1 and 2", "judge temperature: 0 and 0.7"],
    ),
    "a table of them": ({"judge": {"model": "m1"}}, {"judge": {"model": "m2"}}, ["judge model: m1 and m2"]),
}


def configure(workspace: Workspace, a: dict[str, Any], b: dict[str, Any]) -> None:
    for run, settings in (("run-a", a), ("run-b", b)):
        config = json.dumps({"chunker_version": "md@1", **settings})
        workspace.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = ?", (config, run))


@pytest.mark.parametrize("what", JUDGES)
def test_different_judges_are_refused_unless_asked(fixed_pair: Workspace, what: str) -> None:
    a, b, named = JUDGES[what]
    for key, said in zip(a, named, strict=True):  # each alone is enough
        configure(fixed_pair, {key: a[key]}, {key: b[key]})
        with pytest.raises(IncomparableError, match=said):
            compare(fixed_pair, "run-a", "run-b")
    configure(fixed_pair, a, b)
    report = compare(fixed_pair, "run-a", "run-b", ignore_invariants=True)
    assert {f"the runs differ in {said}" for said in named} <= set(report.warnings)


@pytest.mark.parametrize("key", ["golden_hash", "eval_set_commit_hash"])
def test_runs_made_for_different_golden_files_are_recomputed_with_a_warning(fixed_pair: Workspace, key: str) -> None:
    configure(fixed_pair, {key: "g1"}, {key: "g2"})
    report = compare(fixed_pair, "run-a", "run-b")
    assert any("made for different golden files" in text and "g1 and g2" in text for text in report.warnings)


def test_a_setting_that_only_one_run_states_does_not_prevent_a_comparison(fixed_pair: Workspace) -> None:
    config = json.dumps({"chunker_version": "md@1", "judge_model": "m", "judge_temperature": 0})
    fixed_pair.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = 'run-a'", (config,))
    assert compare(fixed_pair, "run-a", "run-b").verdict.n == 3


def test_runs_scored_with_different_golden_files_are_recomputed_with_a_warning(fixed_pair: Workspace) -> None:
    kbeval.store_scored(fixed_pair.score("run-a"), db=fixed_pair.db)
    entries = json.loads(fixed_pair.golden.read_text())
    fixed_pair.golden.write_text(json.dumps([*entries, {"id": "more", "query": "?"}]))
    kbeval.store_scored(fixed_pair.score("run-b"), db=fixed_pair.db)
    report = compare(fixed_pair, "run-a", "run-b")
    assert report.aggregate_a.ledger["golden"] == report.aggregate_b.ledger["golden"] == len(entries) + 1
    (said,) = [warning for warning in report.warnings if "golden file" in warning]
    assert said.startswith("run-a was last scored with another golden file: both runs are recomputed")
    assert str(fixed_pair.golden) in said
    kbeval.store_scored(fixed_pair.score(), db=fixed_pair.db)
    again = compare(fixed_pair, "run-a", "run-b")
    assert not any("golden file" in warning for warning in again.warnings)
    assert again.to_dict() == report.to_dict()


def test_unreadable_rows_stop_a_comparison_unless_asked(fixed_pair: Workspace) -> None:
    fixed_pair.execute("UPDATE eval_query_results SET result_json = '{' WHERE run_id = 'run-b' AND query_id = 'q-003'")
    with pytest.raises(BadRowsError, match="run run-b, query q-003"):
        compare(fixed_pair, "run-a", "run-b")
    report = compare(fixed_pair, "run-a", "run-b", skip_bad_rows=True)
    assert report.per_query[2].note == "miss in both; now errors"
    assert any("unreadable row counted as failed" in warning for warning in report.warnings)


def test_runs_without_rows_or_without_common_queries_say_so(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("a", {})
    workspace.add_run("b", {"q": ranking(1)})
    report = compare(workspace)
    assert report.verdict.metric is None
    assert any("no query in common" in warning for warning in report.warnings)
    # A has no value to differ from.
    assert report.deltas["mrr"] is None
