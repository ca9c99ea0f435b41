"""Runs → scores → aggregates: composes the scoring query from the metrics and reads its result.

All runs go through together; a run is a column, never a loop. The only Python work is for the few
numbers that come out.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from kbeval import __version__
from kbeval.engine import Session, first_line
from kbeval.errors import BadRowsError, DatabaseError, MetricError, UsageError
from kbeval.exact import FIXED_POINT, rounded_mean
from kbeval.golden import Golden, load_golden
from kbeval.metrics import Column, Metric, catalogue, definitions_hash, did_you_mean
from kbeval.model import CONTRACT, AggregateMetrics
from kbeval.runs import find_runs
from kbeval.sources.sqlite import Run, SqliteSource, database_size
from kbeval.store import store_json
from kbeval.text import counted, cut

if TYPE_CHECKING:
    import polars as pl

SLICE_FIELDS = ("category", "difficulty", "lang", "tags", "group")
NO_SLICE = "(none)"
_TOTALS = {"mean": "SUM({})", "count": "COUNT(CASE WHEN {} <> 0 THEN 1 END)"}
_NUMBER_TYPE = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|DOUBLE|FLOAT|DECIMAL\(\d+,\s*\d+\)|BOOLEAN|BIGNUM|\"NULL\""
)


@dataclass(frozen=True)
class ScoreOptions:
    """How to score; everything has a default."""

    extra_ks: Sequence[int] = ()
    metric_folders: Sequence[Path] = ()
    configured_metrics: Sequence[Metric] = ()
    by: str | None = None
    missing_as_zero: bool = False
    threads: int | None = None
    memory_limit: str | None = None
    on_step: Callable[[str], None] | None = None

    def session(self, database: str | os.PathLike[str]) -> Session:
        """A session that fits the database."""
        return Session(
            threads=self.threads,
            memory_limit=self.memory_limit,
            expected_bytes=database_size(database),
            on_step=self.on_step,
        )

    def metrics(self) -> list[Metric]:
        """Every metric to compute."""
        return catalogue(self.metric_folders, self.configured_metrics, self.extra_ks)


@dataclass(frozen=True)
class BadRow:
    """A stored row that cannot be read."""

    run_id: str
    query_id: str
    fault: str

    def __str__(self) -> str:
        return f"run {cut(self.run_id, 80)}, query {cut(self.query_id, 80)}: {self.fault}"


@dataclass
class Scored:
    """What scoring found: an aggregate a run, the slices that were asked for, and what to know about them."""

    runs: list[Run]
    aggregates: dict[str, AggregateMetrics]
    slices: dict[str, dict[str, AggregateMetrics]] = field(default_factory=dict)
    bad_rows: list[BadRow] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def frame(self) -> pl.DataFrame:
        """One row a number: run_id, slice, metric, k, value, scored, not_applicable."""
        import polars as pl

        rows = []
        for run_id, whole in self.aggregates.items():
            parts = [(None, whole), *self.slices.get(run_id, {}).items()]
            for slice_name, aggregate in parts:
                for name, value in aggregate.numbers().items():
                    metric, _, k = name.partition(".")
                    counts = aggregate.ledger["metrics"].get(metric, {})
                    number = None if value is None else float(value)
                    rows.append((run_id, slice_name, metric, int(k) if k else None, number, *counts.values()))
        names = {
            "run_id": pl.String,
            "slice": pl.String,
            "metric": pl.String,
            "k": pl.Int64,
            "value": pl.Float64,
            "scored": pl.Int64,
            "not_applicable": pl.Int64,
        }
        return pl.DataFrame(rows, schema=names, orient="row")


class Scoring:
    """An open session over some runs of a database. Ask it for scores, aggregates, or any relation."""

    def __init__(
        self, session: Session, source: SqliteSource, golden: Golden, runs: Sequence[Run], options: ScoreOptions
    ) -> None:
        if options.by is not None and options.by not in SLICE_FIELDS:
            hint = "" if "," in options.by else did_you_mean(options.by, SLICE_FIELDS)
            msg = f"cannot slice by {options.by!r}{hint or '; name one of ' + ', '.join(SLICE_FIELDS)}"
            raise UsageError(msg)
        self.source = source
        self.golden = golden
        self.runs = list(runs)
        self.options = options
        self.metrics = options.metrics()
        self.columns: list[Column] = [column for metric in self.metrics for column in metric.columns]
        self.session = session
        session.add_loaders({"golden_entries": golden.loader(), "settings": self._load_settings})

    def _load_settings(self, session: Session) -> None:
        session.execute(
            "CREATE TABLE settings AS SELECT $1::BOOLEAN AS missing_as_zero", [self.options.missing_as_zero]
        )

    # --- scores ---------------------------------------------------------------------------------

    def build_scores(self) -> None:
        """Make `query_scores`: one row a query, one column a number, null where a metric does not apply."""
        self.session.need("answered", *(metric.grain for metric in self.metrics))
        own = [metric for metric in self.metrics if metric.origin != "kbeval"]
        for metric in own:
            self._check(metric, "DESCRIBE")
        if self.options.on_step is not None:
            self.options.on_step("computing scores")
        try:
            self.session.execute(f"CREATE TABLE query_scores AS {self.scoring_sql()}")
            if own:
                self._check_one_row_a_query(own)
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            # The names were right but a value was not, and only the user's own metrics can do that.
            for metric in own:
                self._check(metric, "")
            raise MetricError(f"the metrics cannot be computed together: {first_line(error)}") from error

    def _check_one_row_a_query(self, own: Sequence[Metric]) -> None:
        """An expression that gives several rows would multiply everybody's numbers."""
        ((scores, queries),) = self.session.rows(
            "SELECT (SELECT COUNT(*) FROM query_scores), (SELECT COUNT(*) FROM answered)"
        )
        if scores != queries:
            names = ", ".join(metric.name for metric in own)
            msg = f"one of {names} gives several values for one query; it must be one aggregate expression"
            raise MetricError(msg)

    def scoring_sql(self) -> str:
        """The one query that computes every metric of every run."""
        number = {column: f"m{place}" for place, column in enumerate(self.columns)}
        choices = [
            f'CASE WHEN ({metric.over}\n) THEN {number[column]} END AS "{column.name}"'
            for metric in self.metrics
            for column in metric.columns
        ]
        passes = []
        for grain in dict.fromkeys(metric.grain for metric in self.metrics):
            values = [
                f"CAST((\n{metric.expression_at(column.k)}\n) AS DOUBLE) AS {number[column]}"
                for metric in self.metrics
                if metric.grain == grain
                for column in metric.columns
            ]
            passes.append(
                f"JOIN (SELECT result_no, {', '.join(values)} FROM {grain} GROUP BY result_no) AS {grain}_values"
                " USING (result_no)"
            )
        return (
            f"SELECT result_no, answered.run_id, answered.query_id, {', '.join(choices)}"
            f" FROM answered {' '.join(passes)}"
        )

    def _check(self, metric: Metric, how: str) -> None:
        """Try one metric alone. `how`: DESCRIBE looks at names and types, an empty string computes it."""
        condition = f"{how} SELECT 1 FROM answered WHERE ({metric.over}\n)"
        self._try(metric, f"over: {one_line(metric.over)}", condition)
        for column in metric.columns:
            expression = metric.expression_at(column.k)
            value = f"{how} SELECT (\n{expression}\n) AS value FROM {metric.grain} GROUP BY result_no"
            found = self._try(metric, one_line(metric.expression), value)
            if how and len(found) != 1:
                raise _wrong(metric, one_line(metric.expression), "it must be one expression")
            if how and not _NUMBER_TYPE.fullmatch(str(found[0][1])):
                raise _wrong(metric, one_line(metric.expression), f"it gives {found[0][1]}, not a number")

    def _try(self, metric: Metric, shown_part: str, sql: str) -> list[tuple[Any, ...]]:
        try:
            if len(self.session.connection.extract_statements(sql)) != 1:
                raise _wrong(metric, shown_part, "it must be one expression")
            return self.session.rows(sql)
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            raise _wrong(metric, shown_part, first_line(error)) from error

    # --- aggregates -----------------------------------------------------------------------------

    def score(self) -> Scored:
        """Compute every aggregate of every run."""
        self._refuse_repeated_rows()
        self.build_scores()
        ledgers = self._ledgers()
        scored = Scored(self.runs, {}, bad_rows=self._bad_rows(), warnings=list(self.golden.warnings))
        for run_id, _, totals in self._totals(None):
            scored.aggregates[run_id] = self._aggregate(totals, ledgers[run_id])
        for run in self.runs:
            if run.run_id not in scored.aggregates:  # a run without rows
                scored.aggregates[run.run_id] = self._aggregate({}, ledgers[run.run_id])
        if self.options.by is not None:
            for run_id, slice_name, totals in self._totals(self.options.by):
                scored.slices.setdefault(run_id, {})[slice_name] = self._aggregate(totals, None)
        scored.warnings.extend(self._warnings(scored))
        return scored

    def _refuse_repeated_rows(self) -> None:
        if self.source.rows_are_unique:
            return
        repeated = self.session.rows(
            "SELECT run_id, query_id, COUNT(*) FROM results GROUP BY run_id, query_id HAVING COUNT(*) > 1 ORDER BY 1, 2"
        )
        if repeated:
            details = [f"run {run_id}, query {query_id}: {count} rows" for run_id, query_id, count in repeated]
            msg = "some queries have several rows in one run, so it is not clear which counts; keep one of each:"
            raise DatabaseError(msg, details)

    def _totals(self, by: str | None) -> Iterator[tuple[str, str, dict[str, tuple[Any, int, int]]]]:
        """Per run and slice: for each number the exact sum, how many queries have it and how many do not."""
        sums = ", ".join(
            f"{_TOTALS[metric.aggregation].format(value)}, COUNT({value})"
            for metric in self.metrics
            for value in (f'TRY_CAST("{column.name}" AS {FIXED_POINT})' for column in metric.columns)
        )
        if by is None:
            sql = f"SELECT run_id, '' AS slice, COUNT(*), {sums} FROM query_scores GROUP BY run_id ORDER BY run_id"
            parameters = []
        else:
            self.session.need("query_slices")
            sql = (
                f"SELECT q.run_id, COALESCE(s.slice, '{NO_SLICE}') AS slice, COUNT(*), {sums}"
                " FROM query_scores AS q"
                " LEFT JOIN (SELECT * FROM query_slices WHERE field = $1) AS s ON s.query_id = q.query_id"
                " GROUP BY q.run_id, COALESCE(s.slice, '" + NO_SLICE + "')"
                " ORDER BY 1, 2"
            )
            parameters = [by]
        for run_id, slice_name, rows, *values in self.session.rows(sql, parameters):
            pairs = zip(values[::2], values[1::2], strict=True)
            totals = {
                column.name: (total, count, rows - count)
                for column, (total, count) in zip(self.columns, pairs, strict=True)
            }
            yield run_id, slice_name, totals

    def _aggregate(self, totals: dict[str, tuple[Any, int, int]], ledger: dict[str, Any] | None) -> AggregateMetrics:
        values: dict[str, Any] = {}
        counts: dict[str, Any] = {}
        for metric in self.metrics:
            found: dict[int | None, float | int | None] = {}
            scored = skipped = 0
            for column in metric.columns:
                total, scored, skipped = totals.get(column.name, (None, 0, 0))
                found[column.k] = _number(metric, total, scored)
            if metric.name not in CONTRACT and not scored:
                continue
            values[metric.name] = found if metric.ks else found[None]
            counts[metric.name] = {"scored": scored, "not_applicable": skipped}
        known = {name: values.pop(name) for name in CONTRACT}
        ordered = {name: counts[name] for name in (*CONTRACT, *sorted(counts.keys() - set(CONTRACT)))}
        return AggregateMetrics(
            **known,
            extra=values,
            ledger={**(ledger or {}), "metrics": ordered},
            provenance=dict(self._provenance) if ledger is not None else {},
        )

    @functools.cached_property
    def _provenance(self) -> dict[str, Any]:
        found = {
            "kbeval": __version__,
            "metrics": definitions_hash(self.metrics),
            "golden": self.golden.hash,
            "matching": "exact",
        }
        if self.options.missing_as_zero:
            found["missing"] = "zero"
        return found

    def _ledgers(self) -> dict[str, dict[str, Any]]:
        golden = len(self.golden)
        found = {}
        self.session.need("repeated_hits")
        for run_id, rows, unknown, failed, bad, repeated in self.session.rows(
            """
            WITH repeats AS (
                SELECT result_no, SUM(n_repeats) AS n FROM repeated_hits GROUP BY result_no
            )
            SELECT
                u.run_id,
                COUNT(r.result_no),
                COUNT(r.result_no) FILTER (WHERE q.query_id IS NULL),
                COUNT(r.result_no) FILTER (WHERE r.failed),
                COUNT(b.result_no),
                COALESCE(SUM(p.n), 0)
            FROM runs AS u
            LEFT JOIN results AS r ON r.run_id = u.run_id
            LEFT JOIN queries AS q ON q.query_id = r.query_id
            LEFT JOIN bad_rows AS b ON b.result_no = r.result_no
            LEFT JOIN repeats AS p ON p.result_no = r.result_no
            GROUP BY u.run_id
            """
        ):
            found[run_id] = {
                "golden": golden,
                "rows": rows,
                "missing": golden - (rows - unknown),
                "unknown": unknown,
                "failed": failed,
                "unreadable": bad,
                "repeated_hits": int(repeated),
            }
        return found

    def _bad_rows(self) -> list[BadRow]:
        found = self.session.rows("SELECT run_id, query_id, fault FROM bad_rows ORDER BY run_id, query_id")
        return [BadRow(*row) for row in found]

    def _warnings(self, scored: Scored) -> Iterator[str]:
        known, answers = self.session.rows(
            "SELECT (SELECT COUNT(*) FROM chunks), COUNT(*) FILTER (WHERE grounded) FROM results"
        )[0]
        if not known and answers:
            yield "citation_coverage has no value: the database has no table 'chunks', or it is empty"
        self.session.need("foreign_chunks")
        for run_id, version, foreign, expected, owner in self.session.rows(
            "SELECT r.run_id, r.chunker_version, f.n_foreign, f.n_expected, f.owner FROM foreign_chunks AS f"
            " JOIN runs AS r ON r.chunker_version = f.chunker_version WHERE 2 * f.n_foreign > f.n_expected ORDER BY 1"
        ):
            yield (
                f"run {run_id} was made with chunker {version}, but {foreign:,} of {expected:,} expected chunks are of"
                f" {owner}, so it cannot hit them: look at recall_at_k_doc, or label again"
            )
        for run_id, aggregate in scored.aggregates.items():
            ledger = aggregate.ledger
            if ledger["rows"] and ledger["rows"] == ledger["unknown"]:
                yield f"run {run_id}: none of its queries is in {self.golden.path}; is that the right golden file?"
                continue
            if ledger["missing"]:
                treated = "counted as zero" if self.options.missing_as_zero else "left out (--missing zero counts them)"
                missing = counted(ledger["missing"], "golden query", "golden queries")
                yield f"run {run_id}: no row for {missing}, {treated}"
            if ledger["unknown"]:
                unknown = counted(ledger["unknown"], "row")
                yield f"run {run_id}: {unknown} without a golden query, counted in totals only"

    # --- queries --------------------------------------------------------------------------------

    def frame(self) -> pl.DataFrame:
        """Scores as a Polars frame: run_id, query_id, then a column a number."""
        return self.session.frame("SELECT * EXCLUDE (result_no) FROM query_scores ORDER BY run_id, query_id")


