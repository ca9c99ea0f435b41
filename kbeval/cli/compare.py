"""`kbeval compare`: is B better than A, where, why, and is the difference significant?"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common

if TYPE_CHECKING:
    from kbeval.compare.report import CompareReport
    from kbeval.scoring.options import ScoreOptions

_NEXT_TO_DB = ""
_HTML = (".html", ".htm")


@click.command("compare")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@common.db_option
@common.suite_option
@common.golden_option
@click.option(
    "--top", type=click.IntRange(0, 1_000_000), default=5, show_default=True, help="number of queries to list"
)
@click.option(
    "--slices",
    metavar="FIELD",
    multiple=True,
    callback=common.one_value,
    help="also per slice: a field of the golden file, or several: category,lang",
)
@click.option(
    "--only",
    metavar="METRIC,…",
    help="test only these metrics, e.g. mrr,hit@5; fewer metrics give more statistical power",
)
@common.how_options
@click.option("--strict-chunker-version", is_flag=True, help="reject runs of different chunker versions")
@click.option("--ignore-invariants", is_flag=True, help="compare runs of different judges")
@click.option("--skip-bad-rows", is_flag=True, help="treat unreadable rows as failed queries")
@click.option(
    "--report",
    is_flag=False,
    flag_value=_NEXT_TO_DB,
    metavar="[PATH]",
    help="also write a report: HTML if PATH ends with .html, otherwise Markdown; without PATH to RUNS_DIR/B/report.md;"
    " must be the last option",
)
@common.runs_dir_option
@common.metric_options
@common.format_option
@common.engine_options
def compare_command(a: str, b: str, form: str, top: int, report: str | None, **flags: Any) -> int:  # noqa: ANN401  (click's options)
    """Compare two runs: is B better than A?

    Shows where, why, and whether the difference is significant. A and B are run ids, prefixes of run ids, or 'latest';
    a suffix ~1 means the run before that one in its suite. Chunk ids are valid only within one chunker version; if the
    versions differ, a hit is correct if it shares at least half of the text with an expected chunk. Differences are
    tested over the queries that both runs have, and corrected for the number of metrics.
    """
    from kbeval.compare.options import CompareOptions
    from kbeval.compare.run import compare_runs
    from kbeval.render.comparison import render_report_md

    names = ("slices", "only", "strict_chunker_version", "ignore_invariants", "skip_bad_rows")
    own = {name: flags[name] for name in names}
    settings = common.Settings()
    database, golden = settings.db(), settings.golden()
    with common.Progress() as progress:
        options = CompareOptions(
            scoring=settings.score_options(by=own.pop("slices"), on_step=progress.step),
            only=tuple(name.strip() for name in (own.pop("only") or "").split(",") if name.strip()),
            **own,
        )
        page: str | None = None
        if report is not None and report.lower().endswith(_HTML):
            from kbeval.report.two_runs import two_runs_page

            page, found = two_runs_page(a, b, db=database, golden=golden, options=options)
        else:
            found = compare_runs(a, b, db=database, golden=golden, options=options)
    if report is not None:
        _write(found, page, report, settings, database)
    if form == "json":
        common.print_json(found.to_dict())
    elif form == "md":
        click.echo(render_report_md(found), nl=False)
    elif form == "csv":
        from kbeval.render.comparison import every_query_table

        common.print_table(*every_query_table(found), form)
    else:
        _print_report(found, top)
    for warning in found.warnings:
        common.warn(warning)
    _tell_judged_hits(found, database, golden, options.scoring)
    return 0


def _tell_judged_hits(found: CompareReport, database: str, golden: str, options: ScoreOptions) -> None:
    """If people label here: a run whose hits were not judged looks worse than it is."""
    from kbeval.explore.unjudged import judged_in
    from kbeval.util.text import shown

    judged = judged_in(database, golden, [found.run_a, found.run_b], options)
    if any(one.unjudged for one in judged.values()):
        counts = ", ".join(f"{run} {judged[run]}" for run in (found.run_a, found.run_b) if run in judged)
        common.note(shown(f"hits in the top 10 that are judged: {counts}; the others count as wrong"))


def _write(found: CompareReport, page: str | None, report: str, settings: common.Settings, database: str) -> None:
    """Write the report; `page`: as HTML."""
    from kbeval.render.comparison import render_report_md
    from kbeval.util.files import run_file, write_whole

    runs_dir = Path(settings.get("runs_dir") or parent_folder(database) / "runs")
    path = Path(report) if report != _NEXT_TO_DB else run_file(runs_dir, found.run_b, "report.md", "use --report PATH")
    write_whole(path, render_report_md(found) if page is None else page, never=settings.read_files())
    common.note(f"wrote {path}")


def print_summary(found: CompareReport, only: Collection[str] | None = None) -> None:
    """The verdict and the numbers that it is based on."""
    from kbeval.render import comparison as text
    from kbeval.util.text import shown

    click.echo(common.paint(shown(f"{found.run_a} → {found.run_b}: {text.verdict_sentence(found.whole)}"), "bold"))
    click.echo(shown(text.matching_sentence(found)))
    click.echo()
    common.print_table(*text.delta_table(found.whole, only), "table")


def parent_folder(database: str) -> Path:
    """The folder that contains the database. An archive may be given as `.` and has a folder `runs` of its own."""
    path = Path(database)
    return (path.resolve() if path.is_dir() else path).parent


def _print_report(found: CompareReport, top: int) -> None:
    """The terminal view: the verdict first."""
    from kbeval.render import comparison as text

    print_summary(found, found.shown)
    click.echo(common.paint(text.legend(found.whole), "dim"))
    if found.slices:
        click.echo()
        common.print_table(*text.slice_table(found), "table")
    click.echo(f"\n{text.counts_sentence(found.whole)}")
    for title, table, more in text.sections(found, top):
        click.echo()
        listed = f", {len(table[1])} of {len(table[1]) + more:,}" if more else ""
        click.echo(common.paint(f"{title}{listed}", "bold"))
        if table[1]:
            common.print_table(*table, "table")
    if found.config_diff:
        click.echo(f"\n{common.paint('configuration', 'bold')}")
        common.print_table(*text.config_table(found), "table")
