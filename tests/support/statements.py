"""Every statement after the facts, as it stands, on DuckDB and on another engine: for tests on Sail and on Spark."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import duckdb

from kbeval.engine.relations import COMPOSED, layer_of, relations, sql_folder
from kbeval.metrics.catalogue import GRAINS
from kbeval.scoring.aggregate import run_totals
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.run_warnings import queries_it_applies_to
from kbeval.scoring.scorer import Scoring, open_scoring
from kbeval.scoring.slices import load_slices
from kbeval.util.numbers import SUMMABLE, SUMS, WHOLE
from tests.oracles.judge_oracle import Given
from tests.scoring.test_judged_numbers import marks, store
from tests.support.hostile import make_hostile
from tests.support.second_engine import Rows, Sail, bag, is_plain
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
# So may those of metrics that add up gains in decimals, of logarithms or powers. Stored numbers have four decimals.
BLURRED = ("bpref", "map_at_k", "ndcg_at_k", "rbp")


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


def hostile_runs(folder: Path) -> tuple[Path, Path]:
    """All kinds of data, and judgements."""
    workspace = make_hostile(folder)
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
    store(workspace, run_id, judged, known=marks(workspace, run_id))
    return workspace.db, workspace.golden


def plain_runs(folder: Path) -> tuple[Path, Path]:
    """Nothing but documents is expected, and all runs are of one chunker."""
    workspace = Workspace(folder)
    workspace.add_golden({"id": "q1", "expected_doc_ids": ["d1"]}, {"id": "q2", "expected_doc_ids": []})
    for run_id in ("a", "b"):
        workspace.add_run(run_id, {"q1": {"hits_top_k": hits("c1", "c2")}, "q2": {"hits_top_k": []}})
    return workspace.db, workspace.golden


def assert_same_rows(demo: tuple[Path, Path], folder: Path, engine: Sail, *, all_data: bool = True) -> None:
    """The rows of all relations and the values of all metrics. The files that ran are counted over all data.

    `all_data`: False, where statements take long: after hostile data, other data only for files that did not run.
    """
    (folder / "hostile").mkdir()
    (folder / "plain").mkdir()
    hostile, plain = hostile_runs(folder / "hostile"), plain_runs(folder / "plain")
    ran: set[str] = set()
    computed: set[str] = set()
    wrong: list[str] = []
    for name, of, options in (
        ("hostile", hostile, {}),
        ("hostile by spans, missing as zero", hostile, {"match": "span", "missing": "zero"}),
        ("demo by ids", demo, {"match": "exact"}),
        ("demo by spans", demo, {"match": "span", "together": True}),
        ("plain", plain, {}),
    ):
        engine.forget()
        skipped = frozenset() if all_data or of == hostile else frozenset(ran)
        with opened(*of, **options) as scoring:
            found = [
                *_other_relations(scoring, engine, ran, skipped),
                *_other_numbers(scoring, engine),
                *_odd_types(scoring),
            ]
            wrong += [f"{name}: {what}" for what in found]
            computed |= {metric.name for metric in scoring.metrics}
    assert not wrong, "\n".join(wrong)
    files = {path.stem for layer in LAYERS for path in (sql_folder() / layer).glob("*.sql")}
    assert files - ran - set(FACTS) - set(COMPOSED) == set()
    assert {path.stem for path in (sql_folder() / "metrics").glob("*.sql")} - computed == set()


def _other_relations(scoring: Scoring, engine: Sail, ran: set[str], skipped: Collection[str]) -> Iterator[str]:
    """The relations whose rows differ; adds the files that did run."""
    session = scoring.session
    for name in relations():
        if (layer_of(name) not in LAYERS and name not in PORTABLE) or name in FACTS:
            continue
        file = session.variant_of(name)
        # Letters fold differently there.
        file = "timeouts@archived" if name == "timeouts" else file
        assert file is not None, name
        if file in MADE_HERE or file in skipped:
            continue
        relation = relations()[file]
        session.need(*sorted(relation.reads & relations().keys()))
        for read in relation.reads & (session.built | set(MADE)):
            engine.hand_over(session, read)
        wanted = bag(session.rows(f"SELECT * FROM {name}"), DIGITS)
        try:
            found = bag(engine.rows(relation.sql), DIGITS)
        except Exception as error:  # noqa: BLE001  (all of them are listed)
            yield f"{file}: {str(error)[:200]}"
            continue
        ran.add(file)
        if found != wanted:
            yield f"{file}: {list(wanted - found)[:3]} became {list(found - wanted)[:3]}"


def _other_numbers(scoring: Scoring, engine: Sail) -> Iterator[str]:
    """Metrics, sums and percentiles must be the same, with the exceptions above to the last bit."""
    session = scoring.session
    there = copy.copy(scoring)
    there.session = engine  # type: ignore[assignment]  # what composing statements needs of a session
    for name in GRAINS:
        session.need(name)
    for name in (*GRAINS, "query_scores"):
        engine.hand_over(session, name)
    columns = [name for name, *_ in session.rows("DESCRIBE query_scores")]
    here, away = (
        bag(_without_last_bits(columns, rows))
        for rows in (session.rows("SELECT * FROM query_scores"), engine.rows(there.scoring_sql()))
    )
    if here != away:
        yield f"query_scores: {list(here - away)[:1]} became {list(away - here)[:1]}"
    if bag(engine.rows(there.scores_sql())) != bag(session.rows("SELECT * FROM scores")):
        yield "scores differ"
    for by in (None, "tags", "category"):
        if by is not None:
            load_slices(scoring, by)
            engine.hand_over(session, "asked_slices", again=True)
        if list(run_totals(there, by)) != list(run_totals(scoring, by)):
            yield f"totals by {by} differ"
    if queries_it_applies_to(there) != queries_it_applies_to(scoring):
        yield "applicable differs"


def _without_last_bits(columns: list[str], rows: Rows) -> Rows:
    """Rows in which the metrics that use a logarithm, a power or a decimal have no more than DIGITS."""
    blurred = [column.partition(".")[0] in BLURRED for column in columns]
    return [
        tuple(
            float(f"{value:.{DIGITS}g}") if is_blurred and isinstance(value, float) else value
            for is_blurred, value in zip(blurred, row, strict=True)
        )
        for row in rows
    ]


def _odd_types(scoring: Scoring) -> Iterator[str]:
    """Facts have neither unsigned nor 128-bit integers, except marks, which nothing after the facts reads."""
    for name in scoring.session.built & relations().keys():
        if (layer_of(name) in ("stored", "labels", "places") and name not in PORTABLE) or name in FACTS:
            for column, kind, *_ in scoring.session.rows(f"DESCRIBE {name}"):
                if "INT" in kind and kind not in ("BIGINT", "INTEGER") and is_plain(kind) and column not in MARKS:
                    yield f"{name}.{column} is {kind}"


def assert_same_sums(engine: Sail, folder: Path) -> None:
    """480,000 doubles, and some that cannot be summed: the same whole numbers."""
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
        connection.execute(f"COPY doubles TO '{folder / 'doubles.parquet'}'")
        wanted = bag(connection.execute(sql).fetchall())
    engine.know("doubles", folder / "doubles.parquet")
    assert bag(engine.rows(sql)) == wanted
