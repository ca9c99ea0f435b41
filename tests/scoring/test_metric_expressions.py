"""An own metric sees the rows of one query and gives the same value whenever it is computed; all else is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbeval.errors import MetricError
from kbeval.metrics.catalogue import metrics_in_config, shipped_metrics
from kbeval.scoring.expressions import Expressions
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from tests.support.workspace import Workspace, answer, hits


def filled(workspace: Workspace) -> Workspace:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": [f"c{n}"]} for n in (1, 2)))
    for run in ("one", "two"):
        workspace.add_run(run, {"q1": {"hits_top_k": hits("c1", None), "answer": answer("yes")}, "q2": {}})
    return workspace


@pytest.fixture
def runs(workspace: Workspace) -> Workspace:
    return filled(workspace)


@pytest.fixture(scope="module")
def expressions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Expressions]:
    """Over one session with two runs, in which nothing is ever computed."""
    workspace = filled(Workspace(tmp_path_factory.mktemp("expressions")))
    with open_scoring(workspace.db, workspace.golden, None, ScoreOptions()) as scoring:
        scoring.session.need("per_query", "per_hit", "per_expected_hit", "per_label", "per_piece")
        yield Expressions(scoring.session)


def refused(workspace: Workspace, **definition: str) -> str:
    metrics = metrics_in_config({"mine": definition}, "kbeval.toml")
    with pytest.raises(MetricError) as caught:
        workspace.score(configured_metrics=metrics)
    message = str(caught.value)
    assert "\n" not in message
    assert "kbeval.toml, metric mine" in message
    return message


HOSTILE = {
    # what changes with the moment, the machine or chance
    "MAX(random())": "'random'",
    "MAX(rank) + 0 * RANDOM()": "'random'",
    "MAX(system.main.random())": "'random'",
    "MAX(rank * main.random())": "'random'",
    "MAX(epoch(now()))": "'now'",
    "MAX(year(current_date))": "'current_date'",
    "MAX(epoch(current_timestamp))": "'current_timestamp'",
    "MAX(epoch(get_current_timestamp()))": "'get_current_timestamp'",
    "MAX(epoch(localtimestamp))": "'localtimestamp'",
    "MAX(epoch(current_localtimestamp()))": "'current_localtimestamp'",
    "MAX(hour(localtime))": "'localtime'",
    "MAX(hour(current_time))": "'current_time'",
    "MAX(year(today()))": "'today'",
    "MAX(epoch(transaction_timestamp()))": "'transaction_timestamp'",
    "MAX(epoch(ago(INTERVAL 1 DAY)))": "'ago'",
    "MAX(epoch(age(TIMESTAMP '2020-01-01')))": "'age'",
    "MAX(hash(uuid()))": "'uuid'",
    "MAX(hash(gen_random_uuid()))": "'gen_random_uuid'",
    "MAX(hash(uuidv4()))": "'uuidv4'",
    "MAX(hash(uuidv7()))": "'uuidv7'",
    "MAX(nextval('s'))": "'nextval'",
    "MAX(currval('s'))": "'currval'",
    "MAX(length(current_setting('threads')))": "'current_setting'",
    "MAX(length(getvariable('x')))": "'getvariable'",
    "MAX(length(version()))": "'version'",
    "MAX(length(current_query()))": "'current_query'",
    "MAX(length(current_user))": "'current_user'",
    "MAX(length(user))": "'user'",
    "MAX(length(current_schema()))": "'current_schema'",
    "MAX(txid_current())": "'txid_current'",
    "MAX(setseed(0.5))": "'setseed'",
    "MAX(length(pg_typeof(rank)))": "'pg_typeof'",
    "MAX(list_sum([random() for x in [1, 2]]))": "'random'",
    "MAX(list_sum(list_transform([1], lambda x: x + random())))": "'random'",
    "reservoir_quantile(rank, 0.5)": "'reservoir_quantile'",
    "approx_quantile(rank, 0.5)": "'approx_quantile'",
    "approx_count_distinct(rank)": "'approx_count_distinct'",
    "MAX(CASE WHEN now() > TIMESTAMP '2020-01-01' THEN 1 END)": "'now'",
    # what goes by the order of rows
    "FIRST(rank)": "first(… ORDER BY …)",
    "ANY_VALUE(rank)": "any_value(… ORDER BY …)",
    "LENGTH(STRING_AGG(chunk_id, ','))": "string_agg(… ORDER BY …)",
    "list_first(LIST(rank))": "list(… ORDER BY …)",
    "MAX(rowid)": "rowid",
    # other queries and other runs
    "(SELECT MAX(rank) FROM per_hit)": "'per_hit' in a subquery",
    "MAX(rank) - (SELECT AVG(r.rank) FROM per_hit AS r)": "'per_hit' in a subquery",
    "(SELECT COUNT(*) FROM per_query)": "'per_query' in a subquery",
    "(SELECT COUNT(*) FROM hits)": "'hits' in a subquery",
    "MAX(rank) + (FROM results SELECT COUNT(*))": "'results' in a subquery",
    "(WITH x AS (SELECT * FROM hits) SELECT COUNT(*) FROM x)": "'hits'",
    "(SELECT COUNT(*) FROM per_hit AS o WHERE o.result_no = MAX(per_hit.result_no))": "'per_hit' in a subquery",
    "MAX(CASE WHEN chunk_id IN (SELECT chunk_id FROM hits) THEN 1 ELSE 0 END)": "'hits' in a subquery",
    "MAX(CASE WHEN EXISTS (FROM results) THEN 1 ELSE 0 END)": "'results' in a subquery",
    "len(ARRAY(SELECT rank FROM hits))": "'hits' in a subquery",
    "(SELECT MAX(range) FROM range(10))": "'range' in a subquery",
    "(SELECT MAX(size) FROM read_text('/etc/passwd'))": "'read_text' in a subquery",
    "(SELECT 1)": "a subquery is not allowed",
    "(VALUES (1))": "a subquery is not allowed",
    "SUM(MAX(rank)) OVER ()": "window function 'sum'",
    "LAG(MAX(rank)) OVER (ORDER BY result_no)": "window function 'lag'",
    "ROW_NUMBER() OVER ()": "window function 'row_number'",
    "MAX(rank)) AS value FROM hits GROUP BY result_no UNION SELECT (1": "single expression",
    "MAX($1)": "parameters",
    "MAX(#1)": "positional reference",
}


@pytest.mark.parametrize("expression", HOSTILE)
def test_an_expression_that_sees_more_than_its_query_is_refused_by_name(
    expressions: Expressions, expression: str
) -> None:
    assert HOSTILE[expression] in (expressions.fault(expression, "per_hit") or "let through")


@pytest.mark.parametrize("expression", ["MAX(random())", "(SELECT MAX(rank) FROM per_hit)", "SUM(MAX(rank)) OVER ()"])
def test_a_refused_expression_stops_scoring_before_anything_is_computed(runs: Workspace, expression: str) -> None:
    assert HOSTILE[expression] in refused(runs, expression=expression)


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("random() < 0.5", "'random'"),
        ("is_golden AND now() > TIMESTAMP '2020-01-01'", "'now'"),
        ("n_hits > (SELECT AVG(n_hits) FROM per_query)", "'per_query' in a subquery"),
        ("query_id IN (FROM hits SELECT chunk_id)", "'hits' in a subquery"),
        ("SUM(n_hits) OVER () > 3", "window function 'sum'"),
        ("current_date > DATE '2020-01-01'", "'current_date'"),
        ("rowid % 2 = 0", "rowid"),
        ("rank > 1", "per_query has no column 'rank'"),
        ("true) GROUP BY result_no UNION ALL SELECT (true", "single expression"),
    ],
)
def test_a_condition_that_sees_more_than_its_query_is_refused_by_name(
    expressions: Expressions, condition: str, name: str
) -> None:
    assert name in (expressions.fault(condition, "per_query") or "let through")


def test_a_refused_condition_is_shown_as_one(runs: Workspace) -> None:
    message = refused(runs, expression="MAX(rank)", where="random() < 0.5")
    assert "where: random() < 0.5: the function 'random'" in message


def test_a_metric_file_is_held_to_the_same(runs: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "luck.sql").write_text("-- luck: by chance.\nMAX(random())\n")
    with pytest.raises(MetricError, match=r"luck\.sql: .*the function 'random' is not allowed"):
        runs.score(metric_folders=[folder])


HONEST = [
    "MAX(rank)",
    "max(per_hit.rank)",
    'MAX("rank")',
    "MAX(RANK)",
    "COUNT(*)",
    "COUNT(DISTINCT chunk_id)",
    "SUM(CASE WHEN rank <= :k THEN 1 ELSE 0 END)",
    "COALESCE(MAX(CASE WHEN is_expected_chunk AND rank <= 10 THEN CAST(1 AS DOUBLE) / rank END), 0)",
    "SUM(n_places) FILTER (WHERE rank <= 3)",
    "AVG(score)",
    "MEDIAN(score)",
    "quantile_cont(score, 0.5)",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY rank)",
    "STDDEV(score)",
    "MAX(score) - MIN(score)",
    "SUM(1 / LOG2(rank + 1))",
    "SUM(power(0.5, rank))",
    "MAX(CASE WHEN doc_id LIKE 'd%' THEN 1 ELSE 0 END)",
    "MAX(CASE WHEN doc_id ILIKE 'D%' COLLATE NOCASE THEN 1 ELSE 0 END)",
    "MAX(CASE WHEN regexp_matches(chunk_id, '^c') THEN 1 ELSE 0 END)",
    "MAX(CASE WHEN rank BETWEEN 1 AND 3 THEN 1 END)",
    "MAX(CASE rank WHEN 1 THEN 2 ELSE 3 END)",
    "MAX(CASE WHEN chunk_id IN ('c1', 'c2') THEN 1 ELSE 0 END)",
    "MAX(CASE WHEN chunk_id IS NULL THEN 1 ELSE 0 END)",
    "MAX(CASE WHEN NOT is_support THEN 1 ELSE 0 END)",
    "MAX(n_hits)",
    "MAX(length(chunk_id))",
    "MAX(GREATEST(rank, 1))",
    "MAX(ROUND(score, 2))",
    "MAX(TRY_CAST(chunk_id AS INTEGER))",
    "SUM(rank) / NULLIF(COUNT(rank), 0)",
    "FIRST(rank ORDER BY rank)",
    "LENGTH(STRING_AGG(chunk_id, ',' ORDER BY rank))",
    "list_sum(LIST(rank ORDER BY rank))",
    "list_sum(list_transform(LIST(rank ORDER BY rank), lambda x: x * 2))",
    "list_sum([x * 2 for x in LIST(rank ORDER BY rank) if x > 1])",
    "list_aggregate(LIST(score ORDER BY rank), 'max')",
    "LIST(rank ORDER BY rank)[1]",
    "arg_min(score, rank)",
    "BOOL_OR(is_expected_chunk)",
    "COUNT_IF(is_expected_doc)",
    "MAX(json_number('1.5'))",
    "MAX(json_extract('{\"a\": 1}', '$.a')::INTEGER)",
    "MAX(TRY_CAST(split_part(chunk_id, '-', 2) AS DOUBLE))",
    "MAX(TRY(CAST(chunk_id AS DOUBLE)))",
    "MAX(date_diff('day', DATE '2026-01-01', DATE '2026-02-01'))",
    "MAX(epoch(age(TIMESTAMP '2026-01-02', TIMESTAMP '2026-01-01')))",
    "MAX({'a': rank}.a)",
    "MAX(if(grounded, 1, 0))",
    "MAX(rank) -- a comment (SELECT random())",
    "MAX(CASE WHEN chunk_id = 'random()' THEN 1 ELSE 0 END)",
    "pi()",
]


def test_honest_expressions_are_let_through(runs: Workspace) -> None:
    assert len(HONEST) >= 40
    metrics = metrics_in_config({f"m{place}": expression for place, expression in enumerate(HONEST)}, "kbeval.toml")
    found = runs.aggregate("one", configured_metrics=metrics)
    assert (found["m0"], found["m31"]) == (2.0, 1.0)


def test_every_metric_that_comes_with_kbeval_keeps_to_the_same(expressions: Expressions) -> None:
    for metric in shipped_metrics():
        assert expressions.fault(metric.where, "per_query") is None, metric.name
        for column in metric.columns:
            assert expressions.fault(metric.expression_at(column.k), metric.grain) is None, metric.name
