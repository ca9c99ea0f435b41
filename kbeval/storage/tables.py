"""The tables of a database that kbeval reads, their columns, and how a session names them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.errors import DatabaseError
from kbeval.storage.runs import Run

if TYPE_CHECKING:
    from kbeval.engine.session import Session

# The low bits of a row's number are the number of the stored row, the high bits that of the session that read it.
ROW_BITS = 32
REQUIRED = {
    "eval_runs": ("run_id", "suite", "config_snapshot_json", "aggregate_json", "created_at"),
    "eval_query_results": ("run_id", "query_id", "result_json"),
}
OPTIONAL = {
    "chunks": ("chunk_id", "doc_id", "source_spans_json", "chunker_version"),
    "documents": ("doc_id", "workspace_path"),
    # Our own: see sql/schema/.
    "kbeval_chunk_spans": ("chunk_id", "chunker_version", "doc_id", "source_spans_json", "seen_in", "first_seen"),
    "kbeval_golden": ("golden_hash", "entries", "first_used"),
    "kbeval_judgings": (
        "judging_id",
        "run_id",
        "judge",
        "provider",
        "model",
        "base_url",
        "parameters_json",
        "rubrics_json",
        "options_json",
        "n_wanted",
        "created_at",
    ),
    "kbeval_judged": ("judging_id", "query_id", "rubric", "judgement_key", "row_mark", "is_cached"),
    "kbeval_judgements": (
        "judgement_key",
        "input_hash",
        "state",
        "score",
        "reasoning",
        "supported_json",
        "unsupported_json",
        "why",
        "tokens_in",
        "tokens_out",
        "cost_usd",
        "created_at",
    ),
}
# Columns that those tables may lack, with replacements: the first one that the table has is used, '' if it has none.
LATER = {
    "chunks": {
        "policy_hash": {"policy_hash": "policy_hash"},
        "tokens": {"token_estimate": "token_estimate", "text": "LENGTH(text) / 4.0"},
    },
    "kbeval_chunk_spans": {"policy_hash": {"policy_hash": "policy_hash"}, "tokens": {"tokens": "tokens"}},
}
# The columns of a row.
ROW_COLUMNS = REQUIRED["eval_query_results"]
# The columns of each of those tables in a session.
TABLES = {table: (*columns, *LATER.get(table, ())) for table, columns in OPTIONAL.items()}
# What `kbeval judge` writes; see sql/schema/.
JUDGING = ("kbeval_judgings", "kbeval_judged", "kbeval_judgements")
# The columns of a run in a session.
RUN_COLUMNS = ("run_id", "suite", "config_snapshot_json", "aggregate_json", "created_at", "commit_hash")


def require_tables(found: Mapping[str, Collection[str]], path: Path) -> None:
    """Raise an error if a table or a column is missing. `found`: the columns of each table of the database."""
    for table, columns in (REQUIRED | OPTIONAL).items():
        if table not in found:
            if table in OPTIONAL:
                continue
            msg = f"{path} has no table {table!r}, so it contains no evaluation runs; check --db, or try 'kbeval demo'"
            raise DatabaseError(msg)
        if missing := [column for column in columns if column not in found[table]]:
            msg = f"{path}: table {table!r} has no column {missing[0]!r}; see 'kbeval demo' for the layout"
            raise DatabaseError(msg)


def load_runs(session: Session, runs: Sequence[Run], name: str = "stored_runs") -> None:
    """Create `stored_runs`, or a table with another name, from these runs."""
    rows = [
        (run.run_id, run.suite, run.config_json, run.aggregate_json, run.created_at, run.commit_hash or "")
        for run in runs
    ]
    columns = [f"UNNEST(${place}::VARCHAR[]) AS {column}" for place, column in enumerate(RUN_COLUMNS, start=1)]
    values = [[row[place] for row in rows] for place in range(len(RUN_COLUMNS))]
    session.execute(f"CREATE TABLE {name} AS SELECT {', '.join(columns)}", values)


def as_text(sql: str, name: str | None = None) -> str:
    """SQL that reads any stored value as text: numbers and bytes are converted, null becomes the empty text."""
    return f"CAST(COALESCE({sql}, '') AS TEXT) AS {name or sql}"
