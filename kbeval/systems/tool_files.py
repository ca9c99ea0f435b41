"""Reads files that other tools wrote: JSON, JSON lines, CSV and Parquet, as records with their locations."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from kbeval.errors import KbevalError
from kbeval.systems.json_lines import read_text
from kbeval.util.strict_json import TOO_LARGE, NotStrictError, as_object
from kbeval.util.text import did_you_mean

Record = dict[str, Any]
_FORMATS = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".json")
_LARGEST_CELL = 50_000_000
MOST_ROWS = 5_000_000
_DEEPEST = 100
_LARGEST = 10**300


@dataclass(frozen=True)
class Placed:
    """A record and its location, as shown in messages: `line 3`, `result 7`."""

    where: str
    fields: Record


def read_json(path: Path) -> Any:  # noqa: ANN401  (any JSON value)
    """The value of a JSON file. NaN, which Python tools write for values that could not be computed, becomes null."""
    return parse_loosely(read_text(path), str(path))


def parse_loosely(text: str, name: str) -> Any:  # noqa: ANN401  (any JSON value)
    """JSON as tools in Python write it."""
    try:
        return _finite(_loosely(text))
    except json.JSONDecodeError as error:
        msg = f"{name}, line {error.lineno}: is not valid JSON: {error.msg} (column {error.colno})"
        raise KbevalError(msg) from error
    except RecursionError:
        msg = f"{name}: is nested too deeply"
        raise KbevalError(msg) from None
    except ValueError as error:
        msg = f"{name}: {error}"
        raise KbevalError(msg) from error


def _loosely(text: str) -> Any:  # noqa: ANN401  (any JSON value)
    return json.loads(text, parse_constant=_constant, object_pairs_hook=as_object)


def _constant(name: str) -> None:
    """NaN means that a value could not be computed; Infinity is an unusable number."""
    if name != "NaN":
        raise NotStrictError(TOO_LARGE)


def _finite(value: Any, depth: int = 0) -> Any:  # noqa: ANN401  (any JSON value)
    """Replace unpaired surrogates, which JSON must not contain. A number beyond the range of floats is an error."""
    if depth > _DEEPEST:
        msg = "is nested too deeply"
        raise RecursionError(msg)
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        if math.isinf(value):
            raise NotStrictError(TOO_LARGE)
        return value
    if isinstance(value, int) and abs(value) > _LARGEST:
        return str(value)
    if isinstance(value, list):
        return [_finite(inner, depth + 1) for inner in value]
    if isinstance(value, dict):
        return {_finite(name): _finite(inner, depth + 1) for name, inner in value.items()}
    return value


def read_records(path: Path) -> list[Placed]:
    """The records of a table, by the ending of its file name."""
    ending = path.suffix.lower()
    if path.is_dir():
        msg = f"{path} is a directory; specify a file in it"
        raise KbevalError(msg)
    if ending not in _FORMATS:
        known = ", ".join(_FORMATS)
        msg = f"{path}: unknown extension {ending!r}{did_you_mean(ending, _FORMATS)}; use one of {known}"
        raise KbevalError(msg)
    if ending == ".parquet":
        return list(_parquet(path))
    if ending in (".csv", ".tsv"):
        return list(_csv(path, "\t" if ending == ".tsv" else ","))
    if ending == ".json":
        found = read_json(path)
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            msg = f"{path}: is not a list of objects"
            raise KbevalError(msg)
        return [Placed(f"entry {number}", item) for number, item in enumerate(found, start=1)]
    return list(json_lines(path))


def json_lines(path: Path) -> Iterator[Placed]:
    """The objects of a JSONL file."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = _finite(_loosely(line))
        except (ValueError, RecursionError) as error:
            reason = f"is not valid JSON: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
            _fail(path, number, reason)
        if not isinstance(found, dict):
            _fail(path, number, "is not a JSON object")
        yield Placed(f"line {number}", found)


def _fail(path: Path, number: int, reason: str) -> NoReturn:
    msg = f"{path}, line {number}: {reason}; fix it and try again"
    raise KbevalError(msg)


def _csv(path: Path, delimiter: str) -> Iterator[Placed]:
    text = read_text(path, exactly=True)
    before = csv.field_size_limit(_LARGEST_CELL)
    delimiter = delimiter_of(text.partition("\n")[0], delimiter)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(reader, None)
        if not names or not any(names):
            msg = f"{path}: has no header line"
            raise KbevalError(msg)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            _fail(path, 1, f"duplicate column {twice!r}")
        line = reader.line_num + 1
        for cells in reader:
            if len(cells) > len(names) or (cells and len(cells) < len(names)):
                _fail(path, line, f"has {len(cells):,} cells, but the header has {len(names):,}")
            if cells:
                yield Placed(f"line {line}", {n: c or None for n, c in zip(names, cells, strict=True)})
            line = reader.line_num + 1
    except csv.Error as error:
        _fail(path, reader.line_num, f"is not valid CSV: {error}")
    finally:
        csv.field_size_limit(before)


def delimiter_of(header: str, usual: str) -> str:
    """What separates the cells: where the decimal sign is a comma, programs write semicolons."""
    if usual not in header and (";" in header or "\t" in header):
        return max(";\t", key=header.count)
    return usual


def _parquet(path: Path) -> Iterator[Placed]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        msg = f"{path} does not exist, or is not a file; check the path"
        raise KbevalError(msg)
    try:
        with pq.ParquetFile(path, memory_map=False) as file:
            if file.metadata.num_rows > MOST_ROWS:
                msg = f"{path} has {file.metadata.num_rows:,} rows; at most {MOST_ROWS:,} are imported at once"
                raise KbevalError(msg)
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield Placed(f"row {number}", {n: _plain(v) for n, v in row.items()})
    except (pa.ArrowException, OSError, ValueError) as error:
        msg = f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}"
        raise KbevalError(msg) from error


def _plain(value: Any) -> Any:  # noqa: ANN401  (any value of Arrow)
    """A value as JSON represents it."""
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str | int | None):
        return value
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def written_at(path: Path) -> str:
    """The modification time of a file, as the time of a run."""
    moment = datetime.fromtimestamp(path.stat().st_mtime_ns // 1000 / 1e6, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
