"""An explanation as text: each step with its file and its rows, for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kbeval.render.rows import cell
from kbeval.render.table import Cell, Column, Paint, display_text, render
from kbeval.util.text import counted, markdown, shown

if TYPE_CHECKING:
    from kbeval.explore.explain import Explanation, Total
    from kbeval.explore.steps import Step

# Further rows of a step are only counted.
MOST_ROWS = 10
_HOW = {"mean": "the mean", "count": "how many", "sum": "the sum", "percentiles": "percentiles and sum"}


def explanation_text(found: Explanation, form: str, paint: Paint) -> str:
    """An explanation as text; `form`: table or md."""
    return "\n".join(_Page(found, form, paint).lines()).rstrip("\n")


class _Page:
    def __init__(self, found: Explanation, form: str, paint: Paint) -> None:
        self._found = found
        self._form = form
        self._paint = paint
        self._number = 0

    def lines(self) -> Iterator[str]:
        found = self._found
        yield self._title(f"{found.name} of query {found.query_id} in run {found.run_id}: {_value(found)}", 2)
        yield self._plain(found.metric.summary)
        for note in found.notes:
            yield ""
            yield self._plain(f"Note: {note}.")
        for step in found.steps:
            yield from self._step(step)
        yield from self._definition()
        yield from self._head("score", "sql/totals/query_scores.sql", "the value of this query, if the metric applies")
        yield from self._indented([self._plain(_score_line(found))])
        yield from self._total(found.total)

    def _step(self, step: Step) -> Iterator[str]:
        yield from self._head(step.name, step.file, step.what)
        if not step.n_rows:
            yield from self._indented(["no rows"])
            return
        # The fields of an object are all shown, one per line.
        most = MOST_ROWS if step.columns != ("field", "value") else step.n_rows
        rows = [[_cell(value, self._form) for value in row] for row in step.rows[:most]]
        yield from self._table(step.columns, rows)
        if more := step.n_rows - len(rows):
            yield from self._indented([f"… and {counted(more, 'more row')}"])

    def _definition(self) -> Iterator[str]:
        found = self._found
        yield from self._head("metric", found.metric_file, found.metric.summary)
        parts: list[list[Cell]] = [[part.text, part.with_values, bool(part.holds)] for part in found.condition]
        yield from self._table(("applies where", "with its values", "holds"), parts)
        yield ""
        if not found.applies:
            broken = [part.text for part in found.condition if not part.holds]
            yield from self._indented(
                [self._plain(f"It does not apply to this query: not {' and not '.join(broken)}.")]
            )
            return
        yield from self._code([" ".join(found.expression.split())])
        yield from self._indented([self._plain(f"over {counted(found.n_grain_rows, 'row')} of {found.metric.grain}:")])
        yield from self._code(found.filled)
        if more := found.n_grain_rows - len(found.filled):
            yield from self._indented([f"… and {counted(more, 'more row')}"])

    def _total(self, total: Total) -> Iterator[str]:
        found = self._found
        how = f"{_HOW[found.metric.aggregation]} of the values of all queries of the run"
        yield from self._head("number", "sql/totals/run_totals.sql", how)
        queries = counted(total.n_queries, "query", "queries")
        yield from self._indented(
            [
                self._plain(f"{total.n_scored:,} of {queries} have a value"),
                self._plain(total.arithmetic),
                *(self._plain(line) for line in self._numbers(total)),
            ]
        )

    @staticmethod
    def _numbers(total: Total) -> Iterator[str]:
        for name, value in total.numbers.items():
            rounded = ", rounded to four decimals" if isinstance(value, float) and total.n_scored else ""
            yield f"{name} = {display_text(value)}{rounded}"
            if not total.stored:
                yield "the run has not been scored yet, so nothing is stored"
            elif total.stored[name] == value:
                yield f"stored: {display_text(value)}"
            else:
                yield f"stored: {display_text(total.stored[name])}, which differs; see 'kbeval recompute --explain'"

    # --- pieces -----------------------------------------------------------------------------------

    def _head(self, name: str, file: str | None, what: str) -> Iterator[str]:
        self._number += 1
        yield ""
        if self._form == "md":
            yield f"### {self._number}. {markdown(name)}"
            yield ""
            yield (f"`{file}`: " if file else "") + markdown(what)
            yield ""
            return
        place = f"  {self._paint(shown(file), 'dim')}" if file else ""
        yield f"{self._number:>2}  {self._paint(shown(name), 'bold')}{place}"
        yield f"    {shown(what)}"

    def _title(self, text: str, level: int) -> str:
        return f"{'#' * level} {markdown(text)}\n" if self._form == "md" else self._paint(shown(text), "bold")

    def _plain(self, text: str) -> str:
        return markdown(text) if self._form == "md" else shown(text)

    def _code(self, texts: Sequence[str]) -> list[str]:
        lines = [shown(text) for text in texts]
        return ["```sql", *lines, "```"] if self._form == "md" else [f"        {line}" for line in lines]

    def _table(self, names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
        width = 100 if len(names) < 4 else 60
        columns = [Column(name, width=width, right=_is_number(rows, place)) for place, name in enumerate(names)]
        text = render(columns, rows, self._form, self._paint if self._form == "table" else None)
        yield from self._indented(text.split("\n"))

    def _indented(self, lines: Sequence[str]) -> Iterator[str]:
        for line in lines:
            if self._form != "md":
                yield f"      {line}"
            else:
                # Two trailing spaces keep the line from being joined with the next one; rows of a table need none.
                yield line if line.startswith("|") else f"{line}  "


def _cell(value: Any, form: str) -> Cell:  # noqa: ANN401  (whatever a column holds)
    """Positions and sizes are integers in float columns: no meaningless decimals."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return cell(_without_nulls(value), form)


def _without_nulls(value: Any) -> Any:  # noqa: ANN401  (whatever a column holds)
    """A structure without its null fields: most of the optional ones are absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _is_number(rows: Sequence[Sequence[Any]], place: int) -> bool:
    values = [row[place] for row in rows if row[place] is not None]
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _score_line(found: Explanation) -> str:
    if found.score is not None:
        return f"{found.name} = {_exact(found.score)}"
    return "null, so it is not counted" if found.applies else "no value, because the metric does not apply"


def _value(found: Explanation) -> str:
    if found.score is not None:
        return _exact(found.score)
    return "null" if found.applies else "does not apply"


def _exact(value: float | None) -> str:
    """A number as it is: not rounded, without meaningless decimals."""
    if isinstance(value, float):
        return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else repr(value)
    return display_text(value)
