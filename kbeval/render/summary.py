"""The summary of an exported run, as Markdown."""

from __future__ import annotations

import json

from kbeval.compare.run import IncomparableError
from kbeval.metrics.names import Name
from kbeval.render.comparison import counts_sentence, delta_table, verdict_sentence
from kbeval.render.scores import number_table
from kbeval.render.table import Cell, Column, render
from kbeval.systems.anchors_export import Summary
from kbeval.util.text import markdown


def summary_md(found: Summary) -> str:
    """Configuration, what the numbers mean, the numbers, and what changed since the previous run."""
    settings: list[list[Cell]] = [
        [key, value if isinstance(value, str) else json.dumps(value)] for key, value in found.config.items()
    ]
    shown = {Name.parse(name).metric for name in found.aggregate.numbers()}
    meanings: list[list[Cell]] = [[metric.name, metric.summary] for metric in found.metrics if metric.name in shown]
    parts = [
        f"# {markdown(found.run.run_id)}",
        f"{markdown(found.run.suite)}, {markdown(found.run.created_at)}",
        "## Configuration",
        render([Column("setting"), Column("value")], settings, "md"),
        "## What the numbers mean",
        render([Column("metric"), Column("meaning")], meanings, "md"),
        "## Results",
        render(*number_table(found.aggregate), "md"),
        *_compared(found),
    ]
    return "\n\n".join(parts) + "\n"


def _compared(found: Summary) -> list[str]:
    if found.before is None or found.compared is None:
        return []
    title = f"## Compared with {markdown(found.before.run_id)}"
    if isinstance(found.compared, IncomparableError):
        return [title, markdown(str(found.compared))]
    whole = found.compared.whole
    return [
        title,
        f"**{markdown(verdict_sentence(whole))}**",
        counts_sentence(whole),
        render(*delta_table(whole), "md"),
    ]
