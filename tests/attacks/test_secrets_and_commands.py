"""Secrets, and text that a terminal, a CI runner or an XML parser would interpret."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from tests.attacks.places import Place, hits, results_folder, several

CANARY = "Zq7Xv3Kp9Tw2"
# Written for this file, in the spellings that configurations really have.
SECRETS: list[Any] = [
    {"apikey": CANARY},
    {"APIKEY": CANARY},
    {"api-key": CANARY},
    {"api.key": CANARY},
    {"api key": CANARY},
    {"openaiApiKey": CANARY},
    {"OPENAI_KEY": f"sk-{CANARY}{CANARY}"},
    {"accesskey": CANARY},
    {"AWS_SECRET_ACCESS_KEY": CANARY},
    {"azure_account_key": CANARY},
    {"bearer": CANARY},
    {"Authorization": f"Bearer {CANARY}"},
    {"auth": f"user:{CANARY}"},
    {"basic_auth": ["user", CANARY]},
    {"cookie": f"session={CANARY}"},
    {"session_id": CANARY},
    {"pwd": CANARY},
    {"passwd": CANARY},
    {"PGPASSWORD": CANARY},
    {"passphrase": CANARY},
    {"credentials": {"user": "me", "value": CANARY}},
    {"private_key": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----"},
    {"jwt": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI{CANARY}.{CANARY}abcdefgh"},
    {"connection_string": f"Server=db;User=me;Password={CANARY}"},
    {"dsn": f"https://{CANARY}@sentry.example/1"},
    {"sas": f"sv=2022&sig={CANARY}"},
    {"webhook": f"https://hooks.slack.com/services/T000/B000/{CANARY}"},
    {"headers": {"X-Api-Key": CANARY}},
    {"headers": [["X-Api-Key", CANARY]]},
    {"headers": [f"Authorization: Bearer {CANARY}"]},
    {"env": [{"name": "OPENAI_API_KEY", "value": CANARY}]},
    {"environment": [f"OPENAI_API_KEY={CANARY}"]},
    {"command": f"serve --token {CANARY} --k 5"},
    {"command": ["serve", "--api-key", CANARY]},
    {"note": f"sk-proj-{CANARY}_{CANARY}"},
    {"note": f"ghp_{CANARY}{CANARY}{CANARY}"},
    {"note": f"xoxb-123456789012-{CANARY}"},
    {"note": f"glpat-{CANARY}abcdefgh"},
    {"note": f"hf_{CANARY}abcdefghijklmnop"},
    {"url": f"https://me:{CANARY}@host/"},
    {"url": f"https://{CANARY}@github.com/org/repo.git"},
    {"url": f"redis://:{CANARY}@cache:6379/0"},
    {"url": f"https://host/v1?api_key={CANARY}&k=5"},
    {"url": f"https://x.blob.core.windows.net/c/f?sv=2022-11-02&sig={CANARY}"},
    {"list": [{"deep": [{"llm": {"token": CANARY}}]}]},
]


def test_secrets_in_configurations_are_hidden(place: Place) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    for number, config in enumerate(SECRETS):
        place.run(f"run{number:02}", {"q": {"hits_top_k": hits("c")}}, config={"chunker_version": "md@1", **config})
    found, compared = place.several(
        ["sql", "SELECT run_id, config FROM runs ORDER BY run_id", "--format", "json"],
        ["compare", "run00", "run39", "--format", "json"],
    )
    assert found.returncode == 0, found.stderr
    rows = json.loads(found.stdout)
    assert len(rows) == len(SECRETS)
    shown = [SECRETS[int(row["run_id"][3:])] for row in rows if CANARY.lower() in json.dumps(row["config"]).lower()]
    assert "run39" in compared.stdout
    assert CANARY not in compared.stdout + compared.stderr
    assert shown == [], f"{len(shown)} of {len(SECRETS)} are shown"


def test_export_anchors_writes_no_secret(tmp_path: Path) -> None:
    source = results_folder(tmp_path / "run", {"api_key": CANARY, "url": f"https://me:{CANARY}@host/", "k": 5})
    (tmp_path / "golden.json").write_text(json.dumps([{"id": "t", "query": "?", "expected_doc_ids": ["p"]}]))
    database = ["--db", str(tmp_path / "a.db")]
    made, found = several(
        ["import", "anchors", str(source), *database],
        ["export", "anchors", "run", "out", *database, "--golden", "golden.json"],
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "out" / "summary.md").exists()
    assert [path.name for path in (tmp_path / "out").iterdir() if CANARY in path.read_text()] == []


def runner_commands_in(text: str) -> list[str]:
    """Lines that GitHub's runner would execute: the new form at the beginning of a line, the old one anywhere in it."""
    lines = re.split(r"[\r\n]", text)
    return [line for line in lines if re.match(r"\s*::[^:]+::", line) or re.search(r"##\[[^\]]+\]", line)]


COMMANDS = [
    ["runs"],
    ["show", "n##[set-output name=x]y"],
    ["sql", "SELECT run_id FROM runs"],
    ["sql", "SELECT run_id FROM runs", "--format", "csv"],
    ["gate", "n##[set-output name=x]y", "--min", "mrr=0.5", "--format", "github"],
    ["show", "no such ##[error]run"],
    # Last, because it stores something.
    ["score", "--all"],
]


def test_no_runner_command_is_printed(place: Place) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    place.run("n##[set-output name=x]y", {"q": {"hits_top_k": hits("c")}})
    completed = [place.completed(*command, golden=command[0] != "runs") for command in COMMANDS]
    for command, found in zip(COMMANDS, several(*completed, cwd=place.folder), strict=True):
        said = found.stdout + found.stderr
        assert said, command
        if "github" in command:
            said = (
                "\n".join(line for line in said.splitlines() if "##" in line)
                .replace("::notice", "notice")
                .replace("::error", "error")
            )
        assert runner_commands_in(said) == [], command


def test_junit_is_well_formed(place: Place) -> None:
    place.label({"id": "q", "expected_chunk_ids": ["c"]})
    names = [f"a{character}b" for character in "\ufffe\uffff"]
    for name in names:
        place.run(name, {"q": {"hits_top_k": hits(None)}})
    for found in place.several(*(["gate", name, "--min", "mrr=0.5", "--format", "junit"] for name in names)):
        assert found.returncode == 1, found
        root = ET.fromstring(found.stdout)
        assert root.get("failures") == "1", found
