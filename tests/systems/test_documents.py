"""`kbeval import documents`: from a folder of text files to two runs that are compared, with no other program."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.cli import run
from kbeval.systems.chunking import HEADINGS, LINES, Document, Policy
from kbeval.systems.documents import read_folder

SIGN_IN = """\
# Signing in

Use your password.
After five wrong passwords the account is locked for fifteen minutes.

## Two-factor sign-in ##

Keep the recovery codes.

```sh
# not a heading
```

### Lost codes
Ask support.

## Single sign-on
Part of the Team plan.
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


def call(*arguments: str) -> Done:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = run(list(arguments))
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "help" / "account").mkdir(parents=True)
    (tmp_path / "help" / "account" / "sign-in.md").write_text(SIGN_IN)
    (tmp_path / "help" / "note.txt").write_bytes(b"\xef\xbb\xbf# no heading in plain text\r\nsecond line\r\n")
    (tmp_path / "help" / "empty.md").write_text("\n \n")
    (tmp_path / "help" / ".hidden.md").write_text("hidden")
    (tmp_path / "help" / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / "outside.md").write_text("outside")
    (tmp_path / "help" / "link.md").symlink_to(tmp_path / "outside.md")
    return tmp_path


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "kb.db")) as connection:
        return connection.execute(sql).fetchall()


def test_headings_and_lines_become_chunks_with_their_places(folder: Path) -> None:
    done = call("import", "documents", "help", "--db", "kb.db")
    assert (done.code, done.out) == (0, "headings-60@1\n")
    assert "2 documents (2 new), 5 chunks" in done.err
    assert "1 empty file" in done.err
    assert rows(folder, "SELECT doc_id, workspace_path, title FROM documents ORDER BY 1") == [
        ("account/sign-in.md", "account/sign-in.md", "Signing in"),
        ("note.txt", "note.txt", "note.txt"),
    ]
    found = rows(folder, "SELECT source_spans_json, heading_path_json, section_label, text FROM chunks ORDER BY rowid")
    places = [(json.loads(span)[0]["start"], json.loads(span)[0]["end"], json.loads(path)) for span, path, *_ in found]
    assert places == [
        (1, 4, ["Signing in"]),
        (6, 12, ["Signing in", "Two-factor sign-in"]),
        (14, 15, ["Signing in", "Two-factor sign-in", "Lost codes"]),
        (17, 18, ["Signing in", "Single sign-on"]),
        (1, 2, []),
    ]
    lines = SIGN_IN.split("\n")
    assert [text for *_, text in found[:4]] == ["\n".join(lines[a - 1 : b]) for a, b, _ in places[:4]]
    assert found[4][3] == "# no heading in plain text\nsecond line"
    assert found[2][2] == "Lost codes"


def test_the_same_again_changes_nothing_and_other_files_change_every_chunker(folder: Path) -> None:
    first = call("import", "documents", "help", "--db", "kb.db", "--chunker", "lines", "--size", "4")
    second = call("import", "documents", "help", "--db", "kb.db", "--chunker", "headings")
    assert (first.out, second.out) == ("lines-4@1\n", "headings-60@1\n")
    before = rows(folder, "SELECT * FROM chunks ORDER BY 1"), (folder / "kb.db").read_bytes()
    again = call("import", "documents", "help/", "--db", "kb.db", "--chunker", "lines", "--size", "4")
    assert "unchanged: 2 documents" in again.err
    assert (rows(folder, "SELECT * FROM chunks ORDER BY 1"), (folder / "kb.db").read_bytes()) == before

    (folder / "help" / "note.txt").unlink()
    (folder / "help" / "new.md").write_text("# New\nnew text\n")
    (folder / "help" / "account" / "sign-in.md").write_text(SIGN_IN.replace("fifteen", "twenty"))
    changed = call("import", "documents", "help", "--db", "kb.db")
    assert "(1 new, 1 changed, 1 removed)" in changed.err
    assert "lines-4@1 were updated" in changed.err
    now = rows(folder, "SELECT DISTINCT chunker_version, doc_id FROM chunks ORDER BY 1, 2")
    assert now == [(v, d) for v in ("headings-60@1", "lines-4@1") for d in ("account/sign-in.md", "new.md")]
    assert rows(folder, "SELECT COUNT(*) FROM chunks WHERE text LIKE '%twenty%'") == [(2,)]
    assert rows(folder, "SELECT COUNT(*) FROM chunks WHERE text LIKE '%fifteen%'") == [(0,)]
    assert len(rows(folder, "SELECT DISTINCT policy_hash FROM chunks")) == 2


