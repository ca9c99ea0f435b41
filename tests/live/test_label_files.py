"""What labelling does to golden files of all kinds: line ends, names of documents, and files that were replaced."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kbeval.errors import GoldenError, UsageError
from kbeval.live.labelling.session import Chosen, Labelling
from tests.support.labelled import add, make
from tests.support.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make(tmp_path)


def written(workspace: Workspace, name: str, content: str) -> Path:
    workspace.golden = workspace.golden.with_name(name)
    workspace.golden.write_bytes(content.encode())
    return workspace.golden


def session_of(workspace: Workspace, annotator: str = "ann", **chosen: Any) -> Labelling:
    return Labelling(workspace.db, workspace.golden, Chosen(annotator, **chosen))


def key_of(session: Labelling, query_id: str, text: str) -> str:
    return next(one.key for one in session.view(query_id).candidates if text in one.text)


SPAN = "{doc_id: d1, kind: line, start: 1, end: 3}"
JSON_SPAN = '{"doc_id": "d1", "kind": "line", "start": 1, "end": 3}'
FILES = {
    "golden.yaml": (
        "# head\n- id: q1\n  query: é?   # a\n- {id: q2, query: x}\n",
        f"# head\n- id: q1\n  query: é?   # a\n  expected_spans: [{SPAN}]\n- {{id: q2, query: x, answerable: false}}\n",
    ),
    "golden.json": (
        '[\n {"id": "q1", "query": "é?"},\n {"id": "q2", "query": "x"}\n]\n',
        (
            f'[\n {{"id": "q1", "query": "é?", "expected_spans": [{JSON_SPAN}]}},\n'
            ' {"id": "q2", "query": "x", "answerable": false}\n]\n'
        ),
    ),
    "golden.jsonl": (
        '{"id":"q1","query":"é?"}\n\n{"id":"q2","query":"x"}\n',
        (
            f'{{"id":"q1","query":"é?","expected_spans":[{JSON_SPAN.replace(" ", "")}]}}\n\n'
            '{"id":"q2","query":"x","answerable":false}\n'
        ),
    ),
}


def test_all_line_ends_and_byte_order_marks_stay_as_they_are(workspace: Workspace) -> None:
    for name, (before, after) in FILES.items():
        for end, mark in (("\n", ""), ("\r\n", "\ufeff"), ("\r", "\ufeff")):
            path = written(workspace, name, mark + before.replace("\n", end))
            with session_of(workspace, f"{name} {end!r}") as session:
                session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
                session.set_answerable("q2", value=False)
                assert session.save().problems == [], (name, end)
                assert path.read_bytes().decode() == mark + after.replace("\n", end), (name, end)
                while session.undo() is not None:
                    pass
                assert path.read_bytes().decode() == mark + before.replace("\n", end), (name, end)


def test_a_refusal_says_why(workspace: Workspace) -> None:
    written(workspace, "golden.yaml", "- &a\n  id: q1\n  query: &q What?\n- id: q2\n  query: *q\n")
    with (
        session_of(workspace) as session,
        pytest.raises(UsageError, match="q1: line 1, entry q1: it cannot be changed"),
    ):
        session.set_query("q1", "Another wording")


def test_spans_name_their_document_as_those_of_the_file_do(workspace: Workspace) -> None:
    by_path = "{path: docs/d2.md, kind: line, start: 90, end: 91}"
    path = written(
        workspace,
        "golden.yaml",
        f"- id: q1\n  query: a\n- id: q2\n  query: b\n  expected_spans: [{by_path}]\n- id: q3\n  query: c\n"
        "  expected_spans: [{doc_id: d3, kind: line, start: 90, end: 91}]\n"
        "- {id: q4, query: d, expected_spans: [{path: docs/d4.md, kind: line, start: 4, end: 6}]}\n",
    )
    with session_of(workspace) as session:
        for n in (1, 2, 3):
            session.decide(f"q{n}", key_of(session, f"q{n}", f"The answer {n}"), "yes")
        # A label by path is found by the place of a text whose document is known by its id.
        own = next(one for one in session.view("q4").candidates if "Nothing to see in 4" in one.text)
        assert own.is_labelled
        session.decide("q4", own.key, "no")
        assert session.save().problems == []
        place = "kind: line, start: 1, end: 3}"
        assert path.read_text(encoding="utf-8") == (
            f"- id: q1\n  query: a\n  expected_spans: [{{path: docs/d1.md, {place}]\n"
            f"- id: q2\n  query: b\n  expected_spans: [{by_path}, {{path: docs/d2.md, {place}]\n- id: q3\n  query: c\n"
            f"  expected_spans: [{{doc_id: d3, kind: line, start: 90, end: 91}}, {{doc_id: d3, {place}]\n"
            "- {id: q4, query: d}\n"
        )
        # What is labelled already is not labelled twice.
        session.decide("q1", key_of(session, "q1", "The answer 1"), "no")
        session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
        session.save()
        assert path.read_text(encoding="utf-8").count("docs/d1.md") == 1


def test_a_label_stays_as_precise_as_it_is_when_a_text_around_it_is_confirmed(workspace: Workspace) -> None:
    label = "{doc_id: d1, kind: line, start: 2, end: 2}"
    path = written(
        workspace, "golden.yaml", f"- {{id: q1, query: a, expected_spans: [{label}]}}\n- {{id: q2, query: b}}\n"
    )
    before = path.read_text(encoding="utf-8")
    with session_of(workspace) as session:
        key = key_of(session, "q1", "The answer 1")
        assert "labelled already" in session.decide("q1", key, "yes").advice
        assert session.save().problems == []
        assert path.read_text(encoding="utf-8") == before
        # A passage that is selected is meant as it is.
        session.decide("q1", key, "yes", (0, 3))
        session.save()
        assert path.read_text(encoding="utf-8").count("doc_id: d1") == 2


def test_a_file_that_became_a_pipe_is_refused_at_once(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
        content = workspace.golden.read_bytes()
        workspace.golden.unlink()
        os.mkfifo(workspace.golden)
        found: list[list[str]] = []
        thread = threading.Thread(target=lambda: found.append(session.save("q1").problems), daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        assert "it is a pipe or a device" in found[0][0]
        workspace.golden.unlink()
        workspace.golden.write_bytes(content)
        assert session.save("q1").written == 1
    workspace.golden.unlink()
    os.mkfifo(workspace.golden)
    with pytest.raises(GoldenError, match="it is a pipe"):
        session_of(workspace)


def test_an_id_that_another_program_used_meanwhile_is_refused(workspace: Workspace) -> None:
    path = written(workspace, "golden.yaml", "- {id: q1, query: a}\n")
    with session_of(workspace) as session:
        path.write_text("- {id: q1, query: a}\n- {id: new, query: another}\n", encoding="utf-8")
        with pytest.raises(UsageError, match="another query with this id"):
            session.add_query("new", "mine")
    assert path.read_text(encoding="utf-8").count("new") == 1


def test_a_contradiction_is_asked_about(workspace: Workspace) -> None:
    from kbeval.live.labelling.session import DoubtError

    with session_of(workspace) as session:
        session.set_answerable("q4", value=False)
        with pytest.raises(UsageError, match="marked as unanswerable: press a"):
            session.decide("q4", key_of(session, "q4", "The answer 4"), "yes")
        session.decide("q4", key_of(session, "q4", "The answer 4"), "no")
        # It is labelled in the file (q5), or was marked just now (q1).
        session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
        for query_id in ("q1", "q5"):
            with pytest.raises(DoubtError, match="has a text that answers it"):
                session.set_answerable(query_id, value=False)
            assert session.view(query_id).answerable is None
        assert session.set_answerable("q5", value=False, is_sure=True).answerable is False


def test_a_label_that_says_less_than_it_could_is_pointed_out(workspace: Workspace) -> None:
    workspace.add_document("long", "docs/long.md")
    long = "\n".join(f"Line {n} of a long text." for n in range(1, 25))
    add(workspace, "long", 1, (1, 24), long, "md@1")
    add(workspace, "odd", 2, (1, 60), "Two lines\nwhose place says sixty.", "md@1")
    rows = {"q1": {"hits_top_k": [{"chunk_id": "long"}]}, "q2": {"hits_top_k": [{"chunk_id": "odd"}]}}
    workspace.add_run("long", rows, created_at="2026-01-03")
    with session_of(workspace) as session:
        key = key_of(session, "q1", "a long text")
        assert session.decide("q1", key, "yes").advice.startswith("The whole text is the label, 24 lines of ")
        assert session.decide("q1", key, "yes", (0, 5)).advice == ""
        assert session.decide("q1", key, "no").advice == ""
        assert session.decide("q1", key_of(session, "q1", "The answer 1"), "yes").advice == ""
        odd = key_of(session, "q2", "says sixty")
        assert "the whole text is the label" in session.decide("q2", odd, "yes", (0, 3)).advice
    # Chunk ids are of whole texts anyway.
    with session_of(workspace, "bob", form="chunks") as session:
        assert session.decide("q1", key_of(session, "q1", "a long text"), "yes").advice == ""
