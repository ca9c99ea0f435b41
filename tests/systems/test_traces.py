"""Traces and gold files that the engine reads itself: the same numbers and the same faults as line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.engine.session import Session
from kbeval.errors import KbevalError
from kbeval.golden import load_golden
from kbeval.scoring.options import ScoreOptions
from kbeval.systems.fast_golden import read_quickly
from kbeval.systems.fast_trace import is_right, open_trace
from kbeval.systems.grounded import TraceOptions, _read_exactly, _read_quickly, score_trace
from kbeval.systems.trace_import import read_trace
from tests.oracles import system_oracles
from tests.support.examples import scorings

IDS = ("c1", "c2", "c3", "7", "1e5", "true", "nan", "{x", "é", "[1]", " c1", "[[c1]]")
CLAIMS = (
    "",
    "nine EUROS",
    " NOT in Context ",
    "\u2003not in context\x85\x1f",
    "\u200bnot in context",
    "not in context.",
    "abc fifteen",
    "42",
    "15 minutes",
    "[fifteen]",
    "ﬁFTEEN and Straße",
    "NOT İN CONTEXT",
    "ΣΊΣΥΦΟΣ, again",
)


def mostly(usual: st.SearchStrategy[Any], *odd: Any) -> st.SearchStrategy[Any]:
    """Usually valid values, and now and then something that does not belong there."""
    return st.integers(0, 30).flatmap(lambda n: usual if n else st.sampled_from(odd))


ID = mostly(st.sampled_from([f"t{n}" for n in range(6)]), "", None, 3, "3", True, "a\x00b", ["t1"])
# What a question is called by: mostly its qid; its q_id where there is none; now and then both.
NAMED = st.one_of(
    st.fixed_dictionaries({"qid": ID}),
    st.fixed_dictionaries({"q_id": ID}),
    st.fixed_dictionaries({"qid": ID | st.sampled_from([None, ""]), "q_id": ID}),
)
SAID = st.fixed_dictionaries(
    {},
    optional={
        "q": mostly(st.just("what?"), None, 5),
        "retrieved_ids": mostly(
            st.lists(st.sampled_from(IDS), max_size=4), None, "c1", {}, [1], [None], [""], [1.5], ["[]"], ['{"a": 1}']
        ),
        "answer_json": mostly(
            st.fixed_dictionaries(
                {},
                optional={
                    "claim": mostly(st.sampled_from(CLAIMS), None, 5, ["x"], False),
                    "citations": mostly(st.lists(st.sampled_from(IDS), max_size=2), None, "c1", [2], [[]]),
                    "grounded": st.booleans(),
                },
            ),
            None,
            {},
            "text",
            [],
        ),
        "error": st.just("it failed"),
        "abstained": st.just(True),
        "cost": st.just(0.1),
    },
)
TRACE = st.builds(lambda named, said: {**named, **said}, NAMED, SAID)
ITEM = st.fixed_dictionaries(
    {
        "answerable": mostly(st.booleans(), "true", 1, None),
        "gold_claim_substr": mostly(
            st.lists(st.sampled_from(["Nine euros", "abc", "fifteen", "12345", "strasse", "σίσυφος"]), max_size=2),
            "x",
            [""],
            [7],
        ),
        "gold_citations": mostly(st.lists(st.sampled_from(IDS), max_size=2), None, "c1", [None], [3]),
    },
    optional={"constraints": mostly(st.just(["short"]), "short", [1]), "lang": st.just("en"), "color": st.just("red")},
)


def write_pair(folder: Path, items: list[Any], traces: list[Any], end: str = "\n") -> tuple[Path, Path]:
    gold, trace = folder / "gold.jsonl", folder / "trace.jsonl"
    gold.write_text(end.join(map(json.dumps, items)), encoding="utf-8", newline="")
    trace.write_text(end.join(map(json.dumps, traces)), encoding="utf-8", newline="")
    return gold, trace


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except KbevalError as error:
        return str(error)


@contextmanager
def as_if_large() -> Iterator[None]:
    """Small files are taken for large ones: read in turn, kept compressed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbeval.systems.fast_trace._SMALL_BYTES", -1)
        patch.setattr("kbeval.engine.session.COMPRESS_FROM_BYTES", -1)
        yield


