"""The page about a history: metrics over time, what changed between runs, and unstable or never found queries."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbeval.explore.explorer import open_explorer
from kbeval.explore.history import History, HistoryOptions, Point, metric_history
from kbeval.explore.history_names import Measured
from kbeval.golden import Golden
from kbeval.render.history import changed, direction_note, history_table
from kbeval.report.charts import Spot, time_line, value_axis
from kbeval.report.page import minus, number, write_page
from kbeval.report.parts import setting, warning_lines
from kbeval.report.texts import Texts, name
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.run_config import Difference
from kbeval.storage.source import stored_runs
from kbeval.util.text import counted

# Lists of queries are limited to this length; the page says how to get the rest.
MOST_ROWS = 100
_FLAKY = (
    "SELECT suite, query_id, query, n_runs, n_hits, n_lost, n_won FROM flaky_queries"
    " ORDER BY n_flips DESC, suite, query_id"
)
_NEVER = "SELECT query_id, query, category, n_runs, best_doc_rank FROM never_hit ORDER BY n_runs DESC, query_id"


@dataclass(frozen=True)
class HistoryPageOptions:
    """Which runs, and how queries are scored for the lists of queries."""

    history: HistoryOptions = field(default_factory=HistoryOptions)
    scoring: ScoreOptions = field(default_factory=ScoreOptions)
    redact: bool = False


def history_page(
    *metrics: str,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str] | None,
    options: HistoryPageOptions | None = None,
) -> tuple[str, History]:
    """The page, and the history that it shows. Without a golden file there are no lists of queries."""
    options = options or HistoryPageOptions()
    found = metric_history(*metrics, db=db, options=options.history)
    runs = stored_runs(db) if options.redact else []
    if options.redact:
        found = _without_texts(found)
    texts = Texts(redact=options.redact)
    flaky: list[list[str]] | None = None
    never: list[list[str]] | None = None
    warnings: list[str] = []
    if golden is not None and found.series:
        with open_explorer(db, golden, options.scoring) as explorer:
            flaky = _rows(explorer.query(_FLAKY).rows(), texts, 2)
            never = _rows(explorer.query(_NEVER).rows(), texts, 1)
            warnings = explorer.take_warnings()
    total = sum(len(series.points) for series in found.series)
    what = ", ".join(metric.short for metric in found.metrics)
    columns, rows = history_table(found)
    direction = direction_note(found)
    content = {
        "title": f"{what} over {counted(total, 'run')}",
        "runs_total": total,
        "sentences": [_sentence(found, metric) for metric in found.metrics],
        "warnings": warning_lines((*found.notes, *warnings), runs, redact=options.redact),
        "direction": direction,
        "panels": [_panel(found, metric) for metric in found.metrics] if total else [],
        "series": [name(found.label(series), 60) for series in found.series],
        "changes": _changes(found),
        "columns": [(column.title, column.right) for column in columns],
        "rows": [
            [minus(number(cell)) if column.right else number(cell) for cell, column in zip(row, columns, strict=True)]
            for row in rows
        ],
        "flaky": flaky,
        "never": never,
        "most": MOST_ROWS,
        "redact": options.redact,
    }
    return write_page("history.html.j2", content), found


def _without_texts(history: History) -> History:
    """The same history; of the settings that changed, only names and numbers are kept."""
    series = []
    for one in history.series:
        points = [
            replace(
                point,
                config=[
                    Difference(change.key, *(setting(change.key, value, redact=True) for value in (change.a, change.b)))
                    for change in point.config
                ],
            )
            for point in one.points
        ]
        series.append(replace(one, points=points))
    return replace(history, series=series)


def _rows(found: Sequence[Sequence[Any]], texts: Texts, question: int) -> list[list[str]]:
    """`question`: the column that contains a text."""
    return [
        [texts.line(cell or "") if place == question else number(cell) for place, cell in enumerate(row)]
        for row in found
    ]


def _ordered(history: History) -> list[Point]:
    """The runs of all series, oldest first."""
    points = [point for series in history.series for point in series.points]
    return sorted(
        points, key=lambda point: (point.moment is not None, point.moment or "", point.created_at, point.run_id)
    )


def _sentence(history: History, metric: Measured) -> str:
    """The current value of a metric, compared with the run before."""
    said = []
    for series in history.series:
        known = [point for point in series.points if point.values[metric.name].value is not None]
        if not known:
            continue
        last = known[-1].values[metric.name]
        whose = f"{name(history.label(series), 60)}: " if len(history.series) > 1 else ""
        text = f"{whose}{metric.short} {number(last.value)}"
        if last.change is not None and last.comparable:
            size = number(abs(last.change))
            change = {
                True: f"{size} better than the run before",
                False: f"{size} worse than the run before",
                None: f"changed by {size} since the run before",
            }[last.better]
            text += f", {change}" if last.change else ", the same as the run before"
        elif last.change is not None:
            text += ", not comparable with the run before"
        said.append(name(text, 300))
    return "; ".join(said) or f"{metric.short} has no value yet"


def _panel(history: History, metric: Measured) -> Mapping[str, Any]:
    runs = _ordered(history)
    places = {point.run_id: place for place, point in enumerate(runs)}
    values = [float(value) for series in history.series for value in series.values(metric.name) if value is not None]
    axis = value_axis(values)
    lines = []
    for series in history.series:
        spots = []
        for point in series.points:
            value = point.values[metric.name]
            if value.value is not None:
                spots.append(Spot(places[point.run_id], float(value.value), value.comparable))
        lines.append(spots)
    marks = {
        places[point.run_id]: "break" if point.breaks else "config" for point in runs if point.breaks or point.config
    }
    return {
        "name": metric.short,
        "better": {True: "higher is better", False: "lower is better", None: ""}[metric.higher_is_better],
        "drawing": time_line(len(runs), axis, lines, marks),
        "levels": [f"{tick:.4g}" for tick in axis.ticks],
        "from": _day(runs[0]),
        "to": _day(runs[-1]),
        "summary": "; ".join(
            f"{name(history.label(series), 60)}: {_summary(series.summary(metric.name))}" for series in history.series
        ),
    }


def _summary(numbers: Mapping[str, Any]) -> str:
    return ", ".join(f"{what} {number(value)}" for what, value in numbers.items())


def _day(point: Point) -> str:
    return point.moment.strftime("%Y-%m-%d") if point.moment else name(point.created_at, 40)


def _changes(history: History) -> list[list[str]]:
    """Where something changed, the latest first."""
    found = [point for point in _ordered(history) if point.breaks or point.config]
    return [
        ["▮" if point.breaks else "┆", _day(point), name(point.run_id, 80), name(changed(point), 600)]
        for point in reversed(found)
    ]
