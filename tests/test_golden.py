from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from kbeval.errors import GoldenError
from kbeval.golden import Golden, load_golden

FIXTURES = Path(__file__).parent.parent / "fixtures"


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
        "line 5, entry 4 (q1): id 'q1' is used before, at line 2",
        "line 7, entry 5 (q3): required_support_groups points at support 1, but there are 1, counted from 0",
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
        ("g.yaml", "# only a comment\n", "no golden query"),
        ("g.json", "[]", "no golden query"),
        ("g.yaml", "a: 1\n", "line 1: the file must be a list"),
        ("g.yaml", "- id: a\n  query: 'open\n", "not valid YAML"),
        ("g.yaml", "- id: a\n- - b\n  c: [", "not valid YAML"),
        ("g.json", '[{"id": "a", "query": "x"},\n {"id": }]', "line 2: not valid JSON"),
        ("g.json", '[{"id": "a", "query": "x"}', "not valid JSON"),
        ("g.json", '[{"id": "a", "query": "x"}] trailing', "not valid JSON"),
        ("g.jsonl", '{"id": "a", "query": "x"}\n{bad\n', "line 2, entry 2: not valid JSON"),
        ("g.yaml", "- {id: a, query: x, id: b}\n", "field 'id' is written twice"),
        ("g.jsonl", '{"id": "a", "id": "b", "query": "x"}', "field 'id' is written twice"),
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
    assert "anchors unfold" in faults(tmp_path, "\n".join(lines))[0]
    assert time.perf_counter() - started < 1


def test_one_large_anchor_used_everywhere_is_refused_too(tmp_path: Path) -> None:
    lines = [f"- {{id: a, query: q, tags: &A [{', '.join(f'x{n}' for n in range(2000))}]}}"]
    lines += [f"- {{id: b{n}, query: q, tags: *A}}" for n in range(2000)]
    assert "anchors unfold" in faults(tmp_path, "\n".join(lines))[0]


def test_thousands_of_faults_are_counted_and_some_are_shown(tmp_path: Path) -> None:
    with pytest.raises(GoldenError) as caught:
        load_golden(write(tmp_path, "- {id: [x]}\n" * 5000))
    assert len(caught.value.faults) == 10_000
    assert str(caught.value).count("\n") == 51
    assert "… and 9,950 more" in str(caught.value)


def test_an_anchor_that_holds_itself_is_refused(tmp_path: Path) -> None:
    assert "an anchor holds itself" in faults(tmp_path, "- &a [*a]\n")[0]


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


def test_entries_are_handed_out_as_a_polars_frame(tmp_path: Path) -> None:
    golden: Golden = load_golden(write(tmp_path, YAML))
    assert golden.frame()["id"].to_list() == ["q1", "q2"]