def options() -> ScoreOptions:
    return TraceOptions.of(ScoreOptions())


@scorings(15)
@given(
    st.lists(ITEM, min_size=1, max_size=5),
    st.lists(TRACE, max_size=6),
    st.lists(st.sampled_from([("id", "query"), ("qid", "question"), ("q_id", "question")]), min_size=5, max_size=5),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\n  \n"]),
)
def test_both_ways_of_reading_give_the_same_numbers_and_the_same_faults(
    labels: list[dict[str, Any]], traces: list[dict[str, Any]], spelt: list[tuple[str, str]], end: str
) -> None:
    items = [
        {id_: f"t{number}", query: "?", **item}
        for number, (item, (id_, query)) in enumerate(zip(labels, spelt, strict=False))
    ]
    with TemporaryDirectory() as name:
        gold, trace = write_pair(Path(name), items, traces, end)
        exactly = outcome(lambda: _read_exactly(str(gold), trace, options()))
        quickly = outcome(lambda: _read_quickly(gold, trace, options()))
        with as_if_large():
            assert outcome(lambda: _read_quickly(gold, trace, options())) == quickly
        whole = outcome(lambda: score_trace(str(gold), str(trace), options=ScoreOptions()))
    if quickly is not None:
        assert quickly == exactly
    if isinstance(exactly, str):
        assert whole == exactly
    else:
        assert whole[0]["recall@k"] == exactly[0]["citation_recall_at_k"][5]
        assert whole[1] == exactly[1]


PLAIN_ITEM: dict[str, Any] = {
    "qid": "t0",
    "question": "?",
    "answerable": True,
    "gold_claim_substr": ["fifteen"],
    "gold_citations": ["c1"],
}
PLAIN: dict[str, Any] = {
    "qid": "t0",
    "q": "?",
    "retrieved_ids": ["c1", "c2"],
    "answer_json": {"claim": "fifteen", "citations": ["c1"]},
}


def trace_is_read_quickly(session: Session, trace: Path) -> bool:
    source = open_trace(session, trace)
    if source is None:
        return False
    source.feed(session, [run.run_id for run in source.runs()])
    return is_right(session)


def is_read_quickly(tmp_path: Path, items: list[Any], traces: list[Any]) -> tuple[bool, bool]:
    gold, trace = write_pair(tmp_path, items, traces)
    with ScoreOptions().session(trace, [gold, trace]) as session:
        return read_quickly(session, gold) is not None, trace_is_read_quickly(session, trace)


@pytest.mark.parametrize(
    "trace",
    [
        PLAIN,
        {**PLAIN, "latency": 12, "model": {"name": "m"}},
        {"qid": "t0"},
        {**PLAIN, "retrieved_ids": None, "answer_json": None},
        {**PLAIN, "answer_json": {"claim": "not in context"}},
        {**PLAIN, "qid": "12", "retrieved_ids": ["1", "2"], "answer_json": {"claim": "42", "citations": ["1"]}},
        {**PLAIN, "error": "theirs", "grounded": False},
        {"q_id": "t0", **{name: value for name, value in PLAIN.items() if name != "qid"}},
        {**PLAIN, "q_id": "another"},
    ],
)
def test_ordinary_traces_are_read_by_the_engine(tmp_path: Path, trace: dict[str, Any]) -> None:
    assert is_read_quickly(tmp_path, [PLAIN_ITEM], [trace, {**PLAIN, "qid": "t1"}]) == (True, True)


def test_a_question_without_a_qid_is_known_by_its_q_id(tmp_path: Path) -> None:
    said = {name: value for name, value in PLAIN.items() if name != "qid"}
    traces = [{"q_id": "t0", **said}, {"qid": None, "q_id": "t1", **said}, {"qid": "t2", "q_id": "t9", **said}]
    items = [{**PLAIN_ITEM, "qid": f"t{n}"} for n in range(3)]
    numbers, warnings, _ = score_trace(*map(str, write_pair(tmp_path, items, traces)), options=ScoreOptions())
    assert (numbers["answered"], numbers["precision"], numbers["recall@k"], warnings) == (3, 1, 1, [])
    assert [query_id for query_id, _ in read_trace(tmp_path / "trace.jsonl", "run").rows] == ["t0", "t1", "t2"]


