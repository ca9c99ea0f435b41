"""Writes the decisions of people as they are made (`sql/schema/kbeval_labels.sql`), and reads what they are shown."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbeval.database.connection import BUSY_TIMEOUT_MS, Database
from kbeval.database.holders import lock_holders
from kbeval.database.process import ProcessEndedError, SqliteError
from kbeval.engine.relations import read_sql
from kbeval.errors import DatabaseError, UsageError
from kbeval.storage.database_file import check_is_database, is_archive

SUPPORTS, ANSWERABLE, MUST_CONTAIN, QUERY, ENTRY, NOTE, SCORE = (
    "supports",
    "answerable",
    "must_contain",
    "query",
    "entry",
    "note",
    "score:",
)
YES, NO, SKIP = "yes", "no", "skip"
PENDING, WRITTEN, KEPT, HELD, REFUSED = "pending", "written", "kept", "held", "refused"
_AT_ONCE = 500


class StaleDecisionError(DatabaseError):
    """Another decision was made since the one that this one follows: in another tab, or by another process."""


@dataclass(frozen=True)
class About:
    """The text that a decision is about."""

    text_hash: str | None = None
    chunk_id: str | None = None
    chunker_version: str | None = None
    doc_id: str | None = None
    path: str | None = None
    headings_json: str | None = None
    spans_json: str | None = None
    passage: str | None = None


@dataclass(frozen=True)
class Decision:
    """One decision of one person. `label_no` is 0 before it is stored."""

    query_id: str
    annotator: str
    field: str
    item: str
    value: Any
    about: About = About()
    is_settlement: bool = False
    state: str = PENDING
    label_no: int = 0
    decided_at: str = ""
    written: Mapping[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Who decided on what."""
        return self.query_id, self.annotator, self.field, self.item

    @property
    def slot(self) -> tuple[str, str, str, str, bool]:
        """The key of what a later decision replaces: a settlement does not replace the person's earlier decision."""
        return *self.key, self.is_settlement


_ABOUT = tuple(one.name for one in fields(About))
_COLUMNS = (
    "label_no",
    "query_id",
    "annotator",
    "field",
    "item",
    "value_json",
    "is_settlement",
    "state",
    "decided_at",
    "written_json",
    *_ABOUT,
)


def _decision(row: Sequence[Any]) -> Decision:
    cells = dict(zip(_COLUMNS, row, strict=True))
    return Decision(
        str(cells["query_id"]),
        str(cells["annotator"]),
        str(cells["field"]),
        str(cells["item"]),
        json.loads(cells["value_json"]),
        About(**{name: cells[name] for name in _ABOUT}),
        bool(cells["is_settlement"]),
        str(cells["state"]),
        int(cells["label_no"]),
        str(cells["decided_at"]),
        None if cells["written_json"] is None else json.loads(cells["written_json"]),
    )


