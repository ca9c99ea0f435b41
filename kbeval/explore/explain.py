"""How one number of one query was computed: every step from the stored row to the number that is stored for the run.

The steps are the relations that scoring itself builds, in its own session, restricted to the rows of one query. The
relevant ones are determined from their SQL (`kbeval.engine.lineage`): from the columns that the metric names back to
the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbeval.explore.explorer import prepare
from kbeval.explore.filling import conjuncts, filled_in
from kbeval.explore.inspect import no_row
from kbeval.explore.steps import Step, Steps
from kbeval.metrics.names import Name, Names
from kbeval.metrics.row_scores import file_of
from kbeval.scoring.aggregate import numbers_of, run_totals
from kbeval.util.numbers import plain

if TYPE_CHECKING:
    from kbeval.metrics.catalogue import Metric
    from kbeval.scoring.scorer import Scoring

# If a grain has more rows than this, the expression is shown with values for the first ones only.
MOST_FILLED = 10


@dataclass(frozen=True)
class Part:
    """One part of a metric's condition: as written, with the values of the query, and whether it is true."""

    text: str
    with_values: str
    # None: it is null, which counts as false.
    holds: bool | None


@dataclass(frozen=True)
class Total:
    """How the values of all queries give the run's number."""

    n_queries: int
    n_scored: int
    n_not_applicable: int
    # The exact sum, or a count, or two percentiles and the sum.
    made_of: tuple[str, ...]
    arithmetic: str
    # As scoring computes them now, by full name; null: no query has a value.
    numbers: Mapping[str, float | int | None]
    # As stored; empty: the run has not been scored.
    stored: Mapping[str, float | int | None]


@dataclass(frozen=True)
class Explanation:
    """All steps from a stored row to a number."""

    run_id: str
    query_id: str
    # The full name, `hit_at_k.5`, or that of the metric if it has several numbers.
    name: str
    metric: Metric
    metric_file: str
    notes: tuple[str, ...]
    steps: tuple[Step, ...]
    condition: tuple[Part, ...]
    applies: bool
    expression: str
    # The expression with the values of each row of the grain filled in.
    filled: tuple[str, ...]
    n_grain_rows: int
    # The query's value; None: the metric does not apply, or is null.
    score: float | None
    total: Total

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "run_id": self.run_id,
            "query_id": self.query_id,
            "metric": self.name,
            "summary": self.metric.summary,
            "notes": list(self.notes),
            "steps": [step.to_dict() for step in self.steps],
            "definition": {
                "file": self.metric_file,
                "grain": self.metric.grain,
                "condition": [vars(part) for part in self.condition],
                "applies": self.applies,
                "expression": self.expression,
                "filled": list(self.filled),
                "n_rows": self.n_grain_rows,
            },
            "score": self.score,
            "total": {
                **vars(self.total),
                "made_of": list(self.total.made_of),
                "numbers": dict(self.total.numbers),
                "stored": dict(self.total.stored),
            },
        }


def explain_number(scoring: Scoring, text: str, query_id: str) -> Explanation:
    """Explain a number of one query of the only run in the session, which has built nothing yet.

    Raises UsageError if there is no such number, or if the run has no row for the query that counts.
    """
    (run,) = scoring.runs
    names = Names(scoring.catalogue)
    metric, column, numbers = _named(names, text)
    prepare(scoring)
    session = scoring.session
    session.need("query_scores", metric.grain, "bad_rows")
    stored_row = scoring.source.result_json(run.run_id, query_id)
    found = session.rows("SELECT result_no FROM per_query WHERE query_id = $1", [query_id])
    if not found:
        raise no_row(scoring, query_id)
    ((result_no,),) = found
    condition = _condition(scoring, metric, result_no)
    applies = all(part.holds for part in condition)
    expression = metric.expression_at(column.k)
    steps = Steps(scoring, result_no, query_id)
    grain_rows = steps.values_of(metric.grain)
    return Explanation(
        run_id=run.run_id,
        query_id=query_id,
        name=numbers[0].long if len(numbers) == 1 else metric.name,
        metric=metric,
        metric_file=file_of(metric) if metric.origin == "kbeval" else metric.origin,
        notes=tuple(_notes(scoring, result_no, query_id)),
        steps=tuple(steps.behind(metric, expression, stored_row)),
        condition=tuple(condition),
        applies=applies,
        expression=expression,
        filled=tuple(filled_in(expression, row, metric.grain) for row in grain_rows[:MOST_FILLED]) if applies else (),
        n_grain_rows=len(grain_rows),
        score=_score(scoring, column, result_no),
        total=_total(scoring, metric, column, numbers),
    )


def _named(names: Names, text: str) -> tuple[Metric, Name, Sequence[Name]]:
    """The metric that a name refers to, its column per query, and its numbers per run."""
    metric, numbers = names.metric(text), names.numbers(text)
    if numbers[0].part is not None:
        return metric, metric.columns[0], numbers
    number = names.number(text)
    return metric, number, [number]


