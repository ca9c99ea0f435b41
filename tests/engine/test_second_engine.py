"""Every statement after the facts, as it stands, on DuckDB and on a second engine: the same rows."""

from __future__ import annotations

import contextlib
import copy
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kbeval.engine.relations import COMPOSED, layer_of, relations, sql_folder
from kbeval.metrics.catalogue import GRAINS
from kbeval.scoring.aggregate import run_totals
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.run_warnings import queries_it_applies_to
from kbeval.scoring.scorer import Scoring, open_scoring
from kbeval.scoring.slices import load_slices
from kbeval.util.numbers import SUMMABLE, SUMS, WHOLE
from tests.oracles.judge_oracle import Given
from tests.scoring.test_judged_numbers import store
from tests.support.hostile import make_hostile
from tests.support.second_engine import Sail, bag, is_plain, running_sail
from tests.support.workspace import Workspace, hits

LAYERS = ("matching", "systems", "grains", "totals", "compare", "views", "former")
# Facts of other systems: JSON, lists and folded text end in them.
FACTS = ("anchor_rows", "answer_references", "hit_anchors", "row_folders", "row_vaults")
# Facts that have one row per hit, or read such a relation: an engine elsewhere makes them, too.
PORTABLE = (
    *("chosen_places", "citations", "errors", "hit_docs", "hit_places", "hit_sources", "hit_spans", "judgements"),
    *("place_texts", "run_chunkers", "timeouts", "told_claims", "hit_chunks", "hits_to_keep", "unknown_hits"),
)
# Variants that read no row, so DuckDB makes them.
MADE_HERE = ("run_chunkers@configured", "hits_to_keep@none")
MARKS = ("row_mark", "row_hash")
# Made by Scoring from the metric files.
MADE = ("query_scores", "scores", "comparison")
# The last bits of sums of doubles, which sizes are, depend on the order of rows; scores have none.
DIGITS = 12


@contextlib.contextmanager
def opened(database: Path, golden: Path, **options: Any) -> Iterator[Scoring]:
    """A scoring of all runs with everything built."""
    together = options.pop("together", False)
    with open_scoring(database, golden, None, ScoreOptions(**options), together=together) as scoring:
        scoring.build_scores()
        first, second = [run.run_id for run in scoring.runs][:2]
        scoring.session.execute(
            "CREATE TABLE comparison AS SELECT CAST($1 AS VARCHAR) AS run_a, CAST($2 AS VARCHAR) AS run_b,"
            " CAST(10 AS BIGINT) AS k_a, CAST(5 AS BIGINT) AS k_b, 'ranking changed' AS changed",
            [first, second],
        )
        for name in relations():
            if layer_of(name) in LAYERS or name in PORTABLE:
                scoring.session.need(name)
        yield scoring