def test_a_gold_file_may_say_q_id_and_is_still_read_by_the_engine(tmp_path: Path) -> None:
    item = {"q_id": "t0", **{name: value for name, value in PLAIN_ITEM.items() if name != "qid"}}
    assert is_read_quickly(tmp_path, [item, {**PLAIN_ITEM, "qid": "t1"}], [PLAIN]) == (True, True)
    assert is_read_quickly(tmp_path, [{**PLAIN_ITEM, "q_id": "t9"}], [PLAIN]) == (False, True)
    assert load_golden(tmp_path / "gold.jsonl").warnings == [
        "unknown field 'q_id' is ignored (line 1); did you mean 'qid'?"
    ]


@pytest.mark.parametrize(
    "line",
    [
        '{"q_id": 7, "retrieved_ids": [], "answer_json": {"claim": "", "citations": []}}',
        '{"q_id": true, "retrieved_ids": [], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "", "q_id": ["t"], "retrieved_ids": [], "answer_json": {"claim": "", "citations": []}}',
        '{"q_id": "t", "q_id": "u", "retrieved_ids": [], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": 7, "retrieved_ids": [], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "qid": "u", "retrieved_ids": [], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "retrieved_ids": [], "retrieved_ids": ["a"], "answer_json": {}}',
        '{"qid": "t", "retrieved_ids": ["a", null], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "retrieved_ids": ["a", 7], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "retrieved_ids": ["a", true], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "retrieved_ids": ["a", {}], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "retrieved_ids": ["a", []], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "retrieved_ids": ["a"], "answer_json": {"claim": "", "citations": ["a", false]}}',
        '{"qid": "t", "retrieved_ids": ["a"], "answer_json": {"claim": "", "citations": ["a", -1.5]}}',
        '{"qid": "t", "retrieved_ids": ["a"], "answer_json": {"claim": "", "citations": ["a", ""]}}',
        '{"qid": "t", "retrieved_ids": [NaN], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "retrieved_ids": [], "answer_json": {"claim": true, "citations": []}}',
        '{"qid": "t", "retrieved_ids": [], "answer_json": {"claim": "", "claim": "b", "citations": []}}',
        '{"qid": "t0", "retrieved_ids": [], "answer_json": {"claim": "again", "citations": []}}',
        '{"qid": "t", "retrieved_ids": ["\\u0000"], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "retrieved_ids": ["\\ud800"], "answer_json": {"claim": "", "citations": []}}',
        '{"qid": "t", "retrieved_ids": [',
        "[]",
        '"qid"',
        "\x01",
        '{"qid": "t", "q": "' + "x" * 3_000_000 + '"}',
    ],
)
def test_a_trace_with_anything_odd_in_it_is_left_to_the_importer(tmp_path: Path, line: str) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(f"{json.dumps(PLAIN)}\n{line}\n")
    with ScoreOptions().session(trace, [trace]) as session:
        assert not trace_is_read_quickly(session, trace)


@pytest.mark.parametrize(
    "more",
    [
        {"answerable": "true"},
        {"expected_doc_ids": ["d"]},
        {"colour": "red"},
        {"id": "t0"},
        {"gold_citations": [1]},
        {"gold_claim_substr": [""]},
        {"question": ""},
    ],
)
def test_a_gold_file_with_more_in_it_is_left_to_the_golden_loader(tmp_path: Path, more: dict[str, Any]) -> None:
    assert is_read_quickly(tmp_path, [{**PLAIN_ITEM, **more}], [PLAIN]) == (False, True)


def test_entries_of_a_quickly_read_gold_file_are_available_on_request(tmp_path: Path) -> None:
    gold, _ = write_pair(tmp_path, [PLAIN_ITEM, {**PLAIN_ITEM, "qid": "t1"}], [PLAIN])
    with ScoreOptions().session(gold, [gold]) as session:
        found = read_quickly(session, gold)
    assert found is not None
    wanted = load_golden(gold)
    assert len(found) == 2
    assert (list(found.entries), found.hash) == (list(wanted.entries), wanted.hash)
    assert found.has("gold_claim_substr")
    assert not found.has("gold_supports")


