"""`kbeval score --all` at night: what it reports, and the state after it is stopped, killed or short of memory."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run
from tests.support.examples import THOROUGH, sized
from tests.support.nights import Night, drop_row, set_config, set_row
from tests.support.workspace import hits

# Real steps hold 250,000 rows.
SMALL_STEPS = """
    import sys
    import kbeval.cli, kbeval.scoring.incremental
    kbeval.scoring.incremental.STEP_ROWS = 150
"""
MAIN = """
    kbeval.cli.main(sys.argv[1:])
"""


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return three_runs(tmp_path)


def three_runs(folder: Path) -> Night:
    """Three runs of two queries, not scored yet."""
    found = Night(folder)
    label(found, "c1")
    for number, run_id in enumerate(("mon", "tue", "wed")):
        rows = {query: {"hits_top_k": hits("c1", "c2")} for query in ("q1", "q2")}
        found.add_run(run_id, rows, created_at=f"2026-01-0{number + 1}")
    return found


def label(night: Night, chunk: str) -> None:
    night.add_golden({"id": "q1", "expected_chunk_ids": [chunk]}, {"id": "q2", "expected_chunk_ids": ["c2"]})


def files(night: Night) -> list[str]:
    return ["--db", str(night.db), "--golden", str(night.golden)]


class Said:
    """Runs commands in this process, and keeps what they print."""

    def __init__(self, night: Night, capsys: pytest.CaptureFixture[str]) -> None:
        self._night = night
        self._capsys = capsys

    def __call__(self, *command: str) -> tuple[int, str, list[str]]:
        """The exit code, standard output, and the lines of standard error."""
        code = run([*command, *files(self._night)])
        out, err = self._capsys.readouterr()
        return code, out, err.splitlines()

    def score(self, *more: str) -> list[str]:
        """The lines of a scoring that went well."""
        code, _, err = self("score", "--all", *more)
        assert code == 0
        return [line for line in err if "citation_coverage" not in line]


@pytest.fixture
def said(night: Night, capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(night, capsys)


# --- what it says -----------------------------------------------------------------------------------


def test_the_log_of_a_night_says_what_was_scored_and_why(night: Night, said: Said) -> None:
    stored = f"stored the numbers of {{}} in {night.db}"
    assert said.score() == [stored.format("3 runs"), "  new: mon, tue, wed"]
    unchanged = "3 runs unchanged since the last scoring (use --force to rescore them)"
    assert said.score() == [f"nothing to do: {unchanged}"]
    night.edit(set_row("tue", "q1", {"hits_top_k": []}), set_config("wed", {}), set_config("thu", {}))
    warning = "kbeval: warning: run thu: no row for 2 golden queries, left out (--missing zero counts them)"
    assert said.score() == [
        stored.format("3 runs"),
        "  new: thu",
        "  rows changed: tue",
        "  configuration changed: wed",
        "1 run unchanged since the last scoring (use --force to rescore them)",
        warning,
    ]
    label(night, "c3")
    assert said.score() == [stored.format("4 runs"), "  labels changed: mon, thu, tue, wed", warning]
    forced = "  scored again as requested: mon, thu, tue, wed"
    assert said.score("--force") == [stored.format("4 runs"), forced, warning]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(night: Night, said: Said) -> None:
    said.score()
    nothing = "nothing to do: 3 runs unchanged since the last scoring (use --force to rescore them)"
    assert said.score("--dry-run") == [nothing]
    night.edit(drop_row("tue", "q1"))
    before = night.db.read_bytes()
    assert said.score("--dry-run")[:3] == [
        "dry run: nothing was stored; would store the numbers of 1 run",
        "  rows changed: tue",
        "2 runs unchanged since the last scoring (use --force to rescore them)",
    ]
    assert night.db.read_bytes() == before


def test_the_data_holds_all_runs_whatever_was_scored(night: Night, said: Said) -> None:
    _, first, _ = said("score", "--all", "--format", "json")
    _, second, _ = said("score", "--all", "--format", "json")
    assert [found["run_id"] for found in json.loads(second)] == ["mon", "tue", "wed"]
    assert second == first
    night.edit(set_row("tue", "q1", {"hits_top_k": hits("c7", "c1")}))
    _, third, _ = said("score", "--all", "--format", "json")
    assert {found["run_id"]: found["aggregate"]["mrr"] for found in json.loads(third)} == {
        "mon": 0.75,
        "tue": 0.5,
        "wed": 0.75,
    }


def test_many_runs_are_named_in_one_line(night: Night, said: Said) -> None:
    night.edit(*(set_config(f"more{n}", {}) for n in range(1000, 1010)))
    assert said.score()[1] == "  new: mon, more1000, more1001, more1002, more1003 and 8 more"


def test_a_broken_run_is_tried_again_each_night_until_it_is_repaired(night: Night, said: Said) -> None:
    said.score()
    before = night.stored("tue")
    night.execute("UPDATE eval_query_results SET result_json = '{' WHERE run_id = 'tue' AND query_id = 'q1'")
    night.edit(set_config("thu", {}))
    for news in (["  new: thu"], []):
        code, out, err = said("score", "--all")
        assert code == 2
        assert "\nwed " in out
        assert "\ntue " not in out
        assert [line for line in err if line.startswith("  new")] == news
        assert not [line for line in err if "rows changed" in line]
        assert err[-2:] == [
            "kbeval: 1 stored row cannot be read; 1 run not scored; repair the rows, or use --skip-bad-rows:",
            "  run tue, query q1: is not valid JSON",
        ]
        # The old numbers are still there, and still say that they were made from other rows.
        assert night.stored("tue") == before
    night.edit(set_row("tue", "q1", {}))
    assert said.score()[1] == "  rows changed: tue"


def test_rows_that_count_as_failed_are_scored_once_and_named_every_night(night: Night, said: Said) -> None:
    night.execute("UPDATE eval_query_results SET result_json = '{' WHERE run_id = 'tue' AND query_id = 'q1'")
    assert "new: mon, tue, wed" in said.score("--skip-bad-rows")[1]
    for more in (["--skip-bad-rows"], []):
        assert said.score(*more) == [
            "nothing to do: 3 runs unchanged since the last scoring (use --force to rescore them)",
            "kbeval: warning: run tue: 1 unreadable row counted as failed",
        ]
    assert json.loads(night.stored("tue"))["failed_queries"] == 1


# --- recompute ------------------------------------------------------------------------------------------

HOSTILE = "x|y<script>`*[a](b)\n\x1b[2J=1+1"


def test_recompute_names_hostile_runs_safely_in_every_format(night: Night, said: Said) -> None:
    night.add_run(HOSTILE, {"q1": {"hits_top_k": hits("c1")}}, created_at="2026-02-01")
    said.score()
    label(night, "c9")
    code, out, err = said("recompute", "--explain", "--format", "md", "latest")
    assert code == 0
    assert not [character for character in out + "".join(err) if not character.isprintable() and character != "\n"]
    numbers, queries = (text.splitlines() for text in out.strip().split("\n\n"))
    for table in (numbers, queries):
        assert {line.replace("\\|", "").count("|") for line in table} == {table[0].count("|")}
    assert queries[-1].endswith("| labels | 1 | q1 |")
    assert "<script>" not in out
    assert "| mrr | 1.0000 | 0.0000 | -1.0000 | labels changed -1.0000 |" in out
    _, out, _ = said("recompute", "--explain", "--format", "json", "latest")
    assert json.loads(out)["reasons"] == {HOSTILE: ["labels changed"]}
    _, out, _ = said("recompute", "--format", "csv", "wed")
    assert out.splitlines()[0] == "run,metric,stored,now,change,because"
    assert "wed,mrr,0.75,0.25,-0.5,labels changed" in out.splitlines()


def test_recompute_and_score_take_an_archive_for_a_database(night: Night, said: Said, tmp_path: Path) -> None:
    said.score()
    assert said("archive", str(tmp_path / "history"))[0] == 0
    night.db = tmp_path / "history"
    assert said("recompute")[2] == ["3 runs unchanged since the last scoring; no number would change"]
    label(night, "c9")
    code, out, err = said("recompute", "--explain", "mon")
    assert code == 0
    assert "labels changed -0.5000" in out
    assert err[:2] == ["1 run to score again:", "  labels changed: mon"]
    assert said.score()[1] == "  labels changed: mon, tue, wed"
    assert said("recompute")[2] == ["3 runs unchanged since the last scoring; no number would change"]


# --- stopped and killed -----------------------------------------------------------------------------------


def start(night: Night, *more: str, code: str = SMALL_STEPS + MAIN, **settings: Any) -> subprocess.Popen[str]:
    """`kbeval score --all` in a process of its own, in small steps."""
    command = [sys.executable, "-c", textwrap.dedent(code), "score", "--all", *more, *files(night)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Wait for its end; the lines of its standard error."""
    return process.communicate(timeout=60)[1].splitlines()


