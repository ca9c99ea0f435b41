"""A trace of grounded question answering as a source of facts: read by the engine, with no database between."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbeval.importers import ImportedRun
from kbeval.jsonlines import (
    all_are,
    build,
    has_any,
    is_list_of_text,
    maybe_no_text,
    opens,
    show_lines,
)
from kbeval.sources.sqlite import Run
from kbeval.sqlfiles import read_sql

if TYPE_CHECKING:
    from kbeval.engine import Loader, Session

RUN_ID = "trace"
# The facts that sql/traces/ makes in place of sql/facts/.
FACTS = ("results", "trace_hits", "hits", "cited_places", "answers", "bad_rows")
_IDS = ("trace_hits", "cited_places")
# What a trace has no knowledge base for.
_NO_KNOWLEDGE = {
    "known_chunks": ("chunk_id", "doc_id", "chunker_version", "spans_text"),
    "documents": ("doc_id", "path"),
}


class TraceSource:
    """A trace that a session holds as the facts of one run, beside no knowledge base."""

    rows_are_unique = True

    def __init__(self, path: Path) -> None:
        moment = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).isoformat()
        config = ImportedRun(RUN_ID, "grounded", "grounded", {}, (), moment).config_json
        self.run = Run(RUN_ID, "grounded", moment, None, config, "", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It is in the session, and nothing is open."""

    def settled_digests(self, session: Session) -> dict[str, str]:  # noqa: ARG002  (as the other sources)
        """Nothing of it is ever stored, so nobody needs to know it again."""
        return {RUN_ID: ""}

    def result_json(self, run_id: str, query_id: str) -> str | None:  # noqa: ARG002
        """There are no stored rows."""
        return None

    def loaders(self) -> dict[str, Loader]:
        """How the session gets the run, and the tables that there are not."""
        found: dict[str, Loader] = {name: _empty(name, columns) for name, columns in _NO_KNOWLEDGE.items()}
        return {**found, "stored_runs": self._load_run, **dict.fromkeys(FACTS, _is_there)}

    def _load_run(self, session: Session) -> None:
        session.execute(
            "CREATE TABLE stored_runs AS SELECT $1 AS run_id, $2 AS suite, $3 AS config_snapshot_json,"
            " '' AS aggregate_json, $4 AS created_at, '' AS commit_hash",
            [self.run.run_id, self.run.suite, self.run.config_json, self.run.created_at],
        )


def _empty(name: str, columns: Sequence[str]) -> Loader:
    nothing = ", ".join(f"'' AS {column}" for column in columns)

    def load(session: Session) -> None:
        session.execute(f"CREATE VIEW {name} AS SELECT {nothing} WHERE false")

    return load


def _is_there(session: Session) -> None:
    """It was made when the trace was read."""


def read_facts(session: Session, path: Path) -> TraceSource | None:
    """Read a trace file into a session; None where something in it is odd, and it must be read line by line."""
    if not _opens(session, path):
        return None
    for name in FACTS:
        build(session, name)
    if _is_odd(session) or (_is_doubtful(session) and not all_are(session, "trace_lines", _is_right)):
        return None
    source = TraceSource(path)
    session.add_loaders(source.loaders())
    return source


def _opens(session: Session, path: Path) -> bool:
    session.execute(read_sql("traces/macros.sql"))
    return show_lines(session, path, "trace_lines") and (
        opens(session, "traces") or opens(session, "traces", "traces_with_gaps")
    )


def _is_odd(session: Session) -> bool:
    """Is anything empty that must not be, or there twice, or is there nothing at all?"""
    ((traces, questions),) = session.rows("SELECT COUNT(*), COUNT(DISTINCT query_id) FROM traces")
    return (
        not 0 < traces == questions
        or has_any(session, "traces", "COALESCE(is_odd, true) OR COALESCE(query_id, '') = ''")
        or any(has_any(session, relation, "chunk_id IS NULL OR chunk_id = ''") for relation in _IDS)
    )


def _is_doubtful(session: Session) -> bool:
    """May anything have been a number, a truth value, a list or an object, and not text?"""
    texts = f"{maybe_no_text('query_id')} OR {maybe_no_text('claim')}"
    return has_any(session, "traces", texts) or any(has_any(session, ids, maybe_no_text("chunk_id")) for ids in _IDS)


def _is_right(trace: dict[str, Any]) -> bool:
    """A structure: all that is read is text, or lists of it."""
    answer = trace.get("answer_json") or {}
    return (
        trace["qid"] == "VARCHAR"
        and is_list_of_text(trace.get("retrieved_ids"))
        and answer.get("claim", "VARCHAR") == "VARCHAR"
        and is_list_of_text(answer.get("citations"))
    )
