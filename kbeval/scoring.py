"""Facts → scores: an open session over some runs, and the one query that computes every metric of all of them.

A run is a column, never a loop. The SQL is in `sql/`; what is composed here is only the part that depends on
which metrics there are.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import duckdb

from kbeval import views
from kbeval.config import MATCHES, MISSING, OVERLAPS_OF
from kbeval.configs import chunker_version, config_of, imported_from, own_k
from kbeval.engine import Loader, Session, first_line
from kbeval.errors import MetricError, UsageError
from kbeval.expressions import Expressions
from kbeval.golden import Golden, load_golden
from kbeval.matching import Matching
from kbeval.metrics import Metric, catalogue, shipped_metrics
from kbeval.names import Name
from kbeval.runs import KeyFault, Run, broken_runs, chosen_runs, key_faults
from kbeval.sources.files import database_size
from kbeval.sqlfiles import compose
from kbeval.text import did_you_mean

if TYPE_CHECKING:
    import polars as pl

    from kbeval.sources.opening import Source

SLICE_FIELDS = ("category", "difficulty", "lang", "tags", "group")
# Sizes are added up as floats; a hit that overlaps by exactly the share that is asked for must not fail by a hair.
_OVERLAP_TOLERANCE = 1e-9
# What `answered` has from a relation, by the columns there and by what it calls them itself.
_ANSWERED_FROM = {
    "citation_matches": {"n_citations": "n_citations", "n_citations_resolved": "n_citations_resolved"},
    "reading_cost": {"tokens_to_hit": "tokens_to_hit", "sizes_known": "sizes_known"},
    "rule_matches": {"n_rules": "n_rules", "n_rules_broken": "n_rules_broken"},
    "anchor_checks": {
        "complete_rank": "supports_complete_rank",
        "names_folders": "names_folders",
        "in_scope": "in_scope",
        "has_references": "has_references",
        "cites_support": "cites_support",
        "total_ms": "elapsed_ms",
        "judge_groundedness": "judge_groundedness",
        "judge_correctness": "judge_correctness",
        "judge_tokens": "judge_tokens",
        "judge_cost_usd": "judge_cost_usd",
    },
}
_NUMBER_TYPE = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|DOUBLE|FLOAT|DECIMAL\(\d+,\s*\d+\)|BOOLEAN|BIGNUM|\"NULL\""
)


@dataclass(frozen=True)
class ScoreOptions:
    """How to score; everything has a default."""

    extra_ks: Sequence[int] = ()
    # The metrics to compute, of those that come with kbeval; all, and the user's own, where none is named.
    only: Collection[str] = ()
    metric_folders: Sequence[Path] = ()
    configured_metrics: Sequence[Metric] = ()
    by: str | None = None
    # Runs are looked up in this suite alone; None: in all.
    suite: str | None = None
    # Golden queries that a run has no row for: 'skip' leaves them out, 'zero' counts them as nothing found.
    missing: str = "skip"
    # What makes a hit an expected chunk: 'exact', its id; 'span', the text that it shares with it; 'auto', the id
    # unless the labels are of another chunker than the run.
    match: str = "auto"
    # By spans: the least share of text in common, and of which side. 'auto': of the smaller side where the label is a
    # chunk, of the expected text where it is a span.
    min_overlap: float = 0.5
    overlap_of: str = "auto"
    # The runs are compared, so all of them must be matched the same way.
    together: bool = False
    # Find out what to archive when the numbers are stored.
    archive: bool = False
    # Read no row before a relation that needs it.
    lazily: bool = False
    # Runs to score as they were, by the digest of their rows then, of which a copy is kept.
    earlier_rows: Mapping[str, str] | None = None
    # Keep what was parsed beside the database: 'auto' where it is large, 'on', or 'off'.
    cache: str = "auto"
    threads: int | None = None
    # Take the least memory, whatever time it takes.
    sparing: bool = False
    memory_limit: str | None = None
    on_step: Callable[[str], None] | None = None

    def session(
        self, database: str | os.PathLike[str], reach: Sequence[Path] = (), *, is_shared: bool = False
    ) -> Session:
        """A session that fits the database. `reach`: folders and files that it may read and write."""
        return Session(
            threads=self.threads,
            memory_limit=self.memory_limit,
            expected_bytes=database_size(database),
            on_step=self.on_step,
            reach=reach,
            is_shared=is_shared,
            is_sparing=self.sparing,
        )

    def __post_init__(self) -> None:
        if self.by is not None and self.by not in SLICE_FIELDS:
            hint = "" if "," in self.by else did_you_mean(self.by, SLICE_FIELDS)
            msg = f"cannot slice by {self.by!r}{hint or '; name one of ' + ', '.join(SLICE_FIELDS)}"
            raise UsageError(msg)
        for name, known in (("match", MATCHES), ("overlap_of", OVERLAPS_OF), ("missing", MISSING)):
            if (value := getattr(self, name)) not in known:
                msg = f"{name} is {value!r}; it must be one of {', '.join(known)}"
                raise UsageError(msg)
        if not 0 < self.min_overlap <= 1:
            msg = f"the least overlap is {self.min_overlap}; it must be above 0 and at most 1"
            raise UsageError(msg)

    def metrics(self) -> list[Metric]:
        """Every metric to compute."""
        if self.only:
            return [metric.with_ks(self.extra_ks) for metric in shipped_metrics(self.only)]
        return catalogue(self.metric_folders, self.configured_metrics, self.extra_ks)


class Stored(Protocol):
    """What a scoring asks of the source that feeds its session, and how long it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def keeps_rows(self) -> bool: ...

    def settled_digests(self, session: Session) -> dict[str, str]: ...

    def result_json(self, run_id: str, query_id: str) -> str | None: ...

    def chunk_details(self, chunk_ids: Sequence[str]) -> list[tuple[str, str, str | None, str | None]]: ...


