from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run as kbeval
from kbeval.explore.check import check_workspace
from kbeval.explore.findings import CODES, Finding
from kbeval.golden import load_golden
from kbeval.scoring.scorer import open_scoring
from tests.support.workspace import Workspace, hits


def findings(workspace: Workspace) -> dict[str, Finding]:
    golden = load_golden(workspace.golden, groups_must_agree=False)
    with open_scoring(workspace.db, golden) as scoring:
        return {finding.code: finding for finding in check_workspace(scoring)}


def warnings(workspace: Workspace, *runs: str) -> str:
    return "\n".join(workspace.score(*runs).warnings)


def line(start: int, end: int) -> dict[str, Any]:
    return {"kind": "line", "start": start, "end": end}


@pytest.fixture
def healthy(workspace: Workspace) -> Workspace:
    workspace.add_document("d1", "d1.md")
    workspace.add_chunk("c", "d1", [])
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"], "expected_doc_ids": ["d1"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c", None)}})
    return workspace


def test_a_healthy_workspace_has_no_findings(healthy: Workspace) -> None:
    assert findings(healthy) == {}


# --- labels ----------------------------------------------------------------------------------------


def test_labels_and_rows_that_do_not_fit_together_are_counted_with_examples(healthy: Workspace) -> None:
    healthy.add_golden(
        {"id": "q", "expected_chunk_ids": ["c", "c2", "gone"], "expected_doc_ids": ["d1", "d9"], "group": "g"},
        {"id": "bare"},
        {"id": "s", "expected_doc_ids": [], "group": "g"},
    )
    healthy.add_chunk("c2", "d1", [])
    healthy.add_run("other", {"q": {"hits_top_k": hits("c")}, "s": {"hits_top_k": hits("c")}, "stray": {}})
    found = findings(healthy)
    assert (found["unknown-chunks"].count, found["unknown-chunks"].examples) == (1, ("gone",))
    assert (found["unknown-docs"].count, found["unknown-docs"].examples) == (1, ("d9",))
    assert found["unlabelled"].examples == ("bare",)
    assert found["row-without-query"].examples == ("other stray",)
    assert found["query-without-row"].examples == ("other bare", "run bare", "run s")
    # The queries of a group expect different things.
    assert found["group-mismatch"].count == 1


def test_if_most_ids_are_unknown_another_chunker_is_suspected(healthy: Workspace) -> None:
    healthy.add_golden({"id": "q", "expected_chunk_ids": ["x1", "x2", "x3", "x4"]})
    found = findings(healthy)["unknown-chunks"]
    assert (found.count, found.examples) == (4, ("x1", "x2", "x3"))
    assert "another chunker version than md@1" in found.advice


def test_ids_known_only_to_older_runs_are_listed_separately(healthy: Workspace) -> None:
    healthy.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    healthy.add_run("older", {"q": {"hits_top_k": hits("old")}}, chunker="md@0")
    found = findings(healthy)
    assert "unknown-chunks" not in found
    assert found["unplaced-chunks"].examples == ("old",)
    assert "by document alone" in found["unplaced-chunks"].advice


def test_ids_that_the_hits_of_older_runs_place_are_a_note(healthy: Workspace) -> None:
    healthy.add_golden({"id": "q", "expected_chunk_ids": ["old"]})
    placed = [{**hit, "source_spans": [line(1, 9)]} for hit in hits("old")]
    healthy.add_run("older", {"q": {"hits_top_k": placed}}, chunker="md@0")
    found = findings(healthy)["earlier-chunks"]
    assert found.is_note
    assert "md@0" in found.advice
    assert "md@1" in found.advice
    assert "no action is needed" in found.advice


