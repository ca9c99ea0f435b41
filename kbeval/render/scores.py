"""Aggregates as tables: a few headline numbers for people, every number for programs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kbeval.metrics.model import AggregateMetrics, matched_by
from kbeval.metrics.names import Name, short_name
from kbeval.render.table import Cell, Column

# The most important numbers: how much was scored, then the headline metrics of the system that a run comes from. None:
# a knowledge base's own runs.
COUNTS = ("total_queries", "failed_queries")
HEADLINES = {
    None: (
        "hit_at_k.1",
        "hit_at_k.5",
        "hit_at_k.10",
        "mrr",
        # Only if labels have grades.
        "ndcg_at_k.10",
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
# If there is space for only two.
FIRST_HEADLINES = {
    None: ("hit_at_k.5", "mrr"),
    "anchors": ("support_recall_any_at_k.5", "support_mrr"),
    "grounded": ("answer_precision", "citation_hit_rate"),
}
_JUDGED = "judged_at_k.10"
_IN_ORDER = [Name.parse(name).metric for name in (*COUNTS, *(name for names in HEADLINES.values() for name in names))]

Row = tuple[str, str | None, AggregateMetrics]


def score_table(  # noqa: PLR0913  (what a table of scores shows)
    scored: Sequence[Row],
    form: str,
    by: str | None,
    own: Iterable[str] = (),
    systems: Collection[str | None] = (None,),
    *,
    judged: Mapping[str, float | None] | None = None,
) -> tuple[list[Column], list[list[Cell]]]:
    """One row per run (and slice).

    `own`: numbers of the user's metrics and k values, also shown in tables. `systems`: those that the runs come
    from. `judged`: the share of the first hits of each run that was judged, if people label here.
    """
    every = list(dict.fromkeys(name for _, _, aggregate in scored for name in aggregate.numbers()))
    names = sorted(every, key=lambda name: name not in COUNTS)
    if form == "table":
        wanted = {*COUNTS, *own}.union(*(HEADLINES.get(system, HEADLINES[None]) for system in systems))
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
        rows.append([*first, matched.get(run_id), *(numbers.get(name) for name in names)])
    # Labels with grades have a metric of that name.
    if judged and _JUDGED not in every:
        columns.append(Column(_JUDGED, short_name(_JUDGED), right=True))
        for row, (run_id, slice_name, _) in zip(rows, scored, strict=True):
            row.append(judged.get(run_id) if slice_name is None else None)
    return columns, rows


def _place(name: str) -> int:
    """The position of a number: counts first, a metric's values of k side by side, the user's own metrics last."""
    metric = Name.parse(name).metric
    return _IN_ORDER.index(metric) if metric in _IN_ORDER else len(_IN_ORDER)


def number_table(aggregate: AggregateMetrics) -> tuple[list[Column], list[list[Cell]]]:
    """One row per number, with how many queries it was scored on."""
    columns = [
        Column("metric"),
        Column("value", right=True),
        Column("scored", right=True),
        Column("not_applicable", "n/a", right=True),
    ]
    rows: list[list[Cell]] = []
    for name, value in aggregate.numbers().items():
        if isinstance(value, dict | list | str):
            continue  # written by a newer version
        counts = aggregate.counts(name)
        rows.append([name, value, counts.get("scored"), counts.get("not_applicable")])
    return columns, rows
