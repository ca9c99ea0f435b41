"""What a report holds, against what other commands say about the same runs; and how it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run
from kbeval.compare.run import compare_runs
from kbeval.report.differences import MOST_WORDS, ONLY_HERE, SAME, word_differences
from kbeval.report.marks import Shared, common_lines, found_words, marked_ranges
from kbeval.report.texts import Texts, link, segments
from kbeval.util.text import readable
from tests.bench.reports import make_texts
from tests.report.hostile import EVERY, LONG
from tests.report.reading import data_of, hits_of
from tests.support.workspace import Workspace, answer, hits


@pytest.fixture
def in_demo(own_demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(own_demo)
    return own_demo


def test_two_runs_say_what_compare_and_show_say(in_demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "latest~1", "latest", "-o", "r.html"]) == 0
    data = data_of(Path("r.html"))
    report = compare_runs("latest~1", "latest", db="kb.db", golden="golden.yaml")
    assert {view["id"]: view["ranks"] for view in data["queries"]} == {
        one.query_id: [one.a_hit_rank, one.b_hit_rank] for one in report.per_query
    }
    text = Path("r.html").read_text()
    assert "No detectable difference: too few groups changed to tell" in text
    for row in report.whole.rows():
        if row.significance is not None and row.significance.low is not None:
            assert f"{row.significance.low:+.4f}".replace("-", "−") in text
    # One query in full, as `kbeval show` has it: matched by spans, so that both say how much is shared.
    view = next(one for one in data["queries"] if one["id"] == "g014")
    capsys.readouterr()
    assert run(["show", "latest", "--query", "g014", "--match", "span", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    mine = hits_of(data, view["sides"][1])
    assert [(hit["rank"], hit["chunk"]) for hit in mine] == [(hit["rank"], hit["chunk_id"]) for hit in shown["hits"]]
    assert [hit["rank"] for hit in mine if hit["counts"] == 2] == [
        hit["rank"]
        for hit in shown["hits"]
        if any(one["counts"] and one["kind"] != "document" for one in hit["labels"])
    ]
    assert any("counts as chunk l1-d4-03 (0.75 of it, 0.50 of the hit)" in hit["labels"] for hit in mine)
    # The row has the beginning of the text; the table has all of it, and what is expected is marked there.
    (hit,) = [hit for hit in mine if hit["counts"] == 2]
    whole = data["texts"][hit["text"]]
    marked = [piece for is_marked, piece in segments(whole, hit["marks"]) if is_marked]
    first = "A failed payment is tried again after three, five and seven days."
    second = "After the third failure the workspace becomes read-only until it is paid."
    assert marked == [f"{first}\n{second}"]
    answer = view["sides"][0]["answer"]
    assert any(kind == ONLY_HERE for kind, _ in answer["pieces"])
    assert view["sides"][1]["answer"]["rules"] == [["must contain", "three, five and seven", False]]


def test_the_same_runs_give_the_same_bytes(in_demo: Path) -> None:
    for arguments in (["latest~1", "latest"], ["latest"], ["--history", "mrr", "latency_ms.p95"]):
        pages = []
        for threads in ("1", "2"):
            assert run(["report", *arguments, "-o", "r.html", "--threads", threads]) == 0
            pages.append(Path("r.html").read_bytes())
        assert pages[0] == pages[1], arguments


def test_default_output_paths(in_demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "latest~1", "latest"]) == 0
    assert "runs/2026-03-04-rechunked/report.html" in capsys.readouterr().err
    assert Path("runs/2026-03-04-rechunked/report.html").read_text().startswith("<!DOCTYPE html>")
    assert run(["report", "latest~1"]) == 0
    assert Path("runs/2026-03-03-bm25/report.html").is_file()
    assert run(["report", "--history", "mrr"]) == 0
    assert Path("runs/history.html").is_file()
    assert run(["compare", "latest~1", "latest", "--report", "own.html"]) == 0
    assert Path("own.html").read_bytes() == Path("runs/2026-03-04-rechunked/report.html").read_bytes()
    before = {name: Path(name).read_bytes() for name in ("kb.db", "golden.yaml", "kbeval.toml")}
    for name in (*before, "kb.db-wal", "kb.db-journal", "kb.db.kbeval-cache/x", "runs", "/nowhere/\0"):
        assert run(["report", "latest", "-o", name]) == 2, name
    assert {name: Path(name).read_bytes() for name in before} == before


def test_a_thousand_queries_take_about_a_megabyte(tmp_path: Path) -> None:
    make_texts(tmp_path, 1_000)
    files = ["--db", str(tmp_path / "kb.db"), "--golden", str(tmp_path / "golden.json")]
    assert run(["report", "a", "b", *files, "-o", "r.html"]) == 0
    assert Path("r.html").stat().st_size < 1_100_000
    data = data_of(Path("r.html"))
    assert len(data["queries"]) == 1_000
    assert all(len(hits_of(data, side)) == 10 for view in data["queries"] for side in view["sides"])
    # Each text once, and all of it.
    assert len(set(data["texts"])) == len(data["texts"])
    assert sum(len(text) == 500 for text in data["texts"]) > 1_990
    text = Path("r.html").read_text()
    assert re.search(r"Without JavaScript this page shows \d+ of 1,000 queries in full, and lists 500", text)


def test_it_is_opened_in_the_browser_of_the_system(in_demo: Path) -> None:
    browser = in_demo / "browser"
    browser.write_text('#!/bin/sh\nprintf %s "$1" > opened\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "kbeval", "report", "latest", "-o", "a b.html", "--open"]
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    assert Path("opened").read_text() == (in_demo / "a b.html").as_uri()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name one run, two runs to compare"),
        (["a", "b", "c"], "name one run, two runs to compare"),
        (["--history"], "name a metric after --history"),
        (["--history", "mmr"], "did you mean"),
        (["nothing"], "nothing"),
        (["latest", "--db", "missing.db"], "missing.db"),
        (["latest", "--golden", "missing.yaml"], "missing.yaml"),
        (["latest", "--match", "no"], "--match"),
    ],
)
def test_invalid_requests_are_one_line_errors(
    made_demo: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = [] if "--db" in arguments else ["--db", str(made_demo / "kb.db")]
    inside += [] if "--golden" in arguments else ["--golden", str(made_demo / "golden.yaml")]
    assert run(["report", *arguments, *inside, "-o", "r.html"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert not Path("r.html").exists()


def test_runs_with_little_in_them(workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No rows, no hits, no answers, labels of every kind, a row that cannot be read."""
    workspace.add_golden(
        {"id": "chunk", "expected_chunk_ids": ["c1"]},
        {"id": "doc", "expected_doc_ids": ["d1"]},
        {"id": "span", "expected_spans": [{"doc_id": "d1", "kind": "char", "start": 2, "end": 6}]},
        {"id": "refuse", "expected_doc_ids": []},
        {"id": "none"},
        {"id": "not asked", "expected_chunk_ids": ["c9"]},
    )
    placed = {
        "rank": 3, "chunk_id": "c1", "doc_id": "d1", "text": "äbcdefgh",
        "source_spans": [{"kind": "char", "start": 0, "end": 8}],
    }  # fmt: skip
    rows: dict[str, Any] = {
        "chunk": {"hits_top_k": hits(*(None for _ in range(14)), "c1")},
        "doc": {"hits_top_k": hits("x")},
        "span": {"hits_top_k": [placed]},
        "refuse": {"hits_top_k": [], "answer": answer("", grounded=False)},
        "none": {"error": "timeout"},
        "unknown": {"hits_top_k": [{"chunk_id": "c"}]},
    }
    workspace.add_run("empty", {})
    workspace.add_run("some", rows, created_at="2026-01-02")
    files = ["--db", str(workspace.db), "--golden", str(workspace.golden), "-o", "r.html"]
    assert run(["report", "empty", *files]) == 0
    assert run(["report", "empty", "some", *files]) == 0
    assert run(["report", "some", *files]) == 0
    data = data_of(Path("r.html"))
    views = {view["id"]: view for view in data["queries"]}
    kinds = {"chunk": "hit", "doc": "hit", "span": "hit", "refuse": "nothing expected", "none": "failed"}
    assert {name: views[name]["kind"] for name in kinds} == kinds
    assert views["unknown"]["facts"] == [["labels", "not in the golden file: it counts only in totals"]]
    # The first ten hits, and the one that counts.
    side = views["chunk"]["sides"][0]
    assert [hit["rank"] for hit in hits_of(data, side)] == [*range(1, 11), 15]
    assert side["more"] == 4
    (hit,) = hits_of(data, views["span"]["sides"][0])
    assert segments(data["texts"][hit["text"]], hit["marks"]) == [(False, "äb"), (True, "cdef"), (False, "gh")]

    workspace.add_run("broken", {"chunk": '{"hits_top_k": 7}'}, created_at="2026-01-03")
    capsys.readouterr()
    assert run(["report", "broken", *files]) == 2
    assert "hits_top_k is not a list" in capsys.readouterr().err
    assert run(["report", "broken", *files, "--skip-bad-rows"]) == 0
    assert run(["report", "some", "broken", *files, "--skip-bad-rows", "--slices", "category"]) == 0


