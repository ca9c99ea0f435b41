"""Rows from Python values: values passed by other programs become JSON, and each fault names its query and its
field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from kbeval.errors import UsageError
from kbeval.golden.spans import position_faults
from kbeval.metrics.row_scores import score_fault
from kbeval.systems.json_lines import id_of, is_container
from kbeval.util.text import cut, did_you_mean

Row = dict[str, Any]
# Fields that identify a hit; at least one of them must be given.
_HIT_NAMES = ("chunk_id", "doc_id", "doc_path", "rel_path", "source_spans", "citation", "text", "snippet")
_ANSWER_NAMES = ("answer", "grounded", "citations", "refusal_reason")
_DEEPEST = 100
_LARGEST = 1e308


class RowFaultError(UsageError):
    """A row that cannot be stored. The message names the query and every field that is wrong."""

    def __init__(self, query_id: object, faults: Sequence[str]) -> None:
        where = f"query {cut(str(query_id), 80)!r}"
        if len(faults) == 1:
            super().__init__(f"{where}: {faults[0]}")
        else:
            super().__init__(f"{where}: {len(faults):,} faults:", faults)


def plain(value: Any, where: str, faults: list[str], depth: int = 0) -> Any:  # noqa: ANN401  (any value)
    """The value as JSON; anything that JSON cannot represent is a fault.

    NumPy's numbers and arrays become plain ones, and times become text.
    """
    found = value
    if isinstance(value, str):
        found = _plain_text(value, where, faults)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = _plain_number(value, where, faults)
    elif isinstance(value, datetime | date):
        found = value.isoformat()
    elif value is not None and not isinstance(value, bool):
        if depth > _DEEPEST:
            faults.append(f"{where} is nested too deeply")
            return None
        found = _plain_container(value, where, faults, depth + 1)
    return found


def _plain_container(value: Any, where: str, faults: list[str], depth: int) -> Any:  # noqa: ANN401  (any value)
    if isinstance(value, Mapping):
        found: Row = {}
        for name, inner in value.items():
            if isinstance(name, str):
                found[_plain_text(name, f"a key of {where}", faults)] = plain(inner, f"{where}.{name}", faults, depth)
            else:
                faults.append(f"{where} has a key that is {_kind(name)}, not text")
        return found
    if isinstance(value, list | tuple):
        return [plain(inner, f"{where}[{place}]", faults, depth) for place, inner in enumerate(value)]
    # NumPy's numbers and arrays, without importing NumPy.
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist(), where, faults, depth)
    faults.append(f"{where} is {_kind(value)}, which JSON cannot represent")
    return None


def _plain_text(value: str, where: str, faults: list[str]) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        faults.append(f"{where} contains an unpaired surrogate (half a character)")
        return ""
    return str(value)


def _plain_number(value: float, where: str, faults: list[str]) -> float | None:
    # Comparisons with NaN are false.
    if not abs(value) <= _LARGEST:
        faults.append(f"{where} is {value!r:.40}, which is not a number in JSON")
        return None
    return int(value) if isinstance(value, int) else float(value)


def _kind(value: object) -> str:
    """The kind of a value, for a message."""
    names = {type(None): "None", bool: "true or false", str: "text", dict: "a mapping", list: "a list"}
    if type(value) in names:
        return names[type(value)]
    return "a number" if isinstance(value, int | float) else f"of type {type(value).__name__}"


# --- the parts of a row ----------------------------------------------------------------------------------


def hits_of(value: Any, faults: list[str]) -> list[Row]:  # noqa: ANN401  (checked here)
    """The hits of a row, best first: mappings, or chunk ids. Hits without a rank get their position in the list."""
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        faults.append(f"hits is {_kind(value)}; it must be a list of hits, best first")
        return []
    found = []
    for place, hit in enumerate(value):
        where = f"hits[{place}]"
        if isinstance(hit, str) or (isinstance(hit, int) and not isinstance(hit, bool)):
            found.append({"chunk_id": str(hit)})
            faults += _id_faults(found[-1], "chunk_id", where)
        elif isinstance(hit, Mapping):
            found.append(_hit(plain(hit, where, faults), where, faults))
        else:
            faults.append(f"{where} is {_kind(hit)}; it must be a mapping, or a chunk id")
    ranked = sum("rank" in hit for hit in found)
    if not ranked or all("rank" in hit for hit in found):
        return [hit if "rank" in hit else {"rank": rank, **hit} for rank, hit in enumerate(found, start=1)]
    faults.append(f"hits: {ranked:,} of {len(found):,} have a rank; give a rank to all, or to none")
    return found


def _hit(found: Row, where: str, faults: list[str]) -> Row:
    hit = {name: one for name, one in found.items() if one is not None}
    if not any(name in hit for name in _HIT_NAMES):
        names = ", ".join(cut(name, 30) for name in list(found)[:8]) or "nothing"
        faults.append(f"{where} has no chunk_id and no doc_id (it has {names})")
    for name in ("chunk_id", "doc_id"):
        faults += _id_faults(hit, name, where)
    for name in ("doc_path", "chunker_version", "text", "snippet"):
        if name in hit and not isinstance(hit[name], str):
            faults.append(f"{where}.{name} is {_kind(hit[name])}, not text")
    rank = hit.get("rank")
    if rank is not None and (type(rank) is not int or not 1 <= rank < 2**63):
        faults.append(f"{where}.rank is {rank!r:.40}; it must be an integer of 1 or more")
    for name in ("score", "token_count"):
        if name in hit and (isinstance(hit[name], bool) or not isinstance(hit[name], int | float)):
            faults.append(f"{where}.{name} is {_kind(hit[name])}, not a number")
    faults += span_faults(hit.get("source_spans"), f"{where}.source_spans")
    if "citation" in hit and not isinstance(hit["citation"], dict):
        faults.append(f"{where}.citation is {_kind(hit['citation'])}, not a mapping")
    return hit


def _id_faults(found: Row, name: str, where: str) -> Iterator[str]:
    """Ids are text; an integer becomes its digits."""
    value = found.get(name)
    if value is None:
        return
    text = id_of(value)
    if text is None or is_container(text):
        yield f"{where}.{name} is {'empty' if value == '' else _kind(value)}; an id must be non-empty text"
    else:
        found[name] = text


def span_faults(value: Any, where: str) -> list[str]:  # noqa: ANN401  (any JSON value)
    """What is wrong with a list of spans."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(span, dict) for span in value):
        return [f"{where} is {_kind(value)}; it must be a list of spans such as {{kind: line, start: 1, end: 9}}"]
    return [f"{where}[{place}] {fault}" for place, span in enumerate(value) for fault in position_faults(span)]


