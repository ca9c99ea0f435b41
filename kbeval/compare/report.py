"""Result types of a comparison: one query in two runs, and the report of all of them."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbeval.compare.stats import Significance, Verdict
from kbeval.metrics.model import CONTRACT, AggregateMetrics, Number
from kbeval.metrics.names import Name
from kbeval.storage.run_config import Difference
from kbeval.util.numbers import difference, rounded
from kbeval.util.text import json_text

if TYPE_CHECKING:
    import polars as pl

KINDS = ("win", "draw", "loss", "regression")
MATCHINGS = ("exact", "span", "doc", "none")
EXACT, FALLBACK = "exact", "fallback_doc_span"


@dataclass(frozen=True, slots=True)
class QueryComparison:
    """How one query changed between two runs."""

    query_id: str
    kind: str
    a_hit_rank: int | None
    b_hit_rank: int | None
    note: str
    # What decided which hits are correct: `exact` ids, `span` overlap, or the `doc` alone; `unmatched`: matching was
    # impossible; None: there is no label.
    matching: str | None = None
    causes: tuple[str, ...] = ()
    # Whether the answer got `better` or `worse`, apart from the ranks; None: neither.
    answer: str | None = None
    query: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "query_id": self.query_id,
            "kind": self.kind,
            "a_hit_rank": self.a_hit_rank,
            "b_hit_rank": self.b_hit_rank,
            "note": self.note,
            "matching": self.matching,
            "causes": list(self.causes),
            "answer": self.answer,
            "query": self.query,
        }


@dataclass(frozen=True)
class Delta:
    """One number in both runs, and the statistics of the difference."""

    name: str
    a: Number
    b: Number
    # Computed from the stored numbers (for programs), and from the exact ones, rounded once (for display).
    delta: Number
    exact_delta: Number
    significance: Significance | None


@dataclass(frozen=True)
class Comparison:
    """Two sets of numbers side by side: those of whole runs, or of one slice of them."""

    aggregate_a: AggregateMetrics
    aggregate_b: AggregateMetrics
    significance: Mapping[str, Significance]
    verdict: Verdict
    counts: Mapping[str, int]

    def deltas(self) -> dict[str, Any]:
        """B minus A in the stored numbers, in the form of the aggregates; null if either has no value or was scored on
        no query.
        """
        a, b = self._numbers()
        found: dict[str, Any] = {}
        for name in _ordered(a, b):
            metric, _, k = name.partition(".")
            value = difference(a.get(name), b.get(name))
            # In the form of the aggregates, where the name of a score that came with the rows contains a dot.
            if k and not any(name in one.extra for one in (self.aggregate_a, self.aggregate_b)):
                found.setdefault(metric, {})[k] = value
            else:
                found[name] = value
        return found

    def rows(self) -> list[Delta]:
        """Every number, in the order of the JSON."""
        a, b = self._numbers()
        found = []
        for name in _ordered(a, b):
            stored = difference(a.get(name), b.get(name))
            exact = self._exact_difference(name) if isinstance(stored, float) else stored
            shown = stored if exact is None else exact
            found.append(Delta(name, a.get(name), b.get(name), stored, shown, self.significance.get(name)))
        return found

    def _exact_difference(self, name: str) -> float | None:
        a, b = self.aggregate_a.exact.get(name), self.aggregate_b.exact.get(name)
        return None if a is None or b is None else rounded(float(b - a))

    def _numbers(self) -> tuple[dict[str, Number], dict[str, Number]]:
        return self.aggregate_a.numbers(), self.aggregate_b.numbers()

    def to_dict(self) -> dict[str, Any]:
        return {
            "significance": {name: one.to_dict() for name, one in self.significance.items()},
            "verdict": self.verdict.answer,
            "verdict_detail": self.verdict.to_dict(),
        }


@dataclass(frozen=True)
class CompareReport:
    """Is B better than A, where, and why."""

    run_a: str
    run_b: str
    whole: Comparison
    per_query: Sequence[QueryComparison]
    chunker_version_match: str
    chunker_versions: tuple[str | None, str | None]
    config_diff: Sequence[Difference] = ()
    slices: Mapping[str, Comparison] = field(default_factory=dict)
    sliced_by: str | None = None
    # The minimum share of text in common, and the side it is relative to; None: chunk ids decided.
    overlap: tuple[float, str] | None = None
    # The requested numbers; None: all.
    shown: frozenset[str] | None = None
    warnings: Sequence[str] = ()

    @property
    def aggregate_a(self) -> AggregateMetrics:
        return self.whole.aggregate_a

    @property
    def aggregate_b(self) -> AggregateMetrics:
        return self.whole.aggregate_b

    @property
    def verdict(self) -> Verdict:
        return self.whole.verdict

    @property
    def deltas(self) -> dict[str, Any]:
        return {**self.whole.deltas(), "chunker_version_match": self.chunker_version_match}

    @property
    def matching(self) -> dict[str, int]:
        """The number of queries per kind of matching."""
        found = Counter(one.matching or "none" for one in self.per_query)
        counts = {name: found[name] for name in MATCHINGS}
        return counts | {name: found[name] for name in ("support", "unmatched") if found[name]}

    def of_kind(self, *kinds: str) -> list[QueryComparison]:
        """The queries of these kinds, largest change first."""
        return sorted((one for one in self.per_query if one.kind in kinds), key=_by_change)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: documented keys first, then the rest."""
        found: dict[str, Any] = {
            "run_a": self.run_a,
            "run_b": self.run_b,
            "aggregate_a": _without_provenance(self.aggregate_a),
            "aggregate_b": _without_provenance(self.aggregate_b),
            "deltas": self.deltas,
            "per_query": [one.to_dict() for one in self.per_query],
            "counts": dict(self.whole.counts),
            "matching": self.matching,
            "chunker_versions": {"a": self.chunker_versions[0], "b": self.chunker_versions[1]},
            "overlap": {"min_overlap": self.overlap[0], "overlap_of": self.overlap[1]} if self.overlap else None,
            "config_diff": {one.key: {"a": one.a, "b": one.b} for one in self.config_diff},
            **self.whole.to_dict(),
        }
        if self.sliced_by is not None:
            found["sliced_by"] = self.sliced_by
            found["slices"] = {
                name: {
                    "aggregate_a": part.aggregate_a.to_dict(),
                    "aggregate_b": part.aggregate_b.to_dict(),
                    "deltas": part.deltas(),
                    "counts": dict(part.counts),
                    **part.to_dict(),
                }
                for name, part in self.slices.items()
            }
        return found

    def to_json(self) -> str:
        """The report as JSON. The same runs always give the same text."""
        return json_text(self.to_dict())

    def _repr_html_(self) -> str:
        """The notebook view: the verdict, then every number."""
        return f"<p>{html.escape(self.verdict.answer)}</p>{self.deltas_frame()._repr_html_()}"

    def per_query_frame(self) -> pl.DataFrame:
        """One row per query, as a Polars frame."""
        import polars as pl

        schema: dict[str, Any] = {
            "query_id": pl.String,
            "kind": pl.String,
            "a_hit_rank": pl.Int64,
            "b_hit_rank": pl.Int64,
            "note": pl.String,
            "matching": pl.String,
            "causes": pl.List(pl.String),
            "answer": pl.String,
            "query": pl.String,
        }
        return pl.DataFrame([one.to_dict() for one in self.per_query], schema=schema)

    def deltas_frame(self) -> pl.DataFrame:
        """One row per number and slice (null: the whole runs), as a Polars frame."""
        import polars as pl

        schema = {
            "slice": pl.String,
            "metric": pl.String,
            "k": pl.Int64,
            "a": pl.Float64,
            "b": pl.Float64,
            "delta": pl.Float64,
            "n": pl.Int64,
            "clusters": pl.Int64,
            "low": pl.Float64,
            "high": pl.Float64,
            "p": pl.Float64,
            "p_holm": pl.Float64,
            "holds": pl.Boolean,
        }
        rows = []
        for slice_name, part in [(None, self.whole), *self.slices.items()]:
            for row in part.rows():
                name = Name.parse(row.name)
                one = row.significance
                tested: tuple[object, ...] = (None,) * 7
                if one is not None:
                    tested = (one.n, one.clusters, one.low, one.high, one.p, one.p_holm, one.holds)
                numbers = (None if value is None else float(value) for value in (row.a, row.b, row.delta))
                rows.append((slice_name, name.without_k, name.k, *numbers, *tested))
        return pl.DataFrame(rows, schema=schema, orient="row")


def _ordered(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """The names of both, in the documented order, then by name, then by k."""
    order = {name: place for place, name in enumerate(CONTRACT)}

    def place(name: str) -> tuple[int, str, int]:
        parsed = Name.parse(name)
        return order.get(parsed.metric, len(order)), parsed.without_k, parsed.k or 0

    return sorted(a.keys() | b.keys(), key=place)


def _by_change(one: QueryComparison) -> tuple[float, str]:
    """Sort key: the change in 1 / rank, from lost or found entirely to moved by one rank."""
    before, after = (0.0 if rank is None else 1 / rank for rank in (one.a_hit_rank, one.b_hit_rank))
    return -abs(after - before), one.query_id


def _without_provenance(aggregate: AggregateMetrics) -> dict[str, Any]:
    """Provenance is omitted because both sides were computed just now, by the same program with the same labels."""
    found = aggregate.to_dict()
    found.pop("provenance", None)
    return found