def test_ids_that_scoring_kept_are_never_called_unknown(healthy: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    # An expected chunk that no run ever hit, which the index no longer holds: only the kept spans know it.
    healthy.add_chunk("missed", "d1", [line(1, 4)])
    healthy.add_golden({"id": "q", "expected_chunk_ids": ["missed"]})
    call = ["--db", str(healthy.db), "--golden", str(healthy.golden)]
    assert kbeval(["score", "--all", *call]) == 0
    healthy.execute("DELETE FROM chunks")
    healthy.add_chunk("new", "d1", [line(1, 9)], version="md@2")
    found = findings(healthy)
    assert "unknown-chunks" not in found
    assert (found["earlier-chunks"].examples, found["earlier-chunks"].is_note) == (("missed",), True)
    assert kbeval(["check", *call]) == 0
    assert "correct the labels" not in capsys.readouterr().out


def test_without_a_table_labels_that_no_run_hit_may_still_be_right(healthy: Workspace) -> None:
    healthy.execute("DELETE FROM chunks")
    healthy.add_golden({"id": "q", "expected_chunk_ids": ["never"]})
    assert "there is no table 'chunks'" in findings(healthy)["unknown-chunks"].advice


def test_without_a_table_and_without_hits_labels_are_not_blamed(healthy: Workspace) -> None:
    healthy.execute_script("DELETE FROM chunks; DELETE FROM documents; DELETE FROM eval_query_results")
    healthy.add_run("misnamed", {"q": {"hits": hits("c")}})
    assert {"unknown-chunks", "unknown-docs"}.isdisjoint(found := findings(healthy))
    assert "rows-without-hits" in found


def test_runs_made_with_another_chunker_than_the_labels_are_a_note(healthy: Workspace) -> None:
    healthy.add_run("new", {"q": {"hits_top_k": hits("n1")}}, chunker="md@2")
    found = findings(healthy)["foreign-run"]
    assert found.examples == ("new (md@2; labels: md@1)",)
    assert found.is_note


def test_with_exact_matching_foreign_runs_fail_the_check(
    healthy: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy.add_run("new", {"q": {"hits_top_k": hits("n1")}}, chunker="md@2")
    arguments = ["check", "--match", "exact", "--db", str(healthy.db), "--golden", str(healthy.golden)]
    assert kbeval(arguments) == 1
    assert "[foreign-run]\n  for example  new (md@2; labels: md@1)" in capsys.readouterr().out


def test_ids_that_stood_for_different_text_are_named(healthy: Workspace) -> None:
    healthy.execute("UPDATE chunks SET source_spans_json = ?", (json.dumps([line(1, 4)]),))
    healthy.execute_script(
        "CREATE TABLE kbeval_chunk_spans (chunk_id, chunker_version, doc_id, source_spans_json, seen_in, first_seen)"
    )
    healthy.execute(
        "INSERT INTO kbeval_chunk_spans VALUES ('c', 'md@0', 'd1', ?, 'chunks', '2025')", (json.dumps([line(5, 9)]),)
    )
    assert findings(healthy)["reused-ids"].examples == ("c (2 places)",)


# --- kinds of position -----------------------------------------------------------------------------


@pytest.fixture
def by_line(workspace: Workspace) -> Workspace:
    workspace.add_document("d1", "d1.md")
    workspace.add_golden(
        {"id": "q", "expected_spans": [{"path": "d1.md", **line(1, 4)}]},
        {"id": "bytes", "expected_spans": [{"path": "d1.md", "kind": "byte", "start": 0, "end": 9}]},
    )
    ranking = [{"rank": 1, "chunk_id": "c", "doc_id": "d1", "source_spans": [line(1, 4)]}]
    workspace.add_run("run", {"q": {"hits_top_k": ranking}, "bytes": {"hits_top_k": ranking}})
    return workspace


def test_labels_by_a_kind_of_position_that_nothing_uses_are_named(by_line: Workspace) -> None:
    found = findings(by_line)["axis-mismatch"]
    assert found.count == 1
    assert "1 query labelled by byte (first bytes)" in found.examples[0]
    assert "are by line" in found.examples[0]
    assert "run run: 1 query labelled by byte" in warnings(by_line)


def test_characters_and_lines_never_meet(by_line: Workspace) -> None:
    by_line.add_golden({"id": "q", "expected_spans": [{"path": "d1.md", "kind": "char", "start": 0, "end": 9}]})
    assert "1 query labelled by char (first q)" in findings(by_line)["axis-mismatch"].examples[0]


def test_comparing_names_them_too(by_line: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    ranking = [{"rank": 1, "chunk_id": "c", "doc_id": "d1", "source_spans": [line(1, 4)]}]
    by_line.add_run("other", {"q": {"hits_top_k": ranking}, "bytes": {"hits_top_k": ranking}})
    assert kbeval(["compare", "run", "other", "--db", str(by_line.db), "--golden", str(by_line.golden)]) == 0
    assert "run other: 1 query labelled by byte" in capsys.readouterr().err


def test_a_kind_of_position_that_known_chunks_use_is_not_a_mismatch(by_line: Workspace) -> None:
    by_line.add_chunk("c9", "d1", [{"kind": "byte", "start": 0, "end": 5}])
    # A hit of that document by another kind still counts as one.
    by_line.execute("UPDATE eval_query_results SET result_json = '{\"hits_top_k\": []}' WHERE query_id = 'bytes'")
    assert "axis-mismatch" not in findings(by_line)


def test_another_page_is_not_another_kind_of_position(by_line: Workspace) -> None:
    by_line.add_golden({"id": "q", "expected_spans": [{"path": "d1.md", "kind": "page", "page": 7}]})
    by_line.execute("DELETE FROM eval_query_results")
    hit = {"rank": 1, "chunk_id": "c", "doc_id": "d1", "source_spans": [{"kind": "page", "page": 3}]}
    by_line.add_run("pages", {"q": {"hits_top_k": [hit]}})
    assert "axis-mismatch" not in findings(by_line)


def test_a_query_with_one_label_that_hits_cannot_be_held_against_is_a_mismatch(by_line: Workspace) -> None:
    both = [{"path": "d1.md", "kind": "byte", "start": 0, "end": 9}, {"path": "d1.md", **line(1, 4)}]
    by_line.add_golden({"id": "q", "expected_spans": both}, {"id": "bytes", "expected_spans": both})
    assert "2 queries labelled by byte" in findings(by_line)["axis-mismatch"].examples[0]


def test_with_labels_by_span_two_chunkers_are_not_a_finding(by_line: Workspace) -> None:
    by_line.add_golden({"id": "q", "expected_spans": [{"path": "d1.md", **line(1, 4)}]})
    by_line.execute_script("DELETE FROM eval_query_results; DELETE FROM eval_runs")
    for version, end in (("md@1", 4), ("md@2", 9)):
        by_line.add_chunk(f"c-{version}", "d1", [line(1, end)], version=version)
        hit = {"rank": 1, "chunk_id": f"c-{version}", "doc_id": "d1"}
        by_line.add_run(version, {"q": {"hits_top_k": [hit]}}, chunker=version)
    assert findings(by_line) == {}
    assert warnings(by_line) == ""


# --- rows ------------------------------------------------------------------------------------------


HITS_NAMES = ("hits", "results", "retrieved_chunks", "documents", "contexts", "top_k", "hitsTopK")
NAMELESS = [
    {"rank": 1, "doc_path": "d1.md"},
    {"rank": 2, "doc_path": "elsewhere.md"},
    {"rank": 3, "text": "…"},
    {"rank": 4, "chunk_id": "c"},
]
REPEATED = [{"rank": 1, "chunk_id": "c"}, {"rank": 2, "chunk_id": "c"}, {"rank": 5, "chunk_id": "x"}]
TOLD, ODD, NO_ID, AGAIN, GAP = (
    "rows-without-hits",
    "misnamed-field",
    "hits-without-id",
    "repeated-hit",
    "rank-gap",
)
# The row of a run, what `check` says of it under which code, and what scoring warns of.
ODD_ROWS: dict[str, tuple[dict[str, Any], list[tuple[str, str]], list[str]]] = {
    # Without hits: it is told what the field may be called.
    **{
        f"with-{name}": (
            {name: hits("c")},
            [(TOLD, f"with-{name}: no row has 'hits_top_k'; did you mean {name!r}?")],
            [f"run with-{name}: no row has 'hits_top_k'; did you mean {name!r}?"],
        )
        for name in HITS_NAMES
    },
    "bare": (
        {"answer": {"answer": "text"}},
        [(TOLD, "bare: no row has 'hits_top_k'")],
        ["run bare: no row has 'hits_top_k'"],
    ),
    # It retrieved nothing, and says so.
    "nothing0": ({"hits_top_k": []}, [], []),
    "nothing1": ({"hits_top_k": None}, [], []),
    "nothing2": ({"hits_top_k": [], "sources": ["a.md"]}, [], []),
    # Fields of hits with another name.
    **{
        f"odd-{field}": (
            {"hits_top_k": [hit]},
            [(ODD, f"odd-{field}: hits with {field!r} and no {meant!r} (first in query q)")],
            [f"run odd-{field}: hits with {field!r} and no {meant!r}"],
        )
        for field, meant, hit in (
            ("document_id", "doc_id", {"rank": 1, "chunk_id": "c", "document_id": "d1"}),
            ("docId", "doc_id", {"rank": 1, "chunk_id": "c", "docId": "d1"}),
            ("doc", "doc_id", {"rank": 1, "chunk_id": "c", "doc": "d1"}),
            ("id", "chunk_id", {"rank": 1, "id": "c", "doc_id": "d1"}),
            ("chunkId", "chunk_id", {"rank": 1, "chunkId": "c", "doc_id": "d1"}),
        )
    },
    # Fields of rows with another name.
    **{
        f"named-{field}": (
            {"hits_top_k": hits("c"), field: value},
            [(ODD, f"named-{field}: rows with {field!r} and no {meant!r} (first in query q)")],
            [f"run named-{field}: rows with {field!r} and no {meant!r}"],
        )
        for field, meant, value in (
            ("Answer", "answer", {"answer": "text"}),
            ("generated_answer", "answer", "text"),
            ("response", "answer", "text"),
            ("Error", "error", "timed out"),
            ("errorMessage", "error", "timed out"),
            ("elapsedMs", "elapsed_ms", 12),
            ("costUSD", "cost_usd", 0.1),
        )
    },
    "named-span": (
        {"hits_top_k": [{"chunk_id": "c", "doc_id": "d1", "spans": [line(1, 4)]}]},
        [(ODD, "named-span: hits with 'spans' and no 'source_spans' (first in query q)")],
        ["run named-span: hits with 'spans' and no 'source_spans'"],
    ),
    # Fields that mean something else.
    "own-fields": (
        {"hits_top_k": hits("c"), "answer": None, "error": None, "response": "text", "errors": "", "latency_ms": 12},
        [],
        [],
    ),
    "an-index": ({"hits_top_k": [{"chunk_id": "c", "doc_id": "d1", "index": "main"}]}, [], []),
    "an-id": ({"hits_top_k": [{"chunk_id": "c", "id": 7}]}, [], []),
    "odd-answer": (
        {"hits_top_k": hits("c"), "answer": {"text": "it is so"}},
        [(ODD, "odd-answer: answers with 'text' and no 'answer' (first in query q)")],
        ["run odd-answer: answers with 'text' and no 'answer'"],
    ),
    "nameless": (
        {"hits_top_k": NAMELESS},
        [(NO_ID, "nameless q: hit 2"), (NO_ID, "nameless q: hit 3")],
        ["run nameless: 2 hits without chunk_id, doc_id or a known path, first in query q"],
    ),
    "again": (
        {"hits_top_k": REPEATED},
        [(AGAIN, "again q: c"), (GAP, "again q: ranks to 5 in 3 hits")],
        [],
    ),
}


def test_odd_rows_are_named_with_their_run_and_others_are_left_alone(
    healthy: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbeval.explore.check._EXAMPLES", 100)
    for run_id, (row, _, _) in ODD_ROWS.items():
        healthy.add_run(run_id, {"q": row})
    said = warnings(healthy).splitlines()
    for run_id, (_, _, warned) in ODD_ROWS.items():
        of_run = [warning for warning in said if warning.startswith(f"run {run_id}:")]
        for start in warned:
            assert any(warning.startswith(start) for warning in of_run), (start, of_run)
        assert warned or not of_run, (run_id, of_run)
    assert not any(warning.startswith("run run:") for warning in said)
    healthy.add_run("broken", {"q": "{"})
    found = findings(healthy)
    expected: dict[str, list[str]] = {"unreadable-row": ["broken q: is not valid JSON"]}
    for _, examples, _ in ODD_ROWS.values():
        for code, example in examples:
            expected.setdefault(code, []).append(example)
    for code, wanted in expected.items():
        assert sorted(found[code].examples) == sorted(wanted), code
        assert found[code].count == len(wanted), code
    quiet = [run_id for run_id, (_, examples, _) in ODD_ROWS.items() if not examples]
    named = {example.replace(":", " ").split()[0] for one in found.values() for example in one.examples}
    assert not named & {"run", *quiet}


def test_misnamed_answers_are_for_check_alone_to_say(workspace: Workspace) -> None:
    """Runs without answers are usual: their systems only retrieve."""
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"], "must_contain": ["text"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c"), "response": "text"}})
    assert warnings(workspace) == ""
    found = findings(workspace)["misnamed-field"].examples
    assert found == ("run: rows with 'response' and no 'answer' (first in query q)",)


