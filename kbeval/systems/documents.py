"""Imports a folder of text files: fills the tables `documents` and `chunks`, which a bm25 target searches."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbeval.database.connection import Database
from kbeval.engine.relations import read_sql
from kbeval.errors import UsageError
from kbeval.storage.new_database import adding_to, make_tables
from kbeval.systems.chunking import Document, Policy, policy_of
from kbeval.util.text import counted, is_utf8

MARKDOWN = (".md", ".markdown")
ENDINGS = (*MARKDOWN, ".txt")
LARGEST_FILE = 50_000_000
_COLUMNS = {
    "documents": ("doc_id", "workspace_path", "title", "lang"),
    "chunks": (
        *("chunk_id", "doc_id", "text", "heading_path_json", "section_label", "source_spans_json", "token_estimate"),
        *("chunker_version", "policy_hash", "block_ids_json", "created_at"),
    ),
}


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    documents: int
    chunks: int
    chunker_version: str
    added: int
    changed: int
    removed: int
    is_unchanged: bool
    # Files that contain only white space.
    empty: int
    # The other chunkers of the database, whose chunks were updated if documents changed.
    others: Sequence[str]


# --- reading the folder -------------------------------------------------------------------------------


def read_folder(folder: Path) -> list[Document]:
    """The text files of a folder and the folders in it, in the order of their paths.

    Names that begin with a dot are skipped, and links are not followed.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        msg = f"{folder} {what}; pass a folder with files that end in {', '.join(ENDINGS)}"
        raise UsageError(msg)
    found = [_read(folder, path) for path in sorted(_files(folder), key=lambda path: path.relative_to(folder).parts)]
    if not found:
        msg = f"{folder} contains no files that end in {', '.join(ENDINGS)}"
        raise UsageError(msg)
    return found