def test_a_quickly_read_gold_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("the entries are in the session already")

    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    monkeypatch.setattr("kbeval.systems.fast_golden.load_golden", refuse)
    found = _read_quickly(gold, trace, options())
    assert found is not None
    assert found.numbers["answer_precision"] == 1.0


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ('{"qid": "a", "retrieved_ids": [], "answer_json": {"claim": "c", "citations": []}, "x": 1}', True),
        ('{"qid": "a", "retrieved_ids": [], "answer_json": {"claim": "c", "citations": []}, "x": 1, "y": 1}', True),
        ('{"qid": "a", "retrieved_ids": [], "answer_json": {"claim": "c", "citations": []}, "x": 1, "x": 2}', False),
        ('{"qid": "a", "retrieved_ids": ["c"], "answer_json": null, "x": 1}', True),
        ('{"qid": "a", "retrieved_ids": ["c"], "answer_json": null, "x": 1, "x": 2}', False),
        ('{"qid": "a", "retrieved_ids": ["c"], "answer_json": null, "x": {"y": 1, "y": 2}}', False),
    ],
)
def test_a_key_that_is_repeated_in_a_trace_is_noticed(tmp_path: Path, line: str, is_read: bool) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(line, encoding="utf-8")
    with ScoreOptions().session(trace, [trace]) as session:
        assert trace_is_read_quickly(session, trace) == is_read


def test_gold_in_other_formats_goes_with_a_quickly_read_trace(tmp_path: Path) -> None:
    _, trace = write_pair(tmp_path, [], [PLAIN])
    gold = tmp_path / "gold.yaml"
    gold.write_text("- {id: t0, query: '?', answerable: true, gold_claim_substr: [fifteen], gold_citations: [c1]}")
    found, warnings, _ = score_trace(str(gold), str(trace), options=ScoreOptions())
    assert (found["precision"], found["recall@k"], found["pass"], warnings) == (1.0, 1.0, True, [])


def test_what_a_trace_calls_error_or_abstained_means_nothing_here_and_is_kept(tmp_path: Path) -> None:
    """In our own rows these fields mean something, and would change the numbers."""
    theirs = {
        **PLAIN,
        "error": "e",
        "abstained": True,
        "abstention": {"abstained": True},
        "query": 3,
        "answer_json": {**PLAIN["answer_json"], "grounded": 0},
    }
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [theirs])
    ((_, text),) = read_trace(trace, "run").rows
    row = json.loads(text)
    own = {"error": "e", "abstained": True, "abstention": {"abstained": True}, "query": 3}
    assert row["kbeval_source"] == {**own, "answer_json": {"grounded": 0}}
    numbers, _, _ = _read_exactly(str(gold), trace, options())
    wanted = system_oracles.grounded([theirs], [PLAIN_ITEM])
    found = {**numbers, "citation_recall_at_k": numbers["citation_recall_at_k"][5]}
    assert found == {name: value for name, value in wanted.items() if name in found}


def test_a_trace_that_is_not_a_regular_file_is_read_line_by_line(tmp_path: Path) -> None:
    """A pipe can be read once."""
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_bytes(trace.read_bytes()), daemon=True).start()
    found, _, _ = score_trace(str(gold), str(pipe), options=ScoreOptions())
    assert found["pass"]


def test_a_path_with_quotes_in_it_is_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "it's [a] *folder*"
    folder.mkdir()
    gold, trace = write_pair(folder, [PLAIN_ITEM], [PLAIN])
    quick = _read_quickly(gold, trace, options())
    assert quick is not None
    assert quick == _read_exactly(str(gold), trace, options())


ACCENTED = "a" + "é" * 60


