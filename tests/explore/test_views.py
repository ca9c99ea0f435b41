"""Views over many runs, on a database whose answers were worked out by hand; and `compare` as a table."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbeval
from kbeval.compare.options import CompareOptions
from kbeval.engine.relations import definitions, relations, sql_folder
from kbeval.engine.session import Session
from kbeval.explore import views
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import Scoring, open_scoring
from kbeval.storage.run_config import config_diff, config_of, settings_of
from kbeval.storage.runs import Run
from tests.support.workspace import Row, Workspace, answer

VIEWS = sorted(path.stem for path in (sql_folder() / "views").glob("*.sql"))
NOW, ONCE, NEVER = "now", "once", "never"


@contextmanager
def opened(workspace: Workspace, *runs: str, **options: Any) -> Iterator[Scoring]:
    with open_scoring(workspace.db, workspace.golden, runs or None, ScoreOptions(**options), lazily=True) as scoring:
        yield scoring


def rows(workspace: Workspace, relation: str, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    with opened(workspace, **options) as scoring:
        scoring.session.need(relation)
        return scoring.session.rows(sql)


def found(*hits: str, **more: Any) -> dict[str, Any]:
    """A row with these hits, each `chunk@document`, or `chunk@` where the hit does not name its document."""
    parts = (hit.partition("@") for hit in hits)
    listed = [{"rank": rank, "chunk_id": c, "doc_id": d or None} for rank, (c, _, d) in enumerate(parts, start=1)]
    return {"hits_top_k": listed, **more}


def add(
    workspace: Workspace,
    run_id: str,
    suite: str,
    day: int,
    results: Mapping[str, Row],
    *,
    config: Any = None,
    stored: Any = "",
) -> None:
    workspace.add_run(run_id, results, created_at=f"2026-01-0{day}")
    config = {"chunker_version": "md@1"} if config is None else config
    texts = [value if isinstance(value, str) else json.dumps(value) for value in (config, stored)]
    workspace.execute(
        "UPDATE eval_runs SET suite = ?, config_snapshot_json = ?, aggregate_json = ? WHERE run_id = ?",
        (suite, *texts, run_id),
    )


@pytest.fixture(scope="module")
def made_many(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The database of `many`, made once; read-only."""
    return make_many(Workspace(tmp_path_factory.mktemp("many")))


@pytest.fixture(scope="module")
def of_many(made_many: Workspace) -> Iterator[Session]:
    """One session over it, which builds each view once."""
    with opened(made_many) as scoring:
        yield scoring.session


@pytest.fixture
def many(made_many: Workspace, tmp_path: Path) -> Workspace:
    """A copy of it, to open or to change."""
    for file in (made_many.db, made_many.golden):
        shutil.copy(file, tmp_path)
    return Workspace(tmp_path)


def asked(session: Session, relation: str, sql: str) -> list[tuple[Any, ...]]:
    session.need(relation)
    return session.rows(sql)


