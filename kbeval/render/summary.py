"""The summary of a run, as Markdown: the verdict first, then the numbers, then how they were computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbeval.compare.report import CompareReport
from kbeval.compare.run import IncomparableError
from kbeval.compare.run_summary import RunSummary
from kbeval.metrics.model import AggregateMetrics, matched_by
from kbeval.metrics.names import Name
from kbeval.render.comparison import config_table, counts_sentence, delta_table, legend, verdict_sentence
from kbeval.render.gates import gate_sentence, gate_table
from kbeval.render.scores import number_table
from kbeval.render.table import Cell, Column, render
from kbeval.util.text import counted, json_text, markdown

_MATCHED = {"id": "by chunk id", "span": "by document and span"}


def summary_md(found: RunSummary) -> str:
    """The settings, the results with their ledger, what changed since the previous run, and the configuration."""
    parts = [
        f"# {markdown(found.run.run_id)}",
        *([markdown(found.description)] if found.description else []),
        f"{markdown(found.run.suite)}, {markdown(found.run.created_at)}",
        *_answer(found),
        *(f"> {markdown(warning)}" for warning in found.warnings),
    ]
    if found.steps:
        rows: list[list[Cell]] = [[step.name, step.state, step.text] for step in found.steps]
        parts += ["## Steps", _md([Column("step"), Column("result"), Column("details")], rows)]
    parts += ["## Results", *_results(found)]
    if found.before is not None and found.compared is not None:
        parts += [f"## Compared with {markdown(found.before.run_id)}", *_changes(found.compared)]
    if found.gates is not None:
        parts += ["## Gates", markdown(gate_sentence(found.gates)), _md(*gate_table(found.gates))]
    parts += ["## Configuration", _configuration(found.config), *_meanings(found)]
    return "\n\n".join(parts) + "\n"


def _answer(found: RunSummary) -> list[str]:
    """Is it better than the previous run, and does it pass its gates?"""
    answers = []
    if isinstance(found.compared, CompareReport):
        answers.append(f"Compared with {found.compared.run_a}: {verdict_sentence(found.compared.whole)}")
    if found.gates is not None:
        answers.append(gate_sentence(found.gates))
    return [f"**{markdown(answer)}**" for answer in answers]


def _results(found: RunSummary) -> list[str]:
    if found.aggregate is None:
        return ["The run was not scored."]
    return [_md(*number_table(found.aggregate)), *_ledger(found.aggregate)]


def _ledger(aggregate: AggregateMetrics) -> list[str]:
    """What the numbers are based on."""
    matched = _MATCHED.get(matched_by(aggregate.provenance) or "")
    counts = [
        f"{count:,} {name.replace('_', ' ')}" for name, count in aggregate.ledger.items() if isinstance(count, int)
    ]
    return [
        *([f"Hits were matched {matched}."] if matched else []),
        *([f"Ledger: {markdown(', '.join(counts))}."] if counts else []),
    ]


def _changes(compared: CompareReport | IncomparableError) -> list[str]:
    if isinstance(compared, IncomparableError):
        return [markdown(str(compared))]
    whole = compared.whole
    parts = [
        f"**{markdown(verdict_sentence(whole))}**",
        counts_sentence(whole),
        *(f"> {markdown(warning)}" for warning in compared.warnings),
        _md(*delta_table(whole)),
        legend(whole),
    ]
    if not compared.config_diff:
        return [*parts, "No setting changed."]
    return [*parts, f"{counted(len(compared.config_diff), 'setting')} changed:", _md(*config_table(compared))]


def _configuration(config: Mapping[str, Any]) -> str:
    settings: list[list[Cell]] = [
        [key, value if isinstance(value, str) else " ".join(json_text(value).split())] for key, value in config.items()
    ]
    return _md([Column("setting"), Column("value")], settings)


def _meanings(found: RunSummary) -> list[str]:
    if found.aggregate is None:
        return []
    shown = {Name.parse(name).metric for name in found.aggregate.numbers()}
    rows: list[list[Cell]] = [
        [metric.name, metric.summary, metric.better] for metric in found.metrics if metric.name in shown
    ]
    columns = [Column("metric"), Column("meaning"), Column("better")]
    return ["## What the numbers mean", _md(columns, rows)]


def _md(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    return render(columns, rows, "md")
