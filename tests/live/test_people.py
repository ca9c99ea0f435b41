"""Agreement of people, against other implementations."""

from __future__ import annotations

import random

import krippendorff
import numpy as np
import pytest

from kbeval.live.labelling.agreement import (
    NOMINAL,
    ORDINAL,
    agreement_rows,
    alpha,
    alpha_interval,
    disputes,
    kappa,
)
from kbeval.storage.labels import About, Decision


def invented(seed: int, people: int, units: int, values: int, missing: float) -> list[dict[str, float]]:
    source = random.Random(seed)
    found = []
    for _ in range(units):
        truth = source.randrange(values)
        unit = {}
        for person in range(people):
            if source.random() >= missing:
                unit[f"p{person}"] = float(truth if source.random() < 0.7 else source.randrange(values))
        found.append(unit)
    return found


CASES = [(2, 40, 2, 0.0), (3, 60, 6, 0.3), (5, 30, 4, 0.5), (2, 200, 6, 0.1), (4, 8, 3, 0.2)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("people", "units", "values", "missing"), CASES)
def test_alpha_is_that_of_another_implementation(
    seed: int, people: int, units: int, values: int, missing: float
) -> None:
    made = invented(seed, people, units, values, missing)
    table = [[unit.get(f"p{person}", np.nan) for unit in made] for person in range(people)]
    for level in (NOMINAL, ORDINAL):
        expected = krippendorff.alpha(reliability_data=table, level_of_measurement=level)  # type: ignore[arg-type]
        assert alpha(made, level) == pytest.approx(expected, abs=1e-6), level
        interval = alpha_interval(made, level, resamples=400)
        assert interval is not None
        assert interval[0] <= expected <= interval[1]
    if people == 2:
        # Here, since it takes as long as all other imports together, in each process that collects tests.
        from sklearn.metrics import cohen_kappa_score

        both = [unit for unit in made if len(unit) == 2]
        a, b = [unit["p0"] for unit in both], [unit["p1"] for unit in both]
        assert kappa(made) == pytest.approx(cohen_kappa_score(a, b), abs=1e-6)


def test_what_is_not_defined_is_not_a_number() -> None:
    assert alpha([]) is None
    assert alpha([{"a": 1.0}]) is None
    # All the same value: chance alone would agree as well.
    assert alpha([{"a": 1.0, "b": 1.0}] * 5) is None
    assert kappa([{"a": 1.0, "b": 1.0}] * 5) is None
    assert kappa([{"a": 1.0, "b": 0.0, "c": 1.0}]) is None
    assert alpha_interval([{"a": 1.0, "b": 0.0}]) is None


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    truth = alpha(invented(0, 2, 200_000, 2, 0.0))
    assert truth is not None
    intervals = [alpha_interval(invented(seed, 2, 60, 2, 0.0), resamples=300) for seed in range(1, 201)]
    held = sum(one is not None and one[0] <= truth <= one[1] for one in intervals)
    assert held >= 0.88 * len(intervals)


def label(query: str, who: str, value: str, place: tuple[int, int], item: str, *, settles: bool = False) -> Decision:
    spans = f'[{{"kind": "line", "start": {place[0]}, "end": {place[1]}}}]'
    return Decision(query, who, "supports", item, value, About(item, doc_id="d1", spans_json=spans), settles)


def test_decisions_are_matched_after_re_chunking() -> None:
    made = [
        label("q1", "ann", "yes", (1, 10), "old"),
        label("q1", "bob", "no", (2, 11), "new"),
        label("q2", "ann", "yes", (1, 10), "old"),
        label("q2", "bob", "yes", (8, 20), "other"),
        label("q2", "bob", "skip", (1, 10), "old"),
        label("q3", "ann", "no", (1, 2), "x"),
        label("q3", "bob", "yes", (1, 2), "x"),
        label("q3", "eva", "no", (1, 2), "x", settles=True),
    ]
    found = disputes(made)
    assert [(one.query_id, dict(one.said), one.settled) for one in found] == [
        ("q1", {"ann": "yes", "bob": "no"}, None),
        ("q3", {"ann": "no", "bob": "yes"}, "no"),
    ]
    (row,) = agreement_rows(made, {})
    assert (row.field, row.units, row.people, row.exact) == ("supports", 2, 2, 0.0)
    by = agreement_rows(made, {"q1": {"category": "a"}, "q2": {"category": "a"}}, "category")
    assert [(row.slice, row.units) for row in by] == [("all", 2), ("category a", 1), ("no category", 1)]
