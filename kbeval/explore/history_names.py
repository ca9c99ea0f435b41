"""Resolves the name of a number as a person writes it: first among the stored numbers, then in the catalogue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kbeval.metrics.catalogue import HIGHER, NEITHER, Metric
from kbeval.metrics.model import AggregateMetrics, Number, plain_number
from kbeval.metrics.names import ABSTENTION_RATES, Name, Names, short_name
from kbeval.metrics.row_scores import direction_of
from kbeval.util.numbers import LARGEST


@dataclass(frozen=True)
class Measured:
    """One number by its printed name. `higher_is_better` is None if neither is better, or if it is unknown."""

    name: str
    higher_is_better: bool | None = None
    across_chunkers: bool = True
    # It depends on expected chunks: if ids decide, it is valid only within one chunker version.
    by_chunk_id: bool = False

    @property
    def short(self) -> str:
        return short_name(self.name)


def stored_numbers(aggregate: AggregateMetrics) -> dict[str, Number]:
    """Every number of a run, by its printed name; values that are neither a number nor null are left out."""
    found: dict[str, Number] = {
        **aggregate.numbers(),
        **{f"abstention.{name}": value for name, value in aggregate.abstention.items() if name != "k"},
    }
    return {name: value for name, value in found.items() if value is None or _is_number(value)}


def _is_number(value: object) -> bool:
    number = plain_number(value)
    return number is not None and abs(number) < LARGEST


def find_measured(names: Sequence[str], metrics: Sequence[Metric], stored: Collection[str]) -> list[Measured]:
    """The numbers with these names, each once, in the requested order."""
    known = Names(metrics, stored)
    found = {}
    for text in names:
        name = known.number(text)
        found[name] = _measured(name, metrics)
    return list(found.values())


def _measured(name: Name, metrics: Sequence[Metric]) -> Measured:
    if name.long in ABSTENTION_RATES:
        return Measured(name.long, higher_is_better=False, by_chunk_id=True)
    metric = next((one for one in metrics if one.name == name.metric), None)
    if metric is None:
        better = direction_of(name.long)
        return Measured(name.long, higher_is_better=None if better == NEITHER else better == HIGHER)
    return Measured(
        name.long,
        higher_is_better=None if metric.better == NEITHER else metric.better == HIGHER,
        across_chunkers=metric.across_chunkers,
        by_chunk_id="expected_chunk" in f"{metric.where} {metric.expression}",
    )
