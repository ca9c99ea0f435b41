"""A case: files, rows of a database, and the commands that are given them; kept as JSON that people can read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kbeval.engine.relations import read_sql

DB = "kb.db"
# As an earlier version created it: the position of a chunk was not part of the key, and could be missing.
_KEPT = """
    CREATE TABLE kbeval_chunk_spans (
        chunk_id TEXT NOT NULL, chunker_version TEXT NOT NULL, policy_hash TEXT NOT NULL, doc_id TEXT,
        source_spans_json TEXT, tokens REAL, seen_in TEXT NOT NULL, first_seen TEXT NOT NULL,
        PRIMARY KEY (chunk_id, chunker_version, policy_hash)
    )
"""
_TABLES = ("documents", "chunks", "eval_runs", "eval_query_results", "kbeval_chunk_spans")


@dataclass(frozen=True)
class Case:
    """Contents are text, or {"hex": …} for bytes that are not text."""

    calls: Sequence[Sequence[str]]
    files: Mapping[str, Any] = field(default_factory=dict)
    # Rows by table. A value {"hex": …} is a blob; {"text": "hex digits"} is text that is not UTF-8.
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    about: str = ""
    # Not fixed yet: part of the message by which the fault is recognized.
    open: str = ""

    def to_json(self) -> str:
        """The case as a file."""
        return json.dumps({name: value for name, value in asdict(self).items() if value}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Case:
        """The case of a file."""
        return cls(**json.loads(text))

    def build(self, folder: Path) -> None:
        """Write everything that the commands find."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_bytes(content))
        if self.tables:
            self._build_database(folder / DB)

    def _build_database(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(read_sql("schema/workspace.sql"))
            if "kbeval_chunk_spans" in self.tables:
                connection.execute(_KEPT)
            for table in _TABLES:
                for row in self.tables.get(table, ()):
                    marks = ", ".join("CAST(? AS TEXT)" if _is_raw_text(value) else "?" for value in row.values())
                    # Two rows may have become the same one.
                    connection.execute(
                        f"INSERT OR IGNORE INTO {table} ({', '.join(row)}) VALUES ({marks})",
                        [_cell(value) for value in row.values()],
                    )


def _is_raw_text(value: object) -> bool:
    return isinstance(value, dict) and "text" in value


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return bytes.fromhex(str(value["text"] if _is_raw_text(value) else value["hex"]))
    if isinstance(value, str):
        # SQLite keeps text as bytes; an unpaired surrogate has none.
        return value.encode("utf-8", "replace").decode()
    return value


def as_bytes(content: Any) -> bytes:
    """The bytes of a file."""
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    return bytes.fromhex(content["hex"])


def of_bytes(content: bytes) -> Any:
    """What a case keeps for these bytes."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"hex": content.hex()}
