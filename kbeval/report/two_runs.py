"""The page about two runs: whether B is better than A, where and why, and the evidence for each query."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from kbeval.compare.options import CompareOptions
from kbeval.compare.report import FALLBACK, CompareReport, Delta, QueryComparison
from kbeval.compare.run import compare_and
from kbeval.compare.stats import BETTER, NO_DIFFERENCE, WORSE, Significance
from kbeval.golden import Golden
from kbeval.metrics.catalogue import NEITHER
from kbeval.metrics.names import Name, short_name
from kbeval.render import comparison as words
from kbeval.render.scores import HEADLINES
from kbeval.render.table import display_text
from kbeval.report.answers import View
from kbeval.report.charts import FLOWS, Axis, difference_axis
from kbeval.report.evidence import Evidence
from kbeval.report.page import write_page
from kbeval.report.parts import about_run, difference_rows, ledger_rows, provenance_rows, sentence, warning_lines
from kbeval.report.texts import name as named
from kbeval.scoring.scorer import StoredScoring
from kbeval.util.garbage import no_garbage_collection

# The most telling first.
_ORDER = ("regression", "loss", "worse answer", "win", "better answer", "draw")
# Numbers beyond this are not shares, and would make all others look like zero on the common axis.
_ON_AXIS = 1.0
_FLOWS = {
    "hh": ("found by both", "="),
    "hm": ("found by A only: regressions", "✕"),
    "mh": ("found by B only", "▲"),
    "mm": ("found by neither", "○"),
}


def two_runs_page(  # noqa: PLR0913  (as compare_runs)
    a: str,
    b: str,
    *,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: CompareOptions | None = None,
    redact: bool = False,
) -> tuple[str, CompareReport]:
    """The page, and the report that it shows. Raises what `compare_runs` raises."""

    def write(scoring: StoredScoring, report: CompareReport) -> tuple[str, CompareReport]:
        with no_garbage_collection():
            return _page(scoring, report, redact=redact), report

    return compare_and(a, b, write, db=db, golden=golden, options=options or CompareOptions())


def _page(scoring: StoredScoring, report: CompareReport, *, redact: bool) -> str:
    by_id = {run.run_id: run for run in scoring.runs}
    runs = [by_id[report.run_a], by_id[report.run_b]]
    evidence = Evidence(scoring, runs, redact=redact)
    queries = [(one.query_id, _view(one)) for one in sorted(report.per_query, key=_telling)]
    counts = Counter(view["flow"] for _, view in queries)
    found_kinds = {view["kind"] for _, view in queries}
    whole = report.whole
    axis = difference_axis(
        [
            limit
            for one in whole.significance.values()
            for limit in (one.low, one.high, one.mean_delta)
            if limit is not None and abs(limit) <= _ON_AXIS
        ]
    )
    wanted = {name for system in (*scoring.systems, None) for name in HEADLINES[system]} | {whole.verdict.metric}
    numbers = [
        {**one, "first": report.shown is not None or row.name in wanted or one["kind"] in (BETTER, WORSE)}
        for row in whole.rows()
        if (report.shown is None or row.name in report.shown) and (row.a is not None or row.b is not None)
        for one in [_number(row, axis)]
    ]
    content = {
        "title": f"{named(report.run_a, 80)} → {named(report.run_b, 80)}",
        "runs": [about_run(run) for run in runs],
        "verdict": sentence(words.verdict_sentence(whole)),
        "answer": whole.verdict.answer,
        "detected": _detected(whole.verdict.metric, whole.verdict.evidence, whole.verdict.answer),
        "headline": _headline(report),
        "counts": words.counts_sentence(whole),
        "matching": named(words.matching_sentence(report), 1_000),
        "by_span": report.chunker_version_match == FALLBACK,
        "warnings": warning_lines(report.warnings, runs, redact=redact),
        "axis": axis,
        "first": [one for one in numbers if one["first"]],
        "others": [one for one in numbers if not one["first"]],
        "legend": words.legend(whole),
        "flows": [
            {"name": name, "count": counts[name], "title": _FLOWS[name][0], "sign": _FLOWS[name][1]} for name in FLOWS
        ],
        "flow_counts": {name: counts[name] for name in FLOWS},
        "unplaced": counts["none"],
        "kinds": [kind for kind in _ORDER if kind in found_kinds],
        "slices": _slices(report),
        "config": difference_rows(report.config_diff, redact=redact),
        "ledger": ledger_rows([whole.aggregate_a, whole.aggregate_b]),
        "provenance": provenance_rows([whole.aggregate_a, whole.aggregate_b]),
        "redact": redact,
    }
    return write_page("two_runs.html.j2", content, evidence.batches(queries), evidence.texts)


def _telling(one: QueryComparison) -> tuple[int, float, str]:
    """Regressions first, and of each kind the largest change."""
    before, after = (0.0 if rank is None else 1 / rank for rank in (one.a_hit_rank, one.b_hit_rank))
    return _ORDER.index(_kind(one)), -abs(after - before), one.query_id


def _kind(one: QueryComparison) -> str:
    """The kind of a query; if its rank did not change, how its answer changed."""
    return f"{one.answer} answer" if one.kind == "draw" and one.answer is not None else one.kind


def _view(one: QueryComparison) -> View:
    """What the comparison says about a query."""
    ranks = (one.a_hit_rank, one.b_hit_rank)
    flow = "".join("m" if rank is None else "h" for rank in ranks)
    return {
        "kind": _kind(one),
        "flow": "none" if one.matching in (None, "unmatched") else flow,
        "ranks": list(ranks),
        "note": named(one.note, 400),
        "causes": [named(cause) for cause in one.causes],
        "matching": one.matching,
    }


def _headline(report: CompareReport) -> Mapping[str, Any] | None:
    """The number that the verdict is about, with its interval."""
    metric = report.verdict.metric
    row = next((row for row in report.whole.rows() if row.name == metric), None)
    if row is None or row.significance is None:
        return None
    one = row.significance
    return {
        "metric": short_name(row.name),
        "a": row.a,
        "b": row.b,
        "delta": words.signed(row.exact_delta),
        "interval": words.interval_text(one),
        "queries": words.queries_text(one),
    }


def _detected(metric: str | None, one: Significance | None, answer: str) -> str | None:
    """The detectable change, unless the verdict already states it."""
    if metric is None or one is None or one.detectable is None or answer == NO_DIFFERENCE:
        return None
    return (
        f"With {words.queries_text(one)}, a change in {short_name(metric)} of about {one.detectable:.4f} is detected in"
        " four out of five trials."
    )


def _number(row: Delta, axis: Axis) -> Mapping[str, Any]:
    one = row.significance
    is_drawn = one is not None and abs(one.mean_delta) <= axis.high and (one.low is None or -axis.high <= one.low)
    is_drawn = is_drawn and one is not None and (one.high is None or one.high <= axis.high)
    said = "" if one is None else words.says(one)
    kind = "undecided"
    if one is not None and one.direction is not None:
        kind = one.direction
    elif one is None or one.better == NEITHER or not one.decides:
        kind = "neutral"
    return {
        "name": short_name(row.name),
        "long": row.name,
        "metric": Name.parse(row.name).metric,
        "a": row.a,
        "b": row.b,
        "delta": words.signed(None if row.a is None or row.b is None else row.exact_delta),
        "interval": None if one is None else words.interval_text(one),
        "queries": None if one is None else one.n,
        "p": None if one is None else words.p_text(one.p),
        "drawn": is_drawn,
        "value": None if one is None else one.mean_delta,
        "low": None if one is None else one.low,
        "high": None if one is None else one.high,
        "kind": kind,
        "word": said.strip("()").rstrip("?") if kind in ("better", "worse") else said or _undecided(one),
    }


def _undecided(one: Significance | None) -> str:
    if one is None:
        return "not tested"
    return "unchanged" if not one.changed else "undecided" if one.decides else "no direction"


def _slices(report: CompareReport) -> Mapping[str, Any] | None:
    if not report.slices:
        return None
    columns, rows = words.slice_table(report)
    return {
        "by": named(report.sliced_by or ""),
        "columns": [column.title for column in columns],
        "rows": [[named(display_text(cell)) for cell in row] for row in rows],
    }
