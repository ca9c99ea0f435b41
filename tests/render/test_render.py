from __future__ import annotations

import csv
import io

import pytest

from kbeval.render.table import Column, render
from kbeval.util.text import csv_cell, display_width, markdown, shown

COLUMNS = [Column("name"), Column("value", right=True)]
ROWS: list[list[str | float | int | None]] = [["a", 0.3333], ["längeres wort", None], ["c", 12.0]]


def test_tables_are_aligned_and_have_no_trailing_spaces() -> None:
    assert render(COLUMNS, ROWS, "table").splitlines() == [
        "name             value",
        "a               0.3333",
        "längeres wort        –",
        "c              12.0000",
    ]


def test_wide_characters_keep_columns_straight() -> None:
    lines = render([Column("a"), Column("b")], [["日本語", "x"], ["abc", "y"]], "table").splitlines()
    assert len({display_width(line) for line in lines[1:]}) == 1


def test_csv_is_csv() -> None:
    text = render(COLUMNS, [['quote " and, comma', 0.5], ["new\nline", None]], "csv")
    assert list(csv.reader(io.StringIO(text))) == [
        ["name", "value"],
        ['quote " and, comma', "0.5"],
        ["new\nline", ""],
    ]


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@x"])
def test_no_text_becomes_a_formula_in_a_spreadsheet(formula: str) -> None:
    assert csv_cell(formula) == "'" + formula
    assert csv_cell(" \n" + formula).startswith("'")
    assert render([Column("a")], [[-0.5]], "csv") == "a\n-0.5"


def test_no_text_in_csv_moves_the_cursor() -> None:
    assert csv_cell("a\x1b[2J\ud800") == "a\\x1b[2J\\ud800"


def test_no_text_breaks_a_markdown_table() -> None:
    text = render([Column("a")], [["x | y\n| z | <script>alert(1)</script> [l](javascript:1) `c`"]], "md")
    assert len(text.splitlines()) == 3
    assert "<script>" not in text
    assert text.splitlines()[2].replace("\\|", "").count("|") == 2
    assert "[l](" not in text


def test_no_text_moves_the_cursor() -> None:
    hostile = "a\x1b[2Jb\x07\r\nc\u202ed\x9bm\u2028"
    safe = shown(hostile)
    assert safe == "a\\x1b[2Jb\\x07  c\\u202ed\\x9bm\\u2028"
    assert safe.isprintable()
    assert "\x1b" not in render([Column("a")], [[hostile]], "table")


def test_markdown_escapes_html() -> None:
    assert markdown("a<b>&c") == "a&lt;b&gt;&amp;c"
