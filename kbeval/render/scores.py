"""Aggregates as tables: a few headline numbers for eyes, every number for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbeval.metrics import short_name
from kbeval.model import AggregateMetrics, Number
from kbeval.provenance import matched_by
from kbeval.render.table import Cell, Column

# What a person looks at first: how much was scored, and then what a run of this system is about. None: a knowledge
# base's own.
COUNTS = ("total_queries", "failed_queries")
HEADLINES = {
    None: (
        "hit_at_k.1",
        "hit_at_k.5",
        "hit_at_k.10",
        "mrr",
        "recall_at_k_doc.5",
        "precision_at_k_chunk.5",
        "citation_coverage",
        "groundedness",
        "refusal_correctness",
    ),
    "anchors": (
        "support_recall_any_at_k.5",
        "support_recall_all_at_k.5",
        "support_mrr",
        "attribution_hit_rate",
        "abstention_accuracy",
        "latency_ms.p95",
    ),
    "grounded": (
        "answer_precision",
        "citation_hit_rate",
        "under_refusal_rate",
        "over_refusal_rate",
        "citation_recall_at_k.5",
    ),
}
# Where there is room for two.
FIRST_HEADLINES = {
    None: ("hit_at_k.5", "mrr"),
    "anchors": ("support_recall_any_at_k.5", "support_mrr"),
    "grounded": ("answer_precision", "citation_hit_rate"),
}
# The system of stored numbers, by a metric that no other has.
_SYSTEMS = {"error_rate": "anchors", "answer_precision": "grounded"}
_IN_ORDER = [name.partition(".")[0] for name in (*COUNTS, *(name for names in HEADLINES.values() for name in names))]

Scored = tuple[str, str | None, AggregateMetrics]


def score_table(
    scored: Sequence[Scored], form: str, by: str | None, own: Iterable[str] = ()
) -> tuple[list[Column], list[list[Cell]]]:
    """One row a run (and slice). `own`: numbers of the user's metrics and k values, shown to eyes too."""
    every = list(dict.fromkeys(name for _, _, aggregate in scored for name in aggregate.numbers()))
    names = sorted(every, key=lambda name: name not in COUNTS)
    if form == "table":
        wanted = {*COUNTS, *own}.union(*(_headlines(aggregate) for _, _, aggregate in scored))
        names = sorted(wanted.intersection(every), key=lambda name: (_place(name), every.index(name)))
    columns = [Column("run_id", "run", 36), *([Column(by)] if by else []), Column("matching", "match")]
    columns += [Column(name, short_name(name), right=True) for name in names]
    rows: list[list[Cell]] = []
    matched = {
        run_id: matched_by(aggregate.provenance) for run_id, slice_name, aggregate in scored if slice_name is None
    }
    for run_id, slice_name, aggregate in scored:
        numbers = aggregate.numbers()
        first: list[Cell] = [run_id, slice_name if slice_name is not None else "(all)"] if by else [run_id]
        first.append(matched.get(run_id))
        values = (numbers.get(name) for name in names)
        if form == "table":
            values = (seen(aggregate, name, numbers.get(name)) for name in names)
        rows.append([*first, *values])
    return columns, rows


def _place(name: str) -> int:
    """Where a number stands: counts first, a metric's values of k side by side, what is the user's own last."""
    metric = name.partition(".")[0]
    return _IN_ORDER.index(metric) if metric in _IN_ORDER else len(_IN_ORDER)


def _headlines(aggregate: AggregateMetrics) -> tuple[str, ...]:
    return HEADLINES[next((system for metric, system in _SYSTEMS.items() if metric in aggregate.extra), None)]


def seen(aggregate: AggregateMetrics, name: str, value: Number) -> Number:
    """To eyes, a number that was scored on no query is no number, whatever stands in for it in the JSON."""
    if isinstance(value, int):
        return value  # a count; none is as good as any
    counts = aggregate.ledger.get("metrics", {}).get(name.partition(".")[0])
    return None if counts is not None and not counts.get("scored") else value


def number_table(aggregate: AggregateMetrics, form: str) -> tuple[list[Column], list[list[Cell]]]:
    """One row a number, with how many queries it was scored on."""
    columns = [
        Column("metric"),
        Column("value", right=True),
        Column("scored", right=True),
        Column("not_applicable", "n/a", right=True),
    ]
    counts = aggregate.ledger.get("metrics", {})
    rows: list[list[Cell]] = []
    for name, value in aggregate.numbers().items():
        if isinstance(value, dict | list | str):
            continue  # what a newer version wrote
        count = counts.get(name.partition(".")[0], {})
        shown = value if form == "csv" else seen(aggregate, name, value)
        rows.append([name, shown, count.get("scored"), count.get("not_applicable")])
    return columns, rows