def _files(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        msg = f"{error.filename} cannot be read: {error.strerror}"
        raise UsageError(msg) from error

    for place, inner, names in os.walk(folder, onerror=fail):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in names:
            path = Path(place) / name
            if path.suffix.lower() in ENDINGS and not name.startswith(".") and stat.S_ISREG(path.lstat().st_mode):
                yield path


def _read(folder: Path, path: Path) -> Document:
    name = path.relative_to(folder).as_posix()
    if not is_utf8(name):
        msg = f"the name of the file {name!r} is not valid UTF-8; rename it"
        raise UsageError(msg)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise UsageError(msg) from error
    if len(content) > LARGEST_FILE:
        msg = f"{path} is larger than {LARGEST_FILE // 1_000_000} MB; split it, or move it out of the folder"
        raise UsageError(msg)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text (byte {error.start + 1}); convert it, or move it out of the folder"
        raise UsageError(msg) from error
    if "\0" in text:
        msg = f"{path} contains a NUL character, so it is not text; move it out of the folder"
        raise UsageError(msg)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    is_markdown = path.suffix.lower() in MARKDOWN
    return Document(name, tuple(lines), is_markdown, hashlib.sha256(content).hexdigest())


# --- writing the tables -------------------------------------------------------------------------------


def import_documents(database: Path, documents: Sequence[Document], policy: Policy) -> Imported:
    """Store documents and their chunks in one transaction. Importing the same documents again changes nothing."""
    with adding_to(database) as connection:
        return _Tables(connection, database).store(documents, policy)


class _Tables:
    """The tables of a database, in an open transaction."""

    def __init__(self, database: Database, path: Path) -> None:
        self._database = database
        self._path = path

    def store(self, documents: Sequence[Document], policy: Policy) -> Imported:
        """Make the tables contain exactly these documents, cut by this policy and by those used before."""
        self._claim()
        stored = dict(self._rows("SELECT doc_id, text_sha256 FROM kbeval_documents"))
        filled = [document for document in documents if any(line.strip() for line in document.lines)]
        wanted = {document.doc_id: document for document in filled}
        if stored and not stored.keys() & wanted.keys():
            msg = (
                f"{self._path} contains the documents of another folder, e.g. {min(stored)!r}, none of which is in this"
                " one; use another --db"
            )
            raise UsageError(msg)
        known = [policy_of(text) for (text,) in self._rows("SELECT policy_json FROM kbeval_chunkers")]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        removed = sorted(stored.keys() - wanted.keys())
        changed = [one for one in filled if stored.get(one.doc_id, one.text_sha256) != one.text_sha256]
        added = [one for one in filled if one.doc_id not in stored]
        self._remove([*removed, *(one.doc_id for one in changed)])
        for document in (*added, *changed):
            self._add(document, now)
        for other in known:
            self._cut((*added, *changed), other, now)
        if is_first := policy not in known:
            self._database.execute(
                "INSERT INTO kbeval_chunkers VALUES (?, ?, ?)", (policy.version, policy.hash, policy.json)
            )
            self._cut(filled, policy, now)
        ((chunks,),) = self._rows("SELECT COUNT(*) FROM chunks WHERE chunker_version = ?", policy.version)
        return Imported(
            documents=len(filled),
            chunks=chunks,
            chunker_version=policy.version,
            added=len(added),
            changed=len(changed),
            removed=len(removed),
            is_unchanged=not (is_first or added or changed or removed),
            empty=len(documents) - len(filled),
            others=sorted(other.version for other in known if other != policy),
        )

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401  (cells)
        return self._database.execute(sql, parameters).rows

    def _claim(self) -> None:
        """Reject tables that another program has filled, or that have other columns."""
        tables = {name for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in _COLUMNS:
            if table not in tables:
                if self._rows("SELECT 1 FROM sqlite_master WHERE name = ?", table):
                    msg = f"{table} in {self._path} is not a table; use another --db for the documents"
                    raise UsageError(msg)
                # Creates only what is missing.
                make_tables(self._database)
        for schema in ("kbeval_documents", "kbeval_chunkers"):
            self._database.execute(read_sql(f"schema/{schema}.sql"))
        foreign = {
            "documents": "SELECT COUNT(*) FROM documents WHERE doc_id NOT IN (SELECT doc_id FROM kbeval_documents)",
            "chunks": "SELECT COUNT(*) FROM chunks WHERE (chunker_version, policy_hash)"
            " NOT IN (SELECT chunker_version, policy_hash FROM kbeval_chunkers)",
        }
        for table, question in foreign.items():
            columns = {name for (name,) in self._rows("SELECT name FROM pragma_table_info(?)", table)}
            if columns != set(_COLUMNS[table]):
                odd = min(columns ^ set(_COLUMNS[table]))
                what = f"has a column {odd!r}" if odd in columns else f"has no column {odd!r}"
                msg = f"the table {table} of {self._path} was created by another program ({what}); use another --db"
                raise UsageError(msg)
            ((count,),) = self._rows(question)
            if count:
                msg = (
                    f"the table {table} of {self._path} has {counted(count, 'row')} that another program has stored;"
                    " use another --db for the documents"
                )
                raise UsageError(msg)

    def _remove(self, doc_ids: Sequence[str]) -> None:
        for table in ("chunks", "documents", "kbeval_documents"):
            self._database.executemany(f"DELETE FROM {table} WHERE doc_id = ?", [(one,) for one in doc_ids])

    def _add(self, document: Document, now: str) -> None:
        name = document.doc_id
        self._database.execute("INSERT INTO documents VALUES (?, ?, ?, NULL)", (name, name, document.title))
        self._database.execute("INSERT INTO kbeval_documents VALUES (?, ?, ?)", (name, document.text_sha256, now))

    def _cut(self, documents: Sequence[Document], policy: Policy, now: str) -> None:
        columns = _COLUMNS["chunks"]
        self._database.executemany(
            f"INSERT INTO chunks ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            ((*row, now) for document in documents for row in policy.chunks(document)),
        )
