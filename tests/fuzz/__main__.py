"""Run the fuzzer: `python -m tests.fuzz rows --seconds 600 --seed 7`.

Each area works through its cases in a process of its own, so that a crash is a finding like any other. A finding is
written to a file, which `--replay FILE` judges again and `--smaller FILE` makes as small as it can.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.cases import Case
from tests.fuzz.invention import AREAS, FIXTURES
from tests.fuzz.judging import Fault, judge
from tests.fuzz.reduction import reduced

CORPUS = FIXTURES / "fuzz"
ROOT = FIXTURES.parent
MOST_ADDRESSES = 12_000_000_000
# After this time the process is ended, and the place where it hung is reported.
WALL_SECONDS = 300
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("areas", nargs="*", help=f"of {', '.join(AREAS)}; all where none is named")
    parser.add_argument("--seconds", type=float, default=60, help="of processor time, for each area")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--most", type=int, default=1, help="end after this many different findings of an area")
    parser.add_argument("--found", type=Path, default=Path(tempfile.gettempdir()), help="folder for the findings")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="judge a kept case")
    parser.add_argument("--smaller", type=Path, metavar="FILE", help="make a kept case smaller")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.areas) - set(AREAS):
        parser.error(f"no area is called {', '.join(sorted(unknown))}")
    if asked.replay or asked.smaller:
        return _again(asked.replay or asked.smaller, is_replay=asked.replay is not None)
    if asked.worker is not None:
        return _work(asked.areas[0], asked.seed, asked.worker, asked.seconds, asked.found, asked.most)
    if asked.case is not None:
        return _work(asked.areas[0], asked.seed, asked.case, 0, asked.found, 1)
    codes = [supervise(area, asked.seed, asked.seconds, asked.found, asked.most) for area in asked.areas or AREAS]
    return max(codes)


def supervise(area: str, seed: str, seconds: float, found: Path, most: int = 1) -> int:
    """Let a process work through the cases of an area, and another one go on where it is ended."""
    first, left = 0, seconds
    while True:
        note = found / f"{area}-{seed}.at"
        note.unlink(missing_ok=True)
        command = [sys.executable, "-W", "error", "-m", "tests.fuzz", area, "--seed", seed, "--worker", str(first)]
        command += ["--seconds", str(left), "--found", str(found), "--most", str(most)]
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        left -= ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime
        if code in (0, 1) or not note.is_file():
            return code
        at = int(note.read_text())
        if code != INTERRUPTED:
            path = found / f"{area}-{seed}-{at}.json"
            path.write_text(AREAS[area](f"{area} {seed} {at}").to_json(), encoding="utf-8")
            print(f"{area}: the process ended with {code} in case {at} of seed {seed}: {path}", flush=True)
            return 1
        if left <= 0:
            return 0
        first = at + 1


def _work(area: str, seed: str, first: int, seconds: float, found: Path, most: int) -> int:
    """Judge one case after the other until time is up."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    for name in [name for name in os.environ if name.startswith("KBEVAL_")]:
        del os.environ[name]
    still_open = open_faults()
    found.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, int] = {}
    number, rows, calls = first, 0, 0
    with tempfile.TemporaryDirectory(prefix="kbeval-fuzz-") as folder:
        while True:
            (found / f"{area}-{seed}.at").write_text(str(number))
            faulthandler.dump_traceback_later(WALL_SECONDS, exit=True)
            case = AREAS[area](f"{area} {seed} {number}")
            fault = judge(case, Path(folder))
            rows += len(case.tables.get("eval_query_results", ()))
            calls += len(case.calls)
            if fault is not None and not any(known in f"{fault}" for known in still_open):
                kinds[fault.kind] = kinds.get(fault.kind, 0) + 1
                if kinds[fault.kind] == 1:
                    _keep(case, fault, found / f"{area}-{seed}-{number}.json", f"case {number} of seed {seed}")
            number += 1
            if time.process_time() > seconds or len(kinds) >= most:
                break
    faulthandler.cancel_dump_traceback_later()
    print(
        f"{area}: seed {seed}, {number - first} cases from {first}, {calls} commands, {rows} rows:"
        f" {kinds or 'nothing found'}",
        flush=True,
    )
    return 1 if kinds else 0


def _keep(case: Case, fault: Fault, path: Path, name: str) -> None:
    path.write_text(case.to_json(), encoding="utf-8")
    print(f"{name}, kept in {path}:\n{fault}", flush=True)


def corpus() -> dict[str, Case]:
    """The cases that were found and kept, by name."""
    return {path.stem: Case.from_json(path.read_text(encoding="utf-8")) for path in sorted(CORPUS.glob("*.json"))}


def open_faults() -> list[str]:
    """How known faults that are not fixed yet are recognized."""
    return [case.open for case in corpus().values() if case.open]


def _again(path: Path, *, is_replay: bool) -> int:
    case = Case.from_json(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="kbeval-fuzz-") as folder:
        fault = judge(case, Path(folder))
        if fault is not None and not is_replay:
            case = reduced(case, fault.kind, lambda other: judge(other, Path(folder)))
            path.with_suffix(".small.json").write_text(case.to_json(), encoding="utf-8")
            print(f"written to {path.with_suffix('.small.json')}")
    print(fault or "no fault")
    return 0 if fault is None else 1


if __name__ == "__main__":
    sys.exit(main())
