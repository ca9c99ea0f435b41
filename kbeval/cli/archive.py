"""`kbeval archive`: the whole history as Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kbeval.cli import common
from kbeval.text import counted


@click.command("archive")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@common.db_option
@common.golden_option
@click.option("--prune", is_flag=True, help="forget archived runs that the database no longer holds")
@common.engine_options
def archive_command(folder: Path, prune: bool, **flags: Any) -> int:  # noqa: ANN401  (the shared options)
    """Write every run to DIR as Parquet, or bring DIR up to date.

    Only runs whose rows changed are written, each whole or not at all. An archive takes the place of the database
    wherever --db is asked for, and is never changed by that: scores are kept in a file beside it. With --golden the
    labels are archived too.
    """
    from kbeval.columnar.archiving import archive_runs
    from kbeval.golden import load_golden
    from kbeval.runs import broken_runs

    settings = common.Settings(**flags)
    database, golden = settings.db(), settings.get("golden")
    with common.Progress() as progress:
        options = settings.score_options(on_step=progress.step)
        labels = None if golden is None else load_golden(golden)
        found = archive_runs(database, folder, labels, options, prune=prune)
    size = found.size() / 1e6
    common.note(
        f"archived {counted(len(found.written), 'run')}, {len(found.unchanged):,} unchanged: {folder}, {size:,.1f} MB"
    )
    if found.gone:
        what = "forgotten" if prune else "kept (--prune forgets them)"
        common.note(f"{counted(len(found.gone), 'run')} no longer in the database, {what}")
    if labels is None:
        common.note("without labels; --golden FILE archives them too")
    if found.key_faults:
        common.fail(broken_runs(found.key_faults, "not archived"))
        return 2
    return 0
