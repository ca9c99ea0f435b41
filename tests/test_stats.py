"""Intervals and tests: against enumeration, against each other, and against chance itself."""

from __future__ import annotations

import itertools
import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kbeval.stats import NO_DIFFERENCE, Pairs, assess, holm, mcnemar_mid_p, verdict

DELTAS = st.lists(st.sampled_from([-1.0, -0.5, -1 / 3, 0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=10)


def pairs(deltas: list[float]) -> Pairs:
    return Pairs(np.zeros(len(deltas)), np.array(deltas))


# --- p values ----------------------------------------------------------------------------------------


@given(DELTAS)
def test_few_differences_are_flipped_in_every_possible_way(deltas: list[float]) -> None:
    exact = [Fraction(delta).limit_denominator(100) for delta in deltas]
    every = itertools.product((1, -1), repeat=len(exact))
    flips = [abs(sum((s * d for s, d in zip(signs, exact, strict=True)), Fraction(0))) for signs in every]
    wanted = Fraction(sum(flip >= flips[0] for flip in flips), len(flips))
    assert assess({"m": pairs(deltas)})["m"].p_sign_flip == pytest.approx(float(wanted), abs=6e-5)


def test_many_differences_are_flipped_at_random_to_the_same_effect() -> None:
    source = np.random.default_rng(3)
    deltas = source.choice([-0.5, 0.0, 1 / 3, 1.0], size=200, p=[0.2, 0.6, 0.1, 0.1])
    drawn = assess({"m": pairs(deltas.tolist())})["m"].p_sign_flip
    signs = source.choice([-1.0, 1.0], size=(40_000, 200))
    by_hand = np.mean(np.abs(signs @ deltas) >= abs(deltas.sum()) - 1e-9)
    assert drawn == pytest.approx(by_hand, abs=0.01)


def test_many_distinct_differences_take_the_other_road_to_the_same_place() -> None:
    deltas = np.random.default_rng(4).normal(0.08, 1.0, size=900)
    found = assess({"m": pairs(deltas.tolist())})["m"]
    error = deltas.std(ddof=1) / math.sqrt(900)
    normal = 2 * (1 - 0.5 * (1 + math.erf(abs(deltas.mean()) / error / math.sqrt(2))))
    assert found.p == pytest.approx(normal, abs=0.01)
    assert found.low == pytest.approx(deltas.mean() - 1.96 * error, abs=0.006)
    assert found.high == pytest.approx(deltas.mean() + 1.96 * error, abs=0.006)


def test_p_is_never_zero_by_resampling() -> None:
    assert assess({"m": pairs([0.5] * 300)})["m"].p_sign_flip == pytest.approx(1 / 10_001, abs=6e-5)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (5, 0), (0, 5), (7, 7), (12, 3), (40, 61), (2, 1)])
def test_mcnemar_is_the_mid_p_of_the_binomial(gained: int, lost: int) -> None:
    n, few = gained + lost, min(gained, lost)
    chances = [Fraction(math.comb(n, k), 2**n) for k in range(few + 1)]
    wanted = min(Fraction(1), 2 * sum(chances) - chances[-1]) if n else 1
    assert mcnemar_mid_p(gained, lost) == pytest.approx(float(wanted), rel=1e-9)


def test_mcnemar_survives_a_hundred_thousand_changes() -> None:
    assert mcnemar_mid_p(50_000, 50_000) == pytest.approx(1.0)
    assert mcnemar_mid_p(60_000, 40_000) == pytest.approx(0.0, abs=1e-12)


def test_metrics_of_zeros_and_ones_are_tested_by_mcnemar() -> None:
    a, b = np.array([0.0] * 8 + [1.0] * 12), np.array([1.0] * 7 + [0.0] + [1.0] * 12)
    found = assess({"hit": Pairs(a, b)})["hit"]
    assert (found.test, found.p) == ("mcnemar", round(1 / 2**7, 4))


def test_holm_steps_down() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}


# --- intervals ---------------------------------------------------------------------------------------


def test_few_queries_are_resampled_in_every_possible_way() -> None:
    found = assess({"m": pairs([0.0, 0.0, 1.0])})["m"]
    assert (found.mean_delta, found.low, found.high) == (0.3333, 0.0, 1.0)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    source = np.random.default_rng(11)
    truth, inside = 0.1, 0
    for _ in range(400):
        deltas = source.choice([-1.0, 0.0, 1.0], size=150, p=[0.1, 0.7, 0.2])
        found = assess({"m": pairs(deltas.tolist())}, resamples=2000)["m"]
        inside += found.low <= truth <= found.high
    assert 0.92 <= inside / 400 <= 0.975


