"""Ids that mean something else, hits that cannot be matched: true numbers or a doubt next to them, never a silent 0."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run as kbeval
from kbeval.compare.run import compare_runs
from kbeval.scoring.aggregate import score_runs
from kbeval.storage.archive_writer import archive_runs
from tests.support.workspace import Workspace, hits

LINES = 240


def chunk(number: int, size: int) -> tuple[str, list[dict[str, Any]]]:
    return f"d-{number:03}", [{"kind": "line", "start": number * size + 1, "end": (number + 1) * size}]


def index(workspace: Workspace, size: int, version: str = "fix@1") -> None:
    """Rebuild the index: chunks of this many lines, numbered from 0."""
    workspace.execute("DELETE FROM chunks")
    for number in range(LINES // size):
        name, spans = chunk(number, size)
        workspace.add_chunk(name, "d", spans, version)


def add_run(workspace: Workspace, run_id: str, size: int, version: str = "fix@1", *, spans: bool = True) -> None:
    """Every query finds the chunk that contains most of it, after another one; every fourth finds nothing."""
    rows = {}
    for number in range(12):
        right = (number * 12 + 6) // size
        other = (right + LINES // size // 2) % (LINES // size)
        found = [other] if number % 4 == 3 else [other, right]
        rows[f"q{number:02}"] = {
            "hits_top_k": [
                {"rank": rank, "chunk_id": name, "doc_id": "d", **({"source_spans": where} if spans else {})}
                for rank, (name, where) in enumerate((chunk(one, size) for one in found), start=1)
            ]
        }
    workspace.add_run(run_id, rows, chunker=version, created_at=f"2026-05-{ord(run_id[-1]) - 96:02}")


@pytest.fixture
def reindexed(workspace: Workspace) -> Callable[..., Workspace]:
    def make(*, spans: bool = True, scored: bool = True, version: str = "fix@1") -> Workspace:
        labels = ({"id": f"q{n:02}", "expected_chunk_ids": [f"d-{n:03}"]} for n in range(12))
        workspace.add_golden(*labels)
        workspace.add_document("d", "d.md")
        index(workspace, 12)
        add_run(workspace, "run-a", 12, spans=spans)
        if scored:
            assert score(workspace) == 0
        index(workspace, 20, version)
        add_run(workspace, "run-c", 20, version, spans=spans)
        return workspace

    return make


def score(workspace: Workspace, *more: str) -> int:
    return kbeval(["score", "--all", "--db", str(workspace.db), "--golden", str(workspace.golden), *more])


def check(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> tuple[int, set[str]]:
    capsys.readouterr()
    answer = kbeval(["check", "--db", str(workspace.db), "--golden", str(workspace.golden), "--format", "json"])
    return answer, {one["code"] for one in json.loads(capsys.readouterr().out) if one["level"] == "finding"}


def test_an_index_that_uses_ids_again_is_matched_by_text(
    reindexed: Callable[..., Workspace], capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = reindexed()
    answer, codes = check(workspace, capsys)
    assert answer == 1
    assert "reused-ids" in codes
    for _ in range(2):  # What is kept by the first scoring changes nothing.
        scored = workspace.score()
        found = {run: (one.provenance["matching"], one.mrr) for run, one in scored.aggregates.items()}
        # Nine of twelve find it at rank 2. What was there in the old index is there in the new one.
        assert found == {"run-a": ("exact", 0.375), "run-c": ("span", 0.375)}
        report = compare_runs("run-a", "run-c", db=workspace.db, golden=workspace.golden)
        assert report.verdict.answer != "worse"
        assert {one.kind for one in report.per_query} == {"draw"}
        assert score(workspace) == 0
    places = workspace.execute("SELECT COUNT(*) FROM kbeval_chunk_spans WHERE chunk_id = 'd-003'")
    assert places == [(2,)]


def test_ids_of_which_nothing_tells_what_they_mean_are_left_out_with_a_warning(
    reindexed: Callable[..., Workspace], capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = reindexed(spans=False)
    before = json.loads(workspace.stored("run-a"))["mrr"]
    scored = workspace.score()
    first, second = scored.aggregates["run-a"], scored.aggregates["run-c"]
    # It names chunks that are gone, so it is of the index before, as the labels are.
    assert (first.provenance["matching"], first.mrr) == ("exact", before)
    assert second.provenance["matching"] == "none"
    assert second.counts("mrr")["scored"] == 0
    assert any("run-c: 12 of 12 expected chunk ids refer to other text" in one for one in scored.warnings)
    assert "unclear-ids" in check(workspace, capsys)[1]


def test_labels_that_may_be_of_either_chunker_are_doubted(reindexed: Callable[..., Workspace]) -> None:
    scored = reindexed(scored=False, version="fix@2").score()
    assert any("run-a: its hits name" in one and "assumed to be chunks of fix@2" in one for one in scored.warnings)


def test_ids_used_again_by_an_index_that_was_never_scored_are_seen_where_hits_say_where_they_stand(
    reindexed: Callable[..., Workspace], capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = reindexed(scored=False)
    answer, codes = check(workspace, capsys)
    assert answer == 1
    assert "displaced-hits" in codes
    found = [one for one in workspace.score(match="span").warnings if "another position than the tables" in one]
    # The other run is of the index that is there now.
    assert len(found) == 1
    assert found[0].startswith("run run-a: ")
    # Without a position in the hit, this cannot be determined.
    altered(workspace, lambda hit: hit.pop("source_spans"))
    assert "displaced-hits" not in check(workspace, capsys)[1]


# What a hit says, and whether it can therefore not be the chunk of the table.
PLACED: list[tuple[dict[str, Any], bool]] = [
    ({"source_spans": [{"kind": "line", "start": 13, "end": 24}]}, False),
    # Part of the chunk, or the chunk with the text around it.
    ({"source_spans": [{"kind": "line", "start": 15, "end": 16}]}, False),
    ({"source_spans": [{"kind": "code", "line_start": 1, "line_end": 40}]}, False),
    ({"citation": {"kind": "line", "path": "d.md", "start": 13, "end": 13}}, False),
    # Another kind of position says nothing about this one.
    ({"source_spans": [{"kind": "byte", "start": 900, "end": 950}]}, False),
    ({"source_spans": [{"kind": "line", "start": 20, "end": 30}]}, True),
    ({"source_spans": [{"kind": "line", "start": 100, "end": 110}]}, True),
    ({"citation": {"kind": "line", "path": "d.md", "start": 70, "end": 70}}, True),
    ({"doc_id": "e"}, True),
    # Only where the tables know the other document is it another one, and not another name for it.
    ({"doc_id": "D"}, False),
]


def test_a_hit_that_cannot_be_the_chunk_of_the_table_is_told_from_one_that_can(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a run of its own."""
    monkeypatch.setattr("kbeval.explore.check._EXAMPLES", 100)
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_document("d", "d.md")
    workspace.add_chunk("c", "d", [{"kind": "line", "start": 13, "end": 24}])
    workspace.add_chunk("other", "e", [{"kind": "line", "start": 1, "end": 24}])
    for number, (said, _) in enumerate(PLACED):
        hit = {"rank": 1, "chunk_id": "c", "doc_id": "d"} | said
        workspace.add_run(f"run{number}", {"q": {"hits_top_k": [hit]}})
    kbeval(["check", "--db", str(workspace.db), "--golden", str(workspace.golden), "--format", "json"])
    (displaced,) = (one for one in json.loads(capsys.readouterr().out) if one["code"] == "displaced-hits")
    named = {example.split()[0].rstrip(":") for example in displaced["examples"]}
    for number, (said, is_displaced) in enumerate(PLACED):
        assert (f"run{number}" in named) == is_displaced, said
    # Documents are seen without another look at the rows, so scoring says it too.
    warned = [one for one in workspace.score().warnings if "in another document than in the tables" in one]
    (elsewhere,) = (number for number, (said, _) in enumerate(PLACED) if said == {"doc_id": "e"})
    assert [one.partition(":")[0] for one in warned] == [f"run run{elsewhere}"]


