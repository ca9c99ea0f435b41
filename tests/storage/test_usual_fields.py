"""Rows that are as usual are known to have no duplicate key without looking at every field; no other row is."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.engine import session as sessions
from kbeval.engine.session import Session
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from kbeval.storage.source import open_database
from kbeval.storage.sqlite import SAMPLE_LARGEST
from kbeval.storage.usual_fields import usual_fields
from kbeval.util.strict_json import REPEATED_KEY, parse
from tests.storage.test_one_rule_for_json import TABLE
from tests.support.examples import scorings
from tests.support.workspace import Workspace


def row(n_hits: int = 3, n_spans: int = 1, **more: Any) -> dict[str, Any]:
    hit = {"rank": 1, "chunk_id": "c", "source_spans": [{"kind": "line", "start": 1, "end": 2}] * n_spans}
    return {"query_id": "q", "hits_top_k": [hit] * n_hits, "answer": {"text": "x", "citations": []}, **more}


def usual(sample: list[str], texts: list[str]) -> list[bool] | None:
    """Which of these texts are like the sample; None if the sample has too little in common."""
    macros = usual_fields(sample)
    if not macros:
        return None
    with Session() as session:
        for name, statement in macros.items():
            session.replace_macro(name, statement)
        found = session.rows(
            "SELECT json_valid(t) AND has_usual_fields(t)"
            " FROM (SELECT UNNEST($1::VARCHAR[]) AS t, generate_subscripts($1, 1) AS n) ORDER BY n",
            [texts],
        )
    return [bool(is_usual) for (is_usual,) in found]


def test_rows_of_one_kind_are_usual() -> None:
    sample = [json.dumps(row(n_hits=3, n_spans=1 + n % 3)) for n in range(12)]
    others = [row(n_hits=n, n_spans=m) for n in (0, 1, 3) for m in (1, 2, 3)]
    assert usual(sample, [json.dumps(other) for other in others]) == [True] * 9
    assert usual(sample, [json.dumps(row(), indent=1), json.dumps(row(answer=None))]) == [True, True]
    # Every order of fields that a program uses.
    turned = [dict(reversed(row().items())) for _ in range(12)]
    assert usual(sample, [json.dumps(turned[0])]) == [False]
    assert usual([*sample, *map(json.dumps, turned)], [json.dumps(turned[0])]) == [True]


def test_the_fields_of_usual_rows_are_known() -> None:
    with Session() as session:
        asked = "SELECT is_usual_field('text'), is_usual_field('source_spans'), is_usual_field('page')"
        for name, statement in usual_fields([TEXT] * 12).items():
            session.replace_macro(name, statement)
        assert session.rows(asked) == [(True, True, False)]
    # Without a sample any row may have any field.
    with Session() as session:
        assert session.rows(asked) == [(True, True, True)]


TEXT = json.dumps(row())


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace('"rank": 1', '"rank": 1, "rank": 1', 1),
        TEXT.replace('"kind": "line"', '"kind": "line", "kind": "line"', 1),
        TEXT.replace('"kind"', '"start"', 1),
        TEXT.replace('"chunk_id"', '"r\\u0061nk"', 1),
        TEXT[:-1] + ', "query_id": "q"}',
        # Objects in other places, which may be anything.
        TEXT.replace('"q"', '{"a": 1, "a": 2}', 1),
        TEXT.replace('"c"', '[{"a": 1, "a": 2}]', 1),
        TEXT.replace('{"text": "x", "citations": []}', '[{"a": 1, "a": 2}]', 1),
        TEXT.replace("[]", '[{"a": 1, "a": 2}]', 1),
        TEXT.replace('{"text": "x", "citations": []}', "{}", 1),
        json.dumps(row(n_hits=4)),
        json.dumps(row(more={})),
        # Braces in a text.
        TEXT.replace('"x"', '"{"', 1),
        TEXT.replace('{"text": "x", "citations": []}', '"{"', 1),
        "{}",
        '"{"',
        f"[{TEXT}]",
    ],
)
def test_any_other_row_is_not(text: str) -> None:
    assert text != TEXT
    assert usual([TEXT] * 12, [TEXT, text]) == [True, False]


def test_rows_that_have_too_little_in_common_say_nothing() -> None:
    assert usual_fields([]) == {}
    assert usual_fields([TEXT]) == {}
    assert usual_fields(["{", "null", "[[", "1", "nope", "[" * 5000] * 4) == {}
    assert usual_fields([json.dumps({f"field_{n}": 1}) for n in range(20)]) == {}
    assert usual_fields([json.dumps(row(note="{")) for _ in range(20)]) == {}
    assert usual_fields([json.dumps(row(n_hits=300, n_spans=2)) for _ in range(4)]) == {}
    # Lists that are long in different rows: 300 × 300 places, of which each row has few.
    long = [row(n_hits=300, n_spans=0), row(n_hits=1, n_spans=300)]
    assert usual_fields([json.dumps(one) for one in long * 4]) == {}
    # Names that need quotes in a path, or in SQL.
    for name in ("a.b", "it's", 'say "a"', "", "*", "é", "[0]", "\\", "\x00"):
        assert usual_fields([json.dumps(row(**{name: 1}))] * 12) == {}, name


_NAMES = st.sampled_from("abA")
_TEXTS = st.recursive(
    st.sampled_from(["1", "null", '"{"', '"x"', "[]", "{}", '"\\u0061"']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(_NAMES, inner), max_size=3).map(
            lambda fields: "{" + ", ".join(f'"{name}": {value}' for name, value in fields) + "}"
        )
    ),
    max_leaves=8,
)


def repeats_a_key(text: str) -> bool:
    try:
        parse(text)
    except ValueError as error:
        return REPEATED_KEY in str(error)
    return False


@pytest.mark.slow
@scorings(40, deadline=None)
@given(texts=st.lists(_TEXTS, min_size=4, max_size=12), seed=st.integers(0, 2**32))
def test_no_usual_row_has_a_duplicate_key(texts: list[str], seed: int) -> None:
    source = random.Random(seed)
    # A few kinds of row, most often the first.
    sample = [texts[0]] * 12 + [source.choice(texts) for _ in range(3)]
    found = usual(sample, texts)
    for text, is_usual in zip(texts, found or [], strict=False):
        assert not (is_usual and repeats_a_key(text)), (sample, text)


def test_invented_rows_are_usual_often_enough() -> None:
    """Otherwise the test above shows nothing."""
    texts = [
        '{"a": [{"b": 1}, {"b": 2}], "b": null}',
        '{"a": [{"b": 1, "b": 1}], "b": null}',
        '{"a": 1, "b": {"a": 1}}',
    ]
    assert usual([texts[0]] * 12, texts) == [True, False, False]
    assert [repeats_a_key(text) for text in texts] == [False, True, False]


def among_usual_rows(rows: dict[str, str]) -> dict[str, str]:
    """Where few of them are looked at before all others."""
    usual_rows = [(f"q{n}", '{"hits_top_k": [{"chunk_id": "c"}]}') for n in range(400)]
    return dict([*usual_rows[:101], *rows.items(), *usual_rows[101:]])


def faults(workspace: Workspace) -> tuple[list[tuple[Any, ...]], int]:
    """What is wrong with which row, and how many rows are known to be as usual."""
    with open_scoring(workspace.db, workspace.golden, None, ScoreOptions(cache="off")) as scoring:
        scoring.session.need("bad_rows", "stored_results")
        found = scoring.session.rows("SELECT run_id, query_id, fault FROM bad_rows ORDER BY ALL")
        counted = "SELECT COUNT(*) FROM stored_results WHERE json_valid(result_json) AND has_usual_fields(result_json)"
        ((n_usual,),) = scoring.session.rows(counted)
        return found, n_usual


@pytest.mark.parametrize("table", ["TABLE", "WITHOUT ROWID", "VIEW"])
def test_a_large_database_has_the_same_faults(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    odd_rows = {
        f"o{n}": f'{{"hits_top_k": [{{"chunk_id": "c"}}], "value": {value}}}' for n, (value, _) in enumerate(TABLE)
    }
    repeated = {
        "r1": '{"hits_top_k": [{"chunk_id": "c", "chunk_id": "d"}]}',
        "r2": '{"hits_top_k": [], "hits_top_k": []}',
    }
    workspace.add_run("run", among_usual_rows(odd_rows | repeated))
    if table == "VIEW":
        workspace.execute("ALTER TABLE eval_query_results RENAME TO kept")
        workspace.execute("CREATE VIEW eval_query_results AS SELECT * FROM kept")
    elif table == "WITHOUT ROWID":
        workspace.execute("ALTER TABLE eval_query_results RENAME TO kept")
        workspace.execute(
            "CREATE TABLE eval_query_results (run_id TEXT, query_id TEXT, result_json TEXT,"
            " PRIMARY KEY (run_id, query_id)) WITHOUT ROWID"
        )
        workspace.execute("INSERT INTO eval_query_results SELECT run_id, query_id, result_json FROM kept")
    small, n_usual = faults(workspace)
    assert len(small) == sum(not is_good for _, is_good in TABLE) + 2
    assert n_usual == 0
    monkeypatch.setattr(sessions, "SMALL_BYTES", 0)
    found, n_usual = faults(workspace)
    assert found == small
    # Only where a few rows can be found without reading all others.
    assert n_usual >= 400 if table == "TABLE" else n_usual == 0


def test_fields_of_hits_are_looked_for_in_rows_that_are_not_usual(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    odd_rows = {
        "text": '{"hits_top_k": [{"chunk_id": "c", "text": "x"}]}',
        "escaped": '{"hits_top_k": [{"chunk_id": "c", "te\\u0078t": "x"}]}',
        "spans": '{"hits_top_k": [{"chunk_id": "c", "source_spans": []}]}',
        "neither": '{"hits_top_k": [{"chunk_id": "c", "page": 1}]}',
    }
    workspace.add_run("run", among_usual_rows(odd_rows))
    monkeypatch.setattr(sessions, "SMALL_BYTES", 0)
    with open_scoring(workspace.db, workspace.golden, None, ScoreOptions(cache="off")) as scoring:
        scoring.session.need("parsed")
        found = scoring.session.rows(
            "SELECT query_id, may_hold_text, may_hold_spans FROM parsed"
            " WHERE may_hold_text OR may_hold_spans ORDER BY query_id"
        )
    assert found == [("escaped", True, True), ("spans", False, True), ("text", True, False)]


def test_rows_that_are_not_asked_for_are_not_looked_at(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need not even be readable, and none of a row that is too large leaves SQLite."""
    workspace.add_golden({"id": "q7", "expected_chunk_ids": ["c"]})
    workspace.add_run("other", {f"q{n}": "nope" for n in range(400)})
    workspace.add_run("run", {f"q{n}": '{"hits_top_k": [{"chunk_id": "c"}]}' for n in range(400)})
    workspace.add_run("large", {"q": '{"a": "\\u0000' + "x" * SAMPLE_LARGEST + '"}', "r": "{\0" + "x" * SAMPLE_LARGEST})
    workspace.execute("ALTER TABLE eval_query_results RENAME TO kept")
    workspace.execute("CREATE TABLE eval_query_results (run_id TEXT, query_id TEXT, stored TEXT)")
    workspace.execute("INSERT INTO eval_query_results SELECT run_id, query_id, result_json FROM kept")
    workspace.execute(
        "ALTER TABLE eval_query_results ADD COLUMN result_json TEXT"
        " AS (CASE WHEN run_id = 'large' THEN stored ELSE json_remove(stored, '$.debug') END)"
    )
    monkeypatch.setattr(sessions, "SMALL_BYTES", 0)
    assert workspace.aggregate("run")["hit_at_k"]["1"] == 1
    with open_database(workspace.db, ScoreOptions(cache="off")) as (_, source):
        assert len(source._some_rows(["run"])) >= 8
        assert source._some_rows(["large"]) == []
        # It cannot be read. That is reported only if it is needed.
        assert source._some_rows(["other"]) == []
