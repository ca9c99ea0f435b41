"""`kbeval.evaluate`: metrics of runs that are tables, dictionaries or TREC files, without a database."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from kbeval.compare.stats import NO_DIFFERENCE, Pairs, Significance, Verdict, assess, verdict
from kbeval.errors import UsageError
from kbeval.frames.kernel import Kernel, exact_mean, parse_measure
from kbeval.frames.ranking import BY_SCORE, QUERY, Judged, judge
from kbeval.frames.reading import ids_as_text, is_many, read_qrels, read_run
from kbeval.metrics.catalogue import Metric
from kbeval.metrics.names import Name
from kbeval.util.numbers import rounded
from kbeval.util.text import counted, cut, did_you_mean, shown

DEFAULT_METRICS = ("nDCG@10", "RR@10", "P@5", "R@10")


@dataclass(frozen=True, eq=False)
class Evaluation(Mapping[str, float | None]):
    """The metrics of one run, by the requested names: `result["nDCG@10"]`."""

    # The requested names, and their meanings.
    measures: Mapping[str, Name]
    # One row per query: query_id, and a column for each measure by its long name.
    table: pl.DataFrame = field(repr=False)
    metrics: Mapping[str, Metric] = field(repr=False)
    # Queries that only one side has; they are left out.
    only_in_run: int = 0
    only_in_qrels: int = 0
    name: str = "run"
    # What makes the numbers untrustworthy, such as ids that are nearly equal.
    warnings: Sequence[str] = ()

    @cached_property
    def _means(self) -> dict[str, float | None]:
        return {asked: exact_mean(self.table[name.long]) for asked, name in self.measures.items()}

    def __getitem__(self, asked: str) -> float | None:
        """The mean over the queries; None if no query has a value."""
        if asked in self._means:
            return self._means[asked]
        if isinstance(asked, str):
            wanted = parse_measure(asked)
            for other, name in self.measures.items():
                if name == wanted:
                    return self._means[other]
        msg = f"{asked!r} was not requested{did_you_mean(str(asked), self.measures)}"
        raise KeyError(msg)

    def __iter__(self) -> Iterator[str]:
        return iter(self.measures)

    def __len__(self) -> int:
        return len(self.measures)

    @property
    def queries(self) -> int:
        """How many queries were evaluated."""
        return self.table.height

    def per_query(self) -> pl.DataFrame:
        """One row per query and metric: query_id, metric (as requested), value."""
        parts = [
            self.table.select(QUERY, pl.lit(asked).alias("metric"), pl.col(name.long).alias("value"))
            for asked, name in self.measures.items()
        ]
        return pl.concat(parts).sort(QUERY, maintain_order=True)

    def frame(self) -> pl.DataFrame:
        """One row per metric: metric, value, queries (that have a value)."""
        rows = [(asked, self[asked], self.table[name.long].count()) for asked, name in self.measures.items()]
        return pl.DataFrame(rows, schema={"metric": pl.String, "value": pl.Float64, "queries": pl.Int64}, orient="row")

    def compare(self, other: Evaluation) -> Comparison:
        """Is the other run better than this one? The statistics are those of `kbeval compare`."""
        if not isinstance(other, Evaluation):
            msg = f"compare takes another result of evaluate, not {type(other).__name__}"
            raise UsageError(msg)
        pairs = _pairs(self, other)
        if not pairs:
            msg = "the two results have no metric in common"
            raise UsageError(msg)
        significance = assess(pairs)
        return Comparison(self, other, significance, verdict(significance, next(iter(pairs))))

    def notes(self) -> list[str]:
        """What makes the numbers untrustworthy, and what was left out."""
        found = list(self.warnings)
        if self.only_in_qrels:
            what = counted(self.only_in_qrels, "query", "queries")
            found.append(f"{what} of the qrels without a ranking left out (complete=True counts them as 0)")
        if self.only_in_run:
            found.append(f"{counted(self.only_in_run, 'query', 'queries')} of the run without judgements left out")
        return found

    def __repr__(self) -> str:
        return _text(self.frame(), self.notes())

    def _repr_html_(self) -> str:
        return _html(self.frame(), self.notes())


@dataclass(frozen=True)
class Comparison:
    """Two runs: what changed, and whether it is significant."""

    a: Evaluation
    b: Evaluation
    significance: Mapping[str, Significance]
    verdict: Verdict

    def frame(self) -> pl.DataFrame:
        """One row per metric: both means, the difference with its 95 % interval, and p, alone and corrected (Holm)."""
        return _differences([("", self.a, self.b, self.significance)]).drop("run")

    def __repr__(self) -> str:
        return _text(self.frame(), [f"verdict: {self.verdict.answer}"])

    def _repr_html_(self) -> str:
        return _html(self.frame(), [f"verdict: {self.verdict.answer}"])


@dataclass(frozen=True, eq=False)
class Evaluations(Mapping[str, Evaluation]):
    """Several runs by name, each compared with the baseline; p is corrected over all of these comparisons."""

    runs: Mapping[str, Evaluation]
    baseline: str

    def __getitem__(self, name: str) -> Evaluation:
        if name not in self.runs:
            msg = f"there is no run {name!r}{did_you_mean(str(name), self.runs)}"
            raise KeyError(msg)
        return self.runs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @cached_property
    def significance(self) -> dict[str, dict[str, Significance]]:
        """By run and metric; the baseline has none."""
        base = self.runs[self.baseline]
        keys: dict[str, tuple[str, str]] = {}
        pairs: dict[str, Pairs] = {}
        for name, other in self.runs.items():
            if name == self.baseline:
                continue
            for asked, pair in _pairs(base, other).items():
                key = f"{len(keys):09d}"
                keys[key] = (name, asked)
                pairs[key] = pair
        found: dict[str, dict[str, Significance]] = {name: {} for name in self.runs if name != self.baseline}
        for key, one in assess(pairs).items():
            name, asked = keys[key]
            found[name][asked] = one
        return found

    def per_query(self) -> pl.DataFrame:
        """As for one run, with the column `run` first."""
        parts = [one.per_query().select(pl.lit(name).alias("run"), pl.all()) for name, one in self.runs.items()]
        return pl.concat(parts)

    def frame(self) -> pl.DataFrame:
        """One row per run and metric: its mean, and for all runs but the baseline the difference and its statistics."""
        base = self.runs[self.baseline]
        return _differences(
            [(name, base, one, self.significance.get(name, {})) for name, one in self.runs.items()], self.baseline
        )

    def notes(self) -> list[str]:
        """What was left out, per run."""
        said = f"baseline: {self.baseline}; p_holm is corrected over all runs and metrics"
        return [said, *(f"{name}: {note}" for name, one in self.runs.items() for note in one.notes())]

    def __repr__(self) -> str:
        return _text(self.frame(), self.notes())

    def _repr_html_(self) -> str:
        return _html(self.frame(), self.notes())


def evaluate(  # noqa: PLR0913  (what to evaluate, and how)
    run: Any,  # noqa: ANN401  (whatever holds a run, or several)
    qrels: Any,  # noqa: ANN401  (whatever holds judgements)
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    *,
    level: float | None = None,
    complete: bool = False,
    baseline: str | None = None,
    order: str = BY_SCORE,
) -> Any:  # noqa: ANN401  (Evaluation, or Evaluations for several runs)
    """Compute metrics of a run, or of several named runs, by the rules of trec_eval.

    `run`: a table with the columns query_id, doc_id and score (Polars, pandas, Arrow, or anything with the Arrow C
    stream protocol), `{query: {document: score}}`, or the path of a TREC run file. `{name: run}` evaluates several.
    `qrels`: the same, with a grade instead of the score. `metrics`: `nDCG@10`, `AP@100`, `RR@10`, `P@5`, `R@20`,
    `Success@5`, `Rprec`, `Bpref`, `RBP(p=0.8)`, `Judged@10`; without `@k` the whole ranking counts.

    `level`: the least grade that counts as relevant for all metrics but nDCG; by default any grade above 0. `complete`:
    queries of the qrels that the run does not have count as 0; by default they are left out. `baseline`: the run that
    the others are compared with; by default the first. `order`: what decides a ranking: "score", as in trec_eval (then
    the document id, both descending), or "rank", the column of ranks of a table or a TREC file.

    Returns an `Evaluation`, or for several runs `Evaluations`.
    """
    asked: list[Any] = [metrics] if isinstance(metrics, str) else list(metrics)
    if not asked:
        msg = "no metric given; specify at least one, for example nDCG@10"
        raise UsageError(msg)
    if wrong := [text for text in asked if not isinstance(text, str)]:
        msg = f"a metric is {wrong[0]!r:.60}; it must be text, for example nDCG@10"
        raise UsageError(msg)
    is_number = isinstance(level, int | float) and not isinstance(level, bool)
    if level is not None and not (is_number and 0 < level < math.inf):
        msg = f"level is {level!r:.60}; it must be a grade above 0"
        raise UsageError(msg)
    if not isinstance(complete, bool):
        msg = f"complete is {complete!r:.60}; it must be True or False"
        raise UsageError(msg)
    kernel = Kernel([parse_measure(text) for text in asked])
    measures = {text: parse_measure(text) for text in asked}
    labels = read_qrels(qrels)
    if not is_many(run):
        if baseline is not None:
            msg = "baseline requires several runs: evaluate({name: run, …}, …)"
            raise UsageError(msg)
        return _evaluated(run, labels, measures, kernel, level, "run", complete=complete, order=order)
    names = ids_as_text(run, "the name of a run")
    if len(set(names)) < len(names):
        msg = f"two runs have the same name: {cut(', '.join(names), 60)}; names are text, so rename one"
        raise UsageError(msg)
    first = names[0] if baseline is None else baseline
    if first not in names:
        msg = f"there is no run {cut(str(first), 60)!r} to compare with{did_you_mean(str(first), names)}"
        raise UsageError(msg)
    found = {
        name: _evaluated(one, labels, measures, kernel, level, name, complete=complete, order=order)
        for name, one in zip(names, run.values(), strict=True)
    }
    return Evaluations(found, first)


def _evaluated(  # noqa: PLR0913, PLR0917  (what to evaluate, and how)
    run: Any,  # noqa: ANN401
    qrels: pl.DataFrame,
    measures: Mapping[str, Name],
    kernel: Kernel,
    level: float | None,
    name: str,
    *,
    complete: bool,
    order: str,
) -> Evaluation:
    what = "the run" if name == "run" else f"run {cut(name, 60)!r}"
    table = read_run(run, what, order)
    judged = judge(table.frame, qrels, level=level, empty=table.empty, complete=complete, sources=(what, "the qrels"))
    values = kernel.values(judged)
    n_judged = qrels[QUERY].n_unique()
    both = judged.n_common
    return Evaluation(
        measures,
        values,
        kernel.metrics,
        only_in_run=judged.n_in_run - both,
        only_in_qrels=0 if complete else n_judged - both,
        name=name,
        warnings=_warnings(judged, what),
    )


def _warnings(judged: Judged, what: str) -> list[str]:
    if judged.n_common or not judged.n_in_run:
        return list(judged.doubts)
    return [f"no query of {what} has judgements in the qrels; do the two belong together?", *judged.doubts]


def _pairs(a: Evaluation, b: Evaluation) -> dict[str, Pairs]:
    """The values of both per query, for the metrics that both have; NaN where one has none."""
    columns = {asked: name for asked, name in a.measures.items() if name in b.measures.values()}
    joined = a.table.join(b.table, on=QUERY, how="full", coalesce=True, suffix=" b").sort(QUERY)
    found = {}
    for asked, name in columns.items():
        one, other = (joined[column].to_numpy().astype(np.float64) for column in (name.long, f"{name.long} b"))
        found[asked] = Pairs(one, other, a.metrics[name.metric].better)
    return found


def _differences(
    parts: Sequence[tuple[str, Evaluation, Evaluation, Mapping[str, Significance]]], baseline: str | None = None
) -> pl.DataFrame:
    rows = []
    for run, a, b, significance in parts:
        for asked, name in b.measures.items():
            same = next((other for other, found in a.measures.items() if found == name), None)
            of_a = None if same is None else a[same]
            found = significance.get(same or "")
            test: tuple[Any, ...] = (None,) * 8
            if found is not None:
                direction = found.direction or NO_DIFFERENCE
                test = (
                    found.mean_delta,
                    found.low,
                    found.high,
                    found.n,
                    found.changed,
                    found.p,
                    found.p_holm,
                    direction,
                )
            rows.append((run, asked, None if run == baseline else of_a, b[asked], *test))
    schema = {
        "run": pl.String,
        "metric": pl.String,
        "a" if baseline is None else "baseline": pl.Float64,
        "b" if baseline is None else "value": pl.Float64,
        "delta": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "queries": pl.Int64,
        "changed": pl.Int64,
        "p": pl.Float64,
        "p_holm": pl.Float64,
        "verdict": pl.String,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _cell(value: Any) -> str:  # noqa: ANN401  (a value of a frame)
    if value is None:
        return "–"
    return f"{rounded(value):.4f}" if isinstance(value, float) else shown(str(value))


def _text(frame: pl.DataFrame, notes: Sequence[str]) -> str:
    rows = [frame.columns, *([_cell(value) for value in row] for row in frame.iter_rows())]
    widths = [max(len(row[place]) for row in rows) for place in range(len(frame.columns))]
    is_text = [kind == pl.String for kind in frame.dtypes]
    lines = [
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(row, widths, is_text, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *map(shown, notes)])


def _html(frame: pl.DataFrame, notes: Sequence[str]) -> str:
    def row(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row("td", [_cell(value) for value in found]) for found in frame.iter_rows())
    said = "".join(f"<p>{html.escape(shown(note))}</p>" for note in notes)
    return f"<table><thead>{row('th', frame.columns)}</thead><tbody>{body}</tbody></table>{said}"
