"""Odd input of every kind, for a bounded time: no traceback, no hang, no internal error, nothing changed.

The cases are the same each time. `KBEVAL_FUZZ_SECONDS=600` looks for longer (in each area), `KBEVAL_FUZZ_SEED=7`
elsewhere; `python -m tests.fuzz --help` does the same by hand.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.__main__ import corpus, supervise
from tests.fuzz.judging import judge

# Seconds of processor time, about a minute in all: what an area costs to score, and how much there is to look for.
SECONDS = {"rows": 18, "stored": 12, "golden": 6, "settings": 5, "metrics": 6, "questions": 10, "imports": 4}


@pytest.mark.parametrize("area", SECONDS)
def test_no_invented_input_breaks_a_command(area: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seconds = float(os.environ.get("KBEVAL_FUZZ_SECONDS") or SECONDS[area])
    code = supervise(area, os.environ.get("KBEVAL_FUZZ_SEED") or "1", seconds, tmp_path)
    said = capfd.readouterr()
    assert code == 0, said.out + said.err
    print(said.out)


@pytest.mark.parametrize("name", corpus())
def test_what_broke_a_command_once_does_no_more(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    case = corpus()[name]
    if case.open:
        request.applymarker(pytest.mark.xfail(reason=f"{case.about}: {case.open}"))
    assert judge(case, tmp_path / "case") is None
