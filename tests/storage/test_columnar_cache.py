"""The columnar copy next to a database: rows are parsed once, and a changed row is never scored from an old copy."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kbeval.compare.options import CompareOptions
from kbeval.compare.run import compare_runs
from kbeval.engine.relations import relations
from kbeval.explore.explorer import open_explorer
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.parts import ALWAYS, ELSEWHERE, MORE
from kbeval.storage.source import open_source
from kbeval.systems.anchors import read_folder
from kbeval.systems.writing import write_runs
from tests.support.caching import (
    DIGESTS,
    HALF_DONE,
    NOTHING,
    QUERIES,
    RIGHT,
    ROWS,
    WRONG,
    CachedWorkspace,
    changed_copy,
    holding_open,
    remake,
    row,
    times_put_back,
    update,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def cached(tmp_path: Path) -> CachedWorkspace:
    return CachedWorkspace(tmp_path)


# --- parsed once ---------------------------------------------------------------------------------------


def test_rows_are_parsed_once(cached: CachedWorkspace) -> None:
    assert cached.reads() == ROWS
    assert cached.reads() == NOTHING
    steps: list[str] = []
    cached.score("run2", cache="on", on_step=steps.append)
    assert not [step for step in steps if "results" in step and "reading" in step]
    assert len(cached.parts()) == 1


def test_what_only_spans_need_is_parsed_when_it_is_first_asked_for_and_then_kept(cached: CachedWorkspace) -> None:
    cached.settle()
    assert cached.reads("hit_claims") == ROWS
    assert cached.reads("hit_claims") == NOTHING
    assert cached.reads() == NOTHING
    assert cached.facts("on", "hit_claims").text == cached.facts("off", "hit_claims").text


def test_only_runs_that_are_new_are_parsed(cached: CachedWorkspace) -> None:
    cached.settle()
    cached.add_run("run4", {"q1": row(WRONG), "q2": "broken"})
    steps: list[str] = []
    assert cached.numbers("on", on_step=steps.append) == cached.numbers("off")
    assert "reading results" in steps
    found = [json.loads((part / "part.json").read_text()) for part in cached.parts()]
    assert [set(part["runs"]) for part in found if "run4" in part["runs"]] == [{"run4"}]
    assert {run for part in found for run in part["runs"]} == {"run1", "run2", "run3", "run4"}
    assert cached.reads() == NOTHING


@pytest.mark.parametrize("options", [{}, {"match": "span", "by": "category"}], ids=str)
def test_numbers_from_the_copy_are_those_of_the_rows(cached: CachedWorkspace, options: dict[str, Any]) -> None:
    cached.execute(*update(query="q2"))
    cached.add_run("odd", {"q1": "not json", "q2": {"error": "timeout"}, "new": {}, "q3": row("c'\"é")}, chunker="md@2")
    plain = cached.numbers("off", **options)
    assert [cached.numbers("on", **options) for _ in range(2)] == [plain] * 2
    # Half from the copy, half from rows.
    cached.add_run("more", dict.fromkeys(QUERIES, row(WRONG)))
    assert cached.numbers("on", **options) == cached.numbers("off", **options)


def test_comparing_from_the_copy_gives_the_same_report(cached: CachedWorkspace) -> None:
    cached.change(run="run2")
    cached.add_run("rechunked", dict.fromkeys(QUERIES, row("c7")), chunker="md@2")
    # The second time, what the first has kept is there from the beginning.
    for other, caches in (("rechunked", ("off", "on", "on")), ("run2", ("off", "on"))):
        reports = [
            compare_runs(
                "run1",
                other,
                db=cached.db,
                golden=cached.golden,
                options=CompareOptions(scoring=ScoreOptions(cache=cache), resamples=200),
            ).to_json()
            for cache in caches
        ]
        assert reports == [reports[0]] * len(caches), other


def test_everything_else_is_made_from_what_is_in_a_copy() -> None:
    """Where rows are not parsed, what reads them would find nothing, and say nothing."""
    parsed = {"stored_results", "parsed", "parsed_hits"}
    readers = {name for name, relation in relations().items() if relation.reads & parsed}
    # `hits` has the ranks that `tied_ranks` makes.
    assert readers - parsed <= {*ALWAYS, *MORE, *ELSEWHERE[""], "tied_ranks"}


def test_questions_in_sql_are_answered_from_the_copy(cached: CachedWorkspace) -> None:
    cached.settle()
    cached.add_run("run4", {"q1": row(WRONG), "q2": "broken"})
    for question in (
        "SELECT run_id, query_id, chunk_id, rank FROM hits JOIN results AS r USING (result_no) ORDER BY ALL",
        "SELECT run_id, query_id, metric, k, value FROM scores ORDER BY ALL",
        "SELECT run_id, answer FROM results LEFT JOIN answers USING (result_no) ORDER BY ALL",
    ):
        answers = []
        for cache in ("off", "on", "on"):
            with open_explorer(cached.db, cached.golden, ScoreOptions(cache=cache)) as explorer:
                answers.append(explorer.query(question).rows())
        assert answers[0]
        assert answers[0] == answers[1] == answers[2]


def test_rows_of_the_anchor_system_come_back_whole_from_the_copy(tmp_path: Path) -> None:
    cached = CachedWorkspace(tmp_path)
    write_runs(cached.db, [read_folder(FIXTURES / "anchors" / "2026-03-05-hybrid")])
    shutil.copy(FIXTURES / "anchors" / "golden.yaml", tmp_path / "golden.yaml")
    cached.golden = tmp_path / "golden.yaml"
    plain = cached.numbers("off")
    assert "support_recall_any_at_k" in plain
    assert [cached.numbers("on") for _ in range(2)] == [plain] * 2
    assert cached.reads("anchor_rows") == NOTHING


def test_a_folder_whose_name_looks_like_a_column_is_a_folder(tmp_path: Path) -> None:
    place = tmp_path / "rank=7" / "run_id=x"
    place.mkdir(parents=True)
    cached = CachedWorkspace(place, "it's [a] *kb?.db")
    plain = cached.facts("off", "hit_claims").text
    assert [cached.facts("on", "hit_claims").text for _ in range(3)] == [plain] * 3
    assert cached.reads("hit_claims") == NOTHING


# --- changes -------------------------------------------------------------------------------------------


def with_time_put_back(cached: CachedWorkspace) -> None:
    seen = cached.db.stat()
    cached.change()
    times_put_back(cached.db, seen)
    assert (cached.db.stat().st_mtime_ns, cached.db.stat().st_size) == (seen.st_mtime_ns, seen.st_size)


def past_sqlite(cached: CachedWorkspace) -> None:
    seen = cached.db.stat()
    content = cached.db.read_bytes()
    place = content.index(b'"chunk_id": "c1"')
    with cached.db.open("r+b") as file:
        file.seek(place)
        file.write(b'"chunk_id": "c9"')
    times_put_back(cached.db, seen)


def replaced(cached: CachedWorkspace) -> None:
    changed_copy(cached).replace(cached.db)


def overwritten_with_time_put_back(cached: CachedWorkspace) -> None:
    seen = cached.db.stat()
    other = changed_copy(cached)
    times_put_back(other, seen)
    shutil.copy2(other, cached.db)
    now = cached.db.stat()
    assert (now.st_ino, now.st_size, now.st_mtime_ns) == (seen.st_ino, seen.st_size, seen.st_mtime_ns)


def moved_between_queries(cached: CachedWorkspace) -> None:
    cached.execute("UPDATE eval_query_results SET query_id = 'new' WHERE run_id = 'run1' AND query_id = 'q1'")


def deleted(cached: CachedWorkspace) -> None:
    cached.execute("DELETE FROM eval_query_results WHERE run_id = 'run1' AND query_id = 'q1'")


def made_again(cached: CachedWorkspace) -> None:
    remake(cached, "run1", dict.fromkeys(QUERIES, row(WRONG)))


def exclusively(cached: CachedWorkspace) -> None:
    """SQLite counts the changes of such a connection once."""
    with closing(sqlite3.connect(cached.db, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        for chunk_id in ("c3", WRONG):
            connection.execute(*update(chunk_id))


def under_another_name(cached: CachedWorkspace) -> None:
    other = cached.db.with_name("link.db")
    other.hardlink_to(cached.db)
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute(*update())


def with_journal(mode: str) -> Callable[[CachedWorkspace], None]:
    def change(cached: CachedWorkspace) -> None:
        with closing(sqlite3.connect(cached.db, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA journal_mode = {mode}")
            connection.execute(*update())

    change.__name__ = f"with journal {mode}"
    return change


CHANGES = [
    CachedWorkspace.change,
    with_time_put_back,
    past_sqlite,
    replaced,
    overwritten_with_time_put_back,
    moved_between_queries,
    deleted,
    made_again,
    exclusively,
    under_another_name,
    *map(with_journal, ("PERSIST", "TRUNCATE", "MEMORY", "OFF", "WAL")),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_row_is_never_scored_from_an_old_copy(
    cached: CachedWorkspace, change: Callable[[CachedWorkspace], None]
) -> None:
    before = cached.settle()
    change(cached)
    assert cached.right() != before
    assert cached.reads() == NOTHING


def test_rows_that_change_places_are_other_rows(cached: CachedWorkspace) -> None:
    cached.change()
    before = cached.settle()
    cached.execute(
        "UPDATE eval_query_results SET query_id = CASE query_id WHEN 'q1' THEN 'q2 ' ELSE 'q1 ' END"
        " WHERE run_id = 'run1' AND query_id IN ('q1', 'q2')"
    )
    cached.execute("UPDATE eval_query_results SET query_id = TRIM(query_id)")
    assert cached.right() != before


def test_rows_that_change_runs_are_other_rows(cached: CachedWorkspace) -> None:
    cached.change()
    before = cached.settle()
    for old, new in (("run1", "x"), ("run2", "run1"), ("x", "run2")):
        cached.execute("UPDATE eval_query_results SET run_id = ? WHERE run_id = ?", (new, old))
    assert cached.right() != before


def test_a_row_written_in_two_steps_of_one_moment_counts_as_it_is_last(cached: CachedWorkspace) -> None:
    """Each write may have the time of the one before it, and of the scoring."""
    for chunk_id in (WRONG, RIGHT, WRONG):
        cached.change("c3")
        cached.facts("on")
        cached.change(chunk_id)
        assert cached.right()


def vacuumed(cached: CachedWorkspace) -> None:
    cached.execute("DELETE FROM eval_query_results WHERE run_id = 'run1'")
    for query in QUERIES:
        cached.execute("INSERT INTO eval_query_results VALUES ('run1', ?, ?)", (query, json.dumps(row(RIGHT))))
    cached.execute("VACUUM")


def made_again_alike(cached: CachedWorkspace) -> None:
    remake(cached, "run1", dict.fromkeys(reversed(QUERIES), row(RIGHT)))


@pytest.mark.parametrize("change", [vacuumed, made_again_alike], ids=lambda change: change.__name__)
def test_the_same_rows_stored_otherwise_are_not_parsed_again(
    cached: CachedWorkspace, change: Callable[[CachedWorkspace], None]
) -> None:
    cached.settle()
    change(cached)
    assert cached.reads() == DIGESTS
    assert cached.reads() == NOTHING
    assert cached.right()


def test_a_backup_that_is_put_back_is_scored_as_it_is(cached: CachedWorkspace) -> None:
    first = cached.settle()
    backup = cached.db.with_name("backup.db")
    shutil.copy2(cached.db, backup)
    cached.change()
    second = cached.settle()
    assert second != first
    shutil.copy2(backup, cached.db)
    assert cached.right() == first
    cached.change()
    assert cached.right() == second


def test_a_copy_left_behind_says_nothing_about_the_next_database_of_that_name(cached: CachedWorkspace) -> None:
    before = cached.settle()
    moved = cached.db.rename(cached.db.with_name("moved.db"))
    shutil.copy2(moved, cached.db)
    cached.change()
    assert cached.right() != before
    moved.replace(cached.db)
    assert cached.right() == before


def test_two_databases_in_one_folder_have_a_copy_each(tmp_path: Path) -> None:
    one, other = CachedWorkspace(tmp_path, "one.db"), CachedWorkspace(tmp_path, "other.db")
    other.change()
    found = [one.settle(), other.settle(), one.right(), other.right()]
    assert found[0] == found[2] != found[1] == found[3]
    # Even one that was carried over to the other is right: what is in it is true of its own rows.
    shutil.rmtree(other.folder)
    shutil.copytree(one.folder, other.folder)
    assert other.right() == found[1]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_database_behind_a_link_is_the_one_that_the_link_leads_to(cached: CachedWorkspace, mode: str) -> None:
    """SQLite keeps its log next to the file itself, and that is where writers are seen."""
    cached.execute(f"PRAGMA journal_mode = {mode}")
    real = cached.db
    (real.parent / "links").mkdir()
    cached.db = real.parent / "links" / "kb.db"
    cached.db.symlink_to(real)
    before = cached.settle()
    with holding_open(real) as writer:
        cached.facts("on")
        writer.execute(*update())
        assert cached.right() != before
        writer.execute(*update(RIGHT))
        assert cached.right() == before
    assert not cached.folder.exists()
    other = changed_copy(cached)
    cached.db.unlink()
    cached.db.symlink_to(other)
    assert cached.right() != before


def test_a_writer_killed_in_mid_write_has_written_nothing(cached: CachedWorkspace) -> None:
    before = cached.settle()
    with holding_open(cached.db, *HALF_DONE):
        seen = cached.db.stat()
    # It had begun to write into the database itself.
    assert seen.st_size > 500_000
    assert Path(f"{cached.db}-journal").stat().st_size > 0
    assert cached.right() == before
    # The first look saw an unfinished write, the second a state that nothing was known about.
    assert [cached.reads() for _ in range(2)] == [DIGESTS, NOTHING]


def test_a_view_is_looked_at_each_time(cached: CachedWorkspace) -> None:
    """What it shows may change while no file does."""
    cached.execute("ALTER TABLE eval_query_results RENAME TO kept_rows")
    cached.execute("CREATE VIEW eval_query_results AS SELECT run_id, query_id, result_json FROM kept_rows")
    assert cached.reads() == ROWS
    assert cached.reads() == DIGESTS
    assert cached.right()


def test_what_is_read_after_a_pause_is_not_kept_as_what_was_read_before(cached: CachedWorkspace) -> None:
    """Between two questions others may write; spans of new rows must not be kept as those of old ones."""
    cached.settle()
    with open_source(cached.db, ScoreOptions(cache="on")) as (session, source):
        source.feed(session, ["run1"])
        session.need("hits")
        source.release()
        text = json.dumps(row(RIGHT)).replace('"start": 1,', '"start": 3,')
        cached.execute("UPDATE eval_query_results SET result_json = ? WHERE query_id = 'q1'", (text,))
        assert not source.resume()
        session.need("hit_claims")
    cached.execute("UPDATE eval_query_results SET result_json = ? WHERE query_id = 'q1'", (json.dumps(row(RIGHT)),))
    assert cached.facts("on", "hit_claims").text == cached.facts("off", "hit_claims").text


def test_a_write_between_two_questions_is_seen_though_its_time_was_put_back(cached: CachedWorkspace) -> None:
    question = "SELECT COUNT(*) FROM hits WHERE chunk_id = 'c1'"
    with open_explorer(cached.db, cached.golden, ScoreOptions(cache="on")) as explorer:
        before = explorer.query(question).rows()
        explorer.release()
        with_time_put_back(cached)
        assert explorer.query(question).rows() != before
