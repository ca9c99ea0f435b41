"""Writes an archive: the facts of every run as Parquet, a folder a run, with the tables that all runs share.

Only runs whose rows changed are written. Each run's folder is made under another name and renamed when it is whole,
so a killed archiving leaves nothing half-done, and the next one takes up what was finished.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.columnar.manifest import RUNS, Manifest, folder_name, is_archive, read_manifest
from kbeval.columnar.parts import ALWAYS, PartRun, finish_part, literal, read_part, remove, write_relation
from kbeval.configs import config_of, imported_from
from kbeval.errors import UsageError
from kbeval.golden import Golden
from kbeval.scoring import ScoreOptions
from kbeval.sources.opening import open_database
from kbeval.sources.sqlite import OPTIONAL, Run, SqliteSource

if TYPE_CHECKING:
    from kbeval.engine import Session

# So many rows are written in one step.
STEP_ROWS = 100_000
_NO_ROWS = "SELECT 0 AS result_no, '' AS run_id, '' AS query_id, '' AS result_json WHERE false"


@dataclass
class Archived:
    """What became of each run."""

    folder: Path
    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    # In the archive, and no longer in the database.
    gone: list[str] = field(default_factory=list)

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
    options = options or ScoreOptions()
    if is_archive(Path(database)):
        msg = f"{database} is an archive itself; name the SQLite database that is to be archived"
        raise UsageError(msg)
    folder = _made(folder)
    old = read_manifest(folder) if is_archive(folder) else Manifest(folder)
    with open_database(Path(database), options) as (session, source):
        runs = source.runs()
        digests = source.row_digests(session, [run.run_id for run in runs])
    found = Archived(folder)
    names = {run.run_id: folder_name(run.run_id, digests[run.run_id]) for run in runs}
    due = []
    for run in runs:
        if _is_there(folder / RUNS / names[run.run_id], digests[run.run_id], run.run_id):
            found.unchanged.append(run.run_id)
        else:
            due.append(run)
    for step in _steps(due):
        names |= _archive_step(database, folder, step, options)
        found.written += [run.run_id for run in step]
    found.gone = [run_id for run_id in old.runs if run_id not in names]
    kept = {} if prune else {run_id: old.runs[run_id] for run_id in found.gone}
    new = Manifest(folder, {**kept, **names}, before=[name for name in old.names() if name not in names.values()])
    _write_tables(database, new, old, golden, options)
    new.before = [name for name in old.names() if name not in new.names()]
    new.write()
    _tidy(new)
    return found


def _made(folder: Path) -> Path:
    try:
        if folder.is_dir() and not is_archive(folder) and any(path.name != RUNS for path in folder.iterdir()):
            msg = f"{folder} holds other files and is no archive; name an empty folder, or one that is not there yet"
            raise UsageError(msg)
        (folder / RUNS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder} cannot be written: {error.strerror}; name another folder"
        raise UsageError(msg) from error
    return folder.resolve()


def _is_there(folder: Path, digest: str, run_id: str) -> bool:
    part = read_part(folder)
    return part is not None and run_id in part.runs and part.runs[run_id].digest == digest and part.is_whole()


def _steps(runs: Sequence[Run]) -> Iterator[list[Run]]:
    step: list[Run] = []
    for run in runs:
        if step and sum(each.rows for each in step) + run.rows > STEP_ROWS:
            yield step
            step = []
        step.append(run)
    if step:
        yield step


def _archive_step(
    database: str | os.PathLike[str], folder: Path, runs: Sequence[Run], options: ScoreOptions
) -> dict[str, str]:
    """Write some runs; returns the names of their folders."""
    run_ids = [run.run_id for run in runs]
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder))
    try:
        with open_database(Path(database), options, [folder]) as (session, source):
            source.feed(session, run_ids)
            relations = [*ALWAYS, "hit_claims"]
            if any(imported_from(config_of(run)) == "anchors" for run in runs):
                relations.append("anchor_rows")
            session.need(*relations)
            parts = _parts(session, source, run_ids)
            session.execute("CREATE TABLE run_numbers AS SELECT * FROM (SELECT '' AS run_id, 0 AS run_no) WHERE false")
            for number, run_id in enumerate(run_ids):
                session.execute("INSERT INTO run_numbers VALUES ($1, $2)", [run_id, number])
            for relation in relations:
                _write_split(session, relation, draft / relation)
            source.load_rows(session, "rows_to_keep", run_ids)
            _write_split(session, "rows_to_keep", draft / "rows")
        found = {}
        for number, run_id in enumerate(run_ids):
            name = folder_name(run_id, parts[run_id].digest)
            _assemble(draft, number, [*relations, "rows"], folder / RUNS / name, {run_id: parts[run_id]})
            found[run_id] = name
        return found
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _parts(session: Session, source: SqliteSource, run_ids: Sequence[str]) -> dict[str, PartRun]:
    digests = source.settled_digests(session)
    rows = dict(session.rows("SELECT run_id, COUNT(*) FROM results GROUP BY run_id"))
    return {run_id: PartRun(digests[run_id], source.numbering_of(run_id), rows.get(run_id, 0)) for run_id in run_ids}


def _write_split(session: Session, relation: str, folder: Path) -> None:
    """One relation, a folder a run."""
    if relation in ("results", "bad_rows", "rows_to_keep"):
        join = "JOIN run_numbers AS n ON n.run_id = x.run_id"
    else:
        join = "JOIN results AS r ON r.result_no = x.result_no JOIN run_numbers AS n ON n.run_id = r.run_id"
    session.execute(
        f"COPY (SELECT x.*, n.run_no FROM {relation} AS x {join}) TO {literal(str(folder))}"
        " (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (run_no))"
    )
    # A run without a single row of it has an empty file: what it lacks is known, not missing.
    nothing = f"SELECT * FROM {relation} WHERE false" if relation in session.built else _NO_ROWS
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
    remove(final)
    finish_part(part, final, runs)


def _write_tables(
    database: str | os.PathLike[str], new: Manifest, old: Manifest, golden: Golden | None, options: ScoreOptions
) -> None:
    """The tables that all runs share, each a file whose name changes with every archiving."""
    mark = os.urandom(4).hex()
    with open_database(Path(database), options, [new.folder]) as (session, source):
        source.feed(session, [run.run_id for run in source.runs()])
        selects = {"eval_runs": "stored_runs", **{table: f"stored_{table}" for table in OPTIONAL}}
        if golden is not None:
            session.add_loaders({"golden_texts": golden.text_loader()})
            selects["golden"] = "golden_texts"
            new.golden_hash = golden.hash
        for table, relation in selects.items():
            session.need(relation)
            new.tables[table] = f"{table}-{mark}.parquet"
            _write_table(session, table, relation, new, old)
    if golden is None and "golden" in old.tables:
        new.tables["golden"], new.golden_hash = old.tables["golden"], old.golden_hash


def _write_table(session: Session, table: str, relation: str, new: Manifest, old: Manifest) -> None:
    sql = f"SELECT * FROM {relation}"
    if table == "eval_runs" and (past := old.table("eval_runs")) is not None:
        # Runs that the database no longer holds stay as they were.
        kept = ", ".join(map(literal, new.runs)) or "NULL"
        session.execute(f"CREATE TABLE runs_now AS {sql}")
        sql = (
            f"SELECT * FROM runs_now UNION ALL BY NAME SELECT * FROM read_parquet({literal(str(past))})"
            f" WHERE run_id IN ({kept}) AND run_id NOT IN (SELECT run_id FROM runs_now)"
        )
    write_relation(session, sql, new.folder / new.tables[table], "zstd")


def _tidy(new: Manifest) -> None:
    """Delete what neither this manifest nor the one before it names."""
    named = {*new.names(), *new.before}
    for path in (*new.folder.glob("*.parquet"), *(new.folder / RUNS).iterdir(), *new.folder.glob("draft-*")):
        if path.relative_to(new.folder).as_posix() in named:
            continue
        if path.is_dir():
            remove(path)
        else:
            path.unlink(missing_ok=True)
