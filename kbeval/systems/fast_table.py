"""Tables with one row per hit, as columns: the JSON of a million hits without an object for each.

Only for regular tables; for any other, None is returned, and `tables` checks every row and reports what is wrong. A
test compares what both store, byte for byte.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from kbeval.systems.json_columns import OddError, need, objects, piece
from kbeval.systems.tool_files import MOST_ROWS, delimiter_of

_IDS = ("chunk_id", "doc_id")
_TEXTS = ("doc_path", "chunker_version", "text", "snippet")
# Columns of hits whose values have a form of their own.
_STRUCTURED = ("token_count", "source_spans", "citation")
_LARGEST = 1e300
# Text that looks like JSON is not an id.
_CONTAINER = r'^(\{"|\["|\[\[|\[\{|\{\}|\[\])'
_RUN, _QUERY, _RANK, _HIT = "kbeval run", "kbeval query", "kbeval rank", "kbeval hit"
_GROUP = [_RUN, _QUERY]


@dataclass(frozen=True)
class FastQuery:
    """One query: its fields, and its hits as JSON, with commas between them."""

    run_id: str
    query_id: str
    fields: Mapping[str, Any]
    hits: str
    # Its hits have no ranks, and are not in the order of their scores.
    is_unordered: bool


def read_columns(path: Path) -> pl.DataFrame | None:
    """A table as columns, those of CSV as text; None if it is not obviously sound, or of another format."""
    ending = path.suffix.lower()
    try:
        if ending in (".csv", ".tsv"):
            return _csv(path.read_bytes(), "\t" if ending == ".tsv" else ",")
        return _parquet(path) if ending == ".parquet" else None
    except (OddError, OSError, pa.ArrowException, pl.exceptions.PolarsError, ValueError):
        return None


def _csv(data: bytes, usual: str) -> pl.DataFrame:
    data = data.removeprefix(b"\xef\xbb\xbf")
    header, _, rest = data.partition(b"\n")
    first = header.removesuffix(b"\r").decode()
    need(b"\0" not in data and '"' not in first and data.count(b"\r") == data.count(b"\r\n"))
    delimiter = delimiter_of(first, usual)
    names = next(csv.reader([first], delimiter=delimiter), [])
    need(len(names) > 1 and all(names) and len(set(names)) == len(names) and _quotes_are_sound(rest, delimiter))
    table = pyarrow.csv.read_csv(
        pa.BufferReader(rest),
        read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=8 << 20),
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in rest),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
        ),
    )
    return _frame(table)


def _quotes_are_sound(data: bytes, delimiter: str) -> bool:
    """Does each quotation begin and end with its cell? Readers differ about any other."""
    if b'"' not in data:
        return True
    codes = np.frombuffer(data, dtype=np.uint8)
    at = np.flatnonzero(codes == ord('"'))
    if len(at) % 2:
        return False
    # Within a quotation, two marks stand for one: the first ends it, and the second begins it again.
    around = np.array([ord(delimiter), ord("\n"), ord("\r"), ord('"')], dtype=np.uint8)
    opened, closed = at[::2], at[1::2]
    before = codes[np.maximum(opened - 1, 0)]
    after = codes[np.minimum(closed + 1, len(codes) - 1)]
    is_sound = (opened == 0) | np.isin(before, around)
    return bool(is_sound.all() and ((closed == len(codes) - 1) | np.isin(after, around)).all())


def _parquet(path: Path) -> pl.DataFrame:
    with pq.ParquetFile(path, memory_map=False) as file:
        need(file.metadata.num_rows <= MOST_ROWS)
        frame = _frame(file.read())
    for name, kind in frame.schema.items():
        need(kind in (pl.String, pl.Boolean, pl.Null) or kind.is_integer() or kind in (pl.Float32, pl.Float64))
        need(not kind.is_integer() or kind.to_python() is int)
        if kind.is_float():
            whole = pl.col(name).cast(pl.Float64)
            frame = frame.with_columns(pl.when(whole.is_finite()).then(whole).alias(name))
    return frame


def _frame(table: pa.Table) -> pl.DataFrame:
    need(table.num_rows > 0 and len(set(table.column_names)) == len(table.column_names))
    found = pl.from_arrow(table)
    need(isinstance(found, pl.DataFrame))
    return found  # type: ignore[return-value]


def read_queries(
    frame: pl.DataFrame, *, run_id: str | None, usual_id: str, of_query: Sequence[str], by_score: bool
) -> list[FastQuery] | None:
    """The queries of a table with one row per hit, in the order in which they come; columns have our names.

    `run_id`: of all rows; otherwise their column run_id, or `usual_id`. `of_query`: the columns that belong to queries.
    """
    try:
        return list(_queries(frame, run_id, usual_id, of_query, by_score=by_score))
    except (OddError, pl.exceptions.PolarsError):
        return None


def _queries(
    frame: pl.DataFrame, run_id: str | None, usual_id: str, of_query: Sequence[str], *, by_score: bool
) -> Iterator[FastQuery]:
    ours = [name for name in of_query if name in frame.columns]
    names = [name for name in frame.columns if name not in (*of_query, "query_id", "run_id")]
    queries = _ids(frame["query_id"])
    need(not queries.null_count())
    if run_id is None and "run_id" in frame.columns:
        runs = _ids(frame["run_id"]).fill_null(usual_id)
    else:
        runs = pl.repeat(usual_id if run_id is None else run_id, frame.height, dtype=pl.String, eager=True)
    table = frame.select(
        *(pl.Series(name, _checked(frame[name])) for name in names),
        *(pl.col(name).alias(f"of {name}") for name in ours),
    ).with_columns(queries.alias(_QUERY), runs.alias(_RUN))
    is_hit = pl.any_horizontal(pl.col(name).is_not_null() for name in _IDS if name in names)
    counts = table.select(is_hit.alias("is_hit"), n=pl.len().over(_GROUP))
    # A query for which nothing was found may have one row without a hit.
    need(counts.select((pl.col("is_hit") | (pl.col("n") == 1)).all()).item())
    table = _ranked(table.with_columns(counts["is_hit"].alias(_HIT)), by_score=by_score)
    written = _hits(table, names, by_score=by_score)
    grouped = table.with_columns(written.alias(_HIT)).group_by(_GROUP, maintain_order=True)
    found = grouped.agg(
        pl.col(_HIT).str.join(", "),
        _is_unordered(table, by_score=by_score),
        *(pl.col(f"of {name}").drop_nulls().first() for name in ours),
        *(pl.col(f"of {name}").drop_nulls().n_unique().alias(f"n {name}") for name in ours),
    )
    need(all((found[f"n {name}"] <= 1).all() for name in ours))
    for row in found.iter_rows(named=True):
        fields = {name: row[f"of {name}"] for name in ours if row[f"of {name}"] is not None}
        yield FastQuery(row[_RUN], row[_QUERY], fields, row[_HIT], row["is unordered"])


def _ids(values: pl.Series) -> pl.Series:
    """Ids as text; nothing that the slow way would refuse."""
    need(values.dtype == pl.String or values.dtype.is_integer() or values.dtype == pl.Null)
    found = values.cast(pl.String)
    need(not found.str.contains(r"^$|\x00").any() and not found.str.contains(_CONTAINER).any())
    return found


def _checked(values: pl.Series) -> pl.Series:
    """A column of hits, with values of the type that they have in a hit."""
    name, kind = values.name, values.dtype
    if values.null_count() == len(values):
        return values.cast(pl.String)
    need(name not in _STRUCTURED)
    if name in _IDS:
        return _ids(values)
    if name in _TEXTS:
        need(kind == pl.String)
    if name == "rank":
        if kind == pl.String:
            need(values.str.contains(r"^[1-9][0-9]{0,14}$").all())
            values = values.cast(pl.Int64)
        need(values.dtype.is_integer() and (values.drop_nulls() >= 1).all() and (values.drop_nulls() < 2**62).all())
        return values.cast(pl.Int64)
    if name == "score":
        found = values.cast(pl.Float64, strict=False)
        need(kind != pl.Boolean and found.null_count() == values.null_count())
        need(not values.dtype.is_integer() or (values.drop_nulls().abs() < 2**53).all())
        numbers = found.drop_nulls()
        need(numbers.is_finite().all() and (numbers.abs() < _LARGEST).all())
        return found if kind == pl.String else values
    return values


def _ranked(table: pl.DataFrame, *, by_score: bool) -> pl.DataFrame:
    """Add the rank of each hit: as given, by its position, or by its score."""
    hits = table.filter(pl.col(_HIT))
    has_rank = "rank" in table.columns and bool(hits["rank"].count())
    need(not has_rank or not hits["rank"].null_count())
    place = pl.int_range(1, pl.len() + 1).over(_GROUP).alias(_RANK)
    if not by_score:
        return table.with_columns(pl.col("rank").alias(_RANK) if has_rank else place)
    need("score" in table.columns and not hits["score"].null_count() and hits["score"].dtype.is_numeric())
    names = pl.coalesce(pl.col(name) for name in _IDS if name in table.columns).alias("kbeval name")
    need(not hits.select(*_GROUP, names).is_duplicated().any())
    number = pl.int_range(pl.len()).alias("kbeval number")
    first = pl.col("kbeval number").min().over(_GROUP).alias("kbeval first")
    single = (pl.col("score").cast(pl.Float64).cast(pl.Float32) + pl.lit(0.0, pl.Float32)).alias("kbeval score")
    # The queries in the order in which they come, the hits of each by score, then by id.
    ordered = table.with_columns(number).with_columns(first, names, single)
    ordered = ordered.sort("kbeval first", "kbeval score", "kbeval name", descending=[False, True, True])
    return ordered.with_columns(place)


def _is_unordered(table: pl.DataFrame, *, by_score: bool) -> pl.Expr:
    """Are the scores of a query neither falling nor rising, although nothing else gives an order?"""
    score = pl.col("score") if "score" in table.columns else None
    if by_score or score is None or not table["score"].dtype.is_numeric():
        return pl.lit(value=False).alias("is unordered")
    change = score.cast(pl.Float64).diff()
    both = (change > 0).any() & (change < 0).any() & (score.null_count() == 0)
    if "rank" in table.columns:
        both &= pl.col("rank").count() == 0
    return both.alias("is unordered")


def _hits(table: pl.DataFrame, names: Sequence[str], *, by_score: bool) -> pl.Series:
    """The JSON of each hit, as `json.dumps` writes it; null for a row without one."""
    has_rank = "rank" in names and bool(table["rank"].count())
    # By score, or without ranks, the rank is put first.
    pieces = [] if has_rank and not by_score else [piece("rank", table[_RANK])]
    for name in names:
        values = table[name]
        if values.null_count() == len(values) or (name == "rank" and by_score):
            continue
        pieces.append(piece(name, values))
    if has_rank and by_score:
        differs = table["rank"] != table[_RANK]
        given = table.select(pl.when(differs).then(pl.col("rank"))).to_series()
        pieces.append(piece("table_rank", given))
    return pl.select(pl.when(table[_HIT]).then(objects(pieces))).to_series()
