"""Real SQLite files with real rows, for tests to score."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kbeval.engine.relations import read_sql
from kbeval.scoring.aggregate import Scored, score_runs
from kbeval.scoring.options import ScoreOptions

Row = Mapping[str, Any] | str


class Workspace:
    """A database and a golden file in a folder."""

    def __init__(self, folder: Path, name: str = "kb.db") -> None:
        self.db = folder / name
        self.golden = folder / "golden.json"
        self.execute_script(read_sql("schema/workspace.sql"))

    def _connect(self) -> closing[sqlite3.Connection]:
        """A connection that does not wait for the disk: what a test writes need not survive a power failure."""
        connection = sqlite3.connect(self.db)
        connection.execute("PRAGMA synchronous = OFF")
        return closing(connection)

    def execute_script(self, sql: str) -> None:
        with self._connect() as connection:
            connection.executescript(sql)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connect() as connection, connection:
            return connection.execute(sql, parameters).fetchall()

    def add_golden(self, *entries: Mapping[str, Any]) -> None:
        filled = [{"query": f"what is {entry.get('id')}?", **entry} for entry in entries]
        self.golden.write_text(json.dumps(filled), encoding="utf-8")

    def add_run(
        self, run_id: str, rows: Mapping[str, Row], *, created_at: str = "2026-01-01", chunker: str = "md@1"
    ) -> None:
        with self._connect() as connection, connection:
            config = json.dumps({"chunker_version": chunker})
            connection.execute(
                "INSERT INTO eval_runs VALUES (?, 'suite', ?, '', NULL, ?)", (run_id, config, created_at)
            )
            for query_id, row in rows.items():
                text = row if isinstance(row, str) else json.dumps(row)
                connection.execute("INSERT INTO eval_query_results VALUES (?, ?, ?)", (run_id, query_id, text))

    def add_document(self, doc_id: str, path: str) -> None:
        self.execute("INSERT INTO documents VALUES (?, ?, NULL, NULL)", (doc_id, path))

    def add_chunk(self, chunk_id: str, doc_id: str, spans: Any, version: str = "md@1") -> None:
        self.execute(
            "INSERT INTO chunks VALUES (?, ?, 'text', '[]', NULL, ?, 1, ?, 'p', '[]', 'now')",
            (chunk_id, doc_id, json.dumps(spans), version),
        )

    def score(self, *runs: str, to_store: bool = False, **options: Any) -> Scored:
        return score_runs(self.db, self.golden, runs or None, ScoreOptions(**options), to_store=to_store)

    def aggregate(self, run_id: str = "run", **options: Any) -> dict[str, Any]:
        return self.score(run_id, **options).aggregates[run_id].to_dict()

    def stored(self, run_id: str = "run") -> str:
        ((text,),) = self.execute("SELECT aggregate_json FROM eval_runs WHERE run_id = ?", (run_id,))
        return str(text)


def hits(*chunk_ids: str | None, doc: str = "d1") -> list[dict[str, Any]]:
    """Hits in order; None is a chunk that is not expected."""
    return [
        {"rank": rank, "chunk_id": chunk or f"other-{rank}", "doc_id": doc}
        for rank, chunk in enumerate(chunk_ids, start=1)
    ]


def answer(text: str, *citations: Mapping[str, Any], grounded: bool | None = True) -> dict[str, Any]:
    """An answer as a row stores it."""
    cited = [{"marker": f"[#{number}]", "citation": citation} for number, citation in enumerate(citations, start=1)]
    return {"answer": text, "grounded": grounded, "refusal_reason": None, "citations": cited}


def without_privileges(*command: str) -> list[str]:
    """Drop the privileges of root, which may write anything, if the tests run as root."""
    if os.geteuid() != 0:
        return list(command)
    if shutil.which("setpriv") is None:
        pytest.skip("running as root without setpriv: file permissions mean nothing here")
    return ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *command]