class Scoring:
    """An open session over some runs of a database. Ask it for scores, aggregates, or any relation."""

    def __init__(  # noqa: PLR0913, PLR0917  (all that a scoring is of)
        self,
        session: Session,
        source: Stored,
        golden: Golden,
        runs: Sequence[Run],
        options: ScoreOptions,
        stored: Sequence[Run] | None = None,
    ) -> None:
        """`stored`: every run of the database, where that is more than `runs`."""
        self.source = source
        # Why other runs, which would have been among them, are not.
        self.key_faults: list[KeyFault] = []
        self.golden = golden
        self.runs = list(runs)
        self.options = options
        self.systems = {system for run in runs if (system := imported_from(config_of(run))) is not None}
        # A run's own k is computed for all and kept for that run: its numbers do not depend on its company.
        own_ks = {k for run in runs if (k := own_k(config_of(run))) is not None}
        self.catalogue = options.metrics()
        self.asked_ks = {metric.name: metric.ks for metric in self.catalogue}
        self.metrics = [metric.with_ks(own_ks) for metric in self.catalogue if self._can_apply(metric)]
        self.columns: list[Name] = [column for metric in self.metrics for column in metric.columns]
        self.session = session
        session.add_loaders({"golden_entries": golden.loader(), "settings": self._load_settings})
        session.add_loaders({**self._unasked(), **views.loaders(self.runs)})
        self.stored_versions = {chunker_version(config_of(run)) for run in (runs if stored is None else stored)}
        self.matching = Matching(session, golden, options, self.stored_versions)
        session.add_choices(self.matching.choices())

    def _can_apply(self, metric: Metric) -> bool:
        """Is there anything here that it could be about? What is not would be left out anyway, and takes time."""
        if metric.system is not None and metric.system not in self.systems:
            return False
        return metric.labels is None or self.golden.has(metric.labels)

    def _unasked(self) -> dict[str, Loader]:
        """Relations that are empty here: about imported rows, where there are none; and what no metric asks for."""
        found: dict[str, Loader] = {}
        if "anchors" not in self.systems and not self.golden.has("gold_supports"):
            found["anchor_checks"] = _view("anchor_checks", _nothing("result_no", *_ANSWERED_FROM["anchor_checks"]))
            found["support_matches"] = _view("support_matches", _nothing("result_no", "position", "rank"))
            hit = ("result_no", "position", "rank", "support_no")
            found["support_hits"] = _view("support_hits", f"SELECT *, '' AS chunk_id FROM ({_nothing(*hit)})")
        if "grounded" not in self.systems:
            cited = ("n_claims_found", "n_cited", "n_cited_unseen", "n_cited_gold", "n_gold_found", "last_gold_rank")
            found["claim_checks"] = _view("claim_checks", _nothing("result_no", *cited))
        # What no metric asks for need not be found out.
        if self.options.only:
            asked = " ".join(f"{metric.over} {metric.expression}" for metric in self.metrics)
            for name, columns in _ANSWERED_FROM.items():
                if not any(re.search(rf"\b{column}\b", asked) for column in columns.values()):
                    found[name] = _view(name, _nothing("result_no", *columns))
        return found

    def _load_settings(self, session: Session) -> None:
        options = self.options
        session.execute(
            "CREATE TABLE settings AS SELECT $1::BOOLEAN AS missing_as_zero, $2::VARCHAR AS match,"
            " $3::DOUBLE AS least_overlap, $4::VARCHAR AS overlap_of, $5::BOOLEAN AS together",
            [
                options.missing == "zero",
                options.match,
                options.min_overlap - _OVERLAP_TOLERANCE,
                options.overlap_of,
                options.together,
            ],
        )

    # --- scores ---------------------------------------------------------------------------------

    def build_scores(self) -> None:
        """Make `query_scores`, and `scores`: the same, one row a number."""
        self.build_query_scores()
        self.session.execute(f"CREATE VIEW scores AS {self._scores_sql()}")

    def build_query_scores(self) -> None:
        """Make `query_scores`, one row a query and one column a number."""
        self.session.need("answered", *(metric.grain for metric in self.metrics))
        own = [metric for metric in self.metrics if metric.origin != "kbeval"]
        expressions = Expressions(self.session)
        for metric in own:
            self._refuse(metric, expressions)
            self._check(metric, "DESCRIBE")
        if self.options.on_step is not None:
            self.options.on_step("computing scores")
        try:
            kind = self.session.kind_of("query_scores", "table")
            self.session.execute(f"CREATE {kind} query_scores AS {self.scoring_sql()}")
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
        values: dict[str, list[str]] = {}
        choices = []
        for place, (metric, column) in enumerate((m, column) for m in self.metrics for column in m.columns):
            value = metric.of_one_row(column.k)
            if value is None:
                expression = f"CAST((\n{metric.expression_at(column.k)}\n) AS DOUBLE) AS m{place}"
                values.setdefault(metric.grain, []).append(expression)
            else:
                value = f"CAST((\n{value}\n) AS DOUBLE)"
            choices.append(f'CASE WHEN {metric.condition} THEN {value or f"m{place}"} END AS "{column.name}"')
        passes = []
        for grain, expressions in values.items():
            passes.append(
                f"JOIN (SELECT result_no, {', '.join(expressions)} FROM {grain} GROUP BY result_no) AS {grain}_values"
                " USING (result_no)"
            )
        return compose("query_scores", choices=",\n    ".join(choices), values="\n".join(passes))

    def _scores_sql(self) -> str:
        branches = [
            f"SELECT run_id, query_id, '{column.metric}' AS metric, CAST({column.k or 'NULL'} AS INTEGER) AS k,"
            f' "{column.name}" AS value FROM query_scores WHERE "{column.name}" IS NOT NULL'
            for column in self.columns
        ]
        return compose("scores", branches="\nUNION ALL\n".join(branches))

    @staticmethod
    def _refuse(metric: Metric, expressions: Expressions) -> None:
        """A metric sees the rows of one query, and gives the same value for the same rows."""
        if fault := expressions.fault(metric.over, "answered"):
            raise _wrong(metric, f"over: {one_line(metric.over)}", fault)
        for column in metric.columns:
            if fault := expressions.fault(metric.expression_at(column.k), metric.grain):
                raise _wrong(metric, one_line(metric.expression), fault)

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

    def frame(self) -> pl.DataFrame:
        """Every score as a Polars frame: run_id, query_id, metric, k, value."""
        return self.session.frame("SELECT * FROM scores ORDER BY run_id, query_id, metric, k")


