"""User-defined fields of stored rows and hits, as columns that exist only in sessions that request them.

Building them reads the stored rows a second time, so only fields that a metric or a query refers to are built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kbeval.engine.session import Added
from kbeval.metrics.catalogue import Metric

FIELDS, HIT_FIELDS = "fields", "hit_fields"
_NAMED = re.compile(r"\b(fields|hit_fields)\b", re.IGNORECASE)
# The relations that get such a column; the other grains have all columns of per_query.
COLUMNS = {
    FIELDS: {"per_query": Added(FIELDS, FIELDS, ("result_no",))},
    HIT_FIELDS: {
        grain: Added(HIT_FIELDS, HIT_FIELDS, ("result_no", "position")) for grain in ("per_hit", "per_expected_hit")
    },
}


def asked_fields(metrics: Iterable[Metric]) -> dict[str, Added]:
    """The columns that these metrics refer to, by the relations that get them."""
    return named_fields(f"{metric.where}\n{metric.expression}" for metric in metrics)


def named_fields(texts: Iterable[str]) -> dict[str, Added]:
    """The columns that these pieces of SQL refer to, by the relations that get them."""
    named = {name.lower() for text in texts for name in _NAMED.findall(text)}
    return {relation: added for name in sorted(named) for relation, added in COLUMNS[name].items()}
