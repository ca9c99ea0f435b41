"""How well people agree: Krippendorff's alpha with an interval, Cohen's kappa for two, and what they disagree on.

Alpha is 1 if all agree, and 0 if they agree only as often as expected by chance. The interval is a percentile bootstrap
over the units that were judged, each with all of its judgements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbeval.storage.labels import ANSWERABLE, MUST_CONTAIN, SCORE, SKIP, SUPPORTS, Decision

RESAMPLES = 2_000
SEED = 0
# With fewer resamples in which alpha is defined, no interval is given.
_LEAST_DEFINED = 100
NOMINAL, ORDINAL = "nominal", "ordinal"

Array = np.ndarray[Any, Any]
# For each unit, the value that each person gave; people who gave none are left out.
Units = Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class AgreementRow:
    """How well people agree on one field, in one slice."""

    field: str
    slice: str
    # Units that at least two people decided on.
    units: int
    people: int
    exact: float | None
    alpha: float | None
    interval: tuple[float, float] | None
    alpha_ordinal: float | None
    interval_ordinal: tuple[float, float] | None
    # Cohen's, for two people, over the units that both decided on.
    kappa: float | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Dispute:
    """Something that people disagree on."""

    query_id: str
    field: str
    item: str
    said: Mapping[str, Any]
    text: str
    settled: Any = None


def alpha(units: Units, level: str = NOMINAL) -> float | None:
    """Krippendorff's alpha; None if it is not defined (no pairs, or only one value)."""
    counts, _ = _value_counts(units)
    found = float(_alphas(_coincidences(counts).sum(axis=0)[None], level)[0]) if len(counts) else np.nan
    return None if np.isnan(found) else found


def alpha_interval(
    units: Units, level: str = NOMINAL, *, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float] | None:
    """The 95 % interval of alpha."""
    counts, _ = _value_counts(units)
    if len(counts) < 2:
        return None
    own = _coincidences(counts)
    n, size = len(own), own.shape[1]
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), resamples)
    found = _alphas((draws @ own.reshape(n, -1)).reshape(resamples, size, size), level)
    found = found[~np.isnan(found)]
    if len(found) < _LEAST_DEFINED:
        return None
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def kappa(units: Units) -> float | None:
    """Cohen's kappa of two people, over the units that both decided on; None if undefined or not two people."""
    people = sorted({name for unit in units for name in unit})
    if len(people) != 2:
        return None
    pairs = [(unit[people[0]], unit[people[1]]) for unit in units if len(unit) == 2]
    if not pairs:
        return None
    values = sorted({value for pair in pairs for value in pair})
    table = np.zeros((len(values), len(values)))
    for a, b in pairs:
        table[values.index(a), values.index(b)] += 1
    table /= table.sum()
    expected = float(table.sum(axis=1) @ table.sum(axis=0))
    return None if expected >= 1 - 1e-12 else (float(np.trace(table)) - expected) / (1 - expected)


def _value_counts(units: Units) -> tuple[Array, list[float]]:
    """How often each value was given to each unit that has at least two values."""
    paired = [unit for unit in units if len(unit) > 1]
    values = sorted({value for unit in paired for value in unit.values()})
    place = {value: number for number, value in enumerate(values)}
    counts = np.zeros((len(paired), len(values)))
    for number, unit in enumerate(paired):
        for value in unit.values():
            counts[number, place[value]] += 1
    return counts, values


def _coincidences(counts: Array) -> Array:
    """The coincidence matrix of each unit: pairs of values, divided by the number of values minus one."""
    pairs = counts[:, :, None] * counts[:, None, :]
    size = counts.shape[1]
    pairs[:, range(size), range(size)] -= counts
    found: Array = pairs / (counts.sum(axis=1) - 1)[:, None, None]
    return found


