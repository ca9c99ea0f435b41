"""Kept chunk spans: what is kept, what it is used for years later, and processes that are killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kbeval
from kbeval.cli import run
from kbeval.compare.report import QueryComparison
from tests.support.workspace import Workspace, answer

Archived = dict[tuple[str, str], tuple[int, str]]


def place(start: int, end: int) -> list[dict[str, Any]]:
    return [{"kind": "line", "start": start, "end": end}]


def score(workspace: Workspace, *more: str) -> None:
    assert run(["score", "--all", "--db", str(workspace.db), "--golden", str(workspace.golden), *more]) == 0


def archived(workspace: Workspace) -> Archived:
    """Of each chunk and version: its spans and where they were seen."""
    rows = workspace.execute("SELECT chunk_id, chunker_version, source_spans_json, seen_in FROM kbeval_chunk_spans")
    return {(chunk, version): (json.loads(spans)[0]["start"], seen) for chunk, version, spans, seen in rows}


def per_query(workspace: Workspace) -> list[QueryComparison]:
    return list(kbeval.compare_runs("a", "b", db=workspace.db, golden=workspace.golden).per_query)


def fill(workspace: Workspace) -> Workspace:
    """Runs of two chunkers. The table holds the old chunks, only the hits of B know the new ones."""
    workspace.add_golden(
        {"id": "q1", "expected_chunk_ids": ["old-1"]},
        {"id": "q2", "expected_chunk_ids": ["old-2"]},
        {"id": "q3", "expected_chunk_ids": ["old-3"]},
    )
    workspace.add_document("d", "d.md")
    for number in range(1, 6):
        workspace.add_chunk(f"old-{number}", "d", place(10 * number - 9, 10 * number), "old@1")
    old = [{"chunk_id": f"old-{n}", "doc_id": "d"} for n in (1, 4, 3)]
    new = [{"chunk_id": f"new-{n}", "doc_id": "d", "source_spans": place(7 * n - 6, 7 * n)} for n in (1, 2, 3)]
    workspace.add_run("a", {f"q{n}": {"hits_top_k": old} for n in (1, 2, 3)}, chunker="old@1")
    workspace.add_run("b", {f"q{n}": {"hits_top_k": new} for n in (1, 2, 3)}, chunker="new@2")
    return workspace


@pytest.fixture
def two_chunkers(workspace: Workspace) -> Workspace:
    return fill(workspace)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[QueryComparison]]:
    """The same, scored, and what a comparison said before; the folder is only to be copied."""
    workspace = fill(Workspace(tmp_path_factory.mktemp("once")))
    before = per_query(workspace)
    score(workspace)
    return workspace.db.parent, before


@pytest.fixture
def scored(once: tuple[Path, list[QueryComparison]], workspace: Workspace) -> Workspace:
    for path in (workspace.db, workspace.golden):
        shutil.copy(once[0] / path.name, path)
    return workspace


def test_score_keeps_the_chunks_that_labels_and_hits_name(scored: Workspace) -> None:
    assert archived(scored) == {
        ("old-1", "old@1"): (1, "chunks"),
        ("old-2", "old@1"): (11, "chunks"),
        ("old-3", "old@1"): (21, "chunks"),
        ("old-4", "old@1"): (31, "chunks"),  # a hit of A
        ("new-1", "new@2"): (1, "hits"),
        ("new-2", "new@2"): (8, "hits"),
        ("new-3", "new@2"): (15, "hits"),
    }


def test_a_dry_run_keeps_nothing(two_chunkers: Workspace) -> None:
    score(two_chunkers, "--dry-run")
    assert two_chunkers.execute("SELECT name FROM sqlite_master WHERE name LIKE 'kbeval%'") == []


def test_scoring_again_changes_nothing(scored: Workspace) -> None:
    before = scored.execute("SELECT * FROM kbeval_chunk_spans ORDER BY 1, 2")
    stored = [scored.stored(run_id) for run_id in "ab"]
    score(scored)
    assert scored.execute("SELECT * FROM kbeval_chunk_spans ORDER BY 1, 2") == before
    assert [scored.stored(run_id) for run_id in "ab"] == stored


def test_a_chunk_that_the_table_now_has_elsewhere_is_kept_as_the_table_says(scored: Workspace) -> None:
    scored.execute("UPDATE chunks SET source_spans_json = ? WHERE chunk_id = 'old-1'", (json.dumps(place(2, 9)),))
    scored.add_chunk("new-1", "d", place(3, 7), "new@2")
    score(scored)
    assert archived(scored)["old-1", "old@1"] == (2, "chunks")
    assert archived(scored)["new-1", "new@2"] == (3, "chunks")


def emptied(workspace: Workspace) -> None:
    workspace.execute("DELETE FROM chunks")


def dropped(workspace: Workspace) -> None:
    workspace.execute("DROP TABLE chunks")


def replaced(workspace: Workspace) -> None:
    workspace.execute("DELETE FROM chunks")
    for number in range(1, 8):
        workspace.add_chunk(f"new-{number}", "d", place(7 * number - 6, 7 * number), "new@2")


def replaced_under_the_same_ids(workspace: Workspace) -> None:
    workspace.execute("DELETE FROM chunks")
    for number in range(1, 8):
        workspace.add_chunk(f"old-{number}", "d", place(100 + number, 100 + number), "new@2")


def test_a_stale_label_does_not_change_what_the_others_mean(two_chunkers: Workspace) -> None:
    entries = json.loads(two_chunkers.golden.read_text())
    two_chunkers.add_golden(*entries, {"id": "q4", "expected_chunk_ids": ["old-7"]})
    score(two_chunkers)
    before = per_query(two_chunkers)
    replaced_under_the_same_ids(two_chunkers)  # which contains an old-7
    assert per_query(two_chunkers)[:3] == before[:3]


def test_comparing_a_second_time_gives_what_it_gave_before_anything_was_kept(
    once: tuple[Path, list[QueryComparison]], scored: Workspace
) -> None:
    assert [(one.kind, one.a_hit_rank, one.b_hit_rank, one.matching) for one in once[1]] == [
        ("draw", 1, 1, "span"),
        ("win", None, 2, "span"),
        ("regression", 3, None, "span"),
    ]
    assert per_query(scored) == once[1]


@pytest.mark.parametrize("reindex", [emptied, dropped, replaced, replaced_under_the_same_ids])
def test_comparing_after_a_reindex_gives_what_it_gave_before(
    once: tuple[Path, list[QueryComparison]], scored: Workspace, reindex: Callable[[Workspace], None]
) -> None:
    reindex(scored)
    assert per_query(scored) == once[1]
    score(scored)
    assert per_query(scored) == once[1]


def test_without_an_archive_a_reindex_leaves_the_documents_to_decide(two_chunkers: Workspace) -> None:
    golden = json.loads(two_chunkers.golden.read_text())
    two_chunkers.add_golden(*({**entry, "expected_doc_ids": ["d"]} for entry in golden))
    emptied(two_chunkers)
    assert {one.matching for one in per_query(two_chunkers)} == {"doc"}


def test_citations_lead_to_chunks_that_were_real_once(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q"}, {"id": "r"})
    workspace.add_document("d", "d.md")
    workspace.add_chunk("c", "d", place(1, 10))
    cited = {"kind": "line", "path": "d.md", "start": 3, "end": 4}
    row = {"hits_top_k": [{"chunk_id": "c", "doc_id": "d"}], "answer": answer("x", cited)}
    workspace.add_run("a", {"q": row})
    score(workspace)
    assert json.loads(workspace.stored("a"))["citation_coverage"] == 1.0
    emptied(workspace)
    score(workspace)
    assert json.loads(workspace.stored("a"))["citation_coverage"] == 1.0


def test_spans_of_hits_alone_do_not_make_a_citation_valid(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q"})
    workspace.add_document("d", "d.md")
    cited = {"kind": "line", "path": "d.md", "start": 3, "end": 4}
    hit = {"chunk_id": "c", "doc_id": "d", "source_spans": place(1, 10)}
    workspace.add_run("a", {"q": {"hits_top_k": [hit], "answer": answer("x", cited)}})
    score(workspace)
    first = workspace.stored("a")
    score(workspace)
    assert workspace.stored("a") == first
    assert json.loads(first)["citation_coverage"] is None


DIE_WHILE_ARCHIVING = """
    import os, signal, sys
    from kbeval.database.connection import Database
    def executemany(self, sql, rows):
        for number, row in enumerate(rows):
            self.execute(sql, row)
            if number == 3:
                os.kill(os.getpid(), signal.SIGKILL)
    Database.executemany = executemany
    from kbeval.cli import run
    run(["score", "--all", "--db", sys.argv[1], "--golden", sys.argv[2]])