@example([-1.0] * 4 + [-0.5, 0.5] + [1.0] * 4)  # its own mirror image
@given(DELTAS)
def test_the_order_of_queries_changes_nothing_and_swapping_mirrors(deltas: list[float]) -> None:
    one, shuffled = assess({"m": pairs(deltas)})["m"], assess({"m": pairs(deltas[::-1])})["m"]
    there = pairs(deltas)
    other = assess({"m": Pairs(there.b, there.a)})["m"]
    assert one == shuffled
    assert (one.mean_delta, one.low, one.high, one.p) == (-other.mean_delta, -other.high, -other.low, other.p)


def test_only_queries_with_a_value_in_both_runs_count() -> None:
    nan = math.nan
    found = assess({"m": Pairs(np.array([0.0, nan, 1.0]), np.array([1.0, 1.0, nan])), "none": pairs([nan])})
    assert list(found) == ["m"]
    assert found["m"].n == 1


# --- the verdict -------------------------------------------------------------------------------------


def answers(source: np.random.Generator, n: int, shift: float = 0.0) -> dict[str, Pairs]:
    """Two runs over the same queries of various difficulty: ranks with noise, and the metrics of them."""
    difficulty = source.normal(0.6, 0.8, size=n)
    a, b = (np.maximum(1, np.rint(np.exp(difficulty + source.normal(s, 0.5, size=n)))) for s in (0.0, -shift))
    found = {"mrr": Pairs(np.where(a <= 10, 1 / a, 0.0), np.where(b <= 10, 1 / b, 0.0))}
    for k in (1, 3, 5, 10):
        found[f"hit_at_k.{k}"] = Pairs((a <= k).astype(float), (b <= k).astype(float))
    return found


@pytest.mark.slow
def test_runs_that_differ_by_chance_alone_get_no_verdict_at_the_promised_rate() -> None:
    source = np.random.default_rng(20260301)
    verdicts, p_values = [], []
    for _ in range(500):
        found = assess(answers(source, 120), resamples=2000)
        verdicts.append(verdict(found, "mrr").answer)
        p_values.append(found["mrr"].p)
    # At most 5 % of the comparisons may claim anything, however many metrics they look at …
    assert sum(answer != NO_DIFFERENCE for answer in verdicts) / 500 <= 0.05
    # … and one test alone claims it in about 5 %: it is not merely deaf.
    assert 0.03 <= np.mean(np.array(p_values) <= 0.05) <= 0.07


def test_a_real_difference_is_found_and_named() -> None:
    source = np.random.default_rng(5)
    found = assess(answers(source, 400, shift=0.4))
    said = verdict(found, "mrr")
    assert said.answer == "better"
    assert "mrr" in said.better
    back = assess({name: Pairs(one.b, one.a) for name, one in answers(np.random.default_rng(5), 400, 0.4).items()})
    assert verdict(back, "mrr").answer == "worse"


def test_a_difference_of_the_size_called_detectable_is_mostly_detected() -> None:
    source = np.random.default_rng(9)
    size = assess({"m": Pairs(np.zeros(150), source.normal(0.0, 1.0, 150))})["m"].detectable
    assert size is not None
    held = sum(
        assess({"m": Pairs(np.zeros(150), source.normal(size, 1.0, 150))}, resamples=1000)["m"].holds
        for _ in range(100)
    )
    assert 65 <= held <= 92


def test_lower_is_better_where_the_metric_says_so() -> None:
    errors = Pairs(np.ones(40), np.zeros(40), higher_is_better=False)
    assert verdict(assess({"empty_result_rate": errors}), "mrr").answer == "better"


def test_better_here_and_worse_there_is_mixed() -> None:
    up, down = Pairs(np.zeros(40), np.ones(40)), Pairs(np.ones(40), np.zeros(40))
    assert verdict(assess({"mrr": up, "recall": down}), "mrr").answer == "mixed"


def test_too_few_queries_can_show_nothing_and_it_is_said() -> None:
    said = verdict(assess({"hit": Pairs(np.zeros(3), np.ones(3))}), "hit")
    assert (said.answer, said.detectable) == (NO_DIFFERENCE, None)


# --- speed and size ----------------------------------------------------------------------------------


def test_ten_thousand_queries_take_seconds_and_the_same_bytes_each_time() -> None:
    metrics = answers(np.random.default_rng(1), 10_000)
    started = time.perf_counter()
    found = assess(metrics)
    assert time.perf_counter() - started < 10
    assert assess(metrics) == found


@pytest.mark.parametrize("size", [1e-300, 1e-12])
def test_differences_as_small_as_float_noise_are_none(size: float) -> None:
    assert assess({"m": pairs([size] * 20)})["m"].p == 1.0


def test_differences_too_large_for_decimals_are_still_told() -> None:
    assert assess({"m": Pairs(np.full(9, 9e14), np.full(9, -9e14))})["m"].mean_delta == -1.8e15


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e6, 9e14])
def test_values_of_any_size_are_compared(size: float) -> None:
    found = assess({"m": pairs([size, -size, size, size, 0.0, size, size])})["m"]
    assert found.p == assess({"m": pairs([1, -1, 1, 1, 0, 1, 1])})["m"].p_sign_flip
