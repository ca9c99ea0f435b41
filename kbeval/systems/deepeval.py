"""DeepEval: test runs, as it writes them to `.deepeval/.latest_test_run.json` or to its results folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError
from kbeval.metrics.catalogue import HIGHER, LOWER
from kbeval.systems.tool_files import Record, read_json, written_at
from kbeval.systems.tool_rows import ToolRun, hits_in, number, own_id, passage_id, question_id, row_from, safe_part

_CASES = ("testCases", "conversationalTestCases")
# The name that a test case has if it was given none: its position.
_POSITION = re.compile(r"(conversational_)?test_case_\d+")


def read_deepeval(path: Path, run_id: str | None = None, suite: str = "deepeval") -> list[ToolRun]:
    """Read a test run as a run."""
    found = read_json(path)
    about: Record = {}
    if isinstance(found, dict) and isinstance(found.get("testRunData"), dict):
        found, about = found["testRunData"], {name: one for name, one in found.items() if name != "testRunData"}
    cases = [found.get(name) for name in _CASES] if isinstance(found, dict) else []
    if not any(isinstance(one, list) for one in cases):
        msg = f"{path}: not a test run of DeepEval: it has no testCases"
        raise KbevalError(msg)
    run = ToolRun(
        "deepeval", run_id or safe_part(path.stem.lstrip(".")), suite, written_at(path), _config(found, about)
    )
    for kind, some in zip(_CASES, cases, strict=True):
        for place, case in enumerate(some or ()):
            if not isinstance(case, dict):
                msg = f"{path}: {kind}[{place}] is not an object"
                raise KbevalError(msg)
            _add(run, case)
    run.directions = dict(_directions([metric for case in _all(found) for metric in _metrics(case)]))
    return [run]


def _directions(metrics: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Metrics that succeed below their threshold: lower is better for them."""
    lower: dict[str, set[bool]] = {}
    for metric in metrics:
        score, limit, success = number(metric.get("score")), number(metric.get("threshold")), metric.get("success")
        if score is not None and limit is not None and isinstance(success, bool) and score != limit:
            lower.setdefault(str(metric.get("name") or "score"), set()).add((score < limit) == success)
    for name, found in lower.items():
        if len(found) == 1:
            yield name, LOWER if found == {True} else HIGHER


def _config(found: Record, about: Record) -> Record:
    own = found.get("hyperparameters")
    judges = sorted({str(one) for case in _all(found) for one in _values(case, "evaluationModel") if one})
    return {
        **(own if isinstance(own, dict) else {}),
        **({"judge_model": ", ".join(judges)} if judges else {}),
        "deepeval": {**about, **{name: value for name, value in found.items() if name not in _CASES}},
    }


def _all(found: Record) -> Iterator[Record]:
    for name in _CASES:
        some = found.get(name)
        yield from (case for case in some if isinstance(case, dict)) if isinstance(some, list) else ()


def _metrics(case: Record) -> list[Record]:
    found = case.get("metricsData")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _values(case: Record, name: str) -> Iterator[Any]:
    for metric in _metrics(case):
        yield metric.get(name)


def _add(run: ToolRun, case: Record) -> None:
    question, answer = _said(case)
    name = case.get("name") if isinstance(case.get("name"), str) else ""
    named = name if name and not _POSITION.fullmatch(str(name)) else None
    query_id = own_id(case.get("metadata"), case.get("additionalMetadata")) or named or question_id(question)
    failed = [str(error) for error in _values(case, "error") if error]
    seconds = number(case.get("completionTime"))
    hits = hits_in(case.get("retrievalContext"))
    ours = {
        "query": question,
        "hits_top_k": hits,
        "answer": None if answer is None else {"answer": answer},
        "elapsed_ms": None if seconds is None else 1000 * seconds,
        "cost_usd": number(case.get("tokenCost")),
    }
    read = [*(["input", "actualOutput"] if "turns" not in case else []), *(["retrievalContext"] if hits else [])]
    expected = case.get("expectedOutput")
    context = case.get("context")
    golden = {
        "id": query_id,
        "query": question,
        "expected_chunk_ids": [passage_id(text) for text in context if isinstance(text, str)]
        if isinstance(context, list)
        else None,
        "expected_key_facts": [expected] if isinstance(expected, str) else None,
    }
    if failed:
        run.warnings.append(f"query {query_id}: a metric could not be computed: {failed[0][:200]}")
    run.add(str(query_id), row_from(case, read, ours), dict(_scores(case)), golden)


def _said(case: Record) -> tuple[str, str | None]:
    """The question and the answer; in a conversation, the last message of each side."""
    turns = case.get("turns")
    if not isinstance(turns, list):
        answer = case.get("actualOutput")
        return str(case.get("input") or ""), answer if isinstance(answer, str) else None
    said = {
        role: [turn.get("content") for turn in turns if isinstance(turn, dict) and turn.get("role") == role]
        for role in ("user", "assistant")
    }
    last = {role: str(texts[-1]) for role, texts in said.items() if texts}
    return last.get("user") or str(case.get("scenario") or ""), last.get("assistant")


def _scores(case: Record) -> Iterator[tuple[str, float | None]]:
    for metric in _metrics(case):
        yield str(metric.get("name") or "score"), number(metric.get("score"))
