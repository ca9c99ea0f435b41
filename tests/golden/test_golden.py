from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from kbeval.demo import make_demo
from kbeval.errors import GoldenError
from kbeval.golden import Golden, load_golden
from tests.support.workspace import Workspace

FIXTURES = Path(__file__).parents[2] / "fixtures"


def write(folder: Path, text: str | bytes, name: str = "golden.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def faults(folder: Path, text: str | bytes, name: str = "golden.yaml") -> list[str]:
    with pytest.raises(GoldenError) as caught:
        load_golden(write(folder, text, name))
    return caught.value.faults


def test_the_shipped_example_loads_without_a_warning() -> None:
    golden = load_golden(FIXTURES / "golden_queries.yaml")
    assert [entry["id"] for entry in golden.entries] == [f"g00{number}" for number in range(1, 8)]
    assert golden.warnings == []


def test_the_shipped_example_explains_itself() -> None:
    header = (FIXTURES / "golden_queries.yaml").read_text().split("\n- id:")[0]
    for words in ("divides by k", "skipped", "expected_doc_ids: []", "answerable: false", "unlabelled", "must_contain"):
        assert words in header


YAML = """
- id: q1
  query: what?
  expected_chunk_ids: [c1, c2]
  answerable: true
- {qid: q2, question: why?, gold_citations: [c3]}
"""
JSON = json.dumps(
    [
        {"id": "q1", "query": "what?", "expected_chunk_ids": ["c1", "c2"], "answerable": True},
        {"qid": "q2", "question": "why?", "gold_citations": ["c3"]},
    ]
)
JSONL = "\n".join(json.dumps(entry) for entry in json.loads(JSON))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.yaml", YAML),
        ("g.yml", YAML),
        ("g.json", JSON),
        ("g.jsonl", JSONL),
        ("g.ndjson", JSONL),
        ("golden", YAML),
        ("golden", JSON),
        ("golden", JSONL),
        ("g.txt", YAML),
        ("g.txt", JSON),
        ("g.txt", JSONL),
        ("g.jsonl", "\ufeff" + JSONL.replace("\n", "\r\n\r\n")),
        ("g.json", JSONL),
        ("g.jsonl", JSON),
    ],
)
def test_every_format_and_spelling_gives_the_same_entries(tmp_path: Path, name: str, text: str) -> None:
    golden = load_golden(write(tmp_path, text, name))
    assert list(golden.entries) == [
        {"id": "q1", "query": "what?", "expected_chunk_ids": ["c1", "c2"], "answerable": True},
        {"id": "q2", "query": "why?", "expected_chunk_ids": ["c3"]},
    ]


def test_the_hash_ignores_format_order_and_comments_but_no_label(tmp_path: Path) -> None:
    first = load_golden(write(tmp_path, YAML))
    same = load_golden(write(tmp_path, json.dumps(list(reversed(json.loads(JSON)))), "g.json"))
    other = load_golden(write(tmp_path, YAML.replace("c3", "c4"), "other.yaml"))
    assert first.hash == same.hash != other.hash


@pytest.mark.parametrize("name", ["007", "1e5", "no", "null_", "0x1F", "2026-01-01", "1_000", "true"])
def test_ids_are_text_whatever_they_look_like(tmp_path: Path, name: str) -> None:
    golden = load_golden(write(tmp_path, f"- id: {name}\n  query: what?\n  expected_chunk_ids: [{name}]\n"))
    assert golden.entries[0]["id"] == name
    assert golden.entries[0]["expected_chunk_ids"] == [name]


def test_numbers_as_ids_in_json_keep_their_spelling(tmp_path: Path) -> None:
    golden = load_golden(write(tmp_path, '[{"id": 1e5, "query": "?"}, {"id": 7, "query": "?"}]', "g.json"))
    assert [entry["id"] for entry in golden.entries] == ["1e5", "7"]


