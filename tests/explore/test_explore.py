"""Questions in SQL: they are answered, read only what they name, and cannot change anything."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from kbeval.engine.guard import read_statements
from kbeval.engine.relations import relations
from kbeval.errors import GoldenError, KbevalError, UsageError
from kbeval.explore.explorer import Explorer, open_explorer, unique
from kbeval.explore.tables import read_head, tables
from kbeval.scoring.options import ScoreOptions
from tests.support.workspace import Workspace, hits


@pytest.fixture
def two_runs(workspace: Workspace) -> Workspace:
    workspace.add_golden(
        {"id": "q1", "expected_chunk_ids": ["c1"]},
        {"id": "q2", "expected_chunk_ids": ["c2"]},
    )
    workspace.add_run("a", {"q1": {"hits_top_k": hits("c1")}, "q2": {"hits_top_k": hits(None)}})
    workspace.add_run("b", {"q1": {"hits_top_k": hits(None, "c1")}, "q2": "not JSON"}, created_at="2026-02-01")
    return workspace


@pytest.fixture
def explorer(two_runs: Workspace) -> Iterator[Explorer]:
    with open_explorer(two_runs.db, two_runs.golden) as found:
        yield found


# --- answers ---------------------------------------------------------------------------------------


def test_a_question_about_runs_reads_no_result(explorer: Explorer) -> None:
    answer = explorer.query("SELECT COUNT(*) AS n FROM runs")
    assert (answer.columns, answer.rows()) == (("n",), [(2,)])
    assert explorer.session.built == {"runs", "stored_runs"}


def test_a_question_about_hits_reads_no_label(explorer: Explorer) -> None:
    assert explorer.query("SELECT MAX(rank) FROM hits").rows() == [(2,)]
    assert "hits" in explorer.session.built
    assert not {"golden_entries", "per_query", "query_scores", "stored_places"} & explorer.session.built


def test_a_question_about_places_gets_them_though_ids_decide(two_runs: Workspace) -> None:
    """Neither the golden file nor an earlier question changes the positions of hits."""
    two_runs.add_chunk("c1", "d1", [{"kind": "line", "start": 3, "end": 9}])
    two_runs.add_chunk("c2", "d1", [{"kind": "line", "start": 10, "end": 12}])
    placed = "SELECT COUNT(*) FROM hit_places WHERE spans_text LIKE '%9%'"
    for golden in (two_runs.golden, None):
        for before in ("SELECT 1", "SELECT COUNT(*) FROM scores", "SELECT COUNT(*) FROM hit_labels"):
            with open_explorer(two_runs.db, golden) as explorer:
                explorer.query(before)
                assert explorer.query(placed).rows() == [(2,)]
                assert explorer.query("SELECT COUNT(*) FROM hit_spans WHERE high = 10").rows() == [(2,)]
    with open_explorer(two_runs.db, two_runs.golden) as explorer:
        assert explorer.query("SELECT DISTINCT n_expected, matching FROM run_matching").rows() == [(2, "exact")]
        assert explorer.query("SELECT COUNT(spans_text) FROM expected_places").rows() == [(2,)]
        found = explorer.query("SELECT run_id, AVG(value) FROM scores WHERE metric = 'mrr' GROUP BY run_id ORDER BY 1")
        assert found.rows() == [(run_id, two_runs.aggregate(run_id)["mrr"]) for run_id in ("a", "b")]


def test_scores_are_those_of_the_scorer(explorer: Explorer, two_runs: Workspace) -> None:
    found = explorer.query("SELECT run_id, AVG(value) FROM scores WHERE metric = 'mrr' GROUP BY run_id ORDER BY 1")
    assert found.rows() == [(run_id, two_runs.aggregate(run_id)["mrr"]) for run_id in ("a", "b")]
    wide = explorer.query("SELECT query_id, \"hit_at_k.1\" FROM query_scores WHERE run_id = 'a' ORDER BY 1").rows()
    assert wide == [("q1", 1.0), ("q2", 0.0)]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("FROM runs SELECT run_id ORDER BY ALL", [("a",), ("b",)]),
        ("VALUES (1)", [(1,)]),
        ("WITH x AS (SELECT run_id FROM runs), y AS (FROM x) SELECT COUNT(*) FROM y", [(2,)]),
        # Inside its own definition the name is the relation; after it, what was defined.
        ("WITH runs AS (SELECT COUNT(*) AS n FROM runs) SELECT n FROM runs", [(2,)]),
        ('SELECT COUNT(*) FROM "RUNS" AS r JOIN main.results USING (run_id)', [(4,)]),
        ("SELECT (SELECT COUNT(*) FROM bad_rows)", [(1,)]),
        ("SELECT COUNT(*) FROM runs WHERE EXISTS (FROM hits)", [(2,)]),
        ("PIVOT results ON run_id IN ('a', 'b') USING COUNT(*) GROUP BY failed ORDER BY 1 LIMIT 1", [(False, 2, 1)]),
        ("WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT SUM(n) FROM t", [(6,)]),
        ("SELECT i FROM range(2) AS t(i) ORDER BY i DESC NULLS FIRST LIMIT 1", [(1,)]),
        ("SELECT run_id FROM runs QUALIFY row_number() OVER (ORDER BY run_id) = 2", [("b",)]),
        ("SELECT chunker_version, config ->> '$.chunker_version' FROM runs LIMIT 1", [("md@1", "md@1")]),
        ("SELECT column_name FROM (DESCRIBE SELECT 1 AS x)", [("x",)]),
        ("SELECT CAST('1' AS DECIMAL(3, 1)) = 1, [1, 2][1], {'a': 1}.a", [(True, 1, 1)]),
    ],
)  # fmt: skip
def test_every_form_of_question_is_answered(explorer: Explorer, sql: str, rows: list[tuple[object, ...]]) -> None:
    assert explorer.query(sql).rows() == rows


def test_explain_summarize_describe_and_show_tables(explorer: Explorer) -> None:
    for sql in ("EXPLAIN SELECT * FROM runs", "EXPLAIN ANALYZE FROM runs", "explain (format json) FROM runs"):
        assert "runs" in explorer.query(sql).rows()[0][1]
    assert [row[0] for row in explorer.query("SUMMARIZE runs").rows()][:2] == ["run_id", "suite"]
    assert explorer.query("DESCRIBE runs").rows()[0][0] == "run_id"
    former = {"answered", "ranked", "matched"}
    assert {row[0] for row in explorer.query("SHOW ALL TABLES").rows()} == {*tables(), "compare(a, b)"} - former


def test_show_tables_has_what_people_ask_about(explorer: Explorer) -> None:
    answer = explorer.query("SHOW TABLES")
    assert answer.columns == ("name", "layer", "description")
    shown = {row[0]: row[1] for row in answer.rows()}
    assert shown.items() > {"runs": "stored", "queries": "labels", "scores": "totals", "aggregates": "views"}.items()
    assert not {"parsed", "id_matches", "span_pieces", "step_pairs"} & shown.keys()
    assert 18 <= len(shown) <= 30
    # Tables that are not listed can be queried, too.
    assert explorer.query("DESCRIBE id_matches").rows()[0][0] == "result_no"


def test_a_file_says_itself_whether_it_is_shown() -> None:
    head = "-- x: what it is.\n-- columns: a\n-- kind: view\n"
    assert not read_head("x", "stored", f"{head}SELECT 1").is_shown
    found = read_head("x", "stored", f"{head}-- shown: yes\nSELECT 1")
    assert (found.is_shown, found.description, found.notes) == (True, "what it is.", "a")


def test_a_frame(explorer: Explorer) -> None:
    frame = explorer.frame("SELECT run_id FROM runs ORDER BY run_id;")
    assert frame["run_id"].to_list() == ["a", "b"]


def test_an_answer_comes_in_batches(explorer: Explorer) -> None:
    with explorer.answering(explorer.one("SELECT * FROM range(25000)")) as answer:
        assert [len(batch) for batch in answer.batches] == [10_000, 10_000, 5_000]
    # Leaving in the middle is fine, too.
    with explorer.answering(explorer.one("SELECT * FROM range(100000000000)")) as answer:
        assert len(next(answer.batches)) == 10_000
    assert explorer.query("SELECT 1").rows() == [(1,)]


def test_columns_of_the_same_name_are_distinguished() -> None:
    assert unique(["n", "N", "n_1", "n"]) == ("n", "N_1", "n_1_1", "n_2")


def test_the_configuration_has_columns_and_no_secrets(workspace: Workspace) -> None:
    config = {
        "embedding": {"model": "e5", "api_key": "hush"},
        "retriever": {"name": "bm25"},
        "llm": {"model_id": "m1", "url": "https://me:hush@host/"},
        "reranker": "r@2",
        "prompt_version": 3,
        "token": "hush",
    }
    add = "INSERT INTO eval_runs VALUES (?, 's', ?, '', NULL, '2026')"
    workspace.execute(add, ("full", json.dumps(config)))
    workspace.execute(add, ("odd", "{hush"))
    workspace.execute(add, ("list", '["hush"]'))
    with open_explorer(workspace.db) as explorer:
        names = "embedding_model, retriever, llm_model, reranker, prompt_version"
        found = explorer.query(f"SELECT run_id, {names} FROM runs ORDER BY run_id").rows()
        assert found == [("full", "e5", "bm25", "m1", "r@2", "3"), ("list", *[None] * 5), ("odd", *[None] * 5)]
        assert explorer.query("SELECT config ->> '$.embedding.model' FROM runs ORDER BY 1 NULLS LAST").rows()[0] == (
            "e5",
        )
        assert "hush" not in str(explorer.query("FROM runs").rows())


def test_without_a_golden_file_there_are_no_labels(two_runs: Workspace) -> None:
    with open_explorer(two_runs.db) as explorer:
        assert explorer.query("SELECT COUNT(*) FROM queries").rows() == [(0,)]
        assert explorer.query("SELECT COUNT(*) FROM results").rows() == [(4,)]
        assert explorer.needs_labels(explorer.one("SELECT * FROM scores"))
        assert explorer.needs_labels(explorer.one("SELECT * FROM queries"))
        assert not explorer.needs_labels(explorer.one("SELECT * FROM hits, runs"))


def test_a_golden_file_is_read_when_it_is_asked_for(two_runs: Workspace) -> None:
    two_runs.golden.write_text("[{}]")
    with open_explorer(two_runs.db, two_runs.golden) as explorer:
        assert explorer.query("SELECT COUNT(*) FROM hits").rows() == [(4,)]
        with pytest.raises(GoldenError):
            explorer.query("SELECT * FROM queries")
    with pytest.raises(KbevalError, match="no such golden file"), open_explorer(two_runs.db, "nope.yaml"):
        pass


# --- what there is ---------------------------------------------------------------------------------


def test_every_table_is_described_and_has_columns(explorer: Explorer) -> None:
    for table in explorer.tables():
        assert table.description, table.name
        assert explorer.schema(table.name).columns, table.name
    assert explorer.session.built == frozenset()
    assert dict(explorer.schema("HITS").columns)["rank"] == "BIGINT"
    assert "as stored" in explorer.schema("hits").table.notes
    assert "hit_at_k.5" in dict(explorer.schema("query_scores").columns)


def test_the_outline_tells_the_truth(explorer: Explorer) -> None:
    for name in ("runs", "results", "hits", "queries", "per_query", "scores", "query_scores", "per_hit"):
        explorer.make(name)
        real = [(row[0], row[1]) for row in explorer.session.rows(f"DESCRIBE {name}")]
        assert list(explorer.schema(name).columns) == real, name


def test_what_is_not_for_asking_is_not_listed() -> None:
    assert not {"compared", "pairs", "hits_to_keep", "stored_runs", "golden_entries", "settings"} & set(tables())
    assert {"runs", "hits", "scores", "query_scores", "per_query"} <= set(tables())


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("FROM compare", "a function of two runs: compare"),
        ("FROM hit", "there is no table 'hit'; did you mean 'hits'?"),
        ("FROM stored_results", "there is no table 'stored_results'"),
        ("FROM other.runs", "there is no table 'other.runs'"),
        ("SELECT chunker FROM runs", '"chunker" not found.*chunker_version.*line 1, column 8: chunker FROM runs'),
        ("SELECT 1\nFROM runs\nWHERE", "syntax error .*line 3"),
        ("SELCT 1", r"syntax error .*\(line 1, column 1: SELCT 1\)"),
        ("SELECT CAST('x' AS INTEGER)", "Could not convert string 'x'"),
        ("SELECT nosuch(1)", "nosuch does not exist"),
        ("SELECT ?", "parameters"),
        ("", "no statement"),
        ("-- nothing", "no statement"),
        ("SELECT 1; SELECT 2", "expected one statement, got 2"),
        ("SELECT '\0'", "contains a NUL byte or an unpaired surrogate"),
        ("SELECT '\ud800'", "contains a NUL byte or an unpaired surrogate"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "the query failed|simplify"),
        ("PIVOT runs ON suite USING COUNT(*)", "PIVOT needs a list of the columns"),
    ],
)  # fmt: skip
def test_a_query_that_fails_is_a_one_line_error(explorer: Explorer, sql: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        explorer.query(sql).rows()
    assert "\n" not in str(caught.value)
    assert explorer.query("SELECT 1").rows() == [(1,)]


# --- nothing can be changed ------------------------------------------------------------------------

FORBIDDEN = [
    "INSERT INTO runs VALUES (1)",
    "UPDATE runs SET suite = ''",
    "DELETE FROM runs",
    "TRUNCATE runs",
    "DROP TABLE runs",
    "DROP VIEW hits",
    "CREATE TABLE t AS SELECT 1",
    "CREATE TEMP TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW hits AS SELECT 1",
    "CREATE MACRO m() AS 1",
    "CREATE SECRET (TYPE s3)",
    "ALTER TABLE runs ADD COLUMN x INT",
    "COMMENT ON TABLE runs IS 'x'",
    "MERGE INTO runs USING hits ON true WHEN MATCHED THEN DELETE",
    "WITH y AS (INSERT INTO runs (run_id) VALUES ('x') RETURNING run_id) SELECT * FROM y",
    "WITH y AS (DELETE FROM runs RETURNING run_id) SELECT * FROM y",
    "WITH y AS (UPDATE runs SET suite = '' RETURNING run_id) FROM y",
    "SELECT * FROM (WITH y AS (DELETE FROM runs RETURNING run_id) SELECT * FROM y)",
    "COPY runs TO 'out.csv'",
    "COPY (SELECT 1) TO 'out.parquet' (FORMAT parquet)",
    "COPY runs FROM 'secret.csv'",
    "COPY FROM DATABASE memory TO other",
    "EXPORT DATABASE 'out'",
    "IMPORT DATABASE 'out'",
    "ATTACH 'kb.db' AS k (TYPE sqlite)",
    "ATTACH 'out.db'",
    "DETACH memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FORCE INSTALL httpfs FROM 'http://localhost'",
    "SET enable_external_access = true",
    "SET threads = 1",
    "SET VARIABLE x = 1",
    "RESET threads",
    "PRAGMA threads = 1",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "CALL enable_logging()",
    "CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "USE memory",
    "BEGIN",
    "COMMIT",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "DEALLOCATE p",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'out.csv'",
    "EXPLAIN ANALYZE DELETE FROM runs",
    "EXPLAIN (ANALYZE) DELETE FROM runs",
    "EXPLAIN ANALYZE WITH y AS (DELETE FROM runs RETURNING 1) FROM y",
    "SELECT 1; DROP TABLE runs",
    "SELECT * FROM read_csv('secret.csv')",
    "SELECT * FROM read_csv_auto('secret.csv')",
    "SELECT * FROM main.read_csv('secret.csv')",
    "SELECT * FROM read_parquet('secret.parquet')",
    "SELECT * FROM parquet_scan('secret.parquet')",
    "SELECT * FROM parquet_metadata('secret.parquet')",
    "SELECT * FROM read_json('secret.json')",
    "SELECT * FROM read_ndjson_objects('secret.json')",
    "SELECT * FROM read_text('secret.csv')",
    "SELECT * FROM read_blob('secret.csv')",
    "SELECT * FROM read_duckdb('x')",
    "SELECT read_text('secret.csv')",
    "SELECT * FROM glob('*')",
    "SELECT * FROM sniff_csv('secret.csv')",
    "SELECT * FROM sqlite_scan('kb.db', 'eval_runs')",
    "FROM 'secret.csv'",
    'FROM "secret.parquet"',
    "FROM '/etc/passwd'",
    "FROM 'https://localhost/x.csv'",
    "FROM 's3://bucket/x.parquet'",
    "DESCRIBE 'secret.csv'",
    "SUMMARIZE 'secret.csv'",
    "SELECT (SELECT COUNT(*) FROM 'secret.csv')",
    "SELECT * FROM runs WHERE EXISTS (FROM read_text('secret.csv'))",
    # A name that is defined in one place is a file in another.
    "SELECT * FROM (WITH \"secret.csv\" AS (SELECT 1) FROM \"secret.csv\"), 'secret.csv'",
    "WITH RECURSIVE \"secret.csv\" AS (FROM 'secret.csv' UNION ALL FROM 'secret.csv') FROM \"secret.csv\"",
    "SELECT * FROM query('SELECT * FROM runs')",
    "SELECT * FROM query_table('runs')",
    "SELECT * FROM query_table(['secret.csv'])",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT getenv('HOME')",
    "SELECT write_log('x')",
    "SELECT nextval('s')",
    "SELECT current_setting('temp_directory')",
    "SELECT json_serialize_plan('FROM ''secret.csv''')",
    "SELECT COUNT(*) FROM (SHOW TABLES)",
    "SELECT 1 WHERE EXISTS (SHOW ALL TABLES)",
    "DESCRIBE (SHOW ALL TABLES)",
    "FROM duckdb_secrets()",
    "FROM duckdb_settings()",
    "FROM arrow_scan(1, 2, 3)",
    "FROM python_map_function(1)",
    "SHOW DATABASES",
    "FROM pragma_table_info('runs')",
]  # fmt: skip


# A file name may appear wherever a query may.
FORBIDDEN += [
    outer.replace("…", inner)
    for inner in ("FROM 'secret.csv'", "SELECT 1 FROM read_text('secret.csv')")
    for outer in (
        "SELECT * FROM runs LIMIT (…)",
        "SELECT * FROM runs ORDER BY (…)",
        "SELECT list_transform([1], lambda x: (…))",
        "FROM range((…))",
        "FROM unnest((…))",
        "FROM json_each((…))",
        "VALUES ((…))",
        "PIVOT (…) ON a IN (1)",
        "UNPIVOT (…) ON a",
        "SELECT COUNT(*) FILTER (EXISTS (…)) FROM runs",
        "SELECT SUM(1) OVER (ORDER BY (…))",
        "SELECT * FROM runs JOIN (…) ON true",
        "SELECT * FROM runs WHERE suite IN (…)",
        "SELECT array(…)",
        "FROM runs UNION …",
        "WITH a AS MATERIALIZED (…) FROM a",
        "WITH RECURSIVE a AS (SELECT 1 UNION ALL (…)) FROM a",
        "SUMMARIZE …",
        "DESCRIBE …",
        "EXPLAIN …",
        "SELECT * REPLACE ((…) AS suite) FROM runs",
        "SELECT DISTINCT ON ((…)) * FROM runs",
        "SELECT * FROM runs QUALIFY (…)",
        "FROM (VALUES (1)) AS t, LATERAL (…)",
        "SELECT CASE WHEN (…) THEN 1 END",
        "SELECT CAST((…) AS INT)",
        "SELECT {'a': (…)}",
        "SELECT * FROM runs GROUP BY GROUPING SETS ((…))",
    )
]
FORBIDDEN += ["SELECT 'secret.csv'.read_text()", "SELECT main.getenv('HOME')", 'FROM "secret.csv".main.runs']


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_statements_that_do_more_than_query_are_rejected(sql: str) -> None:
    """By the check alone: the engine here may do everything, so nothing but the check stops it."""
    with duckdb.connect(":memory:") as connection:
        connection.execute("CREATE TABLE runs (run_id VARCHAR, suite VARCHAR)")
        Path("secret.csv").write_text("a,b\n1,2\n")
        with pytest.raises(UsageError) as caught:
            read_statements(connection, sql, tables())
        assert "\n" not in str(caught.value)
        # It is refused for what it is, not for being unreadable.
        assert "syntax error" not in str(caught.value)


def test_rejected_input_leaves_no_trace(explorer: Explorer, two_runs: Workspace, tmp_path: Path) -> None:
    explorer.make("runs", "hits")
    before = hashlib.sha256(two_runs.db.read_bytes()).hexdigest()
    files = sorted(tmp_path.iterdir())
    settings = explorer.session.rows("SELECT name, value FROM duckdb_settings() ORDER BY name")
    rows = explorer.query("FROM runs").rows()
    for sql in FORBIDDEN:
        with pytest.raises(UsageError):
            explorer.query(sql)
    assert hashlib.sha256(two_runs.db.read_bytes()).hexdigest() == before
    assert sorted(tmp_path.iterdir()) == files
    assert explorer.session.rows("SELECT name, value FROM duckdb_settings() ORDER BY name") == settings
    assert explorer.query("FROM runs").rows() == rows


def test_the_transaction_is_a_second_lock(explorer: Explorer) -> None:
    """Were the check to miss a statement that writes, the engine would not run it."""
    explorer.make("runs")
    with pytest.raises(UsageError, match="read-only"), explorer.asking(explorer.one("FROM runs")) as session:
        session.execute("DELETE FROM runs")
    assert explorer.query("SELECT COUNT(*) FROM runs").rows() == [(2,)]


def test_every_table_function_of_this_engine_is_refused_unless_it_is_known() -> None:
    with duckdb.connect(":memory:") as connection:
        found = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro')"
        ).fetchall()
        admitted = set()
        for (name,) in found:
            try:
                read_statements(connection, f'SELECT * FROM "{name}"()', tables())
            except UsageError:
                continue
            admitted.add(name)
    assert admitted == {
        "range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row",
        "duckdb_functions", "duckdb_keywords", "duckdb_types",
    }  # fmt: skip


# What a function that reaches outside may be called; and those of this engine that are called so and do not.
SUSPICIOUS = re.compile(
    r"read|write|cop[yi]|load|install|http|url|file|path|dir|glob|scan|secret|setting|env|quer|exec|eval|plan|log_|_log"
    r"|import|export|attach|database|checkpoint|pragma|sql|host|inet|user|role|sequence|(curr|last|next|set)val|seed"
)
HARMLESS = {
    "current_database", "current_query", "current_query_id", "current_role", "current_user",
    "formatreadabledecimalsize", "formatreadablesize", "has_database_privilege", "has_sequence_privilege",
    "in_search_path", "inet_client_addr", "inet_client_port", "inet_server_addr", "inet_server_port",
    "__internal_json_copy_to_geojson", "__internal_json_copy_to_json", "json_copy_strftime_if_date",
    "json_copy_strftime_if_timestamp", "json_deserialize_sql", "json_extract_path", "json_extract_path_text",
    "json_serialize_sql", "parse_dirname", "parse_dirpath", "parse_duckdb_log_message", "parse_filename", "parse_path",
    "path_join", "pg_conf_load_time", "pg_has_role", "session_user", "url_decode", "url_encode", "user",
}  # fmt: skip


def test_every_function_that_may_reach_outside_was_looked_at() -> None:
    """A new version of the engine may have one that is not known here."""
    with duckdb.connect(":memory:") as connection:
        names = connection.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions()"
            " WHERE function_type IN ('scalar', 'macro', 'aggregate')"
        ).fetchall()
        doubtful = {name for (name,) in names if SUSPICIOUS.search(name)}
        admitted = set()
        for name in doubtful:
            with contextlib.suppress(UsageError):
                read_statements(connection, f'SELECT "{name}"()', tables())
                admitted.add(name)
    assert admitted <= HARMLESS
    assert {"current_setting", "json_serialize_plan", "write_log", "nextval"} <= doubtful - admitted


# --- stopping, and databases that change ---------------------------------------------------------------


def test_a_table_that_was_read_in_part_is_read_again(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored table streams once: were it not dropped, the next answer would lack rows."""
    broken = {"left": 1}

    class Interrupting(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            if name == "results" and broken["left"]:
                broken["left"] -= 1
                raise KeyboardInterrupt
            return relations()[name]

    monkeypatch.setattr("kbeval.engine.session.relations", lambda: Interrupting(relations()))
    with pytest.raises(KeyboardInterrupt):
        explorer.query("SELECT COUNT(*) FROM hits, results")
    assert broken["left"] == 0
    assert explorer.query("SELECT COUNT(*) FROM results").rows() == [(4,)]


def test_a_released_database_may_change_and_is_read_again(explorer: Explorer, two_runs: Workspace) -> None:
    assert explorer.query("SELECT COUNT(*) FROM runs").rows() == [(2,)]
    explorer.release()
    session = explorer.session
    assert explorer.query("SELECT COUNT(*) FROM results").rows() == [(4,)]
    assert explorer.session is session  # nothing changed, so nothing is dropped
    explorer.release()
    # A writer would be locked out if the snapshot were still open.
    two_runs.add_run("c", {"q1": {"hits_top_k": hits("c1")}})
    assert explorer.query("SELECT COUNT(*) FROM runs").rows() == [(3,)]
    assert explorer.query("SELECT COUNT(*) FROM results").rows() == [(5,)]


def test_a_running_query_can_be_stopped(explorer: Explorer) -> None:
    connection = explorer.session.connection
    timer = threading.Timer(0.5, connection.interrupt)
    timer.start()
    start = time.monotonic()
    with pytest.raises(duckdb.InterruptException):
        explorer.query("SELECT COUNT(*) FROM range(1000000000000) AS t(i) WHERE i % 7 = 8")
    assert time.monotonic() - start < 10
    assert explorer.query("SELECT 1").rows() == [(1,)]


def test_matching_by_spans_on_request(two_runs: Workspace) -> None:
    with open_explorer(two_runs.db, two_runs.golden, ScoreOptions(match="span")) as explorer:
        explorer.make("scores")
        assert explorer.session.rows("SELECT match FROM settings") == [("span",)]
