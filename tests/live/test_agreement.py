"""The agreement of two judges, against another implementation of each number."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.live.agreement import agreement

Pairs = Sequence[tuple[int, int]]


def plain_kappa(pairs: Pairs, scale: Sequence[int]) -> Fraction | None:
    """By the table of counts, as Cohen (1968) defines it, in exact fractions."""
    n = len(pairs)
    widest = Fraction((scale[-1] - scale[0]) ** 2)
    observed = expected = Fraction(0)
    for a, b in itertools.product(scale, scale):
        weight = Fraction((a - b) ** 2) / widest
        both = Fraction(sum(1 for pair in pairs if pair == (a, b)), n)
        apart = Fraction(sum(1 for x, _ in pairs if x == a), n) * Fraction(sum(1 for _, y in pairs if y == b), n)
        observed += weight * both
        expected += weight * apart
    return None if expected == 0 else 1 - observed / expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_kappa_is_that_of_the_table_of_counts(pairs: Pairs) -> None:
    found = agreement([a for a, _ in pairs], [b for _, b in pairs], resamples=10)
    wanted = plain_kappa(pairs, range(6))
    if wanted is None:
        assert found.kappa is None
    else:
        assert found.kappa == pytest.approx(float(wanted), abs=1e-12)
    assert found.exact == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))
    assert found.within_one == pytest.approx(sum(abs(a - b) <= 1 for a, b in pairs) / len(pairs))
    assert found.mean_shift == pytest.approx(sum(b - a for a, b in pairs) / len(pairs))


def test_known_tables() -> None:
    assert agreement([], []).pairs == 0
    assert agreement([3, 3], [3, 3]).kappa is None
    assert agreement([0, 5, 2], [0, 5, 2]).kappa == 1
    assert agreement([0, 5], [5, 0]).kappa == -1
    # Fleiss, Cohen: with quadratic weights and equal marginals it is the correlation.
    assert agreement([1, 2, 3, 4], [2, 1, 4, 3]).kappa == pytest.approx(0.6)
    with pytest.raises(ValueError, match="paired"):
        agreement([1], [])


def test_the_interval_covers_the_true_kappa_about_as_often_as_it_says() -> None:
    # Judges that agree with probability 0.7 and else give an independent score: kappa is 0.7.
    rng = random.Random(5)
    covered = 0
    for _ in range(100):
        first = [rng.randrange(6) for _ in range(80)]
        second = [a if rng.random() < 0.7 else rng.randrange(6) for a in first]
        found = agreement(first, second, resamples=400)
        assert found.interval is not None
        assert found.kappa is not None
        assert found.interval[0] <= found.kappa <= found.interval[1]
        covered += found.interval[0] <= 0.7 <= found.interval[1]
    assert 86 <= covered <= 100


def test_the_same_seed_gives_the_same_interval() -> None:
    first, second = [0, 1, 2, 3, 4, 5] * 4, [1, 1, 2, 2, 5, 5] * 4
    found = agreement(first, second)
    assert found == agreement(first, second)
    assert found.interval is not None
    assert not math.isclose(found.interval[0], found.interval[1])


def test_scikit_learn_agrees() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random.Random(1)
    for _ in range(20):
        first, second = ([rng.randrange(6) for _ in range(25)] for _ in range(2))
        peer = metrics.cohen_kappa_score(first, second, weights="quadratic", labels=list(range(6)))
        assert agreement(first, second, resamples=10).kappa == pytest.approx(peer, abs=1e-12)
