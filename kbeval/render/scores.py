"""Aggregates as tables: a few headline numbers for eyes, every number for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbeval.metrics import short_name
from kbeval.model import AggregateMetrics, Number
from kbeval.render.table import Cell, Column

# What a person looks at first.
HEADLINES = (
    "total_queries",
    "failed_queries",
    "hit_at_k.1",
    "hit_at_k.5",
    "hit_at_k.10",
    "mrr",
    "recall_at_k_doc.5",
    "precision_at_k_chunk.5",
    "citation_coverage",
    "groundedness",
    "refusal_correctness",
)

Scored = tuple[str, str | None, AggregateMetrics]


def score_table(
    scored: Sequence[Scored], form: str, by: str | None, own: Iterable[str] = ()
) -> tuple[list[Column], list[list[Cell]]]:
    """One row a run (and slice). `own`: numbers of the user's metrics and k values, shown to eyes too."""
    every = list(dict.fromkeys(name for _, _, aggregate in scored for name in aggregate.numbers()))
    wanted = {*HEADLINES, *own} if form == "table" else set(every)
    # Counts first, then in the order of the JSON, so that the values of k stand side by side.
    names = sorted((name for name in every if name in wanted), key=lambda name: name not in HEADLINES[:2])
    columns = [Column("run_id", "run", 36), *([Column(by)] if by else [])]
    columns += [Column(name, short_name(name), right=True) for name in names]
    rows: list[list[Cell]] = []
    for run_id, slice_name, aggregate in scored:
        numbers = aggregate.numbers()
        first: list[Cell] = [run_id, slice_name if slice_name is not None else "(all)"] if by else [run_id]
        values = (numbers.get(name) for name in names)
        if form == "table":
            values = (seen(aggregate, name, numbers.get(name)) for name in names)
        rows.append([*first, *values])
    return columns, rows


def seen(aggregate: AggregateMetrics, name: str, value: Number) -> Number:
    """To eyes, a number that was scored on no query is no number, whatever stands in for it in the JSON."""
    counts = aggregate.ledger.get("metrics", {}).get(name.partition(".")[0])
    return None if counts is not None and not counts.get("scored") else value


def number_table(aggregate: AggregateMetrics) -> tuple[list[Column], list[list[Cell]]]:
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
        rows.append([name, value, count.get("scored"), count.get("not_applicable")])
    return columns, rows