def make_many(workspace: Workspace) -> Workspace:
    """Two suites; runs at the same moment, failed, unreadable and missing rows, repeated hits, no label, no version."""
    workspace.add_golden(
        {"id": "q1", "expected_chunk_ids": ["c1"], "expected_doc_ids": ["d1"]},
        {"id": "q2", "expected_chunk_ids": ["c2"]},
        {"id": "q3", "expected_doc_ids": ["d3"]},
        {"id": "q4", "expected_chunk_ids": ["c4"], "expected_doc_ids": ["d4"], "category": "hard"},
        {"id": "q5"},
        {"id": "q6", "expected_chunk_ids": ["c6"]},
    )
    for doc in ("d0", "d1", "d2", "d9"):
        workspace.add_document(doc, f"{doc}.md")
    for chunk, doc in (("c1", "d1"), ("c2", "d2"), ("c9", "d9")):
        workspace.add_chunk(chunk, doc, [])
    workspace.execute_script((sql_folder() / "schema/kbeval_chunk_spans.sql").read_text())
    workspace.execute(
        "INSERT INTO kbeval_chunk_spans (chunk_id, chunker_version, doc_id, source_spans_json, seen_in, first_seen)"
        " VALUES ('old1', 'md@0', 'd1', '[]', 'chunks', '2025')"
    )
    counts = {"metrics": {"mrr": {"scored": 4, "not_applicable": 1}}}
    made_with = {"metrics": "m1", "golden": "g1", "matching": "exact"}
    add(
        workspace,
        "n1",
        "nightly",
        1,
        {
            "q1": found("c1@d1", elapsed_ms=10),
            "q2": found("x@d9", "c2@d2", elapsed_ms=5),
            "q3": found("y@d3"),
            "q4": found("z@d4"),
            "q5": found("x@d9"),
        },
        stored={"mrr": 0.7, "hit_at_k": {"1": 0.25, "5": 0.75}, "ledger": counts, "provenance": made_with},
    )
    # Made at the same moment as n2, stored before it: the id decides.
    add(
        workspace,
        "n3",
        "nightly",
        2,
        {
            "q1": found("c1@d1", elapsed_ms=20),
            "q2": found("x@d9", "z@d4", "c2@d2"),
            "q4": found("x@d9", "z@d4"),
        },
        config={},
        stored={"mrr": 0.4, "hit_at_k": {"1": 0.25}, "provenance": {**made_with, "golden": "g2"}},
    )
    add(
        workspace,
        "n2",
        "nightly",
        2,
        {
            "q1": found(error="timeout", elapsed_ms=50),
            "q2": found("c2@d2", "c2@d2", elapsed_ms=1e30),
            "q3": found("y@dx"),
            "q5": found(),
        },
    )
    add(
        workspace,
        "n4",
        "nightly",
        3,
        {"q1": "not json", "q3": found("c1@", "y@d3"), "stray": found("c1@d1")},
        stored="not json",
    )
    add(workspace, "w1", "weekly", 2, {"q1": found("c1@d1"), "q2": found("x@d9")}, stored={"mrr": 0.1})
    add(
        workspace,
        "w2",
        "weekly",
        4,
        {"q1": found("x@d9", "c1@d1", elapsed_ms=40), "q2": found("c2@d2")},
        stored={"mrr": 0.3},
    )
    return workspace


# --- each view, by hand ------------------------------------------------------------------------------


def test_runs_follow_each_other_within_a_suite_by_time_and_then_by_id(of_many: Session) -> None:
    order = asked(of_many, "run_order", "SELECT run_id, run_no, previous_run_id FROM run_order ORDER BY suite, run_no")
    assert order == [
        ("n1", 1, None),
        ("n2", 2, "n1"),
        ("n3", 3, "n2"),
        ("n4", 4, "n3"),
        ("w1", 1, None),
        ("w2", 2, "w1"),
    ]


def test_regressions(of_many: Session) -> None:
    sql = (
        "SELECT run_id, previous_run_id, query_id, query, kind, previous_rank, hit_rank, doc_rank, in_run, failed,"
        " comparable FROM regressions ORDER BY run_id, query_id"
    )
    assert asked(of_many, "regressions", sql) == [
        ("n2", "n1", "q1", "what is q1?", "regression", 1, None, None, True, True, True),
        ("n2", "n1", "q3", "what is q3?", "regression", 1, None, None, True, False, True),
        ("n3", "n2", "q2", "what is q2?", "loss", 1, 3, None, True, False, True),
        ("n4", "n3", "q1", "what is q1?", "regression", 1, None, None, True, True, True),
        ("n4", "n3", "q2", "what is q2?", "regression", 3, None, None, False, False, True),
        ("w2", "w1", "q1", "what is q1?", "loss", 1, 2, 2, True, False, True),
    ]


