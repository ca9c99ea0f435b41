"""Several people: at once in two processes, disagreements of every kind, how they are settled, and several tabs."""

from __future__ import annotations

import http.client
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any, Self

import pytest

from kbeval.cli import run
from kbeval.live.labelling.session import Chosen, Labelling
from kbeval.storage.labels import StaleDecisionError
from tests.support.labelled import BEFORE, make
from tests.support.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make(tmp_path)


def session_of(workspace: Workspace, annotator: str = "ann", **chosen: Any) -> Labelling:
    return Labelling(workspace.db, workspace.golden, Chosen(annotator, **chosen))


def text_of(workspace: Workspace) -> str:
    return workspace.golden.read_bytes().decode()


def key_of(session: Labelling, query_id: str, text: str) -> str:
    return next(one.key for one in session.view(query_id).candidates if text in one.text)


# --- disagreements ----------------------------------------------------------------------------------------


def test_every_field_that_people_disagree_on_waits_and_can_be_settled(workspace: Workspace) -> None:
    with session_of(workspace, "ann") as session:
        session.set_answerable("q7", value=True)
        session.set_rule("q7", "answer 7", is_wanted=True)
        session.set_rule("q8", "eight", is_wanted=True)
        session.set_answerable("q9", value=True)
    by_ann = text_of(workspace)
    assert "must_contain: ['kept', eight]" in by_ann
    with session_of(workspace, "bob") as session:
        view = session.set_answerable("q7", value=False)
        # It is what bob said, but not in the file.
        assert (view.answerable, view.advice) == (False, "Not written: people disagree on it.")
        assert session.set_rule("q8", "eight", is_wanted=False).advice
        session.set_answerable("q9", value=True)
        session.decide("q2", key_of(session, "q2", "The answer 2"), "yes")
        session.save()
    by_both = text_of(workspace)
    assert by_both == by_ann.replace(
        "query: 'What is topic 2?',",
        "query: 'What is topic 2?', expected_spans: [{doc_id: d2, kind: line, start: 1, end: 3}],",
    )
    with session_of(workspace, "ann") as session:
        session.decide("q2", key_of(session, "q2", "The answer 2"), "no")
        assert session.save("q2").held == 1
    assert text_of(workspace) == by_both
    # ann settles what she is part of: what she said before still counts as said.
    with session_of(workspace, "ann", to_settle=True) as session:
        assert sorted(session.queue) == ["q2", "q7", "q8"]
        assert session.left() == (3, 3)
        (own,) = session.view("q7").candidates
        assert (own.key, own.title) == ("answerable:", "Answerable")
        assert session.view("q7").disputes == {"answerable:": {"ann": "yes", "bob": "no"}}
        session.decide("q7", own.key, "no")
        assert session.left() == (2, 2)
        (own,) = session.view("q8").candidates
        assert "eight" in own.text
        session.decide("q8", own.key, "no")
        (own,) = session.view("q2").candidates
        assert "The answer 2" in own.text
        session.decide("q2", own.key, "no")
        session.save()
        assert session.left() == (0, 0)
    settled = text_of(workspace)
    assert settled == by_ann.replace("answerable: true\n  must", "answerable: false\n  must").replace(", eight]", "]")
    with session_of(workspace, "eva", to_settle=True) as session:
        assert session.queue == []
    rows = workspace.execute(
        "SELECT field, annotator, value_json, is_settlement FROM kbeval_labels WHERE query_id = 'q7' ORDER BY label_no"
    )
    assert [(field, who, is_settlement) for field, who, _, is_settlement in rows] == [
        ("answerable", "ann", 0),
        ("must_contain", "ann", 0),
        ("answerable", "bob", 0),
        ("answerable", "ann", 1),
    ]
    # Undone, it is open again, and the file as it was before.
    with session_of(workspace, "ann", to_settle=True) as session:
        for query_id in ("q2", "q8", "q7"):
            assert session.undo() == query_id
    assert text_of(workspace) == by_both


def test_what_was_held_is_written_when_the_other_person_takes_it_back(workspace: Workspace) -> None:
    with session_of(workspace, "ann") as session:
        session.decide("q1", key_of(session, "q1", "The answer 1"), "no")
        session.save()
    with session_of(workspace, "bob") as session:
        session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
        assert session.save().held == 1
        assert text_of(workspace) == BEFORE
    with session_of(workspace, "ann") as session:
        assert session.undo() == "q1"
        assert session.save("q1").written == 1
    assert "expected_spans: [{doc_id: d1, kind: line, start: 1, end: 3}]\n  own_field" in text_of(workspace)


