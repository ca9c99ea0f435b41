"""`kbeval judge` against a real server on loopback, in both wire shapes: what is asked, stored and paid."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run
from tests.support.judge_server import KINDS, USAGE, JudgeServer
from tests.support.workspace import Workspace, answer

KEY = "sk-judge-0123456789abcdefTOPSECRET"
WHOLE = "The whole text of the chunk. " * 20
PRICES = '[prices.m]\ninput = 2.0\noutput = 10.0\n[prices."anthropic:m"]\ninput = 2.0\noutput = 10.0\n'
COST = (USAGE[0] * 2.0 + USAGE[1] * 10.0) / 1e6


@pytest.fixture(scope="module")
def shared() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        yield server


@pytest.fixture
def server(shared: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> JudgeServer:
    shared.set(faults=[], delay=0, script=[], reset=True)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("KBEVAL_JUDGE_API_KEY", KEY)
    return shared


def row(query_id: str, text: str, **more: Any) -> dict[str, Any]:
    hit = {"rank": 1, "chunk_id": "c1", "text": "A short text, stored whole."}
    return {"query_id": query_id, "query": f"what is {query_id}?", "hits_top_k": [hit], "answer": answer(text), **more}


def filled(workspace: Workspace, rows: Mapping[str, Mapping[str, Any]], run_id: str = "run") -> Workspace:
    workspace.add_golden(*({"id": query_id, "expected_key_facts": ["a fact"]} for query_id in sorted(rows)))
    workspace.add_run(run_id, rows)
    return workspace


@pytest.fixture
def judged(workspace: Workspace) -> Workspace:
    """One answer for each kind of reply, a refusal and a failure."""
    rows = {kind: row(kind, f"An answer. REPLY:{kind} SCORE:3") for kind in KINDS}
    rows["refused"] = {"query_id": "refused", "answer": answer("", grounded=False)}
    rows["failed"] = {"query_id": "failed", "error": "timeout"}
    return filled(workspace, rows)


def arguments(workspace: Workspace, server: JudgeServer, *more: str, model: str = "m") -> list[str]:
    base = server.url if model.startswith("anthropic:") else f"{server.url}/v1"
    files = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    return ["judge", "run", *files, "--judge-model", model, "--judge-base-url", base, *more]


def judge(capsys: pytest.CaptureFixture[str], *command: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*command, "--format", "json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out) if code == 0 else {}
    return found


def sent(server: JudgeServer) -> int:
    return server.counts()["requests"]


# --- what becomes of each reply ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["m", "openai:m", "anthropic:m"])
def test_the_outcome_of_each_reply_is_recorded(
    judged: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    before = sent(server)
    found = judge(capsys, *arguments(judged, server, model=model))
    readable = {"good", "fenced", "quoted"}
    counts = {r["rubric"]: (r["answers"], r["judged"], r["unscored"]) for r in found["rubrics"]}
    wanted = (len(KINDS), len(readable), len(KINDS) - len(readable))
    assert counts == {"groundedness": wanted, "correctness": wanted}
    # What cannot be read is asked for once more, and only once.
    assert sent(server) - before == found["requests"] == 2 * (wanted[1] + 2 * wanted[2])
    assert found["not_asked"] == 2
    stored = judged.execute(
        "SELECT d.query_id, j.state, j.score, j.requests, j.why FROM kbeval_judged d JOIN kbeval_judgements j"
        " USING (judgement_key) WHERE d.rubric = 'groundedness'"
    )
    assert {query_id for query_id, *_ in stored} == set(KINDS)
    for query_id, state, score, requests, why in stored:
        expected = ("scored", 3.0, 1) if query_id in readable else ("unscored", None, 2)
        assert (state, score, requests) == expected, query_id
        assert bool(why) == (query_id not in readable)
    scored = judged.aggregate()
    assert scored["judge_groundedness"] == scored["judge_correctness"] == 3.0
    ledger = {"judged": wanted[1], "unscored": wanted[2], "not_judged": 2, "cached": 0}
    assert scored["ledger"]["judgements"] == {"correctness": ledger, "groundedness": ledger}
    assert scored["ledger"]["metrics"]["judge_groundedness"] == {"scored": wanted[1], "not_applicable": 2 + wanted[2]}


def test_a_second_reply_that_can_be_read_counts(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = [kind for kind in KINDS if kind != "good"]
    filled(workspace, {kind: row(kind, f"REPLY:{kind}:once SCORE:2") for kind in kinds})
    found = judge(capsys, *arguments(workspace, server, "--rubric", "correctness"))
    assert (found["rubrics"][0]["judged"], found["rubrics"][0]["unscored"]) == (len(kinds), 0)
    assert workspace.aggregate()["judge_correctness"] == 2.0


def test_the_judge_is_asked_in_its_own_way(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(workspace, {"q1": row("q1", "The answer.")})
    shapes = {"m": ("authorization", f"Bearer {KEY}"), "anthropic:m": ("x-api-key", KEY)}
    for model, (header, value) in shapes.items():
        judge(capsys, *arguments(workspace, server, "--rubric", "groundedness", model=model))
        last = server.log()[-1]
        assert last["headers"][header] == value
        assert last["body"]["temperature"] == 0
        prompt = last["body"]["messages"][0]["content"]
        assert "A short text, stored whole." in prompt
        assert "what is q1?" in prompt
        assert "a fact" not in prompt
    judge(capsys, *arguments(workspace, server, "--rubric", "correctness"))
    assert "- a fact" in server.log()[-1]["body"]["messages"][0]["content"]


# --- once -----------------------------------------------------------------------------------------------------


def test_the_same_input_is_asked_once_and_anything_else_is_asked_again(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rubric = tmp_path / "tone.md"
    rubric.write_text("---\nname: tone\nscale: 0-5\n---\nIs {{ answer }} polite, with {{ context }}?\n")
    # Two queries with the same row but for their ids have the same input, if the question is the same.
    rows = {"q1": row("q1", "The answer.", query="the question"), "q2": row("q2", "The answer.", query="the question")}
    filled(workspace, rows)

    def requests(*more: str, model: str = "m") -> int:
        before = sent(server)
        judge(capsys, *arguments(workspace, server, "--rubric", str(rubric), *more, model=model))
        return sent(server) - before

    assert requests() == 1
    assert workspace.execute("SELECT COUNT(*), COUNT(DISTINCT judgement_key) FROM kbeval_judged") == [(2, 1)]
    assert requests() == 0
    assert requests(model="other") == 1
    assert requests("--judge-temperature", "0.5") == 1
    assert requests("--judge-temperature", "0.5") == 0
    rubric.write_text(rubric.read_text() + " ")
    assert requests() == 1
    workspace.execute("UPDATE eval_query_results SET result_json = replace(result_json, 'short', 'brief')")
    assert requests() == 1
    assert requests() == 0
    # Back to what was judged before: known, and said to be.
    workspace.execute("UPDATE eval_query_results SET result_json = replace(result_json, 'brief', 'short')")
    assert requests() == 0
    assert run(["explain", "judge_tone", "--db", str(workspace.db)]) == 0
    assert "per_judgement" in capsys.readouterr().out
    found = workspace.aggregate()
    assert found["judge_tone"] == 5.0
    assert found["ledger"]["judgements"]["tone"]["cached"] == 2
    assert (found["judge_tokens"], found["provenance"]["judge"]["tone"]["model"]) == (0.0, "local:m")


def test_every_byte_that_a_judge_read_is_stored_once(
    judged: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    judge(capsys, *arguments(judged, server))
    stored = judged.execute("SELECT input_hash, input_json FROM kbeval_judge_inputs")
    assert len(stored) == 2 * len(KINDS)
    prompts = set()
    for input_hash, text in stored:
        assert input_hash == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        prompts.add(json.loads(text)["prompt"])
    asked = {entry["body"]["messages"][0]["content"] for entry in server.log()[-3 * len(KINDS) :]}
    assert {prompt for prompt in asked if "That reply" not in prompt} <= prompts


def test_stored_judgements_are_never_changed(
    judged: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    judge(capsys, *arguments(judged, server))
    tables = ("kbeval_judgements", "kbeval_judged", "kbeval_judgings", "kbeval_judge_inputs")
    before = {table: set(judged.execute(f"SELECT * FROM {table}")) for table in tables}
    judge(capsys, *arguments(judged, server, model="other"))
    judge(capsys, *arguments(judged, server, "--spot-check", "3"))
    for table in tables:
        assert before[table] <= set(judged.execute(f"SELECT * FROM {table}")), table


# --- money ----------------------------------------------------------------------------------------------------


def test_cost_comes_from_usage_and_prices(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    filled(workspace, {f"q{n}": row(f"q{n}", f"Answer {n}.") for n in range(3)})
    unknown = judge(capsys, *arguments(workspace, server))
    assert [result["cost_usd"] for result in unknown["rubrics"]] == [None, None]
    assert "judge_cost_usd" not in workspace.aggregate()
    (tmp_path / "kbeval.toml").write_text(PRICES)
    known = judge(capsys, *arguments(workspace, server, model="anthropic:m"))
    assert [result["cost_usd"] for result in known["rubrics"]] == pytest.approx([3 * COST] * 2)
    assert workspace.aggregate()["judge_cost_usd"] == pytest.approx(6 * COST, abs=1e-4)
    # A server that does not say what it used has an unknown cost, whatever the price.
    (tmp_path / "kbeval.toml").write_text(PRICES.replace("prices.m", "prices.silent"))
    silent = judge(capsys, *arguments(workspace, server, model="silent"))
    assert [(result["tokens"], result["cost_usd"]) for result in silent["rubrics"]] == [(None, None)] * 2
    assert workspace.execute("SELECT DISTINCT cost_usd FROM kbeval_judgements WHERE model = 'silent'") == [(None,)]
    assert "judge_cost_usd" not in workspace.aggregate()
    assert judge(capsys, *arguments(workspace, server, model="anthropic:m"))["rubrics"][0]["cost_usd"] == 0


def test_an_estimate_sends_and_stores_nothing(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    filled(workspace, {f"q{n}": row(f"q{n}", f"Answer {n}.") for n in range(3)})
    (tmp_path / "kbeval.toml").write_text(PRICES)
    before, bytes_before = sent(server), workspace.db.read_bytes()
    found = judge(capsys, *arguments(workspace, server, "--dry-run"))
    assert (sent(server), workspace.db.read_bytes()) == (before, bytes_before)
    assert (found["questions"], found["cached"]) == (6, 0)
    assert 0 < found["cost_usd"] < 0.1
    judge(capsys, *arguments(workspace, server))
    found = judge(capsys, *arguments(workspace, server, "--dry-run"))
    assert (found["questions"], found["cached"], found["cost_usd"]) == (6, 6, 0)
    checked = judge(capsys, *arguments(workspace, server, "--dry-run", "--spot-check", "2"))
    assert (checked["questions"], checked["cached"]) == (10, 6)
    assert checked["cost_usd"] > 0
    (tmp_path / "kbeval.toml").unlink()
    assert judge(capsys, *arguments(workspace, server, "--dry-run", model="x"))["cost_usd"] is None


def test_the_budget_is_kept_and_the_rest_is_judged_later(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    filled(workspace, {f"q{n:02}": row(f"q{n:02}", f"Answer {n}.") for n in range(20)})
    command = [*arguments(workspace, server), "--rubric", "correctness"]
    assert run([*command, "--max-cost", "1"]) == 2
    assert "needs the price of m" in capsys.readouterr().err
    (tmp_path / "kbeval.toml").write_text(PRICES)
    assert run([*command, "--max-cost", "0.05"]) == 2
    said = capsys.readouterr().err
    assert "--max-cost 0.05 allows no further question: 0.0" in said
    assert "run the same command again" in said
    ((spent, some),) = workspace.execute("SELECT SUM(cost_usd), COUNT(*) FROM kbeval_judgements")
    assert 0 < spent <= 0.05
    # Up to what the longest reply would cost, not up to what was in flight at once.
    assert spent > 0.02
    assert 0 < some < 20
    assert "judge_correctness" not in workspace.aggregate(), "an unfinished judging does not count"
    found = judge(capsys, *command, "--max-cost", "1")
    assert found["requests"] == 20 - some
    assert workspace.execute("SELECT COUNT(*) FROM kbeval_judgings") == [(1,)]
    assert workspace.aggregate()["ledger"]["judgements"]["correctness"]["judged"] == 20


def test_a_budget_that_no_question_fits_into_says_so(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    filled(workspace, {"q1": row("q1", "An answer.")})
    (tmp_path / "kbeval.toml").write_text(PRICES)
    before = sent(server)
    assert run([*arguments(workspace, server), "--max-cost", "0.001"]) == 2
    said = capsys.readouterr().err
    assert "allows no further question: 0.0000 US dollars were spent, and one may cost up to 0.0" in said
    assert "with a higher --max-cost" in said
    assert "run the same command again" not in said
    assert sent(server) == before


# --- trouble --------------------------------------------------------------------------------------------------


def test_a_judge_that_is_down_is_an_error_and_not_a_score(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(workspace, {f"q{n}": row(f"q{n}", f"Answer {n}.") for n in range(8)})
    for fault, said in (("400", "rejects all questions"), ("403", "refuses requests"), ("500", "does not answer")):
        server.set(faults=[{"kind": fault, "always": True}])
        assert run(arguments(workspace, server)) == 2
        found = capsys.readouterr()
        assert said in found.err
        assert found.out == ""
        assert workspace.execute("SELECT COUNT(*) FROM kbeval_judgements") == [(0,)]
        assert "judge_groundedness" not in workspace.aggregate()
    server.set(faults=[])
    assert judge(capsys, *arguments(workspace, server))["requests"] == 16


@pytest.mark.parametrize("model", ["thinking", "anthropic:thinking", "openai:thinking"])
def test_a_model_that_takes_no_temperature_is_asked_without_one(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    filled(workspace, {f"q{n:02}": row(f"q{n:02}", f"Answer {n}.") for n in range(30)})
    before = server.counts()["requests"]
    assert run(arguments(workspace, server, model=model)) == 2
    said = capsys.readouterr().err
    assert "--judge-temperature none" in said
    # Not all 60 questions were asked in vain.
    assert server.counts()["requests"] - before < 40
    more = ["--judge-temperature", "none", "--judge-max-tokens", "900"]
    found = judge(capsys, *arguments(workspace, server, *more, model=model))
    assert [rubric["judged"] for rubric in found["rubrics"]] == [30, 30]
    ((parameters,),) = workspace.execute("SELECT DISTINCT parameters_json FROM kbeval_judgements")
    assert json.loads(parameters)["temperature"] is None
    assert json.loads(parameters)["max_tokens"] == 900
    last = server.log()[-1]["body"]
    assert "temperature" not in last
    assert last.get("max_tokens", last.get("max_completion_tokens")) == 900


def test_the_judge_of_the_config_file(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    filled(workspace, {"q1": row("q1", "Answer.")})
    config = f'[judge]\nmodel = "thinking"\nbase_url = "{server.url}/v1"\n'
    (tmp_path / "kbeval.toml").write_text(config + 'temperature = "none"\nmax_tokens = 700\n')
    found = judge(capsys, "judge", "run", "--db", str(workspace.db), "--golden", str(workspace.golden))
    assert found["requests"] == 2
    assert server.log()[-1]["body"]["max_tokens"] == 700
    for line, said in (
        ('temperature = "warm"', "judge.temperature must be a number from 0 to 2"),
        ("temperature = 3", "judge.temperature must be a number from 0 to 2"),
        ("max_tokens = 0", "judge.max_tokens must be a whole number above 0"),
        ("max_tokens = true", "judge.max_tokens must be a whole number above 0"),
    ):
        (tmp_path / "kbeval.toml").write_text(f"{config}{line}\n")
        assert run(["judge", "run", "--db", str(workspace.db)]) == 2
        assert said in capsys.readouterr().err, line


def test_a_judge_that_cannot_be_reached_is_not_asked(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    filled(workspace, {"q1": row("q1", "Answer.")})
    where = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    assert run(["judge", "run", *where, "--judge-model", "m", "--judge-base-url", "http://127.0.0.1:1/v1"]) == 2
    assert "cannot be reached: no connection to 127.0.0.1:1: Connection refused" in capsys.readouterr().err


def test_what_failed_is_asked_again_by_the_same_command(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(workspace, {f"q{n}": row(f"q{n}", f"Answer {n}.") for n in range(8)})
    server.set(faults=[{"kind": "500", "every": 4}])
    assert run(arguments(workspace, server)) == 2
    assert "4 questions to m failed" in capsys.readouterr().err
    server.set(faults=[])
    assert judge(capsys, *arguments(workspace, server))["requests"] == 4
    assert workspace.aggregate()["ledger"]["judgements"]["groundedness"]["judged"] == 8


def test_one_answer_that_the_server_rejects_is_unscored(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(workspace, {f"q{n}": row(f"q{n}", f"Answer {n}.") for n in range(4)})
    server.set(faults=[{"kind": "400", "first": 1}])
    found = judge(capsys, *arguments(workspace, server, "--rubric", "correctness"))
    assert (found["rubrics"][0]["judged"], found["rubrics"][0]["unscored"]) == (3, 1)
    ((why,),) = workspace.execute("SELECT why FROM kbeval_judgements WHERE state = 'unscored'")
    assert "HTTP 400" in why


def test_usage_errors_say_what_to_do(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(workspace, {"q1": row("q1", "Answer.")})
    files = ["--db", str(workspace.db), "--golden", str(workspace.golden)]
    monkeypatch.delenv("OPENAI_API_KEY")
    for more, said in (
        ([], "--judge-model"),
        (["--judge-model", "m"], "--judge-base-url"),
        (["--judge-model", "m", "--judge-base-url", "localhost"], "is not an address"),
        (["--judge-model", "m", "--judge-base-url", "http://u:p@localhost/v1"], "password"),
        (["--judge-model", "openai:m", "--judge-base-url", f"{server.url}/v1"], "OPENAI_API_KEY is not set"),
        (["--judge-model", "m", "--judge-base-url", server.url, "--rubric", "nope.md"], "no rubric 'nope.md'"),
        (["--judge-model", "m", "--judge-base-url", server.url, "--second-judge-model", "x"], "require --spot-check"),
        (["--judge-model", "m", "--judge-base-url", f"{server.url}/nowhere"], "HTTP 404"),
    ):
        assert run(["judge", "run", *files, *more]) == 2
        found = capsys.readouterr()
        assert said in found.err
        assert len(found.err.strip().splitlines()) == 1
        assert "p@localhost" not in found.err


def started(workspace: Workspace, server: JudgeServer) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kbeval", *arguments(workspace, server), "--concurrency", "4"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ctrl_c_stores_what_was_answered_and_says_how_to_continue(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(workspace, {f"q{n:02}": row(f"q{n:02}", f"Answer {n}.") for n in range(40)})
    server.set(delay=0.2)
    before = sent(server)
    process = started(workspace, server)
    wait_until(lambda: sent(server) > before + 8)
    # Meanwhile no other process may judge it: everything would be asked twice.
    assert run(arguments(workspace, server)) == 2
    assert "is being judged by another process" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "run the same command again" in err
    assert "Traceback" not in err
    ((stored,),) = workspace.execute("SELECT COUNT(*) FROM kbeval_judgements")
    asked = sent(server) - before
    assert 8 <= stored == asked < 80
    server.set(delay=0)
    assert judge(capsys, *arguments(workspace, server))["requests"] == 80 - stored


# --- the context ------------------------------------------------------------------------------------------------


def cut_row(**more: Any) -> dict[str, Any]:
    hit = {"rank": 1, "chunk_id": "c1", "chunker_version": "md@1", "text": WHOLE[:200] + "...", **more}
    return row("q1", "The answer.") | {"hits_top_k": [hit]}


def context_of(workspace: Workspace) -> list[Any]:
    ((text,),) = workspace.execute("SELECT input_json FROM kbeval_judge_inputs")
    found: list[Any] = [json.loads(text)["context"], json.loads(text)["prompt"].count(WHOLE.strip())]
    return found


def test_a_context_that_was_cut_is_refused_unless_allowed(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(workspace, {"q1": cut_row()})
    before = sent(server)
    command = arguments(workspace, server, "--rubric", "groundedness")
    for more in ([], ["--dry-run"]):
        assert run([*command, *more]) == 2
        assert "--allow-cut-context" in capsys.readouterr().err
    assert sent(server) == before
    # A rubric that does not read the context is not affected.
    assert run(arguments(workspace, server, "--rubric", "correctness")) == 0
    assert run([*command, "--allow-cut-context"]) == 0
    assert "this is recorded" in capsys.readouterr().err
    options = [json.loads(text) for (text,) in workspace.execute("SELECT options_json FROM kbeval_judgings ORDER BY 1")]
    assert {"allow_cut_context": True, "cut_contexts": 1} in options
    assert workspace.aggregate()["provenance"]["judge"]["groundedness"]["cut_contexts"] == 1


@pytest.mark.parametrize(
    ("more", "chunk", "version", "is_whole"),
    [
        ({}, WHOLE, "md@1", True),
        ({}, WHOLE, "md@2", False),
        ({}, "Other text. " + WHOLE, "md@1", False),
        ({"text_sha256": hashlib.sha256(WHOLE.encode()).hexdigest()}, WHOLE, "md@2", True),
        ({"text_sha256": hashlib.sha256(WHOLE.encode()).hexdigest()}, WHOLE + ".", "md@1", False),
        ({"text": ""}, WHOLE, "md@1", True),
    ],
)
def test_the_whole_text_is_taken_from_the_chunks_where_it_is_proven_to_be_the_same(
    workspace: Workspace,
    server: JudgeServer,
    capsys: pytest.CaptureFixture[str],
    more: dict[str, Any],
    chunk: str,
    version: str,
    is_whole: bool,
) -> None:
    filled(workspace, {"q1": cut_row(**more)})
    workspace.add_chunk("c1", "d1", [], version)
    workspace.execute("UPDATE chunks SET text = ?", (chunk,))
    code = run(arguments(workspace, server, "--rubric", "groundedness"))
    assert code == (0 if is_whole else 2)
    if is_whole:
        where, times = context_of(workspace)
        assert where == [{"rank": 1, "chunk_id": "c1", "from": "chunks", "is_cut": False}]
        assert times == 1


# --- a second opinion -------------------------------------------------------------------------------------------


def test_a_spot_check_shows_how_well_judges_agree(
    workspace: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(workspace, {f"q{n:02}": row(f"q{n:02}", f"Answer {n}. SCORE:{n % 6}") for n in range(24)})
    command = arguments(workspace, server, "--rubric", "correctness", "--spot-check", "12")
    same = judge(capsys, *command)["spot_check"]
    assert same["agreement"]["correctness"] == {
        "pairs": 12,
        "exact": 1.0,
        "within_one": 1.0,
        "mean_shift": 0.0,
        "kappa": 1.0,
        "kappa_interval": [1.0, 1.0],
    }
    assert same["differing"] == []
    before = sent(server)
    assert judge(capsys, *command)["spot_check"] == same | {"cost_usd": 0}
    assert sent(server) == before, "the second opinion is kept, too"
    harsh = judge(capsys, *command, "--second-judge-model", "harsh")["spot_check"]
    assert (harsh["judge"], sent(server) - before) == ("harsh", 12)
    found = harsh["agreement"]["correctness"]
    assert found["within_one"] == 1.0
    assert found["mean_shift"] == -1 + found["exact"]
    assert 0.5 < found["kappa"] < 1
    low, high = found["kappa_interval"]
    assert low < found["kappa"] < high
    assert all(one["first"] - one["second"] == 1 for one in harsh["differing"])
    # It is not a judging of the run.
    assert workspace.execute("SELECT COUNT(*) FROM kbeval_judgings") == [(1,)]
    assert workspace.aggregate()["judge_correctness"] == 2.5


# --- secrets ------------------------------------------------------------------------------------------------------


def test_no_key_is_left_behind_anywhere(
    judged: Workspace, server: JudgeServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = ""
    for model in ("m", "openai:m", "anthropic:m"):
        for faults in ([{"kind": "echo", "always": True}], []):
            server.set(faults=faults)
            run([*arguments(judged, server, model=model), "--spot-check", "2"])
            found = capsys.readouterr()
            said += found.out + found.err
    assert run(["score", "--all", "--db", str(judged.db), "--golden", str(judged.golden)]) == 0
    assert run(["show", "run", "--db", str(judged.db)]) == 0
    assert run(["archive", str(tmp_path / "history"), "--db", str(judged.db)]) == 0
    found = capsys.readouterr()
    assert KEY not in said + found.out + found.err
    assert KEY in server.log()[-1]["headers"].values(), "it was sent"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
