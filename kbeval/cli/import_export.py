"""`kbeval import` and `kbeval export`: files of other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kbeval.cli import common, import_tools
from kbeval.cli.import_documents import import_documents_command
from kbeval.cli.trec_files import export_trec, import_qrels, import_trec
from kbeval.util.text import counted, shown


@click.group("import")
def import_command() -> None:
    """Import runs of other systems, or documents to be searched.

    Imported runs are scored, compared and gated like any others.
    """


import_command.add_command(import_documents_command)


@import_command.command("anchors")
@click.argument("folders", nargs=-1, required=True, metavar="RESULTS_DIR...")
@click.option("--suite", default="anchors", show_default=True, help="the suite that the runs belong to")
@click.option("--replace", is_flag=True, help="overwrite an existing run that differs")
@common.written_db_option
def import_anchors(folders: tuple[str, ...], suite: str, replace: bool, **_: Any) -> int:  # noqa: ANN401  (click's options)
    """Import results folders: results.jsonl and config.json. The name of the folder becomes the run id.

    All folders are stored in one transaction. Importing the same folder again changes nothing. The database is created
    if it does not exist. Unknown fields are kept in the rows.
    """
    from kbeval.systems.anchors import read_folder

    runs = [read_folder(Path(folder), suite) for folder in folders]
    return _store(common.Settings().db(), runs, replace)


@import_command.command("grounded")
@click.argument("trace")
@click.option("--run-id", required=True, help="id of the run")
@click.option("--suite", default="grounded", show_default=True, help="the suite that the run belongs to")
@click.option("--replace", is_flag=True, help="overwrite an existing run that differs")
@common.written_db_option
def import_grounded(trace: str, run_id: str, suite: str, replace: bool, **_: Any) -> int:  # noqa: ANN401  (click's options)
    """Import a trace of grounded question answering (JSONL). For each question, the last line counts."""
    from kbeval.systems.json_lines import id_of
    from kbeval.systems.trace_import import read_trace

    if id_of(run_id) is None:
        msg = "--run-id is empty or not valid text"
        raise click.UsageError(msg, click.get_current_context())
    return _store(common.Settings().db(), [read_trace(Path(trace), run_id, suite)], replace)


def _store(database: str, runs: list[Any], replace: bool) -> int:
    from kbeval.systems.writing import write_runs

    outcomes = write_runs(database, runs, replace=replace)
    for run in runs:
        for warning in run.warnings:
            common.warn(warning)
        rows = counted(len(run.rows), "row")
        common.note(f"{outcomes[run.run_id]} {shown(run.run_id)}: {rows} in {database}")
    return 0


for _command in import_tools.COMMANDS:
    import_command.add_command(_command)
import_command.add_command(import_trec(_store))
import_command.add_command(import_qrels)


@click.group("export")
def export_command() -> None:
    """Export runs as the files of other systems, or as a DuckDB file."""


@export_command.command("anchors")
@click.argument("run")
@click.argument("folder", metavar="DIR")
@click.option("--full-text", is_flag=True, help="keep the full text of chunks instead of the first 200 characters")
@click.option("--replace", is_flag=True, help="overwrite a folder that is not empty")
@common.db_option
@common.suite_option
@common.golden_option
@common.engine_options
def export_anchors(run: str, folder: str, full_text: bool, replace: bool, **_: Any) -> int:  # noqa: ANN401  (click's options)
    """Write a run that was imported from a results folder back to a folder, with metrics.json and summary.md.

    With a golden file the numbers are computed, otherwise the stored ones are used.
    """
    from kbeval.render.summary import summary_md
    from kbeval.storage.source import one_snapshot
    from kbeval.systems.anchors_export import claim_folder, export_folder

    settings = common.Settings()
    place = claim_folder(folder, replace=replace, never=settings.read_files())
    with common.Progress() as progress, one_snapshot(settings.db(), settings.get("cache") or "auto"):
        options = settings.score_options(on_step=progress.step)
        written = export_folder(
            run,
            place,
            db=settings.db(),
            golden=settings.golden_if_any(),
            summarise=summary_md,
            full_text=full_text,
            options=options,
        )
    common.note(f"wrote {', '.join(written)} to {place}")
    if len(written) == 2:
        common.note("the run has not been scored yet; use --golden FILE to write its numbers too")
    return 0


export_command.add_command(export_trec)


@export_command.command("duckdb")
@click.argument("file", metavar="FILE")
@click.option("--replace", is_flag=True, help="overwrite an existing file")
@common.db_option
@common.golden_option
@common.how_options
@common.metric_options
@common.engine_options
def export_duckdb_command(file: str, replace: bool, **_: Any) -> int:  # noqa: ANN401  (click's options)
    """Write all runs with their rows, labels, scores and views to one DuckDB file.

    Any DuckDB client can open it. Secrets in configurations are hidden. Without a golden file there are no labels, and
    no scores that need them.
    """
    from kbeval.explore.duckdb_file import export_duckdb
    from kbeval.explore.explorer import open_explorer

    settings = common.Settings()
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
        common.note("no golden file given, so the file contains no labels; use --golden FILE to include them")
    return 0
