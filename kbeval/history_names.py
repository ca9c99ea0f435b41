"""Which number is meant: a name as a person writes it, looked up in what is stored first and in the catalogue next."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kbeval.errors import UsageError
from kbeval.exact import LARGEST
from kbeval.metrics import (
    HIGHER,
    NEITHER,
    PERCENTILES,
    SHORT_NAMES,
    Metric,
    did_you_mean,
    find_column,
    find_metric,
    long_name,
    short_name,
)
from kbeval.model import AggregateMetrics, Number
from kbeval.text import cut

# Numbers that stand beside the metrics, and fall when things get better.
_ABSTENTION = ("abstention.unsupported_rate", "abstention.over_cautious_rate")


@dataclass(frozen=True)
class Measured:
    """One number by its printed name, and how to read it; `higher_is_better` is None where neither is, or no metric
    says.
    """

    name: str
    higher_is_better: bool | None = None
    across_chunkers: bool = True
    # It is about expected chunks: where ids decide, it means something only within one chunker version.
    by_chunk_id: bool = False

    @property
    def short(self) -> str:
        return short_name(self.name)


def stored_numbers(aggregate: AggregateMetrics) -> dict[str, Number]:
    """Every number that a run has, by its printed name; what is neither a number nor null is left out.

    A number that was scored on no query is null, whatever stands in for it.
    """
    found: dict[str, Number] = {
        **aggregate.numbers(),
        **{f"abstention.{name}": value for name, value in aggregate.abstention.items() if name != "k"},
    }
    counts = aggregate.ledger.get("metrics", {})

    def is_empty(name: str) -> bool:
        metric = counts.get(name.partition(".")[0])
        return metric is not None and not metric.get("scored")

    return {
        name: None if value is None or is_empty(name) else value
        for name, value in found.items()
        if value is None or _is_number(value)
    }


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and abs(value) < LARGEST


def find_measured(names: Sequence[str], metrics: Sequence[Metric], stored: Collection[str]) -> list[Measured]:
    """The numbers of these names, each once, in the order asked for."""
    found = {}
    for name in names:
        full = _full_name(name.strip(), metrics, stored)
        found[full] = _measured(full, metrics)
    return list(found.values())


def _full_name(name: str, metrics: Sequence[Metric], stored: Collection[str]) -> str:
    head, _, part = long_name(name).partition(".")
    # `x@5` may be short for `x_at_k.5`.
    for candidate in (name, long_name(name), f"{head}_at_k.{part}"):
        if candidate in stored or candidate in _ABSTENTION:
            return candidate
    try:
        metric = find_metric(metrics, name)
    except UsageError:
        return _stored_part(name, metrics, stored)
    if metric.aggregation == "percentiles":
        part = name.partition(".")[2]
        if part not in PERCENTILES:
            raise _several(name, [f"{metric.name}.{each}" for each in PERCENTILES])
        return f"{metric.name}.{part}"
    if metric.ks and part.isascii() and part.isdigit() and len(part) < 10 and int(part) not in metric.ks:
        msg = f"no run has {metric.name} at {cut(part, 20)}; 'kbeval score --all --k {cut(part, 20)}' stores it"
        raise UsageError(msg)
    return find_column(metrics, name).name


def _stored_part(name: str, metrics: Sequence[Metric], stored: Collection[str]) -> str:
    """A metric that only the stored numbers know, named without its part."""
    if parts := sorted(one for one in stored if one.startswith(f"{name}.")):
        raise _several(name, parts)
    known = dict.fromkeys((*(metric.name for metric in metrics), *SHORT_NAMES, *stored))
    hint = did_you_mean(name, known) or "; see kbeval metrics"
    msg = f"there is no metric {cut(name, 60)!r}{hint}"
    raise UsageError(msg)


def _several(name: str, parts: Sequence[str]) -> UsageError:
    return UsageError(f"{cut(name, 60)!r} has several values: say which, like {cut(parts[0], 60)}")


def _measured(name: str, metrics: Sequence[Metric]) -> Measured:
    if name in _ABSTENTION:
        return Measured(name, higher_is_better=False, by_chunk_id=True)
    metric = next((one for one in metrics if one.name == name.partition(".")[0]), None)
    if metric is None:
        return Measured(name)
    return Measured(
        name,
        higher_is_better=None if metric.better == NEITHER else metric.better == HIGHER,
        across_chunkers=metric.across_chunkers,
        by_chunk_id="expected_chunk" in f"{metric.over} {metric.expression}",
    )