def _nothing(*columns: str) -> str:
    return f"SELECT {', '.join(f'0 AS {column}' for column in columns)} WHERE false"


def _view(name: str, sql: str) -> Loader:
    """A relation that stands in for the file of the same name."""
    (reads,) = re.findall(r" FROM ([a-z]\w*)", sql) or [None]

    def load(session: Session) -> None:
        if reads is not None:
            session.need(reads)
        session.execute(f"CREATE VIEW {name} AS {sql}")

    return load


def _wrong(metric: Metric, part: str, what: str) -> MetricError:
    return MetricError(f"{metric.origin}: this expression does not work: {part}: {what}")


def one_line(text: str) -> str:
    """SQL on one line, for messages."""
    return " ".join(text.split())


@contextlib.contextmanager
def open_scoring(  # noqa: PLR0913  (what to open, and how)
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str] | None,
    runs: Sequence[str] | None = None,
    options: ScoreOptions | None = None,
    settle: Callable[[Source, Sequence[Run], ScoreOptions], ScoreOptions] | None = None,
    *,
    leave_out: bool = False,
) -> Iterator[Scoring]:
    """Open a scoring session; `runs` are names (an id, a unique prefix, latest, each with ~N), None means all.

    Without a golden file there are no labels. `settle` may look at the chosen runs, and refuse them or change the
    options, before their rows are read. A run whose keys are not sound (several rows for one query, several rows in
    eval_runs) is refused where it is named, unless `leave_out`; among all runs it is left out, and `Scoring.key_faults`
    says so.
    """
    from kbeval.sources.opening import open_source  # traces are scored without one

    options = options or ScoreOptions()
    with open_source(database, options) as (session, source):
        stored = source.runs()
        chosen = chosen_runs(stored, runs, str(database), options.suite)
        faults = key_faults(source, stored, chosen)
        if faults:
            if runs is not None and not leave_out:
                raise broken_runs(faults)
            broken = {fault.run_id for fault in faults}
            chosen = [run for run in chosen if run.run_id not in broken]
        if settle is not None:
            options = settle(source, chosen, options)
        source.feed(session, [run.run_id for run in chosen], options.earlier_rows)
        if golden is None:
            golden = Golden("", ())
        # What needs no labels keeps the engine busy and Python free: the golden file is read meanwhile.
        at_once: tuple[str, ...] = () if options.lazily else ("results", "citation_matches")
        with session.building(*at_once):
            loaded = golden if isinstance(golden, Golden) else load_golden(golden)
            loaded.prepare()
        scoring = Scoring(session, source, loaded, chosen, options, stored)
        scoring.key_faults = faults
        yield scoring
