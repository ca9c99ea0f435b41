"""`kbeval archive`: the whole history as Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kbeval.cli import common
from kbeval.util.text import counted


@click.command("archive")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@common.written_db_option
@common.golden_option
@click.option("--prune", is_flag=True, help="remove archived runs that are no longer in the database")
@common.engine_options
def archive_command(folder: Path, prune: bool, **_: Any) -> int:  # noqa: ANN401  (the shared options)
    """Write every run to DIR as Parquet, or bring DIR up to date.

    Only runs whose rows changed are written, each completely or not at all. An archive can be passed as --db in place
    of the database and is never modified by that: scores are kept in a file next to it. With --golden the labels are
    archived too.
    """
    from kbeval.golden import load_golden
    from kbeval.storage.archive_writer import archive_runs
    from kbeval.storage.database_file import refuse_database
    from kbeval.storage.runs import broken_runs

    settings = common.Settings()
    database, golden = settings.db(), settings.get("golden")
    with common.Progress() as progress:
        options = settings.score_options(on_step=progress.step)
        refuse_database(golden, database)
        labels = None if golden is None else load_golden(golden)
        found = archive_runs(database, folder, labels, options, prune=prune)
    size = found.size() / 1e6
    common.note(
        f"archived {counted(len(found.written), 'run')}, {len(found.unchanged):,} unchanged: {folder}, {size:,.1f} MB"
    )
    if found.gone:
        what = "removed" if prune else "kept (use --prune to remove them)"
        common.note(f"{counted(len(found.gone), 'run')} no longer in the database, {what}")
    if labels is None:
        common.note("labels were not archived; use --golden FILE to include them")
    if found.key_faults:
        common.fail(broken_runs(found.key_faults, "not archived"))
        return 2
    return 0
