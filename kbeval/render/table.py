"""One table, four formats. Cells are values; each format shows them in its own safe way."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any

from kbeval.text import csv_cell, cut, cut_inside, display_width, json_shown, markdown, shown

FORMATS = ("table", "json", "csv", "md")
Cell = str | float | int | bool | Decimal | None
Paint = Callable[[str, str], str]


@dataclass(frozen=True)
class Column:
    """A column's name, how its head is shown to eyes, how wide text may get there, and on which side it stands.

    `ends_matter`: what is too long is cut in the middle.
    """

    name: str
    head: str | None = None
    width: int = 40
    right: bool = False
    ends_matter: bool = False

    @property
    def title(self) -> str:
        return self.head if self.head is not None else self.name


def render(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], form: str, paint: Paint | None = None) -> str:
    """The table in one of FORMATS, without a newline at the end."""
    if form == "json":
        names = [column.name for column in columns]
        return json_text([dict(zip(names, row, strict=True)) for row in rows])
    if form == "csv":
        return _csv(columns, rows)
    if form == "md":
        return _markdown(columns, rows)
    return _aligned(columns, rows, paint or (lambda text, _: text))


def json_text(value: Any) -> str:  # noqa: ANN401  (anything that JSON can hold)
    """JSON for programs that people also read. What it cannot say (NaN, a date, half a character) does not stop it."""
    return json_shown(json.dumps(_sayable(value), ensure_ascii=False, indent=2, allow_nan=False))


def _sayable(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _sayable(inner) for key, inner in value.items()}
    # TOML has dates and times.
    if isinstance(value, date | time):
        return value.isoformat()
    return [_sayable(inner) for inner in value] if isinstance(value, list | tuple) else value


def for_eyes(value: Cell) -> str:
    """A cell at a terminal: four decimals, a dash for no value."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int | Decimal) else shown(value)


def _for_programs(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | Decimal) else repr(value)


def _aligned(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], paint: Paint) -> str:
    cells = [
        [(cut_inside if column.ends_matter else cut)(for_eyes(value), column.width) for column, value in one]
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
        line([markdown(v) if isinstance(v, str) else "" if v is None else for_eyes(v) for v in row]) for row in rows
    ]
    return "\n".join([line([markdown(column.title) for column in columns]), line(rule), *body])
