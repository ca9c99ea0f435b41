"""Statements are parsed once per process, and mean the same in every session that runs them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from kbeval.engine import statements
from kbeval.engine.session import Session
from kbeval.engine.statements import parsed


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    statements._KEPT.clear()
    yield
    statements._KEPT.clear()


def test_a_statement_is_kept_when_it_is_seen_for_the_second_time() -> None:
    with duckdb.connect() as connection:
        sql = "SELECT 1 AS n"
        found = [parsed(connection, sql) for _ in range(3)]
    assert found[0] == sql
    assert isinstance(found[1], duckdb.Statement)
    assert found[2] is found[1]


def test_a_kept_statement_reads_the_tables_of_the_session_that_runs_it() -> None:
    found = []
    for number in range(4):
        with Session() as session:
            session.execute(f"CREATE TABLE there AS SELECT {number} AS n, 'text {number}' AS t")
            session.execute("CREATE TABLE made AS SELECT n * 10 AS n, t FROM there")
            found += session.rows("SELECT n, t FROM made")
    assert found == [(number * 10, f"text {number}") for number in range(4)]


def test_a_kept_statement_sees_a_table_that_has_other_columns_now() -> None:
    with Session() as session:
        for columns in ("1 AS a", "1 AS a, 2 AS b", "'x' AS c"):
            session.execute(f"CREATE OR REPLACE TABLE there AS SELECT {columns}")
            assert len(session.rows("SELECT * FROM there")[0]) == columns.count("AS")
            assert session.execute("SELECT * FROM there").description[-1][0] == columns[-1]


def test_parameters_go_into_a_kept_statement() -> None:
    with Session() as session:
        assert [session.rows("SELECT $1 + 1", [n]) for n in range(4)] == [[(n + 1,)] for n in range(4)]


def test_errors_are_those_of_the_text() -> None:
    with Session() as session:
        for wrong in ("SELEC 1", "SELECT * FROM nowhere"):
            messages = set()
            for _ in range(3):
                with pytest.raises(duckdb.Error) as caught:
                    session.execute(wrong)
                messages.add(str(caught.value))
            assert len(messages) == 1
        assert [session.rows("SELECT 1; SELECT 2") for _ in range(3)] == [[(2,)]] * 3


def test_few_and_short_statements_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "_MOST_STATEMENTS", 3)
    with duckdb.connect() as connection:
        for number in range(10):
            for _ in range(2):
                parsed(connection, f"SELECT {number}")
        assert list(statements._KEPT) == ["SELECT 7", "SELECT 8", "SELECT 9"]
        long = f"SELECT '{'x' * statements._LONGEST_TEXT}'"
        assert [parsed(connection, long) for _ in range(3)] == [long] * 3
    assert long not in statements._KEPT
