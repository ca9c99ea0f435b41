"""Opens what `--db` names: a SQLite database, with the columnar copy beside it where that is worth it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.columnar.cache import WORTH_BYTES, Cache
from kbeval.sources.files import check_is_database, database_size
from kbeval.sources.sqlite import SqliteSource

if TYPE_CHECKING:
    from kbeval.engine import Session
    from kbeval.scoring import ScoreOptions


@contextlib.contextmanager
def open_source(database: str | os.PathLike[str], options: ScoreOptions) -> Iterator[tuple[Session, SqliteSource]]:
    """A session and the source that feeds it. Where all went well, what was parsed is kept for the next time."""
    path = Path(database)
    check_is_database(path)
    with contextlib.ExitStack() as stack:
        cache = None
        if options.cache == "on" or (options.cache == "auto" and database_size(path) >= WORTH_BYTES):
            # A folder that cannot be written is no fault: the rows are parsed then, each time.
            with contextlib.suppress(OSError):
                cache = stack.enter_context(Cache(path))
        session = stack.enter_context(options.session(path, [] if cache is None else [cache.folder]))
        source = stack.enter_context(SqliteSource(path, session.connection, cache=cache))
        yield session, source
        source.keep(session)
