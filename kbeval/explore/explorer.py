"""Read-only SQL queries over all runs of a database.

Only the relations that a query refers to are built, and those that they depend on. No query can change the database,
access a file or reach the network: `kbeval.engine.guard` accepts only read-only statements, they run in a read-only
transaction, and the engine itself has no external access.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from kbeval.engine.guard import Statement, query_error, read_statements
from kbeval.engine.memory import limiting
from kbeval.engine.session import Added, Session
from kbeval.errors import WANT_OF_MEMORY, NotEnoughMemoryError, UsageError
from kbeval.explore.answers import BATCH_ROWS, ZONED, batches, without_zones
from kbeval.explore.compare_table import Comparisons
from kbeval.explore.tables import COMPARE, FORMER, Table, read_by, tables
from kbeval.golden import Golden, load_golden
from kbeval.scoring.fields import named_fields
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import Scoring, StoredScoring, open_scoring
from kbeval.scoring.variants import VARIED
from kbeval.storage.database_file import refuse_database
from kbeval.storage.new_database import make_database
from kbeval.storage.run_config import shown_configs
from kbeval.storage.tables import load_runs
from kbeval.util.drafts import draft_folder
from kbeval.util.text import counted, did_you_mean

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

# Layers whose relations are intermediate steps towards the numbers.
_STEPS = ("places", "matching")


@dataclass(frozen=True)
class Schema:
    """A table and its columns: name and type of each."""

    table: Table
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Answer:
    """The rows of an answer, one batch at a time; they can be iterated once."""

    columns: tuple[str, ...]
    batches: Iterator[list[tuple[Any, ...]]]

    def rows(self) -> list[tuple[Any, ...]]:
        """All remaining rows; for answers that are known to be small."""
        return [row for batch in self.batches for row in batch]


# --- asking --------------------------------------------------------------------------------------


class Explorer:
    """Answers SQL queries over all runs of a database. See `open_explorer`."""

    def __init__(
        self,
        database: str | os.PathLike[str],
        golden: Golden | str | os.PathLike[str] | None,
        options: ScoreOptions,
    ) -> None:
        self.database = Path(database)
        self.golden = golden
        # The golden file is read when a relation needs it.
        self._labels = golden if isinstance(golden, Golden) else None
        self._options = options
        self._stack = contextlib.ExitStack()
        self._open: StoredScoring | None = None
        self._is_released = False
        self._is_closed = False
        self._outline: Outline | None = None
        self._comparisons = Comparisons(self.database, options)
        self._told_matching = False
        # Relations that must be built in full, because a query refers to rows that a shortcut omits.
        self._whole: set[str] = set()
        # Columns that are added to relations because a query refers to them.
        self._additions: dict[str, Added] = {}
        self._warnings: dict[str, None] = {}

    # The session and its snapshot are created when they are first needed, and again when they are out of date.

    @property
    def scoring(self) -> StoredScoring:
        """The open session over all runs."""
        if self._is_closed:
            msg = "this explorer is closed; use it within the 'with' block of open_explorer"
            raise UsageError(msg)
        if self._open is not None and self._is_released:
            self._is_released = False
            try:
                is_same = self._open.source.resume()
            except BaseException:
                self.forget()
                raise
            if not is_same:
                self.forget()
        if self._open is None:
            opening = open_scoring(self.database, self._labels, None, self._options, lazily=True)
            self._open = self._stack.enter_context(opening)
            prepare(self._open)
            make_whole(self._open.session, self._whole)
            self._open.session.add_columns(self._additions)
            self._warnings.update(dict.fromkeys(left_out(self._open)))
        return self._open

    @property
    def session(self) -> Session:
        """The engine's session."""
        return self.scoring.session

    def forget(self) -> None:
        """Drop everything that was built; the next query starts from scratch."""
        self._open, self._is_released = None, False
        self._comparisons.forget()
        self._stack.close()

    def release(self) -> None:
        """Let other programs write to the database until the next query. If they do, everything is read again."""
        if self._open is not None and not self._is_released:
            self._open.source.release()
            self._is_released = True

    def close(self) -> None:
        """Close the session."""
        self._is_closed = True
        if self._outline is not None:
            self._outline.close()
        self.forget()

    @contextlib.contextmanager
    def within_memory(self) -> Iterator[None]:
        """Apply the memory limit to a query: its text, its functions and its answer."""
        # The session's own memory is allocated before any query runs.
        _ = self.session
        try:
            with limiting(self._options.memory_limit):
                yield
        except MemoryError as error:
            self.forget()
            raise NotEnoughMemoryError(WANT_OF_MEMORY) from error

    def statements(self, sql: str) -> list[Statement]:
        """The statements of a text; rejected unless all of them are read-only."""
        return read_statements(self.session.connection, sql, tables())

    def one(self, sql: str) -> Statement:
        """The single statement of a text."""
        found = self.statements(sql)
        if len(found) != 1:
            msg = f"expected one statement, got {len(found)}" if found else "there is no statement to run"
            raise UsageError(msg)
        return found[0]

    def needs_labels(self, statement: Statement) -> bool:
        """Does it refer to anything that depends on the golden file?"""
        return bool(statement.compares) or any("golden_entries" in read_by(name) for name in statement.reads)

    def take_warnings(self) -> list[str]:
        """The warnings about the answers so far, each once."""
        found = [*self._warnings, *self._comparisons.take_warnings(), *self._matched_otherwise()]
        self._warnings.clear()
        return found

    def _matched_otherwise(self) -> Iterator[str]:
        """Runs whose hits are matched differently here than in their stored numbers; reported once."""
        if self._open is None or self._told_matching or "chunk_matches" not in self._open.session.built:
            return
        self._told_matching = True
        here = self._open.matching.of_runs()
        stored = {run.run_id: run.scored_with("matching") for run in self._open.runs}
        for way, named, other in (("exact", "by id", "by span"), ("span", "by span", "by id")):
            differing = [run_id for run_id, found in stored.items() if found not in (None, way) and here[run_id] == way]
            if differing:
                some = ", ".join(differing[:3]) + (", …" if len(differing) > 3 else "")
                yield (
                    f"{counted(len(differing), 'run')} matched {named} here and {other} in the stored numbers ({some}):"
                    f" --match selects how, and 'kbeval score --all' stores the numbers computed that way"
                )

    def _read_labels(self) -> None:
        if self._labels is None and self.golden is not None and not isinstance(self.golden, Golden):
            self._labels = load_golden(self.golden)
            # Relations built without them may differ once they are known.
            self.forget()

    def _take_whole(self, names: Sequence[str]) -> None:
        """Build the requested steps in full, without shortcuts. Which shortcuts apply depends on the labels too."""
        whole = whole_relations(names) - self._whole
        if not whole:
            return
        self._whole |= whole
        self._read_labels()
        session = self.session
        if any(session.variant_of(name) not in (None, name) for name in whole):
            self.forget()
        else:
            make_whole(session, whole)

    def _take_fields(self, statement: Statement) -> None:
        """Add the user-defined fields that a query refers to. Few queries do."""
        asked = named_fields([statement.sql])
        new = {relation: added for relation, added in asked.items() if self.session.added_to(relation) is None}
        if not new:
            return
        self._additions |= new
        if new.keys() & self.session.built:
            self.forget()
        else:
            self.session.add_columns(new)

    def make(self, *names: str) -> None:
        """Build relations, unless they exist."""
        self._take_whole(names)
        # Relations registered elsewhere may depend on the labels; the stored tables do not.
        by_labels = {name for name in self.session.handed_in if not name.startswith("stored_")}
        if any(by_labels & {name, *read_by(name)} for name in names):
            self._read_labels()
        try:
            self.session.need(*names)
        except BaseException:
            # It may be partly built.
            self.forget()
            raise

    @contextlib.contextmanager
    def asking(self, statement: Statement) -> Iterator[Session]:
        """A session in which the statement can be run, and nothing can be changed."""
        if statement.compares:
            self._read_labels()
        self._take_fields(statement)
        self.make(*sorted(statement.reads))
        session = self.session
        with self.scoring.source.sharing():
            self._comparisons.make(session, self._labels, statement.compares)
        session.define_macros(statement.sql)
        session.execute("BEGIN TRANSACTION READ ONLY")
        is_lost = False
        try:
            yield session
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            # The only files that queries read are those of the cache, so it was deleted.
            is_lost = isinstance(error, duckdb.IOException)
            raise query_error(error) from error
        finally:
            # A failed transaction must be ended as well.
            with contextlib.suppress(duckdb.Error):
                session.execute("ROLLBACK")
            if is_lost:
                self.forget()

    @contextlib.contextmanager
    def answering(self, statement: Statement) -> Iterator[Answer]:
        """The answer to one statement, streamed."""
        if statement.lists_tables:
            listed = self.listed(every=statement.lists_all)
            rows: list[tuple[Any, ...]] = [(table.name, table.layer, table.description) for table in listed]
            yield Answer(("name", "layer", "description"), iter([rows]))
            return
        with self.asking(statement) as session:
            cursor = session.execute(statement.sql)
            described = [(str(column[0]), str(column[1])) for column in cursor.description or ()]
            if any(ZONED in kind for _, kind in described):
                cursor = session.execute(without_zones(session, statement.sql, [kind for _, kind in described]))
            yield Answer(unique([name for name, _ in described]), batches(session, cursor))

    @contextlib.contextmanager
    def arrow(self, statement: Statement) -> Iterator[pa.RecordBatchReader]:
        """The answer to one statement as Arrow batches."""
        with self.asking(statement) as session:
            connection = session.connection
            yield session.waiting(lambda: connection.sql(statement.sql).to_arrow_reader(BATCH_ROWS))

    def query(self, sql: str) -> Answer:
        """The answer to one query, with all rows in memory."""
        with self.answering(self.one(sql)) as answer:
            return Answer(answer.columns, iter([answer.rows()]))

    def frame(self, sql: str) -> pl.DataFrame:
        """The answer to one query as a Polars frame."""
        statement = self.one(sql)
        with self.asking(statement) as session:
            return session.waiting(lambda: session.frame(statement.sql))

    def tables(self) -> list[Table]:
        """All relations that can be queried, by current name."""
        return [table for table in tables().values() if table.layer != FORMER]

    def listed(self, *, every: bool = False) -> list[Table]:
        """The main tables, or all of them, for display; includes `compare(a, b)`."""
        return [table for table in (COMPARE, *self.tables()) if every or table.is_shown]

    def schema(self, name: str) -> Schema:
        """The columns of a table; no data is read."""
        table = tables().get(name.lower())
        if table is None:
            msg = f"there is no table {name!r}{did_you_mean(name.lower(), tables()) or '; SHOW ALL TABLES lists them'}"
            raise UsageError(msg)
        if table.name == "query_scores":
            self._read_labels()
            numbers = [(column.name, "DOUBLE") for column in self.scoring.columns]
            return Schema(table, (*Outline.KEYS, *numbers))
        if self._outline is None:
            self._outline = Outline(self._options)
        return Schema(table, self._outline.columns(table.name))


