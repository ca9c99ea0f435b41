"""A trace of grounded question answering as a source of facts: read by the engine, with no database between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbeval.importers import ImportedRun
from kbeval.jsonlines import (
    all_are,
    build,
    has_any,
    is_list_of_text,
    look_into,
    maybe_no_text,
    opens,
    show_lines,
)
from kbeval.runs import Run
from kbeval.sqlfiles import read_sql

if TYPE_CHECKING:
    from kbeval.engine import Loader, Session

RUN_ID = "trace"
# What sql/traces/ makes in place of sql/facts/ and sql/matches/, and what each reads beside the traces.
_MADE_FROM = {
    "runs": (),
    "results": (),
    "claims_found": ("claim_rules",),
    "id_matches": ("wanted_chunks",),
    "seen_citations": (),
}
_IDS = ("retrieved", "cited")
# What a trace has no knowledge base for.
_NO_KNOWLEDGE = {
    "known_chunks": ("chunk_id", "doc_id", "chunker_version", "spans_text"),
    "documents": ("doc_id", "path"),
}


class TraceSource:
    """A trace that a session holds as the facts of one run, beside no knowledge base."""

    keeps_rows = True

    def __init__(self) -> None:
        config = ImportedRun(RUN_ID, "grounded", "grounded", {}, (), "").config_json
        self.run = Run(RUN_ID, "grounded", "", None, config, "", 0)

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

    def chunk_details(self, chunk_ids: Sequence[str]) -> list[tuple[str, str, str | None, str | None]]:  # noqa: ARG002
        """There is no knowledge base."""
        return []

    def loaders(self) -> dict[str, Loader]:
        """How the session gets the facts, and the tables that there are not."""
        found: dict[str, Loader] = {name: _empty(name, columns) for name, columns in _NO_KNOWLEDGE.items()}
        return {**found, **{name: _made(name) for name in _MADE_FROM}}


def _empty(name: str, columns: Sequence[str]) -> Loader:
    nothing = ", ".join(f"'' AS {column}" for column in columns)

    def load(session: Session) -> None:
        session.execute(f"CREATE VIEW {name} AS SELECT {nothing} WHERE false")

    return load


def _made(name: str) -> Loader:
    def load(session: Session) -> None:
        session.need(*_MADE_FROM[name])
        build(session, name)

    return load


def open_trace(session: Session, path: Path) -> TraceSource | None:
    """Read a trace file into a session; None where something in it is odd, and it must be read line by line."""
    session.execute(read_sql("traces/macros.sql"))
    if not show_lines(session, path, "trace_lines"):
        return None
    if not opens(session, "traces") and not opens(session, "traces", "traces_with_gaps"):
        return None
    ((traces, questions),) = session.rows("SELECT COUNT(*), COUNT(DISTINCT query_id) FROM traces")
    odd = "COALESCE(is_odd, true) OR COALESCE(query_id, '') = ''"
    if not 0 < traces == questions or has_any(session, "traces", odd):
        return None
    # A file in which no line says anything is another file, which the importer tells.
    says = "retrieved IS NOT NULL OR claim IS NOT NULL OR cited IS NOT NULL"
    return TraceSource() if has_any(session, "traces", says) else None


def is_right(session: Session) -> bool:
    """Is all that was read what it should be? Where it is not, the trace must be read line by line."""
    looks = [look_into(session, "traces", ids) for ids in _IDS]
    if any(has_empty for has_empty, _ in looks):
        return False
    texts = f"{maybe_no_text('query_id')} OR {maybe_no_text('claim')}"
    if not any(is_doubtful for _, is_doubtful in looks) and not has_any(session, "traces", texts):
        return True
    # An id that looks like an object is none in a stored row.
    if any(has_any(session, f"(SELECT UNNEST({ids}) AS t FROM traces)", "is_json_container(t)") for ids in _IDS):
        return False
    return all_are(session, "trace_lines", _is_right)


def _is_right(trace: dict[str, Any]) -> bool:
    """A structure: all that is read is text, or lists of it."""
    answer = trace.get("answer_json")
    if not isinstance(answer, dict):
        # An object with nothing in it has no structure.
        return False if answer not in (None, "NULL") else _has_text(trace, {})
    return _has_text(trace, answer)


def _has_text(trace: dict[str, Any], answer: dict[str, Any]) -> bool:
    ids = [trace[name] for name in ("qid", "q_id") if trace.get(name, "NULL") != "NULL"]
    return (
        set(ids) == {"VARCHAR"}
        and is_list_of_text(trace.get("retrieved_ids"))
        and answer.get("claim", "VARCHAR") == "VARCHAR"
        and is_list_of_text(answer.get("citations"))
    )
