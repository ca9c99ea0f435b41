"""`kbeval history`: a metric over time, from the stored numbers."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common

if TYPE_CHECKING:
    from kbeval.explore.history import History


@click.command("history")
@click.argument("metrics", metavar="METRIC…", nargs=-1, required=True)
@common.db_option
@common.suite_option
@click.option("--last", type=click.IntRange(1, 1_000_000), metavar="N", help="the last N runs of each series")
@click.option(
    "--since", metavar="DATE", help="only runs since then, e.g. 2026-03-01 or 2026-03-01T14:00+02:00; UTC by default"
)
@click.option(
    "--by",
    metavar="FIELD",
    multiple=True,
    callback=common.one_value,
    help="one series per value of a field: suite, commit_hash, or a key of the configuration, e.g. llm.model_id",
)
@click.option(
    "--plot",
    "plots",
    metavar="FILE",
    multiple=True,
    help="also plot to FILE.svg, FILE.png or FILE.html; repeatable  [needs kbeval[plot]]",
)
@common.format_option
def history_command(metrics: tuple[str, ...], form: str, plots: tuple[str, ...], **flags: Any) -> int:  # noqa: ANN401
    """Show a metric over time, oldest run first.

    METRIC is a name such as mrr, hit@5 or latency_ms.p95; each metric is a column. The numbers are those that 'kbeval
    score' stored. Each suite is a series of its own, and 'change' is the difference from the previous run of the
    series. 'changed' lists what differs in the configuration, and why numbers may not be comparable.
    """
    from kbeval.explore.history import HistoryOptions, metric_history
    from kbeval.render.plot import check_ending

    names = ("suite", "last", "since", "by")
    chosen = {name: flags[name] for name in names}
    settings = common.Settings()
    database = settings.db()
    for plot in plots:
        check_ending(plot)
    found = metric_history(
        *metrics, db=database, options=HistoryOptions(**chosen, metrics=settings.score_options().metrics())
    )
    if plots and not found.series:
        common.note("nothing to plot")
    for plot in plots if found.series else ():
        _draw(found, plot, settings)
    _print(found, form)
    if not found.series:
        filtered = any(chosen[name] is not None for name in ("suite", "since"))
        common.note("no run matches; see 'kbeval runs'" if filtered else f"{database} holds no runs yet")
    for text in found.notes:
        common.note(text)
    return 0


def _print(found: History, form: str) -> None:
    from kbeval.render import history as text

    if form == "json":
        common.print_json(found.to_dict())
        return
    if found.series or form != "table":
        common.print_table(*text.history_table(found, for_programs=form == "csv"), form)
    if form == "table" and found.series and _draws_blocks():
        # These lines also tell which direction is better.
        click.echo()
        for line in text.spark_lines(found, shutil.get_terminal_size().columns):
            click.echo(line)
    elif form in ("table", "md") and found.series and (direction := text.direction_note(found)):
        common.note(direction)


def _draws_blocks() -> bool:
    """Sparklines are drawn only at a terminal whose encoding has the characters."""
    from kbeval.render.history import BLOCKS

    if sys.stdout is None or not sys.stdout.isatty():
        return False
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _draw(found: History, plot: str, settings: common.Settings) -> None:
    from pathlib import Path

    from kbeval.render.plot import draw
    from kbeval.util.files import write_whole

    write_whole(Path(plot), draw(found, plot), never=settings.read_files())
    common.note(f"wrote {plot}")
