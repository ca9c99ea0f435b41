"""`kbeval show RUN --query Q`: which hits counted, by which label, and which rule the answer broke."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbeval.cli import run
from tests.support.workspace import Workspace, answer, hits


def lines(start: int, end: int) -> list[dict[str, Any]]:
    return [{"kind": "line", "start": start, "end": end}]


def shown(workspace: Workspace, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    capsys.readouterr()
    command = ["show", "run", "--query", "q", "--db", str(workspace.db), "--golden", str(workspace.golden), *more]
    assert run(command) == 0
    return capsys.readouterr().out


def found(workspace: Workspace, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(shown(workspace, capsys, "--format", "json", *more))
    return read


def labels(detail: dict[str, Any]) -> list[list[tuple[Any, ...]]]:
    return [[tuple(label.values()) for label in hit["labels"]] for hit in detail["hits"]]


def test_a_hit_by_its_id_names_the_chunk_and_the_document(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c2", "c3"], "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c1", "c2", None)}})
    assert labels(found(workspace, capsys)) == [
        [("document", "d1", True, None, None, None)],
        [("chunk", "c2", True, None, None, None)],
        [],
    ]
    assert "chunk c2" in shown(workspace, capsys)


def test_a_hit_by_its_place_says_how_much_it_shares(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    """The label is lines 1 to 10. The first hit has 8 of its own 8 lines in it, the second 2 of its 20."""
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    workspace.add_document("d1", "d.md")
    workspace.add_chunk("old", "d1", lines(1, 10), "md@0")
    found_hits = hits("n1", "n2", "n3")
    for hit, (start, end) in zip(found_hits, [(1, 8), (9, 28), (50, 60)], strict=True):
        hit["source_spans"] = lines(start, end)
    workspace.add_run("run", {"q": {"hits_top_k": found_hits}})
    detail = found(workspace, capsys, "--match", "span")
    assert labels(detail) == [
        [("chunk", "old", True, 8.0, 8.0, 10.0)],
        [("chunk", "old", False, 2.0, 20.0, 10.0)],
        [],
    ]
    assert detail["hits"][0]["spans"] == lines(1, 8)
    text = shown(workspace, capsys, "--match", "span")
    assert "chunk old (0.80 of it, 1.00 of the hit)" in text
    assert "not chunk old (0.20 of it, 0.10 of the hit)" in text
    assert "lines 50–60" in text


def test_a_span_of_the_golden_file_is_named_by_its_number(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    spans = [{"doc_id": "d1", **lines(90, 99)[0]}, {"doc_id": "d1", **lines(1, 4)[0]}]
    workspace.add_golden({"id": "q", "expected_spans": spans})
    (hit,) = hits("c1")
    workspace.add_run("run", {"q": {"hits_top_k": [{**hit, "source_spans": lines(1, 4)}]}})
    assert labels(found(workspace, capsys)) == [[("span", "span 2", True, 4.0, 4.0, 4.0)]]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"text": "of the row", "snippet": "short"}, "of the row"),
        ({"snippet": "short"}, "short"),
        ({}, "of this version"),
        ({"chunker_version": "md@0"}, "of another"),
        ({"chunker_version": "md@9"}, None),
        ({"text": 7}, "of this version"),
    ],
)
def test_the_text_of_a_hit_is_the_rows_or_its_chunks(
    workspace: Workspace, said: dict[str, Any], expected: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.execute_script(
        "DROP TABLE chunks; CREATE TABLE chunks (chunk_id, doc_id, source_spans_json, text, chunker_version)"
    )
    for version, text in [("md@0", "of another"), ("md@1", "of this version")]:
        values = ("c1", "d1", json.dumps(lines(3, 4)), text, version)
        workspace.execute("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", values)
    workspace.add_golden({"id": "q"})
    workspace.add_run("run", {"q": {"hits_top_k": [{**hits("c1")[0], **said}]}})
    (hit,) = found(workspace, capsys)["hits"]
    assert hit["text"] == expected
    assert hit["spans"] == (lines(3, 4) if expected is not None else [])


def test_a_table_of_chunks_without_texts_will_do(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.execute_script(
        "DROP TABLE chunks; CREATE TABLE chunks (chunk_id, doc_id, source_spans_json, chunker_version);"
        "INSERT INTO chunks VALUES ('c1', 'd1', '[]', 'md@1')"
    )
    workspace.add_golden({"id": "q"})
    citation = {"kind": "page", "page": 3, "char_start": None, "char_end": None}
    workspace.add_run("run", {"q": {"hits_top_k": [{**hits("c1")[0], "citation": citation}]}})
    (hit,) = found(workspace, capsys)["hits"]
    assert (hit["text"], hit["spans"]) == (None, [citation])
    assert "page 3" in shown(workspace, capsys)
    workspace.execute_script("DROP TABLE chunks")
    assert found(workspace, capsys)["hits"][0]["text"] is None


def test_texts_take_one_line_and_do_nothing_to_a_terminal(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "first line\n\x1b[31mred\u202e " + "and more " * 40
    workspace.add_golden({"id": "q"})
    workspace.add_run("run", {"q": {"hits_top_k": [{**hits("c1")[0], "text": text}]}})
    out = shown(workspace, capsys)
    (line,) = [line for line in out.splitlines() if "first line" in line]
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert line.endswith("…")
    assert found(workspace, capsys)["hits"][0]["text"] == text


def test_the_rule_that_was_broken_is_quoted(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.add_golden({"id": "q", "must_contain": ["thirty", "days"], "forbidden": ["never", "always"]})
    workspace.add_run("run", {"q": {"hits_top_k": [], "answer": answer("always within thirty minutes")}})
    assert found(workspace, capsys)["rules"] == [
        {"rule": "must_contain", "text": "days", "is_kept": False},
        {"rule": "must_contain", "text": "thirty", "is_kept": True},
        {"rule": "forbidden", "text": "always", "is_kept": False},
        {"rule": "forbidden", "text": "never", "is_kept": True},
    ]
    broken = [line.split(maxsplit=2)[2] for line in shown(workspace, capsys).splitlines() if "broken rule" in line]
    assert broken == ["the answer does not contain 'days' (must_contain)", "the answer contains 'always' (forbidden)"]


def test_without_an_answer_no_rule_is_broken(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.add_golden({"id": "q", "must_contain": ["thirty"]})
    workspace.add_run("run", {"q": {"hits_top_k": [], "answer": None}})
    assert found(workspace, capsys)["rules"] == []


def test_a_support_is_named_as_the_golden_file_does(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    supports = [{"rel_path": "other.md"}, {"rel_path": "a.md", "heading_path": ["Top", "Below"], "snippets": []}]
    workspace.add_golden({"id": "q", "gold_supports": supports})
    hit = {"rank": 1, "chunk_id": "c1", "rel_path": "a.md", "heading_path": ["Top", "Below"], "text": "words"}
    workspace.add_run("run", {"q": {"hits_top_k": [hit]}})
    workspace.execute("UPDATE eval_runs SET config_snapshot_json = ?", ('{"kbeval": {"system": "anchors"}}',))
    ((label,),) = labels(found(workspace, capsys))
    assert label[:3] == ("support", "support 1", True)
    assert "support a.md > Top > Below" in shown(workspace, capsys)


def test_labels_are_shown_as_people_write_them(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.add_golden(
        {
            "id": "q",
            "expected_chunk_ids": ["c1", "c2"],
            "expected_spans": [
                {"doc_id": "d", "kind": "line", "start": 46, "end": 48},
                {"path": "b.pdf", "kind": "page", "page": 3},
            ],
            "gold_supports": [{"rel_path": "a.md", "heading_path": "# Top", "snippets": ["15 minutes", "a quarter"]}],
        }
    )
    workspace.add_run("run", {"q": {"hits_top_k": hits("c1")}})
    out = shown(workspace, capsys)
    assert "c1, c2" in out
    assert "d lines 46–48; b.pdf page 3" in out
    # The words that a text must contain explain why a chunk under the right heading does not count.
    assert "a.md > # Top, with '15 minutes' or 'a quarter'" in out
