"""Writes judgements, each as it arrives: `sql/schema/kbeval_judge*.sql`. Stored rows are never changed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

SCORED, UNSCORED = "scored", "unscored"
_TABLES = ("kbeval_judge_inputs", "kbeval_judgements", "kbeval_judgings", "kbeval_judged")
# SQLite accepts at least this many parameters.
_AT_ONCE = 500


@dataclass(frozen=True)
class Asked:
    """One question to a judge: by which judge, with which rubric, about which input."""

    key: str
    provider: str
    model: str
    base_url: str
    rubric: str
    rubric_hash: str
    parameters_json: str
    input_hash: str
    repetition: int


@dataclass(frozen=True)
class Said:
    """The reply of the judge."""

    state: str
    requests: int
    score: float | None = None
    reasoning: str | None = None
    supported_json: str | None = None
    unsupported_json: str | None = None
    why: str | None = None
    reply: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    elapsed_ms: float | None = None


@dataclass(frozen=True)
class NewJudging:
    """A judging to be stored."""

    run_id: str
    identity: str
    judge: str
    provider: str
    model: str
    base_url: str
    parameters_json: str
    rubrics_json: str
    options_json: str
    n_wanted: int


@dataclass(frozen=True)
class Judged:
    """An answer of a judging, by its query and rubric, and the judgement that belongs to it."""

    query_id: str
    rubric: str
    key: str
    row_mark: str
    is_cached: bool


@dataclass(frozen=True)
class Judging:
    """A stored judging."""

    judging_id: str
    n_wanted: int
    n_judged: int

    @property
    def is_complete(self) -> bool:
        """Does every answer have its judgement?"""
        return self.n_judged >= self.n_wanted


class JudgementStore:
    """An open database to which judgements are written. Use as a context manager."""

    def __init__(
        self, database: str | os.PathLike[str], timeout_ms: int = BUSY_TIMEOUT_MS, *, mode: str = "rw"
    ) -> None:
        """`mode`: `ro` to read what is stored without changing anything."""
        self.path = Path(database)
        if is_archive(self.path):
            msg = f"{database} is an archive, which is never changed; judge runs in the database and archive it again"
            raise UsageError(msg)
        check_is_database(self.path)
        self._timeout_ms = timeout_ms
        self._mode = mode
        self._database = Database(self.path)

    def __enter__(self) -> Self:
        with self._explained():
            self._database.check()
            self._database.open(self._mode, self._timeout_ms)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.__exit__(kind, error, trace)

    def make_tables(self) -> None:
        """Create the tables if they do not exist."""
        if self._has_tables():
            return
        with self._explained(), self._database.transaction():
            for table in _TABLES:
                self._database.execute(read_sql(f"schema/{table}.sql"))

    def _has_tables(self) -> bool:
        with self._explained():
            found = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return set(_TABLES) <= {name for (name,) in found}

    # --- judgings --------------------------------------------------------------------------------------

    def latest(self, run_id: str, identity: str) -> Judging | None:
        """The latest judging of a run, if it is this one; None if there is none, or another came after it."""
        if not self._has_tables():
            return None
        sql = (
            "SELECT g.judging_id, g.n_wanted, g.identity,"
            " (SELECT COUNT(*) FROM kbeval_judged AS d WHERE d.judging_id = g.judging_id)"
            " FROM kbeval_judgings AS g WHERE g.run_id = ? ORDER BY g.created_at DESC, g.judging_id DESC LIMIT 1"
        )
        with self._explained():
            found = self._database.execute(sql, (run_id,)).first()
        if found is None or found[2] != identity:
            return None
        return Judging(str(found[0]), int(found[1]), int(found[3]))

    def begin(self, new: NewJudging) -> Judging:
        """Store a new judging, after all others of its run."""
        moment = datetime.now(UTC)
        judging_id = f"j{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        values = (judging_id, *vars(new).values(), _time(moment))
        columns = f"judging_id, {', '.join(vars(new))}, created_at"
        with self._explained(), self._database.transaction():
            places = ", ".join("?" * len(values))
            self._database.execute(f"INSERT INTO kbeval_judgings ({columns}) VALUES ({places})", values)
        return Judging(judging_id, new.n_wanted, 0)

    def judged(self, judging_id: str) -> set[tuple[str, str]]:
        """The answers of a judging that have their judgement: query and rubric of each."""
        with self._explained():
            found = self._database.execute(
                "SELECT query_id, rubric FROM kbeval_judged WHERE judging_id = ?", (judging_id,)
            )
        return {(str(query_id), str(rubric)) for query_id, rubric in found}

    def link(self, judging_id: str, judged: Sequence[Judged]) -> None:
        """Record which judgements belong to a judging, in one transaction."""
        if not judged:
            return
        with self._explained(), self._database.transaction():
            self._link(judging_id, judged)

    def _link(self, judging_id: str, judged: Iterable[Judged]) -> None:
        self._database.executemany(
            "INSERT OR IGNORE INTO kbeval_judged (judging_id, query_id, rubric, judgement_key, row_mark, is_cached)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [(judging_id, one.query_id, one.rubric, one.key, one.row_mark, int(one.is_cached)) for one in judged],
        )

    # --- judgements ------------------------------------------------------------------------------------

    def known(self, keys: Sequence[str]) -> dict[str, Said]:
        """Which of these judgements are stored."""
        if not self._has_tables():
            return {}
        names = list(Said.__dataclass_fields__)
        found: dict[str, Said] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            sql = f"SELECT judgement_key, {', '.join(names)} FROM kbeval_judgements WHERE judgement_key IN"
            with self._explained():
                rows = self._database.execute(f"{sql} ({', '.join('?' * len(some))})", some)
            found |= {str(key): Said(**dict(zip(names, values, strict=True))) for key, *values in rows}
        return found

    def add(
        self, asked: Asked, said: Said, input_json: str, judging_id: str | None = None, judged: Sequence[Judged] = ()
    ) -> None:
        """Store a judgement, its input and the answers that it belongs to, in one transaction."""
        values = {"judgement_key": asked.key, **_without_key(vars(asked)), **vars(said), "created_at": _time()}
        places = ", ".join("?" * len(values))
        with self._explained(), self._database.transaction():
            self._database.execute(
                "INSERT OR IGNORE INTO kbeval_judge_inputs (input_hash, input_json) VALUES (?, ?)",
                (asked.input_hash, input_json),
            )
            self._database.execute(
                f"INSERT OR IGNORE INTO kbeval_judgements ({', '.join(values)}) VALUES ({places})",
                tuple(values.values()),
            )
            if judging_id is not None:
                self._link(judging_id, judged)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of SQLite as one line that says what to do."""
        try:
            yield
        except ProcessEndedError as error:
            msg = f"{self.path}: {error.headline}; all judgements before this one are stored; judge again to continue"
            raise DatabaseError(msg) from error
        except SqliteError as error:
            advice = "all judgements before this one are stored; judge again to continue"
            if error.is_locked:
                msg = f"{self.path} is locked by {lock_holders(self.path)}; {advice}"
            elif error.is_denied:
                msg = f"{self.path} cannot be written: make the file and its folder writable"
            else:
                msg = f"{self.path}: {error.headline}; {advice}"
            raise DatabaseError(msg) from error


def _without_key(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "key"}


def _time(moment: datetime | None = None) -> str:
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
