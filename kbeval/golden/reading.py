"""Golden files as entries with line numbers: YAML, JSON and JSONL, detected by content if the name does not tell.

Scalars stay text (`007`, `1e5` and `no` are valid ids). What a reader would interpret as a number, a truth value or
null is marked as `Plain`, so that the checks can tell `true` from `"true"`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval.errors import GoldenError
from kbeval.util.strict_json import SPACE, NotStrictError, as_object, check_characters, finite, refuse_constant

_LINE_END = re.compile(r"\r\n|\r|\n")


class Plain(str):
    """A scalar without quotes: a number, a truth value, or text that needs no quotes."""

    __slots__ = ()


@dataclass(frozen=True)
class Entry:
    """One entry as written: its line and its fields, or what is wrong with it as a whole."""

    line: int
    fields: dict[str, Any]
    fault: str | None = None


def read_entries(path: Path) -> list[Entry]:
    """The entries of a file. Raises GoldenError if the file as a whole cannot be read."""
    text = _read_parquet(path) if path.suffix.lower() == ".parquet" else as_text(path, read_bytes(path))
    if not text.lstrip():
        raise GoldenError(str(path), ["the file is empty"])
    entries = entries_in(path, text)
    if not entries:
        raise GoldenError(str(path), ["it contains no golden queries"])
    return entries


YAML, JSON, JSONL = "yaml", "json", "jsonl"


def format_of(path: Path, text: str) -> str:
    """The format of a file: by its name, otherwise by its content."""
    start = text.lstrip()[:1]
    if path.suffix.lower() in (".yaml", ".yml"):
        return YAML
    if path.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        return JSON if start == "[" else JSONL
    if start == "{":
        return JSONL
    return JSON if start == "[" and _is_json(text) else YAML


def entries_in(path: Path, text: str) -> list[Entry]:
    """The entries of a text. `path`: for messages, and to determine the format."""
    written = format_of(path, text)
    try:
        if written == YAML:
            return _read_yaml(path, text)
        return _read_json_list(path, text) if written == JSON else list(_read_jsonl(text))
    except RecursionError:
        raise GoldenError(str(path), ["the file is nested too deeply"]) from None


def _read_parquet(path: Path) -> str:
    """The labels of an archive, as JSON lines."""
    import duckdb

    from kbeval.engine.quoting import parquet_scan

    read_bytes(path)
    try:
        with duckdb.connect(":memory:") as reader:
            sql = f"SELECT CAST(entry AS VARCHAR) FROM {parquet_scan([path])} ORDER BY place"
            found = reader.execute(sql).fetchall()
    except duckdb.Error:
        raise GoldenError(str(path), ["it contains no golden queries; use the golden file of an archive"]) from None
    return "\n".join(str(entry) for (entry,) in found)


def _read_yaml(path: Path, text: str) -> list[Entry]:
    from kbeval.golden.yaml_reading import read_yaml  # PyYAML is loaded only if needed

    return read_yaml(path, text)


def as_text(path: Path, content: bytes) -> str:
    """The text of a file. Raises GoldenError if it is not UTF-8."""
    data = content.removeprefix(codecs.BOM_UTF8)
    if b"\x00" in data:
        raise GoldenError(str(path), ["it is a binary file, not UTF-8 text"])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise GoldenError(str(path), [f"line {line}: not UTF-8 text"]) from error


def read_bytes(path: Path) -> bytes:
    """The bytes of a golden file. Raises GoldenError if it cannot be read."""
    try:
        if path.is_dir():
            raise GoldenError(str(path), ["it is a directory; a golden file is YAML, JSON or JSONL"])
        if path.is_char_device() or path.is_block_device():
            raise GoldenError(str(path), ["it is a device; a golden file is YAML, JSON or JSONL"])
        return path.read_bytes()
    except FileNotFoundError:
        raise GoldenError(str(path), ["there is no such golden file; check its name"]) from None
    except (OSError, ValueError) as error:
        raise GoldenError(str(path), [f"cannot be read: {getattr(error, 'strerror', None) or error}"]) from error


# --- JSON ---------------------------------------------------------------------------------------


def _number(text: str) -> Plain:
    finite(text)
    return Plain(text)


_JSON = json.JSONDecoder(
    object_pairs_hook=as_object, parse_int=_number, parse_float=_number, parse_constant=refuse_constant
)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def as_entry(value: Any, line: int) -> Entry:  # noqa: ANN401  (any value in a file)
    """An entry, or a fault if the value is not one."""
    if isinstance(value, dict):
        return Entry(line, value)
    return Entry(line, {}, "an entry must be a mapping of fields")


def _read_jsonl(text: str) -> Iterator[Entry]:
    for number, line in enumerate(_LINE_END.split(text), start=1):
        if not line.strip(SPACE):
            continue
        try:
            found = _JSON.decode(line)
            check_characters(line, found)
            yield as_entry(found, number)
        except NotStrictError as error:
            yield Entry(number, {}, str(error))
        except json.JSONDecodeError as error:
            yield Entry(number, {}, f"not valid JSON: {error.msg} at column {error.colno}")


def _read_json_list(path: Path, text: str) -> list[Entry]:
    """A JSON list, parsed entry by entry to get the line of each."""
    entries: list[Entry] = []
    line, counted = 1, 0
    at = text.index("[") + 1
    try:
        while True:
            at = _skip_space(text, at)
            if text[at : at + 1] == "]" and not entries:
                break
            line += text.count("\n", counted, at)
            counted = at
            try:
                begin = at
                value, at = _JSON.raw_decode(text, begin)
                check_characters(text[begin:at], value)
            except NotStrictError as error:
                raise GoldenError(str(path), [f"line {line}: {error}"]) from error
            entries.append(as_entry(value, line))
            at = _skip_space(text, at)
            if text[at : at + 1] == "]":
                break
            _require(text[at : at + 1] == ",", "expected ',' or ']'", text, at)
            at += 1
        _require(_skip_space(text, at + 1) == len(text), "text after the list", text, at + 1)
    except json.JSONDecodeError as error:
        raise GoldenError(str(path), [f"line {error.lineno}: not valid JSON: {error.msg}"]) from error
    return entries


def _require(condition: bool, message: str, text: str, at: int) -> None:
    if not condition:
        raise json.JSONDecodeError(message, text, at)


def _skip_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\r", "\n"):
        at += 1
    return at