def test_a_history_shows_what_changed_and_unstable_queries(workspace: Workspace) -> None:
    workspace.add_golden(
        {"id": "flaky", "expected_chunk_ids": ["c1"]},
        {"id": "lost", "query": "Where is it?", "expected_chunk_ids": ["c2"], "category": "places"},
    )
    for day, chunk in enumerate(("c1", "x", "c1", "c1"), start=1):
        rows = {"flaky": {"hits_top_k": hits(chunk)}, "lost": {"hits_top_k": hits("y")}}
        workspace.add_run(f"run{day}", rows, created_at=f"2026-01-0{day}", chunker="md@2" if day == 4 else "md@1")
    files = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    assert run(["score", "--all", *files]) == 0
    assert run(["report", "--history", "mrr", *files, "-o", "h.html"]) == 0
    text = Path("h.html").read_text()
    flaky, never = text.partition("Found, lost and found again")[2].split("Never found")
    assert re.search(r'<th scope="row">suite</th><td>flaky</td><td>what is flaky\?</td><td>4</td><td>3</td>', flaky)
    assert "lost</td>" not in flaky
    assert re.search(r'<th scope="row">lost</th><td>Where is it\?</td><td>places</td><td>4</td>', never)
    # One mark where the chunker changed, at the place of the fourth of four runs, and a line of the table.
    assert text.count('<line class="change') == 1
    assert re.search(r'<line class="change \w+" x1="87.5%"', text)
    assert "chunker_version md@1 → md@2" in text
    # The four values, and the lines between those that compare.
    assert text.count('<circle class="series s0" cx=') == 4
    assert run(["report", "--history", "mrr", *files, "-o", "h.html", "--redact", "--suite", "suite"]) == 0
    assert "Where is it?" not in Path("h.html").read_text()


