"""The interval of one run's mean: Wilson's where values are 0 and 1, and one that covers where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from kbeval.compare.mean_intervals import mean_interval
from tests.support.examples import sized


@pytest.mark.parametrize(("right", "count"), [(0, 5), (5, 5), (20, 22), (1, 30), (50, 100), (998, 1000)])
def test_for_binary_values_it_is_wilsons_interval(right: int, count: int) -> None:
    from scipy.stats import binomtest

    expected = binomtest(right, count).proportion_ci(method="wilson")
    found = mean_interval(np.array([1.0] * right + [0.0] * (count - right)))
    assert found == pytest.approx((expected.low, expected.high), abs=6e-5)


def test_too_few_values_and_values_that_are_not_shares_have_no_interval() -> None:
    assert mean_interval(np.array([])) is None
    assert mean_interval(np.array([1.0])) is None
    assert mean_interval(np.array([1.0, 2.0])) is None
    assert mean_interval(np.array([-0.5, 0.5])) is None
    # Two queries of one group are one.
    assert mean_interval(np.array([1.0, 0.0]), np.array([3, 3])) is None


def test_a_group_counts_as_one_and_order_does_not_matter() -> None:
    values = np.array([1.0, 0.5, 0.0, 1.0, 0.25, 0.2])
    twice = mean_interval(np.repeat(values, 2), np.repeat(np.arange(6), 2))
    once = mean_interval(values)
    assert once is not None
    assert twice is not None
    assert twice[1] - twice[0] >= 0.95 * (once[1] - once[0])
    assert mean_interval(values[::-1].copy()) == once
    assert mean_interval(np.repeat(values, 2)[::-1].copy(), np.repeat(np.arange(6), 2)[::-1].copy()) == twice


@pytest.mark.parametrize("count", [10, 40, 200])
@pytest.mark.parametrize(
    "chances", [(0.5, 0.2, 0.1, 0.05, 0.05, 0.1), (0.9, 0.04, 0.02, 0.01, 0.01, 0.02), (0.1, 0.1, 0.1, 0.1, 0.1, 0.5)]
)
def test_reciprocal_ranks_are_covered_as_often_as_it_says(count: int, chances: tuple[float, ...]) -> None:
    ranks = np.array([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 0])
    truth = float(ranks @ np.array(chances))
    draw = np.random.default_rng(6)
    trials = sized(1_500, 6_000)
    found = [mean_interval(draw.choice(ranks, size=count, p=chances)) for _ in range(trials)]
    covered = sum(1 for one in found if one is not None and one[0] <= truth <= one[1])
    # Three standard errors below 95 %.
    assert covered / trials >= 0.933
