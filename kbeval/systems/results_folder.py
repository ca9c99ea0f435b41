"""Writes a results folder, but never over the one that the run was imported from: an export may contain less."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from kbeval.errors import KbevalError, UsageError
from kbeval.systems.anchors import CONFIG, METRICS, RESULTS, cut_texts, from_row, read_folder
from kbeval.systems.json_lines import id_of, written
from kbeval.util.files import write_whole
from kbeval.util.hiding import without_secrets


def read_row(text: str) -> dict[str, Any]:
    """Parse a stored row. Raises ValueError with a readable reason."""
    try:
        found = json.loads(text)
    except RecursionError:
        msg = "is nested too deeply"
        raise ValueError(msg) from None
    except ValueError as error:
        msg = f"is not valid JSON: {getattr(error, 'msg', error)}"
        raise ValueError(msg) from None
    if not isinstance(found, dict):
        msg = "is not a JSON object"
        raise ValueError(msg)  # noqa: TRY004  (the row is wrong, not the call)
    # A row that cannot be written back cannot be exported.
    written(found)
    return found


def imported_hash(config: Mapping[str, Any]) -> str | None:
    """The hash of a run when it was imported."""
    about = config.get("kbeval")
    return str(about.get("hash")) if isinstance(about, dict) else None


@dataclass(frozen=True)
class Exported:
    """What is written: the rows and the configuration in their imported form, without secrets."""

    rows: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]
    full_text: bool

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any], *, full_text: bool) -> Self:
        """`rows`, `config`: as they are stored."""
        about = config.get("kbeval") or {}
        own = {name: value for name, value in config.items() if name != "kbeval"}
        if "theirs" in about:
            own["kbeval"] = about["theirs"]
        return cls([reduced(from_row(row), full_text=full_text) for row in rows], without_secrets(own), full_text)


def reduced(found: dict[str, Any], *, full_text: bool) -> dict[str, Any]:
    """A row as exported: texts are truncated unless `full_text`, and secrets are hidden."""
    row = found if full_text else cut_texts(found)
    config = row.get("config")
    return {**row, "config": without_secrets(config)} if isinstance(config, dict) else row


def write_folder(folder: Path, exported: Exported, created_at: str) -> None:
    """Write `results.jsonl` and `config.json`."""
    write_whole(folder / RESULTS, "".join(f"{written(row)}\n" for row in exported.rows))
    write_whole(folder / CONFIG, json.dumps(exported.config, ensure_ascii=False, indent=2) + "\n")
    # The modification time of the file is the time of the run.
    try:
        moment = datetime.strptime(created_at, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        return
    nanoseconds = round(moment.timestamp() * 1e6) * 1000
    os.utime(folder / RESULTS, ns=(nanoseconds, nanoseconds))


# --- the folder that a run came from -------------------------------------------------------------------


def refuse_source(folder: Path, run_id: str, exported: Exported, known_by: str | None) -> None:
    """Reject a folder that contains more of this run than would be written, or that the run was imported from."""
    why = _loss(folder, run_id, exported)
    if why is None and _is_source(folder, known_by):
        why = "is the folder that the run was imported from"
    if why is not None:
        msg = f"{folder} {why}; refusing to overwrite it, choose another folder"
        raise UsageError(msg)


def _loss(folder: Path, run_id: str, exported: Exported) -> str | None:
    """What would be lost; None if nothing would be."""
    there = _rows_in(folder / RESULTS)
    for row in exported.rows:
        old = there.pop(id_of(row.get("test_case_id")) or "", None)
        if old is not None and old != row and reduced(old, full_text=exported.full_text) == row:
            return "contains more of this run's texts and settings than an export"
    if there and folder.resolve().name == run_id:
        return "contains rows of this run that are not in the database"
    config = _object(folder / CONFIG)
    if config is not None and config != exported.config and without_secrets(config) == exported.config:
        return "contains the secrets of this run's configuration, which an export hides"
    return None


def _is_source(folder: Path, known_by: str | None) -> bool:
    try:
        is_same = read_folder(folder).hash == known_by
    except (KbevalError, OSError, ValueError, RecursionError):
        return False
    # An earlier export contains our numbers.
    metrics = _object(folder / METRICS) or {}
    about = metrics.get("provenance")
    return is_same and not (isinstance(about, dict) and "kbeval" in about)


def _rows_in(path: Path) -> dict[str, dict[str, Any]]:
    """The readable rows of a file by id."""
    found: dict[str, dict[str, Any]] = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    except OSError:
        return found
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and (query_id := id_of(row.get("test_case_id"))) is not None:
            found[query_id] = row
    return found


def _object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
