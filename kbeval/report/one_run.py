"""The page about one run: its numbers with their intervals, how they are distributed, and its worst queries."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbeval.compare.mean_intervals import mean_interval
from kbeval.errors import BadRowsError
from kbeval.explore.check import check_workspace
from kbeval.explore.findings import Finding
from kbeval.golden import Golden
from kbeval.metrics.catalogue import HIGHER, NEITHER
from kbeval.metrics.model import AggregateMetrics
from kbeval.metrics.names import short_name
from kbeval.render.scores import FIRST_HEADLINES, HEADLINES
from kbeval.report.answers import View
from kbeval.report.evidence import Evidence
from kbeval.report.page import number, write_page
from kbeval.report.parts import about_run, config_rows, ledger_rows, provenance_rows, warning_lines
from kbeval.report.texts import name as named
from kbeval.scoring.aggregate import aggregate_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import StoredScoring, open_scoring
from kbeval.storage.source import with_or_without_copy
from kbeval.util.garbage import no_garbage_collection
from kbeval.util.numbers import rounded
from kbeval.util.text import counted, cut, shown

_FIELDS = ("category", "difficulty", "lang", "tags")
_MOST_SLICES = 12
_DEEPEST = 10
_LATENCIES = 12
# Times from the first are shown in whole milliseconds, and from the second as powers of ten.
_WHOLE_MS, _LONGEST_MS = 100, 1e9
_MATCHED = {
    "exact": "by chunk id",
    "span": "by document and span",
    "doc": "by document",
    "support": "by path, headings and words",
}
_TIMES = {"p50": "median", "p95": "95th percentile", "total": "total"}
_KINDS = ("failed", "miss", "hit", "cannot be matched", "nothing expected")


@dataclass(frozen=True)
class OneRunOptions:
    """How to score the run, and what to show."""

    scoring: ScoreOptions = field(default_factory=ScoreOptions)
    skip_bad_rows: bool = False
    redact: bool = False


def one_run_page(
    run_id: str,
    *,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: OneRunOptions | None = None,
) -> str:
    """The page as text. Raises BadRowsError if a stored row cannot be read, unless such rows are to be skipped."""
    options = options or OneRunOptions()

    def write(scoring_options: ScoreOptions) -> str:
        with open_scoring(db, golden, [run_id], scoring_options) as scoring, no_garbage_collection():
            return _page(scoring, redact=options.redact, skip_bad_rows=options.skip_bad_rows)

    return with_or_without_copy(options.scoring, write)


def _page(scoring: StoredScoring, *, redact: bool, skip_bad_rows: bool) -> str:
    (run,) = scoring.runs
    scored = aggregate_runs(scoring)
    if scored.bad_rows and not skip_bad_rows:
        raise BadRowsError([str(row) for row in scored.bad_rows], "--skip-bad-rows counts them as failed queries:")
    aggregate = scored.aggregates[run.run_id]
    values = _Values(scoring)
    system = next(iter(sorted(scoring.systems)), None)
    headline = _headline(aggregate, system)
    numbers = [
        _number(name, value, aggregate, values) for name, value in aggregate.numbers().items() if value is not None
    ]
    wanted = {*HEADLINES.get(system, HEADLINES[None]), headline}
    evidence = Evidence(scoring, [run], redact=redact)
    queries = _queries(scoring)
    views = [view for _, view in queries]
    content = {
        "title": named(run.run_id, 80),
        "run": about_run(run),
        "headline": next((one for one in numbers if one["long"] == headline), None),
        "lead": _lead(numbers, wanted, headline),
        "queries_total": counted(len(queries), "query", "queries"),
        "counts": [(kind, sum(1 for view in views if view["kind"] == kind)) for kind in _KINDS],
        "matched": _matched(views),
        "warnings": warning_lines((*scored.warnings, *scored.bad_row_warning()), [run], redact=redact),
        "first": [one for one in numbers if one["long"] in wanted],
        "others": [one for one in numbers if one["long"] not in wanted],
        "abstention": aggregate.abstention,
        "slices": values.slices(headline) if headline is not None else [],
        "slice_metric": None if headline is None else short_name(headline),
        "ranks": _ranks(views),
        "latency": _latency(
            [ms for (ms,) in scoring.session.rows("SELECT elapsed_ms FROM per_query WHERE in_run ORDER BY ALL")]
        ),
        "latency_numbers": [
            f"{word} {_ms(float(value))} ms"
            for part, word in _TIMES.items()
            if isinstance(value := aggregate.value(f"latency_ms.{part}"), int | float)
        ],
        "kinds": [kind for kind in _KINDS if any(view["kind"] == kind for view in views)],
        "findings": [_finding(one, redact=redact) for one in check_workspace(scoring)],
        "config": config_rows(run, redact=redact),
        "ledger": ledger_rows([aggregate]),
        "provenance": provenance_rows([aggregate]),
        "redact": redact,
    }
    return write_page("one_run.html.j2", content, evidence.batches(queries), evidence.texts)


# --- numbers ---------------------------------------------------------------------------------------


class _Values:
    """The value of each number for each query, and the clusters of queries."""

    def __init__(self, scoring: StoredScoring) -> None:
        self._scoring = scoring
        scoring.session.need("clusters")
        columns = [column for metric in scoring.metrics if metric.aggregation == "mean" for column in metric.columns]
        self.better = {column.long: metric.better for metric in scoring.metrics for column in metric.columns}
        names = ", ".join(f's."{column.name}"' for column in columns)
        found = scoring.session.execute(
            "SELECT s.query_id, DENSE_RANK() OVER (ORDER BY COALESCE(k.cluster_id, s.query_id)) AS cluster_no"
            f"{', ' if names else ''}{names} FROM query_scores AS s LEFT JOIN clusters AS k ON k.query_id = s.query_id"
            " JOIN per_query AS p ON p.result_no = s.result_no AND p.is_counted ORDER BY s.query_id"
        ).fetchnumpy()
        query_ids, clusters, *numbers = found.values()
        self.query_ids = list(query_ids)
        self._clusters = np.asarray(clusters, dtype=np.int64)
        self._values = {
            column.long: np.ma.filled(np.ma.asarray(one, dtype=np.float64), np.nan)
            for column, one in zip(columns, numbers, strict=True)
        }

    def interval(self, name: str, chosen: Any = None) -> tuple[float, float] | None:  # noqa: ANN401  (an array)
        """The interval of a mean; None if the number is not a mean, or there are too few values."""
        values = self._values.get(name)
        if values is None:
            return None
        applies = ~np.isnan(values) if chosen is None else ~np.isnan(values) & chosen
        return mean_interval(values[applies], self._clusters[applies])

    def mean(self, name: str, chosen: Any) -> tuple[float | None, int]:  # noqa: ANN401
        """The mean over some queries, and how many there are."""
        values = self._values.get(name)
        if values is None:
            return None, 0
        inside = values[~np.isnan(values) & chosen]
        # Sorted, so that the sum does not depend on the order of rows.
        return (rounded(float(np.sort(inside).sum()) / len(inside)), len(inside)) if len(inside) else (None, 0)

    def slices(self, name: str) -> list[Mapping[str, Any]]:
        """A number by the fields of the golden queries that have at least two values."""
        self._scoring.session.need("query_slices")
        members: dict[str, dict[str, set[str]]] = {}
        for query_id, name_of_field, label in self._scoring.session.rows(
            "SELECT query_id, field, slice FROM query_slices"
        ):
            if name_of_field in _FIELDS and label is not None:
                members.setdefault(name_of_field, {}).setdefault(label, set()).add(query_id)
        found: list[Mapping[str, Any]] = []
        for name_of_field in _FIELDS:
            rows: list[dict[str, Any]] = []
            for label, inside in sorted(members.get(name_of_field, {}).items()):
                chosen = np.array([query_id in inside for query_id in self.query_ids], dtype=bool)
                value, count = self.mean(name, chosen)
                if count:
                    low, high = self.interval(name, chosen) or (None, None)
                    rows.append({"name": cut(shown(label), 28), "value": value, "n": count, "low": low, "high": high})
            if len(rows) > 1:
                most = sorted(rows, key=lambda row: (-row["n"], row["name"]))[:_MOST_SLICES]
                kept = sorted(most, key=lambda row: row["name"])
                found.append({"field": name_of_field, "rows": kept, "more": len(rows) - len(kept)})
        return found


def _headline(aggregate: AggregateMetrics, system: str | None) -> str | None:
    """The number to show first, depending on the labels."""
    first = reversed(FIRST_HEADLINES.get(system, FIRST_HEADLINES[None]))
    wanted = (*first, "recall_at_k_doc.10", "groundedness_checked", "refusal_correctness", "groundedness")
    return next((name for name in wanted if aggregate.value(name) is not None), None)


def _number(name: str, value: object, aggregate: AggregateMetrics, values: _Values) -> Mapping[str, Any]:
    low, high = values.interval(name) or (None, None)
    counts = aggregate.counts(name)
    better = values.better.get(name, NEITHER)
    return {
        "name": short_name(name),
        "long": name,
        "value": value,
        "low": low,
        "high": high,
        "scored": counts.get("scored"),
        "not_applicable": counts.get("not_applicable"),
        "better": "" if better == NEITHER else "higher is better" if better == HIGHER else "lower is better",
    }


def _lead(numbers: Sequence[Mapping[str, Any]], wanted: set[str | None], headline: str | None) -> str:
    said = [
        f"{one['name']} {number(one['value'])}"
        for one in numbers
        if one["long"] in wanted and one["long"] != headline and one["scored"]
    ]
    return ", ".join(said[:6])


# --- queries ---------------------------------------------------------------------------------------


def _queries(scoring: StoredScoring) -> list[tuple[str, View]]:
    """Every query of the run with its view, the worst first."""
    scoring.session.need("sides")
    views = []
    for query_id, matching, hit_rank, doc_rank, failed, refused, should_refuse, keeps, cites in scoring.session.rows(
        "SELECT query_id, matching, hit_rank, doc_rank, failed, refused, should_refuse, keeps_rules, cites_well"
        " FROM sides ORDER BY query_id"
    ):
        is_placed = matching not in (None, "unmatched")
        kind = (
            "failed"
            if failed
            else "hit"
            if hit_rank is not None
            else "miss"
            if is_placed
            else "cannot be matched"
            if matching == "unmatched"
            else "nothing expected"
        )
        near = f"the expected document is at rank {doc_rank}" if doc_rank is not None else "not retrieved"
        causes = [
            *(["failed"] if failed else []),
            *([near] if is_placed and hit_rank is None and not failed else []),
            *(["refused, though it has an answer"] if refused and should_refuse is False and not failed else []),
            *(["answered, though it should refuse"] if refused is False and should_refuse and not failed else []),
            *(["breaks its rules"] if keeps is False else []),
            *(["a citation leads nowhere"] if cites is False else []),
        ]
        note = "; ".join([*([f"found at rank {hit_rank}"] if hit_rank is not None else []), *causes])
        views.append(
            (
                (_KINDS.index(kind), -len(causes), -(hit_rank or 0), query_id),
                {
                    "kind": kind,
                    "flow": "none",
                    "ranks": [hit_rank],
                    "note": note,
                    "causes": causes,
                    "matching": matching,
                },
            )
        )
    return [(order[-1], view) for order, view in sorted(views, key=lambda one: one[0])]


def _matched(views: Sequence[View]) -> str | None:
    """How hits were matched, the most frequent way first."""
    counts = Counter(view["matching"] for view in views if view["matching"] in _MATCHED)
    if len(counts) < 2:
        return next((_MATCHED[way] for way in counts), None)
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{_MATCHED[way]} ({counted(count, 'query', 'queries')})" for way, count in ordered)


def _ranks(queries: Sequence[View]) -> list[tuple[str, int, str]]:
    """How many queries found their first correct hit at each rank."""
    asked = [view for view in queries if view["kind"] in ("hit", "miss") or view["ranks"][0] is not None]
    counts = Counter(view["ranks"][0] for view in asked)
    deeper = sum(count for rank, count in counts.items() if rank is not None and rank > _DEEPEST)
    if not asked:
        return []
    rows = [(str(rank), counts[rank], "hit") for rank in range(1, _DEEPEST + 1)]
    return [*rows, *([("deeper", deeper, "hit")] if deeper else []), ("not found", counts[None], "miss")]


def _latency(times: Sequence[float | None]) -> list[tuple[str, int, str]]:
    """How many queries took how long, in steps of equal ratio, because a few take far longer than most."""
    known = sorted(time for time in times if time is not None and time > 0)
    if len(known) < 2 or known[0] == known[-1]:
        return []
    edges = np.unique(np.round(np.geomspace(known[0], known[-1], _LATENCIES + 1), 1 if known[-1] < 100 else 0))
    edges[-1] = max(edges[-1], known[-1])
    edges[0] = min(edges[0], known[0])
    counts, _ = np.histogram(known, bins=edges)
    return [
        (f"{_ms(edges[place])} to {_ms(edges[place + 1])} ms", int(count), "count")
        for place, count in enumerate(counts)
    ]


def _ms(value: float) -> str:
    """A time with a sensible number of digits."""
    if not 0 < value < _LONGEST_MS:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value >= _WHOLE_MS else f"{value:.3g}"


def _finding(one: Finding, *, redact: bool) -> Mapping[str, Any]:
    examples = named("; ".join(one.examples), 600) + ("; …" if one.count > len(one.examples) else "")
    return {
        "code": one.code,
        "kind": one.kind,
        "count": one.count,
        # Some examples quote texts.
        "examples": "(examples left out)" if redact else f"for example {examples}",
        "advice": named(one.advice, 600),
        "is_note": one.is_note,
    }
