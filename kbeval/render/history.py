"""A history as text: the table, and one sparkline per series."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from kbeval.explore.history import History, Point, Series
from kbeval.metrics.model import Number
from kbeval.render.table import Cell, Column, display_text
from kbeval.storage.run_config import Difference
from kbeval.util.text import cut, cut_inside, display_width, shown

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "
_KEYS_SHOWN = 3
_VALUE_WIDTH = 24

Table = tuple[list[Column], list[list[Cell]]]


def history_table(history: History, *, for_programs: bool = False) -> Table:
    """One row per run, series after series. For programs nothing is left out, and a change is a number."""
    by_field = history.by is not None and history.by != "suite"
    columns = [
        *([Column("suite", width=24)] if for_programs or history.has_suites else []),
        *([Column("group", shown(history.by or ""), 30, ellipsis_in_middle=True)] if by_field else []),
        Column("run_id", "run", 36, ellipsis_in_middle=True),
        Column("created_at", "created", 25),
        *([Column("commit_hash")] if for_programs else []),
    ]
    marks = for_programs or any(point.matching == "span" for series in history.series for point in series.points)
    if marks:
        columns.append(Column("matching", "match"))
    for metric in history.metrics:
        columns += [
            Column(metric.name, shown(metric.short), right=True),
            Column(f"{metric.name}.change", "change", right=True),
        ]
    columns.append(Column("changed", width=70))
    rows: list[list[Cell]] = []
    for series in history.series:
        for point in series.points:
            row: list[Cell] = [series.suite] if for_programs or history.has_suites else []
            row += [series.group] if by_field else []
            row += [point.run_id, point.created_at, *([point.commit_hash] if for_programs else [])]
            row += [point.matching] if marks else []
            for value in point.values.values():
                row += [value.value, value.change if for_programs else signed(value.change)]
            rows.append([*row, changed(point, None if for_programs else _KEYS_SHOWN) or (None if for_programs else "")])
    return columns, rows


def signed(value: Number) -> str | None:
    """A change with its sign; 0 if there was none."""
    if value is None:
        return None
    return (f"{value:+.4f}" if isinstance(value, float) else f"{value:+,}") if value else "0"


def changed(point: Point, most: int | None = _KEYS_SHOWN) -> str:
    """What differs from the previous run: first why numbers are not comparable, then keys, old → new."""
    some = point.config if most is None else point.config[:most]
    more = len(point.config) - len(some)
    parts = [*point.breaks, *(_difference(one) for one in some), *([f"{more} more"] if more else [])]
    return "; ".join(parts)


def _difference(one: Difference) -> str:
    return f"{cut(one.key, 40)} {_brief(one.a)} → {_brief(one.b)}"


def _brief(value: object) -> str:
    if value is None:
        return "–"
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _VALUE_WIDTH)


def spark_line(values: Sequence[Number]) -> str:
    """One block per value, from the smallest to the largest; a gap for no value, the middle block if all are equal."""
    found = [value for value in values if value is not None]
    if not found:
        return GAP * len(values)
    low, high = min(found), max(found)

    def block(value: Number) -> str:
        if value is None:
            return GAP
        if low == high:
            return BLOCKS[len(BLOCKS) // 2 - 1]
        return BLOCKS[min(len(BLOCKS) - 1, int((value - low) / (high - low) * len(BLOCKS)))]

    return "".join(map(block, values))


def spark_lines(history: History, width: int) -> Iterator[str]:
    """One line per series and metric, at most `width` wide; if not all runs fit, the last ones are drawn."""
    lines = [
        (_title(history, series, metric.short), series, metric)
        for series in history.series
        for metric in history.metrics
    ]
    longest = max((display_width(title) for title, _, _ in lines), default=0)
    for title, series, metric in lines:
        summary = series.summary(metric.name)
        numbers = "  ".join(f"{name} {display_text(value)}" for name, value in summary.items())
        numbers += "  (lower is better)" if metric.higher_is_better is False else ""
        free = max(8, width - longest - len(numbers) - 4)
        values = series.values(metric.name)
        drawn = spark_line(values)
        if len(drawn) > free:
            drawn = "…" + spark_line(values)[-(free - 1) :]
        yield f"{title}{' ' * (longest - display_width(title))}  {drawn}  {numbers}"


def _title(history: History, series: Series, metric: str) -> str:
    label = f"{cut_inside(shown(history.label(series)), 30)}  " if len(history.series) > 1 else ""
    return f"{label}{shown(metric)}"


def direction_note(history: History) -> str | None:
    """The metrics for which lower is better."""
    lower = [metric.short for metric in history.metrics if metric.higher_is_better is False]
    if not lower:
        return None
    return f"{', '.join(lower)}: lower is better, so a drop is an improvement"
