"""A folder with a golden file and a config file, a server, and `kbeval` in a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kbeval.cli import run
from tests.support.live_server import LiveServer

TARGET = """
[target]
type = "http"
url = "{url}/search"
body = {{ question = "{{{{ query }}}}", k = "{{{{ k }}}}" }}
timeout = 5
{more}
[target.response]
hits = "results[*].{{chunk_id: id, doc_id: doc, score: score, text: text}}"
answer = "answer"
"""


@dataclass
class Place:
    """A folder in which kbeval is run."""

    folder: Path

    @property
    def db(self) -> Path:
        return self.folder / "kb.db"

    def golden(self, count: int, **more: Any) -> None:
        entries = [
            {"id": f"q{n:03d}", "query": f"Question {n}?", "answerable": True, **more} for n in range(1, count + 1)
        ]
        (self.folder / "golden.json").write_text(json.dumps(entries))

    def config(self, text: str) -> None:
        (self.folder / "kbeval.toml").write_text(f'db = "kb.db"\ngolden = "golden.json"\n{text}')

    def http(self, url: str, more: str = "") -> None:
        self.config(TARGET.format(url=url, more=more))

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "kbeval", *words],
            cwd=self.folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command, in this process: starting another one takes longer than most."""
        with (
            contextlib.chdir(self.folder),
            patch.dict(os.environ, environment),
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            code = run(list(words))
        assert "Traceback" not in err.getvalue(), err.getvalue()
        return code, out.getvalue(), err.getvalue()

    def run_apart(self, *words: str, **environment: str) -> tuple[int, str, str]:
        """The same in a process of its own."""
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return process.returncode, out, err

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.db)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def results(self, run_id: str) -> dict[str, dict[str, Any]]:
        found = self.rows(f"SELECT query_id, result_json FROM eval_query_results WHERE run_id = '{run_id}'")
        return {query_id: json.loads(text) for query_id, text in found}

    def snapshot(self, run_id: str) -> dict[str, Any]:
        ((text,),) = self.rows(f"SELECT config_snapshot_json FROM eval_runs WHERE run_id = '{run_id}'")
        found: dict[str, Any] = json.loads(text)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.golden(5)
    return found


@pytest.fixture(scope="module")
def shared_server() -> Iterator[LiveServer]:
    with LiveServer() as server:
        yield server


@pytest.fixture
def server(shared_server: LiveServer) -> LiveServer:
    """A server without faults; requests are counted from the start of the module."""
    shared_server.set(
        faults=[], delay=0, retry_after=None, script=[], per_second=None, room=1_000_000, answers={}, index_down=False,
        unhealthy=False, slow_seconds=30,
    )  # fmt: skip
    return shared_server
