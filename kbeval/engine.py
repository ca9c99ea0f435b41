"""A session: one private DuckDB in which the relations of `sql/` are built on demand.

A relation is built when it is first needed, after those it reads from, so a question about runs
never opens a hit. Sources hand in the stored tables; nothing flows back to them.
"""

from __future__ import annotations

import contextlib
import copy
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import duckdb

from kbeval.errors import KbevalError, NotEnoughMemoryError, UsageError
from kbeval.memory import DEFAULT_MEMORY_LIMIT, largest_row, most_threads
from kbeval.spilling import SpillFolder
from kbeval.sqlfiles import Relation, called_macros, macros, relations

if TYPE_CHECKING:
    import polars as pl

COMPRESS_FROM_BYTES = 1_000_000_000
_COMPRESSED = "work"

_WILD = re.compile(r"[\[*?]")

Result = TypeVar("Result")
Other = TypeVar("Other")
Loader = Callable[["Session"], None]
# Which variant of a relation is to be made; None: the relation as its own file says.
Choice = Callable[["Session"], str | None]


@dataclass(frozen=True)
class Copied:
    """A relation of which rows are kept in files: the SELECT that reads them, and whether there are others beside.

    Relations of one group are made from the same fresh rows, so those of one are made from those of another.
    """

    sql: str
    fresh: bool
    group: str


