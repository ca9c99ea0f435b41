"""Secrets of a target are in no byte that a run leaves behind, whatever the server does with them."""

from __future__ import annotations

import base64
import urllib.parse
from pathlib import Path

import pytest

from tests.live.conftest import Place
from tests.support.live_server import LiveServer

TOKEN, KEY, LITERAL, PASSWORD = (
    "Zq9-correct horse/battery+staple",
    "k3y&with=odd?chars",
    "lit-8f3a2b1c9d0e",
    "pa55-w0rd-77aa",
)


def forms(secret: str) -> set[str]:
    return {
        secret,
        urllib.parse.quote(secret),
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
        base64.b64encode(secret.encode()).decode(),
    }


def test_no_secret_is_in_any_byte_that_a_run_leaves_behind(
    place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place.golden(6)
    temporary: Path = tmp_path_factory.mktemp("tmp")
    said: list[str] = []
    with LiveServer() as server:
        login = server.url.replace("http://", f"http://user:{PASSWORD}@")
        place.config(
            f"""
[target]
type = "http"
url = "{server.url}/search?api_key=${{SEARCH_KEY}}"
headers = {{ Authorization = "Bearer ${{SEARCH_TOKEN}}", X-Api-Key = "{LITERAL}" }}
body = {{ question = "{{{{ query }}}}", session = "${{SEARCH_TOKEN}}" }}
attempts = 2
[target.response]
hits = "results[*].{{chunk_id: id, text: text}}"
answer = "answer"
[targets.login]
type = "http"
url = "{login}/search"
attempts = 1
body = {{ question = "{{{{ query }}}}" }}
response = {{ hits = "results[*].id", answer = "answer" }}
"""
        )
        environment = {"SEARCH_TOKEN": TOKEN, "SEARCH_KEY": KEY, "TMPDIR": str(temporary)}
        server.set(
            answers={"Question 1?": {"results": [{"id": "c1"}], "answer": f"your password is {PASSWORD}"}},
            faults=[{"kind": "echo", "queries": ["Question 2?"]}],
        )
        for words in (
            ["run", "--dry-run", "--target", "login"],
            ["run", "--run-id", "login", "--target", "login", "--verbose", "--max-errors", "100%"],
        ):
            code, out, err = place.run_apart(*words, **environment)
            assert code == 0, err
            said += [out, err]
        everything = f"{TOKEN} {KEY} {LITERAL}"
        echoed = {"results": [{"id": f"c {TOKEN}", "text": everything}], "answer": f"you sent {everything}"}
        server.set(
            answers={"Question 1?": echoed},
            faults=[
                {"kind": "echo", "queries": ["Question 2?"]},
                {"kind": "502", "queries": ["Question 3?"]},
                {"kind": "redirect_away", "queries": ["Question 4?"]},
                {"kind": "half", "queries": ["Question 5?"]},
            ],
        )
        for words in (
            ["run", "--dry-run"],
            ["run", "--run-id", "stopped", "--verbose", "--max-errors", "1", "--concurrency", "1"],
            ["run", "--run-id", "r", "--verbose", "--max-errors", "100%", "--store-full-text"],
            ["runs"],
            ["runs", "--format", "json"],
            ["score", "--all"],
            ["show", "r", "--query", "q001"],
            ["show", "r", "--query", "q002"],
            ["report", "r"],
            ["gate", "r", "--max", "error_rate=1"],
            ["export", "duckdb", "everything.duckdb"],
            ["archive", "archived"],
            ["pipeline", "--run-id", "evening", "--no-input", "--max-errors", "100%"],
            ["config"],
            ["config", "--format", "json"],
            ["sql", "SELECT * FROM results", "--format", "json"],
            ["sql", "SELECT * FROM runs", "--format", "json"],
        ):
            code, out, err = place.run(*words, **environment)
            assert code == 0 or words[2] == "stopped", (words, err)
            said += [out, err]
        # The secrets were really sent.
        assert base64.b64encode(f"user:{PASSWORD}".encode()).decode() in server.log()[0]["headers"]["authorization"]
        sent = server.log()[-1]
        assert sent["headers"]["authorization"] == f"Bearer {TOKEN}"
        assert sent["headers"]["x-api-key"] == LITERAL
        assert urllib.parse.quote(KEY, safe="") in sent["path"] or KEY in sent["path"]
    config = place.folder / "kbeval.toml"
    files = [path for folder in (place.folder, temporary) for path in folder.rglob("*") if path.is_file()]
    assert place.db in files
    assert {"report.html", "summary.md", "everything.duckdb"} <= {path.name for path in files}
    found = {str(path): path.read_bytes() for path in files if path != config}
    found |= {f"output {number}": text.encode() for number, text in enumerate(said)}
    for secret in (TOKEN, KEY, LITERAL, PASSWORD):
        for form in forms(secret):
            for name, content in found.items():
                assert form.encode() not in content, (name, form)
    # The rows are there, with the secrets replaced.
    assert "(hidden)" in place.results("r")["q001"]["answer"]["answer"]
    assert place.results("r")["q001"]["hits_top_k"][0]["chunk_id"] == "c (hidden)"


def test_the_configuration_shows_the_target_without_secrets(place: Place) -> None:
    place.config(
        '[target]\ntype = "http"\nurl = "http://localhost:9/x"\nheaders = {Authorization = "Bearer abc-123-def-456"}\n'
        'body = { q = "{{ query }}" }\nresponse = { hits = "results" }\n'
    )
    code, out, _ = place.run("config")
    assert code == 0
    assert "target.url" in out
    assert "http://localhost:9/x" in out
    assert "target.headers.Authorization" in out
    assert "abc-123-def-456" not in out
    assert "(hidden" in out