@pytest.fixture(scope="module")
def sail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sail]:
    with warnings.catch_warnings():
        # The client warns about new versions of pandas, which it does not use here.
        warnings.simplefilter("ignore")
        with running_sail(tmp_path_factory.mktemp("sail")) as engine:
            yield engine


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    workspace = make_hostile(tmp_path_factory.mktemp("hostile"))
    with open_scoring(workspace.db, None, None) as scoring:
        scoring.session.need("results")
        ((run_id,),) = scoring.session.rows("SELECT MIN(run_id) FROM results")
        found = scoring.session.rows(
            "SELECT query_id FROM results WHERE run_id = $1 AND NOT failed ORDER BY query_id LIMIT 8", [run_id]
        )
    queries = [query_id for (query_id,) in found]
    judged = [
        Given(query, rubric, score, 40, 0.1)
        for query in queries
        for rubric, score in (("correctness", 4.5), ("own", 1 / 3))
    ]
    store(workspace, run_id, judged)
    return workspace.db, workspace.golden


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Nothing but documents is expected, and all runs are of one chunker."""
    workspace = Workspace(tmp_path_factory.mktemp("plain"))
    workspace.add_golden({"id": "q1", "expected_doc_ids": ["d1"]}, {"id": "q2", "expected_doc_ids": []})
    for run_id in ("a", "b"):
        workspace.add_run(run_id, {"q1": {"hits_top_k": hits("c1", "c2")}, "q2": {"hits_top_k": []}})
    return workspace.db, workspace.golden


@pytest.mark.filterwarnings("ignore")
def test_every_statement_after_the_facts_has_the_same_rows(
    made_demo: Path, hostile: tuple[Path, Path], plain: tuple[Path, Path], sail: Sail
) -> None:
    """One test, since each case needs the server, and the files that ran are counted over all of them."""
    demo = (made_demo / "kb.db", made_demo / "golden.yaml")
    ran: set[str] = set()
    wrong: list[str] = []
    for name, of, options in (
        ("demo by ids", demo, {"match": "exact"}),
        ("demo by spans", demo, {"match": "span", "together": True}),
        ("hostile", hostile, {}),
        ("hostile by spans, missing as zero", hostile, {"match": "span", "missing": "zero"}),
        ("plain", plain, {}),
    ):
        sail.forget()
        with opened(*of, **options) as scoring:
            found = [*_other_relations(scoring, sail, ran), *_other_numbers(scoring, sail), *_odd_types(scoring)]
            wrong += [f"{name}: {what}" for what in found]
    assert not wrong, "\n".join(wrong)
    files = {path.stem for layer in LAYERS for path in (sql_folder() / layer).glob("*.sql")}
    assert files - ran - set(FACTS) - set(COMPOSED) == set()


def _other_relations(scoring: Scoring, sail: Sail, ran: set[str]) -> Iterator[str]:
    """The relations whose rows differ; adds the files that did run."""
    session = scoring.session
    for name in relations():
        if (layer_of(name) not in LAYERS and name not in PORTABLE) or name in FACTS:
            continue
        file = session.variant_of(name)
        # Letters fold differently there.
        file = "timeouts@archived" if name == "timeouts" else file
        assert file is not None, name
        if file in MADE_HERE:
            continue
        relation = relations()[file]
        session.need(*sorted(relation.reads & relations().keys()))
        for read in relation.reads & (session.built | set(MADE)):
            sail.hand_over(session, read)
        wanted = bag(session.rows(f"SELECT * FROM {name}"), DIGITS)
        try:
            found = bag(sail.rows(relation.sql), DIGITS)
        except Exception as error:  # noqa: BLE001  (all of them are listed)
            yield f"{file}: {str(error)[:200]}"
            continue
        ran.add(file)
        if found != wanted:
            yield f"{file}: {list(wanted - found)[:3]} became {list(found - wanted)[:3]}"


def _other_numbers(scoring: Scoring, sail: Sail) -> Iterator[str]:
    """Metrics, sums and percentiles must be the same to the last bit."""
    session = scoring.session
    there = copy.copy(scoring)
    there.session = sail  # type: ignore[assignment]  # what composing statements needs of a session
    for name in GRAINS:
        session.need(name)
    for name in (*GRAINS, "query_scores"):
        sail.hand_over(session, name)
    if bag(sail.rows(there.scoring_sql())) != bag(session.rows("SELECT * FROM query_scores")):
        yield "query_scores differ"
    if bag(sail.rows(there.scores_sql())) != bag(session.rows("SELECT * FROM scores")):
        yield "scores differ"
    for by in (None, "tags", "category"):
        if by is not None:
            load_slices(scoring, by)
            sail.hand_over(session, "asked_slices", again=True)
        if list(run_totals(there, by)) != list(run_totals(scoring, by)):
            yield f"totals by {by} differ"
    if queries_it_applies_to(there) != queries_it_applies_to(scoring):
        yield "applicable differs"


def _odd_types(scoring: Scoring) -> Iterator[str]:
    """Facts have neither unsigned nor 128-bit integers, except marks, which nothing after the facts reads."""
    for name in scoring.session.built & relations().keys():
        if (layer_of(name) in ("stored", "labels", "places") and name not in PORTABLE) or name in FACTS:
            for column, kind, *_ in scoring.session.rows(f"DESCRIBE {name}"):
                if "INT" in kind and kind not in ("BIGINT", "INTEGER") and is_plain(kind) and column not in MARKS:
                    yield f"{name}.{column} is {kind}"


@pytest.mark.filterwarnings("ignore")
def test_sums_of_any_doubles_are_the_same_whole_numbers(sail: Sail, tmp_path: Path) -> None:
    """480,000 doubles, and some that cannot be summed; on an engine that is really another one."""
    _differs(sail)
    chance = random.Random(7)
    kinds: tuple[Callable[[], float], ...] = (
        lambda: chance.randrange(400) / chance.randrange(1, 401),
        lambda: chance.randrange(10**10) / 1e5,
        lambda: chance.randrange(10**9) + 0.00005,
        lambda: chance.uniform(-1e15, 1e15),
        lambda: chance.choice((-1, 1)) * 10 ** chance.uniform(-30, 15.5),
    )
    values = [draw() for draw in kinds for _ in range(96_000)] + [float("inf"), float("nan"), -1e300, 1e15, -1e15]
    sums = ", ".join(part.format(value="v", whole="w") for part in SUMS)
    sql = (
        f"SELECT g, {sums}, COUNT(v) FROM (SELECT g, v, {WHOLE.format(value='v')} AS w FROM"
        f" (SELECT g, {SUMMABLE.format(value='x')} AS v FROM doubles) AS a) AS b GROUP BY g"
    )
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE doubles AS SELECT UNNEST(CAST($1 AS DOUBLE[])) AS x, UNNEST(CAST($2 AS BIGINT[])) AS g",
            [values, [number // 40 for number in range(len(values))]],
        )
        connection.execute(f"COPY doubles TO '{tmp_path / 'doubles.parquet'}'")
        wanted = bag(connection.execute(sql).fetchall())
    sail.know("doubles", tmp_path / "doubles.parquet")
    assert bag(sail.rows(sql)) == wanted


def _differs(sail: Sail) -> None:
    """What the files must not use does fail or differ there, so this module would notice it."""
    for refused in ("SELECT CAST(1 AS VARCHAR)", "SELECT 1 WHERE true QUALIFY true", "SELECT $1"):
        with pytest.raises(Exception, match=r".") as raised:
            sail.rows(refused)
        assert not isinstance(raised.value, AssertionError)
    assert sail.rows("SELECT LENGTH(LOWER('İ'))") == [(2,)]
    assert duckdb.execute("SELECT LENGTH(LOWER('İ'))").fetchall() == [(1,)]