def _number(metric: Metric, total: Any, scored: int) -> float | int | None:  # noqa: ANN401  (Decimal or None)
    if not scored:
        none = metric.none
        return int(none) if none is not None and metric.aggregation == "count" else none
    return int(total) if metric.aggregation == "count" else rounded_mean(total, scored)


def _wrong(metric: Metric, part: str, what: str) -> MetricError:
    return MetricError(f"{metric.origin}: this expression does not work: {part}: {what}")


def one_line(text: str) -> str:
    """SQL on one line, for messages."""
    return " ".join(text.split())


@contextlib.contextmanager
def open_scoring(
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    runs: Sequence[str] | None = None,
    options: ScoreOptions | None = None,
) -> Iterator[Scoring]:
    """Open a scoring session; `runs` are names (an id, a unique prefix, latest, latest~N), None means all."""
    options = options or ScoreOptions()
    with options.session(database) as session, SqliteSource(database, session.connection) as source:
        stored = source.runs()
        chosen = stored if runs is None else find_runs(stored, runs, str(database))
        session.add_loaders(source.loaders([run.run_id for run in chosen]))
        # What needs no labels keeps the engine busy and Python free: the golden file is read meanwhile.
        with session.building("results", "citation_matches"):
            loaded = golden if isinstance(golden, Golden) else load_golden(golden)
            loaded.prepare()
        yield Scoring(session, source, loaded, chosen, options)


def score_runs(
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    runs: Sequence[str] | None = None,
    options: ScoreOptions | None = None,
) -> Scored:
    """Score runs (all where `runs` is None) and return their aggregates; nothing is stored."""
    with open_scoring(database, golden, runs, options) as scoring:
        return scoring.score()


def compute_aggregate(
    run_id: str,
    *,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: ScoreOptions | None = None,
    skip_bad_rows: bool = False,
) -> AggregateMetrics:
    """Score one run of a database against a golden file. Nothing is stored; see `store_aggregate`.

    Raises BadRowsError where a stored row cannot be read, unless `skip_bad_rows`, which counts such
    rows as failed queries.
    """
    scored = score_runs(db, golden, [run_id], options)
    if scored.bad_rows and not skip_bad_rows:
        raise BadRowsError([str(row) for row in scored.bad_rows], "pass skip_bad_rows=True to count them as failed")
    (aggregate,) = scored.aggregates.values()
    return aggregate


def store_aggregate(run_id: str, aggregate: AggregateMetrics, *, db: str | os.PathLike[str]) -> None:
    """Write one run's aggregate to `eval_runs.aggregate_json`, in a transaction of its own."""
    store_json(db, {run_id: aggregate.to_json()})
