"""`kbeval gate`: does this run pass its gates? Exit code 1 if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.cli.exit_code import EXIT_CODE
from kbeval.render.table import FORMATS

if TYPE_CHECKING:
    from kbeval.compare.gates import GateReport


@click.command("gate")
@click.argument("run")
@click.option("--min", "min_", metavar="METRIC=VALUE", multiple=True, help="minimum value of a metric")
@click.option("--max", "max_", metavar="METRIC=VALUE", multiple=True, help="maximum value of a metric")
@click.option(
    "--baseline", metavar="RUN", help="the run to compare with; 'previous' or '~1': the run before it in its suite"
)
@click.option(
    "--max-drop", metavar="METRIC=VALUE", multiple=True, help="how much worse than the baseline a metric may be"
)
@click.option("--no-regressions", is_flag=True, help="fail if the run no longer finds what the baseline found")
@click.option(
    "--not-worse", is_flag=True, help="fail if a metric is significantly worse than the baseline, as in compare"
)
@click.option(
    "--min-scored", metavar="METRIC=N", multiple=True, help="minimum number of queries that a metric is scored on"
)
@click.option(
    "--max-missing",
    type=click.IntRange(0),
    metavar="N",
    help="maximum number of golden queries without a row in the run",
)
@common.db_option
@common.suite_option
@common.golden_option
@common.how_options
@click.option("--ignore-invariants", is_flag=True, help="compare runs of different judges")
@click.option("--skip-bad-rows", is_flag=True, help="treat unreadable rows as failed queries")
@common.metric_options
@click.option(
    "--format",
    "form",
    type=click.Choice((*FORMATS, "junit", "github")),
    default="table",
    show_default=True,
    help="output format",
)
@common.engine_options
def gate_command(run: str, form: str, **flags: Any) -> int:  # noqa: ANN401  (click's options)
    """Check a run against its thresholds.

    Exit code 0 if all gates pass, 1 if one fails. Metrics are named as in the JSON (hit_at_k.5) or by their
    short names (hit@5). A metric without a value fails its gate. Thresholds are compared with exact values, not with
    rounded ones. Gates can also be defined in [gates] of the config file; the command line adds to them and overrides
    them.

    A baseline of 'previous', '~N' or 'latest~N' is a run before RUN in its suite.
    """
    from kbeval.compare.gates import check_gates
    from kbeval.compare.options import CompareOptions
    from kbeval.storage.source import one_snapshot

    names = ("min_", "max_", "max_drop", "min_scored", "no_regressions", "not_worse", "max_missing", "baseline")
    asked = {name: flags[name] for name in names}
    settings = common.Settings()
    table = _table(settings, asked)
    database = settings.db()
    with common.Progress() as progress, one_snapshot(database, settings.get("cache") or "auto"):
        options = CompareOptions(
            scoring=settings.score_options(_as_stored(settings, run), on_step=progress.step),
            ignore_invariants=flags["ignore_invariants"],
            skip_bad_rows=flags["skip_bad_rows"],
        )
        found = check_gates(run, table, db=database, golden=settings.golden(), options=options)
    code = EXIT_CODE.decide(0 if found.passed else 1)
    _print(found, form)
    for warning in found.warnings:
        common.warn(warning)
    return code


def _table(settings: common.Settings, asked: dict[str, Any]) -> dict[str, Any]:
    """The gates of the config file, overridden by those of the command line."""
    from kbeval.compare.gates import SWITCHES, parse_limits, read_gates

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
    """The settings that the stored numbers of the run were computed with: the defaults here."""
    from kbeval.storage.runs import find_run
    from kbeval.storage.source import stored_runs

    database = settings.db()
    return find_run(stored_runs(database), run, database, settings.get("suite")).scored_how()


def _print(found: GateReport, form: str) -> None:
    from kbeval.render.gates import gate_sentence, gate_table, github, junit
    from kbeval.util.text import shown

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