def test_flaky_queries(of_many: Session) -> None:
    sql = (
        "SELECT suite, query_id, n_runs, n_hits, n_failed, n_flips, n_lost, n_won FROM flaky_queries"
        " ORDER BY suite, query_id"
    )
    assert asked(of_many, "flaky_queries", sql) == [
        # hit, failed, hit, unreadable
        ("nightly", "q1", 4, 2, 2, 3, 2, 1),
        # hit, miss, not asked, hit
        ("nightly", "q3", 3, 2, 0, 2, 1, 1),
        # Not q2 of weekly: a miss that became a hit and stayed one.
    ]


def test_never_hit(of_many: Session) -> None:
    assert asked(of_many, "never_hit", "SELECT * FROM never_hit ORDER BY query_id") == [
        ("q4", "what is q4?", "hard", 2, 0, 1),
        ("q6", "what is q6?", None, 0, 0, None),
    ]


def test_slowest_queries(of_many: Session) -> None:
    assert asked(of_many, "slowest_queries", "SELECT * FROM slowest_queries ORDER BY mean_ms DESC") == [
        # 10, 20, 40 and 50, the last of a failed query
        ("q1", "what is q1?", 4, 30.0, 48.5, 50.0, 1),
        ("q2", "what is q2?", 1, 5.0, 5.0, 5.0, 0),
    ]


def test_coverage_of_chunks(of_many: Session) -> None:
    sql = "SELECT * FROM coverage WHERE what = 'chunk' ORDER BY chunk_id, chunker_version"
    assert asked(of_many, "coverage", sql) == [
        ("chunk", "d1", "c1", "md@1", NOW, 6, 5, 1),
        ("chunk", "d2", "c2", "md@1", NOW, 4, 4, 1),
        ("chunk", "d9", "c9", "md@1", NOW, 0, 0, None),
        ("chunk", "d1", "old1", "md@0", ONCE, 0, 0, None),
        ("chunk", "d9", "x", "md@1", NEVER, 4, 3, 1),
        ("chunk", "d9", "x", None, NEVER, 2, 1, 1),
        ("chunk", "d3", "y", "md@1", NEVER, 3, 3, 1),
        ("chunk", "d4", "z", "md@1", NEVER, 1, 1, 1),
        ("chunk", "d4", "z", None, NEVER, 2, 1, 2),
    ]


def test_coverage_of_documents(of_many: Session) -> None:
    sql = "SELECT doc_id, known, n_results, n_runs, best_rank FROM coverage WHERE what = 'document' ORDER BY doc_id"
    assert asked(of_many, "coverage", sql) == [
        ("d0", NOW, 0, 0, None),
        # One of them by a hit that names the chunk alone.
        ("d1", NOW, 6, 5, 1),
        ("d2", NOW, 4, 4, 1),
        ("d3", NEVER, 2, 2, 1),
        ("d4", NEVER, 3, 2, 1),
        ("d9", NOW, 6, 4, 1),
        ("dx", NEVER, 1, 1, 1),
    ]


def test_metric_trend(of_many: Session) -> None:
    sql = (
        "SELECT run_id, metric, k, value, previous_run_id, previous_value, change, scored, definitions_changed,"
        " labels_changed, matching_changed FROM metric_trend WHERE value IS NOT NULL ORDER BY suite, metric, k, run_id"
    )
    assert asked(of_many, "metric_trend", sql) == [
        ("n1", "hit_at_k", 1, 0.25, None, None, None, None, None, None, None),
        ("n3", "hit_at_k", 1, 0.25, "n1", 0.25, 0.0, None, False, True, False),
        ("n1", "hit_at_k", 5, 0.75, None, None, None, None, None, None, None),
        ("n1", "mrr", None, 0.7, None, None, None, 4, None, None, None),
        ("n3", "mrr", None, 0.4, "n1", 0.7, -0.3, None, False, True, False),
        ("w1", "mrr", None, 0.1, None, None, None, None, None, None, None),
        ("w2", "mrr", None, 0.3, "w1", 0.1, 0.2, None, None, None, None),
    ]


