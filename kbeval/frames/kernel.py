"""Metrics of judged rankings: the expressions of `sql/metrics` over the grains of `sql/frames`, one pass per grain."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import polars as pl

from kbeval.engine.relations import read_sql, relations, without_comments
from kbeval.engine.session import Session
from kbeval.errors import UsageError
from kbeval.frames.ranking import QUERY, Judged
from kbeval.metrics.catalogue import NEITHER, Metric, shipped_metrics
from kbeval.metrics.names import CLASSICS, Name
from kbeval.util.text import cut, did_you_mean

# The value of `:k` if the whole ranking counts: no ranking is longer.
_NO_CUTOFF = 2**31 - 1
_GRAINS = {
    "per_query": ("frames/per_query.sql",),
    "per_expected_hit": ("frames/per_expected_hit.sql",),
    "per_label": ("grains/per_label.sql",),
}


def parse_measure(text: str) -> Name:
    """A metric that can be computed for rankings, by any of its names."""
    found = Name.parse_classic(text)
    if found is None:
        # kbeval's own names: `hit_at_k.5`, `ndcg@10`, `mrr`.
        written = Name.parse(text.strip().replace("@", "_at_k."))
        found = written if written.part is None and written.metric in (*CLASSICS, "mrr") else None
    if found is None:
        known = [*CLASSICS.values(), *CLASSICS]
        hint = did_you_mean(text.partition("@")[0], known)
        msg = (
            f"there is no metric {cut(text, 60)!r} for rankings{hint or '; available: ' + ', '.join(CLASSICS.values())}"
        )
        raise UsageError(msg)
    if found.k is None and found.metric in ("precision_at_k_chunk", "hit_at_k"):
        msg = f"{cut(text, 60)!r} needs a cutoff, for example {found.classic}@5"
        raise UsageError(msg)
    return found


class Kernel:
    """Computes some metrics, for any number of runs."""

    def __init__(self, measures: Sequence[Name]) -> None:
        self._measures = list(measures)
        self.metrics = {metric.name: metric for metric in shipped_metrics([name.metric for name in measures])}

    def values(self, judged: Judged) -> pl.DataFrame:
        """One row per query, by id: query_id, and a column for each measure by its long name."""
        with Session() as session:
            # Views, so that the engine computes only the columns that some metric reads.
            session.connection.register("label_finds", judged.labels.to_arrow())
            session.connection.register("judged_queries", judged.queries.to_arrow())
            found = judged.queries.select("result_no").sort("result_no")
            made: set[str] = set()
            grains = {self.metrics[name.metric].grain for name in self._measures}
            for grain in sorted(grains):
                for file in (*_GRAINS["per_query"], *_GRAINS[grain]):
                    if file not in made:
                        name = file.rpartition("/")[2].removesuffix(".sql")
                        session.execute(f"CREATE VIEW {name} AS {_select(file)}")
                        made.add(file)
                part = session.frame(f"SELECT result_no, {self._columns(grain)} FROM {grain} GROUP BY result_no")
                found = found.join(part, on="result_no", how="left", maintain_order="left")
        return found.with_columns(judged.query_ids.alias(QUERY)).select(
            QUERY, *dict.fromkeys(name.long for name in self._measures)
        )

    def _columns(self, grain: str) -> str:
        expressions = {
            name.long: _expression(self.metrics[name.metric], name)
            for name in self._measures
            if self.metrics[name.metric].grain == grain
        }
        return ", ".join(f'{sql} AS "{long}"' for long, sql in expressions.items())


def _select(file: str) -> str:
    name = file.rpartition("/")[2].removesuffix(".sql")
    known = relations()
    return without_comments(read_sql(file) if file.startswith("frames/") else known[name].sql)


def _expression(metric: Metric, name: Name) -> str:
    sql = metric.expression_at((name.k or _NO_CUTOFF) if metric.ks else None)
    value = f"CAST((\n{sql}\n) AS DOUBLE)"
    if metric.better == NEITHER:
        return value
    # Grades count whatever the least relevant one is, so there may be gain where nothing is relevant.
    if metric.name == "ndcg_at_k":
        return f"COALESCE({value}, 0)"
    # A query that a metric does not apply to, because nothing is relevant, counts as 0, as in trec_eval.
    return f"CASE WHEN MAX(CASE WHEN {metric.where} THEN 1 ELSE 0 END) = 1 THEN {value} ELSE 0 END"


def exact_mean(values: pl.Series) -> float | None:
    """The mean of the existing values, independent of their order: summed like stored numbers."""
    there = values.drop_nulls()
    if there.is_empty():
        return None
    total = there.cast(pl.Decimal(38, 15)).sum()
    return float(Decimal(total) / len(there))
