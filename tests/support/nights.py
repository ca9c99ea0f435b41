"""Databases that people edit between two nights, for tests to score again."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbeval.scoring.aggregate import Scored, score_runs, store_scored
from kbeval.scoring.incremental import Due, due_runs, rescore
from kbeval.scoring.options import ScoreOptions
from tests.support.workspace import Workspace, hits

Edit = tuple[str, tuple[Any, ...]]


class Night(Workspace):
    """A workspace that is scored as `kbeval score --all` does it."""

    def due(self, *, force: bool = False, **options: Any) -> Due:
        return due_runs(self.db, self.golden, ScoreOptions(**options), force=force)

    def reasons(self, **options: Any) -> dict[str, list[str]]:
        return self.due(**options).reasons

    def night(self, *, force: bool = False, **options: Any) -> dict[str, list[str]]:
        """Score what is due and store it, step by step; says what it was, and why."""
        due = self.due(force=force, **options)
        rescore(self.db, due, ScoreOptions(**options), self.store)
        return due.reasons

    def night_of(self, *run_ids: str, **options: Any) -> None:
        """Score these runs, due or not, and store them."""
        self.store(score_runs(self.db, self.golden, run_ids, ScoreOptions(**options), to_store=True))

    def store(self, scored: Scored) -> None:
        store_scored(scored, db=self.db)

    def numbers(self) -> dict[str, str]:
        """Every stored aggregate, unchanged."""
        return dict(self.execute("SELECT run_id, aggregate_json FROM eval_runs"))

    def copy(self, folder: Path) -> Night:
        """The same database and labels in another folder."""
        folder.mkdir()
        for name in (self.db, self.golden):
            shutil.copy(name, folder / name.name)
        return Night(folder, self.db.name)

    def fill(self, runs: int, queries: int, n_hits: int) -> None:
        """Many rows, all different."""
        draw = random.Random(runs).randrange
        label = [{"id": f"q{n}", "expected_chunk_ids": [f"c{n}"], "expected_doc_ids": ["d1"]} for n in range(queries)]
        self.add_golden(*label)
        for number in range(runs):
            rows = {
                f"q{n}": {"hits_top_k": hits(*(f"c{n + draw(20 * place + 2)}" for place in range(n_hits)), doc=f"d{n}")}
                for n in range(queries)
            }
            self.add_run(f"run{number:02}", rows, created_at=f"2026-01-01T{number:02}")

    def edit(self, *edits: Edit) -> None:
        for sql, parameters in edits:
            self.execute(sql, parameters)


def set_row(run_id: str, query_id: str, row: Mapping[str, Any]) -> Edit:
    return "INSERT OR REPLACE INTO eval_query_results VALUES (?, ?, ?)", (run_id, query_id, json.dumps(row))


def drop_row(run_id: str, query_id: str) -> Edit:
    return "DELETE FROM eval_query_results WHERE run_id = ? AND query_id = ?", (run_id, query_id)


def set_config(run_id: str, config: Mapping[str, Any]) -> Edit:
    sql = (
        "INSERT INTO eval_runs VALUES (?, 'suite', ?, '', NULL, '2026-01-01')"
        " ON CONFLICT (run_id) DO UPDATE SET config_snapshot_json = excluded.config_snapshot_json"
    )
    return sql, (run_id, json.dumps(config))


def drop_run(run_id: str) -> Sequence[Edit]:
    return [(f"DELETE FROM {table} WHERE run_id = ?", (run_id,)) for table in ("eval_query_results", "eval_runs")]


def set_chunk(chunk_id: str, doc_id: str, version: str, spans: Any) -> Edit:
    sql = "INSERT OR REPLACE INTO chunks VALUES (?, ?, 'text', '[]', NULL, ?, 1, ?, 'p', '[]', 'now')"
    return sql, (chunk_id, doc_id, json.dumps(spans), version)


def drop_chunk(chunk_id: str) -> Edit:
    return "DELETE FROM chunks WHERE chunk_id = ?", (chunk_id,)


def set_document(doc_id: str, path: str) -> Edit:
    return "INSERT OR REPLACE INTO documents VALUES (?, ?, NULL, NULL)", (doc_id, path)


def drop_document(doc_id: str) -> Edit:
    return "DELETE FROM documents WHERE doc_id = ?", (doc_id,)