def test_labels_in_another_document_are_those_of_the_best_ranked_hit_and_the_first_is_always_the_same(
    workspace: Workspace,
) -> None:
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["b", "a"]}, {"id": "q2", "expected_chunk_ids": ["a"]})
    for chunk, doc in (("a", "d"), ("b", "d"), ("other", "e")):
        workspace.add_chunk(chunk, doc, [{"kind": "line", "start": 1, "end": 9}])

    def hit(rank: int, chunk: str, doc: str) -> dict[str, Any]:
        return {"rank": rank, "chunk_id": chunk, "doc_id": doc}

    workspace.add_run("two", {"q1": {"hits_top_k": [hit(1, "b", "e"), hit(2, "a", "e")]}})
    # Returned twice: the second in the list has the better rank, and it is in the right document, or in the wrong one.
    workspace.add_run("right", {"q2": {"hits_top_k": [hit(2, "a", "e"), hit(1, "a", "d")]}})
    workspace.add_run("wrong", {"q2": {"hits_top_k": [hit(2, "a", "d"), hit(1, "a", "e")]}})
    warned = [one for one in workspace.score().warnings if "in another document than in the tables" in one]
    assert [one.partition(" found")[0] for one in warned] == [
        "run two: 2 expected chunks (first a in query q1)",
        "run wrong: 1 expected chunk (first a in query q2)",
    ]


