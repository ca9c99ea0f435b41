"""Comparisons in which chance, or too few queries, must not look like a difference."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.attacks.places import Place, hits


def compared_slices(place: Place, slices: Mapping[str, Sequence[tuple[str | None, bool, bool]]]) -> dict[str, Any]:
    """Compare runs a and b, one slice for each entry: a query is (its group, found in a, found in b)."""
    labels: list[dict[str, Any]] = []
    rows: dict[str, dict[str, Any]] = {"a": {}, "b": {}}
    for name, queries in slices.items():
        for number, (group, *found) in enumerate(queries):
            query = f"{name}-{number:03}"
            more = {} if group is None else {"group": f"{name}-{group}"}
            labels.append({"id": query, "category": name, "expected_chunk_ids": ["c"], **more})
            for run, is_found in zip("ab", found, strict=True):
                rows[run][query] = {"hits_top_k": hits("c" if is_found else None)}
    place.label(*labels)
    for run in "ab":
        place.run(run, rows[run])
    # The one metric that is looked at: the others of so many slices would take most of the time.
    compared = place("compare", "a", "b", "--slices", "category", "--only", "hit@1", "--format", "json")
    assert compared.returncode == 0, compared.stderr
    return dict(json.loads(compared.stdout)["slices"])


def test_groups_that_move_together_by_chance_get_no_verdict(place: Place) -> None:
    """60 comparisons of runs that differ by chance alone: 20 groups of 5 paraphrases that move together."""
    chance = random.Random(22)
    slices = {}
    for trial in range(60):
        queries = []
        for group in range(20):
            a, b = chance.random() < 0.6, chance.random() < 0.6
            queries += [(f"g{group}", a, b)] * 5
        slices[f"t{trial:02}"] = queries
    found = compared_slices(place, slices)
    assert len(found) == 60
    claimed = [name for name, one in found.items() if one["significance"]["hit_at_k.1"]["p"] <= 0.05]
    # 5 % and three standard errors of it.
    assert len(claimed) / 60 <= 0.05 + 3 * (0.05 * 0.95 / 60) ** 0.5, f"{len(claimed)} of 60 differ by p <= 0.05"


def test_intervals_cover_the_truth(place: Place) -> None:
    """A query goes from missed to found with this chance: the true difference is the chance."""
    rates = {3: 0.2, 5: 0.2, 10: 0.1, 20: 0.05}
    trials = 120
    slices = {}
    for n, rate in rates.items():
        chance = random.Random(f"23 {n}")
        for trial in range(trials):
            slices[f"n{n}-t{trial:03}"] = [(None, False, chance.random() < rate) for _ in range(n)]
    found = compared_slices(place, slices)
    assert len(found) == len(rates) * trials
    for n, rate in rates.items():
        covered = 0
        for name, one in found.items():
            if name.startswith(f"n{n}-"):
                low, high = one["significance"]["hit_at_k.1"]["interval"]
                covered += low - 1e-9 <= rate <= high + 1e-9
        # 93 % is promised; three standard errors below it.
        least = 0.93 - 3 * (0.93 * 0.07 / trials) ** 0.5
        assert covered / trials >= least, f"{n} queries: covered {covered} of {trials}"


def test_one_query_has_no_interval(place: Place) -> None:
    found = compared_slices(place, {"one": [(None, False, True)], "two": [(None, False, True), (None, False, False)]})
    assert found["one"]["significance"]["hit_at_k.1"]["interval"] is None
