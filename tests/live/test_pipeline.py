"""`kbeval pipeline` against real servers: every step, what it leaves behind, and what it does when one fails."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pexpect
import pytest

from kbeval.cli.judge import judge_command
from kbeval.cli.live_run import run_command
from kbeval.cli.pipeline import pipeline_command
from tests.live.conftest import Place
from tests.support.judge_server import JudgeServer
from tests.support.live_server import LiveServer, search

GATES = "\n[gates]\nmin = { mrr = 0.9 }\nmax = { error_rate = 0.0 }\nmax_drop = { mrr = 0.5 }\n"


@pytest.fixture(scope="module")
def judge_server() -> Iterator[JudgeServer]:
    with JudgeServer() as found:
        yield found


@pytest.fixture
def labelled(place: Place, server: LiveServer) -> Place:
    """The right chunk is the first hit for every question but the last."""
    entries = []
    for n in range(1, 6):
        text = f"Question {n}?"
        right = search({"question": text})["results"][0]["id"] if n < 5 else "missing"
        entries.append({"id": f"q{n:03d}", "query": text, "answerable": True, "expected_chunk_ids": [right]})
    (place.folder / "golden.json").write_text(json.dumps(entries))
    place.http(server.url)
    return place


def summary_of(place: Place, run_id: str) -> str:
    return (place.folder / "runs" / run_id / "summary.md").read_text()


def test_two_evenings_from_the_run_to_the_comparison(labelled: Place, server: LiveServer) -> None:
    code, out, err = labelled.run("pipeline", "--run-id", "monday", "--description", "as it was", "--k", "3")
    assert code == 0, err
    assert out.startswith("monday\n")
    assert "health: done" in err
    assert "compare: skipped: there is no earlier run in the suite" in err
    first = summary_of(labelled, "monday")
    assert "as it was" in first
    assert "| mrr | 0.8000 | 5 | 0 |" in first
    assert "Ledger: 5 golden, 5 rows, 0 missing" in first
    assert f"| target.url | {server.url}/search |" in first
    assert "| mrr | " in first.partition("## What the numbers mean")[2]

    # The second evening finds the last one too, and asks for more.
    server.set(answers={"Question 5?": {"results": [{"id": "missing"}], "answer": "There."}})
    code, out, err = labelled.run("pipeline", "--run-id", "tuesday", "--description", "more hits", "--k", "5")
    assert code == 0, err
    assert "monday → tuesday:" in out
    second = summary_of(labelled, "tuesday")
    assert "| mrr | 1.0000 | 5 | 0 |" in second
    assert "## Compared with monday" in second
    assert "+0.2000" in second
    assert "| eval\\_k | 3 | 5 |" in second or "| eval_k | 3 | 5 |" in second
    assert (labelled.folder / "runs" / "tuesday" / "report.md").read_text().startswith("# monday → tuesday")
    # The report of each evening: of the run alone, then of both.
    pages = [(labelled.folder / "runs" / name / "report.html").read_text() for name in ("monday", "tuesday")]
    assert ["<title>monday – kbeval</title>" in pages[0], "<title>monday → tuesday – kbeval</title>" in pages[1]] == [
        True
    ] * 2
    assert labelled.rows("SELECT COUNT(*) FROM eval_runs WHERE aggregate_json LIKE '%\"mrr\":%'") == [(2,)]


def test_a_failing_gate_is_exit_code_1_and_everything_is_written(labelled: Place, server: LiveServer) -> None:
    labelled.http(server.url)
    labelled.config((labelled.folder / "kbeval.toml").read_text().partition("\n\n")[2] + GATES)
    code, out, err = labelled.run("pipeline", "--run-id", "one")
    assert code == 1, err
    assert "gate: failed: one: 1 of 2 gates failed; not checked because there is no earlier run: max_drop" in err
    assert "FAIL" in out
    assert "--min mrr=0.9" in summary_of(labelled, "one")
    # With an earlier run, the drop is measured from it.
    code, out, err = labelled.run("pipeline", "--run-id", "two")
    assert code == 1, err
    assert "two against one: 1 of 3 gates failed" in err


def test_a_step_that_fails_does_not_stop_the_others(labelled: Place, server: LiveServer) -> None:
    """A metric of one's own that cannot be computed: no numbers, and still a summary that says so."""
    labelled.config(
        (labelled.folder / "kbeval.toml").read_text().partition("\n\n")[2]
        + '\n[metrics]\nbroken = "no_such_column + 1"\n'
    )
    code, out, err = labelled.run("pipeline", "--run-id", "one")
    assert code == 2
    assert "score: error" in err
    assert "broken" in err
    assert out.startswith("one\n")
    found = summary_of(labelled, "one")
    assert "The run was not scored." in found
    assert "| score | error |" in found
    assert labelled.rows("SELECT COUNT(*) FROM eval_query_results") == [(5,)]