def test_pages_are_compared_by_their_number(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_chunk("c", "d", [{"kind": "page", "page": 3, "char_start": 10, "char_end": 90}])
    workspace.add_run("run", {"q": {"hits_top_k": [{"chunk_id": "c", "citation": {"kind": "page", "page": 3}}]}})
    assert "displaced-hits" not in check(workspace, capsys)[1]
    altered(workspace, lambda hit: hit["citation"].update(page=4))
    assert "displaced-hits" in check(workspace, capsys)[1]


def test_an_older_table_of_kept_spans_is_brought_up_to_date(reindexed: Callable[..., Workspace]) -> None:
    workspace = reindexed()
    workspace.execute_script(
        "ALTER TABLE kbeval_chunk_spans RENAME TO now; CREATE TABLE kbeval_chunk_spans (chunk_id TEXT NOT NULL,"
        " chunker_version TEXT NOT NULL, policy_hash TEXT NOT NULL DEFAULT '', doc_id TEXT, source_spans_json TEXT,"
        " tokens REAL, seen_in TEXT NOT NULL, first_seen TEXT NOT NULL,"
        " PRIMARY KEY (chunk_id, chunker_version, policy_hash));"
        " INSERT INTO kbeval_chunk_spans SELECT * FROM now; DROP TABLE now"
    )
    assert score(workspace) == 0
    assert json.loads(workspace.stored("run-c"))["mrr"] == 0.375
    assert workspace.execute("SELECT COUNT(*) FROM kbeval_chunk_spans WHERE chunk_id = 'd-003'") == [(2,)]


# --- hits that cannot be matched ---------------------------------------------------------------------


def altered(workspace: Workspace, change: Callable[[dict[str, Any]], object], run: str = "%") -> None:
    """Change every hit of a run, or of all."""
    for run_id, query_id, text in workspace.execute(
        "SELECT run_id, query_id, result_json FROM eval_query_results WHERE run_id LIKE ?", (run,)
    ):
        row = json.loads(text)
        for hit in row["hits_top_k"]:
            change(hit)
        workspace.execute(
            "UPDATE eval_query_results SET result_json = ? WHERE run_id = ? AND query_id = ?",
            (json.dumps(row), run_id, query_id),
        )


@pytest.fixture
def plain(workspace: Workspace) -> Workspace:
    workspace.add_golden(
        *({"id": f"q{n:02}", "expected_chunk_ids": [f"d-{n:03}"], "expected_doc_ids": ["d"]} for n in range(12))
    )
    workspace.add_document("d", "d.md")
    index(workspace, 12)
    add_run(workspace, "run-a", 12)
    return workspace


def test_hits_without_chunk_ids_are_matched_by_where_they_stand(plain: Workspace) -> None:
    altered(plain, lambda hit: hit.pop("chunk_id"))
    scored = plain.score()
    assert (scored.aggregates["run-a"].provenance["matching"], scored.aggregates["run-a"].mrr) == ("span", 0.375)
    assert scored.notes == ["run run-a is matched by document and span: most of its hits do not name a chunk"]


def test_hits_without_chunk_ids_and_places_are_matched_by_document_with_a_warning(plain: Workspace) -> None:
    altered(plain, lambda hit: (hit.pop("chunk_id"), hit.pop("source_spans")))
    assert any("12 of 12 queries (first q00) matched by document alone" in one for one in plain.score().warnings)


MISNAMED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "run-b": (
        lambda hit: hit.update(chunk_id=hit["chunk_id"] + " "),
        "names like 'd-000 ', labels like 'd-000', which differ",
    ),
    "run-c": (lambda hit: hit.update(doc_id="D"), "names like 'D', labels like 'd', which differ only in case"),
    "run-d": (lambda hit: hit.update(doc_id="other"), "names like 'other', labels like 'd')"),
    "run-e": (lambda hit: (hit.pop("doc_id"), hit.update(chunk_id="x")), "none of 21 hits names its document"),
}


