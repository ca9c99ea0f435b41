"""`kbeval metrics` and `kbeval explain`: what is measured, and how."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.cli.hints import HINTS
from kbeval.util.text import markdown, shown

if TYPE_CHECKING:
    from kbeval.metrics.catalogue import Metric


@click.command("metrics")
@common.metric_options
@common.format_option
def metrics_command(form: str, **_: Any) -> int:  # noqa: ANN401
    """List all metrics, built-in and your own."""
    from kbeval.render.table import Column

    metrics = common.Settings().score_options().metrics()
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
@click.option("--run", metavar="RUN", help="with --query: how the number was computed, step by step")
@click.option("--query", "query_id", metavar="ID", help="the query whose rows are shown")
@common.db_option
@common.suite_option
@common.golden_option
@common.metric_options
@common.how_options
@common.resource_options
@click.option("--format", "form", type=click.Choice(["table", "json", "md"]), default="table", help="output format")
def explain_command(metric: str, run: str | None, query_id: str | None, form: str, **_: Any) -> int:  # noqa: ANN401
    """Explain one metric, or one number of one query.

    Shows what a metric means, what it applies to, and its SQL. With --run and --query, shows every step from the stored
    row to the number: each relation that the number depends on, with its file and its rows for this query.
    """
    if (run is None) != (query_id is None):
        msg = "--run and --query must be used together: a number is explained for one query of one run"
        raise click.UsageError(msg, click.get_current_context())
    settings = common.Settings()
    if run is not None and query_id is not None:
        _explain_number(settings, metric, run, query_id, form)
    else:
        _explain_metric(settings, metric, form)
    return 0


def _explain_number(settings: common.Settings, metric: str, run: str, query_id: str, form: str) -> None:
    from kbeval.explore.explain import explain_number
    from kbeval.metrics.names import ks_named
    from kbeval.render.explain import explanation_text
    from kbeval.render.rows import jsonable
    from kbeval.scoring.scorer import open_scoring
    from kbeval.storage.runs import find_run
    from kbeval.storage.source import stored_runs

    found = find_run(stored_runs(settings.db()), run, settings.db(), settings.get("suite"))
    with common.Progress() as progress:
        options = settings.score_options(found.scored_how(), on_step=progress.step)
        # Every step is shown, so rows must not come from the cache, where they are already parsed.
        options = replace(options, suite=None, cache="off", extra_ks=(*options.extra_ks, *ks_named([metric])))
        with open_scoring(settings.db(), settings.golden(), [found.run_id], options, lazily=True) as scoring:
            explanation = explain_number(scoring, metric, query_id)
    if form == "json":
        common.print_json(jsonable(explanation.to_dict()))
    else:
        text = explanation_text(explanation, form, common.paint)
        click.echo(HINTS.complete(text), color=common.wants_colour())


def _explain_metric(settings: common.Settings, metric: str, form: str) -> None:
    from kbeval.metrics import former
    from kbeval.metrics.catalogue import GRAINS, JUDGE
    from kbeval.metrics.names import CLASSICS, LOOK_ALIKES, Names
    from kbeval.metrics.row_scores import file_of
    from kbeval.storage.source import scores_that_came, stored_rubrics

    # Only the database knows the metrics of user-defined rubrics.
    rubrics = stored_rubrics(settings.db()) if metric.startswith(JUDGE) and settings.get("db") else ()
    came_along = scores_that_came(settings.db(), [metric]) if settings.get("db") else ()
    found = Names(settings.score_options().metrics(rubrics, came_along)).metric(metric)
    if form == "json":
        common.print_json(_as_json(found))
        return
    if_empty = "no value" if found.if_empty is None else f"{found.if_empty:g}"
    hows = {
        "mean": "their mean, rounded to four decimals",
        "count": "the number of queries for which it is true",
        "sum": "their sum, rounded to four decimals",
        "percentiles": "p50, p95 and total: the median, the 95th percentile and the sum",
    }
    how = hows[found.aggregation]
    grain = former.GRAINS.get(found.grain, found.grain)
    short = [number.short for number in found.numbers if number.short != number.long]
    lines = [
        f"applies to   {found.where}",
        f"in runs of   {f'{found.system}: imported ones' if found.system else 'any system'}",
        f"computed on  {grain}: {GRAINS[grain]}",
        f"at k         {', '.join(map(str, found.ks))}" if found.ks else None,
        f"in short     {', '.join(short)}" if short else None,
        f"in papers    {', '.join(number.classic for number in found.numbers)}" if found.name in CLASSICS else None,
        f"differs from {LOOK_ALIKES[found.name]}" if found.name in LOOK_ALIKES else None,
        f"for a run    {how}; {if_empty} if there are none",
        f"better       {found.better}",
        f"comparable   {'across' if found.across_chunkers else 'within'} chunker versions",
        f"defined in   {found.origin if found.origin != 'kbeval' else file_of(found)}",
    ]
    facts = [shown(line) for line in lines if line is not None]
    expression = [shown(line) for line in found.expression.splitlines()]
    if form == "md":
        title = f"**{markdown(found.name)}**: {markdown(found.summary)}"
        text = [title, "", *(f"- {markdown(line)}" for line in facts), "", "```sql", *expression, "```"]
    else:
        text = [shown(f"{found.name}: {found.summary}"), "", *facts, "", *(f"    {line}" for line in expression)]
    click.echo("\n".join(text))


def _home(metric: Metric) -> str:
    """Where a metric is defined, in short: the file name."""
    return metric.origin if metric.origin == "kbeval" else Path(metric.origin.partition(", metric ")[0]).name


def _as_json(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "summary": metric.summary,
        "grain": metric.grain,
        "where": metric.where,
        "system": metric.system,
        "k": list(metric.ks),
        "if_empty": metric.if_empty,
        "aggregation": metric.aggregation,
        "better": metric.better,
        "comparable": "across" if metric.across_chunkers else "within",
        "from": metric.origin,
        "expression": metric.expression,
    }
