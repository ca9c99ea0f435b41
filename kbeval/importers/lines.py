"""Reads JSON lines from files that other programs wrote; every fault is found, and named by its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError

# The engine takes such lists for JSON.
_TRAILING_COMMA = re.compile(r",\s*([\]}])")


class ImportFaultError(KbevalError):
    """A file cannot be imported; every broken line is named, unless all are: then it is another file."""

    def __init__(self, path: Path, faults: list[str], *, has_rows: bool) -> None:
        if len(faults) > 1 and not has_rows:
            super().__init__(
                f"{path}: none of its {len(faults):,} lines can be read; is it the right file? ({faults[0]})"
            )
        elif len(faults) == 1:
            super().__init__(f"{path}, {faults[0]}; correct it first")
        else:
            super().__init__(f"{path}: {len(faults):,} broken lines; correct them first:", faults)


def read_text(path: Path) -> str:
    """A file's text, with or without a byte-order mark."""
    try:
        if path.is_char_device() or path.is_block_device():
            msg = f"{path} is a device; name a file"
            raise KbevalError(msg)
        if path.is_dir():
            msg = f"{path} is a directory; name a file"
            raise KbevalError(msg)
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        msg = f"there is no file {path}; check its name"
        raise KbevalError(msg) from None
    except UnicodeDecodeError as error:
        msg = f"{path} is not text in UTF-8 (byte {error.start:,})"
        raise KbevalError(msg) from error
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise KbevalError(msg) from error


def objects(path: Path, faults: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers; empty lines are passed over, faults are collected."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        text = line.strip()
        if not text:
            continue
        try:
            found = json.loads(text, parse_constant=_refuse)
        except RecursionError:
            faults.append(f"line {number}: is nested too deeply")
            continue
        except ValueError as error:
            faults.append(f"line {number}: is not valid JSON: {getattr(error, 'msg', error)}")
            continue
        if isinstance(found, dict):
            yield number, found
        else:
            faults.append(f"line {number}: is not a JSON object")


def _refuse(constant: str) -> None:
    """NaN and Infinity are no JSON, though Python reads them."""
    msg = f"{constant} is no number"
    raise ValueError(msg)


def id_of(value: Any) -> str | None:  # noqa: ANN401  (whatever stands there)
    """An id is text; a number is its digits. None where it is neither, or half a character."""
    if isinstance(value, str) and value.isascii() and value.isprintable():
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        return None
    return value if "\x00" not in value and value.encode("utf-8", "replace").decode() == value else None


def is_container(text: str) -> bool:
    """Is it a list or an object, written as text? In a stored row it could not be told from one."""
    if text[:2] not in ('{"', '["', "[[", "[{", "{}", "[]"):
        return False
    try:
        json.loads(_TRAILING_COMMA.sub(r"\1", text))
    except (ValueError, RecursionError):
        return False
    return True


def ids_of(value: Any) -> list[str] | None:  # noqa: ANN401
    """A list of ids; nothing is an empty one. None where it is something else."""
    if not isinstance(value, list):
        return [] if value is None else None
    if any(isinstance(item, str) and is_container(item) for item in value):
        return None
    if all(type(item) is str and item.isascii() and item.isprintable() for item in value) and all(value):
        return value
    found = [id_of(item) for item in value]
    return None if None in found else [item for item in found if item is not None]


def written(value: Any) -> str:  # noqa: ANN401  (anything that JSON can hold)
    """JSON as it is stored. Raises ValueError where it holds what JSON cannot: a number beyond all floats, or half a
    character.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if not text.isascii():
            text.encode("utf-8")
    except UnicodeEncodeError:
        msg = "holds half a character (a lone surrogate)"
        raise ValueError(msg) from None
    except ValueError:
        msg = "holds a number that is too large"
        raise ValueError(msg) from None
    return text
