"""Documents and chunks that come with imported files: those of a BEIR corpus, for example."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kbeval.database.connection import Database
from kbeval.engine.relations import read_sql


@dataclass(frozen=True)
class Knowledge:
    """Rows for the tables `documents` and `chunks`, with the values of these columns; read once, while writing."""

    documents: Iterable[tuple[Any, ...]] = ()
    chunks: Iterable[tuple[Any, ...]] = ()
    # Documents with their other fields, as JSON.
    more: Iterable[tuple[str, str]] = ()

    DOCUMENT = ("doc_id", "workspace_path", "title")
    CHUNK = (
        *("chunk_id", "doc_id", "text", "heading_path_json", "source_spans_json", "token_estimate", "chunker_version"),
        *("policy_hash", "block_ids_json", "created_at"),
    )


def write_knowledge(database: Database, knowledge: Knowledge) -> None:
    """Add documents and chunks in the open transaction. Existing rows are not changed."""
    for table, columns, rows in (
        ("documents", Knowledge.DOCUMENT, knowledge.documents),
        ("chunks", Knowledge.CHUNK, knowledge.chunks),
    ):
        names, places = ", ".join(columns), ", ".join("?" * len(columns))
        database.executemany(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({places})", rows)
    more = list(knowledge.more)
    if more:
        database.execute(read_sql("schema/kbeval_document_fields.sql"))
        database.executemany("INSERT OR IGNORE INTO kbeval_document_fields VALUES (?, ?)", more)