def _alphas(matrices: Array, level: str) -> Array:
    """Alpha of each coincidence matrix; NaN where it is not defined."""
    totals = matrices.sum(axis=2)
    n = totals.sum(axis=1)
    size = matrices.shape[1]
    if level == NOMINAL:
        distance = np.broadcast_to(1.0 - np.eye(size), matrices.shape)
    else:
        # The distance between the mid-ranks of two values among all values given.
        middle = np.cumsum(totals, axis=1) - totals / 2
        distance = (middle[:, :, None] - middle[:, None, :]) ** 2
    observed = (matrices * distance).sum(axis=(1, 2))
    expected = (totals[:, :, None] * totals[:, None, :] * distance).sum(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.where(expected > 1e-12, 1 - (n - 1) * observed / expected, np.nan)
    return found


# --- decisions ------------------------------------------------------------------------------------------


def agreement_rows(
    decisions: Sequence[Decision], entries: Mapping[str, Mapping[str, Any]], by: str | None = None
) -> list[AgreementRow]:
    """How well people agree on each field: over all queries, and for each value of the query field `by`."""
    found = []
    for name, units in _units(decisions).items():
        slices: dict[str, list[Mapping[str, float]]] = {"all": [unit for _, unit in units]}
        if by is not None:
            for query_id, unit in units:
                value = entries.get(query_id, {}).get(by)
                for one in value if isinstance(value, list) else [value]:
                    slices.setdefault(f"{by} {one}" if one is not None else f"no {by}", []).append(unit)
        found += [_row(name, label, slices[label]) for label in ("all", *sorted(set(slices) - {"all"}))]
    return found


def _row(name: str, label: str, units: Units) -> AgreementRow:
    paired = [unit for unit in units if len(unit) > 1]
    same = [len(set(unit.values())) == 1 for unit in paired]
    return AgreementRow(
        name,
        label,
        len(paired),
        len({who for unit in paired for who in unit}),
        sum(same) / len(same) if same else None,
        alpha(paired),
        alpha_interval(paired),
        alpha(paired, ORDINAL),
        alpha_interval(paired, ORDINAL),
        kappa(paired),
    )


def _units(decisions: Sequence[Decision]) -> dict[str, list[tuple[str, dict[str, float]]]]:
    """The vote of each person, by field and by item."""
    units: dict[str, dict[tuple[str, str], dict[str, float]]] = {}
    for one, item in same_texts(decisions):
        number = vote_of(one)
        if number is not None and not one.is_settlement:
            units.setdefault(one.field, {}).setdefault((one.query_id, item), {})[one.annotator] = number
    return {
        name: [(query_id, unit) for (query_id, _), unit in sorted(found.items())]
        for name, found in sorted(units.items())
    }


def vote_of(decision: Decision) -> float | None:
    """A decision as a number; None if it is not something that people can disagree on."""
    if decision.field == SUPPORTS:
        return None if decision.value == SKIP else float(decision.value == "yes")
    if decision.field == ANSWERABLE:
        return None if decision.value["to"] is None else float(decision.value["to"])
    if decision.field == MUST_CONTAIN:
        return float(bool(decision.value))
    return float(decision.value) if decision.field.startswith(SCORE) and decision.value is not None else None


def same_texts(decisions: Sequence[Decision]) -> list[tuple[Decision, str]]:
    """Decisions with the item that they are about: one name for the same text, even after re-chunking."""
    names: dict[tuple[str, str], list[tuple[Decision, str]]] = {}
    found = []
    for one in decisions:
        known = names.setdefault((one.query_id, one.field), [])
        name = next((name for other, name in known if other.item == one.item or _is_same_place(other, one)), one.item)
        known.append((one, name))
        found.append((one, name))
    return found


def _is_same_place(a: Decision, b: Decision) -> bool:
    """Do two texts overlap by more than half of both?"""
    if a.field != SUPPORTS or a.about.doc_id is None or a.about.doc_id != b.about.doc_id:
        return False
    if a.about.passage is not None or b.about.passage is not None:
        return False
    first, second = _extent(a), _extent(b)
    if first is None or second is None or first[0] != second[0]:
        return False
    shared = min(first[2], second[2]) - max(first[1], second[1])
    return 2 * shared > first[2] - first[1] and 2 * shared > second[2] - second[1]


def _extent(decision: Decision) -> tuple[str, float, float] | None:
    spans = json.loads(decision.about.spans_json or "[]")
    if len(spans) != 1 or spans[0].get("kind") not in ("line", "char", "byte"):
        return None
    (span,) = spans
    if not all(isinstance(span.get(name), int | float) for name in ("start", "end")):
        return None
    return span["kind"], span["start"], span["end"] + (span["kind"] == "line")


def disputes(decisions: Sequence[Decision]) -> list[Dispute]:
    """What people disagree on, and how it was settled, if it was."""
    said: dict[tuple[str, str, str], dict[str, Any]] = {}
    texts: dict[tuple[str, str, str], str] = {}
    settled: dict[tuple[str, str, str], Any] = {}
    for one, item in same_texts(decisions):
        if vote_of(one) is None:
            continue
        place = (one.query_id, one.field, item)
        value = one.value["to"] if one.field == ANSWERABLE else one.value
        if one.is_settlement:
            settled[place] = value
        else:
            said.setdefault(place, {})[one.annotator] = value
            what = one.item if one.field == MUST_CONTAIN else one.about.path or one.about.doc_id
            texts.setdefault(place, " ".join(filter(None, (what, one.about.chunk_id))))
    return [
        Dispute(*place, who, texts[place], settled.get(place))
        for place, who in sorted(said.items())
        if len({json.dumps(value) for value in who.values()}) > 1
    ]