def test_all_faults_are_reported_at_once_with_entry_and_line(tmp_path: Path) -> None:
    text = """\
- query: no id
- id: q1
- id: q2
  query: [a, list]
- id: q1
  query: again
- id: q3
  query: groups
  gold_supports: [{rel_path: a.md}]
  required_support_groups: [[0, 1]]
- id: q4
  query: wrong types
  expected_chunk_ids: c1
  answerable: perhaps
  relevance: {c1: high}
- just text
"""
    assert faults(tmp_path, text) == [
        "line 1, entry 1: has no 'id' (or 'qid')",
        "line 2, entry 2 (q1): has no 'query' (or 'question')",
        "line 3, entry 3 (q2): query must be text",
        "line 5, entry 4 (q1): duplicate id 'q1', first used at line 2",
        "line 7, entry 5 (q3): required_support_groups refers to support 1, but there are only 1, counted from 0",
        "line 11, entry 6 (q4): answerable must be true or false",
        "line 11, entry 6 (q4): expected_chunk_ids must be a list of text",
        "line 11, entry 6 (q4): relevance must map chunk ids to grades; one must be a number",
        "line 16, entry 7: an entry must be a mapping of fields",
    ]


def test_queries_of_one_group_must_expect_the_same_documents(tmp_path: Path) -> None:
    text = """\
- {id: a, query: x, group: g, expected_doc_ids: [d1, d2]}
- {id: b, query: y, group: g, expected_doc_ids: [d2, d1]}
- {id: c, query: z, group: g, expected_doc_ids: [d3]}
"""
    assert faults(tmp_path, text) == ["line 3, entry c: group 'g': expected_doc_ids differ from those of 'a'"]


def test_an_unknown_field_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    golden = load_golden(write(tmp_path, "- {id: a, query: x, expected_chunks: [c]}\n- {id: b, query: y, zzz: 1}\n"))
    assert golden.warnings == [
        "unknown field 'expected_chunks' is ignored (line 1); did you mean 'expected_chunk_ids'?",
        "unknown field 'zzz' is ignored (line 2)",
    ]


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("g.yaml", "", "the file is empty"),
        ("g.yaml", "# only a comment\n", "no golden queries"),
        ("g.json", "[]", "no golden queries"),
        ("g.yaml", "a: 1\n", "line 1: the file must be a list"),
        ("g.yaml", "- id: a\n  query: 'open\n", "not valid YAML"),
        ("g.yaml", "- id: a\n- - b\n  c: [", "not valid YAML"),
        ("g.json", '[{"id": "a", "query": "x"},\n {"id": }]', "line 2: not valid JSON"),
        ("g.json", '[{"id": "a", "query": "x"}', "not valid JSON"),
        ("g.json", '[{"id": "a", "query": "x"}] trailing', "not valid JSON"),
        ("g.jsonl", '{"id": "a", "query": "x"}\n{bad\n', "line 2, entry 2: not valid JSON"),
        ("g.yaml", "- {id: a, query: x, id: b}\n", "duplicate field 'id'"),
        ("g.jsonl", '{"id": "a", "id": "b", "query": "x"}', "has a duplicate key in an object: 'id'"),
        ("g.yaml", "- {id: a, qid: b, query: x}\n", "'id' and 'qid' mean the same"),
        ("g.jsonl", '{"id": "a", "query": "x", "answerable": "true"}', "answerable must be true or false"),
        ("g.jsonl", '{"id": "\\ud800", "query": "x"}', "half a character"),
        ("g.yaml", b"\xff\xfe-\x00", "binary"),
        ("g.yaml", b"- id: \xe4\n", "line 1: not UTF-8"),
        ("g.yaml", b"\x00\x01\x02", "binary"),
        ("g.json", "[" * 100_000, "nested too deeply"),
        ("g.yaml", "[" * 100_000, "nested too deeply"),
        ("g.yaml", "- " * 100_000, "nested too deeply"),
        ("g.yaml", "- {id: a, query: x}\n---\n- {id: b, query: y}\n", "second document"),
    ],
)
def test_files_that_cannot_be_read_say_why(tmp_path: Path, name: str, text: str | bytes, fault: str) -> None:
    assert fault in "\n".join(faults(tmp_path, text, name))


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="no such golden file"):
        load_golden(tmp_path / "nothing.yaml")
    with pytest.raises(GoldenError, match="is a directory"):
        load_golden(tmp_path)
    with pytest.raises(GoldenError, match="is a device"):
        load_golden(Path("/dev/zero"))