def test_a_trend_reads_no_rows(many: Workspace) -> None:
    with opened(many) as scoring:
        scoring.session.need("metric_trend")
        assert scoring.session.built == {
            "aggregates",
            "metric_trend",
            "run_details",
            "run_order",
            "runs",
            "stored_runs",
        }


def test_ids_of_two_chunkers_are_not_comparable_and_spans_are(workspace: Workspace) -> None:
    place = [{"kind": "line", "start": 1, "end": 9}]
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["a1"]}, {"id": "q2", "expected_chunk_ids": ["a1"]})
    workspace.add_document("d", "d.md")
    workspace.add_chunk("a1", "d", place, "md@1")
    workspace.add_chunk("b1", "d", place, "md@2")
    add(workspace, "old", "s", 1, {"q1": found("a1@d"), "q2": found("a1@d")})
    add(workspace, "new", "s", 2, {"q1": found("b1@d"), "q2": found()}, config={"chunker_version": "md@2"})
    lost = "SELECT query_id, kind, comparable FROM regressions ORDER BY query_id"
    flips = "SELECT query_id, n_flips FROM flaky_queries"
    by_ids = [("q1", "regression", False), ("q2", "regression", False)]
    assert rows(workspace, "regressions", lost, match="exact") == by_ids
    for options in ({}, {"match": "span"}):
        with opened(workspace, **options) as scoring:
            assert asked(scoring.session, "regressions", lost) == [("q2", "regression", True)], options
            assert asked(scoring.session, "flaky_queries", flips) == [], options
    # q2 found again: by spans it went both ways; by ids only the last two runs, of one chunker, can be compared.
    add(workspace, "newest", "s", 3, {"q2": found("b1@d")}, config={"chunker_version": "md@2"})
    # In another suite, q1 is lost within a chunker and found again by the next one, which uses the id again.
    for number, (hits, chunker) in enumerate((("a1@d", "md@1"), ("", "md@1"), ("a1@d", "md@2")), start=1):
        row = found(hits) if hits else found()
        add(workspace, f"t{number}", "t", number, {"q1": row}, config={"chunker_version": chunker})
    assert rows(workspace, "flaky_queries", flips, match="exact") == []
    assert sorted(rows(workspace, "flaky_queries", flips, match="span")) == [("q1", 2), ("q2", 2)]


def test_what_the_document_decided_in_one_run_alone_is_no_loss(workspace: Workspace) -> None:
    """One hit whose place is not known; a comparison has the document decide in both."""
    label = {"doc_id": "d1", "kind": "line", "start": 2, "end": 3}
    workspace.add_golden({"id": "q1", "expected_spans": [label], "expected_doc_ids": ["d1", "d2"]})
    wrong = {"chunk_id": "w", "doc_id": "d1", "source_spans": [{"kind": "line", "start": 100, "end": 109}]}
    for number, more in enumerate(([{"doc_id": "d1"}], [], [{"doc_id": "d1"}]), start=1):
        add(workspace, f"r{number}", "s", number, {"q1": {"hits_top_k": [wrong, *more]}})
    with opened(workspace) as scoring:
        lost = "SELECT run_id, query_id, comparable FROM regressions"
        assert asked(scoring.session, "regressions", lost) == [("r2", "q1", False)]
        assert asked(scoring.session, "flaky_queries", "SELECT query_id FROM flaky_queries") == []


# --- stored numbers ----------------------------------------------------------------------------------


def test_aggregates_are_what_scoring_found(many: Workspace) -> None:
    many.execute("DELETE FROM eval_query_results WHERE result_json = 'not json'")
    scored = many.score()
    kbeval.store_scored(scored, db=many.db)
    with opened(many) as scoring:
        scoring.session.need("aggregates")
        # Nothing but the runs themselves was read.
        assert scoring.session.built == {"aggregates"}
        order = ["run_id", "metric", "k"]
        assert scoring.session.frame("SELECT * FROM aggregates").sort(order).equals(scored.frame().sort(order))