def test_misnamed_ranks_are_for_check_alone_to_say(healthy: Workspace) -> None:
    """A hit without a rank has its place in the list, which is mostly right."""
    for field, value in (("position", 1), ("index", 0)):
        healthy.add_run(f"odd-{field}", {"q": {"hits_top_k": [{field: value, "chunk_id": "c", "doc_id": "d1"}]}})
    assert findings(healthy)["misnamed-field"].examples == (
        "odd-index: hits with 'index' and no 'rank' (first in query q)",
        "odd-position: hits with 'position' and no 'rank' (first in query q)",
    )
    assert warnings(healthy) == ""


def test_without_labels_about_hits_rows_without_hits_are_not_a_finding(healthy: Workspace) -> None:
    healthy.add_golden({"id": "q", "must_contain": ["text"]})
    healthy.execute("DELETE FROM eval_query_results")
    healthy.add_run("answers", {"q": {"answer": {"answer": "text"}}})
    assert "rows-without-hits" not in findings(healthy)


def test_rows_that_name_their_hits_differently_from_the_others_are_named(healthy: Workspace) -> None:
    ids = [f"q{number}" for number in range(40)]
    healthy.add_golden(*({"id": query_id, "expected_chunk_ids": ["c"]} for query_id in ["q", *ids]))
    rows = {query_id: {"hits_top_k": hits("c")} for query_id in ids}
    healthy.execute("DELETE FROM eval_query_results")
    healthy.add_run("mixed", {**rows, "q": {}, "q38": {"hits": hits("c")}})
    found = findings(healthy)
    assert found["misnamed-field"].examples == ("mixed: rows with 'hits' and no 'hits_top_k' (first in query q38)",)
    assert "rows-without-hits" not in found or "mixed" not in str(found["rows-without-hits"].examples)


