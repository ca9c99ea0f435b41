"""`kbeval metrics` and `kbeval explain`: what is measured, and how."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.text import shown

if TYPE_CHECKING:
    from kbeval.metrics import Metric


@click.command("metrics")
@common.metric_options
@common.format_option
def metrics_command(form: str, **flags: Any) -> int:  # noqa: ANN401
    """List every metric: the shipped ones and your own."""
    from kbeval.render.table import Column

    metrics = common.Settings(**flags).score_options().metrics()
    columns = [
        Column("metric"),
        Column("k"),
        Column("system", "runs of"),
        Column("what_it_measures", "what it measures", 110),
        Column("from"),
    ]
    every = "any" if form in ("table", "md") else None
    rows = [[m.name, ",".join(map(str, m.ks)) or None, m.system or every, m.summary, _home(m)] for m in metrics]
    common.print_table(columns, rows, form)
    return 0


@click.command("explain")
@click.argument("metric")
@common.metric_options
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", help="how to print it")
def explain_command(metric: str, form: str, **flags: Any) -> int:  # noqa: ANN401
    """Explain one metric.

    What it means, what it applies to, and its SQL.
    """
    from kbeval.metrics import GRAINS
    from kbeval.names import Names

    found = Names(common.Settings(**flags).score_options().metrics()).metric(metric)
    if form == "json":
        common.print_json(_as_json(found))
        return 0
    none = "no value" if found.none is None else f"{found.none:g}"
    hows = {
        "mean": "their mean, rounded to four decimals",
        "count": "how many of them have it",
        "sum": "their sum, rounded to four decimals",
        "percentiles": "p50, p95 and total: the median, the 95th percentile and the sum",
    }
    how = hows[found.aggregation]
    short = [number.short for number in found.numbers if number.short != number.long]
    lines = [
        f"{found.name}: {found.summary}",
        "",
        f"applies to   {found.over}",
        f"in runs of   {f'{found.system}: imported ones' if found.system else 'any system'}",
        f"computed on  {found.grain}: {GRAINS[found.grain]}",
        f"at k         {', '.join(map(str, found.ks))}" if found.ks else None,
        f"in short     {', '.join(short)}" if short else None,
        f"for a run    {how}; {none} where there are none",
        f"better       {found.better}",
        f"comparable   {'across' if found.across_chunkers else 'within'} chunker versions",
        f"defined in   {found.origin if found.origin != 'kbeval' else f'sql/metrics/{found.name}.sql'}",
        "",
        *(f"    {line}" for line in found.expression.splitlines()),
    ]
    click.echo("\n".join(shown(line) for line in lines if line is not None))
    return 0


def _home(metric: Metric) -> str:
    """Where a metric is defined, in short: the name of the file."""
    return metric.origin if metric.origin == "kbeval" else Path(metric.origin.partition(", metric ")[0]).name


def _as_json(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "summary": metric.summary,
        "grain": metric.grain,
        "over": metric.over,
        "system": metric.system,
        "k": list(metric.ks),
        "none": metric.none,
        "aggregation": metric.aggregation,
        "better": metric.better,
        "comparable": "across" if metric.across_chunkers else "within",
        "from": metric.origin,
        "expression": metric.expression,
    }
