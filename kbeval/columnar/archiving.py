"""Writes an archive: the facts of every run as Parquet, a folder a run, with the tables that all runs share.

Only runs whose rows changed are written. Each run's folder is made under another name and renamed when it is whole,
so a killed archiving leaves nothing half-done, and the next one takes up what was finished. Archivings of one folder
wait for each other.
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

from kbeval.columnar.cache import Cache
from kbeval.columnar.manifest import NAME, RUNS, Manifest, RunFolder, folder_name, is_archive, is_own, read_manifest
from kbeval.columnar.parts import (
    ALWAYS,
    MANIFEST,
    ROW_BITS,
    PartFile,
    PartRun,
    finish_part,
    literal,
    new_numbering,
    read_part,
    reading,
    remove,
    sha256_of,
    write_relation,
)
from kbeval.configs import config_of, imported_from
from kbeval.engine import first_line
from kbeval.errors import DatabaseError, UsageError
from kbeval.golden import Golden
from kbeval.locks import lock_holders, locked
from kbeval.runs import KeyFault, Run, run_faults
from kbeval.scoring import ScoreOptions
from kbeval.sources.files import check_is_database
from kbeval.sources.opening import open_database
from kbeval.sources.scores import SCORES
from kbeval.sources.sqlite import BUSY_TIMEOUT_MS, RUN_COLUMNS, TABLES, SqliteSource

if TYPE_CHECKING:
    from kbeval.engine import Session

# So many rows are written in one step.
STEP_ROWS = 100_000
_ROW_COLUMNS = {"result_no": "BIGINT", "run_id": "VARCHAR", "query_id": "VARCHAR", "result_json": "VARCHAR"}


@dataclass
class Archived:
    """What became of each run."""

    folder: Path
    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    # In the archive, and no longer in the database.
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
    options: ScoreOptions | None = None,
    *,
    prune: bool = False,
) -> Archived:
    """Bring an archive up to date with a database. `prune`: forget runs that the database no longer holds."""
    if is_archive(Path(database)):
        msg = f"{database} is an archive itself; name the SQLite database that is to be archived"
        raise UsageError(msg)
    check_is_database(Path(database))
    try:
        place = _made(folder, Path(database))
        with locked(place, exclusive=True, patience=BUSY_TIMEOUT_MS / 1000) as is_alone:
            if is_alone is False:
                msg = f"{folder} is being written by {lock_holders(place)}; wait for it to finish and try again"
                raise DatabaseError(msg)
            work = _Archiving(Path(database), place, golden, options or ScoreOptions())
            return work.bring_up_to_date(prune=prune, tidy=bool(is_alone))
    except duckdb.InterruptException:
        raise
    except (OSError, duckdb.Error) as error:
        why = error.strerror if isinstance(error, OSError) else first_line(error)
        msg = f"{folder} cannot be brought up to date: {why}; what was archived before is still there"
        raise DatabaseError(msg) from error


def _made(folder: Path, database: Path) -> Path:
    """The folder, ours alone. Whatever an archiving that was killed may have left there is ours, too."""
    place, cache = folder.resolve(), Cache(database).folder.resolve()
    if place == cache or cache in place.parents:
        msg = f"{folder} is where the columnar copy of {database} is kept; name another folder"
        raise UsageError(msg)
    try:
        if place.is_dir() and not is_archive(place):
            others = (path for path in place.iterdir() if path.name not in (RUNS, SCORES) and not is_own(path, place))
            if next(others, None) is not None:
                msg = (
                    f"{folder} holds other files and is no archive; name an empty folder, or one that is not there yet"
                )
                raise UsageError(msg)
        (place / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder} cannot be written: {error.strerror}; name another folder"
        raise UsageError(msg) from error
    return place


class _Archiving:
    """One archiving into a folder that nobody else writes to."""

    def __init__(self, database: Path, folder: Path, golden: Golden | None, options: ScoreOptions) -> None:
        self._database = database
        self._folder = folder
        self._golden = golden
        self._options = options
        self._old = read_manifest(folder) if is_archive(folder) else Manifest(folder)
        # What is finished of each run of the database, by this archiving or by an earlier one.
        self._done: dict[str, RunFolder] = {}
        self._numberings: set[int] = set()

    def bring_up_to_date(self, *, prune: bool, tidy: bool) -> Archived:
        found = Archived(self._folder)
        with open_database(self._database, self._options) as (session, source):
            stored = source.runs()
            found.key_faults = run_faults(stored)
            broken = {fault.run_id for fault in found.key_faults}
            runs = [run for run in stored if run.run_id not in broken]
            digests = source.row_digests(session, [run.run_id for run in runs])
        self._numberings = self._taken()
        due = []
        for run in runs:
            there = self._finished(run.run_id, digests[run.run_id])
            if there is None:
                due.append(run)
            else:
                self._done[run.run_id] = there
                found.unchanged.append(run.run_id)
        for step in _steps(due):
            self._archive_step(step)
            found.written += [run.run_id for run in step]
        new = self._with_tables(prune=prune)
        found.gone = [run_id for run_id in self._old.runs if run_id not in self._done]
        new.write(self._old)
        if tidy:
            _tidy(new)
        return found

    def _taken(self) -> set[int]:
        """How rows are numbered in the archive: those of no two runs may have the same numbers."""
        parts = (read_part(path, any_version=True) for path in (self._folder / RUNS).iterdir())
        return {run.numbering for part in parts if part is not None for run in part.runs.values()}

    def _finished(self, run_id: str, digest: str) -> RunFolder | None:
        """The folder of a run with these rows, where it is there and nothing is wrong with it."""
        folder = self._folder / RUNS / folder_name(run_id, digest)
        part = read_part(folder)
        if part is None or run_id not in part.runs or part.runs[run_id].digest != digest:
            return None
        return _place(folder) if part.holds(("rows", *ALWAYS)) and part.is_sound(part.files) else None

    def _archive_step(self, runs: Sequence[Run]) -> None:
        """Write some runs."""
        run_ids = [run.run_id for run in runs]
        with _draft(self._folder) as draft:
            with open_database(self._database, self._options, [self._folder]) as (session, source):
                source.feed(session, run_ids)
                relations = [*ALWAYS, "hit_claims"]
                if any(imported_from(config_of(run)) == "anchors" for run in runs):
                    relations.append("anchor_rows")
                session.need(*relations)
                parts = self._parts(session, source, run_ids)
                _load_numbers(session, parts)
                for relation in relations:
                    _write_split(session, relation, draft / relation)
                source.load_rows(session, "rows_to_keep", run_ids)
                _write_rows(session, draft / "rows")
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

    def _with_tables(self, *, prune: bool) -> Manifest:
        """The new manifest, with its tables in place. Their names change with what is in them."""
        new = Manifest(self._folder)
        with (
            _draft(self._folder) as draft,
            open_database(self._database, self._options, [self._folder]) as (session, source),
        ):
            stored_now = source.runs()
            broken = {fault.run_id for fault in run_faults(stored_now)}
            stored = [run.run_id for run in stored_now if run.run_id not in broken]
            # A run that was deleted meanwhile is gone, one that came meanwhile is for the next time.
            self._done = {run_id: self._done[run_id] for run_id in stored if run_id in self._done}
            gone = {run_id: place for run_id, place in self._old.runs.items() if run_id not in self._done}
            new.runs = {**({} if prune else gone), **self._done}
            source.feed(session, list(self._done))
            self._keep_table(session, new, draft, "eval_runs", self._runs_sql(session, new, gone))
            for table, columns in TABLES.items():
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

    def _runs_sql(self, session: Session, new: Manifest, gone: Mapping[str, RunFolder]) -> str:
        """Runs that the database no longer holds stay as they were."""
        session.need("stored_runs")
        sql = _as_texts("stored_runs", RUN_COLUMNS)
        kept = [run_id for run_id in gone if run_id in new.runs]
        past = self._old.table("eval_runs") if kept else None
        if past is None:
            return sql
        session.execute("CREATE TABLE runs_gone AS SELECT UNNEST($1::VARCHAR[]) AS run_id", [kept])
        earlier = _as_texts(reading([past]), RUN_COLUMNS)
        return f"{sql} UNION ALL ({earlier} WHERE run_id IN (SELECT run_id FROM runs_gone))"

    def _keep_table(self, session: Session, new: Manifest, draft: Path, table: str, sql: str) -> None:
        path = draft / f"{table}.parquet"
        # In order: the same rows are the same file, which is then there already.
        write_relation(session, f"FROM ({sql}) ORDER BY ALL", path, "zstd")
        written = PartFile.of(path)
        found = PartFile(f"{table}-{written.sha256[:12]}.parquet", written.size, written.sha256)
        if not found.is_sound(self._folder):
            path.replace(self._folder / found.name)
        new.tables[table] = found


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
    return RunFolder(folder.name, sha256_of(folder / MANIFEST))


def _steps(runs: Sequence[Run]) -> Iterator[list[Run]]:
    step: list[Run] = []
    for run in runs:
        if step and sum(each.rows for each in step) + run.rows > STEP_ROWS:
            yield step
            step = []
        step.append(run)
    if step:
        yield step


def _load_numbers(session: Session, parts: Mapping[str, PartRun]) -> None:
    """`run_numbers`: the number of a run in this step, and how its rows are to be numbered."""
    session.execute(
        "CREATE TABLE run_numbers AS SELECT UNNEST($1::VARCHAR[]) AS run_id, UNNEST($2::BIGINT[]) AS run_no,"
        " UNNEST($3::BIGINT[]) AS numbering",
        [list(parts), list(range(len(parts))), [part.numbering for part in parts.values()]],
    )


def _write_split(session: Session, relation: str, folder: Path) -> None:
    """One relation, a folder a run."""
    of_run = "x" if relation in ("results", "bad_rows") else "r"
    results = "" if of_run == "x" else "JOIN results AS r ON r.result_no = x.result_no"
    own_number = f"(x.result_no & {(1 << ROW_BITS) - 1}) + (n.numbering << {ROW_BITS})"
    sql = f"SELECT x.* REPLACE ({own_number} AS result_no), n.run_no FROM {relation} AS x {results}"
    nothing = f"SELECT * FROM {relation} WHERE false"
    _copy_split(session, f"{sql} JOIN run_numbers AS n ON n.run_id = {of_run}.run_id", nothing, folder)


def _write_rows(session: Session, folder: Path) -> None:
    """The rows as they stand, numbered in the order in which they were stored."""
    # Where there is no row at all, nobody else says of which type the columns are.
    columns = ", ".join(f"CAST(x.{column} AS {kind}) AS {column}" for column, kind in _ROW_COLUMNS.items())
    nothing = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in _ROW_COLUMNS.items())
    join = "JOIN run_numbers AS n ON n.run_id = CAST(x.run_id AS VARCHAR)"
    sql = f"SELECT {columns}, n.run_no FROM rows_to_keep AS x {join}"
    _copy_split(session, sql, f"SELECT {nothing} WHERE false", folder)


def _copy_split(session: Session, sql: str, nothing: str, folder: Path) -> None:
    """`nothing`: for a run without a single row. It has an empty file: what it lacks is known, not missing."""
    session.execute(f"COPY ({sql}) TO {literal(str(folder))} (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (run_no))")
    folder.mkdir(exist_ok=True)
    write_relation(session, nothing, folder / "none.parquet", "zstd")


def _assemble(draft: Path, number: int, relations: Sequence[str], final: Path, runs: Mapping[str, PartRun]) -> None:
    """Bring the files of one run together."""
    part = draft / f"part-{number}"
    part.mkdir()
    for relation in relations:
        files = sorted((draft / relation / f"run_no={number}").glob("*.parquet"))
        for place, file in enumerate(files):
            file.rename(part / (f"{relation}-{place}.parquet" if place else f"{relation}.parquet"))
        if not files:
            shutil.copyfile(draft / relation / "none.parquet", part / f"{relation}.parquet")
    # What is there under this name is broken.
    remove(final)
    finish_part(part, final, runs)


def _tidy(new: Manifest) -> None:
    """Delete what neither this manifest nor the one before it names, unless somebody is reading."""
    with locked(new.folder / RUNS, exclusive=True) as nobody_reads:
        if not nobody_reads:
            return
        named = {NAME, *new.names(), *new.before}
        for path in (*new.folder.iterdir(), *(new.folder / RUNS).iterdir()):
            if path.relative_to(new.folder).as_posix() in named or not is_own(path, new.folder):
                continue
            if path.is_dir():
                remove(path)
            else:
                path.unlink(missing_ok=True)