@pytest.mark.parametrize(
    ("items", "traces"),
    [
        ([{"id": "t0", "query": ACCENTED, "answerable": True, "expected_chunk_ids": ["c1"]}], [PLAIN]),
        ([PLAIN_ITEM], [{"qid": "t0", "retrieved_ids": ["c1"], "answer_json": {"claim": ACCENTED}}]),
        ([PLAIN_ITEM], [PLAIN, {"qid": "7", "q": "?", "retrieved_ids": ["c1"], "answer_json": None}]),
        ([PLAIN_ITEM], [{**PLAIN, "retrieved_ids": ["2024"]}, {"qid": "t9", "answer_json": {}}]),
    ],
)
def test_what_the_engine_cannot_read_is_scored_anyway(
    tmp_path: Path, items: list[dict[str, Any]], traces: list[dict[str, Any]]
) -> None:
    """It quotes data in its messages, cut in the middle of a character; and empty objects have no structure."""
    gold, trace = tmp_path / "gold.jsonl", tmp_path / "trace.jsonl"
    gold.write_text("\n".join(json.dumps(item, ensure_ascii=False) for item in items), encoding="utf-8")
    trace.write_text("\n".join(json.dumps(item, ensure_ascii=False) for item in traces), encoding="utf-8")
    found, warnings, _ = score_trace(str(gold), str(trace), options=ScoreOptions())
    numbers, others, _ = _read_exactly(str(gold), trace, options())
    assert (found["precision"], found["chr"]) == (numbers["answer_precision"], numbers["citation_hit_rate"])
    assert warnings == others


def test_a_broken_line_in_another_language_is_named(tmp_path: Path) -> None:
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    trace.write_text('{"qid":"t0","q":"a' + "é" * 400 + '", oops}', encoding="utf-8")
    with pytest.raises(KbevalError, match="line 1: is not valid JSON"):
        score_trace(str(gold), str(trace), options=ScoreOptions())


def test_deeply_nested_lists_in_unused_fields_do_no_harm(tmp_path: Path) -> None:
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    deep = "[" * 130 + "]" * 130
    trace.write_text(
        f'{{"qid": "7", "retrieved_ids": ["c1"], "answer_json": {{"claim": "a", "citations": []}}, "z": {deep}}}'
    )
    assert score_trace(str(gold), str(trace), options=ScoreOptions())[0]["answered"] == 1


def test_gold_and_trace_may_both_be_pipes(tmp_path: Path) -> None:
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    pipes = [tmp_path / "gold-pipe.jsonl", tmp_path / "trace-pipe.jsonl"]
    for pipe, file in zip(pipes, (gold, trace), strict=True):
        os.mkfifo(pipe)
        threading.Thread(target=lambda pipe=pipe, file=file: pipe.write_bytes(file.read_bytes()), daemon=True).start()
    assert score_trace(*map(str, pipes), options=ScoreOptions())[0]["pass"]


@pytest.mark.parametrize("name", ["gold\\*.jsonl", "\udcff.jsonl"])
def test_names_that_the_engine_cannot_have_are_names(tmp_path: Path, name: str) -> None:
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    gold = gold.rename(tmp_path / name)
    assert score_trace(str(gold), str(trace), options=ScoreOptions())[0]["pass"]


def test_a_name_that_is_too_long_is_reported(tmp_path: Path) -> None:
    _, trace = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    for gold, traced in (("x" * 300 + ".jsonl", str(trace)), (str(tmp_path / "gold.jsonl"), "x" * 300)):
        with pytest.raises(KbevalError, match="cannot be read: File name too long"):
            score_trace(gold, traced, options=ScoreOptions())


def test_a_failed_gate_is_exit_code_1_even_if_the_output_is_closed(tmp_path: Path) -> None:
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [{**PLAIN, "retrieved_ids": []}])
    command = [sys.executable, "-m", "kbeval", "grounded", "--gold", str(gold), "--trace", str(trace)]
    reading, writing = os.pipe()
    os.close(reading)
    found = subprocess.run(command, stdout=writing, stderr=subprocess.DEVNULL, check=False)
    os.close(writing)
    assert found.returncode == 1


@pytest.mark.parametrize("shared", [True, False])
def test_a_trace_that_is_kept_compressed_is_scored_by_two_threads_or_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    monkeypatch.setattr("kbeval.engine.session.COMPRESS_FROM_BYTES", -1)
    if not shared:
        monkeypatch.setattr("kbeval.systems.fast_trace._SMALL_BYTES", -1)
    numbers, warnings, _ = score_trace(str(gold), str(trace), options=ScoreOptions())
    assert (numbers["precision"], numbers["chr"], numbers["recall@k"], warnings) == (1, 1, 1, [])