INTERRUPTED = """
    import os, signal, threading
    score_runs, calls = kbeval.scoring.incremental.score_runs, []
    def score_until_told(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 3:
            threading.Timer({seconds}, os.kill, [os.getpid(), signal.SIG{signal}]).start()
        return score_runs(*arguments, **options)
    kbeval.scoring.incremental.score_runs = score_until_told
"""


@pytest.fixture(scope="module")
def seven_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, dict[str, str]]:
    """Seven runs, not scored; and their numbers after an undisturbed night. Read-only."""
    night = three_runs(tmp_path_factory.mktemp("seven"))
    night.fill(runs=4, queries=100, n_hits=5)
    undisturbed = night.copy(night.db.parent / "undisturbed")
    undisturbed.night()
    return night, undisturbed.numbers()


@pytest.mark.parametrize(
    ("how", "seconds"), [("INT", 0), ("INT", 0.04), ("KILL", 0.04), *([("INT", 0.01), ("KILL", 0)] if THOROUGH else [])]
)
def test_a_night_that_is_stopped_keeps_its_steps_and_goes_on(
    seven_runs: tuple[Night, dict[str, str]], tmp_path: Path, how: str, seconds: float
) -> None:
    night, undisturbed = seven_runs[0].copy(tmp_path / "own"), seven_runs[1]
    # Seven runs: one step has the three small ones and the first of 100 rows, each other run is a step.
    process = start(night, code=SMALL_STEPS + INTERRUPTED.format(signal=how, seconds=seconds) + MAIN)
    err = finish(process)
    left = len(night.reasons())
    assert 0 < left < 7
    if how == "INT":
        assert process.returncode == 130
        stored = f"stopped after the numbers of {7 - left} runs were stored in {night.db}"
        assert [line for line in err if line] == [
            f"{stored}; the next call continues with the remaining {left}",
            "kbeval: interrupted; no partial results were written",
        ]
    else:
        assert process.returncode == -signal.SIGKILL
    process = start(night)
    err = finish(process)
    assert process.returncode == 0
    assert err[0] == f"stored the numbers of {left} runs in {night.db}"
    assert night.numbers() == undisturbed