def test_a_system_that_is_not_healthy_is_not_asked(labelled: Place, server: LiveServer) -> None:
    labelled.config(f'[target]\ntype = "anchors"\nurl = "{server.url}"\n')
    server.set(unhealthy=True)
    before = server.counts()["answered"]
    code, out, err = labelled.run("pipeline", "--run-id", "one")
    assert (code, out) == (2, "")
    assert "kbeval: the target is not healthy" in err
    assert server.counts()["answered"] == before
    assert not (labelled.folder / "runs").exists()


def test_an_outage_does_not_look_like_a_result(labelled: Place, server: LiveServer) -> None:
    """The index is down: the server answers 200 and abstains."""
    labelled.config(f'[target]\ntype = "anchors"\nurl = "{server.url}"\n')
    server.set(index_down=True)
    code, _, err = labelled.run("pipeline", "--run-id", "one")
    assert code == 0
    assert "every answer is a refusal with nothing retrieved" in err
    assert "every answer is a refusal with nothing retrieved" in summary_of(labelled, "one")


def test_it_takes_the_options_of_run_and_judge(labelled: Place, server: LiveServer) -> None:
    def options(command: click.Command) -> set[str]:
        return {name for option in command.params for name in option.opts if name.startswith("--")}

    # The options that are missing here mean something else, or print instead of judging.
    assert options(run_command) <= options(pipeline_command)
    assert options(judge_command) - options(pipeline_command) == {"--format", "--agreement"}
    before = server.counts()["requests"]
    code, out, err = labelled.run("pipeline", "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith(f"POST {server.url}/search\n")
    assert server.counts()["requests"] == before
    assert not labelled.db.exists()
    code, _, err = labelled.run("pipeline", "--run-id", "one", "--verbose", "--limit", "1", "--skip-score")
    assert code == 0
    assert '"took_ms": 7' in err


def test_steps_can_be_left_out(labelled: Place) -> None:
    assert labelled.run("pipeline", "--run-id", "one")[0] == 0
    judge = ["--judge-model", "m", "--judge-base-url", "http://127.0.0.1:9/v1"]
    code, _, err = labelled.run("pipeline", "--run-id", "two", "--skip-judge", "--skip-compare", "--skip-score", *judge)
    assert code == 0
    assert "judge: skipped: --skip-judge" in err
    assert "score: skipped: --skip-score" in err
    assert "compare: skipped: --skip-compare" in err
    assert "The run was not scored." in summary_of(labelled, "two")


def test_repetitions_are_scored_together(labelled: Place) -> None:
    code, _, err = labelled.run("pipeline", "--run-id", "one", "--repeat", "2")
    assert code == 0, err
    assert "run one and 1 repetition" in err
    assert "stored the numbers of 2 runs" in err
    assert not (labelled.folder / "runs" / "one-r2").exists()


def test_the_command_that_a_stopped_pipeline_names_continues_it_in_its_suite(
    labelled: Place, server: LiveServer
) -> None:
    server.set(faults=[{"kind": "400", "queries": [f"Question {n}?" for n in (2, 3, 4, 5)]}])
    words = ["--suite", "nightly", "--run-id", "night 1", "--concurrency", "1", "--max-errors", "1"]
    code, _, err = labelled.run("pipeline", *words, "--db", "kb.db")
    assert code == 2
    (command,) = re.findall(r"continue with 'kbeval (.*)'", err)
    assert shlex.split(command) == ["pipeline", "--resume", "night 1", "--db", "kb.db"]
    server.set(faults=[])
    code, _, err = labelled.run(*shlex.split(command))
    assert code == 0, err
    assert "score: done: stored the numbers of 1 run" in err
    assert labelled.rows("SELECT suite, aggregate_json <> '' FROM eval_runs") == [("nightly", 1)]


def test_a_run_id_that_is_a_path_has_no_folder(labelled: Place, tmp_path: Path) -> None:
    code, _, err = labelled.run("pipeline", "--run-id", "../out")
    assert code == 2
    assert "cannot be used as a folder name" in err
    assert labelled.rows("SELECT run_id FROM eval_runs") == [("../out",)]
    assert not (tmp_path.parent / "out").exists()


def test_at_a_terminal_it_asks_what_is_being_tried(labelled: Place, judge_server: JudgeServer) -> None:
    judge = ["--store-full-text", "--judge-model", "m", "--judge-base-url", f"{judge_server.url}/v1"]
    assert labelled.run("pipeline", "--run-id", "one", "--description", "the old prompt")[0] == 0

    def spawn(*words: str) -> pexpect.spawn:
        child = pexpect.spawn(
            sys.executable, ["-m", "kbeval", "pipeline", *words], cwd=labelled.folder, encoding="utf-8", timeout=60
        )
        child.setwinsize(50, 160)
        return child

    asking = spawn("--run-id", "two", *judge)
    asking.expect("the last run of suite live is one")
    asking.expect("the old prompt")
    asking.expect("What is being tried")
    asking.sendline("a new prompt")
    for step in ("health: done", "run: done", "judge: done: m: groundedness 5", "score: done", "compare: done"):
        asking.expect_exact(step)
    asking.expect(pexpect.EOF)
    asking.close()
    assert asking.exitstatus == 0
    assert labelled.snapshot("two")["description"] == "a new prompt"

    silent = spawn("--run-id", "three", "--no-input", *judge)
    silent.expect(pexpect.EOF)
    assert "What is being tried" not in silent.before
    silent.close()
    assert silent.exitstatus == 0
    assert labelled.snapshot("three").get("description") is None
    for run_id, tried in (("two", "a new prompt"), ("three", "# three")):
        found = summary_of(labelled, run_id)
        assert tried in found
        assert "| judge_correctness | 5.0000 | 5 | 0 |" in found
        page = (labelled.folder / "runs" / run_id / "report.html").read_text()
        assert page.startswith("<!DOCTYPE html>")
        assert run_id in page


def test_answers_are_judged_before_they_are_scored(labelled: Place, judge_server: JudgeServer) -> None:
    judge = ["--judge-model", "m", "--judge-base-url", f"{judge_server.url}/v1"]
    code, _, err = labelled.run("pipeline", "--run-id", "one", "--store-full-text", *judge)
    assert code == 0, err
    assert (
        "judge: done: m: groundedness 5.0000 (5 judged, 0 unscored), correctness 5.0000 (5 judged, 0 unscored)" in err
    )
    assert "| judge_groundedness | 5.0000 | 5 | 0 |" in summary_of(labelled, "one")
    # Without the texts that the system saw, nothing is judged, and the rest goes on.
    code, _, err = labelled.run("pipeline", "--run-id", "two", *judge)
    assert code == 2
    assert "judge: error" in err
    assert "--store-full-text" in err
    assert "| mrr | 0.8000 | 5 | 0 |" in summary_of(labelled, "two")


def test_with_the_judge_down_the_rest_goes_on(labelled: Place) -> None:
    down = ["--judge-model", "m", "--judge-base-url", "http://127.0.0.1:9/v1", "--judge-timeout", "1"]
    code, out, err = labelled.run("pipeline", "--run-id", "one", "--store-full-text", *down)
    assert code == 2
    assert "judge: error" in err
    assert "score: done" in err
    assert out.startswith("one\n")
    found = summary_of(labelled, "one")
    assert "| judge | error |" in found
    assert "judge_groundedness" not in found.partition("## Configuration")[0].partition("## Results")[2]
