"""What columns of a statement are made from, and of which relations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbeval.engine.lineage import parse_select, uses
from kbeval.engine.relations import relations
from kbeval.engine.session import Session

COLUMNS = {"a": ["id", "x", "y"], "b": ["id", "z"], "c": ["id", "w"]}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as session:
        yield session


def made_from(session: Session, sql: str, *wanted: str, has: bool = True) -> dict[str, set[str] | None]:
    node = parse_select(session, sql)
    assert node is not None
    found = uses(node, frozenset(wanted) if wanted else None, COLUMNS.get, lambda *_: has)
    return {name: None if use.columns is None else set(use.columns) for name, use in sorted(found.items())}


def test_a_left_join_matters_where_one_of_its_columns_is_wanted(session: Session) -> None:
    sql = "SELECT a.x, b.z + 1 AS more FROM a LEFT JOIN b ON b.id = a.id"
    assert made_from(session, sql, "x") == {"a": {"x"}}
    assert made_from(session, sql, "more") == {"a": {"id"}, "b": {"id", "z"}}


def test_an_inner_join_always_matters(session: Session) -> None:
    sql = "SELECT a.x FROM a JOIN b ON b.id = a.id WHERE a.y > 0"
    assert made_from(session, sql, "x") == {"a": {"x", "y", "id"}, "b": {"id"}}


def test_a_star_has_what_no_other_column_is_called(session: Session) -> None:
    sql = "SELECT a.*, b.z AS y2 FROM a LEFT JOIN b ON b.id = a.id"
    assert made_from(session, sql, "y") == {"a": {"y"}}
    assert made_from(session, sql, "y", "y2") == {"a": {"y", "id"}, "b": {"id", "z"}}


def test_names_without_a_table_are_found_by_their_columns(session: Session) -> None:
    assert made_from(session, "SELECT x, z FROM a, b", "z") == {"a": set(), "b": {"z"}}


def test_definitions_and_queries_inside_a_condition_are_followed(session: Session) -> None:
    sql = "WITH d AS (SELECT id, x AS renamed, y FROM a) SELECT renamed FROM d WHERE id IN (SELECT id FROM c)"
    assert made_from(session, sql, "renamed") == {"a": {"id", "x"}, "c": {"id"}}


def test_branches_of_zeros_add_nothing_to_a_sum(session: Session) -> None:
    branches = "SELECT id, 1 AS p, 0 AS q FROM a UNION ALL SELECT id, 0, z FROM b UNION ALL SELECT id, 0, 0 FROM c"
    summed = f"SELECT id, MAX(p) AS p, SUM(q) AS q FROM ({branches}) AS u GROUP BY id"
    assert list(made_from(session, summed, "p")) == ["a"]
    assert made_from(session, summed, "q") == {"b": {"id", "z"}}
    assert list(made_from(session, summed, "p", "q")) == ["a", "b"]
    assert list(made_from(session, summed)) == ["a", "b"]
    # Where rows are not added up, a row of zeros is a row like any other.
    assert list(made_from(session, branches, "id", "p")) == ["a", "b", "c"]


def test_a_branch_that_asks_for_what_no_row_has_is_left_out(session: Session) -> None:
    sql = "SELECT a.x FROM a WHERE a.y = 'one' UNION ALL SELECT b.z FROM b"
    assert list(made_from(session, sql)) == ["a", "b"]
    assert list(made_from(session, sql, has=False)) == ["b"]


def test_every_relation_reads_what_its_file_names(session: Session) -> None:
    """Where all columns are wanted, nothing is left out: but for branches of zeros, which this asks about last."""
    every = relations()
    known = {*every, *(source for relation in every.values() for source in relation.reads)}
    for name, relation in every.items():
        node = parse_select(session, relation.sql)
        assert node is not None, name
        found = uses(node, None, lambda _: None, lambda *_: True)
        reads = {source for source in relation.reads if source in every or source.startswith("stored_")}
        assert reads <= found.keys() <= known, name
