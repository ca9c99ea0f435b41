"""A session: one private DuckDB in which the relations of `sql/` are built on demand.

A relation is built when it is first needed, after those it reads from, so a query about runs never parses a hit.
Sources supply the stored tables; nothing is written back to them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import duckdb

from kbeval.engine.failures import first_line, in_our_words
from kbeval.engine.interruptible import Work, run_interruptible, with_its_cause
from kbeval.engine.memory import DEFAULT_MEMORY_LIMIT, largest_row, most_threads
from kbeval.engine.quoting import quoted, verbatim
from kbeval.engine.relations import Relation, called_macros, macros, relations
from kbeval.engine.spill import SpillFolder
from kbeval.engine.statements import parsed
from kbeval.errors import KbevalError, UsageError
from kbeval.util.ending import ENDING

if TYPE_CHECKING:
    import polars as pl

COMPRESS_FROM_BYTES = 1_000_000_000
# Up to here a statement takes longer to plan than to run, so neither a second thread saves any time nor these passes of
# DuckDB's optimizer; all of them cost some. Those that order joins, move filters and stop at a limit stay: without them
# a few kilobytes can take all memory.
SMALL_BYTES = 8_000_000
SKIPPED_IF_SMALL = (
    "aggregate_reuse",
    "common_aggregate",
    "common_subplan",
    "compressed_materialization",
    "distinct_aggregate_rewrite",
    "duplicate_groups",
    "extension",
    "grouping_sets",
    "join_elimination",
    "join_filter_pushdown",
    "partial_aggregate_pushdown",
    "partitioned_execution",
    "projection_placement",
    "projection_pullup",
    "redundant_order_keys",
    "remote_pushdown",
    "row_group_pruner",
    "sampling_pushdown",
    "scalar_fn_pushdown",
    "type_pushdown",
    "window_rewriter",
    "window_self_join",
)
COMPRESSED = "work"

Result = TypeVar("Result")
Loader = Callable[["Session"], None]
# Which variant of a relation is to be built; None: the relation's own file.
Choice = Callable[["Session"], str | None]


@dataclass(frozen=True)
class Copied:
    """A relation with rows in files: the SELECT that reads them, and whether there are also fresh rows.

    Relations of one group have the same fresh rows, so the fresh rows of one are built from those of another.
    """

    sql: str
    fresh: bool
    group: str
    # `results` is needed to select the requested rows.
    needs_results: bool = False


@dataclass(frozen=True)
class Added:
    """A column that a relation has only in sessions that request it: from another relation, joined by these keys."""

    column: str
    source: str
    keys: tuple[str, ...]


class Session:
    """Builds relations in order and runs queries over them."""

    # Is the work after the facts done by another engine?
    is_far = False

    @property
    def unchecked(self) -> list[str]:
        """What was to be looked for and cannot be in this session."""
        return []

    def __init__(  # noqa: PLR0913  (settings, each with its default)
        self,
        *,
        threads: int | None = None,
        memory_limit: str | None = None,
        expected_bytes: int = 0,
        on_step: Callable[[str], None] | None = None,
        reach: Sequence[Path] = (),
        is_sparing: bool = False,
    ) -> None:
        """`expected_bytes`: how much there is to read; 0: not known. `reach`: the only folders and files that the
        session may read and write; by default none.

        `is_sparing`: one thread, and rows are read one at a time, which takes the least memory and the most time.
        """
        self.is_sparing = is_sparing
        self._memory_limit = memory_limit or DEFAULT_MEMORY_LIMIT
        self.largest_row = largest_row(self._memory_limit)
        self._wanted_threads = threads
        self._expected_bytes = expected_bytes
        self._is_small = 0 < expected_bytes <= SMALL_BYTES
        self._reach = reach
        self._is_compressed = False
        self._loaders: dict[str, Loader] = {}
        self._choices: dict[str, Choice] = {}
        self._copies: dict[str, Copied] = {}
        self._additions: dict[str, Added] = {}
        # Stored tables that are known to have no rows.
        self.empty: set[str] = set()
        self._on_step = on_step
        self._built: set[str] = set()
        self._variants: dict[str, str] = {}
        self._macros: set[str] = set()
        self._own_macros: dict[str, str] = {}
        # Set once DuckDB runs a statement, or nothing is left to build.
        self._at_work = threading.Event()
        # Both exist once the session is first used: starting DuckDB takes as long as ten small statements.
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._spill: SpillFolder | None = None
        self._connecting = threading.Lock()

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection to this session's DuckDB."""
        if self._connection is None:
            with self._connecting:
                if self._connection is None:
                    self._connection = self._connect()
        return self._connection

    @connection.setter
    def connection(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def _connect(self) -> duckdb.DuckDBPyConnection:
        self._spill = SpillFolder()
        try:
            connection = duckdb.connect(":memory:")
            run_interruptible(connection, lambda: self._set_up(connection))
        except BaseException:
            self._spill.remove()
            self._spill = None
            raise
        return connection

    def _set_up(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("SET memory_limit = ?", [self._memory_limit])
        if self._spill is not None:
            connection.execute("SET temp_directory = ?", [str(self._spill.path)])
        self._threads = self._fitting_threads(connection)
        connection.execute("SET threads = ?", [self._threads])
        if self._is_small:
            # A version of DuckDB that lacks one of them runs all.
            with contextlib.suppress(duckdb.ParserException, duckdb.InvalidInputException):
                connection.execute("SET disabled_optimizers = ?", [",".join(SKIPPED_IF_SMALL)])
        # Results never depend on the order of rows, so DuckDB need not preserve it.
        connection.execute("SET preserve_insertion_order = false")
        # DuckDB would draw its own bar on standard output, in the middle of the data.
        connection.execute("SET enable_progress_bar = false")
        # The meaning of a time must not depend on the machine.
        connection.execute("SET TimeZone = 'UTC'")
        # Only registered relations can be read, not variables of the calling program.
        connection.execute("SET python_enable_replacements = false")
        # Compression costs time, which pays off only when data spills to disk.
        if self._expected_bytes > COMPRESS_FROM_BYTES:
            connection.execute(f"ATTACH ':memory:' AS {COMPRESSED} (COMPRESS)")
            connection.execute(f"USE {COMPRESSED}")
            self._is_compressed = True
        if self._reach:
            connection.execute(
                "SET allowed_directories = ?", [[f"{name}/" for name in _names(filter(Path.is_dir, self._reach))]]
            )
            connection.execute("SET allowed_paths = ?", [_names(filter(Path.is_file, self._reach))])
        # From here on no statement can read or write any other file, access the network or undo this.
        connection.execute("SET enable_external_access = false")
        self._lock(connection)

    def _fitting_threads(self, connection: duckdb.DuckDBPyConnection) -> int:
        """All processors, unless there is little to do; never more threads than the memory allows."""
        threads = self._wanted_threads
        if self.is_sparing or (threads is None and self._is_small):
            return 1
        if threads is None:
            ((processors,),) = connection.execute("SELECT current_setting('threads')").fetchall()
            threads = int(processors)
        return min(threads, most_threads(self._memory_limit))

    def _lock(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("SET lock_configuration = true")

    def add_loaders(self, loaders: Mapping[str, Loader]) -> None:
        """Register how stored tables are loaded when they are first needed."""
        self._loaders.update(loaders)

    def add_choices(self, choices: Mapping[str, Choice]) -> None:
        """Register which variant of a relation is to be built; evaluated when the relation is first needed."""
        self._choices.update(choices)

    def add_copies(self, copies: Mapping[str, Copied]) -> None:
        """Register which relations are in files, entirely or in part."""
        self._copies.update(copies)

    def add_columns(self, columns: Mapping[str, Added]) -> None:
        """Register columns that relations get when they are built; those that are built already stay as they are."""
        self._additions.update(columns)

    def added_to(self, name: str) -> Added | None:
        """The column that a relation gets in addition."""
        return self._additions.get(name)

    def replace_macro(self, name: str, statement: str) -> None:
        """Give a macro another definition, before it is first called."""
        self._own_macros[name] = statement

    @property
    def is_small(self) -> bool:
        """Is there so little to read that planning takes longer?"""
        return self._is_small

    def fresh_name(self, name: str) -> str:
        """The relation with those rows of another that are in no file."""
        return f"fresh_{name}" if name in self._copies else name

    def need(self, *names: str) -> None:
        """Build these relations, after those they read from."""
        for name in names:
            if name in self._built:
                continue
            if name in self._loaders:
                self._step(f"reading {name.removeprefix('stored_').replace('_', ' ')}")
                self._loaders[name](self)
            elif name in relations():
                variant = self._choices[name](self) if name in self._choices else None
                self._variants[name] = name if variant is None else f"{name}@{variant}"
                self._need_relation(relations()[self._variants[name]])
            else:
                msg = f"there is no relation {name!r}"
                raise UsageError(msg)
            self._built.add(name)

    def _need_relation(self, relation: Relation) -> None:
        copy = self._copies.get(relation.name)
        if copy is None or copy.fresh:
            known = self._loaders.keys() | relations().keys()
            self.need(*sorted(relation.reads & known))
            if (added := self._additions.get(relation.name)) is not None:
                self.need(added.source)
            self._step(f"building {relation.name.replace('_', ' ')}")
            self._build(self.fresh_name(relation.name), relation.kind, self._fresh_sql(relation))
        if copy is not None:
            if copy.needs_results:
                self.need("results")
            others = f"SELECT * FROM fresh_{relation.name}\nUNION ALL BY NAME\n" if copy.fresh else ""
            self.execute(f"CREATE VIEW {relation.name} AS {others}{copy.sql}")

    def _fresh_sql(self, relation: Relation) -> str:
        """The relation's SELECT over fresh rows only, if some of what it reads is in files."""
        copy = self._copies.get(relation.name)
        if (added := self._additions.get(relation.name)) is not None:
            on = " AND ".join(f"more.{key} = made.{key}" for key in added.keys)
            return (
                f"SELECT made.*, more.{added.column} FROM (\n{relation.select}\n) AS made"
                f" LEFT JOIN {added.source} AS more ON {on}"
            )
        if copy is None:
            return relation.select
        copied = sorted(name for name in relation.reads & self._copies.keys() if self._copies[name].group == copy.group)
        if not copied:
            return relation.select
        # Inside this statement each name means the fresh rows only.
        names = ", ".join(f"{name} AS NOT MATERIALIZED (SELECT * FROM fresh_{name})" for name in copied)
        return f"WITH {names} SELECT * FROM (\n{relation.select}\n) AS made"

    @property
    def handed_in(self) -> frozenset[str]:
        """The relations that have a loader, so they are not built from a file of `sql/`."""
        return frozenset(self._loaders)

    @property
    def built(self) -> frozenset[str]:
        """The relations that have been built so far."""
        return frozenset(self._built)

    def variant_of(self, name: str) -> str | None:
        """The file that a relation was built from, e.g. `hit_places@ids`; None if it has a loader."""
        return self._variants.get(name)

    def is_built_empty(self, name: str) -> bool:
        """Was a relation built by its variant `none`, which has no rows?"""
        return self._variants.get(name) == f"{name}@none"

    def is_kept(self, name: str) -> bool:
        """Are there rows of a relation that are read from the cache or an archive, not built from its SQL?"""
        return name in self._copies

    def _build(self, name: str, kind: str, sql: str) -> None:
        try:
            self.execute(f"CREATE {kind.upper()} {name} AS {sql}")
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            # Our own SQL is tested; the remaining cause is data that cannot be read, such as a damaged file.
            msg = f"the stored data cannot be read (at {name}): {first_line(error)}"
            raise KbevalError(msg) from error

    @contextlib.contextmanager
    def building(self, *names: str) -> Iterator[None]:
        """Build relations in the background while the caller does other work without the session.

        The caller goes on once DuckDB is at work: to start it and to prepare its first statement takes Python, so the
        two would take turns.
        """

        def build() -> None:
            try:
                self.need(*names)
            finally:
                self._at_work.set()

        with self.in_background(build):
            self._at_work.wait()
            yield

    @contextlib.contextmanager
    def in_background(self, task: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
        """Run a task with the session in the background. The yielded function waits for its result."""
        work = Work(task)
        try:
            work.start()
            yield lambda: work.result(self.connection)
        except BaseException:
            work.stop(self.connection)
            raise
        work.result(self.connection)

    def _step(self, text: str) -> None:
        if self._on_step is not None:
            self._on_step(text)

    def execute(self, sql: str, parameters: list[Any] | None = None) -> duckdb.DuckDBPyConnection:
        """Run one statement. Ctrl-C stops it, and if memory runs out the error says what to do."""
        self.define_macros(sql)
        self._at_work.set()
        return self.waiting(lambda: self.connection.execute(parsed(self.connection, sql), parameters))

    def define_macros(self, sql: str) -> None:
        """Create the macros that a statement calls. Most sessions need few or none of them."""
        for name in called_macros(sql):
            if name not in self._macros:
                made = f"CREATE OR REPLACE{self._own_macros.get(name, macros()[name]).removeprefix('CREATE')}"
                self.connection.execute(parsed(self.connection, made))
                self._macros.add(name)

    def waiting(self, task: Callable[[], Result]) -> Result:
        """Run a task that uses DuckDB. Ctrl-C stops it, and if memory runs out the error says what to do."""
        try:
            return run_interruptible(self.connection, lambda: with_its_cause(task))
        except (duckdb.Error, MemoryError, UnicodeDecodeError) as error:
            ours = in_our_words(error, None if self._spill is None else self._spill.path)
            if ours is None:
                raise
            raise ours from error

    def rows(self, sql: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a query; only for results that are always small."""
        self.define_macros(sql)
        return self.waiting(lambda: self.connection.execute(parsed(self.connection, sql), parameters).fetchall())

    def frame(self, sql: str, parameters: list[Any] | None = None) -> pl.DataFrame:
        """A query's result as a Polars frame."""
        self.define_macros(sql)
        frame: pl.DataFrame = self.waiting(lambda: self.connection.sql(sql, params=parameters).pl())
        return frame

    @staticmethod
    def quoted(name: str) -> str:
        """A name as this engine's SQL quotes it."""
        return quoted(name)

    def close(self) -> None:
        """Discard everything and remove what was spilled to disk."""
        if self._connection is None or self._spill is None:
            return
        if ENDING.is_with_command and not self._is_compressed:
            # To release the memory takes as long as several statements; meanwhile the command stores and prints. Where
            # Python ends in the usual way after all, it waits for this thread: DuckDB must not be cut off.
            try:
                threading.Thread(target=self._discard).start()
            except RuntimeError:  # not enough memory for another thread
                self._discard()
        else:
            self._discard()

    def _discard(self) -> None:
        if self._connection is None or self._spill is None:
            return
        try:
            self._connection.close()
        finally:
            self._spill.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _names(paths: Iterable[Path]) -> list[str]:
    """The names that DuckDB checks before it opens a path: first as a pattern, then as the actual path."""
    return sorted({name for path in paths for name in (str(path.absolute()), verbatim(path.absolute()))})