def test_an_alias_bomb_is_refused_not_expanded(tmp_path: Path) -> None:
    lines = ['- &a0 ["x", "x", "x", "x", "x", "x", "x", "x", "x", "x"]']
    lines += [f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    started = time.perf_counter()
    assert "aliases expand" in faults(tmp_path, "\n".join(lines))[0]
    assert time.perf_counter() - started < 1


def test_one_large_anchor_used_everywhere_is_refused_too(tmp_path: Path) -> None:
    lines = [f"- {{id: a, query: q, tags: &A [{', '.join(f'x{n}' for n in range(2000))}]}}"]
    lines += [f"- {{id: b{n}, query: q, tags: *A}}" for n in range(2000)]
    assert "aliases expand" in faults(tmp_path, "\n".join(lines))[0]


def test_thousands_of_faults_are_counted_and_some_are_shown(tmp_path: Path) -> None:
    with pytest.raises(GoldenError) as caught:
        load_golden(write(tmp_path, "- {id: [x]}\n" * 5000))
    assert len(caught.value.faults) == 10_000
    assert str(caught.value).count("\n") == 51
    assert "… and 9,950 more" in str(caught.value)


def test_an_anchor_that_holds_itself_is_refused(tmp_path: Path) -> None:
    assert "an anchor contains itself" in faults(tmp_path, "- &a [*a]\n")[0]


def test_ordinary_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = """\
- &base {id: a, query: x, expected_doc_ids: &docs [d1]}
- {<<: *base, id: b}
- {id: c, query: y, expected_doc_ids: *docs}
"""
    golden = load_golden(write(tmp_path, text))
    assert [(e["id"], e["expected_doc_ids"]) for e in golden.entries] == [("a", ["d1"]), ("b", ["d1"]), ("c", ["d1"])]


def test_an_empty_list_is_not_the_same_as_nothing(tmp_path: Path) -> None:
    golden = load_golden(
        write(tmp_path, "- {id: a, query: x, expected_doc_ids: []}\n- {id: b, query: y, expected_doc_ids: }\n")
    )
    assert golden.entries[0]["expected_doc_ids"] == []
    assert "expected_doc_ids" not in golden.entries[1]


def test_ten_thousand_entries_of_yaml_load_in_about_a_second(tmp_path: Path) -> None:
    entries = [
        {
            "id": f"q{n}",
            "query": f"question {n}",
            "expected_chunk_ids": [f"c{n}"],
            "expected_doc_ids": [f"d{n % 99}"],
            "must_contain": ["words"],
            "category": "a",
            "tags": ["t1", "t2"],
        }
        for n in range(10_000)
    ]
    path = write(tmp_path, yaml.dump(entries, Dumper=yaml.CSafeDumper))
    started = time.perf_counter()
    assert len(load_golden(path)) == 10_000
    assert time.perf_counter() - started < 4  # about one on a quiet machine


def test_entries_are_returned_as_a_polars_frame(tmp_path: Path) -> None:
    golden: Golden = load_golden(write(tmp_path, YAML))
    assert golden.frame()["id"].to_list() == ["q1", "q2"]


# --- places ------------------------------------------------------------------------------------------

PLACES = [
    {"doc_id": "d", "kind": "line", "start": 3, "end": 3},
    {"path": "d.md", "kind": "code", "line_start": 1, "line_end": 9},
    {"doc_id": "d", "path": "d.md", "kind": "byte", "start": 0, "end": 1},
    {"doc_id": "d", "kind": "char", "start": 5, "end": 9},
    {"doc_id": "d", "kind": "time", "start_ms": 0.5, "end_ms": 1.5},
    {"doc_id": "d", "kind": "page", "page": 1},
    {"doc_id": "d", "kind": "page", "page": 2, "char_start": 0, "char_end": 10},
    {"doc_id": "d", "kind": "region", "x": -1.5, "y": 0, "w": 0.5, "h": 2},
    {"path": "d.md", "kind": "caption"},
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place["kind"])
def test_every_kind_of_place_is_taken_as_it_is(tmp_path: Path, place: dict[str, Any]) -> None:
    entries = [
        {"id": "q", "query": "?", "expected_spans": [{**place, "section": None, "doc_id": place.get("doc_id", "")}]}
    ]
    for name, text in (("g.json", json.dumps(entries)), ("g.yaml", yaml.dump(entries))):
        golden = load_golden(write(tmp_path, text, name))
        assert golden.entries[0]["expected_spans"] == [place]
        assert golden.warnings == []


@pytest.mark.parametrize(
    ("span", "fault"),
    [
        ("kind: lines, start: 1, end: 2", "unknown kind lines; did you mean 'line'?"),
        ("kind: Line, start: 1, end: 2", "did you mean 'line'?"),
        ("kind: zzz, start: 1, end: 2", "unknown kind zzz; use one of line, code, char, byte"),
        ("start: 1, end: 2", "has no kind; use one of line"),
        ("kind: '', start: 1, end: 2", "has no kind"),
        ("kind: [line], start: 1, end: 2", "unknown kind"),
        ("kind: line, start: 1", "has no end; kind line needs start, end"),
        ("kind: line", "has no start and no end"),
        ("kind: line, line_start: 1, line_end: 2", "has no start and no end"),
        ("kind: code, start: 1, end: 2", "has no line_start and no line_end"),
        ("kind: time, start: 1, end: 2", "has no start_ms and no end_ms"),
        ("kind: page", "has no page; kind page needs page, and accepts char_start with char_end"),
        ("kind: page, page: 1, char_start: 3", "has no char_end"),
        ("kind: page, page: 1, char_end: 3", "has no char_start"),
        ("kind: region, x: 1, y: 2, w: 3", "has no h; kind region needs x, y, w, h"),
        ("kind: line, start: one, end: 2", "start must be a number"),
        ("kind: line, start: '1', end: 2", "start must be a number"),
        ("kind: line, start: true, end: 2", "start must be a number"),
        ("kind: line, start: 1, end: .inf", "end must be a number"),
        ("kind: line, start: nan, end: 2", "start must be a number"),
        ("kind: line, start: 1, end: Infinity", "end must be a number"),
        ("kind: line, start: 1, end: 1e16", "end is 1e+16, which is too large"),
        ("kind: line, start: 1.5, end: 2", "start is 1.5, but must be an integer"),
        ("kind: line, start: 0, end: 2", "start is 0, but must be at least 1"),
        ("kind: code, line_start: 0, line_end: 2", "line_start is 0, but must be at least 1"),
        ("kind: page, page: 0", "page is 0, but must be at least 1"),
        ("kind: byte, start: -1, end: 2", "start is -1, but must be at least 0"),
        ("kind: char, start: -1, end: 2", "start is -1, but must be at least 0"),
        ("kind: time, start_ms: -0.5, end_ms: 2", "start_ms is -0.5, but must be at least 0"),
        ("kind: page, page: 1, char_start: -1, char_end: 2", "char_start is -1"),
        ("kind: line, start: 9, end: 8", "end 8 is before start 9"),
        ("kind: byte, start: 9, end: 8", "end 8 is before start 9"),
        ("kind: byte, start: 9, end: 9", "is empty: start and end are both 9"),
        ("kind: char, start: 9, end: 9", "is empty"),
        ("kind: time, start_ms: 9, end_ms: 9", "is empty"),
        ("kind: page, page: 1, char_start: 9, char_end: 9", "is empty"),
        ("kind: region, x: 1, y: 2, w: 0, h: 1", "w is 0, but must be above 0"),
        ("kind: region, x: 1, y: 2, w: 1, h: -1", "h is -1, but must be above 0"),
    ],
)
def test_an_invalid_place_is_a_fault(tmp_path: Path, span: str, fault: str) -> None:
    (found,) = faults(tmp_path, f"- id: q\n  query: x\n  expected_spans: [{{doc_id: d, {span}}}]\n")
    assert found.startswith("line 1, entry 1 (q): expected_spans span 1: ")
    assert fault in found


def test_all_faults_of_all_places_are_named_at_once(tmp_path: Path) -> None:
    text = """\
- {id: fine, query: x}
- id: q
  query: x
  expected_spans:
    - {kind: line, start: 0, end: x}
    - {doc_id: d, kind: line, start: 1, end: 2}
    - {doc_id: "", path: , kind: bite, start: 5, end: 2}
- {id: r, query: x, expected_spans: {doc_id: d}}
"""
    assert faults(tmp_path, text) == [
        "line 2, entry 2 (q): expected_spans span 1: end must be a number",
        "line 2, entry 2 (q): expected_spans span 1: has neither doc_id nor path",
        "line 2, entry 2 (q): expected_spans span 1: start is 0, but must be at least 1",
        "line 2, entry 2 (q): expected_spans span 3: has neither doc_id nor path",
        "line 2, entry 2 (q): expected_spans span 3: unknown kind bite; did you mean 'byte'?",
        "line 8, entry 3 (r): expected_spans must be a list of {doc_id or path, kind, start, end}",
    ]


def test_a_field_that_no_such_place_has_is_a_warning(tmp_path: Path) -> None:
    text = (
        "- {id: a, query: x, expected_spans: [{doc_id: d, kind: line, start: 1, end: 2, sectoin: s, page: 3, pth: d}]}"
    )
    golden = load_golden(write(tmp_path, text))
    assert golden.warnings == [
        "unknown field 'expected_spans.sectoin' is ignored (line 1)",
        "unknown field 'expected_spans.page' is ignored (line 1)",
        "unknown field 'expected_spans.pth' is ignored (line 1); did you mean 'path'?",
    ]
    assert golden.entries[0]["expected_spans"] == [{"doc_id": "d", "kind": "line", "start": 1, "end": 2}]


def test_labels_that_were_read_are_read_again_as_they_are(tmp_path: Path) -> None:
    first = load_golden(write(tmp_path, json.dumps([{"id": "q", "query": "?", "expected_spans": PLACES}]), "g.json"))
    again = load_golden(write(tmp_path, json.dumps(list(first.entries)), "again.json"))
    assert (again.entries, again.hash) == (first.entries, first.hash)


# --- what is empty -----------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["lang", "difficulty", "category", "group", "recency_conflict_rule"])
@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_word_about_a_query_is_not_given(tmp_path: Path, field: str, empty: str) -> None:
    golden = load_golden(write(tmp_path, json.dumps([{"id": "a", "query": "x", field: empty}]), "g.json"))
    assert list(golden.entries) == [{"id": "a", "query": "x"}]
    assert not golden.has(field)


def test_queries_of_no_group_need_not_agree(tmp_path: Path) -> None:
    text = (
        "- {id: a, query: x, group: '', expected_doc_ids: [d]}\n- {id: b, query: y, group: '', expected_doc_ids: [e]}\n"
    )
    assert len(load_golden(write(tmp_path, text))) == 2


@pytest.mark.parametrize("field", ["tags", "vaults", "folders", "expected_key_facts", "constraints"])
def test_empty_words_in_a_list_are_left_out(tmp_path: Path, field: str) -> None:
    golden = load_golden(write(tmp_path, json.dumps([{"id": "a", "query": "x", field: ["", "t", " "]}]), "g.json"))
    assert golden.entries[0][field] == ["t"]


@pytest.mark.parametrize("field", ["must_contain", "forbidden", "gold_claim_substr", "expected_chunk_ids"])
def test_an_empty_string_that_proves_nothing_is_a_fault(tmp_path: Path, field: str) -> None:
    (fault,) = faults(tmp_path, json.dumps([{"id": "a", "query": "x", field: [""]}]), "g.json")
    assert f"{field} must be a list of text; an item must not be empty" in fault


def test_there_is_no_slice_without_a_name(workspace: Workspace) -> None:
    workspace.add_golden(
        {"id": "a", "lang": "", "tags": [""], "expected_chunk_ids": ["c"]},
        {"id": "b", "lang": "en", "tags": ["t", ""], "expected_chunk_ids": ["c"]},
    )
    workspace.add_run("run", {"a": {"hits_top_k": []}, "b": {"hits_top_k": []}})
    assert set(workspace.score("run", by="lang").slices["run"]) == {"(none)", "en"}
    assert set(workspace.score("run", by="tags").slices["run"]) == {"(none)", "t"}


def test_the_id_of_an_entry_may_be_called_q_id(tmp_path: Path) -> None:
    golden = load_golden(write(tmp_path, "- {q_id: a, query: x}\n- {qid: b, q_id: c, query: x}\n"))
    assert [entry["id"] for entry in golden.entries] == ["a", "b"]
    assert golden.warnings == ["unknown field 'q_id' is ignored (line 2); did you mean 'qid'?"]
    assert faults(tmp_path, "- {q_id: a}\n") == ["line 1, entry 1 (a): has no 'query' (or 'question')"]


@pytest.mark.parametrize("words", ["expected_spans", "code points", "bytes of UTF-8", "half-open", "kind: char"])
def test_the_templates_say_what_offsets_are_and_recommend_places(tmp_path: Path, words: str) -> None:
    header = (FIXTURES / "golden_queries.yaml").read_text().split("\n- id:")[0]
    assert words in header
    assert header.index("expected_spans") < header.index("expected_chunk_ids")
    make_demo(tmp_path / "demo")
    assert "expected_spans" in (tmp_path / "demo" / "golden.yaml").read_text().split("\n- id:")[0]
