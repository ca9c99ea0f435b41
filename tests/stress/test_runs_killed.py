"""`kbeval run` killed at random moments, again and again: nothing is lost, and nothing is paid for twice."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.live_server import LiveServer

QUERIES, CONCURRENCY, KILLS = 150, 4, 55
# Loads kbeval once and forks: starting the interpreter every time would take most of the time.
DRIVER = """
import json, os, random, signal, sqlite3, sys, time
import httpx2, jmespath, stamina
import kbeval.cli, kbeval.cli.live_run, kbeval.live.run, kbeval.live.http_target, kbeval.golden, kbeval.live.snapshot

kills, concurrency, seed = map(int, sys.argv[1:])
rng = random.Random(seed)

def state(run_id):
    try:
        connection = sqlite3.connect("file:kb.db?mode=rw", uri=True, timeout=10)
        try:
            for table in ("eval_runs", "kbeval_unfinished_runs"):
                if connection.execute(f"SELECT 1 FROM {table} WHERE run_id = ?", [run_id]).fetchone():
                    return table
        finally:
            connection.close()
    except sqlite3.OperationalError:
        pass
    return None

said = []
done, number, codes, deadline = 0, 1, [], time.monotonic() + 100
while True:
    run_id = f"r{number}"
    found = state(run_id)
    if found == "eval_runs":
        if done >= kills:
            break
        number += 1
        continue
    words = ["run", "--resume", run_id] if found else ["run", "--run-id", run_id]
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open("last.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(null, 1)
        os.dup2(null, 2)
        kbeval.cli.main([*words, "--concurrency", str(concurrency)])
    end = time.monotonic() + (rng.uniform(0.02, 0.8) if done < kills else 60)
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            codes.append(os.waitstatus_to_exitcode(status))
            if codes[-1]:
                said.append(open("last.log").read())
            break
        time.sleep(0.002)
    else:
        # Half of the time together with the process that has the database open.
        (os.killpg if done % 2 else os.kill)(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done += 1
    if time.monotonic() > deadline:
        break
print(json.dumps({"kills": done, "runs": number, "codes": codes, "said": said}))
"""


@pytest.mark.slow
def test_a_run_survives_being_killed_at_any_moment(tmp_path: Path) -> None:
    golden = [{"id": f"q{n}", "query": f"Question {n}?"} for n in range(QUERIES)]
    (tmp_path / "golden.json").write_text(json.dumps(golden))
    with LiveServer(delay=0.02) as server:
        (tmp_path / "kbeval.toml").write_text(
            f'db = "kb.db"\ngolden = "golden.json"\n[target]\ntype = "http"\nurl = "{server.url}/search"\n'
            'body = { question = "{{ query }}" }\nresponse = { hits = "results[*].id", answer = "answer" }\n'
        )
        command = [sys.executable, "-c", DRIVER, str(KILLS), str(CONCURRENCY), "20260304"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        requests = [entry["body"]["question"] for entry in server.log()]
    last = (tmp_path / "last.log").read_text()
    assert said["kills"] >= 50, (said, last)
    assert set(said["codes"]) == {0}, (said, last)
    with closing(sqlite3.connect(tmp_path / "kb.db")) as connection:
        stored = connection.execute("SELECT run_id, query_id, result_json FROM eval_query_results").fetchall()
        attempts = connection.execute(
            "SELECT run_id, query_id, COUNT(*) FROM kbeval_attempts WHERE error_kind IS NULL GROUP BY 1, 2"
        ).fetchall()
        assert connection.execute("SELECT COUNT(*) FROM kbeval_unfinished_runs").fetchone() == (0,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    runs = said["runs"]
    # Every query of every run has exactly one stored answer.
    assert len(stored) == runs * QUERIES
    assert all("error" not in json.loads(text) and json.loads(text)["hits_top_k"] for _, _, text in stored)
    assert len(attempts) == runs * QUERIES
    assert {count for _, _, count in attempts} == {1}
    # Only what was in flight at a kill was sent again.
    assert runs * QUERIES <= len(requests) <= runs * QUERIES + said["kills"] * CONCURRENCY


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_answers_that_could_not_be_committed_before_the_kill_are_not_asked_for_again(tmp_path: Path) -> None:
    golden = [{"id": f"q{n}", "query": f"Question {n}?"} for n in range(60)]
    (tmp_path / "golden.json").write_text(json.dumps(golden))
    path = tmp_path / "kb.db"
    command = [sys.executable, "-m", "kbeval", "run", "--concurrency", "4"]
    with LiveServer(delay=0.02) as server:
        (tmp_path / "kbeval.toml").write_text(
            f'db = "kb.db"\ngolden = "golden.json"\n[target]\ntype = "http"\nurl = "{server.url}/search"\n'
            'body = { question = "{{ query }}" }\nresponse = { hits = "results[*].id", answer = "answer" }\n'
        )
        made = subprocess.run(
            [*command, "--run-id", "first"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr
        before = server.counts()["requests"]
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            server.set(delay=0.3)
            running = subprocess.Popen([*command, "--run-id", "r"], cwd=tmp_path, stderr=subprocess.DEVNULL)
            wait_until(lambda: server.counts()["requests"] - before >= 4)
            # Another program writes for long: answers arrive, and none can be committed.
            other.execute("BEGIN IMMEDIATE")
            wait_until(lambda: server.counts()["requests"] - before >= 24)
            running.kill()
            running.wait()
            other.execute("ROLLBACK")
            ((committed,),) = other.execute("SELECT COUNT(*) FROM kbeval_attempts WHERE run_id = 'r'").fetchall()
        sent = server.counts()["requests"] - before
        assert committed <= 8
        assert sent >= 24
        listed = subprocess.run(
            [sys.executable, "-m", "kbeval", "runs"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        (line,) = [line for line in listed.stderr.splitlines() if line.startswith("unfinished: r ")]
        answered = int(line.partition("Z): ")[2].partition(" of 60 queries answered")[0])
        assert sent - 4 <= answered <= sent
        server.set(delay=0)
        resumed = [*command, "--resume", "r"]
        done = subprocess.run(resumed, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert server.counts()["requests"] - before == 60 + sent - answered
    with closing(sqlite3.connect(path)) as connection:
        counts = connection.execute("SELECT COUNT(*), COUNT(DISTINCT query_id) FROM kbeval_attempts WHERE run_id = 'r'")
        assert counts.fetchone() == (60, 60)
        rows = connection.execute("SELECT COUNT(*) FROM eval_query_results WHERE run_id = 'r'")
        assert rows.fetchone() == (60,)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["golden.json", "kb.db", "kbeval.toml"]
