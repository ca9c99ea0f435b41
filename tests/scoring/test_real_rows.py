"""Rows in the form in which real systems store them, and the numbers that they must give.

A knowledge-base workbench stores no `source_spans`: its hits cite the first block of their chunk, usually the heading,
and the table `chunks` has the position of the whole chunk. Chunk ids change with a chunking parameter while the chunker
keeps its name. Every number here is small enough to be checked by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import kbeval
from kbeval.cli import run
from tests.support.workspace import Workspace

# The guide has 60 lines. Small chunks have ten of them, large ones thirty.
SMALL = {f"s{number}": (10 * number - 9, 10 * number) for number in range(1, 7)}
LARGE = {"L1": (1, 30), "L2": (31, 60)}
PATH = "docs/guide.md"


def line(start: int, end: int) -> dict[str, Any]:
    return {"kind": "line", "start": start, "end": end}


def add_chunk(
    workspace: Workspace,
    chunk_id: str,
    *spans: Mapping[str, Any],
    version: str = "md@1",
    policy: str = "p1",
    doc: str = "guide",
    tokens: int = 100,
    text: str = "text",
) -> None:
    """A chunk as an index writes it, where the table has all of its columns."""
    workspace.execute(
        "INSERT INTO chunks (chunk_id, doc_id, text, heading_path_json, section_label, source_spans_json,"
        " token_estimate, chunker_version, policy_hash, block_ids_json, created_at)"
        " VALUES (?, ?, ?, '[]', NULL, ?, ?, ?, ?, '[]', '2026-01-01')",
        (chunk_id, doc, text, json.dumps(spans), tokens, version, policy),
    )


def index(workspace: Workspace, chunks: Mapping[str, tuple[int, int]], version: str, policy: str) -> None:
    for chunk_id, place in chunks.items():
        add_chunk(workspace, chunk_id, line(*place), version=version, policy=policy)


def index_without_policies(workspace: Workspace, chunks: Mapping[str, tuple[int, int]], version: str, _: str) -> None:
    """As an older index writes its chunks, whose table has four columns."""
    for chunk_id, place in chunks.items():
        workspace.execute(
            "INSERT INTO chunks VALUES (?, 'guide', ?, ?)", (chunk_id, json.dumps([line(*place)]), version)
        )


def cited(*chunk_ids: str, **more: Any) -> dict[str, Any]:
    """A workbench's row: each hit cites its chunk's first line, and states nothing else about its position."""
    places = {**SMALL, **LARGE}
    hits = [
        {
            "rank": rank,
            "chunk_id": chunk_id,
            "doc_id": "guide",
            "doc_path": PATH,
            "heading_path": ["Guide"],
            "snippet": "…",
            "score": 1 / rank,
            "citation": {"path": PATH, "section": None, **line(places[chunk_id][0], places[chunk_id][0])},
        }
        for rank, chunk_id in enumerate(chunk_ids, start=1)
    ]
    return {"hits_top_k": hits, "answer": None, "error": None, **more}


def add_labels(workspace: Workspace, **expected: str) -> None:
    workspace.add_golden(*({"id": query, "expected_chunk_ids": [chunk]} for query, chunk in expected.items()))


def add_old_run(workspace: Workspace, version: str | None = "md@1") -> None:
    """By hand: the answer of q1 at rank 2, of q2 at 2, of q3 at 1. MRR (1/2 + 1/2 + 1) / 3."""
    rows = {"q1": cited("s1", "s3"), "q2": cited("s6", "s5"), "q3": cited("s1", "s2")}
    add_run(workspace, "old", rows, version, created_at="2026-01-01")


def add_new_run(workspace: Workspace, version: str | None = "md@2") -> None:
    """By hand: the answer of q1 at rank 1, of q2 at 1, of q3 at 2. MRR (1 + 1 + 1/2) / 3."""
    rows = {"q1": cited("L1", "L2"), "q2": cited("L2", "L1"), "q3": cited("L2", "L1")}
    add_run(workspace, "new", rows, version, created_at="2026-02-01")


def add_run(
    workspace: Workspace, run_id: str, rows: Mapping[str, Any], version: str | None, *, created_at: str = "2026-01-01"
) -> None:
    workspace.add_run(run_id, rows, created_at=created_at)
    config = json.dumps({"eval_k": 10} if version is None else {"eval_k": 10, "chunker_version": version})
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = ?", (config, run_id))


def score(workspace: Workspace) -> None:
    """Scores and stores, which keeps the places of the chunks that labels and hits name."""
    assert run(["score", "--all", "--db", str(workspace.db), "--golden", str(workspace.golden)]) == 0


def compare(workspace: Workspace, a: str = "old", b: str = "new") -> kbeval.CompareReport:
    return kbeval.compare_runs(a, b, db=workspace.db, golden=workspace.golden)


def matched(workspace: Workspace, run_id: str, **options: Any) -> tuple[str, float]:
    """How the hits of a run were told right from wrong, and its MRR."""
    found = workspace.aggregate(run_id, **options)
    return found["provenance"]["matching"], found["mrr"]


def assert_true_numbers(workspace: Workspace) -> kbeval.CompareReport:
    """The ranks that `add_old_run` and `add_new_run` name, by `score` and by `compare`, which it returns."""
    scored = workspace.score().aggregates
    assert {name: (one.provenance["matching"], one.mrr) for name, one in scored.items()} == {
        "old": ("exact", 0.6667),
        "new": ("span", 0.8333),
    }
    report = compare(workspace)
    assert [(one.query_id, one.kind, one.a_hit_rank, one.b_hit_rank) for one in report.per_query] == [
        ("q1", "win", 2, 1),
        ("q2", "win", 2, 1),
        ("q3", "loss", 1, 2),
    ]
    assert report.matching == {"exact": 0, "span": 3, "doc": 0, "none": 0}
    assert report.chunker_version_match == "fallback_doc_span"
    assert (report.aggregate_a.mrr, report.aggregate_b.mrr) == (0.6667, 0.8333)
    assert (report.aggregate_a.hit_at_k[1], report.aggregate_b.hit_at_k[1]) == (0.3333, 0.6667)
    return report


@pytest.fixture
def guide(workspace: Workspace) -> Workspace:
    """A document, and questions labelled by its small chunks."""
    workspace.add_document("guide", PATH)
    add_labels(workspace, q1="s3", q2="s5", q3="s1")
    return workspace


# --- a citation that is the chunk's first block alone ----------------------------------------------------


def test_a_hit_stands_where_the_table_says_not_where_its_first_block_does(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    index(guide, LARGE, "md@2", "p1")
    add_old_run(guide)
    add_new_run(guide)
    assert_true_numbers(guide)


def test_after_reindexing_the_kept_places_say_where_the_old_chunks_stood(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    add_old_run(guide)
    score(guide)
    guide.execute("DELETE FROM chunks")
    index(guide, LARGE, "md@2", "p1")
    add_new_run(guide)
    assert_true_numbers(guide)
    score(guide)
    assert_true_numbers(guide)


def test_spans_in_a_row_take_precedence(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    index(guide, LARGE, "md@2", "p1")
    add_labels(guide, q1="s3", q3="s2")
    row = cited("L2", "L1")
    row["hits_top_k"][0]["source_spans"] = [line(21, 30)]
    row["hits_top_k"][1]["source_spans"] = []
    add_run(guide, "new", {"q1": row, "q3": row}, "md@2")
    # By hand: the first hit is the answer of q1, as it says; the second has the place that the table gives it.
    ranks = [one.b_hit_rank for one in compare(guide, "new", "new").per_query]
    assert ranks == [1, 2]


def test_a_citation_decides_where_nothing_else_is_known(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    add_new_run(guide)
    # By hand: L1 is cited by line 1, which is in the answer of q3 alone; L2 by line 31, which is in none.
    assert matched(guide, "new") == ("span", 0.1667)


# --- other ids under the same version name -------------------------------------------------------------


def both_in_the_table(workspace: Workspace) -> None:
    index(workspace, SMALL, "md@1", "p1")
    add_old_run(workspace)
    index(workspace, LARGE, "md@1", "p2")
    add_new_run(workspace, "md@1")


def replaced(workspace: Workspace) -> None:
    index(workspace, SMALL, "md@1", "p1")
    add_old_run(workspace)
    score(workspace)
    workspace.execute("DELETE FROM chunks")
    index(workspace, LARGE, "md@1", "p2")
    add_new_run(workspace, "md@1")


def replaced_without_policies(workspace: Workspace) -> None:
    workspace.execute("DROP TABLE chunks")
    workspace.execute("CREATE TABLE chunks (chunk_id TEXT, doc_id TEXT, source_spans_json TEXT, chunker_version TEXT)")
    index_without_policies(workspace, SMALL, "md@1", "")
    add_old_run(workspace)
    score(workspace)
    workspace.execute("DELETE FROM chunks")
    index_without_policies(workspace, LARGE, "md@1", "")
    add_new_run(workspace, "md@1")


@pytest.mark.parametrize("rechunk", [both_in_the_table, replaced, replaced_without_policies])
def test_ids_that_changed_with_a_parameter_are_recognised_under_one_version_name(
    guide: Workspace, rechunk: Callable[[Workspace], None]
) -> None:
    rechunk(guide)
    found = assert_true_numbers(guide).whole.significance
    # Numbers that count chunks decide nothing between chunks of other sizes, though their version has one name.
    assert not found["precision_at_k_chunk.5"].decides
    assert found["mrr"].decides
    again = compare(guide, "old", "old").whole.significance
    assert again["precision_at_k_chunk.5"].decides
    score(guide)
    assert_true_numbers(guide)


def test_a_new_policy_that_kept_the_ids_is_still_matched_by_id(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    add_old_run(guide)
    score(guide)
    guide.execute("UPDATE chunks SET policy_hash = 'p2'")
    assert matched(guide, "old") == ("exact", 0.6667)


# --- other axes than lines -----------------------------------------------------------------------------


def page(start: int, end: int) -> dict[str, Any]:
    return {"kind": "page", "page": 3, "char_start": start, "char_end": end}


def by_unit(kind: str, start: int, end: int) -> dict[str, Any]:
    return {"kind": kind, "start": start, "end": end}


Place = Mapping[str, Any]
# The place of a label, and of each hit its place and its citation; label and hits are of two chunkers.
AXES: dict[str, tuple[Place, list[tuple[Place, Place]]]] = {
    "a page that is cited without characters": (
        page(0, 400),
        [(page(600, 1000), {"kind": "page", "page": 3}), (page(0, 600), {"kind": "page", "page": 3})],
    ),
    **{
        f"{kind}s that are cited by line": (
            by_unit(kind, 0, 400),
            [(by_unit(kind, 800, 1600), line(30, 31)), (by_unit(kind, 0, 800), line(1, 1))],
        )
        for kind in ("byte", "char")
    },
}


def test_a_citation_is_not_the_place_of_a_hit_where_the_table_knows_better_on_any_axis(workspace: Workspace) -> None:
    """Each case is a query about a document of its own; by the table, the second hit is the right one."""
    rows = {}
    for name, (label, ranking) in AXES.items():
        path = f"{name}.md"
        workspace.add_document(name, path)
        add_chunk(workspace, f"label of {name}", label, doc=name)
        hits = []
        for rank, (place, citation) in enumerate(ranking, start=1):
            add_chunk(workspace, f"{name} {rank}", place, version="md@2", doc=name)
            hits.append({"chunk_id": f"{name} {rank}", "doc_id": name, "citation": {"path": path, **citation}})
        rows[name] = {"hits_top_k": hits}
    add_labels(workspace, **{name: f"label of {name}" for name in AXES})
    add_run(workspace, "new", rows, "md@2")
    assert matched(workspace, "new")[0] == "span"
    found = compare(workspace, "new", "new").per_query
    assert {one.query_id: (one.matching, one.b_hit_rank) for one in found} == dict.fromkeys(AXES, ("span", 2))


# --- the document of a hit -------------------------------------------------------------------------------


DOCUMENTLESS: list[dict[str, Any]] = [
    {"chunk_id": "s1"},
    {"chunk_id": "s1", "doc_id": ""},
    {"chunk_id": "unknown", "doc_path": PATH},
    {"chunk_id": "unknown", "citation": {"path": PATH, **line(1, 1)}},
    {"rank": 2, "doc_path": PATH},
]


def test_a_hit_without_a_document_has_the_one_that_the_tables_know(workspace: Workspace) -> None:
    workspace.add_document("guide", PATH)
    add_chunk(workspace, "s1", line(1, 10))
    workspace.add_golden({"id": "q", "expected_doc_ids": ["guide"]})
    for number, hit in enumerate(DOCUMENTLESS):
        rows = {"q": {"hits_top_k": [{"chunk_id": "other", "doc_id": "notes"}, hit]}}
        add_run(workspace, f"run{number}", rows, "md@1")
    score(workspace)
    before = [json.loads(workspace.stored(f"run{number}")) for number in range(len(DOCUMENTLESS))]
    # What was kept of the index knows it, too.
    workspace.execute("DELETE FROM chunks")
    after = workspace.score().aggregates
    for number, hit in enumerate(DOCUMENTLESS):
        for found in (before[number], after[f"run{number}"].to_dict()):
            assert found["recall_at_k_doc"] == {"1": 0.0, "3": 1.0, "5": 1.0, "10": 1.0}, hit


def test_the_document_that_a_hit_names_comes_before_that_of_its_chunk(workspace: Workspace) -> None:
    workspace.add_document("guide", PATH)
    add_chunk(workspace, "s1", line(1, 10))
    workspace.add_golden({"id": "q", "expected_doc_ids": ["guide"]})
    add_run(workspace, "run", {"q": {"hits_top_k": [{"chunk_id": "s1", "doc_id": "notes"}]}}, "md@1")
    assert workspace.aggregate()["recall_at_k_doc"]["10"] == 0.0


def test_hits_without_a_document_and_of_failed_rows_are_right_by_where_their_chunk_stands(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    index(guide, LARGE, "md@2", "p1")
    nameless = {"hits_top_k": [{"chunk_id": "L2"}, {"chunk_id": "L1"}]}
    for run_id, row in (("nameless", nameless), ("failed", cited("L2", "L1", error="no answer in time"))):
        add_run(guide, run_id, {"q1": row}, "md@2")
    scored = guide.score().aggregates
    assert {run_id: (one.provenance["matching"], one.mrr) for run_id, one in scored.items()} == {
        "nameless": ("span", 0.5),
        "failed": ("span", 0.5),
    }


# --- the chunker of a run --------------------------------------------------------------------------------


def test_the_hits_name_the_chunker_where_the_configuration_does_not(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    hit = {"chunk_id": "nobody-knows", "doc_id": "guide", "chunker_version": "md@2", "source_spans": [line(1, 30)]}
    add_run(guide, "new", {"q1": {"hits_top_k": [hit]}, "q2": {"hits_top_k": [hit]}}, None)
    assert matched(guide, "new") == ("span", 0.5)


def test_the_tables_name_the_chunker_where_neither_configuration_nor_hits_do(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    index(guide, LARGE, "md@2", "p1")
    add_old_run(guide, None)
    add_new_run(guide, None)
    assert_true_numbers(guide)


def test_kept_places_name_the_chunker_of_an_old_run_too(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    add_old_run(guide, None)
    score(guide)
    guide.execute("DELETE FROM chunks")
    index(guide, LARGE, "md@2", "p1")
    add_new_run(guide, None)
    assert_true_numbers(guide)


# --- what was asked for, and what cannot be done ------------------------------------------------------------


def test_either_way_of_matching_can_be_asked_for(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    index(guide, LARGE, "md@2", "p1")
    add_old_run(guide)
    add_new_run(guide)
    # Left to itself it is matched by span, as in `assert_true_numbers`.
    assert matched(guide, "new", match="exact") == ("exact", 0.0)
    assert matched(guide, "old", match="span") == ("span", 0.6667)


def test_labels_that_cannot_be_matched_are_left_out_with_a_warning(guide: Workspace) -> None:
    # The table contains the chunks of the run, the labels are not among them, and their position is unknown.
    index(guide, LARGE, "md@2", "p1")
    add_new_run(guide)
    scored = guide.score("new")
    aggregate = scored.aggregates["new"]
    assert aggregate.ledger["unmatched"] == 3
    for name in ("hit_at_k", "mrr", "precision_at_k_chunk"):
        assert aggregate.ledger["metrics"][name] == {"scored": 0, "not_applicable": 3}
    assert aggregate.value("mrr") is None
    assert any("new" in warning and "match" in warning for warning in scored.warnings)


def test_one_label_that_cannot_be_matched_does_not_lower_the_others(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    index(guide, LARGE, "md@2", "p1")
    add_labels(guide, q1="s3", q2="s5", q3="lost")
    add_new_run(guide)
    aggregate = guide.score("new").aggregates["new"]
    assert (aggregate.mrr, aggregate.ledger["unmatched"]) == (1.0, 1)
    assert aggregate.ledger["metrics"]["mrr"] == {"scored": 2, "not_applicable": 1}


def test_labels_whose_document_is_known_are_matched_by_it_where_no_place_is(guide: Workspace) -> None:
    index(guide, LARGE, "md@2", "p1")
    guide.add_golden({"id": "q1", "expected_chunk_ids": ["lost"], "expected_doc_ids": ["guide"]})
    hits = [{"chunk_id": "x", "doc_id": "notes"}, {"chunk_id": "L1", "doc_id": "guide"}]
    add_run(guide, "new", {"q1": {"hits_top_k": hits}}, "md@2")
    aggregate = guide.score("new").aggregates["new"]
    assert (aggregate.ledger["matched"]["doc"], aggregate.mrr) == (1, 0.5)


# --- rows with an error ------------------------------------------------------------------------------------


def test_the_hits_of_a_failed_row_count_and_a_failed_row_without_hits_is_a_miss(workspace: Workspace) -> None:
    workspace.add_golden(
        *({"id": query, "expected_chunk_ids": ["c"], "expected_doc_ids": ["d"]} for query in ("q1", "q2", "q3"))
    )
    hit = {"chunk_id": "c", "doc_id": "d"}
    rows = {
        "q1": {"hits_top_k": [hit], "error": "the language model timed out"},
        "q2": {"hits_top_k": [], "error": "the index is down"},
        "q3": {"error": {"kind": "timeout"}},
    }
    add_run(workspace, "run", rows, "md@1")
    found = workspace.aggregate()
    assert found["failed_queries"] == found["total_queries"] == 3
    assert found["mrr"] == found["hit_at_k"]["1"] == found["recall_at_k_doc"]["1"] == 0.3333
    assert found["empty_result_rate"] == 0.6667
    assert found["ledger"]["metrics"]["mrr"] == {"scored": 3, "not_applicable": 0}


# --- marks -------------------------------------------------------------------------------------------------


def row_of(out: str, run_id: str) -> str:
    (found,) = [row for row in out.splitlines() if row.split()[:1] == [run_id]]
    return found


def test_tables_and_show_mark_the_runs_that_were_matched_by_span(
    guide: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBEVAL_DB", str(guide.db))
    index(guide, SMALL, "md@1", "p1")
    index(guide, LARGE, "md@2", "p1")
    add_old_run(guide)
    add_new_run(guide)
    score(guide)
    tables = [capsys.readouterr().out]
    stored = json.loads(guide.stored("new"))
    assert (stored["provenance"]["matching"], stored["mrr"]) == ("span", 0.8333)
    assert json.loads(guide.stored("old"))["provenance"]["matching"] == "exact"
    assert run(["runs"]) == 0
    tables.append(capsys.readouterr().out)
    for out in tables:
        assert "span" in row_of(out, "new")
        assert "0.8333" in row_of(out, "new")
        assert "span" not in row_of(out, "old")
    assert run(["show", "new"]) == 0
    assert "span" in capsys.readouterr().out
    assert run(["show", "old"]) == 0
    assert "span" not in capsys.readouterr().out


@pytest.mark.parametrize("match", ["auto", "exact"])
def test_runs_whose_labels_are_all_spans_are_marked_as_matched_by_span(
    guide: Workspace, capsys: pytest.CaptureFixture[str], match: str
) -> None:
    index(guide, SMALL, "md@1", "p1")
    add_old_run(guide)
    place = {"doc_id": "guide", "kind": "line", "start": 1, "end": 2}
    guide.add_golden(*({"id": query, "expected_spans": [place]} for query in ("q1", "q2", "q3")))
    at = ["--db", str(guide.db), "--golden", str(guide.golden), "--match", match]
    assert run(["score", "--all", *at]) == 0
    assert " span " in row_of(capsys.readouterr().out, "old")
    assert json.loads(guide.stored("old"))["provenance"]["matching"] == "span"
    assert run(["show", "old", "--worst", "1", *at]) == 0
    assert "hits are matched by document and span" in capsys.readouterr().err
    assert run(["sql", "SELECT COUNT(*) FROM scores", *at]) == 0
    # The same way as in the stored numbers, so there is nothing to say.
    assert capsys.readouterr().err == ""
    # One label by id, and ids decide there.
    guide.add_golden(
        {"id": "q1", "expected_chunk_ids": ["s3"]},
        *({"id": query, "expected_spans": [place]} for query in ("q2", "q3")),
    )
    assert run(["score", "--all", *at]) == 0
    assert " id " in row_of(capsys.readouterr().out, "old")


# --- overlap -----------------------------------------------------------------------------------------------


def test_a_sliver_of_a_labelled_span_is_not_the_answer_though_it_is_one_of_a_labelled_chunk(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    sliver = {"chunk_id": "n1", "doc_id": "guide", "source_spans": [line(28, 29)]}
    half = {"chunk_id": "n2", "doc_id": "guide", "source_spans": [line(26, 35)]}
    add_run(guide, "new", {"q1": {"hits_top_k": [sliver, half]}}, "md@2")
    # By hand: all of the first hit is in s3 (lines 21 to 30), and 2 of its 10 lines; the second holds 5 of them.
    assert matched(guide, "new") == ("span", 1.0)
    guide.add_golden({"id": "q1", "expected_spans": [{"doc_id": "guide", **line(21, 30)}]})
    assert guide.aggregate("new")["mrr"] == 0.5
    assert guide.aggregate("new", overlap_of="smaller")["mrr"] == 1.0


# --- recall of chunks ----------------------------------------------------------------------------------------


def test_recall_of_chunks_by_id(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["a", "b", "c"]}, {"id": "r", "expected_doc_ids": ["d"]})
    hits = [{"chunk_id": chunk} for chunk in ("a", "x", "c", "a", "y", "b")]
    add_run(workspace, "run", {"q": {"hits_top_k": hits}, "r": {"hits_top_k": hits}}, "md@1")
    # By hand: a at 1, c at 3, b at 6, of three; the repeated a does not count again. r expects no chunks.
    found = workspace.aggregate()
    assert found["recall_at_k_chunk"] == {"1": 0.3333, "3": 0.6667, "5": 0.6667, "10": 1.0}
    assert found["ledger"]["metrics"]["recall_at_k_chunk"] == {"scored": 1, "not_applicable": 1}


def test_recall_of_chunks_by_span(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    index(guide, LARGE, "md@2", "p1")
    guide.add_golden({"id": "q", "expected_chunk_ids": ["s1", "s2", "s5"]})
    add_run(guide, "new", {"q": cited("L2", "L1")}, "md@2")
    # By hand: L2 holds s5, and L1 holds s1 and s2.
    found = guide.aggregate("new")
    assert found["recall_at_k_chunk"] == {"1": 0.3333, "3": 1.0, "5": 1.0, "10": 1.0}


# --- hits within a budget of text -------------------------------------------------------------------------------


def within(*values: float) -> dict[str, float]:
    return dict(zip(("500", "1000", "2000", "4000"), values, strict=True))


def test_hits_within_tokens_by_id(workspace: Workspace) -> None:
    queries = ("q1", "q2", "q3", "q4", "q5")
    workspace.add_golden(*({"id": query, "expected_chunk_ids": ["right"]} for query in queries))
    add_chunk(workspace, "right", line(1, 10), tokens=1500)
    add_chunk(workspace, "wrong", line(11, 20), tokens=200)

    def hit(chunk_id: str, **more: Any) -> dict[str, Any]:
        return {"chunk_id": chunk_id, "doc_id": "guide", **more}

    rankings = {
        "q1": [hit("wrong", token_count=400), hit("right", token_count=100)],  # 500: just within the first budget
        "q2": [
            hit("wrong"),
            hit("wrong"),
            hit("right"),
        ],  # 200 and 1,500, as the table says; a repeated chunk is read once
        "q3": [hit("unknown", text="x" * 2401), hit("right", token_count=0)],  # 600.25
        "q4": [hit("wrong")],  # nothing to find, whatever it costs
        "q5": [hit("unknown"), hit("right", token_count=1)],  # the size of what was read before is unknown
    }
    add_run(workspace, "run", {query: {"hits_top_k": hits} for query, hits in rankings.items()}, "md@1")
    # By hand, q1 to q4: 1 1 1 1, 0 0 1 1, 0 1 1 1, 0 0 0 0.
    found = workspace.aggregate()
    assert found["hit_within_tokens"] == within(0.25, 0.5, 0.75, 0.75)
    assert found["ledger"]["metrics"]["hit_within_tokens"] == {"scored": 4, "not_applicable": 1}


def test_hits_within_tokens_by_span(guide: Workspace) -> None:
    index(guide, SMALL, "md@1", "p1")
    add_chunk(guide, "L1", line(1, 30), version="md@2", tokens=900)
    add_chunk(guide, "L2", line(31, 60), version="md@2", tokens=600)
    add_new_run(guide)
    # By hand: q1 needs the 900 of L1, q2 the 600 of L2, q3 both.
    found = guide.aggregate("new")
    assert found["provenance"]["matching"] == "span"
    assert found["hit_within_tokens"] == within(0.0, 0.6667, 1.0, 1.0)


SIZED: list[tuple[dict[str, Any], int | None]] = [
    ({"token_count": 1500, "text": "short"}, 1500),
    ({"text": "x" * 6000}, 600),  # the table's estimate comes before the text
    ({"token_count": "many"}, 600),
    ({"chunk_id": "unknown", "text": "x" * 6000}, 1500),
    ({"chunk_id": "unknown", "text": "x" * 197 + "..."}, None),  # cut short: it says nothing about the chunk
    ({"chunk_id": "unknown"}, None),
]


def test_the_size_of_a_hit_is_its_token_count_or_estimated(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c", "unknown"]})
    add_chunk(workspace, "c", line(1, 10), tokens=600)
    for number, (hit, _) in enumerate(SIZED):
        rows = {"q": {"hits_top_k": [{"chunk_id": "c", "doc_id": "guide", **hit}]}}
        add_run(workspace, f"run{number}", rows, "md@1")
    scored = workspace.score().aggregates
    for number, (hit, tokens) in enumerate(SIZED):
        found = scored[f"run{number}"].to_dict()
        if tokens is None:
            assert "hit_within_tokens" not in found, hit
        else:
            budgets = (500, 1000, 2000, 4000)
            assert found["hit_within_tokens"] == within(*(float(tokens <= budget) for budget in budgets)), hit


def test_a_table_without_estimates_still_has_the_texts(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    add_chunk(workspace, "c", line(1, 10), text="x" * 2404)
    workspace.execute("ALTER TABLE chunks DROP COLUMN token_estimate")
    add_run(workspace, "run", {"q": {"hits_top_k": [{"chunk_id": "c", "doc_id": "guide"}]}}, "md@1")
    assert workspace.aggregate()["hit_within_tokens"] == within(0.0, 1.0, 1.0, 1.0)
