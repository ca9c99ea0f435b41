"""A workspace to label, the work of one person on ten queries, and the golden file that must come of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from tests.support.workspace import Workspace

HOSTILE = (
    "<img src=x onerror=\"document.title='hacked'\"> </script><script>document.title='hacked'</script>"
    " \x1b[31mred\x1b[0m"
)

BEFORE = """\
# Golden queries, labelled by hand: é, “quotes” and – dashes.
- id: q1        # the first
  query: "What is topic 1?"   # plain
  own_field: kept as it is

- {id: q2, query: 'What is topic 2?', tags: [a, "b"]}   # flow
- id: q3
  query: >-
    What is
    topic 3?
  expected_spans: # by hand
    - {doc_id: d3, kind: line, start: 4, end: 6, own: x}   # a wrong one
    - {doc_id: d3, kind: line, start: 90, end: 91}   # elsewhere
# before q4
- id: q4
  query: &fourth What is topic 4?

- id: q5
  qid_note: 'it''s odd'
  query: What is topic 5?
  expected_chunk_ids: [c5b]  # chunk ids
  expected_doc_ids: [d5]
- id: q6
  query: What is topic 6?
  gold_supports:
    - rel_path: docs/d6.md
      heading_path: Topic 6 > Elsewhere
      snippets: ["something else"]
- id: q7
  query: What is topic 7?
  notes: |
    A long text,
    in two lines.

- id: q8
  question: What is topic 8?
  must_contain: ['kept']
- id: q9   # nothing remains of what is done here
  query: What is topic 9?
-   id: "q10"
    query: "What is topic 10?"
    same_as: *fourth
# the end
"""

AFTER = """\
# Golden queries, labelled by hand: é, “quotes” and – dashes.
- id: q1        # the first
  query: "What is topic 1?"   # plain
  expected_spans: [{doc_id: d1, kind: line, start: 1, end: 3}]
  own_field: kept as it is

- {id: q2, query: 'What is topic 2?', expected_spans: [{doc_id: d2, kind: line, start: 2, end: 2}], \
tags: [a, "b"]}   # flow
- id: q3
  query: >-
    What is
    topic 3?
  expected_spans: # by hand
    - {doc_id: d3, kind: line, start: 90, end: 91}   # elsewhere
    - {doc_id: d3, kind: line, start: 1, end: 3}
# before q4
- id: q4
  query: &fourth What is topic 4?
  answerable: false

- id: q5
  qid_note: 'it''s odd'
  query: What is topic 5?
  expected_chunk_ids: [c5b, c5a]  # chunk ids
  expected_doc_ids: [d5]
- id: q6
  query: What is topic 6?
  gold_supports:
    - rel_path: docs/d6.md
      heading_path: Topic 6 > Elsewhere
      snippets: ["something else"]
    - {rel_path: docs/d6.md, heading_path: "Topic 6 > Answers", snippets: [The answer 6]}
- id: q7
  query: What is topic 7?
  answerable: true
  must_contain: [answer 7]
  notes: |
    A long text,
    in two lines.

- id: q8
  question: "What is the eighth topic?"
  must_contain: ['kept']
- id: q9   # nothing remains of what is done here
  query: What is topic 9?
-   id: "q10"
    query: "What is topic 10?"
    expected_spans: [{doc_id: d10, kind: line, start: 1, end: 3}]
    same_as: *fourth
# the end
- id: q11
  query: "Is this one new?"
"""


def make(folder: Path) -> Workspace:
    """Ten queries, each with a text that answers it and one that does not; two chunkers."""
    workspace = Workspace(folder)
    workspace.golden = folder / "golden.yaml"
    workspace.golden.write_text(BEFORE, encoding="utf-8")
    first, second = {}, {}
    for n in range(1, 11):
        workspace.add_document(f"d{n}", f"docs/d{n}.md")
        odd = HOSTILE if n == 1 else f"More about {n}."
        add(workspace, f"c{n}a", n, (1, 3), f"Topic {n} heading\nThe answer {n} is here.\n{odd}", "md@1")
        add(workspace, f"c{n}b", n, (4, 6), f"Topic {n} again\nNothing to see in {n}.\nThe end of {n}.", "md@1")
        add(
            workspace, f"e{n}", n, (1, 4), f"Topic {n} heading\nThe answer {n} is here.\n{odd}\nTopic {n} again", "md@2"
        )
        hit = {"doc_id": f"d{n}"}
        first[f"q{n}"] = {"hits_top_k": [{**hit, "chunk_id": f"c{n}b"}, {**hit, "chunk_id": f"c{n}a"}]}
        second[f"q{n}"] = {"hits_top_k": [{**hit, "chunk_id": f"e{n}"}]}
    workspace.add_run("first", first)
    workspace.add_run("again", first)
    workspace.add_run("rechunked", second, created_at="2026-01-02", chunker="md@2")
    return workspace


def add(workspace: Workspace, chunk: str, n: int, lines: tuple[int, int], text: str, version: str) -> None:
    spans = json.dumps([{"kind": "line", "start": lines[0], "end": lines[1]}])
    headings = json.dumps([f"Topic {n}", "Answers" if lines[0] == 1 else "Rest"])
    workspace.execute(
        "INSERT INTO chunks VALUES (?, ?, ?, ?, NULL, ?, 1, ?, 'p', '[]', 'now')",
        (chunk, f"d{n}", text, headings, spans, version),
    )


class Driver(Protocol):
    """A front end, used as a person does."""

    def open(self, query_id: str) -> None: ...

    def choose(self, text: str) -> None: ...

    def press(self, key: str) -> None: ...

    def support_line(self, number: int) -> None: ...

    def must_contain(self, text: str) -> None: ...

    def answer(self, key: str, *texts: str) -> None: ...


def label_ten(driver: Driver) -> None:
    """The work of one person."""
    driver.open("q1")
    driver.choose("The answer 1")
    driver.press("s")
    driver.open("q2")
    driver.choose("The answer 2")
    driver.support_line(2)
    driver.open("q3")
    driver.choose("The answer 3")
    driver.press("s")
    driver.choose("Nothing to see in 3")
    driver.press("f")
    driver.open("q4")
    driver.press("x")
    driver.open("q5")
    driver.choose("The answer 5")
    driver.press("s")
    driver.open("q6")
    driver.choose("The answer 6")
    driver.press("s")
    driver.open("q7")
    driver.choose("The answer 7")
    driver.must_contain("answer 7")
    driver.press("a")
    driver.press("d")
    driver.open("q8")
    driver.answer("e", "What is the eighth topic?")
    driver.open("q9")
    driver.choose("The answer 9")
    driver.press("s")
    # Once more, because there is a label now.
    driver.press("x")
    driver.press("x")
    driver.press("u")
    driver.press("u")
    driver.open("q10")
    driver.choose("The answer 10")
    driver.press("s")
    driver.answer("t", "A note that is kept in the database.")
    driver.answer("+", "q11", "Is this one new?")
