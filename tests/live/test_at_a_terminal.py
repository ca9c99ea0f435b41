"""`kbeval run` and `kbeval runs --forget` at a real terminal."""

from __future__ import annotations

import sys

import pexpect

from tests.live.conftest import Place
from tests.support.live_server import LiveServer


def spawn(place: Place, *words: str) -> pexpect.spawn:
    child = pexpect.spawn(
        sys.executable, ["-m", "kbeval", *words], cwd=place.folder, encoding="utf-8", timeout=60, dimensions=(40, 160)
    )
    child.delaybeforesend = None
    child.ptyproc.delayafterclose = 0.01
    return child


def test_progress_is_one_line_that_is_redrawn_and_removed(place: Place, server: LiveServer) -> None:
    place.golden(8)
    place.http(server.url)
    server.set(delay=0.3)
    child = spawn(place, "run", "--run-id", "r1", "--concurrency", "2")
    child.expect(r"\r\x1b\[Krun r1: \d+ of 8, [\d.]+ per second, 0 errors, 0 retries, concurrency \d")
    child.expect(r"\d+ s left")
    child.expect(r"\r\x1b\[Kstored run r1: 8 queries, 0 errors")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_deleting_an_unfinished_run_asks_first(place: Place, server: LiveServer) -> None:
    place.golden(30)
    place.http(server.url)
    server.set(delay=0.1)
    child = spawn(place, "run", "--run-id", "half", "--concurrency", "1")
    child.expect(r"half: [3-9] of 30")
    child.sendintr()
    child.expect("continue with 'kbeval run --resume half'")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130

    asking = spawn(place, "runs", "--forget", "half")
    asking.expect(r"Delete unfinished run half with its \d+ answers\?")
    asking.sendline("n")
    asking.expect("nothing was deleted")
    asking.expect(pexpect.EOF)
    assert place.rows("SELECT run_id FROM kbeval_unfinished_runs") == [("half",)]
    asking = spawn(place, "runs", "--forget", "half")
    asking.expect(r"Delete unfinished run half")
    asking.sendline("y")
    asking.expect("deleted unfinished run half")
    asking.expect(pexpect.EOF)
    assert place.rows("SELECT run_id FROM kbeval_unfinished_runs") == []
    assert place.rows("SELECT COUNT(*) FROM kbeval_attempts") == [(0,)]
