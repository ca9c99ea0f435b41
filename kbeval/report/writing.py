"""`kbeval report` as a function of the API."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kbeval.compare.options import CompareOptions
from kbeval.errors import UsageError
from kbeval.explore.history import HistoryOptions
from kbeval.golden import Golden
from kbeval.report.history import HistoryPageOptions, history_page
from kbeval.report.one_run import OneRunOptions, one_run_page
from kbeval.report.two_runs import two_runs_page
from kbeval.storage.runs import find_run
from kbeval.storage.source import one_snapshot, stored_runs
from kbeval.util.files import check_target, write_whole

Location = str | os.PathLike[str]


def write_report(  # noqa: PLR0913  (most have defaults)
    path: Location,
    *runs: str,
    db: Location,
    golden: Golden | Location | None = None,
    history: Sequence[str] = (),
    options: CompareOptions | None = None,
    redact: bool = False,
) -> Path:
    """Write one HTML file that shows the evidence: for one run, two runs, or metrics over time.

    - `runs`: one run, or two to compare; none with `history`.
    - `golden`: the golden file. A history without one has no lists of queries.
    - `history`: metrics to show over time, such as `["mrr", "hit@5"]`.
    - `options`: how to score and compare. Without them, a single run is scored in the same way as its stored numbers.
    - `redact`: leave out all texts, and keep ids, ranks and numbers.

    The file is complete before it replaces another one. Returns its path.
    """
    target = Path(path)
    read = [db, *([golden] if isinstance(golden, str | os.PathLike) else [])]
    # Before any work is done.
    check_target(target, read)
    chosen = options or CompareOptions()
    if history:
        if runs:
            msg = f"a history covers all runs: omit {', '.join(runs)}, or choose a suite with ScoreOptions(suite=…)"
            raise UsageError(msg)
        shown = HistoryOptions(suite=chosen.scoring.suite, metrics=chosen.scoring.metrics())
        page, _ = history_page(
            *history, db=db, golden=golden, options=HistoryPageOptions(shown, chosen.scoring, redact=redact)
        )
    elif len(runs) not in (1, 2):
        msg = "name one run, two runs to compare, or metrics with history=[…]"
        raise UsageError(msg)
    elif golden is None:
        msg = "no golden file given: pass golden=…"
        raise UsageError(msg)
    elif len(runs) == 2:
        page, _ = two_runs_page(*runs, db=db, golden=golden, options=chosen, redact=redact)
    else:
        page = _of_one_run(runs[0], db, golden, options, redact=redact)
    write_whole(target, page, never=read)
    return target


def _of_one_run(
    name: str, db: Location, golden: Golden | Location, options: CompareOptions | None, *, redact: bool
) -> str:
    chosen = options or CompareOptions()
    scoring = chosen.scoring
    with one_snapshot(db, scoring.cache):
        run = find_run(stored_runs(db), name, str(db), scoring.suite)
        how = replace(scoring, suite=None, **({} if options else run.scored_how()))
        one = OneRunOptions(how, skip_bad_rows=chosen.skip_bad_rows, redact=redact)
        return one_run_page(run.run_id, db=db, golden=golden, options=one)
