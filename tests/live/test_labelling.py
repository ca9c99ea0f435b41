"""Labelling: the pool, decisions and what is written, without a front end."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbeval.errors import KbevalError, UsageError
from kbeval.explore.pool import leaders_of
from kbeval.live.labelling.places import passage_spans, proposed_snippet
from kbeval.live.labelling.session import Chosen, DoubtError, Labelling
from kbeval.storage.labels import LabelStore, StaleDecisionError
from tests.support.labelled import AFTER, BEFORE, label_ten, make
from tests.support.workspace import Workspace


class Direct:
    """The session itself, as the front ends call it."""

    def __init__(self, session: Labelling) -> None:
        self.session = session
        self.query, self.key = "", ""
        self.doubted = False

    def open(self, query_id: str) -> None:
        if self.query:
            assert not self.session.save(self.query).problems
        self.query = query_id

    def choose(self, text: str) -> None:
        self.key = next(one.key for one in self.session.view(self.query).candidates if text in one.text)

    def press(self, key: str) -> None:
        session, query = self.session, self.query
        match key:
            case "s" | "f":
                session.decide(query, self.key, {"s": "yes", "f": "no"}[key])
            case "a" | "x":
                is_sure, self.doubted = self.doubted, False
                try:
                    session.set_answerable(query, key == "a", is_sure=is_sure)
                except DoubtError:
                    self.doubted = True
            case "d":
                session.decide_rest(query)
            case "u":
                assert session.undo() == query

    def support_line(self, number: int) -> None:
        view = self.session.view(self.query)
        text = next(one.text for one in view.candidates if one.key == self.key)
        start = sum(len(line) + 1 for line in text.split("\n")[: number - 1])
        self.session.decide(self.query, self.key, "yes", (start, start + len(text.split("\n")[number - 1])))

    def must_contain(self, text: str) -> None:
        self.session.set_rule(self.query, text, is_wanted=True)

    def answer(self, key: str, *texts: str) -> None:
        if key == "+":
            self.open("")
            self.session.add_query(*texts)
        elif key == "e":
            self.session.set_query(self.query, texts[0])
        else:
            self.session.set_note(self.query, texts[0])


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make(tmp_path)


def session_of(workspace: Workspace, annotator: str = "ann", **chosen: Any) -> Labelling:
    return Labelling(workspace.db, workspace.golden, Chosen(annotator, **chosen))


def text_of(workspace: Workspace) -> str:
    return workspace.golden.read_bytes().decode()


def key_of(session: Labelling, query_id: str, text: str) -> str:
    return next(one.key for one in session.view(query_id).candidates if text in one.text)


def test_ten_queries_give_the_golden_file_to_the_byte_and_undo_restores_it(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        label_ten(Direct(session))
        assert text_of(workspace) == AFTER
        backup = session.file.backup
        assert backup is not None
        assert backup.read_bytes().decode() == BEFORE
        assert not session.problems
        while session.undo() is not None:
            pass
        assert text_of(workspace) == BEFORE
    assert len(list(workspace.golden.parent.glob("golden.yaml.*.bak"))) == 1
    ((kept, undone),) = workspace.execute("SELECT COUNT(*), COUNT(undone_at) FROM kbeval_labels")
    assert kept == undone > 10


def test_what_most_runs_returned_comes_first_and_then_what_runs_disagree_on(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    # In three runs `all` returned one text each time, `two` the same one twice, `apart` three different ones.
    workspace.add_golden(
        {"id": "apart"}, {"id": "two"}, {"id": "alike"}, {"id": "done", "expected_chunk_ids": ["d"]}, {"id": "all"}
    )
    rankings = {
        "all": ("a", "a", "a"),
        "two": ("t", "t", "x"),
        "alike": ("l", "l", None),
        "apart": ("p", "q", "r"),
        "done": ("d", "d", "d"),
    }
    for number in range(3):
        rows = {
            query: {
                "hits_top_k": [{"rank": 1, "chunk_id": f"{query}-{name}" if query != "done" else name, "text": name}]
            }
            for query, names in rankings.items()
            if (name := names[number]) is not None
        }
        workspace.add_run(f"run{number}", rows, created_at=f"2026-01-0{number + 1}")
    with session_of(workspace) as session:
        queue = session.queue
    assert queue[0] == "all"
    assert set(queue[1:3]) == {"two", "alike"}
    assert queue[3:] == ["apart", "done"]


def test_the_pool_has_the_same_text_once_and_says_nothing_about_runs(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        view = session.view("q1")
        # c1a of two runs and e1 of the third overlap by three of four lines: one candidate.
        assert sorted((one.chunk_ids, one.n_runs) for one in view.candidates) == [(("c1a", "e1"), 3), (("c1b",), 2)]
        assert all(not {"n_runs", "best_rank"} & one.as_json().keys() for one in view.candidates)
        assert session.left() == (10, 18)
        orders = {(session.view(f"q{n}").candidates[0].chunk_id or "")[-1] for n in range(1, 11)}
        assert orders == {"a", "b"}, "the order of candidates says nothing about ranks"
    with session_of(workspace, since_run="rechunked") as session:
        assert [one.chunk_ids for one in session.view("q2").candidates] == [("e2",)]
    with session_of(workspace, only=["q4"]) as session:
        assert session.queue == ["q4"]
    with session_of(workspace, unlabelled=True) as session:
        assert sorted(session.queue) == ["q1", "q10", "q2", "q4", "q7", "q8", "q9"]
    with pytest.raises(UsageError, match="no query 'q99'"), session_of(workspace, only=["q99"]):
        pass


def test_a_chain_of_windows_is_not_one_text() -> None:
    assert leaders_of([(1, 2), (2, 3), (3, 4)]) == {2: 1, 4: 3}
    assert leaders_of([(1, 3), (2, 3), (1, 4)]) == {3: 1, 4: 1}


def test_a_query_without_runs_is_searched_by_words(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        view = session.add_query("new", "What about the answer 7?")
        assert view.candidates
        assert any("answer 7" in one.text for one in view.candidates)


def test_decisions_are_kept_and_follow_the_text_after_re_chunking(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
        session.decide("q1", key_of(session, "q1", "Nothing to see in 1"), "no")
        session.save("q1")
    workspace.execute("DELETE FROM eval_query_results")
    workspace.execute("DELETE FROM eval_runs")
    workspace.execute("DELETE FROM chunks WHERE chunker_version = 'md@1'")
    workspace.add_run("rechunked", {"q1": {"hits_top_k": [{"chunk_id": "e1"}]}}, chunker="md@2")
    with session_of(workspace) as session:
        (own,) = [one for one in session.view("q1").candidates if one.chunk_id == "e1"]
        assert session.view("q1").decided[own.key] == "yes"
        assert not session.is_open("q1")


def test_what_was_decided_before_a_crash_is_written_at_the_next_start(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
        assert text_of(workspace) == BEFORE
    with session_of(workspace) as session:
        assert session.saved_before.written == 1
        assert "start: 1, end: 3" in text_of(workspace)
        assert session.undo() == "q1"
        assert text_of(workspace) == BEFORE
    # Killed after the file was written, before that was noted.
    with session_of(workspace) as session:
        session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
        session.save()
    workspace.execute("UPDATE kbeval_labels SET state = 'pending' WHERE undone_at IS NULL")
    with session_of(workspace) as session:
        assert session.undo() == "q1"
        assert text_of(workspace) == BEFORE


def test_a_file_that_was_edited_meanwhile_keeps_what_was_edited(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        key = key_of(session, "q1", "The answer 1")
        session.decide("q1", key, "yes")
        by_hand = BEFORE.replace("What is topic 2?", "What is the second topic?").replace("# plain", "# edited")
        workspace.golden.write_text(by_hand, encoding="utf-8")
        assert not session.save("q1").problems
        line = "  expected_spans: [{doc_id: d1, kind: line, start: 1, end: 3}]\n"
        assert text_of(workspace) == by_hand.replace("# edited\n", f"# edited\n{line}")
        # The value that is decided on was itself edited: the file is kept, and a message says so.
        session.view("q4")
        changed = text_of(workspace).replace("query: &fourth What is topic 4?", "query: &fourth What is it?")
        workspace.golden.write_text(changed, encoding="utf-8")
        with pytest.raises(UsageError, match=r"now 'What is it\?' in the file; not written"):
            session.set_query("q4", "My own wording")
        assert text_of(workspace) == changed
        # A query that is not there is refused before anything is stored.
        with pytest.raises(UsageError):
            session.set_note("nope", "x")
        with pytest.raises(UsageError):
            session.set_rule("nope", "x", is_wanted=True)
        # Broken in the middle of an edit: nothing is lost, nothing is overwritten.
        workspace.golden.write_text(changed + "- id: [\n", encoding="utf-8")
        session.decide("q1", key, "no")
        assert "cannot be read now" in session.save("q1").problems[0]
        assert text_of(workspace) == changed + "- id: [\n"
        workspace.golden.write_text(changed, encoding="utf-8")
        assert session.save("q1").written == 1
        assert text_of(workspace) == changed.replace(line, "")


def test_undo_takes_back_only_its_own_part_of_an_entry_that_changed_since(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        session.decide("q5", key_of(session, "q5", "The answer 5"), "yes")
        session.save()
        edited = text_of(workspace).replace("[c5b, c5a]", "[c5b, c5a, by-hand]")
        workspace.golden.write_text(edited, encoding="utf-8")
        assert session.undo() == "q5"
        assert text_of(workspace) == edited.replace("c5a, ", "")


def test_two_people_at_once(workspace: Workspace) -> None:
    """On one database and one file. What they disagree on is written when it is settled."""
    failed: list[BaseException] = []

    def work(name: str, queries: list[str]) -> None:
        try:
            with session_of(workspace, name) as session:
                for query_id in queries:
                    n = query_id[1:]
                    session.decide(query_id, key_of(session, query_id, f"The answer {n} "), "yes")
                    # The other one may have written it already, when it started.
                    assert not session.save(query_id).problems
        except BaseException as error:  # noqa: BLE001  (raised below)
            failed.append(error)

    queries = [f"q{n}" for n in (1, 2, 4, 7, 8, 9)]
    threads = [
        threading.Thread(target=work, args=("ann", queries[::2])),
        threading.Thread(target=work, args=("bob", queries[1::2])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert text_of(workspace).count("kind: line, start: 1, end: 3") == len(queries)
    before = text_of(workspace)
    with session_of(workspace, "bob") as session:
        session.decide("q1", key_of(session, "q1", "The answer 1"), "no")
        assert session.save("q1").held == 1
        assert text_of(workspace) == before
    with session_of(workspace, "eva", to_settle=True) as session:
        assert session.queue == ["q1"]
        key = key_of(session, "q1", "The answer 1")
        assert session.view("q1").disputes == {key: {"ann": "yes", "bob": "no"}}
        session.decide("q1", key, "no")
        session.save("q1")
    assert text_of(workspace) == before.replace(
        "  expected_spans: [{doc_id: d1, kind: line, start: 1, end: 3}]\n", "", 1
    )
    with session_of(workspace, "eva", to_settle=True) as session:
        assert session.queue == []


def test_a_decision_based_on_an_outdated_state_is_refused(workspace: Workspace) -> None:
    with session_of(workspace) as session:
        key = key_of(session, "q1", "The answer 1")
        first = session.decide("q1", key, "yes", after=0)
        with pytest.raises(StaleDecisionError, match="another decision was made"):
            session.decide("q1", key, "no", after=0)
        assert session.decide("q1", key, "no", after=first.versions[key]).decided[key] == "no"


@pytest.mark.parametrize("form", ["spans", "chunks", "supports"])
def test_labels_are_written_as_asked(workspace: Workspace, form: str) -> None:
    workspace.golden = workspace.golden.with_suffix(".json")
    workspace.golden.write_text('[{"id": "q1", "query": "é?"},\n {"id": "q2", "query": "x"}]\n', encoding="utf-8")
    with session_of(workspace, form=form) as session:
        session.decide("q1", key_of(session, "q1", "The answer 1"), "yes")
        session.save()
    entry, other = json.loads(text_of(workspace))
    assert other == {"id": "q2", "query": "x"}
    assert text_of(workspace).endswith('},\n {"id": "q2", "query": "x"}]\n')
    support = {"rel_path": "docs/d1.md", "heading_path": ["Topic 1", "Answers"], "snippets": ["The answer 1"]}
    wanted: dict[str, dict[str, Any]] = {
        "spans": {"expected_spans": [{"doc_id": "d1", "kind": "line", "start": 1, "end": 3}]},
        "chunks": {"expected_chunk_ids": ["c1a"]},
        "supports": {"gold_supports": [support]},
    }
    assert entry == {"id": "q1", "query": "é?", **wanted[form]}


def test_wrong_input_is_refused_in_one_line(workspace: Workspace, tmp_path: Path) -> None:
    with session_of(workspace) as session:
        key = key_of(session, "q1", "The answer 1")
        wrong: list[Callable[[], object]] = [
            lambda: session.decide("q1", key, "perhaps"),
            lambda: session.decide("q1", "nothing", "yes"),
            lambda: session.decide("q1", key, "yes", (5, 10**9)),
            lambda: session.view("q99"),
            lambda: session.set_query("q1", "  "),
            lambda: session.set_query("q1", "\ud800"),
            lambda: session.add_query("q1", "again"),
            lambda: session.set_rule("q1", "", is_wanted=True),
        ]
        for action in wrong:
            with pytest.raises(KbevalError):
                action()
        assert text_of(workspace) == BEFORE
    (tmp_path / "other").mkdir()
    with pytest.raises(KbevalError, match="it is a directory"):
        Labelling(workspace.db, tmp_path / "other", Chosen("ann"))
    with pytest.raises(KbevalError):
        LabelStore(tmp_path / "missing.db").__enter__()


# --- places and snippets -----------------------------------------------------------------------------------


def test_a_passage_has_its_place_by_every_kind_of_position() -> None:
    text = "első sor\nmásodik\nharmadik"
    at = text.index("második"), text.index("második") + len("második")
    size = len(text.encode())

    def place(span: dict[str, Any]) -> Any:
        return passage_spans(text, [span], *at)

    assert place({"kind": "line", "start": 5, "end": 7}) == [{"kind": "line", "start": 6, "end": 6}]
    code = {"kind": "code", "line_start": 5, "line_end": 7}
    assert place(code) == [{"kind": "code", "line_start": 6, "line_end": 6}]
    (char,) = place({"kind": "char", "start": 100, "end": 100 + len(text)})
    assert text[char["start"] - 100 : char["end"] - 100] == "második"
    (byte,) = place({"kind": "byte", "start": 50, "end": 50 + size})
    assert text.encode()[byte["start"] - 50 : byte["end"] - 50].decode() == "második"
    (page,) = place({"kind": "page", "page": 2, "char_start": 10, "char_end": 10 + len(text)})
    assert (page["page"], text[page["char_start"] - 10 : page["char_end"] - 10]) == (2, "második")
    # The text is not all of its place, or more: nothing is guessed.
    assert place({"kind": "line", "start": 5, "end": 9}) is None
    assert place({"kind": "char", "start": 0, "end": 3}) is None
    assert place({"kind": "page", "page": 1}) is None
    assert passage_spans(text, [{"kind": "line", "start": 1, "end": 1}] * 2, 0, 1) is None


def test_a_selection_with_its_line_end_does_not_reach_into_the_next_line() -> None:
    text = "one\ntwo\nthree"
    span = [{"kind": "line", "start": 1, "end": 3}]
    for start, end, wanted in (
        (0, 4, (1, 1)),
        (3, 7, (2, 2)),
        (0, 5, (1, 2)),
        (4, 8, (2, 2)),
        (8, 13, (3, 3)),
        (7, 9, (3, 3)),
    ):
        (found,) = passage_spans(text, span, start, end) or [{}]
        assert (found.get("start"), found.get("end")) == wanted, (start, end)


def test_the_proposed_snippet_is_the_shortest_that_no_other_text_has() -> None:
    source = random.Random(5)
    words = [f"w{n:03d}ord" for n in range(40)]
    for _ in range(50):
        texts = [" ".join(source.choices(words, k=30)) for _ in range(4)]
        found = proposed_snippet(texts[0], texts[1:])
        assert found in texts[0]
        parts = texts[0].split()
        shortest = min(
            (
                n
                for n in range(3, 31)
                for i in range(31 - n)
                if all(" ".join(parts[i : i + n]) not in t for t in texts[1:])
            ),
            default=None,
        )
        assert shortest == len(found.split())
    assert proposed_snippet("All of it", ["all of it is everywhere"]) == "All of it"