class LabelStore:
    """An open database to which decisions are written. Use as a context manager."""

    def __init__(self, database: str | os.PathLike[str], *, mode: str = "rw") -> None:
        self.path = Path(database)
        if is_archive(self.path):
            msg = f"{database} is an archive, which is never changed; use the database instead"
            raise UsageError(msg)
        check_is_database(self.path)
        self._mode = mode
        self._opened: Database | None = None
        self._tables: set[str] = set()

    def __enter__(self) -> Self:
        self._opened = Database(self.path)
        try:
            with self._explained():
                self._database.check()
                self._database.open(self._mode, BUSY_TIMEOUT_MS)
                self._look()
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

    @property
    def _database(self) -> Database:
        if self._opened is None:
            msg = f"{self.path} is closed"
            raise DatabaseError(msg)
        return self._opened

    def _look(self) -> None:
        found = self._database.execute("SELECT LOWER(name) FROM sqlite_master WHERE type IN ('table', 'view')")
        self._tables = {str(name) for (name,) in found}

    @property
    def has_labels(self) -> bool:
        """Does the database contain any decisions?"""
        return "kbeval_labels" in self._tables

    def make_table(self) -> None:
        """Create the table if it does not exist."""
        if not self.has_labels:
            with self._explained(), self._database.transaction():
                self._database.execute(read_sql("schema/kbeval_labels.sql"))
            self._look()

    # --- decisions -------------------------------------------------------------------------------------

    def add(self, decision: Decision, after: int | None = None) -> Decision:
        """Store a decision, committed on return. `after`: the one that it follows, by number; 0 for none.

        Raises StaleDecisionError if another one came in between.
        """
        now = _time()
        values = {
            **dict(zip(("query_id", "annotator", "field", "item"), decision.key, strict=True)),
            "value_json": json.dumps(decision.value, ensure_ascii=False),
            "is_settlement": int(decision.is_settlement),
            **vars(decision.about),
            "state": decision.state,
            "decided_at": now,
        }
        with self._explained(), self._database.transaction():
            if after is not None:
                check_known(after, self._latest_of(decision))
            self._database.execute(
                f"INSERT INTO kbeval_labels ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
                tuple(values.values()),
            )
            ((number,),) = self._database.execute("SELECT last_insert_rowid()")
        return Decision(
            *decision.key, decision.value, decision.about, decision.is_settlement, decision.state, int(number), now
        )

    def _latest_of(self, decision: Decision) -> int:
        found = self._database.execute(
            "SELECT COALESCE(MAX(label_no), 0) FROM kbeval_labels WHERE query_id = ? COLLATE BINARY AND annotator = ?"
            " COLLATE BINARY AND field = ? AND item = ? COLLATE BINARY AND is_settlement = ? AND undone_at IS NULL",
            (*decision.key, int(decision.is_settlement)),
        )
        ((number,),) = found
        return int(number)

    def current(self, query_id: str | None = None) -> list[Decision]:
        """The decisions in force: for each person, field and item the latest that is not undone; oldest first."""
        found: dict[tuple[str, str, str, str, bool], Decision] = {}
        for decision in self._select("undone_at IS NULL", query_id):
            found.pop(decision.slot, None)
            found[decision.slot] = decision
        return list(found.values())

    def pending(self, query_id: str | None = None) -> list[Decision]:
        """The decisions in force that are not in the golden file yet, including those held back; oldest first."""
        return [decision for decision in self.current(query_id) if decision.state in (PENDING, HELD)]

    def latest(self, annotator: str, scored_run: str | None = None) -> Decision | None:
        """The last decision of a person that is not undone: on labels, or on the answers of a run."""
        condition = f"undone_at IS NULL AND annotator = ? COLLATE BINARY AND field NOT LIKE '{SCORE}%'"
        values: tuple[str, ...] = (annotator,)
        if scored_run is not None:
            condition = condition.replace("NOT LIKE", "LIKE") + " AND item = ? COLLATE BINARY"
            values = annotator, scored_run
        found = self._select(condition, None, values, newest=True)
        return found[0] if found else None

    def undo(self, label_no: int) -> None:
        """Mark a decision as undone."""
        with self._explained(), self._database.transaction():
            self._database.execute("UPDATE kbeval_labels SET undone_at = ? WHERE label_no = ?", (_time(), label_no))

    def mark(self, states: Mapping[int, tuple[str, Mapping[str, Any] | None]]) -> None:
        """Record the outcome of decisions: their state, and the entry before and after."""
        if not states:
            return
        rows = [
            (state, None if written is None else json.dumps(written, ensure_ascii=False), number)
            for number, (state, written) in states.items()
        ]
        with self._explained(), self._database.transaction():
            self._database.executemany(
                "UPDATE kbeval_labels SET state = ?, written_json = ? WHERE label_no = ?",
                rows,
            )

    def _select(
        self, condition: str, query_id: str | None, values: Sequence[Any] = (), *, newest: bool = False
    ) -> list[Decision]:
        if not self.has_labels:
            return []
        if query_id is not None:
            condition += " AND query_id = ? COLLATE BINARY"
            values = (*values, query_id)
        end = "DESC LIMIT 1" if newest else ""
        with self._explained():
            rows = self._database.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM kbeval_labels WHERE {condition} ORDER BY label_no {end}", values
            )
        return [_decision(row) for row in rows]

    # --- what people are shown ---------------------------------------------------------------------------

    def chunk_texts(self, chunk_ids: Sequence[str]) -> dict[tuple[str, str], tuple[str, str]]:
        """Text and headings (JSON) of chunks, by id and version."""
        if "chunks" not in self._tables:
            return {}
        found: dict[tuple[str, str], tuple[str, str]] = {}
        for start in range(0, len(chunk_ids), _AT_ONCE):
            some = chunk_ids[start : start + _AT_ONCE]
            with self._explained():
                rows = self._database.execute(
                    "SELECT chunk_id, chunker_version, text, heading_path_json FROM chunks"
                    f" WHERE chunk_id COLLATE BINARY IN ({', '.join('?' * len(some))})",
                    some,
                )
            found |= {(str(chunk), str(version)): (str(text), str(heads)) for chunk, version, text, heads in rows}
        return found

    def result_json(self, run_id: str, query_id: str) -> str | None:
        """One stored row."""
        with self._explained():
            found = self._database.execute(
                "SELECT result_json FROM eval_query_results"
                " WHERE run_id = ? COLLATE BINARY AND query_id = ? COLLATE BINARY",
                (run_id, query_id),
            ).first()
        return None if found is None else str(found[0])

    def document_names(self) -> dict[str, tuple[str, str]]:
        """Path and title of each document."""
        if "documents" not in self._tables:
            return {}
        with self._explained():
            names = {name.lower() for _, name, *_ in self._database.execute("PRAGMA table_info(documents)")}
            title = "COALESCE(title, '')" if "title" in names else "''"
            rows = self._database.execute(f"SELECT doc_id, workspace_path, {title} FROM documents")
        return {str(doc): (str(path), str(name)) for doc, path, name in rows}

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of SQLite as one line that says what to do."""
        try:
            yield
        except ProcessEndedError as error:
            msg = f"{self.path}: {error.headline}; all decisions before this one are stored; start again to continue"
            raise DatabaseError(msg) from error
        except SqliteError as error:
            if error.is_locked:
                msg = f"{self.path} is locked by {lock_holders(self.path)}; this decision is not stored, try it again"
            elif error.is_denied:
                msg = f"{self.path} cannot be written: make the file and its folder writable"
            else:
                msg = f"{self.path}: {error.headline}; all decisions before this one are stored"
            raise DatabaseError(msg) from error


def check_known(after: int, latest: int) -> None:
    """Raise StaleDecisionError if the last decision is not the one that the caller knows."""
    if after != latest:
        msg = f"another decision was made meanwhile, in another tab or by another process (decision {latest})"
        raise StaleDecisionError(msg)


def stored_decisions(database: str | os.PathLike[str]) -> list[Decision]:
    """The decisions in force; empty if there are none, or if it is an archive."""
    if is_archive(Path(database)):
        return []
    with LabelStore(database, mode="ro") as store:
        return store.current()


def _time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
