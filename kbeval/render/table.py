"""One table, four formats. Cells are values; each format escapes them in its own way."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from kbeval.util.text import csv_cell, cut, cut_inside, display_width, json_text, markdown, shown

FORMATS = ("table", "json", "csv", "md")
if TYPE_CHECKING:
    from decimal import Decimal

Cell = Union[str, float, int, bool, "Decimal", None]
Paint = Callable[[str, str], str]


@dataclass(frozen=True)
class Column:
    """The name of a column, its header for people, its maximum width, and whether it is right-aligned.

    `ellipsis_in_middle`: text that is too long is cut in the middle.
    """

    name: str
    head: str | None = None
    width: int = 40
    right: bool = False
    ellipsis_in_middle: bool = False

    @property
    def title(self) -> str:
        return self.head if self.head is not None else self.name


def render(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], form: str, paint: Paint | None = None) -> str:
    """The table in one of FORMATS, without a trailing newline."""
    if form == "json":
        names = [column.name for column in columns]
        return json_text([dict(zip(names, row, strict=True)) for row in rows])
    if form == "csv":
        return _csv(columns, rows)
    if form == "md":
        return _markdown(columns, rows)
    return _aligned(columns, rows, paint or (lambda text, _: text))


def display_text(value: Cell) -> str:
    """A cell at a terminal: four decimals, a dash for no value."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}"
    return shown(value) if isinstance(value, str) else f"{value:,}"


def _for_programs(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else str(value)


def _aligned(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], paint: Paint) -> str:
    cells = [
        [(cut_inside if column.ellipsis_in_middle else cut)(display_text(value), column.width) for column, value in one]
        for one in (zip(columns, row, strict=True) for row in rows)
    ]
    widths = [
        max([display_width(column.title), *(display_width(row[place]) for row in cells)])
        for place, column in enumerate(columns)
    ]

    def line(texts: Sequence[str], style: str, originals: Sequence[Cell] | None = None) -> str:
        parts = []
        for place, text in enumerate(texts):
            space = " " * (widths[place] - display_width(text))
            dim = originals is not None and originals[place] is None
            painted = paint(text, "dim" if dim else style) if style or dim else text
            parts.append(space + painted if columns[place].right else painted + space)
        return "  ".join(parts).rstrip()

    head = line([column.title for column in columns], "bold")
    return "\n".join([head, *(line(texts, "", row) for texts, row in zip(cells, rows, strict=True))])


def _csv(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    import csv

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([csv_cell(column.name) for column in columns])
    for row in rows:
        writer.writerow([csv_cell(value) if isinstance(value, str) else _for_programs(value) for value in row])
    return out.getvalue().removesuffix("\n")


def _markdown(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(texts) + " |"

    rule = ["---:" if column.right else "---" for column in columns]
    body = [
        line([markdown(v) if isinstance(v, str) else "" if v is None else display_text(v) for v in row]) for row in rows
    ]
    return "\n".join([line([markdown(column.title) for column in columns]), line(rule), *body])
