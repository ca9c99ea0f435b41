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

from kbeval.compare.stats import ALPHA, NO_DIFFERENCE, Pairs, assess, holm, mcnemar_mid_p, verdict
from tests.support.examples import sized

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


def test_many_distinct_differences_give_the_same_p_by_the_other_method() -> None:
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


@pytest.mark.parametrize("n", [4, 5, 9, 20, 40])
def test_intervals_of_zeros_and_ones_hold_zero_exactly_where_p_is_above_its_level(n: int) -> None:
    for gained in range(n + 1):
        for lost in range(min(gained, n - gained) + 1):
            found = assess({"m": pairs([1.0] * gained + [-1.0] * lost + [0.0] * (n - gained - lost))})["m"]
            assert found.low is not None
            assert (found.low > 0) is (found.p <= ALPHA), (gained, lost)


@given(st.lists(st.integers(-3, 9), min_size=2, max_size=14))
def test_an_interval_without_zero_has_a_p_at_its_level_or_below(deltas: list[int]) -> None:
    found = assess({"m": pairs([delta / 10 for delta in deltas])})["m"]
    if found.low is not None and found.high is not None and (found.low > 0 or found.high < 0):
        assert found.p <= ALPHA


def test_an_interval_is_never_a_point() -> None:
    """One query, two that agree, and none that changed: at most as sure as so few can make one."""
    assert assess({"m": pairs([1.0])})["m"].to_dict()["interval"] is None
    assert assess({"m": pairs([0.5] * 9)})["m"].to_dict()["interval"] is None
    assert assess({"m": pairs([1.0, 1.0])})["m"].to_dict()["interval"] == [-0.3152, 1.0]
    assert assess({"hit": pairs([0.0] * 20)})["hit"].to_dict()["interval"] == [-0.1611, 0.1611]
    third = Pairs(np.full(20, 1 / 3), np.full(20, 1 / 3))
    # Bounded by the largest value that was seen.
    assert assess({"mrr": third})["mrr"].to_dict()["interval"] == [-0.0537, 0.0537]


def test_shares_cannot_differ_by_more_than_one() -> None:
    found = assess({"m": Pairs(np.array([0.0, 0.1, 0.0]), np.array([1.0, 0.7, 0.2]))})["m"]
    assert (found.low, found.high) == (-0.3937, 1.0)
    unbounded = assess({"m": Pairs(np.array([0.0, 0.1, 0.0]), np.array([3.0, 2.7, 0.2]))})["m"]
    assert unbounded.high is not None
    assert unbounded.high > 3


@example([-1.0] * 4 + [-0.5, 0.5] + [1.0] * 4)  # its own mirror image
@given(DELTAS)
def test_the_order_of_queries_changes_nothing_and_swapping_mirrors(deltas: list[float]) -> None:
    one, shuffled = assess({"m": pairs(deltas)})["m"], assess({"m": pairs(deltas[::-1])})["m"]
    there = pairs(deltas)
    other = assess({"m": Pairs(there.b, there.a)})["m"]
    assert one == shuffled
    assert (one.mean_delta, one.p) == (-other.mean_delta, other.p)
    limits = None if other.low is None or other.high is None else (-other.high, -other.low)
    assert (None if one.low is None else (one.low, one.high)) == limits


def test_only_queries_with_a_value_in_both_runs_count() -> None:
    nan = math.nan
    found = assess({"m": Pairs(np.array([0.0, nan, 1.0]), np.array([1.0, 1.0, nan])), "none": pairs([nan])})
    assert list(found) == ["m"]
    assert found["m"].n == 1


# --- groups ------------------------------------------------------------------------------------------


def in_groups(deltas: list[list[float]]) -> Pairs:
    """Each list is a group."""
    numbers = np.repeat(np.arange(len(deltas)), [len(group) for group in deltas])
    values = np.array([delta for group in deltas for delta in group])
    return Pairs(np.where(values < 0, 1.0, 0.0), np.where(values < 0, 1.0, 0.0) + values, clusters=numbers)


