"""Relations that have several files: one rule chooses, each file says so, and all of them have the same columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbeval.engine.relations import FOLDERS, relations, sql_folder
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import Scoring, open_scoring
from kbeval.scoring.variants import RULES, STORED_RULES
from tests.support.workspace import Workspace, hits

FILES = {path.stem: path for folder in FOLDERS for path in (sql_folder() / folder).glob("*@*.sql")}


@pytest.fixture
def scoring(workspace: Workspace) -> Iterator[Scoring]:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    with open_scoring(workspace.db, workspace.golden, ["run"], ScoreOptions(match="span")) as scoring:
        yield scoring


def test_the_rule_names_every_variant_and_no_other() -> None:
    assert sorted(f"{relation}@{variant}" for relation, variant, _ in (*RULES, *STORED_RULES)) == sorted(FILES)


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_file_of_the_relation_says_that_there_is_a_variant_and_when(name: str) -> None:
    relation, _, variant = name.partition("@")
    (line,) = (line for line in relations()[relation].sql.splitlines() if line.startswith("-- variants: "))
    assert line.startswith(f"-- variants: {variant}, ")
    path: Path = FILES[name]
    assert path.read_text().startswith(f"-- {relation}: as {relation}.sql, ")
    assert path.with_name(f"{relation}.sql").is_file()


def test_a_variant_has_the_columns_of_its_relation(scoring: Scoring) -> None:
    session = scoring.session
    for name in sorted(FILES):
        relation, variant = relations()[name.partition("@")[0]], relations()[name]
        session.need(*sorted((relation.reads | variant.reads) & (relations().keys() | session.handed_in)))
        session.define_macros(relation.sql)
        columns = [
            [row[0] for row in session.rows(f"DESCRIBE SELECT * FROM (\n{one.sql}\n)")] for one in (relation, variant)
        ]
        assert columns[0] == columns[1], name


def test_hits_that_are_as_stored_have_the_same_rows_without_a_second_look(scoring: Scoring) -> None:
    session = scoring.session
    session.need("hits", "bad_rows", "tied_ranks")
    assert session.variant_of("hits") == "hits@plain"
    assert session.rows("SELECT * FROM hits") == session.rows(relations()["hits"].sql) != []


@pytest.mark.parametrize(("last", "agrees"), [(4, True), (5, False)])
def test_hits_agree_with_the_tables_however_their_places_are_written(
    workspace: Workspace, last: int, agrees: bool
) -> None:
    place = [{"kind": "line", "start": 1, "end": 4}]
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_chunk("c", "d1", place)
    workspace.add_run("run", {"q": {"hits_top_k": [hits("c")[0] | {"source_spans": [place[0] | {"end": last}]}]}})
    with open_scoring(workspace.db, workspace.golden, ["run"]) as scoring:
        scoring.session.need("hit_claims", "chunks", "displaced_hits")
        written = scoring.session.rows("SELECT h.spans_text, c.spans_text FROM hit_claims AS h, chunks AS c")
        assert written[0][0] != written[0][1]
        assert scoring.session.is_built_empty("displaced_hits") == agrees


def test_a_session_takes_the_variant_that_fits_it(scoring: Scoring) -> None:
    scoring.build_query_scores()
    kinds = dict(scoring.session.rows("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal"))
    # No label names a support, so nothing of the anchor-labelled system is read.
    assert "stored_anchors" not in scoring.session.built
    assert "false" in kinds["anchor_checks"].lower()
    assert "correct_hits" in kinds["chunk_matches"]
