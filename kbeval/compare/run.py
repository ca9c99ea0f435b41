"""Compares two runs: is B better than A, where, why, and is the difference significant?

Chunk ids are valid only within one chunker version. If the versions of the runs differ, both are matched by the
positions of their hits, and every number in the report is computed that way.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbeval.compare.doubts import doubts_about, other_labels
from kbeval.compare.judges import different_judges
from kbeval.compare.options import CompareOptions
from kbeval.compare.overlap import SIDES, coarse_labels, pairs_under_other_rules
from kbeval.compare.report import EXACT, FALLBACK, KINDS, CompareReport, Comparison, QueryComparison
from kbeval.compare.stats import Pairs, assess, verdict
from kbeval.errors import BadRowsError, KbevalError, UsageError
from kbeval.golden import Golden
from kbeval.metrics.catalogue import NEITHER, Metric
from kbeval.metrics.model import AggregateMetrics
from kbeval.metrics.names import Names, ks_named, once_meant
from kbeval.scoring.aggregate import Scored, aggregate_runs, judges_of
from kbeval.scoring.matching_warnings import whose_chunks
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import Scoring, StoredScoring, open_scoring
from kbeval.scoring.slices import NONE, golden_slices, name_of, slice_fields
from kbeval.storage.run_config import (
    Difference,
    changed_parts,
    config_diff,
    config_of,
    different_labels,
    eval_k,
    is_readable,
)
from kbeval.storage.runs import Run
from kbeval.storage.source import with_or_without_copy
from kbeval.util.numbers import LARGEST

if TYPE_CHECKING:
    import polars as pl

Result = TypeVar("Result")

# The headline metric for each kind of label, the finest kind first. `groundedness` also counts answers without a rule,
# so it belongs to no label.
_ABOUT_LABELS = (
    "mrr",
    "support_mrr",
    "recall_at_k_doc.10",
    "answer_precision",
    "groundedness_checked",
    "refusal_correctness",
    "abstention_accuracy",
)
_LAST_RESORT = "groundedness"
_KINDS_OF_NUMBER = {"count": "count", "sum": "sum", "percentiles": "percentile"}
_CAUSES = ("presence", "failure", "ranking", "places", "refusal", "rules", "citations", "configuration")


class IncomparableError(KbevalError):
    """The two runs are not comparable."""


def compare_runs(
    a: str,
    b: str,
    *,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: CompareOptions | None = None,
) -> CompareReport:
    """Compare two runs of a database, given by id, prefix or `latest`. Nothing is stored.

    Raises IncomparableError if the runs were made with different labels or judged by different judges, and BadRowsError
    if a stored row cannot be read; `options` can allow both.
    """
    return compare_and(a, b, lambda _, report: report, db=db, golden=golden, options=options or CompareOptions())


def compare_and(  # noqa: PLR0913  (as compare_runs, and what to do next)
    a: str,
    b: str,
    task: Callable[[StoredScoring, CompareReport], Result],
    *,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: CompareOptions,
) -> Result:
    """Compare two runs and use the report while the session, which holds every hit, is still open."""
    asked = (*options.scoring.extra_ks, *ks_named(options.only))

    def work(scoring: ScoreOptions) -> Result:
        with _opened(a, b, db, golden, replace(options, scoring=scoring)) as (comparing, opened):
            return task(opened, comparing.report(opened))

    return with_or_without_copy(replace(options.scoring, extra_ks=asked), work)


def compared_rows(
    a: str,
    b: str,
    *,
    db: str | os.PathLike[str],
    golden: Golden | None,
    options: CompareOptions,
) -> tuple[pl.DataFrame, list[str]]:
    """How each query changed, as in `sql/compare/compared.sql`, and the warnings; no numbers, no statistics."""

    def rows(scoring: ScoreOptions) -> tuple[pl.DataFrame, list[str]]:
        with _opened(a, b, db, golden, replace(options, scoring=scoring)) as (work, opened):
            work.load(opened)
            return opened.session.frame("SELECT * FROM compared"), work.warnings

    return with_or_without_copy(options.scoring, rows)


@contextlib.contextmanager
def _opened(
    a: str, b: str, db: str | os.PathLike[str], golden: Golden | str | os.PathLike[str] | None, options: CompareOptions
) -> Iterator[tuple[_Compare, StoredScoring]]:
    work = _Compare(options)
    with open_scoring(db, golden, [a, b], options.scoring, check_runs=work.check_runs, together=True) as scoring:
        work.see_how(scoring)
        yield work, scoring


class _Compare:
    """One comparison in progress."""

    def __init__(self, options: CompareOptions) -> None:
        self.options = options
        self.warnings: list[str] = []

    # --- may they be compared, and how? ---------------------------------------------------------------

    def check_runs(self, runs: Sequence[Run]) -> None:
        """May these runs be compared? Called before any row is read."""
        self.run_a, self.run_b = runs[0], runs[-1]
        for run in runs:
            if not is_readable(run):
                self.warnings.append(f"the configuration of run {run.run_id} cannot be read, so it counts as empty")
        self.warnings += [
            f"the runs were made for different golden files ({what}): both are recomputed with the given one"
            for what in different_labels(self.run_a, self.run_b)
        ]

    def see_how(self, scoring: Scoring) -> None:
        """Determine the chunkers of the runs, how both are matched, and by which judges they were judged."""
        self._hold_invariants(scoring)
        scoring.session.need("run_matching")
        found = {
            run_id: (version, matching, owner)
            for run_id, version, matching, owner in scoring.session.rows(
                "SELECT run_id, chunker_version, matching, CASE WHEN 2 * n_foreign > n_expected"
                " THEN COALESCE(owner, '') END FROM run_matching"
            )
        }
        indexes = scoring.session.rows(
            "SELECT COUNT(DISTINCT COALESCE(chunker_version, '')), COUNT(DISTINCT policy_hash),"
            " COUNT(DISTINCT is_earlier) FROM run_matching"
        )
        # Chunks of another policy or of an earlier index have other sizes, even under the same chunker version.
        self.is_one_index = all(count <= 1 for count in indexes[0])
        version_a, version_b = (found[run.run_id][0] for run in (self.run_a, self.run_b))
        self.versions = (version_a, version_b)
        self.by_span = any(matching == "span" for _, matching, _ in found.values())
        if version_a != version_b:
            self._differ(version_a, version_b)
        elif self.by_span and scoring.options.match == "auto":
            owners = [owner for _, _, owner in found.values() if owner is not None]
            if owners:
                whose = whose_chunks(max(owners) or None, version_a)
                self.warnings.append(
                    f"the runs hold chunks of {version_a} and the expected chunks are {whose}, so chunk ids are not"
                    " comparable: compared by spans"
                )

    def _differ(self, version_a: str | None, version_b: str | None) -> None:
        named = f"{version_a or 'unknown'} ({self.run_a.run_id}) and {version_b or 'unknown'} ({self.run_b.run_id})"
        if self.options.strict_chunker_version:
            msg = f"the chunker versions differ: {named}; leave out --strict-chunker-version to compare by spans"
            raise IncomparableError(msg)
        if not self.by_span:
            self.warnings.append(
                f"the chunker versions differ: {named}; compared by chunk ids as requested, which are not valid across"
                " chunkers: --match auto compares by spans"
            )
        elif version_a is None or version_b is None:
            self.warnings.append(f"the chunker versions may differ: {named}; compared by spans, not by chunk ids")

    def _hold_invariants(self, scoring: Scoring) -> None:
        broken = different_judges(self.run_a, self.run_b, judges_of(scoring))
        if not broken:
            return
        if self.options.ignore_invariants:
            self.warnings += [f"the runs differ in {what}" for what in broken]
            return
        msg = f"{self.run_a.run_id} and {self.run_b.run_id} are not comparable: they differ in {'; in '.join(broken)}"
        raise IncomparableError(f"{msg}; use --ignore-invariants to compare them anyway")

    # --- the report ----------------------------------------------------------------------------------

    def report(self, scoring: Scoring) -> CompareReport:
        scored = aggregate_runs(scoring)
        if scored.bad_rows and not self.options.skip_bad_rows:
            raise BadRowsError([str(row) for row in scored.bad_rows], "--skip-bad-rows counts them as failed queries:")
        differences = self.load(scoring)
        per_query = self._per_query(scoring)
        query_ids, pairs = self._pairs(scoring)
        whole = self._comparison(scored.aggregates, pairs, per_query)
        version_a, version_b = self.versions
        report = CompareReport(
            run_a=self.run_a.run_id,
            run_b=self.run_b.run_id,
            whole=whole,
            per_query=per_query,
            chunker_version_match=FALLBACK if self.by_span else EXACT,
            chunker_versions=(version_a, version_b),
            config_diff=differences,
            slices=dict(self._slices(scoring, scored, query_ids, pairs, per_query)),
            sliced_by=scoring.options.by,
            shown=frozenset(pairs) if self.options.only else None,
            overlap=(scoring.options.min_overlap, scoring.options.overlap_of) if self.by_span else None,
        )
        doubts = [*doubts_about(scoring, report, len(query_ids)), *self._other_rules(scoring, pairs)]
        return replace(report, warnings=[*self.warnings, *scored.warnings, *scored.bad_row_warning(), *doubts])

    def _other_rules(self, scoring: Scoring, pairs: Mapping[str, Pairs]) -> Iterator[str]:
        """If spans decide: are the labels fine enough, and would another overlap rule give another verdict?"""
        if not self.by_span:
            return
        yield from coarse_labels(scoring.session)
        answers = {
            rule: verdict(assess(numbers, resamples=self.options.resamples, seed=self.options.seed), "mrr").answer
            for rule, numbers in pairs_under_other_rules(scoring.session, scoring.options.overlap_of, pairs)
            if numbers
        }
        if not answers:
            return
        used, *others = answers.items()
        if different := [f"{answer!r} by the share of {SIDES[rule]}" for rule, answer in others if answer != used[1]]:
            yield (
                f"the verdict on hit@k and mrr depends on the overlap rule: {used[1]!r} as configured,"
                f" {', '.join(different)} (--overlap-of); expected_spans depend on it less"
            )

    def load(self, scoring: Scoring) -> list[Difference]:
        """Load the comparison into the session, then build everything that reads from it."""
        self.warnings += other_labels(scoring)
        differences = config_diff(config_of(self.run_a), config_of(self.run_b))
        changed = changed_parts(differences)
        k_a, k_b = (eval_k(config_of(run)) for run in (self.run_a, self.run_b))
        cause = ", ".join(f"{part} changed" for part in changed) or None
        scoring.session.execute(
            "CREATE TABLE comparison AS SELECT $1::VARCHAR AS run_a, $2::VARCHAR AS run_b,"
            " $3::BIGINT AS k_a, $4::BIGINT AS k_b, $5::VARCHAR AS changed",
            [self.run_a.run_id, self.run_b.run_id, k_a, k_b, cause],
        )
        scoring.session.need("compared")
        return differences

    def _per_query(self, scoring: Scoring) -> list[QueryComparison]:
        rows = scoring.session.rows(
            "SELECT query_id, kind, a_hit_rank, b_hit_rank, note, matching, answer, query,"
            f" {', '.join(_CAUSES)} FROM compared ORDER BY query_id"
        )
        return [
            QueryComparison(query_id, kind, rank_a, rank_b, note, matching, tuple(filter(None, causes)), answer, query)
            for query_id, kind, rank_a, rank_b, note, matching, answer, query, *causes in rows
        ]

    def _pairs(self, scoring: Scoring) -> tuple[list[str], dict[str, Pairs]]:
        """The values of the queries that count in both runs, per metric, in the order of the query ids."""
        columns = _tested_columns(scoring, self.options.only)
        quoted = [scoring.session.quoted(name) for name, _ in columns]
        values = ", ".join(f"a.{name}, b.{name}" for name in quoted)
        scoring.session.need("tested_queries")
        found = scoring.session.execute(
            f"SELECT t.query_id, t.cluster_no, {values} FROM tested_queries AS t"
            " JOIN query_scores AS a ON a.result_no = t.a_result_no"
            " JOIN query_scores AS b ON b.result_no = t.b_result_no ORDER BY t.query_id"
        ).fetchnumpy()
        query_ids, clusters, *numbers = found.values()
        sides = [_floats(column) for column in numbers]
        pairs = {
            name: Pairs(
                sides[2 * place],
                sides[2 * place + 1],
                better=metric.better,
                # If chunk sizes differ, the same text takes more or fewer hits.
                decides=metric.across_chunkers or self.is_one_index,
                clusters=np.asarray(clusters, dtype=np.int64),
            )
            for place, (name, metric) in enumerate(columns)
        }
        return list(query_ids), pairs

    def _comparison(
        self,
        aggregates: Mapping[str, AggregateMetrics],
        pairs: Mapping[str, Pairs],
        per_query: Sequence[QueryComparison],
    ) -> Comparison:
        a, b = (aggregates.get(run.run_id, AggregateMetrics()) for run in (self.run_a, self.run_b))
        ordered = _in_order(pairs, a, b)
        significance = assess(ordered, resamples=self.options.resamples, seed=self.options.seed)
        kinds = Counter(one.kind for one in per_query)
        said = verdict(significance, _headline(ordered))
        return Comparison(a, b, significance, said, {kind: kinds[kind] for kind in KINDS})

    def _slices(
        self,
        scoring: Scoring,
        scored: Scored,
        query_ids: Sequence[str],
        pairs: Mapping[str, Pairs],
        per_query: Sequence[QueryComparison],
    ) -> Iterator[tuple[str, Comparison]]:
        if scoring.options.by is None:
            return
        members: dict[str, set[str]] = {}
        slices = golden_slices(scoring.golden, scoring.options.by)
        none = name_of([NONE] * len(slice_fields(scoring.options.by)))
        for (query_id,) in scoring.session.rows("SELECT query_id FROM pairs UNION SELECT query_id FROM tested_queries"):
            for name in slices.get(query_id, [none]):
                members.setdefault(name, set()).add(query_id)
        for name, inside in sorted(members.items()):
            aggregates = {run_id: found[name] for run_id, found in scored.slices.items() if name in found}
            chosen = np.array([query_id in inside for query_id in query_ids], dtype=bool)
            part = {key: one.only(chosen) for key, one in pairs.items()}
            yield name, self._comparison(aggregates, part, [one for one in per_query if one.query_id in inside])


def _tested_columns(scoring: Scoring, only: Sequence[str]) -> list[tuple[str, Metric]]:
    """The numbers that are means over queries, restricted to `only` if given."""
    means = {column: metric for metric in scoring.metrics if metric.aggregation == "mean" for column in metric.columns}
    names = Names(scoring.catalogue)
    found = {}
    for text in only:
        named = names.numbers(text)
        metric = names.metric(text)
        if metric.aggregation != "mean":
            why = "which is not a mean over queries, so there is no difference to test"
            msg = f"{metric.name} is a {_KINDS_OF_NUMBER[metric.aggregation]}, {why}{once_meant(metric.name)}"
            raise UsageError(msg)
        if not means.keys() & set(named):
            meant = once_meant(metric.name)
            msg = f"{metric.name} does not apply to any query of these runs{meant}; leave it out of --only"
            raise UsageError(msg)
        found.update({name: metric for name in named if name in means})
    return [(name.long, metric) for name, metric in (found if only else means).items()]


def _floats(column: Any) -> NDArray[np.float64]:  # noqa: ANN401  (an array, masked where a value is missing)
    values = np.ma.filled(np.ma.asarray(column, dtype=np.float64), np.nan)
    return np.where(np.abs(values) < LARGEST, values, np.nan)


def _in_order(pairs: Mapping[str, Pairs], a: AggregateMetrics, b: AggregateMetrics) -> dict[str, Pairs]:
    names = [*a.numbers(), *b.numbers()]
    order = {name: place for place, name in reversed(list(enumerate(names)))}
    return {name: pairs[name] for name in sorted(pairs, key=lambda name: (order.get(name, 0), name))}


def _headline(pairs: Mapping[str, Pairs]) -> str | None:
    """The headline metric, chosen by the labels: each query counts for its finest kind of label."""
    tested = {name: ~(np.isnan(one.a) | np.isnan(one.b)) for name, one in pairs.items() if one.decides}
    counts: dict[str, int] = {}
    labelled = np.zeros(len(next(iter(tested.values()), ())), dtype=bool)
    for name in _ABOUT_LABELS:
        if name in tested:
            counts[name] = int((tested[name] & ~labelled).sum())
            labelled |= tested[name]
    if any(counts.values()):
        return max(counts, key=lambda name: counts[name])
    decisive = [name for name, applies in tested.items() if applies.any() and pairs[name].better != NEITHER]
    return next((name for name in decisive if name != _LAST_RESORT), None)
