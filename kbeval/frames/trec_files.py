"""TREC files: runs (`query Q0 document rank score tag`) and judgements (`query 0 document grade`).

Columns are separated by any white space, and lines that begin with `#` are comments, as for trec_eval. Files with one
space or tab between columns, as most programs write them, are read at once; any other file is converted to that form
first. If that fails, the file is read line by line, and every fault is reported with its line.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv

from kbeval.errors import KbevalError
from kbeval.frames.ranking import BY_RANK, BY_SCORE, DOC, GRADE, QUERY, RANK, SCORE, numbered_from_one
from kbeval.util.numbers import MAX_GRADE
from kbeval.util.text import counted, cut

_RUN = ("query", "Q0", "document", "rank", "score", "tag")
_QRELS = ("query", "0", "document", "grade")
_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?inf(?:inity)?", re.IGNORECASE)
_WHOLE = re.compile(rb"[-+]?\d{1,18}")
_MOST_FAULTS = 1000
# What fits into the processor's cache.
_PIECE = 1 << 18
# Larger ranks are refused.
MOST_RANKS = 10**9


@dataclass(frozen=True)
class TrecRun:
    """A run file: query_id, doc_id, score (or rank), in the order of the file; and the tag of its first line."""

    frame: pl.DataFrame
    tag: str


class TrecFileError(KbevalError):
    """A TREC file with invalid lines; each is reported."""

    def __init__(self, path: str, faults: list[str], form: tuple[str, ...], *, has_rows: bool) -> None:
        about = f"a line has {counted(len(form), 'column')}: {' '.join(form)}"
        if len(faults) > 1 and not has_rows:
            super().__init__(f"{path}: no line can be read; is it the right file? ({faults[0]}; {about})")
        elif len(faults) == 1:
            super().__init__(f"{path}, {faults[0]}; {about}")
        else:
            number = f"{len(faults):,}" if len(faults) < _MOST_FAULTS else f"at least {_MOST_FAULTS:,}"
            super().__init__(f"{path}: {number} invalid lines; {about}", faults)


def read_trec_run(path: str | os.PathLike[str], order: str = BY_SCORE) -> TrecRun:
    """Read a run file: by score, its rank column is ignored; by rank, that is what is read."""
    found, tag = _run_columns(_read(path), str(path), order)
    if order == BY_RANK:
        found = numbered_from_one(found, str(path))
    return TrecRun(found.drop(SCORE) if order == BY_RANK else found, tag)


def _run_columns(data: bytes, path: str, order: str) -> tuple[pl.DataFrame, str]:
    frame = _read_fast(data, _RUN, pa.float64(), with_rank=order == BY_RANK)
    if frame is None:
        frame = _read_slowly(data, path, _RUN, with_rank=order == BY_RANK)
    found = frame.rename({"query": QUERY, "document": DOC, "score": SCORE})
    tag = found["tag"][0] if found.height else ""
    return found.select(QUERY, DOC, *([RANK] if order == BY_RANK else []), SCORE), str(tag)


def read_trec_lines(path: str | os.PathLike[str], order: str = BY_SCORE) -> pl.DataFrame:
    """Every column of a run file, as text except for the score: query, Q0, document, rank, score, tag.

    By rank, `place` is added: the rank as a number, from 1 on.
    """
    data = _read(path)
    checked, _ = _run_columns(data, str(path), order)
    frame = _texts_fast(data)
    if frame is None or frame.height != checked.height:
        lines = (line.split() for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if not line.startswith(b"#"))
        rows = [tuple(map(bytes.decode, fields)) for fields in lines if fields]
        frame = pl.DataFrame(rows, schema=dict.fromkeys(_RUN, pl.String), orient="row")
    frame = frame.with_columns(checked[SCORE].alias("score"))
    if order != BY_RANK:
        return frame
    return frame.with_columns(numbered_from_one(checked, str(path))[RANK].alias("place"))


def _texts_fast(data: bytes) -> pl.DataFrame | None:
    """All columns of a run file as text, read at once; None if it is not of the usual form."""
    if b"\r" in data or b"#" in data or (b"\t" in data and b" " in data) or not data or not _has_no_gaps(data):
        return None
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=list(_RUN), block_size=8 << 20),
            parse_options=pyarrow.csv.ParseOptions(delimiter="\t" if b"\t" in data else " ", quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(_RUN, pa.string()), null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowException:
        return None
    return pl.DataFrame(table)


def read_trec_qrels(path: str | os.PathLike[str]) -> pl.DataFrame:
    """Read judgements: query_id, doc_id, grade. Grades are integers."""
    data = _read(path)
    frame = _read_fast(data, _QRELS, pa.int64())
    if frame is None or not frame.select((pl.col("grade").abs() <= MAX_GRADE).all()).item():
        frame = _read_slowly(data, str(path), _QRELS)
    found = frame.rename({"query": QUERY, "document": DOC})
    return found.select(QUERY, DOC, pl.col(GRADE).cast(pl.Float64))


def _read(path: str | os.PathLike[str]) -> bytes:
    place = Path(path)
    try:
        if place.is_dir():
            msg = f"{path} is a directory, not a file"
            raise KbevalError(msg)
        return place.read_bytes()
    except FileNotFoundError:
        msg = f"{path} does not exist; check the path"
        raise KbevalError(msg) from None
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise KbevalError(msg) from error


def _read_fast(
    data: bytes, form: tuple[str, ...], number: pa.DataType, *, with_rank: bool = False
) -> pl.DataFrame | None:
    """Read a whole file at once; None if it is not of that form, or not obviously."""
    if b"\r" not in data and (b"\t" not in data or b" " not in data) and _has_no_gaps(data):
        found = _parsed(data, form, number, "\t" if b"\t" in data else " ", with_rank=with_rank)
        if found is not None:
            return found
    tidy = data.removeprefix(b"\xef\xbb\xbf").translate(bytes.maketrans(b"\t\r\v\f", b"    "))
    while b"  " in tidy:
        tidy = tidy.replace(b"  ", b" ")
    tidy = tidy.replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" \n")
    return _parsed(tidy, form, number, " ", with_rank=with_rank)


def _has_no_gaps(data: bytes) -> bool:
    """Is there one separator between columns, and none around them? Otherwise one too many would be an empty column."""
    if data[:1].isspace() or data[-1:] in (b" ", b"\t"):
        return False
    codes = np.frombuffer(data, dtype=np.uint8)
    for start in range(0, len(codes), _PIECE):
        is_space = codes[start : start + _PIECE + 1] <= ord(" ")
        if (is_space[1:] & is_space[:-1]).any():
            return False
    return True


def _parsed(
    data: bytes, form: tuple[str, ...], number: pa.DataType, separator: str, *, with_rank: bool
) -> pl.DataFrame | None:
    # The tag of a run is wanted once, but the column says whether a line is complete.
    wanted = [form[0], form[2], form[4] if form is _RUN else form[3]]
    if b"#" in data and (data.startswith(b"#") or b"\n#" in data):
        data = re.sub(rb"(?m)^#.*\n?", b"", data)
    if not data[:1000].strip() and not data.strip():
        return pl.DataFrame(schema=dict.fromkeys(form, pl.String)).with_columns(
            pl.col(wanted[2]).cast(pl.Float64 if form is _RUN else pl.Int64),
            *([pl.col(RANK).cast(pl.Int64)] if with_rank else []),
        )
    ranks = {RANK: pa.int64()} if with_rank else {}
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=list(form), block_size=8 << 20),
            parse_options=pyarrow.csv.ParseOptions(delimiter=separator, quote_char=False, ignore_empty_lines=True),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=[*wanted[:2], *ranks, wanted[2]],
                column_types={form[0]: pa.string(), form[2]: pa.string(), **ranks, wanted[2]: number},
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    found = pl.DataFrame(table)
    if not _is_sound(found):
        return None
    if form is _RUN:
        return found.with_columns(pl.lit(_first_tag(data)).alias("tag"))
    return found


def _is_sound(found: pl.DataFrame) -> bool:
    """Has every line its ids and its number?"""
    for one in found.get_columns():
        if one.dtype == pl.String:
            if (one.str.len_bytes() == 0).any():
                return False
        elif one.null_count() or (one.dtype == pl.Float64 and one.is_nan().any()):
            return False
    return RANK not in found.columns or bool(found[RANK].is_between(0, MOST_RANKS).all())


def _first_tag(data: bytes) -> str:
    lines = (line.split() for line in io.BytesIO(data) if not line.startswith(b"#"))
    fields = next(filter(None, lines), [])
    return fields[5].decode("utf-8", "replace") if len(fields) > 5 else ""


def _read_slowly(data: bytes, path: str, form: tuple[str, ...], *, with_rank: bool = False) -> pl.DataFrame:
    """Read line by line; raises TrecFileError with every broken line."""
    faults: list[str] = []
    rows: list[tuple[str, str, float, str, int | None]] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        fields = line.split()
        if not fields or line.startswith(b"#"):
            continue
        fault = _fault(fields, form, with_rank=with_rank)
        if fault is None:
            try:
                value = float(fields[4]) if form is _RUN else int(fields[3])
                rank = int(fields[3]) if with_rank else None
                rows.append((fields[0].decode(), fields[2].decode(), value, fields[-1].decode(), rank))
            except UnicodeDecodeError:
                fault = "is not UTF-8 text"
        if fault is not None:
            faults.append(f"line {number:,}: {fault}")
            if len(faults) == _MOST_FAULTS:
                break
    if faults:
        raise TrecFileError(path, faults, form, has_rows=bool(rows))
    names = ["query", "document", "score" if form is _RUN else "grade", "tag", RANK]
    kinds = [pl.String, pl.String, pl.Float64 if form is _RUN else pl.Int64, pl.String, pl.Int64]
    return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")


def _fault(fields: list[bytes], form: tuple[str, ...], *, with_rank: bool) -> str | None:
    if len(fields) != len(form):
        return f"has {counted(len(fields), 'column')}"
    value = fields[4] if form is _RUN else fields[3]
    shown = cut(value.decode("utf-8", "replace"), 30)
    if form is _RUN:
        if with_rank and not (_WHOLE.fullmatch(fields[3]) and 0 <= int(fields[3]) <= MOST_RANKS):
            return f"the rank {cut(fields[3].decode('utf-8', 'replace'), 30)!r} is not a whole number from 0 on"
        return None if _NUMBER.fullmatch(value) else f"the score {shown!r} is not a number"
    if not _WHOLE.fullmatch(value):
        return f"the grade {shown!r} is not an integer"
    return None if abs(int(value)) <= MAX_GRADE else f"the grade {shown} is above {MAX_GRADE:,}"
