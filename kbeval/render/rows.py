"""Rows of any query in any format, written batch by batch: memory does not grow with the result.

A query may return anything: times, decimals, lists, structures, non-finite numbers. Here each becomes a value that
every format can represent. Text is escaped by `kbeval.render.table`, as everywhere.
"""

from __future__ import annotations

import decimal
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kbeval.render.table import FORMATS, Cell, Column, Paint, render
from kbeval.util.text import json_shown, json_text, shown

Rows = Iterable[Sequence[Sequence[Any]]]
Write = Callable[[str], None]

ROW_FORMATS = (*FORMATS, "jsonl", "parquet")
# The extension of a file determines its format.
ENDINGS = {
    ".txt": "table",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".md": "md",
    ".markdown": "md",
    ".parquet": "parquet",
    **({".html": "html", ".htm": "html"} if "html" in FORMATS else {}),
}


# Created once: it is used for every value of every row.
_PLAIN = (str, int, decimal.Decimal)


def write_rows(columns: Sequence[str], batches: Rows, form: str, write: Write, paint: Paint | None = None) -> None:
    """Write a result in one of ROW_FORMATS, except Parquet."""
    if form == "json":
        _write_json(columns, batches, write)
    elif form == "jsonl":
        for batch in batches:
            write("".join(_json_line(columns, row) + "\n" for row in batch))
    elif form in ("csv", "md", "table"):
        _write_table(columns, batches, form, write, paint)
    else:
        # A format that cannot be written in pieces.
        rows = [row for batch in batches for row in batch]
        write(
            render(_columns(columns, rows, form), [[cell(value, form) for value in row] for row in rows], form) + "\n"
        )


def _write_json(columns: Sequence[str], batches: Rows, write: Write) -> None:
    """The same text as for the whole list at once."""
    before = "[\n  "
    for batch in batches:
        for row in batch:
            value = {name: jsonable(value) for name, value in zip(columns, row, strict=True)}
            write(before + json_text(value).replace("\n", "\n  "))
            before = ",\n  "
    write("[]\n" if before == "[\n  " else "\n]\n")


def _json_line(columns: Sequence[str], row: Sequence[Any]) -> str:
    value = {name: jsonable(value) for name, value in zip(columns, row, strict=True)}
    return _compact(value)


def _write_table(columns: Sequence[str], batches: Rows, form: str, write: Write, paint: Paint | None) -> None:
    """Every batch is rendered as a table, and only the first one keeps its header."""
    heads: list[Column] | None = None
    for batch in batches:
        is_first = heads is None
        heads = heads or _columns(columns, batch, form)
        text = render(heads, [[cell(value, form) for value in row] for row in batch], form, paint)
        if not is_first:
            # The header of an aligned table is as wide as its rows, and always one line.
            text = text.partition("\n")[2] if form == "table" else text[len(render(heads, [], form)) + 1 :]
        write(text + "\n")
    if heads is None:
        write(render(_columns(columns, [], form), [], form, paint) + "\n")


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]], form: str) -> list[Column]:
    """Numbers are right-aligned; if there are few columns, they may be wide."""
    width = 200 if len(names) == 1 else 80 if len(names) < 4 else 40
    found = []
    for place, name in enumerate(names):
        values = [row[place] for row in rows if row[place] is not None]
        right = bool(values) and all(
            isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool) for value in values
        )
        found.append(Column(name, shown(name) if form == "table" else name, width, right))
    return found


def cell(value: Any, form: str) -> Cell:  # noqa: ANN401  (whatever a query returns)
    """A value for a table or CSV: lists and structures as JSON, times as text."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return _float_cell(value, form)
    if isinstance(value, list | tuple | dict):
        return _compact(jsonable(value))
    return str(jsonable(value))


def _float_cell(value: float, form: str) -> Cell:
    """Four decimals suit scores; smaller and larger numbers are written out."""
    if form == "csv" or value == 0 or not math.isfinite(value):
        return value
    return value if 0.0001 <= abs(value) < 1e15 else f"{value:g}"


def jsonable(value: Any) -> Any:  # noqa: ANN401  (whatever a query returns)
    """A value that JSON can represent."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        # JSON cannot represent NaN and infinity.
        return value if math.isfinite(value) else None
    if isinstance(value, decimal.Decimal):
        return _number(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(jsonable(key)): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [jsonable(inner) for inner in value]
    return value.hex() if isinstance(value, bytes) else str(value)


def _number(value: decimal.Decimal) -> float | int | str:
    """A number if that is exact, otherwise its digits as text."""
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    return float(value) if decimal.Decimal(repr(float(value))) == value else str(value)


def _compact(value: Any) -> str:  # noqa: ANN401  (anything that JSON can hold)
    return json_shown(json.dumps(value, ensure_ascii=False, allow_nan=False))
