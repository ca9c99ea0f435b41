"""`kbeval report`: one HTML file that shows the evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kbeval.cli import common
from kbeval.cli.compare import parent_folder
from kbeval.util.files import check_target, run_file, write_whole

_NAME = "report.html"


@click.command("report")
@click.argument("names", metavar="[RUN | A B]", nargs=-1)
@click.option("--history", is_flag=True, help="the names are metrics, such as mrr and hit@5: show them over time")
@click.option("-o", "--output", metavar="FILE", help="file to write  [default: RUNS_DIR/RUN/report.html]")
@click.option("--redact", is_flag=True, help="leave out all texts, and keep ids, ranks and numbers")
@click.option("--open", "opens", is_flag=True, help="open the file in the browser")
@click.option(
    "--slices",
    metavar="FIELD",
    multiple=True,
    callback=common.one_value,
    help="two runs: also per slice: category, difficulty, lang, tags or group",
)
@click.option("--ignore-invariants", is_flag=True, help="compare runs of different judges")
@click.option("--skip-bad-rows", is_flag=True, help="treat unreadable rows as failed queries")
@common.db_option
@common.suite_option
@common.golden_option
@common.how_options
@common.runs_dir_option
@common.metric_options
@common.engine_options
def report_command(names: tuple[str, ...], history: bool, **given: Any) -> int:  # noqa: ANN401  (click's options)
    """Write one HTML file that shows the evidence.

    For one run: its numbers with intervals, their distributions, its worst queries. For two runs: whether B is better
    than A, and both rankings and answers of every query side by side. With --history METRIC…: metrics over time. The
    file is self-contained: it opens from disk, loads nothing and sends nothing. It contains texts; --redact leaves
    them out.
    """
    if history and not names:
        msg = "name a metric after --history, such as mrr or hit@5"
        raise click.UsageError(msg, click.get_current_context())
    if not history and len(names) not in (1, 2):
        msg = "name one run, two runs to compare, or --history and metrics"
        raise click.UsageError(msg, click.get_current_context())
    settings = common.Settings()
    if given["output"] is not None:
        # Before any work is done.
        check_target(Path(given["output"]), settings.read_files())
    if history:
        page, run_id = _history(settings, names, given), None
    elif len(names) == 2:
        page, run_id = _two_runs(settings, names, given)
    else:
        page, run_id = _one_run(settings, names[0], given)
    path = _path(settings, given["output"], run_id)
    _write(path, page, settings)
    if given["opens"]:
        _open(path)
    return 0


def _path(settings: common.Settings, output: str | None, run_id: str | None) -> Path:
    if output is not None:
        return Path(output)
    runs_dir = Path(settings.get("runs_dir") or parent_folder(settings.db()) / "runs")
    return runs_dir / "history.html" if run_id is None else run_file(runs_dir, run_id, _NAME, "use -o FILE")


def _write(path: Path, page: str, settings: common.Settings) -> None:
    write_whole(path, page, never=settings.read_files())
    common.note(f"wrote {path}")


def _open(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        common.warn(f"no browser could be started; open {path} yourself")


def _two_runs(settings: common.Settings, runs: tuple[str, ...], given: dict[str, Any]) -> tuple[str, str]:
    from kbeval.compare.options import CompareOptions
    from kbeval.report.two_runs import two_runs_page

    with common.Progress() as progress:
        options = CompareOptions(
            scoring=settings.score_options(by=given["slices"], on_step=progress.step),
            ignore_invariants=given["ignore_invariants"],
            skip_bad_rows=given["skip_bad_rows"],
        )
        page, report = two_runs_page(
            *runs, db=settings.db(), golden=settings.golden(), options=options, redact=given["redact"]
        )
    return page, report.run_b


def _one_run(settings: common.Settings, run: str, given: dict[str, Any]) -> tuple[str, str]:
    from kbeval.report.one_run import OneRunOptions, one_run_page
    from kbeval.storage.runs import find_run
    from kbeval.storage.source import one_snapshot, stored_runs

    database = settings.db()
    with one_snapshot(database, settings.get("cache") or "auto"), common.Progress() as progress:
        found = find_run(stored_runs(database), run, database, settings.get("suite"))
        # In the same way as its stored numbers, unless the options say otherwise.
        scoring = replace(settings.score_options(found.scored_how(), on_step=progress.step), suite=None)
        options = OneRunOptions(scoring, skip_bad_rows=given["skip_bad_rows"], redact=given["redact"])
        return one_run_page(found.run_id, db=database, golden=settings.golden(), options=options), found.run_id


def _history(settings: common.Settings, metrics: tuple[str, ...], given: dict[str, Any]) -> str:
    from kbeval.explore.history import HistoryOptions
    from kbeval.report.history import HistoryPageOptions, history_page

    with common.Progress() as progress:
        scoring = settings.score_options(on_step=progress.step)
        options = HistoryPageOptions(
            HistoryOptions(suite=settings.get("suite"), metrics=scoring.metrics()), scoring, redact=given["redact"]
        )
        page, _ = history_page(*metrics, db=settings.db(), golden=settings.golden_if_any(), options=options)
    return page
