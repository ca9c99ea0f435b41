"""Data classes of the public API: the aggregate of a run, and its JSON form."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from kbeval.metrics.names import ABSTENTION, Name, is_k

if TYPE_CHECKING:
    from fractions import Fraction

# The documented keys, which are always written, in this order.
MAPS = ("hit_at_k", "recall_at_k_doc", "precision_at_k_chunk")
CONTRACT = (
    "hit_at_k",
    "mrr",
    "recall_at_k_doc",
    "precision_at_k_chunk",
    "citation_coverage",
    "groundedness",
    "empty_result_rate",
    "refusal_correctness",
    "total_queries",
    "failed_queries",
)
_SECTIONS = ("abstention", "ledger", "provenance")

Number = float | int | None
KMap = dict[int, float | None]


@dataclass
class AggregateMetrics:
    """One run's numbers. A metric without a value is None; `extra` contains all other metrics."""

    hit_at_k: KMap = field(default_factory=dict)
    mrr: float | None = None
    recall_at_k_doc: KMap = field(default_factory=dict)
    precision_at_k_chunk: KMap = field(default_factory=dict)
    citation_coverage: float | None = None
    groundedness: float | None = None
    empty_result_rate: float | None = None
    refusal_correctness: float | None = None
    total_queries: int | None = None
    failed_queries: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    # How many queries were answered and refused, with and without the evidence; empty without such labels.
    abstention: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    # The numbers before rounding, by printed name, if they were just computed; never stored.
    exact: dict[str, Fraction] = field(default_factory=dict, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: first the documented keys in order, then the rest by name."""
        found: dict[str, Any] = {name: _written(getattr(self, name)) for name in CONTRACT}
        found.update((name, _written(self.extra[name])) for name in sorted(self.extra))
        found.update((name, getattr(self, name)) for name in _SECTIONS if getattr(self, name))
        return found

    def to_json(self) -> str:
        """The text that is stored: the same numbers always give the same text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Read a stored object. Keys that an older version did not write become empty maps or None."""
        known: dict[str, Any] = {
            name: _k_map(stored.get(name)) if name in MAPS else plain_number(stored.get(name)) for name in CONTRACT
        }
        sections: dict[str, Any] = {name: _section(stored.get(name)) for name in _SECTIONS}
        extra = {
            name: _k_map(value) if _is_k_map(value) else value
            for name, value in stored.items()
            if name not in CONTRACT and name not in _SECTIONS
        }
        return cls(**known, extra=extra, **sections)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read stored JSON; raises ValueError if it is not a JSON object."""
        stored = json.loads(text)
        if not isinstance(stored, dict):
            msg = "an aggregate must be a JSON object"
            raise ValueError(msg)  # noqa: TRY004  (bad text, like json's own errors)
        return cls.from_dict(stored)

    def value(self, name: str) -> Number:
        """One number by its printed name: `mrr`, `hit_at_k.5`. None if there is none, as in `numbers`."""
        found = self._stored(name)
        return None if self._is_of_nothing(name, found) else found

    def _stored(self, name: str) -> Number:
        parsed = Name.parse(name)
        if parsed.metric == ABSTENTION:
            found = self.abstention.get(parsed.part or "")
        else:
            found = getattr(self, parsed.metric) if parsed.metric in CONTRACT else self.extra.get(parsed.metric)
            if name in self.extra:
                found = self.extra[name]
            elif isinstance(found, dict):
                found = found.get(parsed.part if parsed.k is None else parsed.k)
            elif parsed != Name(parsed.metric):
                found = None
        number: Number = plain_number(found)
        return number

    def exact_value(self, name: str) -> Fraction | None:
        """The same number before rounding; the stored number if that is not known."""
        value = self.value(name)
        if value is None:
            return None
        from fractions import Fraction

        return self.exact.get(name, Fraction(repr(value)))

    def numbers(self) -> dict[str, Number]:
        """Every number by its printed name, in order.

        A number that was scored on no query is None, whatever the JSON has in its place. Without a stored ledger, all
        numbers are returned unchanged. Values that are neither numbers nor null are left out.
        """
        found: dict[str, Number] = {}
        for name, value in self.to_dict().items():
            if name in _SECTIONS:
                continue
            if isinstance(value, dict):
                found.update((f"{name}.{k}", inner) for k, inner in value.items())
            else:
                found[name] = value
        return {
            name: None if self._is_of_nothing(name, value) else value
            for name, value in found.items()
            if value is None or plain_number(value) is not None
        }

    def counts(self, name: str) -> Mapping[str, Any]:
        """On how many queries a number, given by its printed name, was scored, and to how many it does not apply."""
        metrics = self.ledger.get("metrics")
        if not isinstance(metrics, dict):
            return {}
        # The name of a score that came with the rows has a dot.
        found: Mapping[str, Any] = metrics.get(name) or metrics.get(name.partition(".")[0], {})
        return found

    def _is_of_nothing(self, name: str, value: Any) -> bool:  # noqa: ANN401  (whatever is stored)
        """Was it scored on no query? Integers are counts of queries, for which 0 is correct."""
        return isinstance(value, float) and self.counts(name).get("scored") == 0


def _written(value: Any) -> Any:  # noqa: ANN401  (numbers, maps of numbers, and values of newer versions)
    if isinstance(value, dict):
        return {str(k): value[k] for k in sorted(value, key=lambda k: (isinstance(k, str), k))}
    return value


def _is_k_map(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, dict) and bool(value) and all(is_k(str(k)) for k in value)


def _section(value: Any) -> dict[str, Any]:  # noqa: ANN401
    """A ledger or provenance in its expected form; anything else stored there is left out."""
    found = dict(value) if isinstance(value, dict) else {}
    if "metrics" in found and isinstance(found["metrics"], dict):
        found["metrics"] = {name: counts for name, counts in found["metrics"].items() if isinstance(counts, dict)}
    elif not isinstance(found.get("metrics"), str):
        found.pop("metrics", None)
    return found


def _k_map(value: Any) -> KMap:  # noqa: ANN401
    return {int(k): plain_number(v) for k, v in value.items() if is_k(str(k))} if isinstance(value, dict) else {}


def plain_number(value: Any) -> Any:  # noqa: ANN401  (whatever is stored)
    """A number unchanged; None if something else is stored."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Not isfinite: it fails for integers that are too large for a float.
    return value if is_number and abs(value) <= sys.float_info.max else None


def matched_by(provenance: Mapping[str, Any]) -> str | None:
    """What decided which hits are correct, in a word: `id`, or `span` for document and span; None if not recorded."""
    return {"exact": "id", "span": "span"}.get(str(provenance.get("matching")))
