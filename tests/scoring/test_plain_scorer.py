"""The scorers that kbeval is measured against say the same: a benchmark of programs that disagree is worthless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kbeval.scoring.aggregate import score_runs
from tests.bench.data import make_database, make_history
from tests.bench.plain_scorer import WAYS


@pytest.mark.parametrize("make", [make_database, make_history])
@pytest.mark.parametrize("way", WAYS)
def test_they_say_the_same(tmp_path: Path, make: Callable[..., tuple[Path, Path]], way: str) -> None:
    # Of 40 queries one has failed, and two should be refused.
    database, golden = make(tmp_path, 2, 40, 10)
    scored = score_runs(database, golden)
    found = WAYS[way](str(database), str(golden))
    assert found.keys() == scored.aggregates.keys()
    for run_id, numbers in found.items():
        assert len(numbers) > 15
        for name, number in numbers.items():
            assert scored.aggregates[run_id].value(name) == pytest.approx(number, abs=1.01e-4), name
