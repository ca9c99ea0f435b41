"""What a report shows about one query: expected texts, citations, judges, refusals; and what it leaves out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kbeval
from kbeval.cli import run
from kbeval.report import evidence
from kbeval.report.expected_texts import Covering, text_at
from kbeval.report.facts import Place
from kbeval.report.texts import segments
from kbeval.storage.sqlite import SqliteSource
from kbeval.systems.anchors import read_folder
from kbeval.systems.writing import write_runs
from tests.report.reading import data_of, everything_in, hits_of
from tests.support.workspace import Workspace, answer, hits

FIXTURES = Path(__file__).parents[2] / "fixtures"
DOCUMENT = "One two three. Four five six. Seven äight nine. Ten eleven twelve."
LINES = ["# Title", "first line", "second line", "third line", "", "last line"]


def add_text(workspace: Workspace, chunk_id: str, doc_id: str, text: str, spans: Any, version: str = "md@1") -> None:
    workspace.add_chunk(chunk_id, doc_id, spans, version)
    workspace.execute("UPDATE chunks SET text = ? WHERE chunk_id = ?", (text, chunk_id))


def views_of(workspace: Workspace, *runs: str, options: tuple[str, ...] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    path = workspace.db.parent / "r.html"
    files = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    assert run(["report", *runs, *files, "-o", str(path), *options]) == 0
    data = data_of(path)
    return data, {view["id"]: view for view in data["queries"]}


def expected_in(data: dict[str, Any], view: dict[str, Any]) -> list[tuple[str, str | None, str | None]]:
    return [(what, None if number is None else data["texts"][number], note) for what, number, note in view["expected"]]


def test_the_text_at_an_expected_place_is_shown_wherever_a_stored_text_covers_it(workspace: Workspace) -> None:
    """Cut out of the document by hand, and compared with what the chunks and hits make of it."""
    workspace.add_document("doc", "doc.md")
    workspace.add_document("lines", "lines.md")
    whole = DOCUMENT.encode()
    for number, (start, end) in enumerate(((0, 14), (14, 47), (47, len(DOCUMENT)))):
        text = DOCUMENT[start:end]
        add_text(workspace, f"c{number}", "doc", text, [{"kind": "char", "start": start, "end": end}])
    start, end = whole.index(b"Seven"), whole.index(b" Ten")
    add_text(workspace, "b", "doc", whole[start:end].decode(), [{"kind": "byte", "start": start, "end": end}])
    add_text(workspace, "l1", "lines", "\n".join(LINES[:2]), [{"kind": "line", "start": 1, "end": 2}])
    add_text(workspace, "l2", "lines", "\n".join(LINES[2:4]), [{"kind": "line", "start": 3, "end": 4}])
    # A text that is not as long as its place says, so that no position in it can be trusted.
    add_text(workspace, "odd", "odd", "about this and that", [{"kind": "char", "start": 0, "end": 500}])
    # Nothing but the row of a hit has the text of this place.
    seen = {
        "rank": 1, "chunk_id": "h", "doc_id": "hit", "text": "0123456789",
        "source_spans": [{"kind": "char", "start": 100, "end": 110}],
    }  # fmt: skip

    def labelled(name: str, *spans: dict[str, Any]) -> dict[str, Any]:
        return {"id": name, "expected_spans": list(spans)}

    def char(doc: str, start: int, end: int) -> dict[str, Any]:
        return {"doc_id": doc, "kind": "char", "start": start, "end": end}

    umlaut = whole.index("äight".encode())
    workspace.add_golden(
        labelled("inside", char("doc", 4, 7)),
        labelled("across", char("doc", 8, 50)),
        labelled("beyond", char("doc", 60, 900)),
        labelled("nowhere", char("unknown", 0, 5)),
        labelled("odd", char("odd", 10, 20)),
        labelled("hit", char("hit", 102, 105)),
        labelled("byte", {"doc_id": "doc", "kind": "byte", "start": umlaut, "end": umlaut + 6}),
        labelled("line", {"path": "lines.md", "kind": "line", "start": 2, "end": 3}),
        labelled("gap", {"path": "lines.md", "kind": "line", "start": 4, "end": 6}),
        labelled("two", char("doc", 0, 3), char("doc", 15, 19)),
        {"id": "chunk", "expected_chunk_ids": ["c1"], "relevance": {"c1": 2}},
        {"id": "gone", "expected_chunk_ids": ["nothing"]},
    )
    rows: dict[str, Any] = {"hit": {"hits_top_k": [seen]}}
    for name in ("inside", "across", "beyond", "nowhere", "odd", "byte", "line", "gap", "two", "chunk", "gone"):
        rows[name] = {"hits_top_k": hits(None)}
    workspace.add_run("run", rows)
    data, views = views_of(workspace, "run")
    found = {name: expected_in(data, view) for name, view in views.items()}

    assert found["inside"] == [("place doc characters 4–7", DOCUMENT[4:7], "text of chunk c0")]
    assert found["across"][0][1] == DOCUMENT[8:50]
    assert found["across"][0][2] == "text of chunk c0 and 2 more"
    assert found["beyond"][0][1:] == (DOCUMENT[60:], "text of chunk c2; the rest of the place is not stored")
    assert found["nowhere"][0][1:] == (None, "no stored text covers this place")
    assert found["odd"][0][1] == "about this and that"
    assert "the exact words cannot be located" in (found["odd"][0][2] or "")
    assert found["hit"][0][1:] == ("234", "text of a hit")
    assert found["byte"][0][1] == "äight"
    assert found["line"] == [("place lines.md lines 2–3", "first line\nsecond line", "text of chunk l1 and 1 more")]
    assert found["gap"][0][1:] == ("third line", "text of chunk l2; the rest of the place is not stored")
    assert [text for _, text, _ in found["two"]] == ["One", "Four"]
    assert found["chunk"] == [("chunk c1, grade 2", DOCUMENT[14:47], None)]
    assert found["gone"] == [("chunk nothing", None, "its text is not stored")]
    # The same place, marked in the text of the hit.
    (hit,) = hits_of(data, views["hit"]["sides"][0])
    assert segments(data["texts"][hit["text"]], hit["marks"]) == [(False, "01"), (True, "234"), (False, "56789")]


def test_the_text_of_an_expected_chunk_that_is_gone_is_read_at_its_place(workspace: Workspace) -> None:
    """Scored with the old chunks, then re-chunked: the place of the expected chunk is kept, and others cover it."""
    workspace.add_document("doc", "doc.md")
    add_text(workspace, "old", "doc", DOCUMENT[15:47], [{"kind": "char", "start": 15, "end": 47}])
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    workspace.add_run("a", {"q": {"hits_top_k": hits("old", doc="doc")}})
    files = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    assert run(["score", "--all", *files]) == 0
    workspace.execute("DELETE FROM chunks")
    for name, start, end in (("n1", 0, 29), ("n2", 29, len(DOCUMENT))):
        add_text(workspace, name, "doc", DOCUMENT[start:end], [{"kind": "char", "start": start, "end": end}], "md@2")
    workspace.add_run("b", {"q": {"hits_top_k": hits("n1", doc="doc")}}, chunker="md@2", created_at="2026-01-02")
    data, views = views_of(workspace, "a", "b")
    assert expected_in(data, views["q"]) == [("chunk old", DOCUMENT[15:47], "text of chunk n1 and 1 more")]


@pytest.mark.parametrize(
    ("places", "covering", "text", "note"),
    [
        ([Place("char", 0, 4)], [], None, None),
        ([Place("char", 0, 4)], [Covering("line", 0, 4, "abcd", "x")], None, None),
        # A gap in the middle.
        (
            [Place("char", 0, 9)],
            [Covering("char", 0, 3, "abc", "x"), Covering("char", 6, 9, "ghi", "y")],
            "abc…ghi",
            "text of x and 1 more; the rest of the place is not stored",
        ),
        # The one that reaches farthest, and of two alike the chunk, not the hit.
        (
            [Place("char", 1, 4)],
            [
                Covering("char", 0, 2, "ab", "x"),
                Covering("char", 0, 5, "abcde", "a hit"),
                Covering("char", 0, 5, "abcde", "z"),
            ],
            "bcd",
            "text of z",
        ),
        ([Place("page 3", 0, 10)], [Covering("page 3", 0, 10, "all of it", "x")], "all of it", None),
    ],
)  # fmt: skip
def test_texts_are_put_together(
    places: list[Place], covering: list[Covering], text: str | None, note: str | None
) -> None:
    for order in itertools.permutations(covering):
        found = text_at(places, order)
        assert (None if found is None else found.text) == text
        assert note is None or (found is not None and found.note == note)


def test_references_of_the_anchor_labelled_system_are_citations(workspace: Workspace) -> None:
    write_runs(str(workspace.db), [read_folder(FIXTURES / "anchors" / "2026-03-05-hybrid")])
    golden = FIXTURES / "anchors" / "golden.yaml"
    path = workspace.db.parent / "r.html"
    kbeval.write_report(path, "latest", db=workspace.db, golden=golden)
    data = data_of(path)
    views = {view["id"]: view for view in data["queries"]}
    first, second, refused = (views[name]["sides"][0] for name in ("a001", "a002", "a003"))
    cited = ["help/billing/plans.md › Plans and prices", "ok", "an expected support", 2]
    assert second["answer"]["citations"] == [cited]
    assert first["answer"]["citations"][0][3] == 1
    # What its own judge said, with the claims; and its own scores and times.
    groundedness, correctness = first["answer"]["judged"]
    assert (groundedness["rubric"], groundedness["score"], groundedness["claims"]) == (
        "groundedness", "5", [[True, "fifteen minutes"]],
    )  # fmt: skip
    assert groundedness["by"] == "judged by judge-1, as stored in the row"
    assert correctness["reasoning"] == "right"
    assert first["took"] == "2,455 ms"
    assert hits_of(data, first)[0]["score"] == "0.6 (vector 0.7, lexical 0.2)"
    assert refused["answer"]["refused"]
    assert refused["answer"]["pieces"] == []
    assert "hits are matched by path, headings and words" in path.read_text()
    # The words of the support are marked.
    hit = next(one for one in hits_of(data, second) if one["rank"] == 2)
    assert [piece for is_marked, piece in segments(data["texts"][hit["text"]], hit["marks"]) if is_marked] == [
        "nine euros"
    ]


def test_what_was_not_checked_is_not_called_wrong(workspace: Workspace) -> None:
    workspace.add_document("d1", "d1.md")
    add_text(workspace, "c1", "d1", "text", [{"kind": "line", "start": 1, "end": 9}])
    workspace.add_golden(
        *({"id": name, "expected_chunk_ids": ["c1"]} for name in ("real", "wrong", "open", "silent", "scored"))
    )
    good, bad = ({"kind": "line", "path": "d1.md", "start": line, "end": line} for line in (2, 50))
    found = {"hits_top_k": hits("c1")}
    rows: dict[str, Any] = {
        "real": {**found, "answer": answer("yes", good)},
        "wrong": {**found, "answer": answer("yes", bad)},
        # The row does not say that the answer is grounded, so its citations are not checked.
        "open": {**found, "answer": answer("yes", bad, grounded=None)},
        # Refused, and no answer.
        "silent": {**found, "abstained": True, "abstain_reason": "nothing found"},
        "scored": {**found, "answer": answer("yes"), "scores": {"own.tone": 4, "own.none": None}},
    }  # fmt: skip
    workspace.add_run("run", rows)
    _, views = views_of(workspace, "run")
    answers = {name: view["sides"][0]["answer"] for name, view in views.items()}
    assert {name: [one[1:3] for one in answers[name]["citations"]] for name in ("real", "wrong", "open")} == {
        "real": [["ok", "a known chunk"]],
        "wrong": [["bad", "does not lead to a known chunk"]],
        "open": [["", "not checked, because the answer is not marked as grounded"]],
    }
    assert (answers["silent"]["refused"], answers["silent"]["reason"]) == (True, "nothing found")
    assert [(one["rubric"], one["score"], one["by"]) for one in answers["scored"]["judged"]] == [
        ("own.none", None, "came with the row"),
        ("own.tone", "4", "came with the row"),
    ]
    workspace.execute("DELETE FROM chunks")
    _, views = views_of(workspace, "run")
    assert views["wrong"]["sides"][0]["answer"]["citations"][0][1:3] == [
        "", "not checked, because no chunks are known",
    ]  # fmt: skip


def test_batches_and_the_order_of_rows_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in batches of three or all at once, stored in this order or the other: the same page."""
    asked: list[int] = []
    read = SqliteSource.result_rows

    def counted(source: SqliteSource, run_id: str, query_ids: Sequence[str]) -> list[tuple[str, str]]:
        asked.append(len(query_ids))
        return read(source, run_id, query_ids)

    monkeypatch.setattr(SqliteSource, "result_rows", counted)
    names = [f"q{number}" for number in range(10)]
    golden = [{"id": name, "expected_chunk_ids": [f"c{place % 4}"]} for place, name in enumerate(names)]
    pages = []
    for folder, order, size in (("one", names, 500), ("other", names[::-1], 500), ("batches", names, 3)):
        (tmp_path / folder).mkdir()
        workspace = Workspace(tmp_path / folder)
        workspace.add_golden(*golden)
        for run_id, shift in (("a", 0), ("b", 1)):
            rows = {
                name: {
                    "hits_top_k": [
                        {**hit, "text": f"text of {hit['chunk_id']}"}
                        for hit in hits(*(f"c{(int(name[1:]) * 3 + shift + place) % 7}" for place in range(4)))
                    ],
                    "answer": answer(f"answer {int(name[1:]) % 3} of {run_id}"),
                }
                for name in order
            }
            workspace.add_run(run_id, rows, created_at=f"2026-01-0{shift + 1}")
        monkeypatch.setattr(evidence, "BATCH", size)
        asked.clear()
        data, _ = views_of(workspace, "a", "b")
        pages.append((data, (tmp_path / folder / "r.html").read_text()))
    (first, page), (_, other_page), (batched, batched_page) = pages
    # Never more rows at once than a batch has.
    assert max(asked) == 3
    assert page == other_page
    assert batched == first
    # Expected texts of a chunk that only a hit of a query in another batch has.
    assert all(note is None for view in first["queries"] for _, _, note in view["expected"])
    # Without the script too, as far as the first batch goes.
    assert batched_page.count('<li class="q"') == 3


