"""Traces of grounded question answering: `{"qid", "q", "retrieved_ids", "answer_json": {"claim", "citations"}}`.

If a trace has no `qid`, its `q_id` is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbeval.systems import APART, ImportedRun
from kbeval.systems.json_lines import ImportFaultError, id_of, ids_of, objects, written
from kbeval.util.text import counted

REFUSAL = "not in context"
# Fields that have a meaning in our rows, but not in a trace.
_OURS = ("query_id", "query", "hits_top_k", "answer", "error", "elapsed_ms", "abstained", "abstention", APART)
_OURS_IN_ANSWER = ("answer", "grounded")
_READ = frozenset(("qid", "q", "retrieved_ids", "answer_json", *_OURS))


def read_trace(path: Path, run_id: str, suite: str = "grounded") -> ImportedRun:
    """Read a trace file as a run. For each question the last line counts; all broken lines are reported at once."""
    faults: list[str] = []
    rows: dict[str, str] = {}
    repeated, is_trace = 0, False
    for number, found in objects(path, faults):
        is_trace = is_trace or any(found.get(name) is not None for name in ("retrieved_ids", "answer_json"))
        query_id = id_of(_qid(found))
        if fault := _fault(found, query_id):
            faults.append(f"line {number}: {fault}")
        elif query_id is not None:
            repeated += query_id in rows
            try:
                rows[query_id] = written(to_row(found, query_id))
            except ValueError as error:
                faults.append(f"line {number}: {error}")
    if rows and not is_trace and not faults:
        faults.append("no line has retrieved_ids or answer_json, so this is not a trace; is it the gold file?")
    if faults:
        raise ImportFaultError(path, faults, has_rows=bool(rows))
    warnings = (
        [f"{path}: {counted(repeated, 'duplicate trace')}; for each question the last one counts"] if repeated else []
    )
    if not rows:
        warnings.append(f"{path} contains no traces")
    moment = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return ImportedRun(run_id, suite, "grounded", {}, list(rows.items()), moment, warnings)


def _qid(found: Mapping[str, Any]) -> Any:  # noqa: ANN401  (any JSON value)
    qid = found.get("qid")
    return found.get("q_id") if qid in (None, "") else qid


def _fault(found: Mapping[str, Any], query_id: str | None) -> str | None:
    if query_id is None:
        return "has no qid (or q_id)" if _qid(found) in (None, "") else "qid is not text"
    if ids_of(found.get("retrieved_ids")) is None:
        return "retrieved_ids is not a list of ids"
    answer = found.get("answer_json")
    if answer is None:
        return None
    if not isinstance(answer, dict):
        return "answer_json is not an object"
    if not isinstance(answer.get("claim"), str | None):
        return "answer_json.claim is not text"
    return "answer_json.citations is not a list of ids" if ids_of(answer.get("citations")) is None else None


def to_row(found: Mapping[str, Any], query_id: str) -> dict[str, Any]:
    """Convert a trace to one of our rows. Unknown fields are kept and ignored."""
    answer = found.get("answer_json") or {}
    claim = answer.get("claim") or ""
    refused = claim.strip().casefold() == REFUSAL
    apart: dict[str, Any] = {name: found[name] for name in _OURS if name in found}
    if more := {name: answer[name] for name in _OURS_IN_ANSWER if name in answer}:
        apart["answer_json"] = more
    return {
        **{name: value for name, value in found.items() if name not in _READ},
        **({APART: apart} if apart else {}),
        "query_id": query_id,
        "query": found.get("q"),
        # Without a rank, the position in the list counts.
        "hits_top_k": [{"chunk_id": item} for item in ids_of(found.get("retrieved_ids")) or ()],
        "answer": {
            **{name: value for name, value in answer.items() if name not in ("claim", "citations")},
            "answer": claim,
            "grounded": not refused,
            "citations": [{"chunk_id": item} for item in ids_of(answer.get("citations")) or ()],
        },
    }
