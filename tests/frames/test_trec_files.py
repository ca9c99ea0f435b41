"""TREC files as people have them: white space of any kind, comments, odd ids; and broken ones, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbeval.errors import KbevalError
from kbeval.frames.trec_files import read_trec_lines, read_trec_qrels, read_trec_run

LINE = b"q1 Q0 d1 1 0.5 t\n"
ONE = [("q1", "d1", 0.5)]


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (LINE, ONE),
        (LINE.rstrip(), ONE),
        (LINE + LINE, ONE * 2),
        (LINE + b"q1 Q0  d1 1 0.5 t\n", ONE * 2),
        (b"q1  Q0 d1 1 0.5 t\n" + LINE, ONE * 2),
        (LINE + b"  q1 Q0 d1 1 0.5 t \n", ONE * 2),
        (LINE + b"\n\n" + LINE, ONE * 2),
        (LINE.replace(b" ", b"\t"), ONE),
        (LINE.replace(b" ", b" \t ").replace(b"\n", b"\r\n"), ONE),
        (b"# hello\n" + LINE + b"# a b c d e\n#\n" + LINE + b"#", ONE * 2),
        (b"\xef\xbb\xbf" + LINE, ONE),
        (LINE.replace(b"d1", b'"d#1'), [("q1", '"d#1', 0.5)]),
        (LINE.replace(b"d1", b"NA"), [("q1", "NA", 0.5)]),
        (LINE.replace(b"d1", "ü".encode()), [("q1", "ü", 0.5)]),
        (LINE.replace(b"0.5", b"+.5E0"), ONE),
        (LINE.replace(b"q1", b"007"), [("007", "d1", 0.5)]),
        (b"", []),
        (b"\n \n", []),
        (b"# nothing\n", []),
    ],
)
def test_run_files_in_any_form(tmp_path: Path, data: bytes, rows: list[tuple[str, str, float]]) -> None:
    path = tmp_path / "a.run"
    path.write_bytes(data)
    found = read_trec_run(path)
    assert found.frame.rows() == rows
    assert found.tag == ("t" if rows else "")
    assert read_trec_lines(path).select("query", "document", "score").rows() == rows


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (LINE + b"q1 Q0 d1 1 0.5\n", "line 2: has 5 columns"),
        (LINE + b"# x\nq1 Q0  d1 1 0.5\n", "line 3: has 5 columns"),
        (LINE + b"q1 Q0 d1 1 0.5 t x\n", "line 2: has 7 columns"),
        # A separator too many is not a column.
        (LINE + b"q1 Q0 d1 1 0.5 \n", "line 2: has 5 columns"),
        (LINE + b"q1 Q0 d1 1 0.5 ", "line 2: has 5 columns"),
        (LINE + b"q1  d1 1 0.5 t\n", "line 2: has 5 columns"),
        (LINE + b" Q0 d1 1 0.5 t\n", "line 2: has 5 columns"),
        (LINE.replace(b" ", b"\t") + b"q1\t\td1\t1\t0.5\tt\n", "line 2: has 5 columns"),
        (LINE + b"q1 Q0 d1 1 nan t\n", "the score 'nan' is not a number"),
        (LINE + b"q1 Q0 d1 1 1_0 t\n", "the score '1_0' is not a number"),
        (LINE + b"q1 Q0 d1 1 0x1A t\n", "the score '0x1A' is not a number"),
        (LINE + b"q1 Q0 d\xff 1 10 t\n", "line 2: is not UTF-8 text"),
        (b"\x00\xff\n\xfe\n" * 9, "is it the right file?"),
    ],
)
def test_broken_run_files_name_the_line(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "a.run"
    path.write_bytes(data)
    with pytest.raises(KbevalError) as caught:
        read_trec_run(path)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_judgements(tmp_path: Path) -> None:
    path = tmp_path / "a.qrels"
    path.write_bytes(b"q1 0 d1 1\nq1\t0 d2  -1\n# x\n")
    assert read_trec_qrels(path).rows() == [("q1", "d1", 1.0), ("q1", "d2", -1.0)]
    for data, complaint in (
        (b"q1 0 d1 1\nq1 0 d1 1.5\n", "line 2: the grade '1.5' is not an integer"),
        (b"q1 0 d1 99999999999\n", "is above 1,000,000,000"),
        (b"q1 0 d1 1\nq1 0 d1\n", "line 2: has 3 columns"),
    ):
        path.write_bytes(data)
        with pytest.raises(KbevalError, match=complaint):
            read_trec_qrels(path)
