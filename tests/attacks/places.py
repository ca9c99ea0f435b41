"""Databases for attacks, and the program under attack.

Attacks use only the command line and public names, and create their data without kbeval, so that they also run against
another installation: KBEVAL_BIN=…/bin/kbeval KBEVAL_PYTHON=…/bin/python pytest tests/attacks
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

BIN = os.environ.get("KBEVAL_BIN") or str(Path(sys.executable).with_name("kbeval"))
PYTHON = os.environ.get("KBEVAL_PYTHON") or sys.executable

SCHEMA = """
CREATE TABLE documents (doc_id TEXT PRIMARY KEY, workspace_path TEXT NOT NULL UNIQUE, title TEXT, lang TEXT);
CREATE TABLE chunks (chunk_id TEXT PRIMARY KEY, doc_id TEXT NOT NULL, text TEXT NOT NULL,
    heading_path_json TEXT NOT NULL, section_label TEXT, source_spans_json TEXT NOT NULL,
    token_estimate INTEGER NOT NULL, chunker_version TEXT NOT NULL, policy_hash TEXT NOT NULL,
    block_ids_json TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE eval_runs (run_id TEXT PRIMARY KEY, suite TEXT NOT NULL, config_snapshot_json TEXT NOT NULL,
    aggregate_json TEXT NOT NULL, commit_hash TEXT, created_at TEXT NOT NULL);
CREATE TABLE eval_query_results (run_id TEXT NOT NULL REFERENCES eval_runs (run_id) ON DELETE CASCADE,
    query_id TEXT NOT NULL, result_json TEXT NOT NULL, PRIMARY KEY (run_id, query_id));
"""
# Without keys, as careless programs create them.
LOOSE = """
DROP TABLE eval_query_results; DROP TABLE eval_runs;
CREATE TABLE eval_runs (run_id TEXT {collate}, suite TEXT, config_snapshot_json TEXT, aggregate_json TEXT,
    commit_hash TEXT, created_at TEXT);
CREATE TABLE eval_query_results (run_id TEXT {collate}, query_id TEXT, result_json TEXT);
"""


class Place:
    """A folder with a database and a golden file."""

    def __init__(self, folder: Path, name: str = "kb.db", pragma: str = "") -> None:
        self.folder = folder
        self.db = folder / name
        self.golden = folder / "golden.json"
        self.script(pragma + SCHEMA)

    def script(self, sql: str) -> None:
        with closing(sqlite3.connect(self.db)) as connection:
            connection.executescript(sql)

    def sql(self, sql: str, parameters: Any = ()) -> list[Any]:
        with closing(sqlite3.connect(self.db)) as connection, connection:
            return connection.execute(sql, parameters).fetchall()

    def label(self, *entries: dict[str, Any]) -> None:
        self.golden.write_text(json.dumps([{"query": "what?", **entry} for entry in entries]))

    def run(self, run_id: str, rows: dict[str, Any], created_at: str = "2026-01-01", config: Any = None) -> None:
        config = {"chunker_version": "md@1"} if config is None else config
        with closing(sqlite3.connect(self.db)) as connection, connection:
            connection.execute(
                "INSERT INTO eval_runs VALUES (?, 'suite', ?, '', NULL, ?)", (run_id, json.dumps(config), created_at)
            )
            connection.executemany(
                "INSERT INTO eval_query_results VALUES (?, ?, ?)",
                ((run_id, query, row if isinstance(row, str) else json.dumps(row)) for query, row in rows.items()),
            )

    def document(self, chunk: str, doc: str, path: str, *spans: dict[str, Any]) -> None:
        self.sql("INSERT OR IGNORE INTO documents VALUES (?, ?, NULL, NULL)", (doc, path))
        self.sql(
            "INSERT INTO chunks VALUES (?, ?, 'text', '[]', NULL, ?, 1, 'md@1', 'p', '[]', 'now')",
            (chunk, doc, json.dumps(spans)),
        )

    def stored(self, run_id: str = "run") -> Any:
        ((text,),) = self.sql(
            "SELECT aggregate_json FROM eval_runs WHERE CAST(run_id AS BLOB) = CAST(? AS BLOB)", (run_id,)
        )
        return json.loads(text) if text else None

    def __call__(self, *arguments: str, golden: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        return kbeval(*self.completed(*arguments, golden=golden), cwd=self.folder, **options)

    def completed(self, *arguments: str, golden: bool = True) -> list[str]:
        """A command with the names of the database and the golden file, where it takes one."""
        return [*arguments, "--db", str(self.db), *(["--golden", str(self.golden)] if golden else [])]

    def several(self, *commands: Sequence[str], golden: bool = True) -> list[subprocess.CompletedProcess[str]]:
        """Several commands in a row, see `several`."""
        return several(*(self.completed(*command, golden=golden) for command in commands), cwd=self.folder)


def kbeval(
    *arguments: str, cwd: Path, timeout: float = 100, limit: Any = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KBEVAL_")}
    return subprocess.run(
        [BIN, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        preexec_fn=limit,
        check=False,
        env=clean | (env or {}),
    )


# Each command is what `python -m kbeval` makes of its arguments; it ends where the process would.
_SEVERAL = """
    import json, os, runpy, sys, tempfile

    class Ended(BaseException):
        pass

    def end(code):
        raise Ended(code)

    leave, os._exit = os._exit, end
    found = []
    for arguments in json.load(sys.stdin):
        sys.argv = ["kbeval", *arguments]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            sys.stdout, sys.stderr = (open(n, "w", encoding="utf-8", closefd=False) for n in (1, 2))
            try:
                runpy.run_module("kbeval", run_name="__main__", alter_sys=True)
                code = 0
            except (Ended, SystemExit) as ended:
                code = ended.args[0] if ended.args else 0
            sys.stdout.flush(), sys.stderr.flush()
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode("utf-8", "replace"))
        found.append([code, *texts])
    with open(sys.orig_argv[-1], "w") as file:
        json.dump(found, file)
    leave(0)
"""


def several(*commands: Sequence[str], cwd: Path, timeout: float = 100) -> list[subprocess.CompletedProcess[str]]:
    """Several commands, one after the other: what each does, not that it is a process, which would cost the most."""
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.json"
        done = subprocess.run(
            [PYTHON, "-c", textwrap.dedent(_SEVERAL), str(answers)],
            cwd=cwd,
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={name: value for name, value in os.environ.items() if not name.startswith("KBEVAL_")},
        )
        assert answers.exists(), done
        found = json.loads(answers.read_text())
    return [subprocess.CompletedProcess(command, *each) for command, each in zip(commands, found, strict=True)]


def python(code: str, *arguments: str, cwd: Path, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, "-c", textwrap.dedent(code), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def hits(*chunks: str | None, doc: str = "d1") -> list[dict[str, Any]]:
    return [
        {"rank": rank, "chunk_id": chunk or f"other-{rank}", "doc_id": doc}
        for rank, chunk in enumerate(chunks, start=1)
    ]


def answer(*citations: Any) -> dict[str, Any]:
    return {"answer": "yes", "grounded": True, "citations": [{"marker": "[#1]", "citation": one} for one in citations]}


def is_internal(text: str) -> bool:
    return "should not have happened" in text or "internal error" in text or "Traceback" in text


LONG_ROW = {"test_case_id": "t", "answer": "yes", "retrieved_chunks": [{"rel_path": "p", "text": "z" * 500}]}


def results_folder(folder: Path, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    (folder / "results.jsonl").write_text(json.dumps(LONG_ROW) + "\n")
    (folder / "config.json").write_text(json.dumps(config or {}))
    return folder
