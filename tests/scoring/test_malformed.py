"""Malformed positions are ignored and counted, in citations and in source_spans."""

from __future__ import annotations

from typing import Any

import pytest

from kbeval.cli import run as kbeval
from tests.support.workspace import Workspace, answer, hits

MALFORMED: dict[str, dict[str, Any]] = {
    "reversed": {"kind": "line", "start": 9, "end": 1},
    "no end": {"kind": "line", "start": 1},
    "no start": {"kind": "byte", "end": 9},
    "nothing": {"kind": "line"},
    "text": {"kind": "line", "start": "one", "end": "nine"},
    "unknown kind": {"kind": "lines", "start": 1, "end": 9},
    "kind that is no text": {"kind": 5, "start": 1, "end": 9},
    "no kind": {"start": 1, "end": 9},
    "empty": {"kind": "byte", "start": 5, "end": 5},
    "too large": {"kind": "line", "start": 1, "end": 1e300 * 10**8},
    "lists": {"kind": "line", "start": [1], "end": [9]},
    "reversed time": {"kind": "time", "start_ms": 9, "end_ms": 1},
    "reversed code": {"kind": "code", "line_start": 9, "line_end": 1},
    "flat region": {"kind": "region", "x": 0, "y": 0, "w": 0, "h": 5},
    "page without a number": {"kind": "page"},
    "page and a half": {"kind": "page", "page": 1.5},
    "page 0": {"kind": "page", "page": 0},
    "page that is true": {"kind": "page", "page": True},
    "page with one end": {"kind": "page", "page": 1, "char_start": 3},
    "page to a text": {"kind": "page", "page": 1, "char_start": "x", "char_end": "y"},
    "truth values": {"kind": "line", "start": True, "end": True},
    "a truth value as its end": {"kind": "line", "start": 1, "end": True},
    "quoted numbers": {"kind": "line", "start": "1", "end": "9"},
    "numbers spelt in escapes": {"kind": "line", "start": 1, "end": "\t9"},
    "an infinite text": {"kind": "byte", "start": 0, "end": "inf"},
    "page from a list": {"kind": "page", "page": 1, "char_start": [0], "char_end": [9]},
    "half lines": {"kind": "line", "start": 1.5, "end": 2.5},
    "half a line at its end": {"kind": "code", "line_start": 1, "line_end": 8.5},
    "half bytes": {"kind": "byte", "start": 0.5, "end": 9},
    "line 0": {"kind": "line", "start": 0, "end": 9},
    "before the first byte": {"kind": "char", "start": -1, "end": 9},
    "before the first second": {"kind": "time", "start_ms": -1, "end_ms": 9},
    "area of texts": {"kind": "region", "x": "0", "y": "0", "w": "5", "h": "5"},
    "reversed page": {"kind": "page", "page": 1, "char_start": 9, "char_end": 1},
}


@pytest.fixture
def known(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """One document with one chunk, lines 1 to 9."""
    monkeypatch.setenv("KBEVAL_DB", str(workspace.db))
    monkeypatch.setenv("KBEVAL_GOLDEN", str(workspace.golden))
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_document("d1", "d1.md")
    workspace.add_chunk("c", "d1", [{"kind": "line", "start": 1, "end": 9}])
    return workspace


def cited(workspace: Workspace, *citations: dict[str, Any]) -> dict[str, Any]:
    text = answer("yes", *({"path": "d1.md", **citation} for citation in citations))
    workspace.add_run("run", {"q": {"hits_top_k": hits("c"), "answer": text}})
    return workspace.aggregate()


FORMS = {f"run{number}": form for number, form in enumerate(MALFORMED) if form != "too large"}


def test_each_malformed_citation_resolves_to_nothing_and_is_counted(
    known: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run for each form, all scored and checked at once."""
    monkeypatch.setattr("kbeval.explore.check._EXAMPLES", 100)
    for run_id, form in FORMS.items():
        text = answer("yes", {"path": "d1.md", **MALFORMED[form]})
        known.add_run(run_id, {"q": {"hits_top_k": hits("c"), "answer": text}})
    scored = known.score().aggregates
    assert kbeval(["check"]) == 1
    out = capsys.readouterr().out
    assert "[malformed-citation]" in out
    for run_id, form in FORMS.items():
        found = scored[run_id].to_dict()
        assert found["citation_coverage"] == 0.0, form
        assert found["ledger"]["malformed_citations"] == 1, form
        assert f"{run_id} q: citation 1" in out, form


def test_a_citation_with_a_path_alone_resolves_by_its_document(known: Workspace) -> None:
    paths: list[dict[str, Any]] = [
        {},
        {"kind": None},
        {"kind": "caption"},
        {"section": "A"},
        {"kind": "caption", "start": 3},
    ]
    for number, citation in enumerate(paths):
        both = ({"path": "d1.md", **place} for place in (citation, {"kind": "line", "start": 9, "end": 20}))
        known.add_run(f"run{number}", {"q": {"hits_top_k": hits("c"), "answer": answer("yes", *both)}})
    scored = known.score().aggregates
    for number, citation in enumerate(paths):
        found = scored[f"run{number}"].to_dict()
        assert found["citation_coverage"] == 1.0, citation
        assert "malformed_citations" not in found["ledger"], citation


def test_a_citation_that_names_a_chunk_needs_no_place(known: Workspace) -> None:
    found = cited(known, {"chunk_id": "c", "kind": "line", "start": 9, "end": 1})
    assert found["citation_coverage"] == 1.0
    assert "malformed_citations" not in found["ledger"]


def test_a_citation_that_names_nothing_is_malformed(known: Workspace) -> None:
    text = {
        "answer": "yes",
        "grounded": True,
        "citations": [{"marker": "[#1]"}, {"citation": "d1.md"}, {"citation": []}],
    }
    known.add_run("run", {"q": {"hits_top_k": hits("c"), "answer": text}})
    found = known.aggregate()
    assert found["citation_coverage"] == 0.0
    assert found["ledger"]["malformed_citations"] == 3


def test_malformed_spans_of_hits_say_nothing_and_are_counted(
    known: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbeval.explore.check._EXAMPLES", 100)
    known.add_golden({"id": "q", "expected_spans": [{"path": "d1.md", "kind": "line", "start": 1, "end": 9}]})
    for run_id, form in FORMS.items():
        hit = {"rank": 1, "chunk_id": "x", "doc_id": "d1", "source_spans": [MALFORMED[form]]}
        good = {"rank": 2, "chunk_id": "y", "doc_id": "d1", "source_spans": [{"kind": "line", "start": 1, "end": 9}]}
        known.add_run(run_id, {"q": {"hits_top_k": [hit, good]}})
    scored = known.score(match="span").aggregates
    assert kbeval(["check", *FORMS]) == 1
    out = capsys.readouterr().out
    assert "[malformed-span]" in out
    assert "hit 2" not in out
    for run_id, form in FORMS.items():
        # The position of the first one is unknown, so the document decides.
        assert scored[run_id].to_dict()["ledger"]["matched"] == {"span": 0, "doc": 1}, form
        assert f"{run_id} q: hit 1" in out, form


def test_hits_without_spans_are_not_a_finding(known: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    spans: tuple[Any, ...] = (None, [], [{"kind": "caption"}])
    for number, place in enumerate(spans):
        known.add_run(f"run{number}", {"q": {"hits_top_k": [{**hits("c")[0], "source_spans": place}]}})
    assert kbeval(["check"]) == 0
    assert "malformed" not in capsys.readouterr().out
