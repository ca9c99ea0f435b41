"""Writes an archive: the facts of every run as Parquet, one folder per run, and the tables that all runs share.

Only runs whose rows changed are written. Each run's folder is written under a temporary name and renamed when it is
complete, so a killed process leaves nothing partial and the next one reuses what was finished. Processes that write
the same archive wait for each other. Runs are written in steps, to limit memory, but all steps read one snapshot of the
database.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from kbeval.database.connection import BUSY_TIMEOUT_MS
from kbeval.database.holders import lock_holders
from kbeval.engine.failures import first_line
from kbeval.engine.memory import DEFAULT_MEMORY_LIMIT, megabytes
from kbeval.engine.quoting import literal, parquet_scan
from kbeval.errors import DatabaseError, NotEnoughMemoryError, UsageError
from kbeval.golden import Golden
from kbeval.metrics.row_scores import listed_scores
from kbeval.storage.archive_scores import SCORES, SHARDS
from kbeval.storage.database_file import MANIFEST_FILE, database_size, is_archive
from kbeval.storage.kept_configs import without_secrets_of
from kbeval.storage.manifest import (
    RUNS,
    Manifest,
    RunFolder,
    folder_name,
    is_own,
    read_manifest,
)
from kbeval.storage.options import ReadOptions
from kbeval.storage.parts import (
    ALWAYS,
    ELSEWHERE,
    PART_FILE,
    PartFile,
    PartRun,
    finish_part,
    new_numbering,
    no_bad_rows,
    read_part,
    remove,
    sha256_of,
    write_relation,
)
from kbeval.storage.run_config import config_of, imported_from
from kbeval.storage.runs import KeyFault, Run, run_faults
from kbeval.storage.source import one_snapshot, open_database
from kbeval.storage.sqlite import SqliteSource
from kbeval.storage.tables import JUDGING, ROW_BITS, RUN_COLUMNS, TABLES, load_runs
from kbeval.util.files import check_target
from kbeval.util.locks import locked

if TYPE_CHECKING:
    from kbeval.engine.session import Session

# How many rows are written in one step, with the usual memory limit or more.
STEP_ROWS = 100_000
# Rows of several runs are written together up to the size of this many of the largest rows that the memory limit
# allows, each a sixtieth of it.
_ROWS_AT_ONCE = 10
_ROW_COLUMNS = {"result_no": "BIGINT", "run_id": "VARCHAR", "query_id": "VARCHAR", "result_json": "VARCHAR"}


@dataclass
class Archived:
    """The outcome for each run."""

    folder: Path
    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    # In the archive, but no longer in the database.
    gone: list[str] = field(default_factory=list)
    # Why runs of the database were not archived.
    key_faults: list[KeyFault] = field(default_factory=list)

    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


def archive_runs(
    database: str | os.PathLike[str],
    folder: Path,
    golden: Golden | None = None,
    options: ReadOptions | None = None,
    *,
    prune: bool = False,
) -> Archived:
    """Update an archive from a database. `prune`: remove runs that are no longer in the database."""
    if is_archive(Path(database)):
        msg = f"{database} is an archive; specify the SQLite database to archive"
        raise UsageError(msg)
    with SqliteSource(database):
        # A database that cannot be read is reported before a folder is created for it.
        pass
    try:
        place = _made(folder, Path(database))
        with locked(place, exclusive=True, patience=BUSY_TIMEOUT_MS / 1000) as is_alone:
            if is_alone is False:
                msg = f"{folder} is being written by {lock_holders(place)}; wait for it to finish and try again"
                raise DatabaseError(msg)
            options = options or ReadOptions()
            work = _Archiving(Path(database), place, golden, options)
            with one_snapshot(database, options.cache):
                return work.bring_up_to_date(prune=prune, tidy=bool(is_alone))
    except duckdb.InterruptException:
        raise
    except (OSError, duckdb.Error) as error:
        why = error.strerror if isinstance(error, OSError) else first_line(error)
        msg = f"{folder} cannot be updated: {why}; its previous contents are unchanged"
        raise DatabaseError(msg) from error


def _made(folder: Path, database: Path) -> Path:
    """Create the folder. It may hold only files of ours, including leftovers of a process that was killed."""
    place = check_target(folder, [database])
    try:
        if place.is_dir() and not is_archive(place):
            others = (
                path for path in place.iterdir() if path.name not in (RUNS, SCORES, SHARDS) and not is_own(path, place)
            )
            if next(others, None) is not None:
                msg = f"{folder} contains other files and is not an archive; specify an empty or a new folder"
                raise UsageError(msg)
        (place / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder} cannot be written: {error.strerror}; specify another folder"
        raise UsageError(msg) from error
    return place


class _Archiving:
    """One update of an archive. The caller makes sure that no other process writes to the folder."""

    def __init__(self, database: Path, folder: Path, golden: Golden | None, options: ReadOptions) -> None:
        self._database = database
        self._folder = folder
        self._golden = golden
        self._options = options
        self._old = read_manifest(folder) if is_archive(folder) else Manifest(folder)
        # The finished folders of runs in the database, written by this update or by an earlier one.
        self._done: dict[str, RunFolder] = {}
        self._numberings: set[int] = set()
        # The average size of a stored row.
        self._row_bytes = 1

    def bring_up_to_date(self, *, prune: bool, tidy: bool) -> Archived:
        found = Archived(self._folder)
        if tidy:
            # We hold the exclusive lock, so drafts were left by processes that were killed.
            for draft in self._folder.glob("draft-*"):
                if is_own(draft, self._folder):
                    remove(draft)
        with open_database(self._database, self._options) as (session, source):
            stored = source.runs()
            found.key_faults = run_faults(stored)
            broken = {fault.run_id for fault in found.key_faults}
            runs = [run for run in stored if run.run_id not in broken]
            digests = source.row_digests(session, [run.run_id for run in runs])
        self._row_bytes = max(1, database_size(self._database) // max(1, sum(run.rows for run in stored)))
        self._numberings = self._taken()
        due = []
        for run in runs:
            there = self._finished(run, digests[run.run_id])
            if there is None:
                due.append(run)
            else:
                self._done[run.run_id] = there
                found.unchanged.append(run.run_id)
        for step in _steps(due, self._options.memory_limit):
            self._archive_together(step)
            found.written += [run.run_id for run in step]
        new = self._with_tables(runs, prune=prune)
        found.gone = [run_id for run_id in self._old.runs if run_id not in self._done]
        new.write(self._old)
        if tidy:
            _tidy(new)
        return found

    def _taken(self) -> set[int]:
        """The numberings used in the archive: no two runs may share one."""
        parts = (read_part(path, any_version=True) for path in (self._folder / RUNS).iterdir())
        return {run.numbering for part in parts if part is not None for run in part.runs.values()}

    def _finished(self, run: Run, digest: str) -> RunFolder | None:
        """The folder of a run with these rows, if it exists and is undamaged."""
        folder = self._folder / RUNS / folder_name(run.run_id, digest)
        part = read_part(folder)
        if part is None or run.run_id not in part.runs or part.runs[run.run_id].digest != digest:
            return None
        return _place(folder) if part.holds(("rows", *self._wanted(run))) and part.is_sound(part.files) else None

    def _wanted(self, run: Run) -> list[str]:
        """The relations that are written of a run."""
        config = config_of(run)
        kinds = {"", imported_from(config) or ""} | ({"scores"} if listed_scores(config) else set())
        if self._golden is not None and self._golden.has("gold_supports"):
            # Then the hits of any run may be supports.
            kinds.add("anchors")
        more = [name for kind, names in ELSEWHERE.items() if kind in kinds for name in names]
        return [*ALWAYS, "hit_claims", *(["anchor_rows"] if "anchors" in kinds else ()), *more]

    def _archive_together(self, runs: Sequence[Run]) -> None:
        """Write some runs; one half after the other if they do not fit into memory together."""
        try:
            self._archive_step(runs)
        except NotEnoughMemoryError:
            if len(runs) == 1:
                raise
            for half in (runs[: len(runs) // 2], runs[len(runs) // 2 :]):
                self._archive_together(half)

    def _archive_step(self, runs: Sequence[Run]) -> None:
        """Write some runs."""
        run_ids = [run.run_id for run in runs]
        with _draft(self._folder) as draft:
            with open_database(self._database, self._options, [self._folder]) as (session, source):
                source.feed(session, run_ids)
                session.add_choices({"bad_claims": no_bad_rows})
                relations = list(dict.fromkeys(name for run in runs for name in self._wanted(run)))
                session.need(*relations)
                parts = self._parts(session, source, run_ids)
                _load_numbers(session, parts)
                for relation in relations:
                    _write_split(session, relation, draft / relation)
                for few in _few(runs, session.largest_row * _ROWS_AT_ONCE, self._row_bytes):
                    _write_rows(session, source, few, draft / "rows")
            for number, run_id in enumerate(run_ids):
                final = self._folder / RUNS / folder_name(run_id, parts[run_id].digest)
                _assemble(draft, number, [*relations, "rows"], final, {run_id: parts[run_id]})
                self._done[run_id] = _place(final)

    def _parts(self, session: Session, source: SqliteSource, run_ids: Sequence[str]) -> dict[str, PartRun]:
        digests = source.settled_digests(session)
        rows = dict(session.rows("SELECT run_id, COUNT(*) FROM results GROUP BY run_id"))
        found = {}
        for run_id in run_ids:
            numbering = new_numbering(self._numberings)
            self._numberings.add(numbering)
            found[run_id] = PartRun(digests[run_id], numbering, rows.get(run_id, 0))
        return found

    # --- the tables that all runs share ----------------------------------------------------------------

    def _with_tables(self, now: Sequence[Run], *, prune: bool) -> Manifest:
        """The new manifest, with its tables in place. Their names change with their contents."""
        new = Manifest(self._folder)
        with (
            _draft(self._folder) as draft,
            open_database(self._database, self._options, [self._folder]) as (session, source),
        ):
            gone = {run_id: place for run_id, place in self._old.runs.items() if run_id not in self._done}
            new.runs = {**({} if prune else gone), **{run.run_id: self._done[run.run_id] for run in now}}
            source.feed(session, list(self._done))
            kept = [*_archived_runs(session, self._old, [run_id for run_id in gone if run_id in new.runs])]
            # The numbers of hidden secrets carry over, unless the table that has them is damaged.
            earlier = self._old.tables.get("eval_runs")
            is_sound = earlier is not None and earlier.is_sound(self._folder)
            again = [run_id for run_id in self._old.runs if run_id in self._done and is_sound]
            before = _archived_runs(session, self._old, again)
            load_runs(session, without_secrets_of(now, before, kept), "runs_to_keep")
            self._keep_table(session, new, draft, "eval_runs", _as_texts("runs_to_keep", RUN_COLUMNS))
            for table, columns in TABLES.items():
                if table in JUDGING and not source.is_judged:
                    continue
                session.need(f"stored_{table}")
                self._keep_table(session, new, draft, table, _as_texts(f"stored_{table}", columns))
            if self._golden is not None:
                session.add_loaders({"golden_texts": self._golden.text_loader()})
                session.need("golden_texts")
                self._keep_table(session, new, draft, "golden", "SELECT place, id, entry FROM golden_texts")
                new.golden_hash = self._golden.hash
            elif self._old.table("golden") is not None:
                new.tables["golden"], new.golden_hash = self._old.tables["golden"], self._old.golden_hash
        return new

    def _keep_table(self, session: Session, new: Manifest, draft: Path, table: str, sql: str) -> None:
        path = draft / f"{table}.parquet"
        # Sorted, so that equal rows give the same file, which then exists already.
        write_relation(session, f"FROM ({sql}) ORDER BY ALL", path, "zstd")
        written = PartFile.of(path)
        found = PartFile(f"{table}-{written.sha256[:12]}.parquet", written.size, written.sha256)
        if not found.is_sound(self._folder):
            path.replace(self._folder / found.name)
        new.tables[table] = found


def _archived_runs(session: Session, old: Manifest, run_ids: Sequence[str]) -> list[Run]:
    """Runs as they are stored in an archive."""
    table = old.table("eval_runs") if run_ids else None
    if table is None:
        return []
    columns = ", ".join(f"CAST({column} AS VARCHAR)" for column in RUN_COLUMNS)
    wanted = "SELECT UNNEST($1::VARCHAR[])"
    rows = session.rows(f"SELECT {columns} FROM {parquet_scan([table])} WHERE run_id IN ({wanted})", [list(run_ids)])
    return [
        Run(run_id, suite, created_at, commit, config, aggregate, 0)
        for run_id, suite, config, aggregate, created_at, commit in rows
    ]


def _as_texts(relation: str, columns: Sequence[str]) -> str:
    return f"SELECT {', '.join(f'CAST({column} AS VARCHAR) AS {column}' for column in columns)} FROM {relation}"


@contextlib.contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder))
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _place(folder: Path) -> RunFolder:
    return RunFolder(folder.name, sha256_of(folder / PART_FILE))


def _steps(runs: Sequence[Run], memory_limit: str | None) -> Iterator[list[Run]]:
    most = STEP_ROWS * min(1, megabytes(memory_limit or DEFAULT_MEMORY_LIMIT) / megabytes(DEFAULT_MEMORY_LIMIT))
    step: list[Run] = []
    for run in runs:
        if step and sum(each.rows for each in step) + run.rows > most:
            yield step
            step = []
        step.append(run)
    if step:
        yield step


def _load_numbers(session: Session, parts: Mapping[str, PartRun]) -> None:
    """Create `run_numbers`: the number of each run in this step, and the numbering of its rows."""
    session.execute(
        "CREATE TABLE run_numbers AS SELECT UNNEST($1::VARCHAR[]) AS run_id, UNNEST($2::BIGINT[]) AS run_no,"
        " UNNEST($3::BIGINT[]) AS numbering",
        [list(parts), list(range(len(parts))), [part.numbering for part in parts.values()]],
    )


def _write_split(session: Session, relation: str, folder: Path) -> None:
    """Write one relation, one folder per run."""
    of_run = "x" if relation in ("results", "bad_rows", "bad_claims") else "r"
    results = "" if of_run == "x" else "JOIN results AS r ON r.result_no = x.result_no"
    own_number = f"(x.result_no & {(1 << ROW_BITS) - 1}) + (n.numbering << {ROW_BITS})"
    columns = "x.*" if relation == "bad_claims" else f"x.* REPLACE ({own_number} AS result_no)"
    sql = f"SELECT {columns}, n.run_no FROM {relation} AS x {results}"
    nothing = f"SELECT * FROM {relation} WHERE false"
    _copy_split(session, f"{sql} JOIN run_numbers AS n ON n.run_id = {of_run}.run_id", folder)
    _copy_nothing(session, nothing, folder)


def _few(runs: Sequence[Run], limit: int, row_bytes: int) -> Iterator[dict[int, str]]:
    """Runs by their numbers, together as long as their rows have no more bytes than the limit."""
    few: dict[int, str] = {}
    taken = 0
    for number, run in enumerate(runs):
        if few and taken + run.rows * row_bytes > limit:
            yield few
            few, taken = {}, 0
        few[number] = run.run_id
        taken += run.rows * row_bytes
    if few:
        yield few


def _write_rows(session: Session, source: SqliteSource, runs: Mapping[int, str], folder: Path) -> None:
    """Write the stored rows of runs unchanged, numbered in the order in which they were stored."""
    # Without any rows, only these casts determine the column types.
    columns = ", ".join(f"CAST(x.{column} AS {kind}) AS {column}" for column, kind in _ROW_COLUMNS.items())
    nothing = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in _ROW_COLUMNS.items())
    source.load_rows(session, "rows_to_keep", list(runs.values()))
    folder.mkdir(exist_ok=True)
    if len(runs) == 1:
        # One after the other: a join or a split would hold all of them in memory.
        (number,) = runs
        path = folder / f"run_no={number}" / "rows.parquet"
        path.parent.mkdir()
        limit = f"ROW_GROUP_SIZE_BYTES {session.largest_row}"
        sql = f"SELECT {columns} FROM rows_to_keep AS x"
        session.execute(f"COPY ({sql}) TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd, {limit})")
    else:
        join = "JOIN run_numbers AS n ON n.run_id = CAST(x.run_id AS VARCHAR)"
        _copy_split(session, f"SELECT {columns}, n.run_no FROM rows_to_keep AS x {join}", folder)
    _copy_nothing(session, f"SELECT {nothing} WHERE false", folder)


def _copy_split(session: Session, sql: str, folder: Path) -> None:
    """Write rows, one folder per run."""
    how = "FORMAT parquet, COMPRESSION zstd, PARTITION_BY (run_no), OVERWRITE_OR_IGNORE"
    session.execute(f"COPY ({sql}) TO {literal(str(folder))} ({how})")


def _copy_nothing(session: Session, nothing: str, folder: Path) -> None:
    """Write the file of a run without rows. An empty file shows that there are none, not that they are missing."""
    folder.mkdir(exist_ok=True)
    write_relation(session, nothing, folder / "none.parquet", "zstd")


def _assemble(draft: Path, number: int, relations: Sequence[str], final: Path, runs: Mapping[str, PartRun]) -> None:
    """Move the files of one run into its folder."""
    part = draft / f"part-{number}"
    part.mkdir()
    for relation in relations:
        files = sorted((draft / relation / f"run_no={number}").glob("*.parquet"))
        for place, file in enumerate(files):
            file.rename(part / (f"{relation}-{place}.parquet" if place else f"{relation}.parquet"))
        if not files:
            shutil.copyfile(draft / relation / "none.parquet", part / f"{relation}.parquet")
    # If this name exists already, its contents are damaged.
    remove(final)
    finish_part(part, final, runs)


def _tidy(new: Manifest) -> None:
    """Delete what neither this manifest nor the previous one names, unless another process is reading."""
    with locked(new.folder / RUNS, exclusive=True) as nobody_reads:
        if not nobody_reads:
            return
        named = {MANIFEST_FILE, *new.names(), *new.before}
        for path in (*new.folder.iterdir(), *(new.folder / RUNS).iterdir()):
            if path.relative_to(new.folder).as_posix() in named or not is_own(path, new.folder):
                continue
            if path.is_dir():
                remove(path)
            else:
                path.unlink(missing_ok=True)