class Session:
    """Builds relations in order and answers queries over them."""

    def __init__(  # noqa: PLR0913  (settings, each with its default)
        self,
        *,
        threads: int | None = None,
        memory_limit: str | None = None,
        expected_bytes: int = 0,
        on_step: Callable[[str], None] | None = None,
        reach: Sequence[Path] = (),
        is_shared: bool = False,
        is_sparing: bool = False,
    ) -> None:
        """`reach`: folders and files that the session may read and write; nothing else, and by default nothing.

        `is_sparing`: one thread, and rows are read one at a time, which takes the least memory and the most time.
        `is_shared`: two of our own threads work with it first (see `both`), each on one processor; until `all_for_one`.
        """
        self._is_shared = is_shared
        self.is_sparing = is_sparing
        self.largest_row = largest_row(memory_limit or DEFAULT_MEMORY_LIMIT)
        self._is_compressed = False
        self._loaders: dict[str, Loader] = {}
        self._choices: dict[str, Choice] = {}
        self._copies: dict[str, Copied] = {}
        self._on_step = on_step
        self._built: set[str] = set()
        self._read_once: set[str] = set()
        self._macros: set[str] = set()
        self._making_macros = threading.Lock()
        self._spill = SpillFolder()
        try:
            self.connection = self._connect(threads, memory_limit or DEFAULT_MEMORY_LIMIT, expected_bytes, reach)
        except BaseException:
            self._spill.remove()
            raise

    def _connect(
        self,
        threads: int | None,
        memory_limit: str,
        expected_bytes: int,
        reach: Sequence[Path],
    ) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:")
        undisturbed(connection, lambda: self._set_up(connection, threads, memory_limit, expected_bytes, reach))
        return connection

    def _set_up(
        self,
        connection: duckdb.DuckDBPyConnection,
        threads: int | None,
        memory_limit: str,
        expected_bytes: int,
        reach: Sequence[Path],
    ) -> None:
        connection.execute("SET memory_limit = ?", [memory_limit])
        connection.execute("SET temp_directory = ?", [str(self._spill.path)])
        # All processors where nothing else is asked for; never more threads than there is memory for.
        ((processors,),) = connection.execute("SELECT current_setting('threads')").fetchall()
        self._threads = 1 if self.is_sparing else min(threads or int(processors), most_threads(memory_limit))
        connection.execute("SET threads = ?", [1 if self._is_shared else self._threads])
        # Results never depend on the order of rows, so the engine need not keep it.
        connection.execute("SET preserve_insertion_order = false")
        # It would draw its own bar on standard output, in the middle of the data.
        connection.execute("SET enable_progress_bar = false")
        # What a time means must not depend on where this runs.
        connection.execute("SET TimeZone = 'UTC'")
        # Only what is handed in by name can be read: no variables of the calling program.
        connection.execute("SET python_enable_replacements = false")
        # Compressing takes time that small data does not repay, and saves far more of it once data spills to disk.
        if expected_bytes > COMPRESS_FROM_BYTES:
            connection.execute(f"ATTACH ':memory:' AS {_COMPRESSED} (COMPRESS)")
            connection.execute(f"USE {_COMPRESSED}")
            self._is_compressed = True
        if reach:
            connection.execute(
                "SET allowed_directories = ?", [[f"{name}/" for name in _names(filter(Path.is_dir, reach))]]
            )
            connection.execute("SET allowed_paths = ?", [_names(filter(Path.is_file, reach))])
        # From here on no statement can read or write any other file, reach the network or undo this.
        connection.execute("SET enable_external_access = false")
        if not self._is_shared:
            connection.execute("SET lock_configuration = true")

    def add_loaders(self, loaders: Mapping[str, Loader]) -> None:
        """Say how stored tables get into the session when they are first needed."""
        self._loaders.update(loaders)

    def add_choices(self, choices: Mapping[str, Choice]) -> None:
        """Say which variant of a relation is to be made; asked when the relation is first needed."""
        self._choices.update(choices)

    def add_copies(self, copies: Mapping[str, Copied]) -> None:
        """Say which relations are kept in files, whole or in part."""
        self._copies.update(copies)

    def read_once(self, *names: str) -> None:
        """Say which relations are read a single time, and need not be kept for a second one."""
        self._read_once.update(names)

    def kind_of(self, name: str, kind: str) -> str:
        """Is a relation made as the `kind` that its file says, or only a view?"""
        return "view" if name in self._read_once else kind

    def fresh_name(self, name: str) -> str:
        """The relation that holds those rows of another that are in no file."""
        return f"fresh_{name}" if name in self._copies else name

    def need(self, *names: str) -> None:
        """Build these relations, and before them whatever they read from."""
        for name in names:
            if name in self._built:
                continue
            if name in self._loaders:
                self._step(f"reading {name.removeprefix('stored_').replace('_', ' ')}")
                self._loaders[name](self)
            elif name in relations():
                variant = self._choices[name](self) if name in self._choices else None
                self._need_relation(relations()[name if variant is None else f"{name}@{variant}"])
            else:
                msg = f"there is no relation {name!r}"
                raise UsageError(msg)
            self._built.add(name)

    def _need_relation(self, relation: Relation) -> None:
        copy = self._copies.get(relation.name)
        if copy is None or copy.fresh:
            known = self._loaders.keys() | relations().keys()
            self.need(*sorted(relation.reads & known))
            self._step(f"building {relation.name.replace('_', ' ')}")
            kind = self.kind_of(relation.name, relation.kind)
            self._build(self.fresh_name(relation.name), kind, self._fresh_sql(relation))
        if copy is not None:
            # A row that refers to a result is read beside the results, which may be needed to choose it.
            if "FROM results" in copy.sql:
                self.need("results")
            others = f"SELECT * FROM fresh_{relation.name}\nUNION ALL BY NAME\n" if copy.fresh else ""
            self.execute(f"CREATE VIEW {relation.name} AS {others}{copy.sql}")

    def _fresh_sql(self, relation: Relation) -> str:
        """The relation's SELECT over fresh rows alone, where some of what it reads is copied."""
        sql, copy = relation.sql, self._copies.get(relation.name)
        for name in relation.reads if copy is not None else ():
            if name in self._copies and copy is not None and self._copies[name].group == copy.group:
                sql = re.sub(rf"\b(FROM|JOIN)(\s+){name}\b", rf"\1\2fresh_{name}", sql)
        return sql

    @property
    def handed_in(self) -> frozenset[str]:
        """The relations that are not made as their files say, or have none: others say how they get here."""
        return frozenset(self._loaders)

    @property
    def built(self) -> frozenset[str]:
        """The relations that there are by now."""
        return frozenset(self._built)

    def _build(self, name: str, kind: str, sql: str) -> None:
        try:
            self.execute(f"CREATE {kind.upper()} {name} AS {sql}")
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            # Our own SQL is tested; what is left is data that cannot be read at all, like a damaged file.
            msg = f"the stored data cannot be read (at {name}): {first_line(error)}"
            raise KbevalError(msg) from error

    @contextlib.contextmanager
    def building(self, *names: str) -> Iterator[None]:
        """Build relations in the background while the caller does something else without the session."""
        with self.meanwhile(lambda: self.need(*names)):
            yield

    @contextlib.contextmanager
    def meanwhile(self, task: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
        """Do something with the session in the background. What is given waits for its end, and for what came of it."""
        work = _Work(task)
        try:
            work.start()
            yield lambda: work.result(self.connection)
        except BaseException:
            work.stop(self.connection)
            raise
        work.result(self.connection)

    def both(self, first: Callable[[], Result], second: Callable[[], Other]) -> tuple[Result, Other]:
        """Two tasks: at the same time where the session is shared, and `second` uses `beside`; else in turn."""
        if not self._is_shared:
            return first(), second()
        with self.meanwhile(first) as found:
            other = second()
        return found(), other

    def all_for_one(self) -> None:
        """From here on every statement has all processors, and nothing can be set any more."""
        if not self._is_shared:
            return
        self.connection.execute("SET threads = ?", [self._threads])
        self.connection.execute("SET lock_configuration = true")

    def beside(self) -> Self:
        """A second hand on the same relations, for our own work while the first is busy in another thread."""
        other = copy.copy(self)
        other.connection = self.connection.cursor()
        if self._is_compressed:
            other.connection.execute(f"USE {_COMPRESSED}")
        return other

    def _step(self, text: str) -> None:
        if self._on_step is not None:
            self._on_step(text)

    def execute(self, sql: str, parameters: list[Any] | None = None) -> duckdb.DuckDBPyConnection:
        """Run one statement. Ctrl-C stops it, and want of memory says what to do."""
        self.define_macros(sql)
        return self.waiting(lambda: self.connection.execute(sql, parameters))

    def define_macros(self, sql: str) -> None:
        """Make the helpers that a statement calls. Most sessions need few of them, or none."""
        for name in called_macros(sql):
            # Whoever works beside must not take it for made before it is.
            with self._making_macros:
                if name not in self._macros:
                    self.connection.execute(f"CREATE OR REPLACE{macros()[name].removeprefix('CREATE')}")
                    self._macros.add(name)

    def waiting(self, task: Callable[[], Result]) -> Result:
        """Something that keeps the engine busy. Ctrl-C stops it, and want of memory says what to do."""
        try:
            return undisturbed(self.connection, task)
        except duckdb.OutOfMemoryException as error:
            raise NotEnoughMemoryError(self._want(error)) from error
        except MemoryError as error:
            msg = "not enough memory for this; give more with --memory-limit"
            raise NotEnoughMemoryError(msg) from error
        except duckdb.IOException as error:
            # Questions and scores write nothing but what does not fit into memory.
            if is_full(error):
                raise NotEnoughMemoryError(self._want(error)) from error
            raise
        except duckdb.FatalException as error:
            # It gives up for good where memory ends while it keeps something, and says no more than that it did.
            msg = f"the engine had to give up: {first_line(error)}; more memory may help: --memory-limit"
            raise KbevalError(msg) from error
        except UnicodeDecodeError as error:
            # The engine quotes data in its messages, and cuts it in the middle of a character.
            msg = "Invalid Input Error: a value is not what was expected"
            raise duckdb.InvalidInputException(msg) from error

    def _want(self, error: duckdb.Error) -> str:
        """What there is too little of, and what to do."""
        if is_full(error):
            folder = self._spill.path.parent.parent
            why = "no room is left for what does not fit into memory"
            return f"{why}, in {folder}: free some, name another folder with TMPDIR, or give more with --memory-limit"
        return f"not enough memory for this: {first_line(error)}; give more with --memory-limit"

    def rows(self, sql: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a query; for results that are small by nature."""
        self.define_macros(sql)
        return self.waiting(lambda: self.connection.execute(sql, parameters).fetchall())

    def frame(self, sql: str, parameters: list[Any] | None = None) -> pl.DataFrame:
        """A query's result as a Polars frame."""
        self.define_macros(sql)
        frame: pl.DataFrame = self.waiting(lambda: self.connection.sql(sql, params=parameters).pl())
        return frame

    def close(self) -> None:
        """Forget everything and remove what was spilled to disk."""
        try:
            self.connection.close()
        finally:
            self._spill.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Work(Generic[Result]):
    """Something that the engine does in a thread of its own, which the caller may wait for or stop."""

    def __init__(self, task: Callable[[], Result]) -> None:
        self._task = task
        self._found: list[Result] = []
        self._failure: BaseException | None = None
        # Waiting for an event, not for the thread: an interrupted join() forgets that the thread lives.
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._begun = False
        self._stopped = False

    def start(self) -> None:
        """Let it begin. Whoever calls this must stop it, or wait for it, whatever happens meanwhile."""
        threading.Thread(target=self._run, name="kbeval-engine", daemon=True).start()

    def _run(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._begun = True
        try:
            self._found.append(self._task())
        except BaseException as error:  # noqa: BLE001  (raised again where the caller waits)
            self._failure = error
        finally:
            self._done.set()

    def result(self, connection: duckdb.DuckDBPyConnection) -> Result:
        """Wait for the end, and give back what came of it."""
        try:
            self._done.wait()
        except BaseException:
            self.stop(connection)
            raise
        if self._failure is not None:
            raise self._failure
        return self._found[0]

    def stop(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Interrupt the engine until it has stopped, however often the user asks for it: who closes what a thread
        still works with crashes the process. A thread that has not begun by now never does anything.
        """
        with self._lock:
            self._stopped = True
        while self._begun:
            with contextlib.suppress(KeyboardInterrupt):
                if self._done.wait(0.05):
                    return
                connection.interrupt()


def undisturbed(connection: duckdb.DuckDBPyConnection, task: Callable[[], Result]) -> Result:
    """Something that an engine does. Ctrl-C stops it, and is never mistaken for a fault of the data.

    The main thread only waits: there the engine would turn the signal into an error of its own, and what is being
    opened or closed would be left half-way.
    """
    if threading.current_thread() is not threading.main_thread():
        return task()
    work = _Work(task)
    try:
        work.start()
        return work.result(connection)
    except KeyboardInterrupt:
        work.stop(connection)
        raise


def verbatim(path: Path) -> str:
    """A path that the engine takes as it stands, and not for a pattern: folders may be called `runs[1]` or `what?`."""
    return _WILD.sub(r"[\g<0>]", str(path))


def _names(paths: Iterable[Path]) -> list[str]:
    """What the engine asks about before it opens them: first the pattern, and then what it stands for."""
    return sorted({name for path in paths for name in (str(path.absolute()), verbatim(path.absolute()))})


def is_full(error: BaseException) -> bool:
    """Is a disk full, or a quota used up?"""
    return re.search(r"No space left|Disk quota|max_temp_directory_size|File too large", str(error)) is not None


def first_line(error: BaseException) -> str:
    """An engine error without its hints and carets."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
