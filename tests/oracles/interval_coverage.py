"""How often do the intervals hold the truth? `python -m tests.oracles.interval_coverage` prints the tables.

Metrics of 0 and 1 are not simulated: every outcome is gone through with its probability. Elsewhere runs are drawn from
models whose true mean difference is known.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from kbeval.compare.intervals import interval
from kbeval.compare.stats import ALPHA, mcnemar_mid_p

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

NS = (3, 5, 7, 10, 20, 50, 100, 200)
# The chances that a query goes from 0 to 1, and from 1 to 0: all of them, in steps of 0.05, and some by name.
GRID = [(up / 20, down / 20) for up in range(1, 21) for down in range(up + 1) if up + down <= 20]
BINARY = [(0.1, 0.1), (0.2, 0.1), (0.25, 0.25), (0.3, 0.1), (0.4, 0.05), (0.5, 0.0), (0.2, 0.0), (0.6, 0.2)]
RARE = [(0.05, 0.0), (0.04, 0.01), (0.025, 0.025)]
_UNIT = 10**9


# --- zeros and ones: exact ---------------------------------------------------------------------------


def exact_coverage(n: int, truths: Iterable[tuple[float, float]]) -> list[float]:
    """The chance that the interval of n queries, as `assess` gives it, holds the truth, for each pair of chances."""
    outcomes = np.array([(up, down) for up in range(n + 1) for down in range(n + 1 - up)])
    ones = np.ones(n, dtype=np.int64)
    limits = {}
    for up, down in outcomes.tolist():
        if up >= down:
            found = interval(np.repeat([1, -1, 0], [up, down, n - up - down]), ones, largest=1.0, is_binary=True)
            assert found is not None
            if mcnemar_mid_p(up, down) > ALPHA:
                found = (min(0.0, found[0]), max(0.0, found[1]))
            limits[up, down], limits[down, up] = found, (-found[1], -found[0])
    low, high = np.array([limits[up, down] for up, down in outcomes.tolist()]).T
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1)))))
    counts = np.column_stack([outcomes, n - outcomes.sum(axis=1)])
    covered = []
    for up, down in truths:
        chances = np.maximum(np.array([up, down, 1 - up - down]), 1e-300)
        each = np.exp(logs[n] - logs[counts].sum(axis=1) + counts @ np.log(chances))
        covered.append(float(each @ ((low <= up - down + 1e-9) & (up - down <= high + 1e-9))))
    return covered


def chances_of_outcomes(n: int, up: float, down: float) -> tuple[float, list[float]]:
    """The chance of the outcomes whose interval must hold the truth, and that of each other one.

    An interval holds the difference that was seen, and 0 where McNemar's p is above .05: so it holds a truth between.
    """
    fixed, free = 0.0, []
    for gained in range(n + 1):
        for lost in range(n + 1 - gained):
            same = n - gained - lost
            ways = math.comb(n, gained) * math.comb(n - gained, lost)
            chance = ways * up**gained * down**lost * (1 - up - down) ** same
            seen, true = (gained - lost) / n, up - down
            is_between = min(0.0, seen) - 1e-9 <= true <= max(0.0, seen) + 1e-9
            if is_between and mcnemar_mid_p(gained, lost) > ALPHA:
                fixed += chance
            else:
                free.append(chance)
    return fixed, free


# --- graded: drawn -----------------------------------------------------------------------------------


def ranks(shift: float, noise: float) -> Draw:
    """Reciprocal ranks of queries of various difficulty."""

    def draw(source: np.random.Generator, shape: tuple[int, int]) -> Floats:
        difficulty = source.normal(0.6, 0.8, shape)
        a, b = (
            np.maximum(1, np.rint(np.exp(difficulty + source.normal(mean, noise, shape)))) for mean in (0.0, -shift)
        )
        return np.asarray(np.where(b <= 10, 1 / b, 0) - np.where(a <= 10, 1 / a, 0))

    return draw


def fifths(shift: float) -> Draw:
    """Precision at 5."""

    def draw(source: np.random.Generator, shape: tuple[int, int]) -> Floats:
        chance = source.beta(2, 3, shape)
        better = np.clip(chance + shift, 0, 1)
        return np.asarray((source.binomial(5, better) - source.binomial(5, chance)) / 5)

    return draw


def some(rate: float, up: float) -> Draw:
    """A share of the queries changes, by what reciprocal ranks change by, and a share of those goes up."""
    sizes = np.array([1 / 2, 1, 1 / 6, 2 / 3, 1, 1 / 4, 1 / 2, 9 / 10, 1 / 3])

    def draw(source: np.random.Generator, shape: tuple[int, int]) -> Floats:
        sign = np.where(source.random(shape) < up, 1, -1)
        return np.asarray(source.choice(sizes, shape) * (source.random(shape) < rate) * sign)

    return draw


def seconds(ratio: float) -> Draw:
    """Latencies: each query has its own, with a long tail, and both runs have noise."""

    def draw(source: np.random.Generator, shape: tuple[int, int]) -> Floats:
        a, b = (source.lognormal(0, 0.3, shape) for _ in "ab")
        return np.asarray(source.lognormal(0, 0.5, shape) * (ratio * b - a))

    return draw


GRADED: dict[str, tuple[Draw, float]] = {
    "ranks, same": (ranks(0.0, 0.5), 1.0),
    "ranks, better": (ranks(0.4, 0.5), 1.0),
    "ranks, much": (ranks(1.0, 0.5), 1.0),
    "ranks, a few": (ranks(0.15, 0.15), 1.0),
    "fifths, same": (fifths(0.0), 1.0),
    "fifths, better": (fifths(0.2), 1.0),
    "half change": (some(0.5, 0.9), 1.0),
    "20 % change": (some(0.2, 1.0), 1.0),
    "seconds, same": (seconds(1.0), 4.0),
    "seconds, slower": (seconds(1.3), 4.0),
    "normal": (lambda source, shape: source.normal(0.3, 1, shape), 4.0),
}
RARE_GRADED: dict[str, tuple[Draw, float]] = {
    "5 %, one way": (some(0.05, 1.0), 1.0),
    "5 %, both ways": (some(0.05, 0.5), 1.0),
}
# Differences with a long tail on one side only: where Student's interval is at its worst.
SKEWED: dict[str, tuple[Draw, float]] = {
    "exponential": (lambda source, shape: source.exponential(1, shape), 5.0),
    "log-normal, 0.5": (lambda source, shape: source.lognormal(0, 0.5, shape), 5.0),
}
EXTREME: tuple[Draw, float] = (lambda source, shape: source.lognormal(0, 1, shape), 20.0)


@functools.cache
def _truth(draw: Draw) -> float:
    return float(draw(np.random.default_rng(1), (2_000_000, 1)).mean())


def drawn_coverage(draw: Draw, largest: float, n: int, trials: int, seed: int = 7) -> tuple[float, float]:
    """How often the interval of n queries holds the truth, and how many of them change on average."""
    source = np.random.default_rng(seed)
    truth = _truth(draw) * _UNIT
    units = np.rint(draw(source, (trials, n)) * _UNIT).astype(np.int64)
    ones = np.ones(n, dtype=np.int64)
    found = [interval(row, ones, largest=largest * _UNIT, is_binary=False) for row in units]
    inside = [one[0] - 1 <= truth <= one[1] + 1 for one in found if one is not None]
    return sum(inside) / len(inside), float((units != 0).sum(axis=1).mean())


# --- groups ------------------------------------------------------------------------------------------


def grouped_coverage(sizes: tuple[int, ...], groups: int, trials: int, *, together: bool, seed: int = 7) -> float:
    """The same for groups of queries of 0 and 1 whose queries all move, or for graded ones that share a shift."""
    source = np.random.default_rng(seed)
    many = source.choice(np.array(sizes), (trials, groups))
    if together:
        sums = many * source.choice([-1, 0, 1], (trials, groups), p=[0.1, 0.6, 0.3]) * _UNIT
    else:
        own = np.sqrt(many) * source.normal(0, 0.5, (trials, groups))
        sums = np.rint((many * source.normal(0.2, 0.5, (trials, groups)) + own) * _UNIT).astype(np.int64)
    largest = (1.0 if together else 4.0) * _UNIT
    found = [interval(*row, largest=largest, is_binary=together) for row in zip(sums, many, strict=True)]
    inside = [one[0] - 1 <= 0.2 * _UNIT <= one[1] + 1 for one in found if one is not None]
    return sum(inside) / len(inside)


# --- tables ------------------------------------------------------------------------------------------


def _row(name: str, values: Iterable[float]) -> str:
    return f"{name:20s}" + "".join(f"{value:8.3f}" for value in values)


def main(trials: int = 2000) -> None:
    """Print every table."""
    print(f"{'0 and 1, exact':20s}" + "".join(f"{n:8d}" for n in NS))
    exact = [exact_coverage(n, [*GRID, *BINARY, *RARE]) for n in NS]
    print(_row("mean of 120 truths", (math.fsum(found[: len(GRID)]) / len(GRID) for found in exact)))
    print(_row("lowest of them", (min(found[: len(GRID)]) for found in exact)))
    for place, (up, down) in enumerate([*BINARY, *RARE], start=len(GRID)):
        print(_row(f"{up:g} up, {down:g} down", (found[place] for found in exact)))
    print("\ngraded, drawn")
    for name, (draw, largest) in (GRADED | RARE_GRADED | SKEWED | {"log-normal, 1": EXTREME}).items():
        print(_row(name, (drawn_coverage(draw, largest, n, trials)[0] for n in NS)))
    print("\ngroups, drawn (n: groups)")
    for sizes in ((5,), (1, 2, 3, 5, 9)):
        for together in (True, False):
            name = f"{'0 and 1' if together else 'graded'}, {min(sizes)} to {max(sizes)}"
            print(_row(name, (grouped_coverage(sizes, n, trials, together=together) for n in NS)))


if __name__ == "__main__":
    main()