def test_a_trace_that_needs_more_memory_says_so(tmp_path: Path) -> None:
    numbers = range(30_000)
    gold, trace = write_pair(
        tmp_path, [{**PLAIN_ITEM, "qid": f"t{n}"} for n in numbers], [{**PLAIN, "qid": f"t{n}"} for n in numbers]
    )
    with pytest.raises(KbevalError, match=r"not enough memory.*; try a higher --memory-limit"):
        score_trace(str(gold), str(trace), options=ScoreOptions(memory_limit="16MB"))
    found, _, _ = score_trace(str(gold), str(trace), options=ScoreOptions(memory_limit="100MB"))
    assert found["answered"] == len(numbers)


@pytest.mark.parametrize(
    "more",
    [
        {"gold_supports": [{"rel_path": "a.md"}], "required_support_groups": [[0]]},
        {"gold_supports": []},
        {"expected_spans": [{"doc_id": "d", "kind": "line", "start": 1, "end": 2}]},
        {"expected_doc_ids": ["d"], "must_contain": ["x"], "forbidden": ["y"], "category": "c", "tags": ["t"]},
    ],
)
def test_labels_for_other_systems_in_a_gold_file_change_nothing(tmp_path: Path, more: dict[str, Any]) -> None:
    gold, trace = write_pair(tmp_path, [{**PLAIN_ITEM, **more}], [PLAIN])
    numbers, warnings, _ = score_trace(str(gold), str(trace), options=ScoreOptions())
    assert (numbers["precision"], numbers["chr"], numbers["recall@k"], warnings) == (1, 1, 1, [])


@pytest.mark.parametrize("id_", ["[]", "{}", '["a"]', '[["a",],]', '[{"a": NaN}]'])
def test_an_id_that_no_row_could_hold_is_refused(tmp_path: Path, id_: str) -> None:
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [{**PLAIN, "retrieved_ids": ["c1", id_]}])
    with pytest.raises(KbevalError, match="line 1: retrieved_ids is not a list of ids"):
        score_trace(str(gold), str(trace), options=ScoreOptions())


@pytest.mark.parametrize("id_", ["[[a]]", "[x]", "{x}", "[1]", "[", '["'])
def test_an_id_with_brackets_is_an_id(tmp_path: Path, id_: str) -> None:
    gold, trace = write_pair(
        tmp_path,
        [{**PLAIN_ITEM, "gold_citations": [id_]}],
        [{**PLAIN, "retrieved_ids": [id_], "answer_json": {"claim": "fifteen", "citations": [id_]}}],
    )
    assert score_trace(str(gold), str(trace), options=ScoreOptions())[0]["precision"] == 1


def test_a_sigma_is_one_letter_wherever_it_stands(tmp_path: Path) -> None:
    item = {**PLAIN_ITEM, "gold_claim_substr": ["σίσυφος"]}
    answer = {"claim": "ΣΊΣΥΦΟΣ.", "citations": ["c1"]}
    gold, trace = write_pair(tmp_path, [item], [{**PLAIN, "answer_json": answer}])
    assert score_trace(str(gold), str(trace), options=ScoreOptions())[0]["precision"] == 1
    assert _read_exactly(str(gold), trace, options())[0]["answer_precision"] == 1


def test_a_file_that_disappears_while_it_is_opened_is_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gold, trace = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    # They were there when it was asked whether they are.
    monkeypatch.setattr("kbeval.systems.fast_trace.is_openable", lambda _: True)
    monkeypatch.setattr("kbeval.systems.fast_lines.is_openable", lambda _: True)
    monkeypatch.setattr("kbeval.systems.fast_lines._holds", lambda _, __: False)
    trace.unlink()
    with pytest.raises(KbevalError, match=r"trace\.jsonl does not exist"):
        score_trace(str(gold), str(trace), options=ScoreOptions())
    gold.unlink()
    with pytest.raises(KbevalError, match="there is no such golden file"):
        score_trace(str(gold), str(trace), options=ScoreOptions())


def test_a_device_without_an_end_is_not_read(tmp_path: Path) -> None:
    gold, _ = write_pair(tmp_path, [PLAIN_ITEM], [PLAIN])
    with pytest.raises(KbevalError, match="/dev/zero is a device, not a file"):
        score_trace(str(gold), "/dev/zero", options=ScoreOptions())
