"""Writes golden files from the queries in other tools' files. An existing file is never changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kbeval.errors import KbevalError, UsageError
from kbeval.golden import load_golden
from kbeval.golden.labels import FIELDS
from kbeval.util.files import check_target, write_whole

_ENDINGS = (".yaml", ".yml", ".json", ".jsonl")


def is_new_golden(path: Path, entries: Sequence[Mapping[str, Any]], never: Iterable[str] = ()) -> bool:
    """May the file be written? False: it has exactly these entries already.

    Raises UsageError if it exists with other contents, or if it cannot be a golden file.
    """
    if path.suffix.lower() not in _ENDINGS:
        msg = f"{path}: the name of a golden file must end in {', '.join(_ENDINGS)}"
        raise UsageError(msg)
    check_target(path, list(never))
    if not path.exists():
        return True
    try:
        there = load_golden(path)
    except KbevalError:
        there = None
    # Fields that kbeval does not know are not compared.
    known = [{name: value for name, value in entry.items() if name in FIELDS} for entry in entries]
    if there is not None and _same(there.entries, known):
        return False
    msg = f"{path} already exists with other queries; choose another file for the golden queries"
    raise UsageError(msg)


def write_golden(path: Path, entries: Sequence[Mapping[str, Any]], *, source: str = "") -> None:
    """Write golden entries, by the ending of the file name."""
    try:
        write_whole(path, _text(path, entries, source))
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}"
        raise UsageError(msg) from error


def _same(there: Sequence[Mapping[str, Any]], entries: Sequence[Mapping[str, Any]]) -> bool:
    """Are both equal? Grades are read as floats."""
    one, other = (json.dumps([_plain(entry) for entry in some], sort_keys=True) for some in (there, entries))
    return one == other


def _plain(value: Any) -> Any:  # noqa: ANN401  (any value of a golden file)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _text(path: Path, entries: Sequence[Mapping[str, Any]], source: str) -> str:
    ending = path.suffix.lower()
    if ending == ".jsonl":
        return "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in entries)
    if ending == ".json":
        return json.dumps(list(entries), ensure_ascii=False, indent=1) + "\n"
    head = f"# Golden queries, written by 'kbeval import'{f' from {source}' if source else ''}.\n"
    text: str = yaml.safe_dump(list(entries), allow_unicode=True, sort_keys=False, width=120)
    return head + text
