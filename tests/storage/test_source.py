"""The protocol that every source of runs implements: enough of it to score rows that are only in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import kbeval
from kbeval.engine.session import Session
from kbeval.golden import load_golden
from kbeval.scoring.aggregate import aggregate_runs
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import Scoring
from kbeval.storage.runs import KeyFault, Run
from kbeval.storage.source import Source
from kbeval.storage.tables import TABLES, load_runs
from tests.support.workspace import Workspace, hits

ROWS = {"q": {"hits_top_k": hits("c")}, "r": {"hits_top_k": hits(None, "c")}}


class Rows:
    """One run whose rows are Python objects."""

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._run = Run("run", "suite", "2026-01-01", None, json.dumps({"chunker_version": "md@1"}), "", len(rows))
        self._rows = {query_id: json.dumps(row) for query_id, row in rows.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def runs(self) -> list[Run]:
        return [self._run]

    def rubrics(self) -> list[str]:
        return []

    def repeated_rows(self, run_ids: Sequence[str]) -> list[KeyFault]:  # noqa: ARG002  (as Source)
        return []

    def feed(self, session: Session, run_ids: Sequence[str]) -> None:  # noqa: ARG002  (as Source)
        session.add_loaders({"stored_runs": lambda session: load_runs(session, self.runs())})
        session.execute(
            "CREATE TABLE stored_results AS SELECT ROW_NUMBER() OVER () AS result_no, 'run' AS run_id, *"
            " FROM (SELECT UNNEST($1::VARCHAR[]) AS query_id, UNNEST($2::VARCHAR[]) AS result_json)",
            [list(self._rows), list(self._rows.values())],
        )
        for table, columns in TABLES.items():
            nothing = ", ".join(f"'' AS {column}" for column in columns)
            session.execute(f"CREATE TABLE stored_{table} AS SELECT {nothing} WHERE false")
        session.execute("CREATE TABLE stored_places AS SELECT * EXCLUDE (result_no) FROM stored_results")
        session.execute("CREATE TABLE stored_anchors AS FROM stored_places")
        session.execute("CREATE TABLE stored_history AS SELECT '' AS chunker_version, '' AS result_json WHERE false")
        session.add_loaders({f"stored_{name}": lambda _: None for name in ("results", "places", "anchors", "history")})
        session.add_loaders({f"stored_{table}": lambda _: None for table in TABLES})

    def settled_digests(self, session: Session) -> dict[str, str]:  # noqa: ARG002  (as Source)
        return {"run": ""}

    def result_json(self, run_id: str, query_id: str) -> str | None:
        return self._rows.get(query_id) if run_id == "run" else None

    def chunk_details(
        self,
        chunk_ids: Sequence[str],  # noqa: ARG002  (as Source)
    ) -> list[tuple[str, str, str | None, str | None]]:
        return []


def test_rows_in_memory_score_as_they_would_in_a_database(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]}, {"id": "r", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", ROWS)
    stored = kbeval.compute_aggregate("run", db=workspace.db, golden=workspace.golden)
    with Session() as session, Rows(ROWS) as rows:
        source: Source = rows
        source.feed(session, ["run"])
        golden = load_golden(workspace.golden)
        scoring = Scoring(session, source, golden, source.runs(), ScoreOptions())
        found = aggregate_runs(scoring).aggregates["run"]
    assert found.mrr == 0.75
    assert found.numbers() == stored.numbers()
    assert found.ledger == stored.ledger
