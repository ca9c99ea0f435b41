"""The anchor-labelled system's results folder: `results.jsonl` and `config.json`; its name is the run id."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError, UsageError
from kbeval.systems import APART, ImportedRun
from kbeval.systems.json_lines import ImportFaultError, id_of, is_container, objects, read_text, written
from kbeval.util.strict_json import fault_of, parse

RESULTS, CONFIG, METRICS, SUMMARY = "results.jsonl", "config.json", "metrics.json", "summary.md"
CUT_AT = 200
# Field names there → here.
_NAMES = {"test_case_id": "query_id", "question": "query", "retrieved_chunks": "hits_top_k"}
# Kept separately: the chunks that were given a rank, and whether they had a null rank before.
_UNRANKED = "unranked"


def read_folder(folder: Path, suite: str = "anchors") -> ImportedRun:
    """Read a results folder as a run. All broken lines are reported at once."""
    if not folder.is_dir():
        msg = f"{folder} is not a folder with {RESULTS}"
        raise UsageError(msg)
    results = folder / RESULTS
    run_id = folder.resolve().name
    if id_of(run_id) is None:
        msg = f"{folder}: the folder name is used as the run id, but it is empty or not valid text; rename the folder"
        raise UsageError(msg)
    faults: list[str] = []
    rows: dict[str, tuple[int, str]] = {}
    for number, found in objects(results, faults):
        query_id = id_of(found.get("test_case_id"))
        if fault := _fault(found, query_id):
            faults.append(f"line {number}: {fault}")
        elif query_id is not None and query_id in rows:
            faults.append(f"line {number}: duplicate test_case_id {query_id!r}, first used in line {rows[query_id][0]}")
        elif query_id is not None:
            try:
                rows[query_id] = number, written(to_row(found))
            except ValueError as error:
                faults.append(f"line {number}: {error}")
    if faults:
        raise ImportFaultError(results, faults, has_rows=bool(rows))
    config, warnings = _read_config(folder)
    if not rows:
        warnings.append(f"{results} contains no results")
    texts = [(query_id, text) for query_id, (_, text) in rows.items()]
    return ImportedRun(run_id, suite, "anchors", config, texts, _written_at(results), warnings)


def _fault(found: Mapping[str, Any], query_id: str | None) -> str | None:
    if query_id is None:
        return "has no test_case_id" if found.get("test_case_id") in (None, "") else "test_case_id is not text"
    for name in ("retrieved_chunks", "references"):
        items = found.get(name)
        if items is not None and not (isinstance(items, list) and all(isinstance(item, dict) for item in items)):
            return f"{name} is not a list of objects"
    if not isinstance(found.get("answer"), str | None):
        return "answer is not text"
    abstention = found.get("abstention")
    if not isinstance(abstention, dict | None):
        return "abstention is not an object"
    if any(not isinstance(place.get("abstained"), bool | None) for place in (found, abstention or {})):
        return "abstained is not true or false"
    return next(filter(None, map(_hit_fault, found.get("retrieved_chunks") or ())), None)


def _hit_fault(chunk: Mapping[str, Any]) -> str | None:
    rank, chunk_id = chunk.get("rank"), chunk.get("chunk_id")
    if rank is not None and (type(rank) is not int or not 1 <= rank < 2**63):
        return f"a rank in retrieved_chunks is {rank!r:.40}, not a positive integer"
    if chunk_id is not None and (id_of(chunk_id) is None or is_container(str(chunk_id))):
        return "a chunk_id in retrieved_chunks is not text"
    return None


def _read_config(folder: Path) -> tuple[dict[str, Any], list[str]]:
    path = folder / CONFIG
    if not path.exists():
        return {}, [f"{folder} has no {CONFIG}; the run is imported without its configuration"]
    try:
        config = parse(read_text(path))
    except ValueError as error:
        msg = f"{path} {fault_of(error)}; nothing was imported"
        raise KbevalError(msg) from error
    if not isinstance(config, dict):
        msg = f"{path} is not a JSON object; nothing was imported"
        raise KbevalError(msg)
    return config, []


def _written_at(path: Path) -> str:
    moment = datetime.fromtimestamp(path.stat().st_mtime_ns // 1000 / 1e6, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# --- converting rows, both ways -----------------------------------------------------------------------


def to_row(found: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an imported row to ours. Nothing is lost: see from_row."""
    row: dict[str, Any] = {}
    apart = {name: found[name] for name in (*_NAMES.values(), APART) if name in found}
    for name, value in found.items():
        if name in apart:
            continue
        if name == "test_case_id":
            row["query_id"] = id_of(value)
        elif name == "answer":
            row["answer"] = None if value is None else {"answer": value}
        elif name == "retrieved_chunks" and value:
            row["hits_top_k"] = [_ranked(chunk, rank) for rank, chunk in enumerate(value, start=1)]
            if unranked := {str(rank): "rank" in chunk for rank, chunk in enumerate(value, start=1) if _is_bare(chunk)}:
                apart[_UNRANKED] = unranked
        else:
            row[_NAMES.get(name, name)] = value
    if isinstance(found.get("test_case_id"), int):
        apart["test_case_id"] = found["test_case_id"]
    return {**row, APART: apart} if apart else row


def _is_bare(chunk: Mapping[str, Any]) -> bool:
    """Does only a path identify it? To count as a hit it then needs a rank: its position in the list."""
    return all(chunk.get(name) is None for name in ("rank", "chunk_id", "doc_id"))


def _ranked(chunk: Mapping[str, Any], rank: int) -> Mapping[str, Any]:
    return {**chunk, "rank": rank} if _is_bare(chunk) else chunk


def from_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert one of our rows back to the imported form."""
    theirs = {ours: name for name, ours in _NAMES.items()}
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name == "answer" and isinstance(value, dict):
            found["answer"] = value.get("answer")
        elif name != APART:
            found[theirs.get(name, name)] = value
    apart = row.get(APART)
    if not isinstance(apart, dict):
        return found
    unranked, chunks = apart.get(_UNRANKED), found.get("retrieved_chunks")
    if isinstance(unranked, dict) and isinstance(chunks, list):
        found["retrieved_chunks"] = [
            _unranked(chunk, unranked.get(str(rank))) for rank, chunk in enumerate(chunks, start=1)
        ]
    return {**found, **{name: value for name, value in apart.items() if name != _UNRANKED}}


def _unranked(chunk: object, was_null: bool | None) -> object:
    """The chunk as imported: without the rank that it was given, or with null in its place."""
    if was_null is None or not isinstance(chunk, dict):
        return chunk
    if was_null:
        return {**chunk, "rank": None}
    return {name: value for name, value in chunk.items() if name != "rank"}


def cut_texts(found: dict[str, Any]) -> dict[str, Any]:
    """The row with truncated chunk texts, as the other system stores them."""
    chunks = found.get("retrieved_chunks")
    if not isinstance(chunks, list):
        return found
    return {**found, "retrieved_chunks": [_cut(chunk) for chunk in chunks]}


def _cut(chunk: Any) -> Any:  # noqa: ANN401
    text = chunk.get("text") if isinstance(chunk, dict) else None
    if not isinstance(text, str) or len(text) <= CUT_AT or (text.endswith("...") and len(text) <= CUT_AT + 3):
        return chunk
    return {**chunk, "text": text[:CUT_AT] + "..."}