# --- what is left out ------------------------------------------------------------------------------


class Planted:
    """Texts that must not be in a page, each different from all others."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, what: str) -> str:
        self.texts.append(f"planted {what} {len(self.texts)}x")
        return self.texts[-1]


def plant(workspace: Workspace) -> Planted:
    """Every field of golden file, rows, chunks and configuration that holds text holds a text of its own."""
    text = Planted()
    workspace.add_document("d1", "d1.md")
    add_text(workspace, "c1", "d1", text("chunk"), [{"kind": "line", "start": 1, "end": 3}])
    workspace.execute(
        "UPDATE chunks SET heading_path_json = ?, section_label = ?", (json.dumps([text("heading")]), text("section"))
    )
    shared = text("word")
    support = {"rel_path": "p.md", "heading_path": f"# {text('support heading')}", "snippets": [text("snippet")]}
    workspace.add_golden(
        {
            "id": "q1", "query": text("question"), "expected_chunk_ids": ["c1"], "expected_doc_ids": ["d1"],
            "must_contain": [text("rule"), shared], "forbidden": [text("forbidden")],
            "expected_key_facts": [text("fact")], "gold_claim_substr": [text("claim")], "category": "kept",
            "recency_conflict_rule": text("recency"), "notes": text("note"), "own": {"deep": [text("deep")]},
        },
        {"id": "q2", "query": text("question"), "gold_supports": [support]},
        {
            "id": "q3", "query": text("question"),
            "expected_spans": [{"doc_id": "d1", "kind": "line", "start": 2, "end": 2, "why": text("span")}],
        },
        {"id": "q4", "query": text("question"), "expected_chunk_ids": ["c1"]},
    )  # fmt: skip

    def hit(rank: int, **more: Any) -> dict[str, Any]:
        return {
            "rank": rank, "chunk_id": f"h{rank}", "doc_id": "d1", "doc_path": "d1.md",
            "heading_path": [text("heading")],
            "text": f"{text('hit')}\n{text('hit')}", "snippet": text("snippet"), "note": text("hit note"), **more,
        }  # fmt: skip

    def row(**more: Any) -> dict[str, Any]:
        return {
            "query": text("stored question"), "notes": text("row note"), "debug": {"prompt": text("prompt")},
            "answer": {
                "answer": f"{text('answer')} {shared}", "grounded": True, "refusal_reason": text("refusal"),
                "citations": [
                    {"marker": text("marker"), "chunk_id": "c1"}, text("citation"), {"quote": text("quote")},
                    {"citation": {"path": "d1.md", "kind": "caption", "text": text("caption")}},
                ],
            },
            "groundedness": {
                "score": 3, "reasoning": text("reasoning"), "supported_claims": [text("supported")],
                "unsupported_claims": [text("unsupported"), {"claim": text("object")}],
            },
            "correctness": {"score": 2, "reasoning": text("reasoning")},
            "references": [{"rel_path": "p.md", "heading_path": f"# {text('reference')}", "quote": text("quote")}],
            "hits_top_k": [
                hit(1, source_spans=[{"kind": "line", "start": 1, "end": 3, "text": text("span")}]),
                hit(2, source_spans=[{"kind": "caption", "text": text("caption")}]),
                hit(3, source_spans=[{"kind": "strange", "start": text("start"), "end": text("end")}]),
                hit(4, rel_path="p.md", heading_path=f"# {text('heading')}"),
            ],
            **more,
        }  # fmt: skip

    for number, run_id in enumerate(("a", "b"), start=1):
        rows: dict[str, Any] = {
            "q1": row(), "q2": row(abstained=True, abstain_reason=text("reason")), "q3": row(),
            "q4": {"error": text("error"), "query": text("stored question"), "hits_top_k": []},
            "unknown": row(),
        }  # fmt: skip
        workspace.add_run(run_id, rows, created_at=f"2026-01-0{number}")
        config = {
            "chunker_version": "md@1", "k": number,
            "llm": {"model_id": f"small-{number}", "system_prompt": text("prompt")},
            "description": text("description"), "list": [text("item")], "judge_model": text("judge with spaces"),
            "prompt_template_version": text("version with spaces"), "notes": {"why": text("why")},
        }  # fmt: skip
        workspace.execute(
            "UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = ?", (json.dumps(config), run_id)
        )
    return text


def test_redacted_pages_hold_no_text_of_the_database(workspace: Workspace) -> None:
    planted = plant(workspace)
    files = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    assert run(["score", "--all", *files]) == 0
    path = workspace.db.parent / "r.html"
    commands = (["a", "b", "--ignore-invariants"], ["b"], ["--history", "mrr"])
    for arguments in commands:
        assert run(["report", *arguments, *files, "-o", str(path), "--redact"]) == 0
        everything = everything_in(path)
        assert [text for text in planted.texts if text in everything] == [], arguments
        # Structure stays: ids, documents, categories, models, numbers.
        assert "left out" in everything
        if "--history" not in arguments:
            for kept in ("small-2", "d1.md", "characters left out"):
                assert kept in everything, (arguments, kept)
    # The same search finds them where they are not left out, so it is able to.
    found: set[str] = set()
    for arguments in commands:
        assert run(["report", *arguments, *files, "-o", str(path)]) == 0
        everything = everything_in(path)
        found |= {text for text in planted.texts if text in everything}
    kinds = {" ".join(text.split()[1:-1]) for text in found}
    assert kinds >= {
        "question", "answer", "hit", "heading", "snippet", "rule", "forbidden", "fact", "claim", "reasoning",
        "supported", "unsupported", "marker", "citation", "caption", "error", "description", "prompt", "refusal",
        "support heading", "reference", "why",
    }  # fmt: skip


# --- from Python -----------------------------------------------------------------------------------


def test_a_program_writes_what_the_command_writes(own_demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own_demo)
    workspace = kbeval.open_workspace(".")
    for runs, history in ((("latest~1", "latest"), ()), (("latest",), ()), ((), ("mrr", "hit@5"))):
        assert run(["report", *(["--history"] if history else []), *runs, *history, "-o", "c.html"]) == 0
        for written in (
            kbeval.write_report("p.html", *runs, history=history, db="kb.db", golden="golden.yaml"),
            workspace.report("p.html", *runs, history=history),
        ):
            assert written == Path("p.html")
            assert written.read_bytes() == Path("c.html").read_bytes(), (runs, history)
    kbeval.write_report("r.html", "latest", db="kb.db", golden="golden.yaml", redact=True)
    assert "characters left out" in everything_in(Path("r.html"))
    before = Path("kb.db").read_bytes()
    wrong: list[tuple[str, tuple[str, ...], dict[str, Any], str]] = [
        ("x.html", (), {"golden": "golden.yaml"}, "name one run"),
        ("x.html", ("a", "b", "c"), {"golden": "golden.yaml"}, "name one run"),
        ("x.html", ("latest",), {}, "no golden file"),
        ("x.html", ("latest",), {"history": ["mrr"]}, "omit latest"),
        ("x.html", ("missing",), {"golden": "golden.yaml"}, "missing"),
        ("kb.db", ("latest",), {"golden": "golden.yaml"}, "kb.db"),
    ]
    for path, named, more, said in wrong:
        with pytest.raises(kbeval.KbevalError, match=said):
            kbeval.write_report(path, *named, db="kb.db", **more)
    assert not Path("x.html").exists()
    assert Path("kb.db").read_bytes() == before
