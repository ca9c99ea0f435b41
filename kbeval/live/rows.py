"""The stored row of a query: what a target returned, in the form that kbeval scores, with texts cut by default."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from kbeval.live.asking import Query, Row
from kbeval.live.exchange import Failure, InvalidResponseError
from kbeval.live.expressions import NAMES, described

CUT_AT = 200
_TEXTS = ("text", "snippet")


def _asked(query: Query) -> Row:
    asked = {"query_id": query.id, "query": query.text}
    return asked if query.mode is None else {**asked, "mode": query.mode}


def row_of(query: Query, found: Mapping[str, Any]) -> Row:
    """A row from what response expressions found."""
    row = _asked(query)
    has_answer = not query.retrieval_only
    row["hits_top_k"] = [_hit(hit, rank) for rank, hit in enumerate(found.get("hits") or (), start=1)]
    row["answer"] = _answer(found) if has_answer and "answer" in found else None
    for name in ("abstained", "references", "tokens"):
        if found.get(name) is not None and (has_answer or name != "references"):
            row[name] = found[name]
    if (latency := found.get("latency")) is not None:
        row["latency"] = latency if isinstance(latency, dict) else {"total_ms": latency}
    row.update({name: value for name, value in found.items() if name not in NAMES and value is not None})
    return row


def _hit(hit: Any, rank: int) -> dict[str, Any]:  # noqa: ANN401  (an object or an id)
    found = {"chunk_id": hit} if isinstance(hit, str) else {name: one for name, one in hit.items() if one is not None}
    if (stated := found.get("rank")) is None:
        return {"rank": rank, **found}
    if isinstance(stated, bool) or not isinstance(stated, int | float) or stated < 1 or stated != int(stated):
        msg = f"the rank of hit {rank} is {described(stated)} instead of a whole number from 1"
        raise InvalidResponseError(msg)
    return found


def _answer(found: Mapping[str, Any]) -> dict[str, Any]:
    said = found["answer"]
    answer: dict[str, Any] = dict(said) if isinstance(said, dict) else {"answer": said or ""}
    if found.get("grounded") is not None:
        answer["grounded"] = found["grounded"]
    if found.get("citations") is not None:
        answer["citations"] = [_citation(one) for one in found["citations"]]
    return answer


def _citation(one: Any) -> dict[str, Any]:  # noqa: ANN401  (an object or an id)
    if isinstance(one, str):
        return {"citation": {"chunk_id": one}}
    return one if isinstance(one.get("citation"), dict) or "marker" in one else {"citation": one}


def row_from_program(query: Query, found: object) -> Row:
    """A row from an object in the form of a stored row, which a function or a program returned."""
    if not isinstance(found, Mapping):
        msg = f"the target returned {described(found)} instead of an object with hits_top_k and answer"
        raise InvalidResponseError(msg)
    hits, answer = found.get("hits_top_k", found.get("hits")), found.get("answer")
    if hits is not None and not (isinstance(hits, list) and all(isinstance(hit, dict | str) for hit in hits)):
        msg = f"hits_top_k is {described(hits)} instead of a list of objects, or of chunk ids"
        raise InvalidResponseError(msg)
    if not isinstance(answer, dict | str | None):
        msg = f"answer is {described(answer)} instead of an object or text"
        raise InvalidResponseError(msg)
    row = {name: value for name, value in found.items() if name not in ("hits", "hits_top_k", "answer")}
    row |= _asked(query)
    row["hits_top_k"] = [_hit(hit, rank) for rank, hit in enumerate(hits or (), start=1)]
    row["answer"] = ({"answer": answer} if isinstance(answer, str) else answer) if not query.retrieval_only else None
    return row


def failed_row(query: Query, failure: Failure, found: Row | None) -> Row:
    """The row of a query that was not answered. `found`: what the target returned with its error."""
    row: Row = {**_asked(query), "hits_top_k": [], "answer": None, **(found or {})}
    return {**row, "error": failure.as_json()}


def with_cut_texts(row: Row) -> Row:
    """The row with the texts of its hits cut to 200 characters, each with the SHA-256 of the whole."""
    return {**row, "hits_top_k": [_cut_hit(hit) for hit in row["hits_top_k"]]}


def _cut_hit(hit: dict[str, Any]) -> dict[str, Any]:
    found = dict(hit)
    for name in _TEXTS:
        text = hit.get(name)
        if not isinstance(text, str):
            continue
        found[f"{name}_sha256"] = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        if len(text) > CUT_AT:
            found[name] = text[:CUT_AT] + "..."
    return found


def is_abstention(row: Mapping[str, Any]) -> bool:
    """Did the system refuse, with nothing retrieved? A system whose index is down does the same."""
    if row.get("error") is not None or row.get("hits_top_k"):
        return False
    answer = row.get("answer")
    text = answer.get("answer") if isinstance(answer, dict) else None
    refused = isinstance(answer, dict) and answer.get("grounded") is False
    return row.get("abstained") is True or refused or (isinstance(answer, dict) and not str(text or "").strip())
