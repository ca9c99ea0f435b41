"""A hash of everything that the meaning of numbers depends on, stored next to them.

It covers all metrics, all files of `sql/` between the stored rows and the numbers, including variants, and the
constants for summing, rounding and comparing values. Comments and layout of shipped files are not part of it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbeval.engine import relations
from kbeval.metrics import catalogue
from kbeval.metrics.catalogue import Metric
from kbeval.util import numbers


def definitions_hash(metrics: Sequence[Metric]) -> str:
    """A hash that changes when the meaning of any number changes, not with a comment or a summary."""
    meaning = [_meaning(metric) for metric in sorted(metrics, key=lambda metric: metric.name)]
    text = json.dumps([meaning, shipped_steps(relations.sql_folder()), _constants()], sort_keys=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=1)
def shipped_steps(folder: Path) -> list[list[str]]:
    """All SQL of `sql/` that decides a number. Reading its three hundred files takes as long as several statements."""
    return [[name, _plain(text)] for name, text in relations.definitions(folder).items()]


def _meaning(metric: Metric) -> list[Any]:
    sql = [metric.expression, metric.condition]
    if metric.origin == "kbeval":
        # In user-defined metrics, what looks like a comment or layout may be part of a string.
        sql = list(map(_plain, sql))
    return [metric.name, *sql, metric.grain, metric.labels, metric.ks, metric.if_empty, metric.aggregation]


def _constants() -> list[Any]:
    return [
        catalogue.AGGREGATIONS,
        catalogue.SCORED,
        [numbers.SCALE, numbers.SUMMABLE, numbers.WHOLE, numbers.LARGEST, numbers.DECIMALS, numbers.TIE],
        numbers.OVERLAP_TOLERANCE,
    ]


@functools.lru_cache(maxsize=1024)
def _plain(sql: str) -> str:
    return " ".join(relations.without_comments(sql).split())