def answer_of(value: Any, faults: list[str], *, grounded: Any = None, citations: Any = None) -> Row | None:  # noqa: ANN401
    """The answer of a row: text, or a mapping with `answer`, `grounded` and `citations`."""
    if isinstance(value, Mapping):
        found: Row = plain(value, "answer", faults)
    elif isinstance(value, str):
        found = {"answer": _plain_text(value, "answer", faults)}
    elif value is None and grounded is None and citations is None:
        return None
    else:
        found = {}
        if value is not None:
            faults.append(
                f"answer is {_kind(value)}; it must be text, or a mapping with answer, grounded and citations"
            )
    for name, given in (("grounded", grounded), ("citations", citations)):
        if given is not None:
            found[name] = plain(given, name, faults)
    faults += _answer_faults(found)
    if found.get("citations") is not None:
        found["citations"] = list(_citations(found["citations"], faults))
    return found


def _answer_faults(found: Row) -> Iterator[str]:
    if not isinstance(found.get("answer"), str | None):
        yield f"answer.answer is {_kind(found['answer'])}, not text"
    if found and not any(name in found for name in _ANSWER_NAMES):
        name = next(iter(found))
        yield f"answer has no field 'answer' (it has {cut(name, 30)!r}{did_you_mean(name, _ANSWER_NAMES)})"
    if not isinstance(found.get("grounded"), bool | None):
        yield f"grounded is {_kind(found['grounded'])}, not true or false"


def _citations(value: Any, faults: list[str]) -> Iterator[Row]:  # noqa: ANN401  (any JSON value)
    if not isinstance(value, list):
        faults.append(f"citations is {_kind(value)}; it must be a list of chunk ids or of mappings")
        return
    for place, one in enumerate(value):
        if isinstance(one, str) and one:
            yield {"citation": {"chunk_id": one}}
        elif isinstance(one, dict):
            yield one if isinstance(one.get("citation"), dict) or "marker" in one else {"citation": one}
        else:
            faults.append(f"citations[{place}] is {_kind(one)}; it must be a chunk id or a mapping")


def scores_of(value: Any, faults: list[str]) -> dict[str, float | None]:  # noqa: ANN401  (checked here)
    """Scores that came with a row, by name; None: not scored."""
    if not isinstance(value, Mapping):
        faults.append(f"scores is {_kind(value)}; it must be a mapping of names and numbers")
        return {}
    found: dict[str, float | None] = {}
    for name, score in value.items():
        if fault := score_fault(str(name)):
            faults.append(f"scores: {fault}")
        elif (number := plain(score, f"scores[{name!r}]", faults)) is None or isinstance(number, int | float):
            found[str(name)] = None if number is None else float(number)
        else:
            faults.append(f"scores[{name!r}] is {_kind(number)}, not a number")
    return found


def number_of(value: Any, where: str, faults: list[str]) -> float | None:  # noqa: ANN401  (checked here)
    """A number that is not negative."""
    found = plain(value, where, faults)
    if found is None or (isinstance(found, int | float) and not isinstance(found, bool) and found >= 0):
        return found
    faults.append(f"{where} is {found!r:.40}; it must be a number of 0 or more")
    return None


def tokens_of(value: Any, faults: list[str]) -> Any:  # noqa: ANN401  (checked here)
    """The tokens used for answering: a number, or a mapping with a total or with parts that are summed."""
    if not isinstance(value, Mapping):
        return number_of(value, "tokens", faults)
    found: Row = plain(value, "tokens", faults)
    if not any(name in found for name in ("total", "prompt", "completion")):
        faults.append("tokens has no total, and neither prompt nor completion")
    return found
