"""Own fields: reachable from metrics, SQL and slices; the same from an archive and a cache; free where nothing asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kbeval
from kbeval.cli import run
from kbeval.errors import MetricError, UsageError
from kbeval.metrics.catalogue import metrics_in_config
from kbeval.scoring.aggregate import Scored, run_totals, score_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from kbeval.scoring.slices import load_slices
from tests.support.workspace import Workspace

METRICS = {
    "words": {"expression": "TRY_CAST(fields ->> '$.usage.words' AS DOUBLE)", "grain": "per_query"},
    "best_rerank": {"expression": "MAX(TRY_CAST(hit_fields ->> '$.rerank' AS DOUBLE))", "grain": "per_hit"},
    "found_rerank": {
        "expression": "MAX(CASE WHEN is_expected_chunk THEN TRY_CAST(hit_fields ->> '$.rerank' AS DOUBLE) END)",
        "grain": "per_expected_hit",
    },
    "by_model": {
        "expression": "1",
        "grain": "per_query",
        "where": "in_run AND fields ->> '$.model' = 'm1'",
        "agg": "count",
    },
}
OWN = ScoreOptions(configured_metrics=metrics_in_config(METRICS, "test"))


def row(number: int) -> dict[str, Any]:
    hits = [{"chunk_id": f"c{n}", "rerank": number + n / 10, "tags": ["a"]} for n in (1, 2)]
    return {
        "query_id": f"q{number}",
        "hits_top_k": hits,
        "answer": {"answer": "x", "style": "short"},
        "usage": {"words": 10 * number},
        "model": f"m{number % 2}",
        'odd "name"': {"a.b": number},
        "nothing": None,
    }


@pytest.fixture
def rows(workspace: Workspace) -> Workspace:
    workspace.add_golden(
        {"id": "q1", "expected_chunk_ids": ["c2"], "category": "x", "lang": "de", "team": "red", "vaults": ["v", "w"]},
        {"id": "q2", "expected_chunk_ids": ["c1"], "category": "x", "lang": "en", "team": "blue / green"},
        {"id": "q3", "expected_chunk_ids": ["c9"], "category": "y", "answerable": True},
    )
    workspace.add_run("a", {f"q{n}": row(n) for n in (1, 2, 3)})
    workspace.add_run("b", {"q1": {"hits_top_k": [], "usage": "none", "model": "m1"}, "q2": "not json", "q3": "[]"})
    return workspace


def numbers(scored: Scored) -> dict[str, Any]:
    every = {run_id: one.to_dict() for run_id, one in scored.aggregates.items()}
    slices = {run_id: {name: one.to_dict() for name, one in some.items()} for run_id, some in scored.slices.items()}
    for one in every.values():
        one.pop("provenance")
    return {"all": every, "slices": slices}


def test_metrics_see_own_fields(rows: Workspace) -> None:
    scored = score_runs(rows.db, rows.golden, options=OWN)
    a, b = scored.aggregates["a"], scored.aggregates["b"]
    assert a.value("words") == 20
    assert a.value("best_rerank") == pytest.approx((1.2 + 2.2 + 3.2) / 3, abs=1e-4)
    assert a.value("found_rerank") == pytest.approx((1.2 + 2.1) / 2, abs=1e-4)
    assert a.value("by_model") == 2
    assert (b.value("words"), b.value("by_model")) == (None, 1), "a row that cannot be read has no fields"


def test_an_archive_and_a_cache_give_the_same_answers(rows: Workspace, tmp_path: Path) -> None:
    options = ScoreOptions(configured_metrics=OWN.configured_metrics, by="team,model", cache="on")
    plain = numbers(score_runs(rows.db, rows.golden, options=ScoreOptions(**{**vars(options), "cache": "off"})))
    for _ in range(2):
        assert numbers(score_runs(rows.db, rows.golden, options=options)) == plain, "fresh, then from the cache"
    kbeval.archive_runs(rows.db, tmp_path / "archive")
    assert numbers(score_runs(tmp_path / "archive", rows.golden, options=options)) == plain
    question = "SELECT * EXCLUDE (result_no) FROM {} ORDER BY ALL"
    answers = []
    for place in (rows.db, tmp_path / "archive"):
        with kbeval.open_explorer(place, rows.golden) as explorer:
            answers.append([explorer.query(question.format(f)).rows() for f in ("fields", "hit_fields")])
            answers[-1].append(explorer.query("SELECT * FROM field_names ORDER BY ALL").rows())
    assert answers[0] == answers[1]
    assert answers[0][0]


def test_rows_are_not_read_again_where_nothing_asks(rows: Workspace) -> None:
    with open_scoring(rows.db, rows.golden) as scoring:
        scoring.build_query_scores()
        assert not {"stored_fields", "fields", "hit_fields", "row_scores"} & scoring.session.built
        assert "fields" not in {name for name, *_ in scoring.session.rows("DESCRIBE per_query")}
    with open_scoring(rows.db, rows.golden, options=OWN) as scoring:
        scoring.build_query_scores()
        assert {"fields", "hit_fields"} <= scoring.session.built


def test_sql_sees_own_fields(rows: Workspace) -> None:
    with kbeval.open_explorer(rows.db, rows.golden) as explorer:
        # A grain that is there already gets the column when a question names it.
        assert explorer.query("SELECT COUNT(*) FROM per_query").rows() == [(6,)]
        words = "SELECT query_id, fields ->> '$.usage.words' FROM per_query WHERE run_id = 'a' ORDER BY ALL"
        assert explorer.query(words).rows() == [("q1", "10"), ("q2", "20"), ("q3", "30")]
        best = "SELECT MAX(CAST(hit_fields ->> '$.rerank' AS DOUBLE)) FROM per_hit"
        assert explorer.query(best).rows() == [(3.2,)]
        assert explorer.query("SELECT COUNT(*) FROM fields WHERE fields ->> '$.hits_top_k' IS NOT NULL").rows() == [
            (0,)
        ]
        names = {
            name: rest
            for name, *rest in explorer.query(
                "SELECT level || ' ' || field, path, kind, n_values FROM field_names"
            ).rows()
        }
        assert names["row usage.words"] == ['$."usage"."words"', "number", 3]
        assert names["row usage"] == ['$."usage"', "several", 4]
        assert names["row nothing"] == ['$."nothing"', "nothing", 3]
        assert names["row answer.style"] == ['$."answer"."style"', "text", 3]
        assert names["hit rerank"] == ['$."rerank"', "number", 6]
        assert names["hit tags"] == ['$."tags"', "list", 6]
        # Each path leads to its value, whatever the name.
        path = names['row odd "name".a.b'][0]
        found = explorer.query(f"SELECT SUM(CAST(fields ->> '{path}' AS INTEGER)) FROM fields").rows()
        assert found == [(6,)]


def test_slices_by_any_field_and_by_several(rows: Workspace) -> None:
    with open_scoring(rows.db, rows.golden, ["a"]) as scoring:
        # One scoring for all of them: only what is summed up differs.
        scoring.build_query_scores()

        def slices(by: str) -> dict[str, int]:
            load_slices(scoring, by)
            return {name: found["total_queries"][0][0] for _, name, found in run_totals(scoring, by)}

        assert slices("category,lang") == {"x / de": 1, "x / en": 1, "y / (none)": 1}
        # A field of the golden file that kbeval does not know.
        assert slices("team") == {"(none)": 1, "red": 1, "blue / green": 1}
        assert slices("team,category") == {"(none) / y": 1, "red / x": 1, '"blue / green" / x': 1}
        assert slices("vaults") == {"(none)": 2, "v": 1, "w": 1}
        assert slices("answerable") == {"(none)": 2, "true": 1}
        # Fields of the rows.
        assert slices("model") == {"m0": 1, "m1": 2}
        assert slices("usage.words,category") == {"10 / x": 1, "20 / x": 1, "30 / y": 1}
        assert slices("answer.style") == {"short": 3}
        assert slices("difficulty") == {"(none)": 3}, "a usual field that this file does not use"
        for by, message in (
            ("modle", "neither a golden query nor a stored row has this field; did you mean 'model'"),
            ("xyzzy", "field_names"),
            ("category,", "specify a field"),
            ("a,a", "specify a field"),
            ("a,b,c,d,e", "specify a field"),
            ("", "specify a field"),
        ):
            with pytest.raises(UsageError, match=message):
                slices(by)
    scored = score_runs(rows.db, rows.golden, ["a"], ScoreOptions(by="team"))
    assert not [warning for warning in scored.warnings if "'team'" in warning], "it is not ignored"
    options = kbeval.CompareOptions(scoring=ScoreOptions(by="category,team"), skip_bad_rows=True)
    report = kbeval.compare_runs("a", "b", db=rows.db, golden=rows.golden, options=options)
    assert set(report.slices) == {"x / red", 'x / "blue / green"', "y / (none)"}
    with pytest.raises(UsageError, match="fields of the golden file"):
        kbeval.compare_runs(
            "a", "b", db=rows.db, golden=rows.golden,
            options=kbeval.CompareOptions(scoring=ScoreOptions(by="model"), skip_bad_rows=True),
        )  # fmt: skip


def test_a_metric_over_fields_that_is_wrong_is_named(rows: Workspace) -> None:
    for expression, message in (
        ("fields ->> '$.model'", "not a number"),
        ("CAST(fields ->> '$.model' AS DOUBLE)", "Could not convert"),
        ("hit_fields ->> '$.rerank'", "per_query has no column 'hit_fields'"),
    ):
        own = metrics_in_config({"own": {"expression": expression, "grain": "per_query"}}, "test")
        with pytest.raises(MetricError, match=message):
            score_runs(rows.db, rows.golden, ["a"], ScoreOptions(configured_metrics=own))


def test_scores_that_came_with_rows_of_any_origin(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.add_golden({"id": "q1"}, {"id": "q2"})
    scores: list[Any] = [{"own.a": 1, "own.b": 3}, {"own.a": "2", "own.c": 4}, 7, None]
    workspace.add_run("r", {f"q{n}": {"scores": each} for n, each in enumerate(scores, start=1)})
    listed = {
        "own.a": "lower",
        "own.b": "higher",
        "own.missing": "higher",
        "mrr.x": "higher",
        "Bad": "higher",
        "own.d": "up",
    }
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ?", [json.dumps({"kbeval": {"scores": listed}})])
    (aggregate,) = score_runs(workspace.db, workspace.golden).aggregates.values()
    assert {name for name in aggregate.numbers() if name.startswith(("own", "mrr.", "Bad"))} == {"own.a", "own.b"}
    assert (aggregate.value("own.a"), aggregate.value("own.b")) == (1.0, 3.0), "text is not a number"
    assert aggregate.counts("own.a") == {"scored": 1, "not_applicable": 3}
    again = kbeval.AggregateMetrics.from_json(aggregate.to_json())
    assert again.value("own.b") == 3.0
    assert run(["score", "--all", "--db", str(workspace.db), "--golden", str(workspace.golden)]) == 0
    assert "own.b" in capsys.readouterr().out
    where = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    assert run(["show", "r", "--worst", "1", "--metric", "own.a", *where]) == 0
    assert run(["sql", "SELECT metric, value FROM scores WHERE metric = 'own.a'", "--format", "csv", *where]) == 0
    assert "own.a,1.0" in capsys.readouterr().out
