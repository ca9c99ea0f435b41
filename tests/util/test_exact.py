from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.util.numbers import rounded, rounded_mean
from tests.oracles import matching_oracle


@pytest.mark.parametrize(
    ("total", "count", "value"),
    [
        ("1", 3, 0.3333),
        ("2", 3, 0.6667),
        ("0.00005", 1, 0.0001),
        ("-0.00005", 1, -0.0001),
        ("0.000049999999", 1, 0.0),
        ("5", 8, 0.625),
        ("1", 16, 0.0625),
        ("1", 32, 0.0313),
        ("0", 7, 0.0),
    ],
)
def test_means_are_rounded_half_away_from_zero(total: str, count: int, value: float) -> None:
    assert rounded_mean(int(Decimal(total).scaleb(15)), count) == value


def in_units(value: float) -> int:
    return int(Decimal(value).quantize(Decimal("1e-15")).scaleb(15))


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 10)), min_size=1, max_size=300))
def test_fixed_point_sums_round_as_exact_fractions_do(pairs: list[tuple[int, int]]) -> None:
    """Each value is a float first and has 15 decimals then; the mean still rounds as if it were exact."""
    total = sum(in_units(a / b) for a, b in pairs)
    exact = sum((Fraction(a, b) for a, b in pairs), Fraction(0)) / len(pairs)
    assert rounded_mean(total, len(pairs)) == matching_oracle.rounded(exact)


def test_a_tie_of_thirds_rounds_up_though_its_float_lies_below() -> None:
    # Twenty thousand queries, (1/3 + 2/3) once: the mean is exactly 0.00005.
    values = [1 / 3, 2 / 3, *[0.0] * 19_998]
    total = sum(map(in_units, values))
    assert rounded_mean(total, len(values)) == 0.0001


def test_single_values_round_the_same_way() -> None:
    assert rounded(1 / 3) == 0.3333
    assert rounded(0.00005) == 0.0001
