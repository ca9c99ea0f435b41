"""Facts → scores: an open session over some runs, and the single query that computes every metric of all of them.

Runs are a column, never a loop. The SQL is in `sql/`; only the part that depends on the set of metrics is composed
here.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb

from kbeval.engine.failures import first_line
from kbeval.engine.relations import compose
from kbeval.engine.session import Session
from kbeval.errors import MetricError
from kbeval.golden import Golden, load_golden
from kbeval.metrics import former
from kbeval.metrics.catalogue import PER_QUERY, Metric
from kbeval.metrics.names import Name
from kbeval.metrics.row_scores import row_score_metrics
from kbeval.scoring import run_tables
from kbeval.scoring.expressions import Expressions
from kbeval.scoring.fields import asked_fields
from kbeval.scoring.matching import Matching
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.variants import Situation, choices, stored_choices
from kbeval.storage.run_config import chunker_version, config_of, imported_from, own_k
from kbeval.storage.runs import KeyFault, Run, broken_runs, chosen_runs, key_faults

if TYPE_CHECKING:
    import polars as pl

    from kbeval.storage.source import Source, StoredSource

_NUMBER_TYPE = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|DOUBLE|FLOAT|DECIMAL\(\d+,\s*\d+\)|BOOLEAN|BIGNUM|\"NULL\""
)


class Scoring:
    """An open session over some runs of a database, which provides scores, aggregates and any relation."""

    def __init__(  # noqa: PLR0913, PLR0917  (all that a scoring is of)
        self,
        session: Session,
        source: Source,
        golden: Golden,
        runs: Sequence[Run],
        options: ScoreOptions,
        stored: Sequence[Run] | None = None,
        *,
        together: bool = False,
    ) -> None:
        """`stored`: every run of the source, if there are more than `runs`. `together`: as in `open_scoring`."""
        self.source: Source = source
        self.together = together
        # Why requested runs were left out.
        self.key_faults: list[KeyFault] = []
        self.golden = golden
        self.runs = list(runs)
        self.options = options
        self.systems = {system for run in runs if (system := imported_from(config_of(run))) is not None}
        # A run's own k is computed for all runs and kept for that run only: numbers do not depend on other runs.
        own_ks = {k for run in runs if (k := own_k(config_of(run))) is not None}
        # Each user-defined rubric that runs were judged by is a metric.
        self.rubrics = source.rubrics()
        # So is each score that came with the rows.
        self.catalogue = options.metrics(self.rubrics, row_score_metrics(map(config_of, runs)))
        self.asked_ks = {metric.name: metric.ks for metric in self.catalogue}
        self.metrics = [metric.with_ks(own_ks) for metric in self.catalogue if self._can_apply(metric)]
        self.columns: list[Name] = [column for metric in self.metrics for column in metric.columns]
        # Names of user-defined metrics that aggregate the one row of a query, which is deprecated.
        self._aggregates_of_one_row: set[str] = set()
        self.session = session
        session.add_loaders(
            {
                "golden_entries": golden.loader(),
                "settings": lambda session: options.load_settings(session, together=together),
            }
        )
        session.add_loaders(run_tables.loaders(self.runs))
        self.stored_versions = {chunker_version(config_of(run)) for run in (runs if stored is None else stored)}
        self.matching = Matching(session, golden, options, self.stored_versions, together=together)
        session.add_columns(asked_fields(self.metrics))
        situation = Situation(session, golden, self.systems, self.matching, bool(self.rubrics))
        session.add_choices(stored_choices() | choices(situation))

    def _can_apply(self, metric: Metric) -> bool:
        """Can the metric apply to anything? If not, it is not computed, which saves time."""
        if metric.system is not None and metric.system not in self.systems:
            return False
        if metric.labels == "expected_spans":
            # Whether places are read at all must not depend on the other runs of the session.
            by_span = self.options.match == "span" and self.golden.has(metric.labels)
            return by_span or self.golden.has_span_labels
        return metric.labels is None or self.golden.has(metric.labels)

    # --- scores ---------------------------------------------------------------------------------

    def build_scores(self) -> None:
        """Build `query_scores`, and `scores` with the same values, one row per number."""
        self.build_query_scores()
        self.session.execute(f"CREATE VIEW scores AS {self.scores_sql()}")

    def build_query_scores(self) -> None:
        """Build `query_scores`, one row per query and one column per number."""
        self.session.need(PER_QUERY, *(metric.grain for metric in self.metrics))
        own = [metric for metric in self.metrics if metric.origin != "kbeval"]
        if own and self.session.is_far:
            from kbeval.scoring.own_elsewhere import checked_on_both

            self._aggregates_of_one_row |= checked_on_both(self, own)
            own = []
        expressions = Expressions(self.session)
        for metric in own:
            self._refuse(metric, expressions)
            if metric.grain == PER_QUERY and self._is_aggregate(metric):
                self._aggregates_of_one_row.add(metric.name)
            self._check(metric, "DESCRIBE")
        former.warn_about_aggregates(metric for metric in own if metric.name in self._aggregates_of_one_row)
        if self.options.on_step is not None:
            self.options.on_step("computing scores")
        try:
            self.session.execute(f"CREATE TABLE query_scores AS {self.scoring_sql()}")
            if own:
                self._check_one_row_a_query(own)
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            # The names were valid but a value was not; only user-defined metrics can cause this.
            for metric in own:
                self._check(metric, "")
            raise MetricError(f"the metrics cannot be computed together: {first_line(error)}") from error

    def _check_one_row_a_query(self, own: Sequence[Metric]) -> None:
        """An expression that gives several rows would multiply the rows of every other metric."""
        ((scores, queries),) = self.session.rows(
            "SELECT (SELECT COUNT(*) FROM query_scores), (SELECT COUNT(*) FROM per_query)"
        )
        if scores != queries:
            names = ", ".join(metric.name for metric in own)
            msg = f"one of {names} returns several values for one query; it must be a single expression with one value"
            raise MetricError(msg)

    def scoring_sql(self) -> str:
        """The single query that computes every metric of every run."""
        values: dict[str, list[str]] = {}
        choices = []
        for place, (metric, column) in enumerate((m, column) for m in self.metrics for column in m.columns):
            value = f"CAST((\n{metric.expression_at(column.k)}\n) AS DOUBLE)"
            if self._takes_group(metric):
                values.setdefault(metric.grain, []).append(f"{value} AS m{place}")
                value = f"m{place}"
            choices.append(f"CASE WHEN {metric.condition} THEN {value} END AS {self.session.quoted(column.name)}")
        passes = []
        for grain, expressions in values.items():
            passes.append(
                f"JOIN (SELECT result_no, {', '.join(expressions)} FROM {grain} GROUP BY result_no) AS {grain}_values"
                " USING (result_no)"
            )
        return compose("query_scores", choices=",\n    ".join(choices), values="\n".join(passes))

    @property
    def aggregates_of_one_row(self) -> frozenset[str]:
        """Own metrics that aggregate the one row of a query."""
        return frozenset(self._aggregates_of_one_row)

    def _takes_group(self, metric: Metric) -> bool:
        """Is it computed over a group of rows, or from the one row of its query?"""
        return metric.grain != PER_QUERY or metric.name in self._aggregates_of_one_row

    def _is_aggregate(self, metric: Metric) -> bool:
        """Is an expression at the grain of one row per query still written as an aggregate over that row?"""
        expression = metric.expression_at(metric.columns[0].k)
        for is_aggregate in (False, True):
            with contextlib.suppress(MetricError):
                self._try(metric, "", f"DESCRIBE {_value_sql(expression, PER_QUERY, is_aggregate=is_aggregate)}")
                return is_aggregate
        # It does not work either way; `_check` reports why.
        return False

    def scores_sql(self) -> str:
        """The same values, one row per value."""
        branches = [
            f"SELECT run_id, query_id, '{column.without_k}' AS metric, CAST({column.k or 'NULL'} AS INTEGER) AS k,"
            f" {name} AS value FROM query_scores WHERE {name} IS NOT NULL"
            for column in self.columns
            for name in [self.session.quoted(column.name)]
        ]
        return compose("scores", branches="\nUNION ALL\n".join(branches))

    @staticmethod
    def _refuse(metric: Metric, expressions: Expressions) -> None:
        """Reject metrics that see more than the rows of one query, or that are not deterministic."""
        if fault := expressions.fault(metric.where, PER_QUERY):
            raise _wrong(metric, f"where: {one_line(metric.where)}", fault)
        for column in metric.columns:
            if fault := expressions.fault(metric.expression_at(column.k), metric.grain):
                raise _wrong(metric, one_line(metric.expression), fault)

    def _check(self, metric: Metric, how: str) -> None:
        """Try one metric alone. `how`: DESCRIBE checks names and types, an empty string computes it."""
        condition = f"{how} SELECT 1 FROM per_query WHERE ({metric.where}\n)"
        self._try(metric, f"where: {one_line(metric.where)}", condition)
        for column in metric.columns:
            expression = metric.expression_at(column.k)
            value = _value_sql(expression, metric.grain, is_aggregate=self._takes_group(metric))
            found = self._try(metric, one_line(metric.expression), f"{how} {value}")
            if how and len(found) != 2:
                raise _wrong(metric, one_line(metric.expression), "it must be a single expression")
            if how and not _NUMBER_TYPE.fullmatch(str(found[1][1])):
                raise _wrong(metric, one_line(metric.expression), f"it returns {found[1][1]}, not a number")

    def _try(self, metric: Metric, shown_part: str, sql: str) -> list[tuple[Any, ...]]:
        try:
            if len(self.session.connection.extract_statements(sql)) != 1:
                raise _wrong(metric, shown_part, "it must be a single expression")
            return self.session.rows(sql)
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            raise _wrong(metric, shown_part, first_line(error)) from error

    def frame(self) -> pl.DataFrame:
        """Every score as a Polars frame: run_id, query_id, metric, k, value."""
        return self.session.frame("SELECT * FROM scores ORDER BY run_id, query_id, metric, k")


def _value_sql(expression: str, grain: str, *, is_aggregate: bool) -> str:
    """A single expression, for each query. An aggregate without a group next to a column is an error."""
    return f"SELECT result_no, (\n{expression}\n) AS value FROM {grain}{' GROUP BY result_no' if is_aggregate else ''}"


def _wrong(metric: Metric, part: str, what: str) -> MetricError:
    return MetricError(f"{metric.origin}: invalid expression: {part}: {what}")


def one_line(text: str) -> str:
    """SQL on one line, for messages."""
    return " ".join(text.split())


class StoredScoring(Scoring):
    """A scoring of runs of a database or an archive."""

    def __init__(  # noqa: PLR0913, PLR0917  (as Scoring)
        self,
        session: Session,
        source: StoredSource,
        golden: Golden,
        runs: Sequence[Run],
        options: ScoreOptions,
        stored: Sequence[Run] | None = None,
        *,
        together: bool = False,
    ) -> None:
        super().__init__(session, source, golden, runs, options, stored, together=together)
        self.source: StoredSource = source


@contextlib.contextmanager
def open_scoring(  # noqa: PLR0913  (what to open, and how)
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str] | None,
    runs: Sequence[str] | None = None,
    options: ScoreOptions | None = None,
    *,
    check_runs: Callable[[Sequence[Run]], None] | None = None,
    leave_out: bool = False,
    lazily: bool = False,
    together: bool = False,
    earlier: Mapping[str, str] | None = None,
) -> Iterator[StoredScoring]:
    """Open a scoring session; `runs` are names (an id, a unique prefix, latest, each with ~N), None means all.

    Without a golden file there are no labels. A run with invalid keys (several rows for one query, several rows in
    eval_runs) is an error if it is named, unless `leave_out`; among all runs it is left out, and `Scoring.key_faults`
    lists it.

    `check_runs`: called with the chosen runs before any of their rows is read; it may raise an error. `lazily`: read no
    row before a relation that needs it is built. `together`: the runs are compared with each other, so all of them must
    be matched in the same way. `earlier`: runs to score as they were, by the digest of their rows then; the rows must
    still be in the cache.
    """
    from kbeval.storage.database_file import refuse_database
    from kbeval.storage.source import open_source  # traces are scored without one

    options = options or ScoreOptions()
    refuse_database(golden, database)
    with open_source(database, options) as (session, source):
        stored = source.runs()
        chosen = chosen_runs(stored, runs, str(database), options.suite)
        faults = key_faults(source, stored, chosen)
        if faults:
            if runs is not None and not leave_out:
                raise broken_runs(faults)
            broken = {fault.run_id for fault in faults}
            chosen = [run for run in chosen if run.run_id not in broken]
        if check_runs is not None:
            check_runs(chosen)
        source.feed(session, [run.run_id for run in chosen], earlier)
        if not lazily:
            source.begin(session)
        session.add_choices(stored_choices())
        if golden is None:
            golden = Golden("", ())
        # While the engine builds relations that need no labels, Python reads the golden file.
        at_once: tuple[str, ...] = () if lazily else ("results", "citation_matches")
        with session.building(*at_once):
            loaded = golden if isinstance(golden, Golden) else load_golden(golden)
            loaded.prepare()
        scoring = StoredScoring(session, source, loaded, chosen, options, stored, together=together)
        scoring.key_faults = faults
        yield scoring
