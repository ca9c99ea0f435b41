"""Records a run from Python: `with kbeval.record("workspace.db", suite="nightly") as run: run.add("q1", hits=…)`.

The run is stored in one transaction when the block ends, or not at all: an exception in the block, or the end of the
process, leaves the database as it was.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbeval.errors import UsageError
from kbeval.metrics.row_scores import direction_of
from kbeval.storage.runs import is_reserved
from kbeval.systems import ImportedRun
from kbeval.systems.json_lines import id_of, written
from kbeval.systems.row_values import Row, RowFaultError, answer_of, hits_of, number_of, plain, scores_of, tokens_of
from kbeval.systems.writing import TakenRunError, taken_runs, write_runs
from kbeval.util.text import counted
from kbeval.util.times import moment

# The fields of a row that have a meaning here; other fields may have any other name.
_OWN = ("query_id", "hits_top_k", "kbeval_source")
_ATTEMPTS = 20
# Years before have fewer digits, and sort wrongly as text.
_FIRST_YEAR = 1000


def record(  # noqa: PLR0913  (what is known about a run)
    database: str | os.PathLike[str],
    *,
    suite: str = "default",
    config: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    created_at: datetime | str | None = None,
    commit: str | None = None,
    replace: bool = False,
) -> Recorder:
    """Record a run: a context manager with the method `add`. The database is created if it does not exist.

    `config`: what the run was made with; include `chunker_version` if you know it, and anything else that may explain a
    difference later. `run_id`: the UTC time by default, made unique. `created_at`: a datetime, or text such as
    2026-03-01T14:00:00Z; now by default. `replace`: overwrite the run if it exists.
    """
    path: Any = database
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        msg = f"the database is {database!r:.60}; it must be the path of a SQLite file"
        raise UsageError(msg)
    return Recorder(
        Path(database), suite=suite, config=config, run_id=run_id, created_at=created_at, commit=commit, replace=replace
    )


class Recorder:
    """A run that is being recorded. See `record`."""

    def __init__(  # noqa: PLR0913  (as record)
        self,
        database: Path,
        *,
        suite: str,
        config: Mapping[str, Any] | None,
        run_id: str | None,
        created_at: datetime | str | None,
        commit: str | None,
        replace: bool,
    ) -> None:
        # The block may change the current directory.
        self.database = database.absolute()
        self._suite = _text(suite, "suite")
        self._config = _config(config)
        self._commit = None if commit is None else _text(commit, "commit")
        if not isinstance(replace, bool):
            msg = f"replace is {replace!r:.60}; it must be True or False"
            raise UsageError(msg)
        self._replace = replace
        self._given_id = None if run_id is None else _text(run_id, "run_id")
        if self._given_id is not None and is_reserved(self._given_id):
            msg = f"{run_id!r} is reserved: it refers to the latest run or one before it; choose another run_id"
            raise UsageError(msg)
        self._moment = datetime.now(UTC) if created_at is None else _moment(created_at)
        self.run_id = self._given_id or self._moment.strftime("%Y%m%d_%H%M%S")
        self._rows: dict[str, str] = {}
        self._scores: dict[str, str] = {}
        self._lock = threading.Lock()
        self._is_open = False

    def __enter__(self) -> Self:
        # A run may take hours, so errors are reported before it starts if possible.
        taken = taken_runs(self.database, [self.run_id])
        if self._given_id is None:
            self.run_id = _free(self.run_id, taken)
        elif self.run_id in taken and not self._replace:
            raise TakenRunError(self.run_id, self.database)
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if error is None:
            self._store()

    def __len__(self) -> int:
        return len(self._rows)

    def add(  # noqa: PLR0913  (the fields of a row)
        self,
        query_id: str | int,
        *,
        hits: Sequence[Mapping[str, Any] | str] | None = None,
        answer: str | Mapping[str, Any] | None = None,
        grounded: bool | None = None,
        citations: Sequence[Mapping[str, Any] | str] | None = None,
        abstained: bool | None = None,
        query: str | None = None,
        elapsed_ms: float | None = None,
        tokens: float | Mapping[str, Any] | None = None,
        cost_usd: float | None = None,
        error: str | Mapping[str, Any] | BaseException | None = None,
        scores: Mapping[str, float | None] | None = None,
        **fields: Any,  # noqa: ANN401  (anything that JSON can hold)
    ) -> None:
        """Add the result of one query. Raises an error that names the query and the field if something is wrong.

        `hits`: best first; mappings with `chunk_id`, `doc_id`, `score`, `text`, `source_spans` and any other fields to
        keep, or plain chunk ids. `answer`: text, or a mapping with `answer`, `grounded` and `citations`. `error`: the
        query failed. `scores`: numbers of your own judge, named `TOOL.NAME`; each is a metric of the run. Other fields
        are kept in the row.
        """
        if not self._is_open:
            msg = "this run is not being recorded: call add inside the 'with' block of kbeval.record"
            raise UsageError(msg)
        name = id_of(query_id)
        if name is None:
            msg = f"a query id is {query_id!r:.60}; it must be non-empty text"
            raise UsageError(msg)
        faults: list[str] = []
        row: Row = {"query_id": name}
        row |= {"query": plain(query, "query", faults)} if query is not None else {}
        row |= {"hits_top_k": hits_of(hits, faults)} if hits is not None else {}
        found = answer_of(answer, faults, grounded=grounded, citations=citations)
        row |= {"answer": found} if found is not None or hits is not None else {}
        if abstained is not None:
            row["abstained"] = abstained
            if not isinstance(abstained, bool):
                faults.append(f"abstained is {abstained!r:.40}, not true or false")
        for field, value in (("elapsed_ms", elapsed_ms), ("cost_usd", cost_usd)):
            row |= {field: number_of(value, field, faults)} if value is not None else {}
        if tokens is not None:
            row["tokens"] = tokens_of(tokens, faults)
        if error is not None:
            row["error"] = _error(error, faults)
        of_row = scores_of(scores, faults) if scores is not None else {}
        row |= {"scores": of_row} if of_row else {}
        row |= _own_fields(fields, faults, has_hits=hits is not None)
        self._add(name, row, of_row, faults)

    def _add(self, name: str, row: Row, scores: Mapping[str, float | None], faults: list[str]) -> None:
        if faults:
            raise RowFaultError(name, faults)
        text = written(row)
        with self._lock:
            if name in self._rows:
                raise RowFaultError(name, ["was already added; a run has one row per query"])
            self._rows[name] = text
            self._scores.update((score, direction_of(score)) for score in scores)

    def _store(self) -> None:
        for _ in range(_ATTEMPTS):
            run = ImportedRun(
                self.run_id,
                self._suite,
                None,
                self._config,
                list(self._rows.items()),
                self._moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                scores=self._scores,
                commit_hash=self._commit,
            )
            try:
                write_runs(self.database, [run], replace=self._replace)
            except TakenRunError:
                # Another process has used the name since this run began.
                if self._given_id is not None:
                    raise
                self.run_id = _free(self.run_id, taken_runs(self.database, [self.run_id]))
            else:
                return
        msg = f"{self.database}: no free run id after {counted(_ATTEMPTS, 'attempt')}; pass run_id"
        raise UsageError(msg)


def _free(wanted: str, taken: set[str]) -> str:
    """The id, with a number appended if it is taken."""
    found, number = wanted, 2
    while found in taken:
        found, number = f"{wanted}-{number}", number + 1
    return found


def _text(value: object, name: str) -> str:
    found = id_of(value) if isinstance(value, str) else None
    if found is None:
        msg = f"{name} is {value!r:.60}; it must be non-empty text"
        raise UsageError(msg)
    return found


def _moment(value: object) -> datetime:
    """When the run was made, in UTC. A datetime without a zone is in local time, a text without one is UTC."""
    found = moment(value) if isinstance(value, str) else None
    if isinstance(value, datetime):
        with contextlib.suppress(OverflowError, ValueError, OSError):
            found = value.astimezone(UTC)
    if found is None or found.year < _FIRST_YEAR:
        msg = f"created_at is {value!r:.60}; it must be a datetime, or text such as 2026-03-01T14:00:00Z"
        raise UsageError(msg)
    return found


def _config(given: Mapping[str, Any] | None) -> Row:
    if not isinstance(given, Mapping | None):
        msg = f"config is of type {type(given).__name__}; it must be a mapping"
        raise UsageError(msg)
    faults: list[str] = []
    found: Row = plain(given or {}, "config", faults)
    if faults:
        msg = f"the configuration cannot be stored: {faults[0]}"
        raise UsageError(msg)
    return found


def _error(error: str | Mapping[str, Any] | BaseException, faults: list[str]) -> Any:  # noqa: ANN401  (text or an object)
    if isinstance(error, BaseException):
        # File names in messages may contain bytes that are not text.
        message = f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace").decode()
        return {"kind": "target", "message": message}
    if isinstance(error, str | Mapping):
        return plain(error, "error", faults)
    faults.append(f"error is of type {type(error).__name__}; it must be text, a mapping or an exception")
    return None


def _own_fields(fields: Mapping[str, Any], faults: list[str], *, has_hits: bool) -> Row:
    """The other fields of a row. If there are no hits, a field with a similar name is a mistake."""
    found: Row = {}
    for field, value in fields.items():
        if not has_hits and difflib.get_close_matches(field.lower(), ("hits",)):
            faults.append(f"{field} is not an argument of add, and hits is missing; did you mean hits=?")
        elif field in _OWN:
            faults.append(f"{field} is reserved by kbeval; choose another name (hits are passed as hits=)")
        else:
            found |= plain({field: value}, "fields", faults)
    return found