STORED: list[tuple[str, list[Any]]] = [
    ("", []),
    ("{", []),
    ("null", []),
    ("[1]", []),
    ('"text"', []),
    ("{}", []),
    ('{"name": "other tool", "scores": [1, 2], "nested": {"deep": {"er": 1}}}', []),
    ('{"mrr": "0.5", "hit_at_k": 3, "ledger": 1, "provenance": []}', []),
    ('{"mrr": NaN, "own": Infinity}', []),
    ('{"mrr": ' + "9" * 400 + "}", []),
    ('{"mrr": 1, "ledger": {"metrics": "x"}}', [("mrr", None, 1.0, None)]),
    ('{"mrr": 1, "ledger": {"metrics": {"mrr": {"scored": -1}}}}', [("mrr", None, 1.0, None)]),
    ('{"own": {"p50": 2, "why": "x"}, "\\ud800": 3}', [("?", None, 3.0, None), ("own.p50", None, 2.0, None)]),
    ('{"own": {"20": 0.5}, "ledger": {"metrics": {"own": {"scored": 7}}}}', [("own", 20, 0.5, 7)]),
]


def test_any_stored_aggregate_can_be_read(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q"})
    for number, (stored, _) in enumerate(STORED):
        add(workspace, f"run{number}", "s", 1, {}, stored=stored)
    sql = "SELECT run_id, metric, k, value, scored FROM aggregates ORDER BY metric"
    found = rows(workspace, "aggregates", sql)
    for number, (stored, numbers) in enumerate(STORED):
        of_run = [row[1:] for row in found if row[0] == f"run{number}"]
        assert [row for row in of_run if row[2] is not None] == numbers, stored
        assert numbers or not of_run, stored


# --- examples ----------------------------------------------------------------------------------------


def test_every_view_has_examples() -> None:
    assert sorted(views.examples()) == sorted([*VIEWS, "compare"])
    assert all(relations()[name].kind == "view" for name in VIEWS)


@pytest.mark.parametrize("matching", ["exact", "span"])
def test_every_example_runs_on_the_demo(own_demo: Path, matching: str) -> None:
    options = ScoreOptions(match=matching)
    with open_scoring(own_demo / "kb.db", own_demo / "golden.yaml", None, options, lazily=True) as scoring:
        scoring.session.need(*views.examples())
        empty = {name for name, tries in views.examples().items() for sql in tries if not scoring.session.rows(sql)}
    # The demo knows every chunk that it finds; what it loses by ids it has not lost; spans find something everywhere;
    # no query of its runs goes both ways.
    never = {"coverage", "flaky_queries", "regressions"}
    assert empty == (never if matching == "exact" else {*never, "never_hit"})


def test_every_example_runs_on_other_data_and_on_none(of_many: Session, workspace: Workspace) -> None:
    workspace.add_golden({"id": "q"})
    with opened(workspace) as nothing:
        for session in (of_many, nothing.session):
            for name, tries in views.examples().items():
                session.need(name)
                for sql in tries:
                    assert bool(session.rows(sql)) is (session is of_many and name != "compare"), sql


def test_views_need_no_labels(many: Workspace) -> None:
    with open_scoring(many.db, None, lazily=True) as scoring:
        for name in (*VIEWS, *views.ABOUT):
            scoring.session.need(name)
            scoring.session.rows(f"SELECT * FROM {name}")
        assert scoring.session.rows("SELECT * FROM never_hit") == []


def test_the_columns_are_those_that_the_files_name(of_many: Session) -> None:
    for name in VIEWS:
        of_many.need(name)
        header = relations()[name].sql.partition("-- kind:")[0].partition("-- columns:")[2]
        for column in of_many.frame(f"SELECT * FROM {name}").columns:
            assert column in header, f"{name}.{column}"
    for name, (_, columns) in views.ABOUT.items():
        if name != "step_pairs":
            of_many.need(name)
            for column in of_many.frame(f"SELECT * FROM {name}").columns:
                assert column in columns, f"{name}.{column}"


def test_numbers_do_not_depend_on_views() -> None:
    assert not {Path(name).stem for name in definitions(sql_folder())} & {*VIEWS, "compare_macro", "pairs"}


# --- compare as a table ------------------------------------------------------------------------------


def compared(session: Session, a: str, b: str) -> list[dict[str, Any]]:
    """The macro's rows as those of a report."""
    session.need("compare")
    frame = session.frame("SELECT * FROM compare($1, $2) ORDER BY query_id", [a, b])
    causes = ("presence", "failure", "ranking", "places", "refusal", "rules", "citations", "configuration")
    return [
        {
            **{
                name: row[name]
                for name in ("query_id", "kind", "a_hit_rank", "b_hit_rank", "note", "matching", "answer", "query")
            },
            "causes": [row[cause] for cause in causes if row[cause] is not None],
        }
        for row in frame.to_dicts()
    ]


def invent(workspace: Workspace, dice: random.Random, configs: Mapping[str, Any], *, placed: bool) -> None:
    """Runs with something of everything, the same each time."""

    def hit(rank: int) -> dict[str, Any]:
        number = dice.randrange(8)
        spans = [{"kind": "line", "start": number * 10, "end": number * 10 + dice.choice([4, 9])}] if placed else None
        return {"rank": rank, "chunk_id": f"c{number}", "doc_id": f"d{number % 3}", "source_spans": spans}

    def row() -> dict[str, Any]:
        if dice.random() < 0.1:
            return {"error": "timeout"}
        reply = answer(dice.choice(["yes", "no", ""]), grounded=dice.choice([True, True, False]))
        hits = [hit(rank) for rank in range(1, dice.choice([1, 4, 12]) + 1)]
        return {"hits_top_k": hits, "answer": reply if dice.random() < 0.7 else None}

    names = [f"q{n:02}" for n in range(14)]
    labels: list[dict[str, Any]] = [
        {"expected_chunk_ids": ["c1", "c2"], "must_contain": ["yes"]},
        {"expected_chunk_ids": ["c3"], "expected_doc_ids": ["d0"]},
        {"expected_doc_ids": ["d1"]},
        {"expected_doc_ids": []},
        {},
    ]
    workspace.add_golden(*({"id": name, **labels[n % len(labels)]} for n, name in enumerate(names)))
    for number in range(3):
        workspace.add_document(f"d{number}", f"d{number}.md")
    for number in range(8):
        lines = {"kind": "line", "start": number * 10, "end": number * 10 + 9}
        workspace.add_chunk(f"c{number}", f"d{number % 3}", [lines])
    for run_id, config in configs.items():
        add(workspace, run_id, "s", 1, {name: row() for name in names if dice.random() < 0.9}, config=config)


SAME_CHUNKER = {
    "plain": {"chunker_version": "md@1"},
    "k3": {"chunker_version": "md@1", "eval_k": 3, "embedding": {"model": "e1"}},
    "secret": {"chunker_version": "md@1", "llm": {"api_key": "one", "model_id": "m"}, "embedding": {"model": "e1"}},
    "other": {"chunker_version": "md@1", "llm": {"api_key": "two", "model_id": "m"}, "prompt": [1, {"x": 2}]},
    "odd_k": {"chunker_version": "md@1", "eval_k": 5.0, "k": 2, "prompt": [1.0, {"x": 2}], "kbeval": {"chunker": 1}},
}
OTHER_CHUNKERS = {
    "one": {"chunker_version": "md@1"},
    "two": {"chunker_version": "md@2", "prompt_version": 3},
    "three": {"chunker_version": "md@3", "prompt_version": 3, "model": "m"},
}


@pytest.mark.parametrize(
    ("configs", "matching", "changes"),
    [
        (
            SAME_CHUNKER,
            "exact",
            {
                "embedding changed",
                "embedding changed, model changed",
                "embedding changed, model changed, prompt changed",
                "embedding changed, prompt changed",
                "model changed",
                "model changed, prompt changed",
                "prompt changed",
            },
        ),
        (
            OTHER_CHUNKERS,
            "span",
            {
                "chunker changed, model changed",
                "chunker changed, model changed, prompt changed",
                "chunker changed, prompt changed",
            },
        ),
    ],
    ids=["exact", "span"],
)
def test_compare_gives_the_rows_of_kbeval_compare(
    workspace: Workspace, configs: Mapping[str, Any], matching: str, changes: set[str]
) -> None:
    invent(workspace, random.Random(7), configs, placed=matching == "span")
    options = CompareOptions(resamples=10)
    kinds, causes = set(), set()
    with opened(workspace, match=matching) as scoring:
        first, *_, last = configs
        # In one direction, except for the ends; a run and itself by ids alone, as in `compare`.
        pairs = [*itertools.combinations(configs, 2), (last, first), *([(last, last)] if matching == "exact" else [])]
        for a, b in pairs:
            report = kbeval.compare_runs(a, b, db=workspace.db, golden=workspace.golden, options=options)
            expected = [one.to_dict() for one in report.per_query]
            assert compared(scoring.session, a, b) == expected, (a, b)
            kinds |= {one["kind"] for one in expected}
            causes |= {cause for one in expected for cause in one["causes"]}
    assert kinds == {"win", "draw", "loss", "regression"}
    assert len(causes) > 10
    assert {cause for cause in causes if "changed" in cause} == changes


def test_the_step_before_is_the_comparison_with_it(of_many: Session) -> None:
    of_many.need("step_pairs", "compare")
    for a, b in (("n1", "n2"), ("n2", "n3"), ("n3", "n4"), ("w1", "w2")):
        step = "SELECT query_id, kind, a_hit_rank, b_hit_rank FROM step_pairs WHERE run_a = $1 AND run_b = $2"
        whole = "SELECT query_id, kind, a_hit_rank, b_hit_rank FROM compare($1, $2)"
        assert sorted(of_many.rows(step, [a, b])) == sorted(of_many.rows(whole, [a, b]))


def test_compare_refuses_an_unknown_run(of_many: Session) -> None:
    of_many.need("compare")
    assert of_many.rows("SELECT * FROM compare('n1', 'nobody')") == []
    assert of_many.rows("SELECT * FROM compare(NULL, 'n1')") == []


# --- configurations ----------------------------------------------------------------------------------


KEYS = st.sampled_from(["chunker", "model", "llm", "api_key", "a.b", "x", "kbeval"])
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 2, 2**60, "", "1", "m", "\ud800", float("nan")]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=2, max_size=4))
def test_settings_differ_where_configurations_do(configs: list[dict[str, Any]]) -> None:
    runs = [Run(f"r{n}", "s", "", None, json.dumps(config), "", 0) for n, config in enumerate(configs)]
    numbers: dict[str, dict[str, int | None]] = {run.run_id: {} for run in runs}
    for one in settings_of(runs):
        numbers[one.run_id][one.field] = one.value_no
    for a in runs:
        for b in runs:
            x, y = numbers[a.run_id], numbers[b.run_id]
            differing = {
                key for key in x.keys() | y.keys() if x.get(key) is None or y.get(key) is None or x[key] != y[key]
            }
            if a is not b:
                assert differing == {one.key for one in config_diff(config_of(a), config_of(b))}


def test_configurations_hide_what_is_secret(workspace: Workspace) -> None:
    config = {"llm": {"api_key": "s3cret", "url": "http://me:s3cret@host"}, "k": [1, {"token": "s3cret"}]}
    add(workspace, "run", "s", 1, {}, config=config)
    workspace.add_golden({"id": "q"})
    sql = "SELECT field, value, part FROM configurations ORDER BY field"
    assert rows(workspace, "configurations", sql) == [
        ("k", '[1, {"token": "(hidden 1)"}]', None),
        ("llm.api_key", "(hidden 1)", "model"),
        ("llm.url", "http://(hidden 2)@host", "model"),
    ]