def left_out(scoring: Scoring) -> Iterator[str]:
    """One line for each stored run that cannot be queried."""
    first = {fault.run_id: fault for fault in reversed(scoring.key_faults)}
    for run_id, fault in sorted(first.items()):
        rows = f"query {fault.query_id} has {fault.count:,} rows; keep one of each"
        yield f"run {run_id} is left out: {fault.what if fault.query_id is None else rows}"


def prepare(scoring: Scoring) -> None:
    """Register scores and views as relations, and hide secrets."""
    session = scoring.session

    def load_shown(session: Session) -> None:
        shown = zip(scoring.runs, shown_configs(scoring.runs), strict=True)
        load_runs(session, [replace(run, config_json=text) for run, text in shown])

    session.add_loaders(
        {
            "stored_runs": load_shown,
            "query_scores": lambda _: scoring.build_scores(),
            "scores": lambda session: session.need("query_scores"),
        }
    )


def whole_relations(names: Iterable[str]) -> frozenset[str]:
    """The relations with variants that must be built in full if a query refers to these names.

    A variant has the same rows as far as scoring needs them, and may omit the rest: the position of a hit does not
    matter if ids decide. A query about that step must still show all of it.
    """
    steps = [name for name in names if name in tables() and tables()[name].layer in _STEPS]
    return frozenset(part for name in steps for part in (name, *read_by(name)) if part in VARIED)