def test_agreement_says_where_to_settle_and_knows_its_fields(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    for who, value in (("ann", True), ("bob", False)):
        with session_of(workspace, who) as session:
            session.set_answerable("q7", value=value)
            session.set_rule("q7", "answer 7", is_wanted=value)
    assert run(["label", "--agreement", "--by", "tags", "--format", "json", *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["field"] for row in found["agreement"]} == {"answerable", "must_contain"}
    assert [(one["field"], one["said"]) for one in found["disagreements"]] == [
        ("answerable", {"ann": True, "bob": False}),
        ("must_contain", {"ann": True, "bob": False}),
    ]
    assert run(["label", "--agreement", *where]) == 0
    assert "2 disagreements to settle: kbeval label --settle" in capsys.readouterr().err
    for by, said in (("nope", "has a field 'nope'"), ("tag", "did you mean 'tags'"), ("own_fields", "'own_field'")):
        assert run(["label", "--agreement", "--by", by, *where]) == 2, by
        assert said in capsys.readouterr().err, by


# --- several tabs -----------------------------------------------------------------------------------------


def test_undo_and_rest_refuse_to_act_on_unseen_decisions(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        known = session.latest()
        view = session.view("q1")
        # Another tab decides meanwhile.
        session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
        with pytest.raises(StaleDecisionError, match="another decision was made"):
            session.undo(known)
        with pytest.raises(StaleDecisionError, match="another decision was made"):
            session.decide_rest("q1", view.latest)
        assert list(session.view("q1").decided.values()) == ["yes"]
        # Another process of the same person.
        with session_of(workspace) as other:
            now = session.latest()
            assert other.undo(now) == "q1"
        with pytest.raises(StaleDecisionError):
            session.undo(now)
        session.decide_rest("q1", session.view("q1").latest)
        assert set(session.view("q1").decided.values()) == {"no"}
        assert session.undo(session.latest()) == "q1"


# --- two processes ----------------------------------------------------------------------------------------


class Labeller:
    """`kbeval label --web` as a process of its own, and a client of it."""

    def __init__(self, workspace: Workspace, annotator: str, *more: str) -> None:
        command = [sys.executable, "-m", "kbeval", "label", "--web", "--annotator", annotator, *more]
        where = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
        self.process = subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.fullmatch(r"http://(127\.0\.0\.1:\d+)/\?token=(\S+)\n", self.process.stdout.readline())
        assert found is not None
        self.address, self.token = found.groups()

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        head = {"X-Kbeval-Token": self.token, "Content-Type": "application/json"}
        connection.request(
            "GET" if body is None else "POST", f"/api/{path}", None if body is None else json.dumps(body), head
        )
        answer = connection.getresponse()
        found = json.loads(answer.read())
        connection.close()
        assert answer.status == 200, found
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_two_processes_at_once_on_one_database_and_one_file(workspace: Workspace) -> None:
    """Both decide on every text, in orders of their own, and save at the same time: nothing is lost."""
    before = "".join(f"- id: q{n}   # {n}\n  query: What is topic {n}?\n" for n in range(1, 11))
    workspace.golden.write_text(before, encoding="utf-8")
    # On the text that answers a query and on the other one; on every third query they disagree about the first.
    votes = {
        "ann": dict.fromkeys(range(1, 11), ("yes", "no")),
        "bob": {n: ("no" if n % 3 == 0 else "yes", "no") for n in range(1, 11)},
    }
    failed: list[BaseException] = []

    def work(who: str, labeller: Labeller) -> None:
        source = random.Random(who)
        try:
            for n in source.sample(range(1, 11), 10):
                view = labeller.ask(f"query/q{n}")
                for one in view["candidates"]:
                    value = votes[who][n]["The answer" not in one["text"]]
                    labeller.ask("decide", {"query": f"q{n}", "key": one["key"], "value": value, "after": 0})
                assert labeller.ask("save", {"query": f"q{n}"})["problems"] == []
        except BaseException as error:  # noqa: BLE001  (raised below)
            failed.append(error)

    with Labeller(workspace, "ann") as ann, Labeller(workspace, "bob") as bob:
        threads = [Thread(target=work, args=("ann", ann)), Thread(target=work, args=("bob", bob))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
    label = "  expected_spans: [{{doc_id: d{n}, kind: line, start: 1, end: 3}}]\n"
    lines = text_of(workspace)
    for n in range(1, 11):
        entry = f"- id: q{n}   # {n}\n  query: What is topic {n}?\n"
        written = entry + label.format(n=n)
        # Where they disagree, only the first to save has written, or neither has; nothing else is in the file.
        assert lines.startswith((written, entry)), lines
        if n % 3:
            assert lines.startswith(written), n
        lines = lines.removeprefix(written) if lines.startswith(written) else lines.removeprefix(entry)
    assert lines == ""
    counts = workspace.execute("SELECT annotator, COUNT(*) FROM kbeval_labels GROUP BY annotator ORDER BY annotator")
    assert counts == [("ann", 20), ("bob", 20)]
    assert workspace.execute("SELECT COUNT(*) FROM kbeval_labels WHERE state = 'pending'") == [(0,)]
    with session_of(workspace, "eva", to_settle=True) as session:
        assert sorted(session.queue) == ["q3", "q6", "q9"]
        for query_id in session.queue:
            (own,) = session.view(query_id).candidates
            session.decide(query_id, own.key, "yes")
        session.save()
    wanted = "".join(f"- id: q{n}   # {n}\n  query: What is topic {n}?\n{label.format(n=n)}" for n in range(1, 11))
    assert text_of(workspace) == wanted


def test_fresh_answers_of_a_live_system_come_to_the_pool(workspace: Workspace) -> None:
    """By the command: 20 of the 30 chunks, of which every third is the same text as another one."""
    with Labeller(workspace, "ann", "--only", "q1", "--depth", "1") as stored:
        pooled = {one["chunk_id"] for one in stored.ask("query/q1")["candidates"]}
    with Labeller(workspace, "ann", "--only", "q1", "--depth", "1", "--fresh", "--target", "bm25") as asked:
        found = {one["chunk_id"] for one in asked.ask("query/q1")["candidates"]}
    assert len(pooled) <= 2
    assert pooled < found
    assert 12 < len(found) <= 21
    # Nothing of it is stored.
    assert workspace.execute("SELECT COUNT(*) FROM eval_runs") == [(3,)]
