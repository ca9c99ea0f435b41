"""A run of the anchor-labelled system as its results folder again, with its numbers and a summary for people."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbeval.aggregates import score_runs
from kbeval.compare import CompareOptions, IncomparableError, compare_runs
from kbeval.configs import config_of, imported_from
from kbeval.errors import UsageError
from kbeval.files import write_whole
from kbeval.importers.anchors import CONFIG, METRICS, RESULTS, SUMMARY, write_folder
from kbeval.metrics import Metric
from kbeval.model import AggregateMetrics
from kbeval.names import Name
from kbeval.render.comparison import counts_sentence, delta_table, verdict_sentence
from kbeval.render.scores import number_table
from kbeval.render.table import Cell, Column, json_text, render
from kbeval.runs import Run, find_run, previous_run
from kbeval.scoring import ScoreOptions
from kbeval.sources.opening import open_rows
from kbeval.text import markdown


def claim_folder(name: str, *, replace: bool) -> Path:
    """The folder to write to: empty, or ours to overwrite."""
    folder = Path(name)
    if not name or (folder.exists() and not folder.is_dir()):
        msg = f"{name!r} is not a folder to write to"
        raise UsageError(msg)
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        msg = f"{folder} is not empty; --replace overwrites what is in it"
        raise UsageError(msg)
    return folder


def export_folder(  # noqa: PLR0913  (what to export, from where, and how)
    name: str,
    folder: Path,
    *,
    db: str | os.PathLike[str],
    golden: str | None,
    full_text: bool = False,
    options: ScoreOptions | None = None,
) -> list[str]:
    """Write the folder; returns the names of its files."""
    options = options or ScoreOptions()
    with open_rows(db) as source:
        runs = source.runs()
        run = find_run(runs, name, str(db), options.suite)
        config = config_of(run)
        if imported_from(config) != "anchors":
            msg = f"run {run.run_id} was not imported from a results folder, so it cannot be written as one"
            raise UsageError(msg)
        rows = [json.loads(text) for text in source.result_texts(run.run_id)]
    for old in (METRICS, SUMMARY):
        (folder / old).unlink(missing_ok=True)
    write_folder(folder, rows, config, run.created_at, full_text=full_text)
    aggregate = run.aggregate()
    if golden is not None:
        aggregate = score_runs(db, golden, [run.run_id], options).aggregates[run.run_id]
    if aggregate is None:
        return [RESULTS, CONFIG]
    write_whole(folder / METRICS, json_text(aggregate.to_dict()) + "\n")
    before = previous_run(runs, run) if golden is not None else None
    compared = [] if before is None or golden is None else _compared(before, run, db, golden, options)
    write_whole(folder / SUMMARY, _summary(run, config, aggregate, options.metrics(), compared))
    return [RESULTS, CONFIG, METRICS, SUMMARY]


def _summary(
    run: Run, config: dict[str, Any], aggregate: AggregateMetrics, metrics: Sequence[Metric], compared: Sequence[str]
) -> str:
    settings: list[list[Cell]] = [
        [key, value if isinstance(value, str) else json.dumps(value)]
        for key, value in config.items()
        if key != "kbeval"
    ]
    shown = {Name.parse(name).metric for name in aggregate.numbers()}
    meanings: list[list[Cell]] = [[metric.name, metric.summary] for metric in metrics if metric.name in shown]
    parts = [
        f"# {markdown(run.run_id)}",
        f"{markdown(run.suite)}, {markdown(run.created_at)}",
        "## Configuration",
        render([Column("setting"), Column("value")], settings, "md"),
        "## What the numbers mean",
        render([Column("metric"), Column("meaning")], meanings, "md"),
        "## Results",
        render(*number_table(aggregate), "md"),
        *compared,
    ]
    return "\n\n".join(parts) + "\n"


def _compared(before: Run, run: Run, db: str | os.PathLike[str], golden: str, options: ScoreOptions) -> list[str]:
    """The run beside the one before it in its suite."""
    title = f"## Compared with {markdown(before.run_id)}"
    try:
        compare = CompareOptions(scoring=replace(options, by=None), skip_bad_rows=True)
        report = compare_runs(before.run_id, run.run_id, db=db, golden=golden, options=compare)
    except IncomparableError as error:
        return [title, markdown(str(error))]
    return [
        title,
        f"**{markdown(verdict_sentence(report.whole))}**",
        counts_sentence(report.whole),
        render(*delta_table(report.whole), "md"),
    ]
