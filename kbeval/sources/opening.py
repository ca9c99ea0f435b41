"""Opens what `--db` names: a SQLite database, with the columnar copy beside it where that pays, or an archive."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import duckdb

from kbeval.columnar.cache import WORTH_BYTES, Cache
from kbeval.columnar.manifest import is_archive
from kbeval.errors import CopyLostError, NotEnoughMemoryError
from kbeval.runs import Run
from kbeval.sources.archive import ArchiveSource
from kbeval.sources.files import check_is_database, database_size
from kbeval.sources.sqlite import SqliteSource

if TYPE_CHECKING:
    from kbeval.engine import Session
    from kbeval.scoring import ScoreOptions

Source = SqliteSource | ArchiveSource
Result = TypeVar("Result")


@contextlib.contextmanager
def open_source(database: str | os.PathLike[str], options: ScoreOptions) -> Iterator[tuple[Session, Source]]:
    """A session and the source that feeds it."""
    path = Path(database)
    if not is_archive(path):
        with open_database(path, options) as found:
            yield found
        return
    with options.session(path, [path.absolute()]) as session, ArchiveSource(path, session.connection) as source:
        yield session, source


@contextlib.contextmanager
def open_database(
    path: Path, options: ScoreOptions, reach: Sequence[Path] = ()
) -> Iterator[tuple[Session, SqliteSource]]:
    """A SQLite database. Where all went well, what was parsed is kept for the next time.

    `reach`: where else the session may read and write.
    """
    check_is_database(path)
    with contextlib.ExitStack() as stack:
        cache = None
        if options.cache == "on" or (options.cache == "auto" and database_size(path) >= WORTH_BYTES):
            # A folder that cannot be written is no fault: the rows are parsed then, each time.
            with contextlib.suppress(OSError):
                cache = stack.enter_context(Cache(path))
        session = stack.enter_context(options.session(path, [*reach, *([] if cache is None else [cache.folder])]))
        source = stack.enter_context(SqliteSource(path, session.connection, cache=cache))
        try:
            yield session, source
        except Exception as error:
            if source.lost_its_copy():
                msg = f"the columnar copy of {path} was deleted while it was read; try again"
                raise CopyLostError(msg) from error
            raise
        source.keep(session)


def with_or_without_copy(options: ScoreOptions, task: Callable[[ScoreOptions], Result]) -> Result:
    """Do something with a source; once more from the rows themselves, where the copy was deleted meanwhile, and once
    more with the least memory, where it was not enough for several threads.
    """
    try:
        return task(options)
    except CopyLostError:
        return task(replace(options, cache="off"))
    except NotEnoughMemoryError:
        if options.sparing:
            raise
        return task(replace(options, sparing=True))


@contextlib.contextmanager
def open_rows(database: str | os.PathLike[str]) -> Iterator[Source]:
    """What is stored, to look at it without scoring."""
    with duckdb.connect(":memory:") as reader:
        kind = ArchiveSource if is_archive(Path(database)) else SqliteSource
        with kind(database, reader) as source:
            yield source


def stored_runs(database: str | os.PathLike[str]) -> list[Run]:
    """Every run of a database or an archive, oldest first."""
    with open_rows(database) as source:
        return source.runs()