def test_a_run_that_shares_no_id_with_the_labels_is_doubted(
    plain: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbeval.explore.check._EXAMPLES", 100)
    for run_id, (change, _) in MISNAMED.items():
        add_run(plain, run_id, 12)
        altered(plain, change, run_id)
    warnings = plain.score().warnings
    for run_id, (_, says) in MISNAMED.items():
        assert any(one.startswith(f"run {run_id}:") and says in one for one in warnings), (run_id, warnings)
    assert not any(one.startswith("run run-a:") for one in warnings)
    assert kbeval(["check", "--db", str(plain.db), "--golden", str(plain.golden), "--format", "json"]) == 1
    (found,) = (one for one in json.loads(capsys.readouterr().out) if one["code"] == "unknown-hits")
    assert found["level"] == "finding"
    named = " ".join(found["examples"])
    assert all(run_id in named for run_id in MISNAMED), named
    assert "run-a" not in named


def test_a_run_that_found_nothing_right_among_known_chunks_is_not_doubted(plain: Workspace) -> None:
    altered(plain, lambda hit: hit.update(chunk_id="d-019"))
    scored = plain.score()
    assert scored.aggregates["run-a"].mrr == 0
    assert scored.warnings == []


def test_single_rows_without_hits_or_chunks_are_named(
    plain: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for query_id, row in (
        ("q00", {}),
        ("q01", {"hits": hits("d-001")}),
        ("q02", {"hits_top_k": [{"rank": 1, "doc_id": "d"}]}),
        ("q04", {"hits_top_k": []}),
    ):
        plain.execute("UPDATE eval_query_results SET result_json = ? WHERE query_id = ?", (json.dumps(row), query_id))
    warnings = plain.score().warnings
    assert any("2 rows without 'hits_top_k' (first of query q00)" in one for one in warnings)
    assert any("1 of 14 hits do not name a chunk (first in query q02)" in one for one in warnings)
    assert {"row-without-hits", "hits-without-chunk"} <= check(plain, capsys)[1]
    # Also where no row is parsed.
    for _ in range(2):
        assert plain.score(cache="on").warnings == warnings
    archive_runs(plain.db, tmp_path / "archive")
    assert score_runs(tmp_path / "archive", plain.golden).warnings == warnings


def test_impossible_numbers_are_named(plain: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert "impossible-number" not in check(plain, capsys)[1]
    odd: tuple[tuple[str, dict[str, Any]], ...] = (
        ("q05", {"elapsed_ms": -5}),
        ("q06", {"tokens": {"total": -1}}),
        ("q07", {"cost_usd": -0.5}),
        ("q08", {"elapsed_ms": 1e308}),
        ("q09", {"elapsed_ms": 0, "tokens": 0, "cost_usd": 0}),
    )
    for query_id, fields in odd:
        row = json.dumps({"hits_top_k": hits("c"), **fields})
        plain.execute("UPDATE eval_query_results SET result_json = ? WHERE query_id = ?", (row, query_id))
    (said,) = (one for one in plain.score().warnings if "impossible" in one)
    assert "4 rows with an impossible time, cost or number of tokens (first of query q05): negative values" in said
    code, codes = check(plain, capsys)[:2]
    assert code == 1
    assert "impossible-number" in codes


def test_an_unreadable_configuration_is_named(plain: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    plain.execute("UPDATE eval_runs SET config_snapshot_json = '{broken'")
    assert any("its configuration cannot be read" in one for one in plain.score().warnings)
    assert "unreadable-config" in check(plain, capsys)[1]


# --- depth -------------------------------------------------------------------------------------------


def test_a_run_that_kept_fewer_hits_than_k_is_reported(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": [f"c{n}"]} for n in range(12)))
    deep = {}
    for n in range(12):
        ranking: list[str | None] = [None] * 10
        ranking[6 if n % 2 else 0] = f"c{n}"
        deep[f"q{n}"] = {"hits_top_k": hits(*ranking)}
    workspace.add_run("deep", deep)
    workspace.add_run("cut", {q: {"hits_top_k": row["hits_top_k"][:5]} for q, row in deep.items()})
    (warning,) = workspace.score("cut").warnings
    assert warning == "hit@10 of run cut equals hit@5: the run holds 5 hits per query at most"
    assert workspace.score("deep").warnings == []
    report = compare_runs("cut", "deep", db=workspace.db, golden=workspace.golden)
    assert any("run cut holds 5 hits per query and run deep up to 10" in one for one in report.warnings)


# --- empty answers -----------------------------------------------------------------------------------


def test_an_empty_answer_is_an_empty_response_unless_the_row_states_a_refusal(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": q, "answerable": False} for q in ("silent", "flagged", "refused")))
    workspace.add_run(
        "run",
        {
            "silent": {"hits_top_k": [], "answer": {"answer": ""}},
            "flagged": {"hits_top_k": [], "answer": {"answer": "", "grounded": True}},
            "refused": {"hits_top_k": [], "answer": {"answer": "", "grounded": False}},
        },
    )
    found = workspace.aggregate()
    assert (found["refusal_correctness"], found["empty_response_rate"]) == (0.6667, 0.6667)


# --- places in documents that nothing knows ------------------------------------------------------------


def spans_in(doc: str) -> list[dict[str, Any]]:
    return [{"doc_id": doc, "kind": "line", "start": 1, "end": 3}]


def test_a_zero_of_labels_by_place_that_could_not_be_matched_is_explained(workspace: Workspace) -> None:
    workspace.add_golden(
        {"id": "known", "expected_spans": spans_in("a.md")},
        {"id": "misnamed", "expected_spans": spans_in("notes/b.md")},
    )
    place = {"source_spans": [{"kind": "line", "start": 1, "end": 3}]}
    here, elsewhere = ({"rank": 1, "chunk_id": "c", "doc_id": doc, **place} for doc in ("a.md", "/data/a.md"))
    nameless = {"rank": 1, "chunk_id": "c"}
    for run_id, hit in (("good", here), ("other-names", elsewhere), ("no-names", nameless)):
        workspace.add_run(run_id, {query: {"hits_top_k": [hit]} for query in ("known", "misnamed")})
    warnings = workspace.score().warnings
    unmatched = [one for one in warnings if "could not be matched" in one]
    assert [one.partition(":")[0] for one in unmatched] == [
        (
            "expected_spans of 1 query (first misnamed) are in a document that occurs in no table and no hit"
            " (first 'notes/b.md')"
        ),
        "run no-names",
        "run other-names",
    ]
    assert "none of 2 hits names its document" in unmatched[1]
    assert "hits have names like '/data/a.md', labels like 'a.md'" in unmatched[2]
    report = compare_runs("good", "other-names", db=workspace.db, golden=workspace.golden)
    assert any("run other-names" in one and "could not be matched" in one for one in report.warnings)
