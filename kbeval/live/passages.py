"""BM25 over the table `chunks`, with SQLite's full-text index.

The index is built in memory, by the process that has the database open; the database itself is only read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbeval.database.connection import Database
from kbeval.errors import UsageError
from kbeval.util.text import did_you_mean

RETRIEVER = "sqlite-fts5-bm25@1"
WORD = re.compile(r"\w+")
# SQLite's parser has limits; real questions have fewer words.
_MOST_WORDS = 200
# Copied, so that no lock on the database is held while the index is used: that would keep writers waiting.
_COLUMNS = ("chunk_id", "doc_id", "path", "headings", "spans")
_REQUIRED = ("chunk_id", "doc_id", "chunker_version", "text")
_INDEX = (
    "CREATE VIRTUAL TABLE temp.kbeval_passages USING fts5("
    f"text, {', '.join(f'{name} UNINDEXED' for name in _COLUMNS)}, tokenize = 'porter unicode61 remove_diacritics 2')"
)


class Bm25:
    """The index over the chunks of one chunker version. Use as a context manager."""

    def __init__(self, database: Path, chunker_version: str | None = None) -> None:
        self._path = database
        self._opened: Database | None = None
        self._wanted = chunker_version
        self.chunker_version: str | None = None
        # A note for the user: which version was chosen if there are several.
        self.note: str | None = None

    def __enter__(self) -> Self:
        self._opened = database = Database(self._path)
        try:
            database.check()
            database.open("ro")
            self._build(database)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.__exit__(kind, error, trace)

    def _build(self, database: Database) -> None:
        tables = {
            name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        }
        if "chunks" not in tables:
            msg = f"{self._path} has no table chunks, which a bm25 target searches; use 'kbeval import documents'"
            raise UsageError(msg)
        columns = {table: self._columns(database, table) for table in ("chunks", "documents")}
        for name in _REQUIRED:
            if name not in columns["chunks"]:
                msg = f"the table chunks of {self._path} has no column {name}, which a bm25 target needs"
                raise UsageError(msg)

        def column(place: str, table: str, name: str) -> str:
            return f"{place}.{name}" if name in columns[table] else "NULL"

        versions = [
            str(version)
            for version, _ in database.execute(
                f"SELECT chunker_version, MAX({column('c', 'chunks', 'created_at')}) FROM main.chunks AS c"
                " GROUP BY 1 ORDER BY 2 DESC, 1"
            )
        ]
        if not versions:
            msg = (
                f"the table chunks of {self._path} is empty; a bm25 target searches it: store your chunks there,"
                " or use 'kbeval import documents'"
            )
            raise UsageError(msg)
        if self._wanted is not None and self._wanted not in versions:
            msg = f"{self._path} has no chunks of {self._wanted!r}{did_you_mean(self._wanted, versions)}"
            raise UsageError(f"{msg}; known: {', '.join(versions)}")
        self.chunker_version = self._wanted or versions[0]
        if self._wanted is None and len(versions) > 1:
            is_dated = "created_at" in columns["chunks"]
            which = f"newest chunks, {versions[0]}" if is_dated else f"chunks of {versions[0]}; none has a date"
            self.note = f"searching the {which}; others: {', '.join(versions[1:])} (choose with --chunker-version)"
        # The index is kept in memory, never in a file. That can be set only outside a transaction.
        database.execute("COMMIT")
        database.execute("PRAGMA temp_store = MEMORY")
        database.execute(_INDEX)
        has_documents = "doc_id" in columns["documents"]
        stored = (
            *("c.text", "c.chunk_id", "c.doc_id"),
            column("d", "documents", "workspace_path") if has_documents else "NULL",
            column("c", "chunks", "heading_path_json"),
            column("c", "chunks", "source_spans_json"),
        )
        database.execute(
            f"INSERT INTO temp.kbeval_passages (text, {', '.join(_COLUMNS)}) SELECT {', '.join(stored)}"
            f" FROM main.chunks AS c {'LEFT JOIN main.documents AS d ON d.doc_id = c.doc_id' if has_documents else ''}"
            " WHERE c.chunker_version = ?",
            (self.chunker_version,),
        )

    @staticmethod
    def _columns(database: Database, table: str) -> set[str]:
        found = database.execute("SELECT LOWER(name) FROM pragma_table_info(?, 'main')", (table,))
        return {str(name) for (name,) in found}

    def search(self, text: str, k: int) -> list[dict[str, Any]]:
        """The best `k` chunks; higher scores are better."""
        words = list(dict.fromkeys(WORD.findall(text)))[:_MOST_WORDS]
        if not words:
            return []
        # Quoted, a word is never an operator.
        asked = " OR ".join(f'"{word}"' for word in words)
        if self._opened is None:
            msg = "use 'with Bm25(…)'"
            raise RuntimeError(msg)
        found = self._opened.execute(
            f"SELECT {', '.join(_COLUMNS)}, text, bm25(kbeval_passages) AS score FROM temp.kbeval_passages"
            " WHERE kbeval_passages MATCH ? ORDER BY score, chunk_id LIMIT ?",
            (asked, k),
        )
        return [self._hit(rank, *row) for rank, row in enumerate(found, start=1)]

    def _hit(self, rank: int, chunk_id: str, doc_id: str, path: str | None, *rest: Any) -> dict[str, Any]:  # noqa: ANN401  (cells)
        headings, spans, text, score = rest
        hit: dict[str, Any] = {"rank": rank, "chunk_id": chunk_id, "doc_id": doc_id}
        if path is not None:
            hit["doc_path"] = path
        hit |= {"heading_path": _parsed(headings), "text": text, "chunker_version": self.chunker_version}
        return {**hit, "score": round(-float(score), 6), "source_spans": _parsed(spans)}


def _parsed(text: Any) -> Any:  # noqa: ANN401  (a cell; what its JSON holds)
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return []
