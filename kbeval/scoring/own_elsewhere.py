"""Own metrics on an engine elsewhere: any SQL, which two engines may read differently without a word.

So each is computed for one run by both engines first: 1.0 / 3 is a decimal number of six digits on Spark. What is not
the same to the last bit is refused, with both values.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kbeval.errors import EngineError, MetricError
from kbeval.metrics.catalogue import Metric
from kbeval.util.text import cut

if TYPE_CHECKING:
    from kbeval.scoring.scorer import Scoring
    from kbeval.storage.runs import Run

# A run of so many rows shows differences, and is scored at once.
_ENOUGH_ROWS = 5_000
# What was found, by engine, archive and metrics: one command may score in steps.
_checked: dict[tuple[str, ...], frozenset[str]] = {}


def checked_on_both(scoring: Scoring, own: Sequence[Metric]) -> frozenset[str]:
    """Compute own metrics for one run here and there. Returns those that aggregate the one row of a query."""
    database: str | os.PathLike[str] = scoring.source.path  # type: ignore[attr-defined]  # an archive has one
    texts = (f"{metric.origin}\n{metric.where}\n{metric.expression}" for metric in own)
    key = (scoring.options.engine, str(database), *texts)
    if key in _checked:
        return _checked[key]
    if not scoring.runs:
        return frozenset()
    run = _one_of(scoring.runs)
    here, aggregates = _values(scoring, database, run, own, "")
    # For the scoring there, which asks the same.
    _checked[key] = aggregates
    try:
        there, _ = _values(scoring, database, run, own, scoring.options.engine)
        _compare(run, own, here, there)
    except EngineError as error:
        del _checked[key]
        raise MetricError(f"{_named(own)}: {error}") from error
    except BaseException:
        del _checked[key]
        raise
    return aggregates


def _one_of(runs: Sequence[Run]) -> Run:
    """The largest run that is not too large, else the smallest."""
    few = [run for run in runs if run.rows <= _ENOUGH_ROWS]
    return max(few, key=lambda run: run.rows) if few else min(runs, key=lambda run: run.rows)


Values = Mapping[str, Sequence[float | None]]


def _values(
    scoring: Scoring, database: str | os.PathLike[str], run: Run, own: Sequence[Metric], engine: str
) -> tuple[Values, frozenset[str]]:
    """The values of own metrics for each query of a run."""
    from kbeval.scoring.scorer import open_scoring

    options = replace(scoring.options, engine=engine)
    with open_scoring(database, scoring.golden, [run.run_id], options) as one:
        one.build_query_scores()
        names = [one.session.quoted(column.name) for metric in own for column in metric.columns]
        found = one.session.rows(f"SELECT query_id, {', '.join(names)} FROM query_scores")
        return {str(query_id): values for query_id, *values in found}, one.aggregates_of_one_row


def _compare(run: Run, own: Sequence[Metric], here: Values, there: Values) -> None:
    columns = [(metric, column.name) for metric in own for column in metric.columns]
    for query_id, values in sorted(here.items()):
        for (metric, name), a, b in zip(columns, values, there.get(query_id, [None] * len(columns)), strict=True):
            if not _is_same(a, b):
                msg = (
                    f"{metric.origin}: {name} is {a} by DuckDB and {b} by the engine"
                    f" (run {cut(run.run_id, 60)}, query {cut(query_id, 60)}): write it so that both agree,"
                    " e.g. CAST(1 AS DOUBLE) for 1.0"
                )
                raise MetricError(msg)


def _is_same(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return a == b or (math.isnan(a) and math.isnan(b))


def _named(own: Sequence[Metric]) -> str:
    return own[0].origin if len(own) == 1 else f"one of {', '.join(metric.name for metric in own)}"
