"""Reads JSON lines that other programs wrote; every error is found and reported with its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError
from kbeval.util.strict_json import HALF_A_CHARACTER, SPACE, TOO_LARGE, fault_of, parse

# The engine accepts such lists as JSON.
_TRAILING_COMMA = re.compile(r",\s*([\]}])")


class ImportFaultError(KbevalError):
    """A file cannot be imported. Lists every broken line, unless all are broken: then it is probably the wrong file."""

    def __init__(self, path: Path, faults: list[str], *, has_rows: bool) -> None:
        if len(faults) > 1 and not has_rows:
            super().__init__(
                f"{path}: none of its {len(faults):,} lines can be read; is it the right file? ({faults[0]})"
            )
        elif len(faults) == 1:
            super().__init__(f"{path}, {faults[0]}; fix it and try again")
        else:
            super().__init__(f"{path}: {len(faults):,} broken lines; fix them and try again:", faults)


def read_text(path: Path, *, exactly: bool = False) -> str:
    """A file's text, with or without a byte-order mark. `exactly`: line ends stay as they are."""
    try:
        if path.is_char_device() or path.is_block_device():
            msg = f"{path} is a device, not a file"
            raise KbevalError(msg)
        if path.is_dir():
            msg = f"{path} is a directory, not a file"
            raise KbevalError(msg)
        with path.open(encoding="utf-8-sig", newline="" if exactly else None) as file:
            return file.read()
    except FileNotFoundError:
        msg = f"{path} does not exist; check the path"
        raise KbevalError(msg) from None
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text (invalid byte at offset {error.start:,})"
        raise KbevalError(msg) from error
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise KbevalError(msg) from error


def objects(path: Path, faults: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers; skips empty lines, collects errors in `faults`."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        text = line.strip(SPACE)
        if not text:
            continue
        try:
            found = parse(text)
        except ValueError as error:
            faults.append(f"line {number}: {fault_of(error)}")
            continue
        if isinstance(found, dict):
            yield number, found
        else:
            faults.append(f"line {number}: is not a JSON object")


def id_of(value: Any) -> str | None:  # noqa: ANN401  (any JSON value)
    """An id as text; an integer becomes its digits. None for anything else, NUL and unpaired surrogates."""
    if isinstance(value, str) and value.isascii() and value.isprintable():
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        return None
    return value if "\x00" not in value and value.encode("utf-8", "replace").decode() == value else None


def is_container(text: str) -> bool:
    """Is it a list or an object written as text? A stored row could not distinguish the two."""
    if text[:2] not in ('{"', '["', "[[", "[{", "{}", "[]"):
        return False
    try:
        json.loads(_TRAILING_COMMA.sub(r"\1", text))
    except (ValueError, RecursionError):
        return False
    return True


def ids_of(value: Any) -> list[str] | None:  # noqa: ANN401
    """A list of ids, empty for null. None if it is anything else."""
    if not isinstance(value, list):
        return [] if value is None else None
    if any(isinstance(item, str) and is_container(item) for item in value):
        return None
    if all(type(item) is str and item.isascii() and item.isprintable() for item in value) and all(value):
        return value
    found = [id_of(item) for item in value]
    return None if None in found else [item for item in found if item is not None]


def written(value: Any) -> str:  # noqa: ANN401  (anything that JSON can hold)
    """JSON as it is stored. Raises ValueError for non-finite numbers and unpaired surrogates."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if not text.isascii():
            text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(HALF_A_CHARACTER) from None
    except ValueError:
        raise ValueError(TOO_LARGE) from None
    return text
