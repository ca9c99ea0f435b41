"""The sums and percentiles of runs against exact fractions, for values of every size."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from kbeval.util.numbers import SUMMABLE, SUMS, WHOLE, rounded_mean, units
from tests.oracles.matching_oracle import rounded
from tests.support.workspace import Workspace

# Far below a stored decimal, and far above what the 15th decimal of a value can be off by.
TOLERANCE = Fraction(1, 10**13)


def drawn(count: int) -> dict[str, list[float]]:
    """Doubles of every kind that metrics give, and some that they should not."""
    chance = random.Random(19)
    return {
        "ratios": [chance.randrange(0, 400) / chance.randrange(1, 401) for _ in range(count)],
        "three decimals": [chance.randrange(10**8) / 1000 for _ in range(count)],
        "five decimals": [chance.randrange(10**10) / 100_000 for _ in range(count)],
        "half-way": [chance.randrange(10**9) + 0.00005 for _ in range(count)],
        "large": [chance.choice((-1, 1)) * chance.uniform(1e13, 1e15) for _ in range(count)],
        "of any size": [chance.choice((-1, 1)) * 10 ** chance.uniform(-30, 14.9) for _ in range(count)],
    }


def groups(count: int, size: int) -> Iterator[tuple[str, Sequence[float]]]:
    for kind, values in drawn(count).items():
        for start in range(0, count, size):
            yield kind, values[start : start + size]


def stored(total: Fraction, count: int) -> set[float]:
    """What the mean may be stored as: its rounded value, from either side if it is half-way."""
    return {rounded(total / count), rounded(total / count + (TOLERANCE if total >= 0 else -TOLERANCE))}


def test_sums_are_those_of_exact_fractions() -> None:
    """480,000 doubles in groups of forty."""
    made = list(groups(80_000, 40))
    numbers = [number for number, (_, values) in enumerate(made) for _ in values]
    values = [value for _, values in made for value in values]
    value, whole = SUMMABLE.format(value="x"), WHOLE.format(value="v")
    sums = ", ".join(part.format(value="v", whole="w") for part in SUMS)
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE numbers AS SELECT UNNEST(CAST($1 AS INTEGER[])) AS g, UNNEST(CAST($2 AS DOUBLE[])) AS x",
            [numbers, values],
        )
        found = connection.execute(
            f"SELECT g, {sums}, COUNT(v) FROM (SELECT g, v, {whole} AS w FROM (SELECT g, {value} AS v FROM numbers))"
            " GROUP BY g"
        ).fetchall()
    assert len(found) == len(made)
    for number, whole_sum, rest_sum, count in found:
        kind, group = made[number]
        exact = exact_sum(group)
        total = units(whole_sum, rest_sum)
        assert abs(Fraction(total, 10**15) - exact) <= Fraction(count, 10**15), (kind, group)
        assert count == len(group)
        assert rounded_mean(total, count) in stored(exact, count), (kind, group)
        assert rounded_mean(total, 1) in stored(exact, 1), (kind, group)


@pytest.fixture(scope="module")
def latencies() -> dict[str, list[float]]:
    """By run how long its queries took."""
    found = {
        "largest": [999999999999999.0],
        "largest-two": [999999999999999.0, 0.77],
        "two-halves": [0.5, 999999999999998.5],
    }
    for number, (_, group) in enumerate(groups(400, 25)):
        found[f"drawn-{number:03}"] = [abs(value) for value in group]
    return found


def test_latencies_of_runs_are_exact(tmp_path: Path, latencies: dict[str, list[float]]) -> None:
    """Percentiles and totals as stored, of values from 1e-30 to 1e15, and of one that is too large to be a time."""
    workspace = Workspace(tmp_path)
    workspace.add_golden({"id": "q0", "expected_chunk_ids": ["c"]})
    for run, times in latencies.items():
        rows = {f"q{number}": {"hits_top_k": [], "elapsed_ms": ms} for number, ms in enumerate([*times, 1e300])}
        workspace.add_run(run, rows)
    scored = workspace.score()
    for run, times in latencies.items():
        ordered = sorted(times)
        found = scored.aggregates[run].extra["latency_ms"]
        assert found["total"] in stored(exact_sum(times), 1), run
        for part, share in (("p50", Fraction(1, 2)), ("p95", Fraction(95, 100))):
            exact = exact_quantile(ordered, share)
            assert found[part] in stored(exact, 1), (run, part)
    assert scored.aggregates["largest"].extra["latency_ms"]["total"] == 999999999999999.0
    assert scored.aggregates["largest-two"].extra["latency_ms"]["total"] == 999999999999999.77


def exact_sum(values: Sequence[float]) -> Fraction:
    """As the sum of fractions, without a division at each step: the denominators of doubles are powers of two."""
    parts = [value.as_integer_ratio() for value in values]
    common = max(denominator for _, denominator in parts)
    return Fraction(sum(numerator * (common // denominator) for numerator, denominator in parts), common)


def exact_quantile(ordered: Sequence[float], share: Fraction) -> Fraction:
    place = share * (len(ordered) - 1)
    low = int(place)
    below, above = (Fraction(ordered[one]) for one in (low, min(low + 1, len(ordered) - 1)))
    return below + (above - below) * (place - low)
