"""Writes golden files from what other tools' files say about queries. An existing file is never changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kbeval.errors import KbevalError, UsageError
from kbeval.golden import load_golden
from kbeval.util.files import check_target, write_whole

_ENDINGS = (".yaml", ".yml", ".json", ".jsonl")


def write_golden(
    path: Path, entries: Sequence[Mapping[str, Any]], never: Iterable[str] = (), *, source: str = ""
) -> bool:
    """Write golden entries, by the ending of the file name. False: the file has exactly these already.

    Raises UsageError if the file exists and says something else.
    """
    if path.suffix.lower() not in _ENDINGS:
        msg = f"{path}: the name of a golden file must end in {', '.join(_ENDINGS)}"
        raise UsageError(msg)
    check_target(path, list(never))
    if path.exists():
        try:
            there = load_golden(path)
            wanted = _loaded(entries)
        except KbevalError:
            there, wanted = None, None
        if there is not None and wanted == [{**entry, **there.own.get(entry["id"], {})} for entry in there.entries]:
            return False
        msg = f"{path} exists and has other queries; choose another file for the golden queries"
        raise UsageError(msg)
    try:
        write_whole(path, _text(path, entries, source))
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}"
        raise UsageError(msg) from error
    return True


def _loaded(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [dict(entry) for entry in entries]


def _text(path: Path, entries: Sequence[Mapping[str, Any]], source: str) -> str:
    ending = path.suffix.lower()
    if ending == ".jsonl":
        return "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in entries)
    if ending == ".json":
        return json.dumps(list(entries), ensure_ascii=False, indent=1) + "\n"
    head = f"# Golden queries, made by 'kbeval import'{f' from {source}' if source else ''}.\n"
    text: str = yaml.safe_dump(list(entries), allow_unicode=True, sort_keys=False, width=120)
    return head + text
