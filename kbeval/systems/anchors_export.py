"""Writes a run of the anchor-labelled system back to a results folder, with its numbers and a readable summary."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbeval.compare.options import CompareOptions
from kbeval.compare.report import CompareReport
from kbeval.compare.run import IncomparableError, compare_runs
from kbeval.compare.run_summary import RunSummary
from kbeval.errors import BadRowsError, UsageError
from kbeval.scoring.aggregate import BadRow, score_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.run_config import config_of, imported_from
from kbeval.storage.runs import Run, broken_runs, find_run, key_faults, previous_run
from kbeval.storage.source import open_source, with_or_without_copy
from kbeval.systems.anchors import CONFIG, METRICS, RESULTS, SUMMARY
from kbeval.systems.judged_rows import JudgedRows, read_judged
from kbeval.systems.results_folder import Exported, imported_hash, read_row, refuse_source, write_folder
from kbeval.util.files import check_target, write_whole
from kbeval.util.text import json_text


def claim_folder(name: str, *, replace: bool, never: Sequence[str] = ()) -> Path:
    """The folder to write to: empty, or one to overwrite. `never`: input files, which must not be overwritten."""
    folder = Path(name)
    if not name:
        msg = "the folder to write to must not be empty"
        raise UsageError(msg)
    for path in (folder, *(folder / file for file in (RESULTS, CONFIG, METRICS, SUMMARY))):
        check_target(path, never)
    if folder.exists() and not folder.is_dir():
        msg = f"{name!r} is not a folder"
        raise UsageError(msg)
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        msg = f"{folder} is not empty; use --replace to overwrite its files"
        raise UsageError(msg)
    return folder


def export_folder(  # noqa: PLR0913  (what to export, from where and how)
    name: str,
    folder: Path,
    *,
    db: str | os.PathLike[str],
    golden: str | None,
    summarise: Callable[[RunSummary], str],
    full_text: bool = False,
    options: ScoreOptions | None = None,
) -> list[str]:
    """Write the folder; returns the names of its files. Secrets in configurations are hidden.

    `summarise` renders the summary.
    """
    options = options or ScoreOptions()
    run, before, rows, judged = with_or_without_copy(options, lambda options: _read_run(name, db, options))
    config = {**config_of(run), **judged.config}
    rows = [judged.row(row, str(row.get("query_id")), full_text=full_text) for row in rows]
    exported = Exported.of(rows, config, full_text=full_text)
    refuse_source(folder, run.run_id, exported, imported_hash(config))
    for old in (METRICS, SUMMARY):
        (folder / old).unlink(missing_ok=True)
    write_folder(folder, exported, run.created_at)
    aggregate = run.aggregate()
    if golden is not None:
        aggregate = score_runs(db, golden, [run.run_id], options).aggregates[run.run_id]
    if aggregate is None:
        return [RESULTS, CONFIG]
    write_whole(folder / METRICS, json_text(aggregate.to_dict()) + "\n")
    compared = None if before is None or golden is None else _compared(before, run, db, golden, options)
    found = RunSummary(run, exported.config, aggregate, options.metrics(), before, compared)
    write_whole(folder / SUMMARY, summarise(found))
    return [RESULTS, CONFIG, METRICS, SUMMARY]


def _read_run(
    name: str, db: str | os.PathLike[str], options: ScoreOptions
) -> tuple[Run, Run | None, list[dict[str, Any]], JudgedRows]:
    """A run, its previous run, its rows, and what judges said. A run with an unreadable row is not exported."""
    with open_source(db, options) as (session, source):
        stored = source.runs()
        run = find_run(stored, name, str(db), options.suite)
        if imported_from(config_of(run)) != "anchors":
            msg = f"run {run.run_id} was not imported from a results folder, so it cannot be exported as one"
            raise UsageError(msg)
        if repeated := key_faults(source, stored, [run]):
            raise broken_runs(repeated, "cannot be exported")
        source.feed(session, [run.run_id])
        session.need("bad_rows", "results")
        _refuse(
            [BadRow(*row) for row in session.rows("SELECT run_id, query_id, fault FROM bad_rows ORDER BY query_id")]
        )
        rows, unread = _read_rows(source.result_texts(run.run_id))
        if unread:
            # Rows that only Python cannot read are identified by their text.
            ids = [query_id for (query_id,) in session.rows("SELECT query_id FROM results ORDER BY query_id")]
            why = {query_id: unread.get(source.result_json(run.run_id, query_id) or "") for query_id in ids}
            _refuse([BadRow(run.run_id, query_id, fault) for query_id, fault in why.items() if fault is not None])
        return run, previous_run(stored, run), rows, read_judged(session, source, run.run_id, options)


def _refuse(faults: Sequence[BadRow]) -> None:
    if faults:
        raise BadRowsError([str(fault) for fault in faults], "nothing was written; repair or delete them first:")


def _read_rows(texts: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows, and the reason why each of the others cannot be read, by its text."""
    rows, unread = [], {}
    for text in texts:
        try:
            rows.append(read_row(text))
        except ValueError as error:
            unread[text] = str(error)
    return rows, unread


def _compared(
    before: Run, run: Run, db: str | os.PathLike[str], golden: str, options: ScoreOptions
) -> CompareReport | IncomparableError:
    """The run compared with the previous one of its suite, or why that is impossible."""
    try:
        compare = CompareOptions(scoring=replace(options, by=None), skip_bad_rows=True)
        return compare_runs(before.run_id, run.run_id, db=db, golden=golden, options=compare)
    except IncomparableError as error:
        return error
