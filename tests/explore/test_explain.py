"""Every step from a stored row to a number: checked by hand on the demo, and against scoring for every metric."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.demo import make_demo
from kbeval.engine.relations import sql_folder
from kbeval.errors import UsageError
from kbeval.explore.explain import Explanation, explain_number
from kbeval.explore.filling import filled_in
from kbeval.explore.steps import ENTRY, OPTIONS, ROW, Step
from kbeval.metrics.names import Name
from kbeval.scoring.aggregate import score_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import Scoring, open_scoring
from tests.oracles.matching_worlds import invent, store
from tests.scoring.test_known_aggregates import workspaces
from tests.support.examples import scorings
from tests.support.workspace import Workspace, answer, hits

UNCACHED = ScoreOptions(cache="off")


def explained(workspace: Workspace, name: str, query_id: str = "q", **options: Any) -> Explanation:
    chosen = ScoreOptions(cache="off", **options)
    with open_scoring(workspace.db, workspace.golden, ["run"], chosen, lazily=True) as scoring:
        return explain_number(scoring, name, query_id)


def names(found: Explanation) -> list[str]:
    return [step.name for step in found.steps]


def step(found: Explanation, name: str) -> Step:
    (one,) = (step for step in found.steps if step.name == name)
    return one


def rows(found: Explanation, name: str) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = step(found, name).to_dict()["rows"]
    return read


def stored_number(aggregate: dict[str, Any], name: Name) -> Any:
    found = aggregate.get(name.metric)
    return found.get(name.part or str(name.k)) if isinstance(found, dict) else found


# --- the demo, by hand -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("demo") / "demo"
    return make_demo(folder), folder / "golden.yaml"


def of_demo(demo: tuple[Path, Path], run: str, name: str, query_id: str) -> Explanation:
    with open_scoring(*demo, [run], UNCACHED, lazily=True) as scoring:
        return explain_number(scoring, name, query_id)


def test_a_miss_by_ids_step_by_step(demo: tuple[Path, Path]) -> None:
    """g014 expects l1-d4-03; the run brought its neighbour l1-d4-02, in the right document, and l1-d7-03."""
    found = of_demo(demo, "2026-03-03-bm25", "hit@5", "g014")
    assert names(found) == [
        *(ROW, "parsed", "parsed_hits", "hits"),
        *(ENTRY, "expected_chunks", "queries", OPTIONS),
        *("wanted_chunks", "id_matches", "chunk_matches", "expected_hits"),
        *("per_query", "per_expected_hit"),
    ]
    assert [(row["rank"], row["chunk_id"]) for row in rows(found, "hits")] == [(1, "l1-d4-02"), (2, "l1-d7-03")]
    assert rows(found, "wanted_chunks") == [{"chunk_id": "l1-d4-03"}]
    # That they have no rows is the answer.
    assert rows(found, "id_matches") == rows(found, "chunk_matches") == []
    assert step(found, "chunk_matches").file == "sql/matching/chunk_matches@ids.sql"
    assert "if chunk ids decide everywhere" in step(found, "chunk_matches").what
    assert [(row["rank"], row["is_expected_chunk"]) for row in rows(found, "per_expected_hit")] == [(1, False)]
    assert [(part.with_values, part.holds) for part in found.condition] == [("1 > 0", True), ("true", True)]
    assert found.filled == ("MAX(CASE WHEN false AND 1 <= 5 THEN 1 ELSE 0 END)",)
    assert found.score == 0
    # 22 of the 25 queries expect a chunk, and 20 of them found one.
    assert (found.total.n_scored, found.total.n_queries, found.total.made_of) == (22, 25, ("20",))
    assert found.total.arithmetic.startswith("20 / 22 = 0.90909")
    assert found.total.numbers == {"hit_at_k.5": 0.9091}


@pytest.fixture(scope="module")
def by_span(demo: tuple[Path, Path]) -> Explanation:
    """A number that rests on spans, explained once; read-only."""
    return of_demo(demo, "2026-03-04-rechunked", "mrr", "g014")


def test_a_match_by_span_step_by_step(by_span: Explanation) -> None:
    """The label is lines 9 to 12 of d4, of an earlier chunker. The second hit is lines 6 to 11: they share three."""
    found = by_span
    assert rows(found, "expected_spans") == [
        {"place": "l1-d4-03", "axis": "line", "low": 9, "high": 13, "bottom": 0, "top": 1}
    ]
    (shared,) = rows(found, "shared_text")
    assert (shared["rank"], shared["shared"], shared["hit_size"], shared["place_size"]) == (2, 3, 6, 4)
    (run,) = rows(found, "run_matching")
    assert (run["n_expected"], run["n_foreign"], run["owner"], run["matching"]) == (22, 22, "lines@1", "span")
    # By ids nothing is decided, so nothing is said about them; supports there are none.
    assert not {"id_matches", "support_hits", "doc_matches", "complex_sets", "sightings"} & set(names(found))
    assert rows(found, "correct_hits") == [{"position": 2, "rank": 2}]
    assert step(found, "chunk_matches").file == "sql/matching/chunk_matches.sql"
    assert found.score == 0.5
    assert found.total.numbers == {"mrr": 0.947}


def test_a_metric_rests_on_what_it_names_and_on_nothing_else(demo: tuple[Path, Path]) -> None:
    with open_scoring(*demo, ["2026-03-03-bm25"], UNCACHED, lazily=True) as scoring:
        failing, grounded, recall, cited = (
            explain_number(scoring, name, "g014") for name in ("error_rate", "grounded", "recall@3", "cited")
        )
    assert set(names(failing)) == {ROW, ENTRY, "parsed", "results", OPTIONS, "per_query"}
    # A golden query: its answer was checked against one rule, which it broke.
    broken = {"needle": "three, five and seven", "must_contain": True, "is_kept": False}
    assert rows(grounded, "rule_checks") == [broken]
    assert not {"hits", "citations", "expected_hits", "chunks"} & set(names(grounded))
    assert {"expected_docs", "doc_matches"} <= set(names(recall))
    assert not {"chunk_matches", "id_matches"} & set(names(recall))
    assert {"citations", "chunk_spans", "citation_checks"} <= set(names(cited))


def test_every_step_names_a_file_that_is_there(by_span: Explanation) -> None:
    made_by_sql = [one for one in by_span.steps if one.name not in (ROW, ENTRY, OPTIONS)]
    assert len(made_by_sql) > 25
    for one in made_by_sql:
        assert one.file is not None
        assert (sql_folder().parent / one.file).is_file()
        assert one.what
        assert one.layer == one.file.split("/")[1]


def test_every_step_follows_those_that_it_reads(by_span: Explanation) -> None:
    found = names(by_span)
    pipeline = (ROW, "parsed", "hits", "near_hits", "shared_text", "found_places", "expected_hits", "per_expected_hit")
    assert [name for name in found if name in pipeline] == list(pipeline)


# --- every metric, against what scoring stores ---------------------------------------------------------


def check_all(scoring: Scoring, aggregate: dict[str, Any], every: int, known: set[str]) -> Iterator[tuple[str, bool]]:
    """Metrics at one of their numbers, each for another query that the run has; yields which apply to the run.

    All that apply and are not known yet, and every fifth of the others.
    """
    (run,) = scoring.runs
    asked = [entry["id"] for entry in scoring.golden.entries]
    has_row = [query_id for query_id in asked if scoring.source.result_json(run.run_id, query_id) is not None]
    for place, metric in enumerate(scoring.catalogue):
        scored = aggregate["ledger"]["metrics"].get(metric.name, {"scored": 0})["scored"]
        if (not scored or metric.name in known) and place % 5 != every % 5:
            continue
        name = metric.numbers[(place + every) % len(metric.numbers)]
        found = explain_number(scoring, name.long, has_row[(place * every) % len(has_row)])
        assert found.total.numbers == {name.long: stored_number(aggregate, name)}
        assert (found.score is not None) <= found.applies
        assert found.applies == all(part.holds for part in found.condition)
        assert found.total.n_scored == scored
        json.dumps(found.to_dict(), default=str)
        yield metric.name, scored > 0


@pytest.mark.slow
def test_every_shipped_metric_ends_at_the_stored_number_in_runs_of_every_system(tmp_path: Path) -> None:
    """Each metric in a run that it applies to, if one of them is, and some in runs that it does not apply to."""
    chosen = ["2026-03-04-rechunked", "2026-03-05-hybrid", "traces"]
    known: set[str] = set()
    applicable: set[str] = set()
    seen: list[str] = []
    others = 0
    for kind, database, golden in workspaces(tmp_path):
        runs = [] if kind == "history" else [run_id for run_id in chosen if run_id not in seen][:1]
        for run_id, aggregate in score_runs(database, golden, runs).aggregates.items() if runs else ():
            numbers = aggregate.to_dict()
            applicable |= {name for name, counts in numbers["ledger"]["metrics"].items() if counts["scored"]}
            with open_scoring(database, golden, [run_id], UNCACHED, lazily=True) as scoring:
                checked = list(check_all(scoring, numbers, 7 + len(seen), known))
            known |= {name for name, applies in checked if applies}
            others += sum(not applies for _, applies in checked)
            seen.append(run_id)
    assert seen == chosen
    assert known == applicable
    assert len(known) >= 30
    assert others >= 10


@pytest.mark.slow
@scorings(2)
@given(seed=st.integers(0, 10**6), match=st.sampled_from(["auto", "exact", "span"]), place=st.integers(0, 10**6))
def test_any_world_ends_at_the_stored_number(seed: int, match: str, place: int) -> None:
    """Invented databases: several chunkings, hits without documents, repeated hits, labels that lead nowhere."""
    world = invent(seed, 3, 2, 3, 6)
    with TemporaryDirectory() as folder:
        db, golden = store(world, Path(folder))
        run = world.runs[place % len(world.runs)].run_id
        options = ScoreOptions(cache="off", match=match)
        aggregate = score_runs(db, golden, [run], options).aggregates[run].to_dict()
        with open_scoring(db, golden, [run], options, lazily=True) as scoring:
            queries = sorted(world.runs[place % len(world.runs)].rows)
            for metric in ("mrr", "hit@3", "recall@5", "chunk_recall@5", "hit_within.500", "cited", "grounded"):
                query_id = queries[place % len(queries)]
                found = explain_number(scoring, metric, query_id)
                (name,) = found.total.numbers
                assert found.total.numbers[name] == stored_number(aggregate, Name.parse(name))
                place += 1


# --- rows that are unusual -----------------------------------------------------------------------------


def test_a_metric_that_does_not_apply_says_why(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c1"], "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c1"), "answer": answer("yes")}})
    found = explained(workspace, "refusal_correctness")
    assert not found.applies
    assert [(part.text, part.with_values, part.holds) for part in found.condition] == [
        ("should_refuse", "false", False),
        ("has_answer", "true", True),
        ("is_counted", "true", True),
    ]
    assert found.score is None
    assert found.total.numbers == {"refusal_correctness": None}
    assert "no query of the run has a value" in found.total.arithmetic
    # About another system: no query of this run can have it.
    found = explained(workspace, "answer_precision")
    assert [part.with_values for part in found.condition if not part.holds] == ["NULL = 'grounded'"]
    assert found.total.n_scored == 0


def test_a_query_without_a_row_is_refused_unless_it_counts(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c1"]}, {"id": "r", "expected_chunk_ids": ["c2"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c1")}})
    with pytest.raises(UsageError, match="no row for query 'r'"):
        explained(workspace, "mrr", "r")
    found = explained(workspace, "mrr", "r", missing="zero")
    assert "no row for this query" in found.notes[0]
    assert step(found, ROW).n_rows == 0
    assert found.score == 0
    assert found.total.numbers == {"mrr": 0.5}
    with pytest.raises(UsageError, match="did you mean"):
        explained(workspace, "mrr", "qq")


def test_an_unreadable_row_and_one_without_labels_say_so(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c1"]})
    workspace.add_run("run", {"q": '{"hits_top_k": 3}', "other": {"hits_top_k": hits("c1")}})
    found = explained(workspace, "failed_queries")
    assert "cannot be read (hits_top_k is not a list)" in found.notes[0]
    assert rows(found, "bad_rows") == [{"fault": "hits_top_k is not a list"}]
    assert (found.score, found.total.numbers) == (1, {"failed_queries": 1})
    found = explained(workspace, "mrr", "other")
    assert "not in the golden file" in found.notes[0]
    assert not found.applies
    assert ENTRY not in names(found)
    assert explained(workspace, "empty_result_rate", "other").score == 0


def test_percentiles_are_explained_together_or_one_by_one(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q"}, {"id": "r"})
    workspace.add_run("run", {"q": {"elapsed_ms": 10}, "r": {"elapsed_ms": 30}})
    found = explained(workspace, "latency_ms")
    assert found.total.numbers == {"latency_ms.p50": 20.0, "latency_ms.p95": 29.0, "latency_ms.total": 40.0}
    assert found.score == 10
    assert explained(workspace, "latency_ms.p95").total.numbers == {"latency_ms.p95": 29.0}
    with pytest.raises(UsageError, match="is ambiguous"):
        explained(workspace, "hit_at_k")


def test_an_own_metric_is_explained_like_any_other(workspace: Workspace, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    text = "-- best_score: the best score of a hit in d1\n-- where: n_hits > 0 AND lang <> 'rank'\n"
    text += "MAX(CASE WHEN doc_id = 'd1' AND per_hit.rank <= :k THEN score END) -- of rank\n"
    (own / "best_score.sql").write_text(text, encoding="utf-8")
    workspace.add_golden({"id": "q", "lang": "en", "expected_chunk_ids": ["c1"]})
    scored = [{**hit, "score": 0.5 / hit["rank"]} for hit in hits("c1", "c2")]
    workspace.add_run("run", {"q": {"hits_top_k": scored}})
    found = explained(workspace, "best_score.3", metric_folders=(own,))
    assert found.score == 0.5
    assert found.metric_file == str(own / "best_score.sql")
    assert found.filled == (
        "MAX(CASE WHEN 'd1' = 'd1' AND 1 <= 3 THEN 0.5 END)",
        "MAX(CASE WHEN 'd1' = 'd1' AND 2 <= 3 THEN 0.25 END)",
    )
    assert [part.with_values for part in found.condition] == ["2 > 0", "'en' != 'rank'", "true"]
    assert {"hits", "hit_docs"} <= set(names(found))


def test_a_secret_of_the_configuration_is_not_shown(workspace: Workspace) -> None:
    support = {"rel_path": "a/b.md", "heading_path": "# A", "snippets": []}
    workspace.add_golden({"id": "q", "gold_supports": [support]})
    row = {"hits_top_k": [{"rank": 1, "chunk_id": "c", "rel_path": "a/b.md"}], "folder_selection": ["a"]}
    workspace.add_run("run", {"q": row})
    config = json.dumps({"folder_mode": "on", "api_key": "hunter2"})
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ?", (config,))
    found = explained(workspace, "scope_miss_rate")
    assert "folder_mode" in rows(found, "runs")[0]["config"]
    assert "hunter2" not in json.dumps(found.to_dict(), default=str)


# --- values in the place of columns ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("rank <= 5 AND is_support", "2 <= 5 AND true"),
        ("per_query.rank + RANK", "2 + 2"),
        ("other.rank", "other.rank"),
        ("rank(rank)", "rank(2)"),
        ("name = 'rank' AND lang = name", "'it''s' = 'rank' AND NULL = 'it''s'"),
        ('"rank" / 2e3', "2 / 2e3"),
        ("ranks -- rank\n+ 1", "ranks + 1"),
        ("share", "0.25"),
    ],
)
def test_values_stand_where_columns_stood(expression: str, expected: str) -> None:
    row = {"rank": 2, "is_support": True, "name": "it's", "lang": None, "share": 0.25}
    assert filled_in(expression, row, "per_query") == expected
