"""`kbeval run` killed at random moments, again and again: nothing is lost, and nothing is paid for twice."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.examples import sized
from tests.support.live_server import LiveServer

QUERIES, CONCURRENCY, KILLS = sized(60, 150), 4, 55
# Kills come within about the time that a run takes.
SECONDS = QUERIES / 200
# Loads kbeval once and forks: starting the interpreter every time would take most of the time.
DRIVER = """
import json, os, random, signal, sqlite3, sys, time
import httpx2, jmespath, stamina
import kbeval.cli, kbeval.cli.live_run, kbeval.live.run, kbeval.live.http_target, kbeval.golden, kbeval.live.snapshot

kills, concurrency, seed = map(int, sys.argv[1:4])
latest = float(sys.argv[4])
rng = random.Random(seed)

def state(run_id):
    try:
        connection = sqlite3.connect("file:kb.db?mode=ro", uri=True, timeout=10)
        try:
            for table in ("eval_runs", "kbeval_unfinished_runs"):
                if connection.execute(f"SELECT 1 FROM {table} WHERE run_id = ?", [run_id]).fetchone():
                    return table
        finally:
            connection.close()
    except sqlite3.OperationalError:
        pass
    return None

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
        null = os.open("last.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(null, 1)
        os.dup2(null, 2)
        kbeval.cli.main([*words, "--concurrency", str(concurrency)])
    end = time.monotonic() + (rng.uniform(0.02, latest) if done < kills else 60)
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            codes.append(os.waitstatus_to_exitcode(status))
            break
        time.sleep(0.002)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done += 1
    if time.monotonic() > deadline:
        break
print(json.dumps({"kills": done, "runs": number, "codes": codes}))
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
        command = [sys.executable, "-c", DRIVER, str(KILLS), str(CONCURRENCY), "20260304", str(SECONDS)]
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
