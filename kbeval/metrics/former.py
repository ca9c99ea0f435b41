"""Renamed words of metric definitions. Old definitions still load, with a warning that gives the replacements."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kbeval.errors import DeprecatedMetricWarning, MetricError

if TYPE_CHECKING:
    from kbeval.metrics.catalogue import Metric

FIELDS = {"over": "where", "none": "if_empty"}
# The relations of the former grains still exist, so that expressions may refer to them (`ranked.rank`). At the grain
# `answered` a metric was an aggregate, as at the others.
GRAINS = {"ranked": "per_hit", "matched": "per_expected_hit", "answered": "per_query"}
_MISSING = {"counted": "include", "left out": "exclude"}
_SHOWN = 3


def renewed(fields: Mapping[str, str], origin: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The headers of a definition in new words, and the replacements for the old ones."""
    found: dict[str, str] = {}
    notes = []
    for field, value in fields.items():
        name = FIELDS.get(field, field)
        if name in found or (name != field and name in fields):
            msg = f"{origin}: {field!r} is the former name of {name!r}; keep one of them"
            raise MetricError(msg)
        found[name] = value
        if name != field:
            notes.append(f"'{name}' for '{field}'")
        if field == "grain" and value in GRAINS:
            notes.append(f"'grain: {GRAINS[value]}' for 'grain: {value}'")
        if field == "missing" and value in _MISSING:
            found[name] = _MISSING[value]
            notes.append(f"'missing: {found[name]}' for 'missing: {value}'")
    return found, tuple(notes)


def warn_about_words(metrics: Iterable[Metric]) -> None:
    """Warn in one line about deprecated words in these definitions."""
    old = [metric for metric in metrics if metric.former_words]
    if old:
        words = dict.fromkeys(note for metric in old for note in metric.former_words)
        _warn(f"{_named(old)}: deprecated words; write {', '.join(words)}")


def warn_about_aggregates(metrics: Iterable[Metric]) -> None:
    """Warn in one line about metrics that aggregate a single row."""
    if old := list(metrics):
        _warn(f"{_named(old)}: an aggregate at the grain per_query is deprecated; write 'x' for 'MAX(x)' or 'SUM(x)'")


def _named(metrics: list[Metric]) -> str:
    names = list(dict.fromkeys(metric.origin for metric in metrics))
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _warn(text: str) -> None:
    warnings.warn(text, DeprecatedMetricWarning, stacklevel=3)