def test_a_path_that_a_label_names_is_as_good_as_an_id(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_spans": [{"path": "a.md", **line(1, 4)}]})
    workspace.add_run("run", {"q": {"hits_top_k": [{"rank": 1, "doc_path": "a.md", "source_spans": [line(1, 4)]}]}})
    assert findings(workspace) == {}


def test_a_chunker_that_had_to_be_guessed_is_named(healthy: Workspace) -> None:
    healthy.add_chunk("c2", "d1", [], version="md@2")
    healthy.add_run("silent", {"q": {"hits_top_k": hits("c2")}})
    healthy.add_run("nothing", {"q": {"hits_top_k": []}})
    named = [{**hit, "chunker_version": "md@2"} for hit in hits("c2")]
    healthy.add_run("told", {"q": {"hits_top_k": named}})
    healthy.execute("UPDATE eval_runs SET config_snapshot_json = '{}' WHERE run_id <> 'run'")
    golden = load_golden(healthy.golden)
    with open_scoring(healthy.db, golden) as scoring:
        guessed, told = (finding for finding in check_workspace(scoring) if finding.code == "guessed-chunker")
    assert guessed.examples == ("nothing (unknown)", "silent (md@2, taken from the chunks that it hit)")
    assert (told.examples, told.is_note) == (("told (md@2)",), True)
    said = warnings(healthy)
    assert "run silent: its configuration names no chunker_version" in said
    assert "run nothing: its configuration names no chunker_version" in said
    assert "run told: its configuration" not in said


def test_a_single_chunker_need_not_be_named(healthy: Workspace) -> None:
    healthy.execute("UPDATE eval_runs SET config_snapshot_json = '{}'")
    assert findings(healthy) == {}


# --- the command -----------------------------------------------------------------------------------


@pytest.fixture
def odd(healthy: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Two findings: a repeated hit, and ranks with a gap."""
    monkeypatch.chdir(healthy.db.parent)
    (healthy.db.parent / "kbeval.toml").write_text(f'db = "{healthy.db.name}"\ngolden = "{healthy.golden.name}"\n')
    healthy.add_run("odd", {"q": {"hits_top_k": [{"rank": 1, "chunk_id": "c"}, {"rank": 3, "chunk_id": "c"}]}})
    return healthy


def test_each_finding_has_its_code_in_every_format(odd: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbeval(["check"]) == 1
    out, err = capsys.readouterr()
    assert "repeated hits: 1  [repeated-hit]" in out
    assert "2 findings in 1 golden query and 2 runs" in err
    assert kbeval(["check", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(one["code"], one["level"]) for one in found] == [("repeated-hit", "finding"), ("rank-gap", "finding")]
    assert kbeval(["check", "--format", "csv"]) == 1
    assert capsys.readouterr().out.splitlines()[1].startswith("repeated-hit,finding,")


@pytest.mark.parametrize(
    "arguments", [["--ignore", "repeated-hit,rank-gap"], ["--ignore", "rank-gap", "--ignore", "repeated-hit"]]
)
def test_what_is_ignored_is_counted_and_does_not_fail(
    odd: Workspace, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbeval(["check", *arguments]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "2 findings ignored: repeated-hit (1), rank-gap (1)" in err


def test_the_config_file_ignores_and_the_command_line_adds_to_it(
    odd: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("kbeval.toml").open("a", encoding="utf-8") as file:
        file.write('[check]\nignore = ["rank-gap"]\n')
    assert kbeval(["check"]) == 1
    assert "1 finding ignored: rank-gap (1)" in capsys.readouterr().err
    assert kbeval(["check", "--ignore", "repeated-hit"]) == 0
    assert kbeval(["config"]) == 0
    assert "check.ignore" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('ignore = ["rank-gaps"]', "unknown finding 'rank-gaps'; did you mean 'rank-gap'?"),
        ('ignore = "rank-gap"', "check.ignore must be a list of strings"),
        ("ignored = []", "unknown key 'check.ignored'; did you mean 'ignore'?"),
    ],
)
def test_a_wrong_ignore_list_is_refused(
    odd: Workspace, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("kbeval.toml").open("a", encoding="utf-8") as file:
        file.write(f"[check]\n{text}\n")
    assert kbeval(["check"]) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_code_is_refused_with_the_nearest_one(odd: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert kbeval(["check", "--ignore", "repeated-hits"]) == 2
    assert "unknown finding 'repeated-hits'; did you mean 'repeated-hit'?" in capsys.readouterr().err


def test_the_codes_are_listed_without_a_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert kbeval(["check", "--codes"]) == 0
    out = capsys.readouterr().out
    assert all(f"{code} " in out for code in CODES)


def test_notes_do_not_fail_the_check(healthy: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    healthy.add_run("new", {"q": {"hits_top_k": hits("n1")}}, chunker="md@2")
    assert kbeval(["check", "--db", str(healthy.db), "--golden", str(healthy.golden)]) == 0
    out, err = capsys.readouterr()
    assert "note: runs made with other chunks than the labels: 1  [foreign-run]" in out
    assert "no problems found in 1 golden query and 2 runs" in err


def test_an_archive_says_the_same(odd: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd.add_run("misnamed", {"q": {"results": hits("c")}})
    odd.add_run("idless", {"q": {"hits_top_k": [{"rank": 1, "document_id": "d1"}]}})
    assert kbeval(["archive", str(tmp_path / "archive")]) == 0
    capsys.readouterr()
    assert kbeval(["check"]) == 1
    of_database = capsys.readouterr()
    assert kbeval(["check", "--db", str(tmp_path / "archive")]) == 1
    assert capsys.readouterr() == of_database
    assert "did you mean 'results'?" in of_database.out
    assert "hits-without-id" in of_database.out


def test_rows_that_were_parsed_before_are_looked_into_as_well(
    odd: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    odd.add_run("misnamed", {"q": {"results": hits("c")}})
    for _ in range(2):
        assert kbeval(["score", "--all", "--force", "--cache", "on"]) == 0
        assert "run misnamed: no row has 'hits_top_k'; did you mean 'results'?" in capsys.readouterr().err


# --- repeated rows ---------------------------------------------------------------------------------


@pytest.fixture
def repeated(healthy: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Three runs in a table without a key; run `twice` has two rows for one query."""
    monkeypatch.chdir(healthy.db.parent)
    (healthy.db.parent / "kbeval.toml").write_text(f'db = "{healthy.db.name}"\ngolden = "{healthy.golden.name}"\n')
    healthy.add_run("other", {"q": {"hits_top_k": hits(None, "c")}}, created_at="2026-01-02")
    healthy.add_run("twice", {"q": {"hits_top_k": hits("c")}}, created_at="2026-01-03")
    drop_the_key(healthy.db)
    healthy.execute("INSERT INTO eval_query_results SELECT * FROM eval_query_results WHERE run_id = 'twice'")
    return healthy


def drop_the_key(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            "CREATE TABLE copied AS SELECT * FROM eval_query_results; DROP TABLE eval_query_results;"
            "ALTER TABLE copied RENAME TO eval_query_results"
        )


def test_check_reports_repeated_rows(repeated: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["twice"]):
        assert kbeval(["check", *arguments]) == 1
        out = capsys.readouterr().out
        assert "[repeated-row]" in out
        assert "twice q: 2 rows" in out


@pytest.mark.parametrize("arguments", [[], ["--skip-bad-rows"]])
def test_a_repeated_row_keeps_its_own_run_from_being_scored_and_no_other(
    repeated: Workspace, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbeval(["score", "--all", *arguments]) == 2
    err = capsys.readouterr().err
    assert "stored the numbers of 2 runs" in err
    assert "1 run not scored, because it has several rows for one query" in err
    assert "run twice, query q: 2 rows" in err
    assert '"mrr":0.5' in repeated.stored("other").replace(" ", "")
    assert repeated.stored("twice") == ""
    assert kbeval(["score", "twice", *arguments]) == 2
    assert "run twice, query q: 2 rows" in capsys.readouterr().err
    assert kbeval(["score", "run", "other"]) == 0


def test_rows_of_healthy_runs_are_not_multiplied(healthy: Workspace) -> None:
    # Labels by span, so that rows are read a second time and brought together by run and query.
    healthy.add_golden({"id": "q", "expected_spans": [{"path": "d1.md", **line(1, 9)}]})
    ranking = [{**hit, "source_spans": [line(5 * hit["rank"], 9)]} for hit in hits(None, "c")]
    healthy.add_run("placed", {"q": {"hits_top_k": ranking}})
    before = healthy.score("run", "placed").aggregates
    drop_the_key(healthy.db)
    healthy.add_run("twice", {"q": {"hits_top_k": ranking}})
    healthy.execute("INSERT INTO eval_query_results SELECT * FROM eval_query_results WHERE run_id = 'twice'")
    found = healthy.score()
    assert {run_id: numbers.to_json() for run_id, numbers in found.aggregates.items()} == {
        run_id: numbers.to_json() for run_id, numbers in before.items()
    }
    assert [str(row) for row in found.key_faults] == ["run twice, query q: 2 rows"]


@pytest.mark.parametrize(
    "command",
    ["compare run other", "gate other --min mrr=0.1", "show other --query q", "sql SELECT\t1", "history mrr", "runs"],
)
def test_commands_about_healthy_runs_work(
    repeated: Workspace, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbeval([part.replace("\t", " ") for part in command.split(" ")]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "compare run twice",
        "gate twice --min mrr=0.1",
        "gate twice --min mrr=0.1 --baseline run",
        "show twice --query q",
        "show twice --worst 3",
        "show twice",
        "recompute twice",
    ],
)
def test_commands_about_the_broken_run_refuse_by_name(
    repeated: Workspace, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbeval(command.split()) == 2
    assert "run twice, query q: 2 rows" in capsys.readouterr().err


def test_questions_leave_the_broken_run_out_and_say_so(repeated: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT run_id, COUNT(*) AS n FROM per_hit GROUP BY run_id ORDER BY run_id"
    assert kbeval(["sql", sql, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert [(row["run_id"], row["n"]) for row in json.loads(out)] == [("other", 2), ("run", 2)]
    assert "run twice is left out: query q has 2 rows" in err


def test_an_archive_of_repeated_rows_is_refused_in_the_same_way(
    repeated: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kbeval(["archive", str(tmp_path / "archive")]) == 0
    assert kbeval(["score", "--all", "--dry-run", "--db", str(tmp_path / "archive")]) == 2
    assert "run twice, query q: 2 rows" in capsys.readouterr().err
