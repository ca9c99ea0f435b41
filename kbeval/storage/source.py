"""Sources of runs, and how they are opened.

`Source` is the interface that scoring requires of any source. `StoredSource` is a database or an archive, whose rows
persist between two calls. `open_source` opens what `--db` names: a SQLite database, with its cache if the database is
large, or an archive.

The engine is imported only where rows are scored or an archive is read: listing the runs of a database needs none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from kbeval.errors import CopyLostError, NotEnoughMemoryError
from kbeval.storage.database_file import check_is_database, database_size, is_archive
from kbeval.storage.runs import KeyFault, Run
from kbeval.storage.snapshot import Snapshot, shared_snapshot, sharing
from kbeval.storage.sqlite import SqliteSource

if TYPE_CHECKING:
    from kbeval.engine.session import Session
    from kbeval.golden import Golden
    from kbeval.metrics.catalogue import Metric
    from kbeval.storage.cache import Cache
    from kbeval.storage.options import ReadOptions

Result = TypeVar("Result")
Options = TypeVar("Options", bound="ReadOptions")


class Source(Protocol):
    """Runs and their rows, wherever they are: in a database, an archive, a trace file or in memory.

    A source is a context manager: it is read while it is open. The runs are chosen from `runs`, `feed` tells a session
    how to load their rows, and the session then builds relations from them.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def runs(self) -> list[Run]:
        """Every run, oldest first."""
        ...

    def repeated_rows(self, run_ids: Sequence[str]) -> list[KeyFault]:
        """The queries for which one of these runs has several rows."""
        ...

    def rubrics(self) -> list[str]:
        """The rubrics that its runs were judged by; empty if none was judged here."""
        ...

    def feed(self, session: Session, run_ids: Sequence[str]) -> None:
        """Register with a session how it obtains the facts of these runs. Nothing is read yet."""
        ...

    def settled_digests(self, session: Session) -> dict[str, str]:
        """The digest of the rows of each run of the session, once they are parsed."""
        ...

    def result_json(self, run_id: str, query_id: str) -> str | None:
        """One row, unchanged; None if there is none."""
        ...

    def chunk_details(self, chunk_ids: Sequence[str]) -> list[tuple[str, str, str | None, str | None]]:
        """What is known about these chunks: id, version, text and source spans. Empty without a knowledge base."""
        ...


class StoredSource(Source, Protocol):
    """A database or an archive: numbers can be stored in it, and other processes may change it between two calls."""

    def feed(self, session: Session, run_ids: Sequence[str], earlier: Mapping[str, str] | None = None) -> None:
        """As in `Source`. `earlier`: runs to read as they were, by the digest of their rows then; see `still_kept`."""
        ...

    def begin(self, session: Session) -> None:
        """Start to read what a scoring needs besides the rows. After `feed`."""
        ...

    # --- the state that is read ------------------------------------------------------------------

    def release(self) -> None:
        """Let other processes write, until `resume`."""
        ...

    def resume(self) -> bool:
        """Continue reading; False if it has changed, so that what was read must be discarded."""
        ...

    def sharing(self) -> contextlib.AbstractContextManager[None]:
        """In this context, opening the same source again reads the same state of it."""
        ...

    # --- what was stored earlier -----------------------------------------------------------------

    @property
    def keeps_rows(self) -> bool:
        """Are the scored rows still available after a change?"""
        ...

    def row_digests(self, session: Session, run_ids: Sequence[str]) -> dict[str, str]:
        """The digests of the rows of these runs, computed without parsing the rows."""
        ...

    def row_marks(self, earlier: Mapping[str, str]) -> dict[str, dict[str, int]]:
        """The stored marks of the rows of each run, by query, if its rows had these digests."""
        ...

    def still_kept(self, earlier: Mapping[str, str]) -> set[str]:
        """The runs whose earlier rows, identified by their digest, can still be read."""
        ...

    def labels(self, golden_hash: str) -> Golden | None:
        """The labels that stored numbers were computed with, if they are kept."""
        ...

    def result_texts(self, run_id: str) -> list[str]:
        """Every row of a run, in the order in which they were stored."""
        ...

    def result_rows(self, run_id: str, query_ids: Sequence[str]) -> list[tuple[str, str]]:
        """The rows of a run for these queries: the id of the query and the JSON, by the order of the ids."""
        ...

    def judge_inputs(self, hashes: Sequence[str]) -> dict[str, str]:
        """What judges were given to read, by its hash; empty if it is not kept."""
        ...


