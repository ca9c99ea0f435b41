"""Ragas: datasets and results, as `to_jsonl`, `to_csv` and `to_pandas` write them. One record per sample."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError
from kbeval.systems.tool_files import Placed, Record, read_records, written_at
from kbeval.systems.tool_rows import ToolRun, hits_in, number, own_id, passage_id, question_id, row_from, safe_part

# The columns of a dataset, with those of versions before 0.2. All other columns with numbers are scores.
_NAMES = {"question": "user_input", "answer": "response", "contexts": "retrieved_contexts", "ground_truth": "reference"}
_LISTS = ("retrieved_contexts", "reference_contexts", "retrieved_context_ids", "reference_context_ids", "rubrics")
_COLUMNS = frozenset(
    (*_LISTS, "user_input", "response", "reference", "persona_name", "query_style", "query_length", "id")
)
_KNOWN = ("user_input", "response", "retrieved_contexts")


def read_ragas(path: Path, run_id: str | None = None, suite: str = "ragas") -> list[ToolRun]:
    """Read a dataset or a result of Ragas as a run."""
    records = read_records(path)
    run = ToolRun("ragas", run_id or safe_part(path.stem), suite, written_at(path))
    if records and not any(name in _fields(records[0]) for name in _KNOWN):
        has = ", ".join(list(records[0].fields)[:8])
        msg = f"{path}: not a file of Ragas: no column {', '.join(_KNOWN)} (it has {has})"
        raise KbevalError(msg)
    columns = _score_columns(records)
    for record in records:
        _add(run, record, columns, path)
    return [run]


def _score_columns(records: Sequence[Placed]) -> set[str]:
    """The columns that contain only numbers and are not part of a dataset."""
    values: dict[str, list[Any]] = {}
    for record in records:
        for name, value in _fields(record).items():
            if name not in _COLUMNS and value is not None:
                values.setdefault(name, []).append(value)
    return {name for name, found in values.items() if all(_score(value) is not None for value in found)}


def _fields(record: Placed) -> Record:
    return {_NAMES.get(name, name): value for name, value in record.fields.items()}


def _add(run: ToolRun, record: Placed, columns: set[str], path: Path) -> None:
    fields = {name: _list(value) if name in _LISTS else value for name, value in _fields(record).items()}
    question = _question(fields.get("user_input"))
    if question is None:
        msg = f"{path}, {record.where}: has no user_input; fix it and try again"
        raise KbevalError(msg)
    scores = {name: _score(value) for name, value in fields.items() if name in columns}
    answer = fields.get("response")
    ours = {
        "query": question,
        "hits_top_k": hits_in(fields.get("retrieved_contexts"), fields.get("retrieved_context_ids")),
        "answer": {"answer": answer} if isinstance(answer, str) else None,
    }
    read = ["response"] if isinstance(answer, str) else []
    read += ["user_input"] if isinstance(fields.get("user_input"), str) else []
    read += ["retrieved_contexts", "retrieved_context_ids"] if ours["hits_top_k"] is not None else []
    given = {name: value for name, value in fields.items() if value is not None}
    row = row_from(given, [*read, *scores], ours)
    reference = fields.get("reference")
    golden = {
        "id": own_id(fields) or question_id(question),
        "query": question,
        "expected_chunk_ids": _expected(fields),
        "expected_key_facts": [reference] if isinstance(reference, str) else None,
    }
    run.add(str(golden["id"]), row, scores, golden)


def _question(value: Any) -> str | None:  # noqa: ANN401  (any JSON value)
    """The question; in a conversation, the last message of the user."""
    if isinstance(value, list):
        said = [
            turn.get("content") for turn in value if isinstance(turn, dict) and turn.get("type") in ("human", "user")
        ]
        value = said[-1] if said else None
    return value if isinstance(value, str) and value else None


def _expected(fields: Record) -> list[str] | None:
    ids, texts = fields.get("reference_context_ids"), fields.get("reference_contexts")
    if isinstance(ids, list) and ids:
        return list(dict.fromkeys(map(str, ids)))
    if isinstance(texts, list) and texts and not fields.get("retrieved_context_ids"):
        return list(dict.fromkeys(passage_id(text) for text in texts if isinstance(text, str)))
    return None


def _score(value: Any) -> float | None:  # noqa: ANN401  (any cell)
    """A score; in CSV it is text."""
    if isinstance(value, str):
        try:
            return number(float(value))
        except ValueError:
            return None
    return number(value)


def _list(value: Any) -> Any:  # noqa: ANN401  (any cell)
    """A list; in CSV it is written as Python prints it, or as JSON."""
    if not isinstance(value, str) or not value.startswith("["):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, list) else value
    return value