def integrity(night: Night) -> list[Any]:
    with closing(sqlite3.connect(night.db)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall()


@pytest.mark.slow
@pytest.mark.parametrize(("journal", "cache"), [("DELETE", "on"), ("WAL", "off")])
def test_killed_at_any_moment_the_database_is_whole_and_the_end_is_the_same(
    night: Night, tmp_path: Path, journal: str, cache: str
) -> None:
    night.fill(runs=4, queries=150, n_hits=10)
    night.execute(f"PRAGMA journal_mode = {journal}")
    night.night()
    old = night.numbers()
    night.golden.write_text(night.golden.read_text(encoding="utf-8").replace('"c7"', '"c8"'), encoding="utf-8")
    undisturbed = night.copy(tmp_path / "copy")
    spill = tmp_path / "spill"
    spill.mkdir()
    settings: dict[str, Any] = {"env": {**os.environ, "TMPDIR": str(spill)}}
    started = time.monotonic()
    finish(start(undisturbed, "--force", "--cache", cache, **settings))
    whole = time.monotonic() - started
    new = undisturbed.numbers()
    assert not [run_id for run_id in old if old[run_id] == new[run_id]]
    moments = random.Random(journal)
    killed = 0
    for attempt in range(40):
        # At least one must have been killed while it had a session open.
        if attempt >= sized(4, 25) and killed >= 2 and list(spill.iterdir()):
            break
        process = start(night, "--force", "--cache", cache, **settings)
        # On a busy machine, some calls take much less time than the first one: wait for less and less of it.
        with suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.2, 1) * whole * 0.9**attempt)
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        assert integrity(night) == [("ok",)]
        assert not [run_id for run_id, text in night.numbers().items() if text not in (old[run_id], new[run_id])]
    assert killed >= 2
    left = list(spill.iterdir())
    for folder in left:
        os.utime(folder, (1, 1))
    finish(start(night, "--cache", cache, **settings))
    assert night.numbers() == new
    assert night.reasons(cache=cache) == {}
    assert left
    assert list(spill.iterdir()) == []


# --- memory -------------------------------------------------------------------------------------------


def size(folder: Path) -> int:
    """What is in it while another process makes and removes files and folders there."""
    found = 0
    for parent, _, names in os.walk(folder):  # unlike rglob, skips a folder that has just been removed
        for name in names:
            with suppress(OSError):
                found += Path(parent, name).stat().st_size
    return found


@pytest.mark.slow
def test_more_data_than_memory_spills_to_disk_and_gives_the_same_bytes(night: Night, tmp_path: Path) -> None:
    night.fill(runs=10, queries=1000, n_hits=30)
    spill = tmp_path / "spill"
    spill.mkdir()
    process = start(
        night,
        "--memory-limit",
        "60MB",
        "--cache",
        "off",
        code=f"\n    import sys, kbeval.cli{MAIN}",
        env={**os.environ, "TMPDIR": str(spill)},
    )
    most = 0
    while process.poll() is None:
        most = max(most, size(spill))
        time.sleep(0.005)
    process.communicate()
    assert process.returncode == 0
    assert most > 1_000_000  # it is looked at from time to time: the peak may be missed
    assert list(spill.iterdir()) == []
    tight = night.numbers()
    night.night(force=True, memory_limit="1GB", cache="off")
    assert night.numbers() == tight


def test_too_little_memory_is_one_line(night: Night, said: Said) -> None:
    night.fill(runs=2, queries=500, n_hits=20)
    for limit in ("0MB", "0.001GB", "16MB"):
        code, out, err = said("score", "--all", "--memory-limit", limit, "--cache", "off")
        assert (code, out, len(err)) == (2, "", 1), limit
        assert "memory" in err[0], limit
        assert any(advice in err[0] for advice in ("use at least 16MB", "try a higher --memory-limit")), limit
        assert "internal error" not in err[0], limit
