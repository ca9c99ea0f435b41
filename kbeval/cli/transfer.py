"""`kbeval import` and `kbeval export`: other systems' files in, and out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kbeval.cli import common
from kbeval.text import counted, shown


@click.group("import")
def import_command() -> None:
    """Import runs of other systems.

    They are scored, compared and gated like any other.
    """


@import_command.command("anchors")
@click.argument("folders", nargs=-1, required=True, metavar="RESULTS_DIR...")
@click.option("--suite", default="anchors", show_default=True, help="the suite that the runs belong to")
@click.option("--replace", is_flag=True, help="overwrite a run that is there and differs")
@common.db_option
def import_anchors(folders: tuple[str, ...], suite: str, replace: bool, **flags: Any) -> int:  # noqa: ANN401  (click's options)
    """Import results folders: results.jsonl and config.json, the folder's name is the run's id.

    All folders are stored in one transaction. Importing the same folder again changes nothing. The database is made
    where there is none. Fields that kbeval does not know stay in the rows.
    """
    from kbeval.importers.anchors import read_folder

    runs = [read_folder(Path(folder), suite) for folder in folders]
    return _store(common.Settings(**flags).db(), runs, replace)


@import_command.command("grounded")
@click.argument("trace")
@click.option("--run-id", required=True, help="what to call the run")
@click.option("--suite", default="grounded", show_default=True, help="the suite that the run belongs to")
@click.option("--replace", is_flag=True, help="overwrite a run that is there and differs")
@common.db_option
def import_grounded(trace: str, run_id: str, suite: str, replace: bool, **flags: Any) -> int:  # noqa: ANN401  (click's options)
    """Import a trace of grounded question answering (JSONL). The last line of a question counts."""
    from kbeval.importers.grounded import read_trace
    from kbeval.importers.lines import id_of

    if id_of(run_id) is None:
        msg = "--run-id must be text"
        raise click.UsageError(msg, click.get_current_context())
    return _store(common.Settings(**flags).db(), [read_trace(Path(trace), run_id, suite)], replace)


def _store(database: str, runs: list[Any], replace: bool) -> int:
    from kbeval.importers.writing import write_runs

    outcomes = write_runs(database, runs, replace=replace)
    for run in runs:
        for warning in run.warnings:
            common.warn(warning)
        rows = counted(len(run.rows), "row")
        common.note(f"{outcomes[run.run_id]} {shown(run.run_id)}: {rows} in {database}")
    return 0


@click.group("export")
def export_command() -> None:
    """Export runs as the files of other systems, or as a DuckDB file."""


@export_command.command("anchors")
@click.argument("run")
@click.argument("folder", metavar="DIR")
@click.option("--full-text", is_flag=True, help="keep the texts of chunks whole instead of their first 200 characters")
@click.option("--replace", is_flag=True, help="overwrite a folder that is not empty")
@common.db_option
@common.suite_option
@common.golden_option
@common.engine_options
def export_anchors(run: str, folder: str, full_text: bool, replace: bool, **flags: Any) -> int:  # noqa: ANN401  (click's options)
    """Write a run that was imported from a results folder as one again, with metrics.json and summary.md.

    The numbers are computed with the golden file where one is named, else those that are stored.
    """
    from kbeval.importers.exporting import claim_folder, export_folder

    settings = common.Settings(**flags)
    place = claim_folder(folder, replace=replace)
    with common.Progress() as progress:
        options = settings.score_options(on_step=progress.step)
        written = export_folder(
            run, place, db=settings.db(), golden=settings.golden_if_any(), full_text=full_text, options=options
        )
    common.note(f"wrote {', '.join(written)} to {place}")
    if len(written) == 2:
        common.note("the run has no numbers yet: name the golden file (--golden) to have them written too")
    return 0


@export_command.command("duckdb")
@click.argument("file", metavar="FILE")
@click.option("--replace", is_flag=True, help="overwrite a file that is there")
@common.db_option
@common.golden_option
@common.how_options
@common.metric_options
@common.engine_options
def export_duckdb_command(file: str, replace: bool, **flags: Any) -> int:  # noqa: ANN401  (click's options)
    """Write all runs, their rows, labels and scores as one DuckDB file, with the views over them.

    Any DuckDB client opens it. Secrets in configurations are hidden. Without a golden file there are no labels, and no
    scores that need them.
    """
    from kbeval.explore import open_explorer
    from kbeval.exporting_duckdb import export_duckdb

    settings = common.Settings(**flags)
    database, golden = settings.db(), settings.golden_if_any()
    with common.Progress() as progress:
        options = settings.score_options(on_step=progress.step)
        with open_explorer(database, golden, options) as explorer:
            made = export_duckdb(explorer, Path(file), options=options, replace=replace, never=settings.read_files())
            warnings = explorer.take_warnings()
    common.note(f"wrote {counted(len(made), 'table or view', 'tables and views')} to {file}")
    for warning in warnings:
        common.warn(warning)
    if golden is None:
        common.note("no golden file is named, so there are no labels in it: name it with --golden FILE")
    return 0
