"""JSON of many small objects from columns, as `json.dumps` writes it, without an object for each."""

from __future__ import annotations

import json
from collections.abc import Sequence

import polars as pl

# As JSON escapes them; other control characters are left to the slow way.
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\b", "\\b"), ("\f", "\\f"))
_SPECIAL, _ODD = r'["\\\x00-\x1f]', r"[\x00-\x07\x0b\x0e-\x1f]"


class OddError(Exception):
    """A value that requires checking each row."""


def need(is_so: object) -> None:
    """Leave everything to the slow way unless the condition holds."""
    if not is_so:
        raise OddError


def objects(pieces: Sequence[pl.Series]) -> pl.Series:
    """One object per row, from the pieces that are not null."""
    parts = pl.DataFrame(pieces)
    return "{" + parts.select(pl.concat_str(pl.all(), separator=", ", ignore_nulls=True)).to_series() + "}"


def piece(name: str, values: pl.Series) -> pl.Series:
    """`"name": value` in JSON; null where there is no value."""
    if values.dtype == pl.String:
        found = '"' + _escaped(values) + '"'
    elif values.dtype.is_float():
        found = _floats(values)
    else:
        found = values.cast(pl.String)
    return (f"{json.dumps(name, ensure_ascii=False)}: " + found).alias(name)


def _escaped(values: pl.Series) -> pl.Series:
    if not values.str.contains(_SPECIAL).any():
        return values
    need(not values.str.contains(_ODD).any())
    for character, escape in _ESCAPES:
        values = values.str.replace_all(character, escape, literal=True)
    return values


def _floats(values: pl.Series) -> pl.Series:
    """Numbers as Python writes them: the engine writes other exponents for very large and very small ones."""
    size = values.abs()
    is_plain = ((size >= 1e-3) & (size < 1e15)) | (size == 0)
    texts = values.cast(pl.String)
    odd = values.filter(~is_plain.fill_null(value=True)).unique()
    if not len(odd):
        return texts
    written = pl.DataFrame({"value": odd, "text": [repr(float(value)) for value in odd]})
    joined = pl.DataFrame({"value": values}).join(written, on="value", how="left", maintain_order="left")
    return pl.select(pl.coalesce(joined["text"], texts)).to_series()