"""


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
@pytest.mark.parametrize("already", [False, True])
def test_a_process_killed_while_archiving_leaves_everything_whole(
    request: pytest.FixtureRequest, journal: str, already: bool
) -> None:
    two_chunkers: Workspace = request.getfixturevalue("scored" if already else "two_chunkers")
    two_chunkers.execute(f"PRAGMA journal_mode = {journal}")
    if already:
        two_chunkers.execute("DELETE FROM kbeval_chunk_spans WHERE chunk_id > 'old-1'")
        two_chunkers.execute("UPDATE chunks SET source_spans_json = ?", (json.dumps(place(5, 9)),))
    before = archived(two_chunkers) if already else None
    stored = [two_chunkers.stored(run_id) for run_id in "ab"]
    code = textwrap.dedent(DIE_WHILE_ARCHIVING)
    arguments = [sys.executable, "-c", code, str(two_chunkers.db), str(two_chunkers.golden)]
    assert subprocess.run(arguments, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert two_chunkers.execute("PRAGMA integrity_check") == [("ok",)]
    assert [two_chunkers.stored(run_id) for run_id in "ab"] == stored
    tables = two_chunkers.execute("SELECT name FROM sqlite_master WHERE name LIKE 'kbeval%'")
    assert (archived(two_chunkers) if tables else None) == before
    score(two_chunkers)
    assert len(archived(two_chunkers)) == 7


def test_ids_that_the_new_chunker_uses_again_are_foreign_too(
    scored: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced_under_the_same_ids(scored)
    capsys.readouterr()
    score(scored)
    assert "matched by document and span: 3 of 3 expected chunks are of old@1" in capsys.readouterr().err


def test_a_run_of_another_chunker_is_matched_by_span_unless_ids_are_asked_for(
    two_chunkers: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    score(two_chunkers, "--dry-run", "--match", "exact")
    err = capsys.readouterr().err
    assert "run b was made with chunker new@2, but 3 of 3 expected chunks are of old@1" in err
    assert "--match auto" in err
    score(two_chunkers)
    err = capsys.readouterr().err
    assert "kbeval: warning" not in err
    assert "run b (chunker new@2) is matched by document and span: 3 of 3 expected chunks are of old@1" in err
    stored = json.loads(two_chunkers.stored("b"))
    assert stored["mrr"] == 0.5
    assert stored["provenance"]["matching"] == "span"
    assert stored["ledger"]["matched"] == {"span": 3, "doc": 0}


def test_what_is_kept_of_a_run_without_a_named_chunker_changes_no_number(workspace: Workspace) -> None:
    """One of its hits names a version, and the expected one does not."""
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c1"]})
    where = {"doc_id": "d", "source_spans": place(1, 9)}
    hits = [{"chunk_id": "c1", **where}, {"chunk_id": "c2", "doc_id": "d", "chunker_version": "v1"}]
    workspace.add_run("b", {"q1": {"hits_top_k": hits}}, chunker="")
    workspace.add_run("c", {"q1": {"hits_top_k": [{"chunk_id": "x1", **where}]}}, chunker="v2")
    score(workspace)
    first = {run_id: workspace.stored(run_id) for run_id in "bc"}
    score(workspace, "--force")
    numbers = [{**json.loads(text), "evaluated_at": None} for text in first.values()]
    again = [{**json.loads(workspace.stored(run_id)), "evaluated_at": None} for run_id in "bc"]
    assert again == numbers