def test_two_chunkings_are_two_runs_that_are_compared(folder: Path) -> None:
    (folder / "golden.yaml").write_text(
        "- {id: q1, query: How long is the account locked?,"
        " expected_spans: [{doc_id: account/sign-in.md, kind: line, start: 4, end: 4}]}\n"
        "- {id: q2, query: Who has single sign-on?,"
        " expected_spans: [{path: account/sign-in.md, kind: line, start: 18, end: 18}]}\n"
    )
    (folder / "kbeval.toml").write_text('db = "kb.db"\ngolden = "golden.yaml"\n')
    lines = call("import", "documents", "help", "--chunker", "lines", "--size", "2").out.strip()
    headings = call("import", "documents", "help").out.strip()
    for name, version in (("a", lines), ("b", headings)):
        done = call("run", "--target", "bm25", "--chunker-version", version, "--run-id", name)
        assert done.code == 0, done.err
    compared = call("compare", "a", "b", "--format", "json")
    assert compared.code == 0, compared.err
    report = json.loads(compared.out)
    # Truth by hand: with two lines per chunk, line 18 is a chunk without the words of its heading.
    assert report["aggregate_b"]["mrr"] == 1.0
    assert {row["query_id"] for row in report["per_query"]} == {"q1", "q2"}
    stored = rows(folder, "SELECT run_id, result_json FROM eval_query_results")
    versions = {(run, hit["chunker_version"]) for run, row in stored for hit in json.loads(row)["hits_top_k"]}
    assert versions == {("a", lines), ("b", headings)}
    unknown = call("run", "--target", "bm25", "--chunker-version", "headings-6@1")
    assert unknown.code == 2
    assert "did you mean 'headings-60@1'" in unknown.err


@pytest.mark.parametrize(
    ("sql", "fragment"),
    [
        ("INSERT INTO documents VALUES ('d1', 'd1.md', NULL, NULL)", "documents of kb.db has 1 row"),
        (
            "INSERT INTO chunks VALUES ('c1', 'd1', 'text', '[]', NULL, '[]', 1, 'md@1', 'p', '[]', '2026')",
            "chunks of kb.db has 1 row",
        ),
        ("ALTER TABLE chunks ADD COLUMN embedding BLOB", "has a column 'embedding'"),
        ("ALTER TABLE documents DROP COLUMN lang", "has no column 'lang'"),
        ("DROP TABLE chunks; CREATE VIEW chunks AS SELECT 1 AS chunk_id", "is not a table"),
    ],
)
def test_tables_of_another_program_are_refused_and_stay_as_they_are(folder: Path, sql: str, fragment: str) -> None:
    assert call("import", "documents", "help", "--db", "kb.db").code == 0
    with closing(sqlite3.connect(folder / "kb.db")) as connection:
        connection.executescript(sql)
    before = (folder / "kb.db").read_bytes()
    (folder / "help" / "new.md").write_text("new")
    done = call("import", "documents", "help", "--db", "kb.db")
    assert done.code == 2
    assert fragment in done.err
    assert done.err.count("\n") == 1
    assert (folder / "kb.db").read_bytes() == before


def test_wrong_input_is_one_line_and_leaves_no_database(folder: Path) -> None:
    (folder / "none").mkdir()
    (folder / "latin").mkdir()
    (folder / "latin" / "a.txt").write_bytes("größe".encode("latin-1"))
    (folder / "binary").mkdir()
    (folder / "binary" / "a.md").write_bytes(b"a\0b")
    (folder / "other").mkdir()
    (folder / "other" / "x.md").write_text("other")
    cases = {
        ("missing",): "does not exist",
        ("outside.md",): "is not a folder",
        ("none",): "contains no files that end in",
        ("latin",): "a.txt is not UTF-8 text (byte 3)",
        ("binary",): "NUL",
        ("help", "--overlap", "60"): "must be smaller",
        ("help", "--size", "0"): "--size",
        ("help", "--chunker", "words"): "--chunker",
    }
    for arguments, fragment in cases.items():
        done = call("import", "documents", *arguments, "--db", "kb.db")
        assert (done.code, done.err.count("\n")) == (2, 1), (arguments, done.err)
        assert fragment in done.err, (arguments, done.err)
        assert not (folder / "kb.db").exists(), arguments
    (folder / "text.db").write_text("not a database")
    assert "not a SQLite database" in call("import", "documents", "help", "--db", "text.db").err
    assert call("import", "documents", "help", "--db", "kb.db").code == 0
    other = call("import", "documents", "other", "--db", "kb.db")
    assert other.code == 2
    assert "documents of another folder" in other.err


def test_files_are_read_in_one_order_without_links_and_hidden_ones(folder: Path) -> None:
    assert [document.doc_id for document in read_folder(folder / "help")] == [
        "account/sign-in.md",
        "empty.md",
        "note.txt",
    ]


@given(
    st.lists(st.sampled_from(["", " ", "# A", "## B", "text", "```", "~~~", "#nothing"]), max_size=40),
    st.sampled_from([HEADINGS, LINES]),
    st.integers(1, 8),
    st.data(),
)
def test_every_line_with_text_is_in_a_chunk_and_ids_are_unique(
    lines: list[str], chunker: str, size: int, data: st.DataObject
) -> None:
    policy = Policy(chunker, size, data.draw(st.integers(0, size - 1)))
    document = Document("d.md", tuple(lines), is_markdown=True, text_sha256="")
    chunks = list(policy.chunks(document))
    assert len({chunk[0] for chunk in chunks}) == len(chunks)
    covered: set[int] = set()
    for chunk in chunks:
        ((start, end),) = [(span["start"], span["end"]) for span in json.loads(chunk[5])]
        assert end - start < size
        assert chunk[2] == "\n".join(lines[start - 1 : end])
        covered |= set(range(start, end + 1))
    assert {number for number, line in enumerate(lines, start=1) if line.strip()} <= covered
