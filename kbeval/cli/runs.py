"""`kbeval runs`: the runs in the database."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbeval.render.table import Cell
    from kbeval.storage.runs import Run


@click.command("runs")
@common.db_option
@common.suite_option
@common.format_option
@click.option("--forget", metavar="RUN", help="delete an unfinished run, with the answers stored for it")
@click.option("--yes", is_flag=True, help="with --forget: do not ask for confirmation")
def runs_command(form: str, forget: str | None, yes: bool, **_: Any) -> int:  # noqa: ANN401
    """List the stored runs, oldest first.

    Includes the stored numbers of each run. Runs that 'kbeval run' has not finished are listed separately.
    """
    if forget is not None:
        return _forget(common.Settings().db(), forget, is_sure=yes)
    from kbeval.metrics.names import short_name
    from kbeval.render.scores import FIRST_HEADLINES
    from kbeval.render.table import Column
    from kbeval.storage.run_config import config_of, imported_from, stored_warnings
    from kbeval.storage.runs import of_suite, run_faults
    from kbeval.storage.source import stored_runs

    settings = common.Settings()
    database, suite = settings.db(), settings.get("suite")
    stored = stored_runs(database)
    runs = of_suite(stored, suite, database)
    if form == "table":
        _note_unfinished(database, suite)
    if not runs and form == "table":
        common.note(f"{database} holds no runs yet")
        return 0
    repeats = any(config_of(run).get("repetition_of") for run in runs)
    systems = [imported_from(config_of(run)) for run in runs]
    numbers = [
        name
        for system, names in FIRST_HEADLINES.items()
        if system in systems or (system is None and form != "table")
        for name in names
    ]
    columns = [
        Column("run_id", "run", 36),
        Column("suite", width=16),
        Column("created_at", "created"),
        Column("commit_hash", "commit", 10),
        Column("chunker_version", "chunker", 20),
        Column("model", width=24),
        Column("rows", right=True),
        *([Column("repetition_of", "repeats", 36)] if repeats else []),
        Column("matching", "match"),
        *(Column(name, short_name(name), right=True) for name in numbers),
    ]
    common.print_table(columns, [_row(run, numbers, repeats=repeats) for run in runs], form)
    for fault in run_faults(stored, runs):
        common.warn(f"{fault}: the run cannot be scored or compared")
    for run in runs if form == "table" else ():
        for text in stored_warnings(config_of(run)):
            common.warn(f"run {run.run_id}: {text}")
    if form == "table" and not all(run.aggregate() for run in runs):
        common.note("runs without numbers have not been scored yet; run 'kbeval score --all'")
    return 0


def _note_unfinished(database: str, suite: str | None) -> None:
    """List the unfinished runs, which appear nowhere else."""
    from pathlib import Path

    from kbeval.storage.unfinished import unfinished_runs

    for run in unfinished_runs(Path(database)):
        if suite in (None, run.suite):
            common.note(f"unfinished: {run.run_id} ({run.suite}, started {run.started_at[:19]}Z): {run.state}")


def _forget(database: str, name: str, *, is_sure: bool) -> int:
    from pathlib import Path

    from kbeval.errors import UsageError
    from kbeval.live.journal import Journal, only_one
    from kbeval.storage.unfinished import find_unfinished, unfinished_runs
    from kbeval.util.text import counted, shown

    path = Path(database)
    run = find_unfinished(unfinished_runs(path), name, path)
    if not is_sure:
        answers = counted(run.answered, "answer")
        if not sys.stdin.isatty():
            msg = f"run {run.run_id!r} is not deleted: add --yes to delete it with its {answers}"
            raise UsageError(msg)
        if not click.confirm(f"Delete unfinished run {shown(run.run_id)} with its {answers}?", err=True):
            common.note("nothing was deleted")
            return 0
    with only_one(path, run.run_id), Journal(path) as journal:
        journal.forget(run.run_id)
    common.note(f"deleted unfinished run {run.run_id}")
    return 0


def _row(run: Run, numbers: Sequence[str], *, repeats: bool) -> list[Cell]:
    from kbeval.metrics.model import matched_by
    from kbeval.storage.run_config import config_of
    from kbeval.util.hiding import without_secrets

    config = without_secrets(config_of(run))
    llm, embedding = config.get("llm"), config.get("embedding")
    model = llm.get("model_id") if isinstance(llm, dict) else None
    model = model or config.get("llm_model")
    if model is None and isinstance(embedding, dict):
        model = embedding.get("model")
    aggregate = run.aggregate()
    return [
        run.run_id,
        run.suite,
        run.created_at,
        run.commit_hash,
        _text(config.get("chunker_version")),
        _text(model),
        run.rows,
        *([_text(config.get("repetition_of"))] if repeats else []),
        matched_by(aggregate.provenance) if aggregate else None,
        *(aggregate.value(name) if aggregate else None for name in numbers),
    ]


def _text(value: Any) -> str | None:  # noqa: ANN401  (whatever the runner stored)
    return None if value is None else str(value)