def make_whole(session: Session, names: Iterable[str]) -> None:
    """Use the main file of these relations, even if a variant suffices for scoring."""
    session.add_choices({name: lambda _: None for name in names})


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Make column names unique: `n`, `n_1`."""
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        number, new = 0, name
        while new.lower() in taken:
            number += 1
            new = f"{name}_{number}"
        taken.add(new.lower())
        found.append(new)
    return tuple(found)


class Outline:
    """The same relations over no runs: their columns and types, without reading a stored row."""

    KEYS = (("result_no", "BIGINT"), ("run_id", "VARCHAR"), ("query_id", "VARCHAR"))

    def __init__(self, options: ScoreOptions) -> None:
        self._columns: dict[str, tuple[tuple[str, str], ...]] = {}
        self._stack = contextlib.ExitStack()
        folder = self._stack.enter_context(draft_folder(Path(tempfile.gettempdir()), "kbeval-"))
        path = folder / "empty.db"
        make_database(path)
        # Match by spans, because then no relation is replaced by a simpler one.
        options = replace(options, match="span", on_step=None)
        self._scoring = self._stack.enter_context(open_scoring(path, None, None, options, lazily=True))
        prepare(self._scoring)

    def columns(self, name: str) -> tuple[tuple[str, str], ...]:
        """Name and type of each column of a relation."""
        if name not in self._columns:
            self._scoring.session.need(name)
            described = self._scoring.session.rows(f'DESCRIBE "{name}"')
            self._columns[name] = tuple((row[0], row[1]) for row in described)
        return self._columns[name]

    def close(self) -> None:
        """Remove the session."""
        self._stack.close()


@contextlib.contextmanager
def open_explorer(
    database: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str] | None = None,
    options: ScoreOptions | None = None,
) -> Iterator[Explorer]:
    """Query all runs of a database in SQL. Without a golden file there are no labels."""
    refuse_database(golden, database)
    if golden is not None and not isinstance(golden, Golden) and not Path(golden).is_file():
        # Errors are reported at once, even if no query refers to labels.
        golden = load_golden(golden)
    explorer = Explorer(database, golden, options or ScoreOptions())
    try:
        yield explorer
    finally:
        explorer.close()
