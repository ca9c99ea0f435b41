"""Ctrl-C gets through, whatever is going on; real signals to real processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pexpect
import pytest

from tests.support.busy import wait_until_busy
from tests.support.examples import sized
from tests.support.workspace import Workspace, hits

# One function of one value that takes minutes, in little memory, and does not look up.
LONG = "SELECT levenshtein(repeat('ab', 200000), repeat('ba', 200000))"


@pytest.fixture
def run(workspace: Workspace) -> Workspace:
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c1"]})
    workspace.add_run("run", {"q1": {"hits_top_k": hits(None, "c1")}})
    return workspace


def start(workspace: Workspace, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KBEVAL_DB": str(workspace.db), "KBEVAL_GOLDEN": str(workspace.golden)}
    command = [sys.executable, "-m", "kbeval", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_until_watched(process: subprocess.Popen[str]) -> None:
    """Wait until kbeval itself has started: before that, Python handles Ctrl-C."""
    tasks = Path(f"/proc/{process.pid}/task")
    if not tasks.exists():
        time.sleep(0.3)
    # The thread that watches is the first one besides the main one.
    while process.poll() is None and tasks.exists() and len(list(tasks.iterdir())) < 2:
        time.sleep(0.005)


@pytest.mark.slow
def test_one_long_function_is_stopped_by_ending_the_process(run: Workspace, tmp_path: Path) -> None:
    """By one Ctrl-C, and by three."""
    processes = [start(run, "sql", LONG, "-o", "out.csv"), start(run, "sql", LONG, "-o", "out.csv")]
    for process in processes:
        # To start takes less than half of it.
        wait_until_busy(process.pid, 3, 1.5)
        assert process.poll() is None
    began = time.monotonic()
    for times in range(3):
        for process in processes[times > 0 :]:
            process.send_signal(signal.SIGINT)
        time.sleep(0.7)
    for process in processes:
        with process:
            _, errors = process.communicate(timeout=20)
        assert time.monotonic() - began < 10
        assert process.returncode == 130
        assert errors == "kbeval: interrupted; no partial results were written\n"
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.slow
def test_the_prompt_ends_where_a_question_cannot_be_stopped(run: Workspace) -> None:
    prompt = pexpect.spawn(
        sys.executable, ["-m", "kbeval", "sql", "--db", str(run.db)], timeout=60, encoding="utf-8", dimensions=(40, 200)
    )
    prompt.expect("kbeval> ")
    # What can be stopped leaves the session as it was, and an interruption that is over does not count.
    prompt.sendline("SELECT COUNT(*) FROM range(1000000000000) AS a WHERE a.range % 7 = 3;")
    wait_until_busy(prompt.pid, 2, 0.5)
    prompt.sendintr()
    prompt.expect("interrupted")
    prompt.expect("kbeval> ")
    prompt.sendintr()
    prompt.expect("kbeval> ")
    # Longer than the watch waits before it ends the process.
    time.sleep(2.5)
    prompt.sendline("SELECT 40 + 2 AS n;")
    prompt.expect("42")
    prompt.expect("kbeval> ")
    prompt.sendline(f"{LONG};")
    wait_until_busy(prompt.pid, 2, 0.5)
    prompt.sendintr()
    prompt.expect(pexpect.EOF)
    prompt.close()
    assert prompt.exitstatus == 130


@pytest.mark.slow
def test_ctrl_c_at_any_moment_is_an_interruption_and_never_an_abort(run: Workspace) -> None:
    source = random.Random(15)
    codes = []
    tries = sized(8, 60)
    for _ in range(tries):
        with start(run, "sql", "SELECT 1 AS one FROM runs") as process:
            wait_until_watched(process)
            time.sleep(source.uniform(0, 1))
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        codes.append(process.returncode)
        assert process.returncode in (0, 130), errors
        assert errors.strip() in ("", "kbeval: interrupted; no partial results were written")
    assert codes.count(130) > tries // 6


def test_an_import_is_not_interrupted_and_the_interruption_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "slow_import.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(0.3)\nprint('imported')\n"
    )
    code = (
        "import sys; from kbeval.util.interrupts import INTERRUPTS; INTERRUPTS.install(); sys.path.insert(0, '.')\n"
        "import time\n"
        "try:\n    import slow_import\n    time.sleep(5)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "imported\ninterrupted\n"


def test_an_interruption_that_is_over_has_no_later_effect() -> None:
    """Where the watch comes to hear of it only after the program went on, as on a busy machine."""
    code = (
        "import os, signal, time; from kbeval.util import interrupts; from kbeval.util.interrupts import INTERRUPTS\n"
        "interrupts.GRACE_SECONDS = 0.3\n"
        "wait_for = interrupts._wait_for\n"
        "def late(file, seconds):\n    wait_for(file, seconds)\n    time.sleep(0.3)\n"
        "interrupts._wait_for = late\n"
        "INTERRUPTS.install()\n"
        "for _ in range(3):\n"
        "    try:\n        os.kill(os.getpid(), signal.SIGINT)\n        time.sleep(5)\n"
        "    except KeyboardInterrupt:\n        INTERRUPTS.settled()\n"
        "time.sleep(1.5)\nprint('goes on')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")


def test_a_program_that_ignores_ctrl_c_keeps_ignoring_it(run: Workspace) -> None:
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); from kbeval.__main__ import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "sql", "SELECT COUNT(*) AS n FROM range(300000000)", "--db", str(run.db)],
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "300000000" in out.replace(",", "")
