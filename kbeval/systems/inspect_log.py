"""Inspect: evaluation logs, `.eval` (a zip file) and `.json`. One run per log and epoch, one row per sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbeval.errors import KbevalError
from kbeval.metrics.catalogue import HIGHER, NEITHER
from kbeval.systems.json_lines import id_of
from kbeval.systems.tool_files import Placed, Record, parse_loosely, read_json, written_at
from kbeval.systems.tool_rows import ToolRun, number, question_id, retrieved_in, row_from, safe_part
from kbeval.systems.zip_files import ZipReader
from kbeval.util.times import moment

# The numbers that Inspect's own metrics assign to these values: correct, partially correct, incorrect, no answer.
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def read_inspect(path: Path, run_id: str | None = None, suite: str = "inspect") -> list[ToolRun]:
    """Read a log as runs: one, or one for each epoch."""
    header, samples = _contents(path)
    about = header.get("eval")
    if not isinstance(about, dict):
        msg = f"{path}: not a log of Inspect: it has no 'eval'"
        raise KbevalError(msg)
    created = moment(str(about.get("created") or ""))
    when = written_at(path) if created is None else created.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    base = run_id or safe_part(path.stem)
    runs: dict[int, ToolRun] = {}
    places = _places(about)
    for sample in sorted(samples, key=lambda sample: _order(sample.fields, places)):
        epoch = sample.fields.get("epoch")
        epoch = epoch if isinstance(epoch, int) and epoch > 0 else 1
        if epoch not in runs:
            runs[epoch] = ToolRun("inspect", base, suite, when, _config(header, about))
        _add(runs[epoch], sample, path)
    for epoch, run in runs.items():
        run.directions = dict(_directions(run))
        run.run_id = base if len(runs) == 1 else f"{base}-epoch{epoch}"
    found = [runs[epoch] for epoch in sorted(runs)] or [ToolRun("inspect", base, suite, when, _config(header, about))]
    if header.get("status") not in (None, "success"):
        found[0].warnings.append(f"{path}: the evaluation did not finish (status {str(header['status'])[:40]})")
    return found


def _contents(path: Path) -> tuple[Record, list[Placed]]:
    """The log without its samples, and the samples."""
    if path.suffix.lower() == ".json":
        found = read_json(path)
        if not isinstance(found, dict):
            msg = f"{path}: not a log of Inspect: it is not a JSON object"
            raise KbevalError(msg)
        samples = found.get("samples") or []
        if not isinstance(samples, list):
            msg = f"{path}: samples is not a list"
            raise KbevalError(msg)
        placed = [
            Placed(f"sample {place}", sample if isinstance(sample, dict) else {})
            for place, sample in enumerate(samples, start=1)
        ]
        return {name: value for name, value in found.items() if name != "samples"}, placed
    with ZipReader(path) as file:
        names = file.names()
        header = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
        if header is None:
            msg = f"{path}: not a log of Inspect: it has no header.json"
            raise KbevalError(msg)
        samples = [name for name in names if name.startswith("samples/") and name.endswith(".json")]
        about = _object(file, header, path)
        return about, [Placed(name, _object(file, name, path)) for name in sorted(samples)]


def _object(file: ZipReader, name: str, path: Path) -> Record:
    text = file.read(name).decode("utf-8", "replace")
    found = parse_loosely(text, f"{path}, {name}")
    if not isinstance(found, dict):
        msg = f"{path}, {name}: is not a JSON object"
        raise KbevalError(msg)
    return found


def _places(about: Record) -> dict[str, int]:
    """The position of each sample in the dataset, by its id."""
    dataset = about.get("dataset")
    ids = dataset.get("sample_ids") if isinstance(dataset, dict) else None
    return {str(name): place for place, name in enumerate(ids)} if isinstance(ids, list) else {}


def _order(sample: Record, places: Mapping[str, int]) -> tuple[int, str, int]:
    """In the order of the dataset."""
    name, epoch = str(sample.get("id")), sample.get("epoch")
    return places.get(name, len(places)), name, epoch if isinstance(epoch, int) else 0


def _config(header: Record, about: Record) -> Record:
    return {
        "llm": {"model_id": str(about.get("model"))},
        "task": about.get("task"),
        "inspect": {name: value for name, value in header.items() if name not in ("samples", "reductions")},
    }


def _add(run: ToolRun, placed: Placed, path: Path) -> None:
    sample = placed.fields
    if "input" not in sample:
        msg = f"{path}, {placed.where}: not a sample of Inspect: it has no input"
        raise KbevalError(msg)
    question = _question(sample["input"])
    output, error, seconds = sample.get("output"), sample.get("error"), number(sample.get("total_time"))
    answer = output.get("completion") if isinstance(output, dict) else None
    found = retrieved_in(sample.get("metadata"), sample.get("store"))
    query_id = id_of(sample.get("id")) or question_id(question)
    ours = {
        "query": question,
        "hits_top_k": None if found is None else found[1],
        "answer": {"answer": answer} if isinstance(answer, str) and (answer or error is None) else None,
        "error": error.get("message") if isinstance(error, dict) and error.get("message") else error,
        "elapsed_ms": None if seconds is None else 1000 * seconds,
        "tokens": _tokens(sample.get("model_usage")),
    }
    read = ["id", *(["input"] if isinstance(sample["input"], str) else [])]
    target = sample.get("target")
    facts = [target] if isinstance(target, str) else target
    golden = {
        "id": query_id,
        "query": question,
        "expected_key_facts": [one for one in facts if isinstance(one, str) and one]
        if isinstance(facts, list)
        else None,
    }
    run.add(query_id, row_from(sample, read, ours), dict(_scores(sample.get("scores"))), golden)


def _question(value: Any) -> str:  # noqa: ANN401  (any JSON value)
    """The question; in a conversation, the last message of the user."""
    if isinstance(value, str):
        return value
    said = [turn.get("content") for turn in value if isinstance(turn, dict) and turn.get("role") == "user"]
    content = said[-1] if said else ""
    if isinstance(content, list):
        content = "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)
    return str(content)


def _tokens(usage: Any) -> Any:  # noqa: ANN401  (any JSON value)
    if not isinstance(usage, dict):
        return None
    totals = [number(one.get("total_tokens")) for one in usage.values() if isinstance(one, dict)]
    known = [total for total in totals if total is not None]
    return {"total": sum(known)} if known else None


def _scores(scores: Any) -> Iterator[tuple[str, float | None]]:  # noqa: ANN401  (any JSON value)
    """The value of each scorer as a number; if it gives several, each under its own name."""
    for name, score in scores.items() if isinstance(scores, dict) else ():
        value = score.get("value") if isinstance(score, Mapping) else score
        if isinstance(value, dict):
            for part, inner in value.items():
                yield f"{name}_{part}", _value(inner)
        elif isinstance(value, list):
            for place, inner in enumerate(value, start=1):
                yield f"{name}_{place}", _value(inner)
        elif value is None or _value(value) is not None:
            yield str(name), _value(value)


def _directions(run: ToolRun) -> Iterator[tuple[str, str]]:
    """A scorer may give any number: only for values between 0 and 1 is higher assumed to be better."""
    found: dict[str, list[float]] = {}
    for scores in run.scores.values():
        for name, score in scores.items():
            found.setdefault(name, []).extend([] if score is None else [score])
    for name, values in found.items():
        yield name, HIGHER if all(0 <= value <= 1 for value in values) else NEITHER


def _value(value: Any) -> float | None:  # noqa: ANN401  (any JSON value)
    if not isinstance(value, str):
        return number(value)
    if value in _GRADES:
        return _GRADES[value]
    try:
        return number(float(value))
    except ValueError:
        return _WORDS.get(value.lower())