def _notes(scoring: Scoring, result_no: int, query_id: str) -> list[str]:
    """Anything unusual about the row."""
    found = []
    if result_no < 0:
        found.append("the run has no row for this query; it counts as a row without hits and without an answer")
    for (fault,) in scoring.session.rows("SELECT fault FROM bad_rows WHERE result_no = $1", [result_no]):
        found.append(f"the stored row cannot be read ({fault}); it counts as a failed query without hits")
    if scoring.golden.get(query_id) is None:
        found.append("the query is not in the golden file, so it has no labels and counts only in totals")
    return found


def _condition(scoring: Scoring, metric: Metric, result_no: int) -> list[Part]:
    """The parts of a metric's condition, all of which must be true."""
    session = scoring.session
    columns = [row[0] for row in session.rows("DESCRIBE per_query")]
    (values,) = session.rows("SELECT * FROM per_query WHERE result_no = $1", [result_no])
    row = dict(zip(columns, values, strict=True))
    parts = conjuncts(session, metric.condition)
    holding = ", ".join(f"CAST((\n{part}\n) AS BOOLEAN)" for part in parts)
    (holds,) = session.rows(f"SELECT {holding} FROM per_query WHERE result_no = $1", [result_no])
    return [Part(part, filled_in(part, row, "per_query"), is_held) for part, is_held in zip(parts, holds, strict=True)]


def _score(scoring: Scoring, column: Name, result_no: int) -> float | None:
    if column not in scoring.columns:
        return None
    sql = f'SELECT "{column.name}" FROM query_scores WHERE result_no = $1'
    ((value,),) = scoring.session.rows(sql, [result_no])
    return None if value is None else float(value)


def _total(scoring: Scoring, metric: Metric, column: Name, numbers: Sequence[Name]) -> Total:
    """The run's number, as scoring computes it."""
    (run,) = scoring.runs
    totals = {run_id: found for run_id, _, found in run_totals(scoring)}.get(run.run_id, {})
    values, _, exact = numbers_of(scoring, totals, run)
    made_of, scored, skipped = totals.get(column.name, ([], 0, 0))
    if column.name not in totals:
        ((skipped,),) = scoring.session.rows("SELECT COUNT(*) FROM query_scores")
    written = values.get(metric.name)
    now = {
        number.long: written.get(number.part if number.k is None else number.k)
        if isinstance(written, dict)
        else written
        for number in numbers
    }
    aggregate = run.aggregate()
    stored = aggregate.to_dict() if aggregate is not None else {}
    return Total(
        n_queries=scored + skipped,
        n_scored=scored,
        n_not_applicable=skipped,
        made_of=_texts(metric, made_of if scored else ()),
        arithmetic=_arithmetic(metric, made_of, scored, [exact.get(number.long) for number in numbers]),
        numbers=now,
        stored={number.long: _stored(stored, number) for number in numbers} if stored else {},
    )


def _stored(stored: Mapping[str, Any], number: Name) -> Any:  # noqa: ANN401  (whatever is stored)
    found = stored.get(number.long, stored.get(number.metric))
    return found.get(number.part or str(number.k)) if isinstance(found, dict) else found


def _arithmetic(metric: Metric, made_of: Sequence[Any], scored: int, exact: Sequence[Any]) -> str:
    """How the number is computed from the values, as text."""
    if not scored:
        none = "there is no number" if metric.if_empty is None else f"{metric.if_empty:g} is used instead"
        return f"no query of the run has a value: {none}"
    if metric.aggregation == "count":
        return f"{made_of[0]:,} of {scored:,} values are not 0"
    if metric.aggregation == "sum":
        return f"the sum of {scored:,} values is {_texts(metric, made_of)[0]}"
    if metric.aggregation == "percentiles":
        p50, p95, total = _texts(metric, made_of)
        return f"of {scored:,} values the median is {p50}, the 95th percentile {p95}, and the sum {total}"
    mean = "" if exact[0] is None else f" = {repr(float(exact[0])).removesuffix('.0')}"
    return f"{_texts(metric, made_of)[0]} / {scored:,}{mean}"


def _texts(metric: Metric, made_of: Sequence[Any]) -> tuple[str, ...]:
    """The components of a number as text: a count, or percentiles and a sum."""
    if metric.aggregation == "count" or not made_of:
        return tuple(map(_plain, made_of))
    *quantiles, total = made_of
    return (*(_plain(float(value)) for value in quantiles), _plain(plain(total)))


def _plain(value: Any) -> str:  # noqa: ANN401  (a number of the engine)
    """A number with no more decimals than it needs."""
    text = f"{value:f}" if not isinstance(value, int) else str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
