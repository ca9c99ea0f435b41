"""Judged numbers, from the stored judgements to aggregates, comparisons and gates, against plain Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.cli import run
from kbeval.compare.gates import check_gates
from kbeval.compare.options import CompareOptions
from kbeval.compare.run import IncomparableError, compare_runs
from kbeval.errors import UsageError
from kbeval.scoring.incremental import due_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from kbeval.storage.judgements import Asked, Judged, JudgementStore, NewJudging, Said
from tests.oracles.judge_oracle import Given, judged_numbers
from tests.support.examples import scorings
from tests.support.workspace import Workspace, answer

QUERIES = [f"q{n}" for n in range(6)]
RUBRICS = ("correctness", "groundedness", "tone")


def row(query_id: str, text: str = "An answer.") -> dict[str, Any]:
    return {"query_id": query_id, "query": "?", "answer": answer(text)}


def rows_of(run_id: str) -> dict[str, dict[str, Any]]:
    found = {query_id: row(query_id) for query_id in QUERIES[:-1]}
    return {**found, QUERIES[-1]: {"query_id": QUERIES[-1], "answer": answer("", grounded=False)}}


@pytest.fixture
def judged(workspace: Workspace) -> Workspace:
    workspace.add_golden(*({"id": query_id} for query_id in QUERIES))
    workspace.add_run("a", rows_of("a"), created_at="2026-01-01")
    workspace.add_run("b", rows_of("b"), created_at="2026-01-02")
    return workspace


def marks(workspace: Workspace, run_id: str) -> dict[str, str]:
    """The marks of the rows of a run, by query."""
    with open_scoring(workspace.db, None, [run_id]) as scoring:
        scoring.session.need("results")
        return dict(scoring.session.rows("SELECT query_id, CAST(row_mark AS VARCHAR) FROM results"))


@cache
def first_marks() -> dict[str, str]:
    """The marks of the rows that each run of these tests begins with."""
    with TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        workspace.add_run("a", rows_of("a"))
        return marks(workspace, "a")


def store(
    workspace: Workspace,
    run_id: str,
    given: list[Given],
    *,
    model: str = "m",
    wanted: int | None = None,
    rubric_text: str = "text",
    parameters: str = '{"temperature": 0}',
    known: Mapping[str, str] | None = None,
) -> str:
    """A judging as `kbeval judge` stores it. `known`: the marks of the rows; by default those of the rows above."""
    known = first_marks() if known is None else known
    rubrics = sorted({one.rubric for one in given})
    listed = [{"name": name, "hash": f"h-{rubric_text}", "low": 0, "high": 5, "text": rubric_text} for name in rubrics]
    new = NewJudging(
        run_id, "i", f"{model}-{parameters}", "local", model, "http://j", parameters, json.dumps(listed), "{}",
        len(given) if wanted is None else wanted,
    )  # fmt: skip
    with JudgementStore(workspace.db) as database:
        database.make_tables()
        judging = database.begin(new)
        for one in given:
            key = f"{judging.judging_id}-{one.query_id}-{one.rubric}"
            asked = Asked(key, "local", model, "http://j", one.rubric, "h", parameters, key, 0)
            said = Said(
                "unscored" if one.score is None else "scored",
                1,
                score=one.score,
                supported_json=json.dumps(["claim"] * one.supported),
                unsupported_json=json.dumps(["claim"] * one.unsupported),
                tokens_in=one.tokens,
                tokens_out=0,
                cost_usd=one.cost,
            )
            link = Judged(one.query_id, one.rubric, key, known[one.query_id], one.is_cached)
            database.add(asked, said, "{}", judging.judging_id, [link])
    return judging.judging_id


GIVEN = st.builds(
    Given,
    query_id=st.sampled_from(QUERIES[:-1]),
    rubric=st.sampled_from(RUBRICS),
    score=st.none() | st.integers(0, 5).map(float),
    tokens=st.integers(0, 2000),
    cost=st.none() | st.sampled_from([0.1, 0.2, 0.3, 0.0007]),
    is_cached=st.booleans(),
    supported=st.integers(0, 3),
    unsupported=st.integers(0, 3),
)


JUDGINGS = st.lists(
    st.lists(GIVEN, min_size=1, max_size=12, unique_by=lambda one: (one.query_id, one.rubric)), max_size=3
)


# Each example makes a database of its own.
@scorings(2)
@given(st.lists(JUDGINGS, min_size=6, max_size=12))
def test_numbers_of_any_judgings_are_those_of_plain_python(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[list[Given]]]
) -> None:
    workspace = Workspace(tmp_path_factory.mktemp("judged"))
    workspace.add_golden(*({"id": query_id} for query_id in QUERIES))
    for number, judgings in enumerate(runs):
        workspace.add_run(f"run{number}", rows_of(f"run{number}"))
        for given_ones in judgings:
            store(workspace, f"run{number}", given_ones)
    scored = workspace.score().aggregates
    for number, judgings in enumerate(runs):
        found = scored[f"run{number}"].to_dict()
        wanted = judged_numbers(judgings, QUERIES)
        assert {name: value for name, value in found.items() if name.startswith("judge_")} == wanted["numbers"]
        assert found["ledger"].get("judgements", {}) == wanted["ledger"]


def full(score: float = 4.0, rubric: str = "correctness", **more: Any) -> list[Given]:
    return [Given(query_id, rubric, score, 10, 0.5, **more) for query_id in QUERIES[:-1]]


def test_the_latest_complete_judging_counts_unless_another_is_named(judged: Workspace) -> None:
    first = store(judged, "a", full(4.0), model="m1")
    store(judged, "a", full(2.0), model="m2")
    unfinished = store(judged, "a", full(1.0)[:2], model="m3", wanted=5)
    found = judged.aggregate("a")
    assert found["judge_correctness"] == 2.0
    assert found["provenance"]["judge"]["correctness"]["model"] == "local:m2"
    for name, score in (("m1", 4.0), ("local:m2", 2.0), (first, 4.0), (unfinished, 1.0)):
        assert judged.aggregate("a", judge=name)["judge_correctness"] == score, name
    assert judged.aggregate("a", judge=unfinished)["provenance"]["judge"]["correctness"]["unfinished"] == 2
    for unknown in ("m3", "nobody"):
        with pytest.raises(UsageError, match="none of these runs was judged by"):
            judged.aggregate("a", judge=unknown)


def test_rubrics_may_be_judged_one_after_the_other(judged: Workspace) -> None:
    store(judged, "a", full(4.0, "correctness"))
    store(judged, "a", full(3.0, "groundedness"))
    found = judged.aggregate("a")
    assert (found["judge_correctness"], found["judge_groundedness"]) == (4.0, 3.0)


def test_a_row_that_changed_is_not_judged_any_more(judged: Workspace) -> None:
    store(judged, "a", full(4.0))
    text = json.dumps(row("q1", "Another answer."))
    judged.execute("UPDATE eval_query_results SET result_json = ? WHERE run_id = 'a' AND query_id = 'q1'", (text,))
    counts = judged.aggregate("a")["ledger"]["judgements"]["correctness"]
    assert (counts["judged"], counts["not_judged"]) == (4, 2)


def test_new_judgements_are_a_reason_to_score_again(judged: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["score", "--all", "--db", str(judged.db), "--golden", str(judged.golden)]) == 0
    assert due_runs(judged.db, judged.golden, ScoreOptions()).reasons == {}
    store(judged, "a", full(4.0))
    assert due_runs(judged.db, judged.golden, ScoreOptions()).reasons == {"a": ["judgements changed"]}
    assert run(["score", "--all", "--db", str(judged.db), "--golden", str(judged.golden)]) == 0
    assert due_runs(judged.db, judged.golden, ScoreOptions()).reasons == {}
    assert json.loads(judged.stored("a"))["judge_correctness"] == 4.0
    capsys.readouterr()
    assert run(["history", "judge_correctness", "--db", str(judged.db), "--format", "json"]) == 0
    assert "4.0" in capsys.readouterr().out


def test_runs_of_one_judge_are_compared_and_gated(judged: Workspace) -> None:
    store(judged, "a", full(4.0, "tone"))
    store(judged, "b", full(2.0, "tone"))
    report = compare_runs("a", "b", db=judged.db, golden=judged.golden)
    assert report.to_dict()["deltas"]["judge_tone"] == -2.0
    table = {"min": {"judge_tone": 1.0}, "max_drop": {"judge_tone": 0.5}, "baseline": "a"}
    found = check_gates("b", table, db=judged.db, golden=judged.golden)
    assert [result.passed for result in found.results] == [True, False]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"model": "m2"}, "judge of correctness: local:m and local:m2"),
        ({"rubric_text": "other"}, "text of the rubric of correctness"),
        ({"parameters": '{"temperature": 1}'}, "parameters of correctness"),
    ],
)
def test_runs_of_different_judges_are_refused(judged: Workspace, other: dict[str, Any], said: str) -> None:
    store(judged, "a", full(4.0))
    store(judged, "b", full(2.0), **other)
    with pytest.raises(IncomparableError, match=said):
        compare_runs("a", "b", db=judged.db, golden=judged.golden)
    with pytest.raises(IncomparableError, match=said):
        check_gates("b", {"max_drop": {"mrr": 1.0}, "baseline": "a"}, db=judged.db, golden=judged.golden)
    options = CompareOptions(ignore_invariants=True)
    warnings = compare_runs("a", "b", db=judged.db, golden=judged.golden, options=options).warnings
    assert any(said in warning for warning in warnings)
    # Judged by the same judge as well, they compare.
    store(judged, "b", full(3.0))
    assert compare_runs("a", "b", db=judged.db, golden=judged.golden).to_dict()["deltas"]["judge_correctness"] == -1.0


def test_an_archive_has_the_same_judged_numbers(judged: Workspace, tmp_path: Path) -> None:
    store(judged, "a", full(4.0, "tone", unsupported=1, is_cached=True))
    store(judged, "a", [*full(3.0)[:-1], Given("q4", "correctness", None, 7, None)])
    archive = tmp_path / "history"
    assert run(["archive", str(archive), "--db", str(judged.db), "--golden", str(judged.golden)]) == 0
    aggregates = []
    for database in (judged.db, archive):
        with open_scoring(database, judged.golden, ["a"]) as scoring:
            from kbeval.scoring.aggregate import aggregate_runs

            aggregates.append(aggregate_runs(scoring).aggregates["a"].to_json())
    assert aggregates[0] == aggregates[1]
    assert json.loads(aggregates[0])["judge_tone"] == 4.0


def test_judgements_and_claims_can_be_asked_about(judged: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    store(judged, "a", full(4.0, "groundedness", supported=2, unsupported=1))
    for question, wanted in (
        ("SELECT COUNT(*) AS n, SUM(score) AS s FROM judgements", {"n": 5, "s": 20.0}),
        ("SELECT COUNT(*) AS n FROM judged_claims WHERE NOT is_supported", {"n": 5}),
        ("SELECT SUM(n_supported) AS n FROM per_judgement WHERE run_id = 'a'", {"n": 10}),
        ("SELECT SUM(value) AS v FROM scores WHERE metric = 'judge_groundedness'", {"v": 20.0}),
    ):
        command = ["sql", question, "--db", str(judged.db), "--golden", str(judged.golden), "--format", "json"]
        assert run(command) == 0
        assert json.loads(capsys.readouterr().out) == [wanted]


def test_what_a_judge_said_is_shown_next_to_the_answer(judged: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    store(judged, "a", [*full(2.0, "groundedness", unsupported=1), Given("q0", "tone", None, 1, None)])
    command = ["show", "a", "--query", "q0", "--db", str(judged.db), "--golden", str(judged.golden)]
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "judge of groundedness 2: " in shown
    assert "not supported        claim" in shown
    assert "judge of tone        unscored" in shown
    assert run([*command, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["judgements"]
    assert [(one["rubric"], one["score"]) for one in found] == [("groundedness", 2.0), ("tone", None)]


def test_foreign_values_in_the_tables_do_not_crash_it(judged: Workspace) -> None:
    store(judged, "a", full(4.0))
    for column, value in (("rubrics_json", "[[1], null, {}]"), ("rubrics_json", "{"), ("n_wanted", "many")):
        judged.execute(f"UPDATE kbeval_judgings SET {column} = ?", (value,))
        judged.aggregate("a")
    judged.execute("UPDATE kbeval_judgements SET score = 'five', cost_usd = 'x', supported_json = '[1'")
    judged.aggregate("a")