# --- parts -----------------------------------------------------------------------------------------


def test_links_are_the_same_everywhere_and_differ() -> None:
    ids = ["q1", "Q1", "a b", "a%20b", "ä", "a/b#c?d", "", "x" * 1000, "x" * 1001, *EVERY]
    links = [link(query_id) for query_id in ids]
    assert links[:4] == ["q-q1", "q-Q1", "q-a%20b", "q-a%2520b"]
    assert len(set(links)) == len(ids)
    assert all(re.fullmatch(r"q-[A-Za-z0-9_.~%-]*", one) and len(one) < 300 for one in links)


def test_texts_are_held_once_and_marks_stay_where_they_belong() -> None:
    texts = Texts()
    number, places = texts.marked("👍 one\u202e two", [(2, 5), (6, 10)])
    assert texts.marked("👍 one\u202e two", [])[0] == number
    new = texts.take()
    found = segments(new[number], places)
    assert found == [(False, "👍 "), (True, "one"), (False, "\\u202e"), (True, " two")]
    # As JavaScript counts: two units for the thumb.
    assert places[0] == 3
    # Numbers go on, whether texts were taken or not, and a text that was taken is not there again.
    assert texts.add(new[0]) == 0
    number, places = texts.marked(LONG, [(10, 20), (2_999, 5_000), (6_000, 6_001)])
    (cut,) = texts.take()
    assert (number, texts.take()) == (1, [])
    assert cut.endswith("… (cut: 3,000 of 100,000 characters)")
    assert places == [10, 20, 2_999, 3_000]
    hidden = Texts(redact=True)
    number, places = hidden.marked("secret", [(0, 3)])
    assert (hidden.take(), places) == (["(6 characters left out)"], [])