@contextlib.contextmanager
def open_source(database: str | os.PathLike[str], options: ReadOptions) -> Iterator[tuple[Session, StoredSource]]:
    """A session and the source that feeds it."""
    path = Path(database)
    if options.engine:
        from kbeval.storage.far_archive import open_far_archive  # most commands have no other engine

        with open_far_archive(path, options) as there:
            yield there
        return
    if not is_archive(path):
        with open_database(path, options) as found:
            yield found
        return
    from kbeval.storage.archive import ArchiveSource

    with options.session(path, [path.absolute()]) as session, ArchiveSource(path, session.connection) as source:
        yield session, source


@contextlib.contextmanager
def open_database(
    path: Path, options: ReadOptions, reach: Sequence[Path] = ()
) -> Iterator[tuple[Session, SqliteSource]]:
    """Open a SQLite database. On success, the parsed rows are written to the cache.

    `reach`: other paths that the session may read and write.
    """
    check_is_database(path)
    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(_cache(path, options.cache))
        source = SqliteSource(path, cache=cache)
        session = stack.enter_context(options.session(path, [*reach, *([] if cache is None else [cache.folder])]))
        stack.enter_context(source)
        try:
            yield session, source
        except Exception as error:
            if source.lost_its_copy():
                msg = f"the cache of {path} was deleted while it was being read; try again"
                raise CopyLostError(msg) from error
            raise
        source.keep(session)


@contextlib.contextmanager
def _cache(path: Path, wanted: str) -> Iterator[Cache | None]:
    """The cache of a database, if it is enabled and the database is large enough."""
    from kbeval.storage.cache import WORTH_BYTES, Cache

    with contextlib.ExitStack() as stack:
        cache = None
        if wanted == "on" or (wanted == "auto" and database_size(path) >= WORTH_BYTES):
            # A folder that cannot be written is not an error: the rows are then parsed every time.
            with contextlib.suppress(OSError):
                cache = stack.enter_context(Cache(path))
        yield cache


@contextlib.contextmanager
def one_snapshot(database: str | os.PathLike[str], cache: str = "auto") -> Iterator[None]:
    """Everything that is read from a database in this context is read from one snapshot. Do not write to it meanwhile.

    `cache`: as in the options of the scoring that follows.
    """
    path = Path(database)
    if is_archive(path) or shared_snapshot(path) is not None:
        yield
        return
    snapshot = Snapshot(path)
    try:
        with _cache(path, cache) as found:
            snapshot.open(probe=None if found is None else found.clock)
        with sharing(snapshot):
            yield
    finally:
        snapshot.end()


def with_or_without_copy(options: Options, task: Callable[[Options], Result]) -> Result:
    """Run a task on a source. Retry it without the cache if the cache was deleted meanwhile, or with one thread if
    the memory limit was too low for several.
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
def open_rows(database: str | os.PathLike[str]) -> Iterator[StoredSource]:
    """Open a database or an archive to read stored rows without scoring."""
    if not is_archive(Path(database)):
        with SqliteSource(database) as found:
            yield found
        return
    import duckdb

    from kbeval.storage.archive import ArchiveSource

    with duckdb.connect(":memory:") as reader, ArchiveSource(database, reader) as source:
        yield source


def stored_rubrics(database: str | os.PathLike[str]) -> list[str]:
    """The rubrics that runs of a database or an archive were judged by."""
    with open_rows(database) as source:
        return source.rubrics()


def scores_that_came(database: str | os.PathLike[str], names: Iterable[str]) -> list[Metric]:
    """The metrics of scores that came with the rows, if one of these names may be the name of such a score."""
    from kbeval.metrics.row_scores import row_score_metrics, score_fault
    from kbeval.storage.run_config import config_of

    if not any(score_fault(name) is None for name in names):
        return []
    return row_score_metrics(map(config_of, stored_runs(database)))


def stored_runs(database: str | os.PathLike[str]) -> list[Run]:
    """Every run of a database or an archive, oldest first."""
    with open_rows(database) as source:
        return source.runs()