@given(
    st.lists(
        st.lists(st.sampled_from([-1.0, -0.5, -1 / 3, 0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=4),
        min_size=1,
        max_size=8,
    )
)
def test_a_groups_differences_are_flipped_together(groups: list[list[float]]) -> None:
    sums = [sum((Fraction(delta).limit_denominator(100) for delta in group), Fraction(0)) for group in groups]
    every = itertools.product((1, -1), repeat=len(sums))
    flips = [abs(sum((s * d for s, d in zip(signs, sums, strict=True)), Fraction(0))) for signs in every]
    wanted = Fraction(sum(flip >= flips[0] for flip in flips), len(flips))
    found = assess({"m": in_groups(groups)})["m"]
    assert found.p_sign_flip == pytest.approx(float(wanted), abs=6e-5)
    assert (found.n, found.clusters) == (sum(map(len, groups)), len(groups))
    assert found.clusters_changed == sum(1 for one in sums if one)
    back = in_groups(groups)
    mirror = assess({"m": Pairs(back.b[::-1], back.a[::-1], clusters=9 - back.clusters[::-1])})["m"]  # type: ignore[index]
    assert (mirror.p, mirror.clusters, mirror.mean_delta) == (found.p, found.clusters, -found.mean_delta)
    limits = None if mirror.low is None or mirror.high is None else [-mirror.high, -mirror.low]
    assert found.to_dict()["interval"] == limits


def test_mcnemar_is_for_queries_that_are_not_grouped() -> None:
    ones = [[1.0] * 5] * 3
    found = assess({"hit": in_groups(ones)})["hit"]
    # Fifteen queries would be significant; three groups are not.
    assert (found.test, found.p, found.holds, found.needed) == ("sign-flip", 0.25, False, 6)
    alone = assess({"hit": in_groups([[1.0]] * 15)})["hit"]
    assert (alone.test, alone.holds, alone.clusters) == ("mcnemar", True, 15)
    # Groups of which only one query has a value are single queries.
    pairs_of = in_groups(ones)
    first = np.where(np.arange(15) % 5 == 0, pairs_of.a, np.nan)
    assert assess({"hit": Pairs(first, pairs_of.b, clusters=pairs_of.clusters)})["hit"].test == "mcnemar"


def test_without_groups_every_query_is_a_cluster() -> None:
    deltas = [0.5, -0.25, 0.0, 1.0, 0.5, 0.5, 1 / 3]
    plain = pairs(deltas)
    numbered = Pairs(plain.a, plain.b, clusters=np.arange(7)[::-1])
    assert assess({"m": numbered}) == assess({"m": plain})


def test_groups_of_equal_queries_are_told_as_much_as_that_many_queries() -> None:
    one = seen(60, 30, graded=True)
    five = Pairs(np.repeat(one.a, 5), np.repeat(one.b, 5), clusters=np.repeat(np.arange(60), 5))
    single, grouped = (assess({"m": found})["m"] for found in (one, five))
    assert (grouped.p, grouped.low, grouped.high) == (single.p, single.low, single.high)
    assert (grouped.detectable, grouped.needed) == (single.detectable, single.needed)
    assert (grouped.n, grouped.clusters, grouped.changed, grouped.clusters_changed) == (300, 60, 150, 30)


def test_few_clusters_are_marked_as_rough() -> None:
    assert [assess({"m": in_groups([[0.5, 0.25]] * n)})["m"].to_dict()["rough"] for n in (9, 10)] == [True, False]


def false_verdicts(trials: int, *, told: bool) -> float:
    """Runs that differ by chance alone, over 20 groups of 5 queries that move together."""
    source, groups = np.random.default_rng(20261117), np.repeat(np.arange(20), 5)
    found = 0
    for _ in range(trials):
        metrics = {
            name: Pairs(np.repeat(one.a, 5), np.repeat(one.b, 5), clusters=groups if told else None)
            for name, one in answers(source, 20).items()
        }
        found += verdict(assess(metrics, resamples=1000), "mrr").answer != NO_DIFFERENCE
    return found / trials


@pytest.mark.slow
def test_groups_that_move_together_by_chance_get_no_verdict_at_the_promised_rate() -> None:
    trials = sized(150, 400)
    assert false_verdicts(trials, told=True) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)
    # Treated as a hundred queries, they would differ in about half of all comparisons.
    assert false_verdicts(sized(40, 400), told=False) > 0.3


def test_groups_that_move_together_by_chance_mostly_get_no_verdict() -> None:
    assert false_verdicts(60, told=True) <= 0.1


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
    trials = sized(200, 500)
    # Two standard errors of a rate of 5 %.
    margin = 2 * math.sqrt(0.05 * 0.95 / trials)
    for _ in range(trials):
        found = assess(answers(source, 120), resamples=2000)
        verdicts.append(verdict(found, "mrr").answer)
        p_values.append(found["mrr"].p)
    # At most 5 % of the comparisons may claim anything, however many metrics they look at …
    assert sum(answer != NO_DIFFERENCE for answer in verdicts) / trials <= 0.05 + (0 if trials >= 500 else margin)
    # … and a single test claims a difference in about 5 %: it is not merely insensitive.
    assert abs(np.mean(np.array(p_values) <= 0.05) - 0.05) <= margin


def test_a_real_difference_is_found_and_named() -> None:
    source = np.random.default_rng(5)
    found = assess(answers(source, 400, shift=0.4))
    said = verdict(found, "mrr")
    assert said.answer == "better"
    assert "mrr" in said.better
    back = assess({name: Pairs(one.b, one.a) for name, one in answers(np.random.default_rng(5), 400, 0.4).items()})
    assert verdict(back, "mrr").answer == "worse"


def test_lower_is_better_where_the_metric_says_so() -> None:
    errors = Pairs(np.ones(40), np.zeros(40), better="lower")
    assert verdict(assess({"empty_result_rate": errors}), "mrr").answer == "better"


def test_a_metric_without_a_better_direction_is_tested_but_does_not_affect_the_others() -> None:
    source = np.random.default_rng(8)
    up = Pairs(np.zeros(40), np.array([1.0] * 6 + [0.0] * 34))
    alone = assess({"mrr": up})["mrr"]
    words = {f"words_{n}": Pairs(np.zeros(40), source.normal(5, 1, 40), better="neither") for n in range(9)}
    found = assess({"mrr": up, **words})
    assert found["mrr"] == alone
    assert found["words_0"].p < 0.001
    assert (found["words_0"].holds, found["words_0"].direction, found["words_0"].decides) == (False, None, False)
    assert verdict(found, "words_0").better == ("mrr",)
    said = verdict(assess(words), "words_0")
    assert (said.answer, said.metric) == (NO_DIFFERENCE, None)


# --- one number under several names ------------------------------------------------------------------


def test_numbers_that_change_alike_are_corrected_for_once() -> None:
    a, b = np.zeros(40), np.array([1.0] * 6 + [0.0] * 34)
    nan = np.where(np.arange(40) < 20, 0.0, np.nan)
    names = {
        "refusal_correctness": Pairs(a, b),
        # Of the same queries the others, and of fewer of them: those that are left out did not change.
        "hallucination_rate": Pairs(1 - a, 1 - b, better="lower"),
        "abstention_accuracy": Pairs(a + nan, b + nan),
        "mrr": Pairs(a, -b[::-1]),
    }
    found = assess(names)
    assert found["refusal_correctness"].p_holm == pytest.approx(2 / 2**6, abs=1e-4)
    assert [one.p_holm for one in found.values()][:3] == [found["refusal_correctness"].p_holm] * 3
    assert [one.same_as for one in found.values()] == [None, "refusal_correctness", "refusal_correctness", None]
    assert verdict(found, "mrr").better == ("refusal_correctness", "hallucination_rate", "abstention_accuracy")


def test_numbers_that_differ_in_one_query_are_two() -> None:
    a, b = np.zeros(40), np.array([1.0] * 6 + [0.0] * 34)
    other = b.copy()
    other[6] = 1.0
    found = assess({"one": Pairs(a, b), "other": Pairs(a, other)})
    assert [one.same_as for one in found.values()] == [None, None]
    assert found["one"].p_holm == found["one"].p
    assert found["other"].p_holm == pytest.approx(2 / 2**7, abs=1e-4)


# --- what would have been found ----------------------------------------------------------------------


def seen(n: int, changed: int, *, graded: bool) -> Pairs:
    """A pair of runs in which this many queries changed, half of them for the better."""
    signs = np.where(np.arange(changed) % 2, 1.0, -1.0)
    if not graded:
        a, b = np.zeros(n), np.zeros(n)
        a[:changed], b[:changed] = signs < 0, signs > 0
        return Pairs(a, b)
    # As reciprocal ranks change: from 1 to 2, from 1 to nothing, from 2 to 3, …
    sizes = np.resize([1 / 2, 1, 1 / 6, 2 / 3, 1, 1 / 4, 1 / 2, 9 / 10, 1 / 3], changed)
    b = np.full(n, 2.0)
    b[:changed] += sizes * signs
    return Pairs(np.full(n, 2.0), b)


# What is promised is 80 in 100, within five. What is drawn is the same each time.
TRIALS = 500
OFF = 0.05


def share_that_holds(pairs: Pairs, others: int = 0, trials: int = TRIALS) -> float:
    """Draw other queries of the same kind, with a true difference of the size that is called detectable."""
    n, source = len(pairs.a), np.random.default_rng(17)
    more = {f"m{k}": Pairs(np.zeros(n), source.normal(0, 1, n)) for k in range(others)}
    found = assess({"m": pairs, **more})["m"]
    assert found.detectable is not None
    sizes = np.abs(pairs.b - pairs.a)
    sizes = sizes[sizes > 0]
    rate = len(sizes) / n
    share = 0.5 + found.detectable / (rate * sizes.mean()) / 2
    if share > 1:
        rate, share = found.detectable / sizes.mean(), 1.0
    held = 0
    # Of zeros and ones the numbers gained and lost decide, whatever the seed, and many trials have the same.
    known: dict[tuple[int, int], float] = {}
    with pytest.MonkeyPatch.context() as patch:
        # p does not depend on the interval, which is not needed here.
        patch.setattr("kbeval.compare.stats._limits", lambda *_, **__: (None, None))
        for trial in range(trials):
            amount = source.choice(sizes, n) * (source.random(n) < rate) * np.where(source.random(n) < share, 1, -1)
            if found.test == "mcnemar":
                outcome = int((amount > 0).sum()), int((amount < 0).sum())
                if outcome not in known:
                    drawn = Pairs(np.where(amount < 0, 1.0, 0.0), np.where(amount > 0, 1.0, 0.0))
                    known[outcome] = assess({"m": drawn}, resamples=2000, seed=trial)["m"].p
                p = known[outcome]
            else:
                p = assess({"m": Pairs(pairs.a, amount + 2)}, resamples=2000, seed=trial)["m"].p
            held += p <= found.rule.level
    return held / trials


@pytest.mark.slow
@pytest.mark.parametrize("ties", ["few", "many"])
@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
@pytest.mark.parametrize("n", [20, 50, 200, 1000])
def test_a_difference_of_the_size_called_detectable_holds_in_80_of_100_trials(n: int, graded: bool, ties: str) -> None:
    changed = round(0.9 * n) if ties == "few" else max(6, round(0.1 * n))
    assert share_that_holds(seen(n, changed, graded=graded)) == pytest.approx(0.8, abs=OFF)


@pytest.mark.slow
@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
@pytest.mark.parametrize(("n", "changed"), [(50, 30), (1000, 60), (1000, 500)])
def test_it_also_holds_at_the_level_for_many_numbers(n: int, changed: int, graded: bool) -> None:
    assert share_that_holds(seen(n, changed, graded=graded), others=7) == pytest.approx(0.8, abs=OFF)


@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
def test_a_difference_of_the_size_called_detectable_is_mostly_detected(graded: bool) -> None:
    assert share_that_holds(seen(60, 30, graded=graded), trials=200) == pytest.approx(0.8, abs=0.09)


@pytest.mark.parametrize(("graded", "needed"), [(False, 5), (True, 6)])
def test_if_too_few_queries_changed_the_needed_number_is_reported(graded: bool, needed: int) -> None:
    few = assess({"m": seen(44, needed - 1, graded=graded)})["m"]
    assert (few.changed, few.needed, few.detectable) == (needed - 1, needed, None)
    # So many, all in one direction, do hold, and one fewer do not.
    for changed in (needed - 1, needed):
        one_way = seen(44, changed, graded=graded)
        low, high = np.minimum(one_way.a, one_way.b), np.maximum(one_way.a, one_way.b)
        assert assess({"m": Pairs(low, high)})["m"].holds is (changed == needed)
    enough = assess({"m": seen(44, needed, graded=graded)})["m"]
    assert enough.detectable is not None
    # At a rate that gives this many changes on average, half of the trials have fewer.
    assert enough.detectable > needed / 44 * np.abs(one_way.b - one_way.a)[:needed].mean()


@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
def test_more_queries_show_less_and_more_changes_hide_more(graded: bool) -> None:
    def size(n: int, changed: int) -> float:
        found = assess({"m": seen(n, changed, graded=graded)}, resamples=500)["m"].detectable
        assert found is not None
        return found

    by_n = [size(n, n // 2) for n in (30, 60, 120, 240, 480, 960, 10_000)]
    assert by_n == sorted(by_n, reverse=True)
    assert by_n[-2] == pytest.approx(by_n[-4] / 2, rel=0.1)
    by_changes = [size(1000, changed) for changed in (20, 60, 110, 130, 380, 450, 900)]
    assert by_changes == sorted(by_changes)


def test_a_level_that_so_few_flips_cannot_reach_needs_more_than_any_change() -> None:
    source = np.random.default_rng(2)
    many = {f"m{k}": pairs(source.normal(9, 1, 20).tolist()) for k in range(6)}
    found = assess(many, resamples=100)["m0"]
    assert (found.needed, found.detectable, found.holds) == (None, None, False)


def test_the_detectable_difference_is_computed_fast() -> None:
    found = assess(answers(np.random.default_rng(1), 10_000), resamples=500)
    started = time.process_time()
    assert all(one.detectable for one in found.values())
    assert time.process_time() - started < 0.05


def test_better_here_and_worse_there_is_mixed() -> None:
    up, down = Pairs(np.zeros(40), np.ones(40)), Pairs(np.ones(40), np.zeros(40))
    assert verdict(assess({"mrr": up, "recall": down}), "mrr").answer == "mixed"


def test_too_few_queries_can_show_nothing_and_this_is_reported() -> None:
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


def test_differences_too_large_for_decimals_are_still_reported() -> None:
    assert assess({"m": Pairs(np.full(9, 9e14), np.full(9, -9e14))})["m"].mean_delta == -1.8e15


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e6, 9e14])
def test_values_of_any_size_are_compared(size: float) -> None:
    found = assess({"m": pairs([size, -size, size, size, 0.0, size, size])})["m"]
    assert found.p == assess({"m": pairs([1, -1, 1, 1, 0, 1, 1])})["m"].p_sign_flip
