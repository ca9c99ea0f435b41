"""All readers agree on what is valid JSON: one table of texts, every reader."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.cli import run as kbeval
from kbeval.engine.session import Session
from kbeval.errors import GoldenError, KbevalError
from kbeval.golden import load_golden
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from kbeval.systems.anchors import read_folder
from kbeval.systems.fast_golden import read_quickly
from kbeval.systems.fast_lines import file_size
from kbeval.systems.fast_trace import is_right, open_trace
from kbeval.systems.trace_import import read_trace
from kbeval.util.strict_json import parse
from tests.support.examples import scorings
from tests.support.workspace import Workspace

# Texts to replace VALUE, in a field that no reader knows.
GOOD = (
    "1",
    "-0",
    "1.5e-3",
    "1e5",
    "1E+5",
    "1e-999",
    "1e308",
    "123456789012345678901234567890",
    '"text"',
    '"NaN, Infinity, ,] and 1e999"',
    '"\\u00e9 \\" \\\\ \\/ \\b\\f\\n\\r\\t"',
    '"\\ud83d\\ude00"',
    '"\\\\ud800"',
    '"a \x7f b"',
    "null",
    " true ",
    "[]",
    "{}",
    '[{"a": 1}, {"a": 2}]',
    '{"a": {"a": 1}, "b": {"a": 1}}',
    '{"A": 1, "a": 2}',
    '[",", "]", "nan"]',
)
BAD = (
    "",
    "NaN",
    "nan",
    "-NaN",
    "Infinity",
    "-Infinity",
    "inf",
    "[NaN]",
    "[1, NaN ]",
    "[1,]",
    "[1 , ]",
    '{"a": 1,}',
    '{"a": [1, 2,\t]}',
    "[,]",
    "[1,,2]",
    "01",
    "-01",
    "+1",
    ".5",
    "1.",
    "1e",
    "- 1",
    "0x1F",
    "1e999",
    "-1e999",
    "[1e400]",
    "1" + "0" * 400,
    "True",
    "None",
    "undefined",
    "'text'",
    "{a: 1}",
    "1 // one",
    "1 /* one */",
    "1 2",
    "1}",
    '"tab\there"',
    '"\x01"',
    '"\\x41"',
    '"\\\'"',
    '"\\u00"',
    '"\\ud800"',
    '"\\udc00 \\ud83d"',
    '"open',
    '{"a": 1, "a": 1}',
    '{"a": 1, "\\u0061": 2}',
    '{"": 1, "": 2}',
    '[[{"b": {"c": 1, "d": 2, "c": 3}}]]',
    '{"a" 1}',
    "\x0c1",
    "\xa01",
    "\ufeff1",
)
TABLE = [*((value, True) for value in GOOD), *((value, False) for value in BAD)]


def test_there_are_enough_texts() -> None:
    assert len(GOOD) >= 20
    assert len(BAD) >= 40


def reads(task: Any, *arguments: Any) -> bool:
    try:
        task(*arguments)
    except (KbevalError, GoldenError, ValueError):
        return False
    return True


@pytest.mark.parametrize(("value", "is_good"), TABLE)
def test_python_says_what_the_table_says(value: str, is_good: bool) -> None:
    assert reads(parse, f'{{"value": {value}}}') is is_good


def test_stored_rows(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    """Each text in a run of its own: score stores the good ones, and check names the others."""
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    for number, (value, _) in enumerate(TABLE):
        workspace.add_run(f"r{number:03d}", {"q": f'{{"hits_top_k": [{{"chunk_id": "c"}}], "value": {value}}}'})
    good = {f"r{number:03d}" for number, (_, is_good) in enumerate(TABLE) if is_good}
    options = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    kbeval(["score", "--all", *options])
    capsys.readouterr()
    scored = {run for (run,) in workspace.execute("SELECT run_id FROM eval_runs WHERE aggregate_json <> ''")}
    assert scored == good
    with open_scoring(workspace.db, workspace.golden, None, ScoreOptions()) as scoring:
        scoring.session.need("bad_rows")
        named = {run for (run,) in scoring.session.rows("SELECT run_id FROM bad_rows")}
    assert named == {f"r{number:03d}" for number in range(len(TABLE))} - good
    assert kbeval(["check", *options]) == 1
    assert f"unreadable rows: {len(BAD)}" in capsys.readouterr().out
    kbeval(["sql", "SELECT COUNT(*) AS n FROM results WHERE NOT failed", *options, "--format", "csv"])
    assert capsys.readouterr().out.split() == ["n", str(len(GOOD))]


def test_an_archive_of_them(workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    for number, (value, _) in enumerate(TABLE):
        workspace.add_run(f"r{number:03d}", {"q": f'{{"hits_top_k": [{{"chunk_id": "c"}}], "value": {value}}}'})
    folder = tmp_path / "archive"
    assert kbeval(["archive", str(folder), "--db", str(workspace.db), "--golden", str(workspace.golden)]) == 0
    capsys.readouterr()
    kbeval(["sql", "SELECT run_id FROM results WHERE NOT failed", "--db", str(folder), "--format", "csv"])
    found = set(capsys.readouterr().out.split()) - {"run_id"}
    assert found == {f"r{number:03d}" for number, (_, is_good) in enumerate(TABLE) if is_good}


@pytest.mark.parametrize(("value", "is_good"), TABLE)
def test_imported_lines_and_configurations(tmp_path: Path, value: str, is_good: bool) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "results.jsonl").write_text(f'{{"test_case_id": "q", "value": {value}}}\n', encoding="utf-8")
    assert reads(read_folder, folder) is is_good
    (folder / "results.jsonl").write_text('{"test_case_id": "q"}\n', encoding="utf-8")
    (folder / "config.json").write_text(f'{{"k": 5, "value": {value}}}', encoding="utf-8")
    assert reads(read_folder, folder) is is_good


@pytest.mark.parametrize(("value", "is_good"), TABLE)
def test_traces_and_gold_by_both_readers(tmp_path: Path, value: str, is_good: bool) -> None:
    trace, gold = tmp_path / "trace.jsonl", tmp_path / "gold.jsonl"
    answer = '"answer_json": {"claim": "x", "citations": []}'
    trace.write_text(f'{{"qid": "q", "retrieved_ids": ["c"], {answer}, "value": {value}}}\n', encoding="utf-8")
    gold.write_text(
        f'{{"qid": "q", "question": "?", "answerable": true, "gold_citations": [], "constraints": ["x", {value}]}}\n',
        encoding="utf-8",
    )
    assert reads(read_trace, trace, "run") is is_good
    with Session(reach=[tmp_path]) as session:
        # The quick reader may leave anything to the exact one; it must not take what that refuses.
        is_taken = open_trace(session, trace) is not None and is_right(session)
        assert is_good or not is_taken
        assert is_taken or value != '"text"'
        assert is_good or read_quickly(session, gold) is None
    assert file_size(trace)


@pytest.mark.parametrize(("value", "is_good"), TABLE)
def test_golden_files(tmp_path: Path, value: str, is_good: bool) -> None:
    entry = f'{{"id": "q", "query": "?", "note": {value}}}'
    for name, text in (("golden.jsonl", f"{entry}\n"), ("golden.json", f"[{entry}]")):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert reads(load_golden, path) is is_good


def test_places_of_chunks(workspace: Workspace) -> None:
    """A chunk, a label and a query for each text, in one scoring."""
    for number, (value, _) in enumerate(TABLE):
        workspace.add_chunk(f"c{number}", "d", [])
        spans = f'[{{"kind": "line", "start": 1, "end": 9, "value": {value}}}]'
        workspace.execute("UPDATE chunks SET source_spans_json = ? WHERE chunk_id = ?", (spans, f"c{number}"))
    names = [f"q{number}" for number in range(len(TABLE))]
    workspace.add_golden(*({"id": name, "expected_chunk_ids": [f"c{name[1:]}"]} for name in names))
    workspace.add_run("run", {name: {} for name in names})
    with open_scoring(workspace.db, workspace.golden, None, ScoreOptions(match="span")) as scoring:
        scoring.session.need("expected_spans")
        placed = {name for (name,) in scoring.session.rows("SELECT DISTINCT query_id FROM expected_spans")}
    for name, (value, is_good) in zip(names, TABLE, strict=True):
        assert (name in placed) is is_good, value


# --- invented texts ----------------------------------------------------------------------------------

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc") | st.text(max_size=3), inner),
    max_leaves=12,
)
_PIECES = (
    ",",
    "]",
    "}",
    "NaN",
    "-Infinity",
    "inf",
    '"a":1,',
    "{",
    "[",
    '"',
    "\\",
    " ",
    "\t",
    "e999",
    "0",
    "-",
    "\\ud800",
)


def mutated(text: str, seed: int) -> str:
    source = random.Random(seed)
    for _ in range(source.randint(0, 3)):
        at = source.randint(0, len(text))
        cut = source.choice((0, 0, 1, 2))
        text = text[:at] + source.choice(("", *_PIECES)) + text[at + cut :]
    return text


@pytest.mark.slow
@scorings(20, deadline=None)
@given(values=st.lists(_VALUES, min_size=20, max_size=40), seed=st.integers(0, 2**32))
def test_the_engine_and_python_agree_on_mutated_json(values: list[Any], seed: int) -> None:
    texts = [mutated(json.dumps({"a": value}, ensure_ascii=False), seed + n) for n, value in enumerate(values)]
    with Session() as session:
        try:
            found = session.rows("SELECT t, is_strict_json(t) FROM (SELECT UNNEST($1::VARCHAR[]) AS t)", [texts])
        except duckdb.Error:
            found = []
    assert found
    assert [(text, reads(parse, text)) for text, _ in found] == found
