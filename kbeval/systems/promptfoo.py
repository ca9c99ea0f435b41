"""promptfoo: what `promptfoo eval -o results.json` or `-o results.jsonl` writes. One run per provider and prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError
from kbeval.systems.tool_files import Placed, Record, json_lines, read_json, written_at
from kbeval.systems.tool_rows import (
    ToolRun,
    number,
    own_id,
    question_id,
    retrieved_in,
    row_from,
    safe_part,
)
from kbeval.util.times import moment

# Variables that usually contain the question.
_QUESTIONS = ("question", "query", "input", "user_input", "prompt", "message")
_CONTAINS = ("contains", "icontains")


def read_promptfoo(path: Path, run_id: str | None = None, suite: str = "promptfoo") -> list[ToolRun]:
    """Read the results of an evaluation as runs."""
    about, results = _contents(path)
    runs: dict[tuple[str, str], ToolRun] = {}
    created = moment(str(about.get("created") or ""))
    when = written_at(path) if created is None else created.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    base = run_id or safe_part(path.stem)
    for result in results:
        fields = result.fields
        if not isinstance(fields.get("gradingResult"), dict | None) or not isinstance(fields.get("testCase"), dict):
            msg = f"{path}, {result.where}: not a result of promptfoo: it has no testCase"
            raise KbevalError(msg)
        provider = fields.get("provider")
        name = provider.get("label") or provider.get("id") if isinstance(provider, dict) else provider
        prompt = fields.get("prompt")
        key = (str(name or "provider"), str(prompt.get("label")) if isinstance(prompt, dict) else "")
        if key not in runs:
            runs[key] = ToolRun("promptfoo", base, suite, when, _config(fields, about))
        _add(runs[key], fields)
    prompts = list(dict.fromkeys(prompt for _, prompt in runs))
    for (name, prompt), run in runs.items():
        if len(runs) > 1:
            number_of_prompt = f"-prompt{prompts.index(prompt) + 1}" if len(prompts) > 1 else ""
            run.run_id = f"{base}-{safe_part(name)}{number_of_prompt}"
    return list(runs.values()) or [ToolRun("promptfoo", base, suite, when)]


def _contents(path: Path) -> tuple[Record, Iterator[Placed]]:
    """The description of the evaluation, and its results."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return {}, json_lines(path)
    found = read_json(path)
    inner = found.get("results") if isinstance(found, dict) else None
    results = inner.get("results") if isinstance(inner, dict) else None
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        msg = f"{path}: not a file of 'promptfoo eval -o': it has no results.results"
        raise KbevalError(msg)
    about = {
        "created": inner.get("timestamp") if isinstance(inner, dict) else None,
        "promptfoo": {name: value for name, value in found.items() if name != "results"},
    }
    return about, iter([Placed(f"result {number}", result) for number, result in enumerate(results, start=1)])


def _config(fields: Record, about: Record) -> Record:
    prompt = fields.get("prompt")
    found = {
        "llm": {"model_id": _provider(fields)},
        "provider": fields.get("provider"),
        "prompt": prompt.get("label") if isinstance(prompt, dict) else None,
        "promptfoo": about.get("promptfoo"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _provider(fields: Record) -> str:
    provider = fields.get("provider")
    return str(provider.get("id") if isinstance(provider, dict) else provider)


def _add(run: ToolRun, fields: Record) -> None:
    case, response = fields["testCase"], fields.get("response")
    variables = fields.get("vars") if isinstance(fields.get("vars"), dict) else case.get("vars")
    variables = variables if isinstance(variables, dict) else {}
    prompt = fields.get("prompt")
    question = _question(variables) or (prompt.get("raw") if isinstance(prompt, dict) else None) or ""
    query_id = own_id(case.get("metadata"), variables) or question_id(_identity(question, variables))
    response = response if isinstance(response, dict) else {}
    output = response.get("output")
    text = output if isinstance(output, str) or output is None else json.dumps(output, ensure_ascii=False)
    found = retrieved_in(response.get("metadata"), fields.get("metadata"), variables)
    failed = response.get("error") or (fields.get("error") if fields.get("failureReason") == 2 else None)
    ours = {
        "query": str(question),
        "hits_top_k": None if found is None else found[1],
        "answer": None if text is None else {"answer": text},
        "error": failed,
        "elapsed_ms": number(fields.get("latencyMs")),
        "tokens": _tokens(response.get("tokenUsage")),
        "cost_usd": number(fields.get("cost")),
    }
    golden = {
        "id": query_id,
        "query": str(question),
        "must_contain": [*_must_contain(case.get("assert"))],
        "answerable": case.get("answerable"),
    }
    read = ["latencyMs", "cost", *(["error"] if failed is fields.get("error") else [])]
    run.add(query_id, row_from(fields, read, ours), dict(_scores(fields)), golden)


def _question(variables: Mapping[str, Any]) -> str | None:
    named = (variables[name] for name in _QUESTIONS if isinstance(variables.get(name), str))
    texts = [value for value in variables.values() if isinstance(value, str)]
    return next(named, texts[0] if len(texts) == 1 else None)


def _identity(question: str, variables: Mapping[str, Any]) -> str:
    """The identity of a test: its question, or all of its variables if none has a usual name."""
    return question if _question(variables) else json.dumps(variables, sort_keys=True)


def _tokens(usage: Any) -> Any:  # noqa: ANN401  (any JSON value)
    total = number(usage.get("total")) if isinstance(usage, dict) else None
    return {"total": total} if total else None


def _scores(fields: Record) -> Iterator[tuple[str, float | None]]:
    """The score of the result, whether it passed, and the named scores of its assertions."""
    yield "score", number(fields.get("score"))
    yield "pass", number(fields.get("success"))
    named = fields.get("namedScores")
    for name, score in named.items() if isinstance(named, dict) else ():
        yield str(name), number(score)


def _must_contain(asserts: Any) -> Iterator[str]:  # noqa: ANN401  (any JSON value)
    """The texts that the answer must contain, for assertions with the same meaning here: case-sensitive ones."""
    for one in asserts if isinstance(asserts, list) else ():
        value = one.get("value") if isinstance(one, dict) and one.get("type") == "contains" else None
        if isinstance(value, str) and value and "{{" not in value:
            yield value
