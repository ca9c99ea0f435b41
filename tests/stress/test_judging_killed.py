"""`kbeval judge` killed at random moments, again and again: nothing is lost, and nothing is paid for twice."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kbeval.cli import run
from tests.support.examples import sized
from tests.support.judge_server import JudgeServer
from tests.support.workspace import Workspace, answer

ANSWERS, CONCURRENCY, KILLS = sized(60, 150), 4, 55
# Kills come within about the time that a judging takes.
SECONDS = ANSWERS / 250
# Reads the run once and forks: starting the interpreter and the engine every time would take most of the time.
DRIVER = """
import json, os, random, signal, sys, time
from pathlib import Path
import httpx2, stamina
from kbeval.live.environment import Environment
from kbeval.live.judging import JudgeOptions, judge_run, make_plan
from kbeval.live.rubrics import load_rubrics
from kbeval.live.wire import parse_judge

kills, concurrency, seed, url = *map(int, sys.argv[1:4]), sys.argv[4]
latest = float(sys.argv[5])
rng = random.Random(seed)

def planned(number):
    judge = parse_judge(f"m{number}", url)
    options = JudgeOptions(judge, load_rubrics(["correctness"]), concurrency=concurrency)
    return make_plan(Path("kb.db"), "run", None, options)

done, number, codes, failed, locked_out, deadline = 0, 1, [], [], 0, time.monotonic() + 100
plan = planned(number)
while time.monotonic() < deadline:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            log = os.open("last.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 2)
            judge_run(Path("kb.db"), plan, Environment())
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + (rng.uniform(0.02, latest) if done < kills else 60)
    ended = False
    while time.monotonic() < end and not ended:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            codes.append(os.waitstatus_to_exitcode(status))
            if codes[-1]:
                failed.append(Path("last.log").read_text())
            ended = True
            # One that is killed while it starts a process leaves its lock to that for a moment.
            if codes[-1] and "is being judged by another process right now" in failed[-1] and locked_out < 20:
                codes.pop()
                failed.pop()
                locked_out += 1
                time.sleep(0.1)
                break
        else:
            time.sleep(0.002)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done += 1
    elif len(codes) < number:
        continue
    elif done >= kills:
        break
    else:
        number += 1
        plan = planned(number)
print(json.dumps({"kills": done, "judgings": number, "codes": codes, "failed": failed}))
"""


@pytest.mark.slow
def test_a_judging_survives_being_killed_at_any_moment(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    ids = [f"q{n:03}" for n in range(ANSWERS)]
    workspace.add_golden(*({"id": query_id} for query_id in ids))
    rows = {query_id: {"query_id": query_id, "query": "?", "answer": answer(f"Answer {query_id}.")} for query_id in ids}
    workspace.add_run("run", rows)
    with JudgeServer(delay=0.02) as server:
        url = f"{server.url}/v1"
        command = [sys.executable, "-c", DRIVER, str(KILLS), str(CONCURRENCY), "20260304", url, str(SECONDS)]
        root = str(Path(__file__).parents[2])
        environment = {"PYTHONPATH": root, "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        requests = server.counts()["requests"]
        # The command itself finds nothing left to do.
        files = ["--db", str(workspace.db)]
        again = ["judge", "run", *files, "--judge-model", f"m{said['judgings']}", "--judge-base-url", url]
        assert run([*again, "--rubric", "correctness"]) == 0
        assert server.counts()["requests"] == requests
    assert said["kills"] >= 50, said
    assert set(said["codes"]) == {0}, said
    with closing(sqlite3.connect(workspace.db)) as connection:
        judgements = connection.execute(
            "SELECT j.model, d.query_id, COUNT(*), MIN(j.state) FROM kbeval_judged d JOIN kbeval_judgements j"
            " USING (judgement_key) GROUP BY 1, 2"
        ).fetchall()
        inputs = connection.execute("SELECT COUNT(*) FROM kbeval_judge_inputs").fetchone()
        judgings = connection.execute("SELECT COUNT(*) FROM kbeval_judgings").fetchone()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    wanted = said["judgings"] * ANSWERS
    # Every answer has exactly one judgement by each judge, and what was judged is stored once.
    assert len(judgements) == wanted
    assert {(count, state) for _, _, count, state in judgements} == {(1, "scored")}
    assert inputs == (ANSWERS,)
    assert judgings == (said["judgings"],)
    # Only what was in flight at a kill was asked again.
    assert wanted <= requests <= wanted + said["kills"] * CONCURRENCY
