"""`kbeval gate`: may this run pass? Exit code 1 says no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.cli.answer import ANSWER
from kbeval.render.table import FORMATS

if TYPE_CHECKING:
    from kbeval.gates import GateReport


@click.command("gate")
@click.argument("run")
@click.option("--min", "min_", metavar="METRIC=VALUE", multiple=True, help="a number must be at least this")
@click.option("--max", "max_", metavar="METRIC=VALUE", multiple=True, help="a number must be at most this")
@click.option(
    "--baseline", metavar="RUN", help="the run to compare with; 'previous' or '~1': the one before in its suite"
)
@click.option("--max-drop", metavar="METRIC=VALUE", multiple=True, help="worse than the baseline by at most this")
@click.option("--no-regressions", is_flag=True, help="nothing that the baseline found may be lost")
@click.option(
    "--not-worse", is_flag=True, help="no number may be worse than the baseline's beyond chance, as compare says"
)
@click.option("--min-scored", metavar="METRIC=N", multiple=True, help="a metric must rest on at least N queries")
@click.option("--max-missing", type=click.IntRange(0), metavar="N", help="golden queries that the run may lack")
@common.db_option
@common.suite_option
@common.golden_option
@common.how_options
@click.option("--ignore-invariants", is_flag=True, help="compare runs of different judges")
@click.option("--skip-bad-rows", is_flag=True, help="count rows that cannot be read as failed queries")
@common.metric_options
@click.option(
    "--format",
    "form",
    type=click.Choice((*FORMATS, "junit", "github")),
    default="table",
    show_default=True,
    help="how to print the result",
)
@common.engine_options
def gate_command(run: str, form: str, **flags: Any) -> int:  # noqa: ANN401  (click's options)
    """Hold a run against its gates.

    Exit code 0 where all pass, 1 where one fails. Metrics are named as in the JSON (hit_at_k.5) or in short (hit@5). A
    metric without a value fails its gate, and limits are held against exact values, not against rounded ones. Gates may
    also stand in [gates] of the config file; the command line adds to them and overrides them.

    A baseline 'previous', '~N' or 'latest~N' is one of the runs before RUN in its suite.
    """
    from kbeval.compare import CompareOptions
    from kbeval.gates import check_gates

    names = ("min_", "max_", "max_drop", "min_scored", "no_regressions", "not_worse", "max_missing", "baseline")
    asked = {name: flags.pop(name) for name in names}
    ignore, skip = (flags.pop(name) for name in ("ignore_invariants", "skip_bad_rows"))
    settings = common.Settings(**flags)
    table = _table(settings, asked)
    database = settings.db()
    with common.Progress() as progress:
        options = CompareOptions(
            scoring=settings.score_options(_as_stored(settings, run), on_step=progress.step),
            ignore_invariants=ignore,
            skip_bad_rows=skip,
        )
        found = check_gates(run, table, db=database, golden=settings.golden(), options=options)
    code = ANSWER.say(0 if found.passed else 1)
    _print(found, form)
    for warning in found.warnings:
        common.warn(warning)
    return code


def _table(settings: common.Settings, asked: dict[str, Any]) -> dict[str, Any]:
    """The gates of the config file, and over them those of the command line."""
    from kbeval.gates import SWITCHES, parse_limits, read_gates

    table = read_gates(settings.config.get("gates") or {}, str(settings.config.path))
    for kind, texts in (("min", asked["min_"]), ("max", asked["max_"])):
        table[kind] = {**table.get(kind, {}), **parse_limits(kind, texts)}
    for kind in ("max_drop", "min_scored"):
        table[kind] = {**table.get(kind, {}), **parse_limits(kind, asked[kind])}
    for key in ("max_missing", "baseline"):
        if asked[key] is not None:
            table[key] = asked[key]
    for key in SWITCHES:
        table[key] = asked[key] or table.get(key, False)
    return table


def _as_stored(settings: common.Settings, run: str) -> dict[str, Any]:
    """How the stored numbers of the run were made: that holds where nothing else was said."""
    from kbeval.runs import find_run
    from kbeval.sources.opening import stored_runs

    database = settings.db()
    return find_run(stored_runs(database), run, database, settings.get("suite")).scored_how()


def _print(found: GateReport, form: str) -> None:
    from kbeval.render.gates import gate_sentence, gate_table, github, junit
    from kbeval.text import shown

    if form == "json":
        common.print_json(found.to_dict())
    elif form == "junit":
        click.echo(junit(found))
    elif form == "github":
        click.echo(github(found))
    else:
        if form == "table":
            click.echo(common.paint(shown(gate_sentence(found)), "bold"))
        common.print_table(*gate_table(found), form)