@pytest.mark.parametrize(
    ("text", "shared", "expected"),
    [
        ("abcdef", [Shared("char", 10, 16, 12, 14)], [(2, 4)]),
        ("abcdef", [Shared("char", 10, 17, 12, 14)], []),
        ("äöü", [Shared("byte", 0, 6, 2, 4)], [(1, 2)]),
        ("a\nb\nc", [Shared("line", 5, 8, 6, 8)], [(2, 5)]),
        ("a\nb\nc\n", [Shared("line", 5, 8, 6, 7)], [(2, 3)]),
        ("a\nb", [Shared("line", 5, 8, 6, 7)], []),
        ("a\nb", [Shared("line", 5, 8, 5, 8)], [(0, 3)]),
        ("abcdef", [Shared("char", 0, 6, 0, 2), Shared("char", 0, 6, 1, 4)], [(0, 4)]),
        ("abc", [Shared("page 3", 0, 3, 0, 2)], []),
    ],
)
def test_what_is_shared_is_marked_where_the_text_is_as_long_as_its_place(
    text: str, shared: list[Shared], expected: list[tuple[int, int]]
) -> None:
    assert list(marked_ranges(text, shared)) == expected


def test_lines_and_words_are_found() -> None:
    assert common_lines("one\ntwo\n\nthree", ["two\nthree"]) == [(4, 7), (9, 14)]
    assert common_lines("one\ntwo\nthree", ["two\nthree"]) == [(4, 13)]
    assert found_words("the cat and the dog", ["cat", "dog", "the cat", "bird", ""]) == [(4, 7), (16, 19)]


def test_differences_of_words() -> None:
    found = word_differences("It takes five days.", "It takes three working days.")
    assert found is not None
    a, b = found
    assert "".join(piece for _, piece in a) == "It takes five days."
    assert "".join(piece for _, piece in b) == "It takes three working days."
    assert [piece for kind, piece in a if kind == ONLY_HERE] == ["five"]
    assert [piece for kind, piece in b if kind == ONLY_HERE] == ["three working"]
    assert word_differences("same", "same") == ([(SAME, "same")], [(SAME, "same")])
    assert word_differences("", "new") == ([], [(ONLY_HERE, "new")])
    assert word_differences("a " * MOST_WORDS, "b") is None


def test_text_for_a_page_keeps_lines_and_joined_characters() -> None:
    assert readable("a\r\nb\tc") == "a\nb\tc"
    assert readable("👩‍👧 soft\u00adhyphen") == "👩‍👧 soft\u00adhyphen"
    assert readable("\x1b[31m\u202e\x00\u2028") == "\\x1b[31m\\u202e\\x00\\u2028"
