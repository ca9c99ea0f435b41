"""Intervals: against published ones, and how often they contain the truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.compare.intervals import interval, student
from tests.oracles.interval_coverage import (
    BINARY,
    EXTREME,
    GRADED,
    GRID,
    NS,
    RARE,
    RARE_GRADED,
    SKEWED,
    chances_of_outcomes,
    drawn_coverage,
    exact_coverage,
    grouped_coverage,
)
from tests.support.examples import THOROUGH, sized

LEAST, MOST = 0.93, 0.98


def of_ones(up: int, down: int, same: int) -> tuple[float, float] | None:
    sums = np.repeat([1, -1, 0], [up, down, same])
    return interval(sums, np.ones(len(sums), dtype=np.int64), largest=1.0, is_binary=True)


# --- single intervals --------------------------------------------------------------------------------


def test_zeros_and_ones_have_the_published_score_interval() -> None:
    """Airway hyper-responsiveness before and after a transplantation: 1 and 7 of 21 children changed."""
    assert of_ones(1, 7, 13) == pytest.approx((-0.517, -0.026), abs=5e-4)


def test_without_a_change_the_limits_are_those_of_wilson_for_none() -> None:
    z = 1.959964
    assert of_ones(0, 0, 20) == pytest.approx((-(z**2) / (20 + z**2), z**2 / (20 + z**2)), abs=1e-6)


@pytest.mark.parametrize(("freedom", "wanted"), [(1, 12.706), (2, 4.3027), (9, 2.2622), (30, 2.0423), (1e6, 1.95997)])
def test_students_quantiles_are_those_of_the_tables(freedom: float, wanted: float) -> None:
    assert student(freedom) == pytest.approx(wanted, rel=2e-5)


def test_if_everything_changed_and_tails_are_equal_it_is_students_interval() -> None:
    above = np.random.default_rng(3).integers(1, 900, 6)
    deltas = 500 + np.concatenate([above, -above])
    half = student(11.0) * deltas.std(ddof=1) / math.sqrt(12)
    found = interval(deltas, np.ones(12, dtype=np.int64), largest=9000.0, is_binary=False)
    assert found == pytest.approx((500 - half, 500 + half))


def test_the_side_of_a_longer_tail_is_longer() -> None:
    """1, 2, 3 and 10: mean 4, standard error √50/√12 = 2.0412, skewness 180 / 4 / 12.5^1.5 · √12 / 2 = 1.7636."""
    found = interval(np.array([1, 2, 3, 10]), np.ones(4, dtype=np.int64), largest=20.0, is_binary=False)
    more = 2.0412 * 1.7636 * (1 + 2 * 3.18245**2) / (3 * 2)
    assert found == pytest.approx((4 - 3.18245 * 2.0412, 4 + 3.18245 * 2.0412 + more), rel=1e-4)


def test_groups_of_one_size_that_move_as_one_are_as_many_queries() -> None:
    for sums in ([1, 0, 0, -1, 1, 1, 0], [0] * 5, [1] * 4):
        one = np.array(sums)
        ones = np.ones(len(one), dtype=np.int64)
        single = interval(one, ones, largest=1.0, is_binary=True)
        assert interval(5 * one, 5 * ones, largest=1.0, is_binary=True) == pytest.approx(single)


@pytest.mark.parametrize(
    ("sums", "sizes", "is_binary"),
    [
        ([1], [1], True),
        ([5], [5], True),
        ([700, 700, 700], [1, 1, 1], False),  # all by the same amount: no spread is seen
        ([40, 1, 0], [40, 1, 1], True),  # one group outweighs all others
    ],
)
def test_there_is_no_interval_if_nothing_can_be_known(sums: list[int], sizes: list[int], is_binary: bool) -> None:
    assert interval(np.array(sums), np.array(sizes), largest=1000.0, is_binary=is_binary) is None


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.integers(1, 9)), min_size=2, max_size=12), st.randoms())
def test_order_changes_nothing_and_the_mirror_image_has_the_mirrored_limits(
    clusters: list[tuple[int, int]], chance: object
) -> None:
    def found(sign: int, rows: list[tuple[int, int]]) -> tuple[float, float] | None:
        sums, sizes = np.array(rows).T
        return interval(sign * sums, sizes, largest=1000.0, is_binary=False)

    shuffled = sorted(clusters, key=lambda _: chance.random())  # type: ignore[attr-defined]
    one, other = found(1, clusters), found(-1, shuffled)
    assert other == (None if one is None else (-one[1], -one[0]))
    if one is not None:
        assert one[0] <= sum(s for s, _ in clusters) / sum(n for _, n in clusters) + 1e-9


# --- coverage ----------------------------------------------------------------------------------------


def is_as_promised(n: int) -> None:
    """Zeros and ones, over all truths, those that are named, and rare changes; all exact."""
    # Together, because the intervals of all outcomes take most of the time.
    found = exact_coverage(n, [*GRID, *BINARY, *RARE])
    grid, named = found[: len(GRID)], found[len(GRID) :]
    assert LEAST <= sum(grid) / len(grid) <= MOST
    assert min(grid) >= (0.85 if n < 5 else 0.91)
    for (up, down), covered in zip([*BINARY, *RARE], named, strict=True):
        # Where fewer than ten queries change, outcomes are few, and what covers often enough covers too often.
        assert LEAST <= covered <= (MOST if n * (up + down) >= 10 else 1.0 + 1e-9), (up, down)


@pytest.mark.parametrize("n", [3, 4, 5, 7, 10, 20, 35])
def test_intervals_of_zeros_and_ones_cover(n: int) -> None:
    is_as_promised(n)


@pytest.mark.parametrize("n", [3, 5, 7, 10, 20])
@pytest.mark.parametrize(("up", "down"), [RARE[0], RARE[2]])
def test_rare_changes_of_few_queries_cannot_be_covered_less_than_too_often(n: int, up: float, down: float) -> None:
    """Whatever the method: if an interval holds what was seen, and 0 where p is above .05, then no choice of the other
    outcomes has a probability between 93 % and 98 % together with these.
    """
    fixed, free = chances_of_outcomes(n, up, down)
    likely, rest = [chance for chance in free if chance > 1e-3], sum(chance for chance in free if chance <= 1e-3)
    assert len(likely) <= 14
    for chosen in itertools.product((0, 1), repeat=len(likely)):
        least = fixed + sum(itertools.compress(likely, chosen))
        assert least + rest < LEAST or least > MOST


@pytest.mark.slow
# Exact coverage of 150 queries takes as long as that of all others before it together, and so does that of 200.
@pytest.mark.parametrize("n", [6, 8, 9, 12, 15, 25, 30, 50, 75, 100, *([150, 200] if THOROUGH else [])])
def test_intervals_of_zeros_and_ones_cover_for_many_more(n: int) -> None:
    is_as_promised(n)


TRIALS = sized(400, 2000)
LONG_TAIL_TRIALS = sized(800, 4000)


def margin(trials: int) -> float:
    """Three standard errors of a coverage of 95 %."""
    return 3 * math.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize("name", ["ranks, better", "20 % change", "normal"])
@pytest.mark.parametrize("n", [4, 25])
def test_intervals_of_graded_metrics_mostly_cover(n: int, name: str) -> None:
    assert drawn_coverage(*GRADED[name], n, trials=300)[0] >= LEAST - margin(300)


@pytest.mark.slow
@pytest.mark.parametrize("n", NS)
@pytest.mark.parametrize("name", [*GRADED, *RARE_GRADED])
def test_intervals_of_graded_metrics_cover(name: str, n: int) -> None:
    covered, changed = drawn_coverage(*(GRADED | RARE_GRADED)[name], n, trials=TRIALS)
    assert covered >= LEAST - margin(TRIALS)
    if changed >= 10:
        assert covered <= MOST + margin(TRIALS)


@pytest.mark.slow
@pytest.mark.parametrize("n", NS)
@pytest.mark.parametrize("name", SKEWED)
def test_intervals_of_differences_with_a_long_tail_on_one_side_cover(name: str, n: int) -> None:
    covered, _ = drawn_coverage(*SKEWED[name], n, trials=LONG_TAIL_TRIALS)
    assert LEAST - margin(LONG_TAIL_TRIALS) <= covered <= MOST + margin(LONG_TAIL_TRIALS)


@pytest.mark.slow
@pytest.mark.parametrize("n", NS)
def test_rare_long_tails_cost_some_coverage_with_few_queries(n: int) -> None:
    """A tail that most samples do not contain: no method can detect it."""
    covered, _ = drawn_coverage(*EXTREME, n, trials=LONG_TAIL_TRIALS)
    assert (0.88 if n < 20 else LEAST) - margin(LONG_TAIL_TRIALS) <= covered <= MOST + margin(LONG_TAIL_TRIALS)


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False], ids=["0 and 1", "graded"])
@pytest.mark.parametrize("sizes", [(5,), (1, 2, 3, 5, 9)], ids=["equal", "unequal"])
@pytest.mark.parametrize("groups", [5, 10, 20, 50, 200])
def test_intervals_over_groups_cover(groups: int, sizes: tuple[int, ...], together: bool) -> None:
    covered = grouped_coverage(sizes, groups, TRIALS, together=together)
    assert covered >= LEAST - margin(TRIALS)
    if groups >= 20:
        assert covered <= MOST + margin(TRIALS)
