"""All relations of a database's runs as one DuckDB file, for any client that opens such files.

Tables are copied in batches, so memory stays bounded. The file is written under a temporary name and renamed when it is
complete. The session itself cannot write files, so the rows are streamed to a second connection that can.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from kbeval.engine.failures import first_line
from kbeval.engine.memory import DEFAULT_MEMORY_LIMIT, most_threads
from kbeval.engine.quoting import quoted
from kbeval.engine.relations import called_macros, macros, read_sql
from kbeval.engine.session import Session
from kbeval.errors import KbevalError, UsageError
from kbeval.explore.answers import BATCH_ROWS
from kbeval.explore.explorer import Explorer
from kbeval.explore.tables import reads_of, tables
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.run_tables import compare_macro
from kbeval.util.files import check_target, whole_database

# Intermediate steps that repeat stored rows, or that are of no use by themselves.
_LEFT_OUT = frozenset(
    ("parsed", "parsed_hits", "anchor_rows", "fields", "hit_fields", "field_names", "span_pieces", "span_sets")
) | {"shared_text"}
# Views of the session that are stored as tables, because they are queried most.
_ALWAYS_TABLES = frozenset(("scores", "hits", "results"))


def export_duckdb(
    explorer: Explorer,
    path: Path,
    *,
    options: ScoreOptions,
    replace: bool = False,
    never: Sequence[str | os.PathLike[str]] = (),
) -> list[str]:
    """Write the file; returns the names of the tables and views in it."""
    _check_may_go(path, check_target(path, never), replace)
    with whole_database(path, never) as draft, _target(draft, options) as target:
        # Each macro after those that it calls.
        for helper in dict.fromkeys(called_macros(read_sql("macros.sql"))):
            target.execute(macros()[helper])
        names = [name for name in _in_order() if name not in _LEFT_OUT]
        explorer.make(*names)
        for name in names:
            _copy(explorer.session, target, name)
        target.execute(compare_macro())
    return names


def _in_order() -> list[str]:
    """Sort relations so that each follows those that it reads."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in found or name not in tables():
            return
        for other in sorted(reads_of(name)):
            if other != name:
                visit(other)
        found[name] = None

    # Everything that the views read precedes them, including the scores.
    for name in sorted(tables(), key=lambda name: tables()[name].layer == "views"):
        visit(name)
    return list(found)


def _copy(session: Session, target: duckdb.DuckDBPyConnection, name: str) -> None:
    """Create one relation in the file: as a view if it is one, otherwise as a table."""
    ((view,),) = session.rows(
        "SELECT (SELECT sql FROM duckdb_views() WHERE view_name = $1 AND NOT internal AND NOT temporary)", [name]
    )
    # Relations read from the cache are views in the session, and must be tables in the file.
    stays_view = view is not None and name not in _ALWAYS_TABLES and "read_parquet" not in str(view)
    if stays_view and _copy_view(target, name, str(view)):
        return
    described = session.rows(f'DESCRIBE "{name}"')
    # A column that is null everywhere has no type of its own.
    types = {'"NULL"': "INTEGER"}
    columns = ", ".join(f"{quoted(row[0])} {types.get(row[1], row[1])}" for row in described)
    target.execute(f"CREATE TABLE {quoted(name)} ({columns})")
    connection = session.connection
    reader = connection.sql(f"SELECT * FROM {quoted(name)}").to_arrow_reader(BATCH_ROWS)
    target.register("arriving", reader)
    try:
        # Ctrl-C interrupts the reading side, which makes the writing side fail.
        session.waiting(lambda: target.execute(f"INSERT INTO {quoted(name)} SELECT * FROM arriving"))
    finally:
        target.unregister("arriving")
        reader.close()


def _copy_view(target: duckdb.DuckDBPyConnection, name: str, sql: str) -> bool:
    """Copy a view, unless it reads something that the file does not have; its rows are copied then."""
    try:
        target.execute(sql)
        target.execute(f"DESCRIBE {quoted(name)}").fetchall()
    except duckdb.Error:
        with contextlib.suppress(duckdb.Error):
            target.execute(f"DROP VIEW IF EXISTS {quoted(name)}")
        return False
    return True


@contextlib.contextmanager
def _target(draft: Path, options: ScoreOptions) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        settings: dict[str, Any] = {"memory_limit": options.memory_limit or DEFAULT_MEMORY_LIMIT}
        settings["threads"] = min(options.threads or os.cpu_count() or 1, most_threads(options.memory_limit))
        settings["preserve_insertion_order"] = False
        settings["temp_directory"] = str(draft.parent / "spill")
        with duckdb.connect(str(draft), config=settings) as connection:
            connection.execute("SET python_enable_replacements = false")
            yield connection
            connection.execute("CHECKPOINT")
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        msg = f"the file cannot be written: {first_line(error)}"
        raise KbevalError(msg) from error


def _check_may_go(path: Path, real: Path, replace: bool) -> None:
    """Only a DuckDB file may be overwritten, and only on request. Anything else may be valuable."""
    # DuckDB would apply its contents to our file as the latest changes.
    if Path(f"{real}.wal").exists():
        msg = (
            f"{path}.wal exists: another program has the file open, or did not close it properly; close it or delete it"
        )
        raise UsageError(msg)
    if real.is_dir():
        msg = f"{path} is a directory; specify a file"
        raise UsageError(msg)
    if not real.exists():
        return
    if not replace:
        msg = f"{path} already exists; use --replace to overwrite it"
        raise UsageError(msg)
    if not real.is_file():
        msg = f"{path} is not a regular file; specify another"
        raise UsageError(msg)
    try:
        with real.open("rb") as file:
            head = file.read(12)
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise UsageError(msg) from error
    # After a checksum.
    if head and head[8:] != b"DUCK":
        msg = f"{path} is not a DuckDB file, so --replace does not overwrite it; specify another file, or delete it"
        raise UsageError(msg)
