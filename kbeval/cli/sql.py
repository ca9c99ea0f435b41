"""`kbeval sql`: SQL queries over the runs; without a query and at a terminal, a prompt."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from kbeval.cli import common
from kbeval.errors import UsageError
from kbeval.render.rows import ENDINGS, ROW_FORMATS, write_rows
from kbeval.util.text import counted, cut, shown

if TYPE_CHECKING:
    from kbeval.engine.guard import Statement
    from kbeval.explore.explorer import Explorer

# About a screenful or two: more is rarely read at a terminal and can be requested.
SCREEN_ROWS = 100
LONGEST_QUERY = 1_000_000
_WITHOUT_LABELS = "no golden file given, so there are no labels; use --golden FILE"


@click.command("sql")
@click.argument("query", required=False)
@click.option("-f", "--file", "source", metavar="FILE", help="read the query from a file")
@common.db_option
@common.golden_option
@common.how_options
@click.option("--format", "form", type=click.Choice(ROW_FORMATS), help="output format  [default: table]")
@click.option("-o", "--output", metavar="FILE", help="write to a file; its extension determines the format")
@click.option(
    "--limit",
    type=click.IntRange(0),
    help=f"maximum number of rows, 0 for all  [default: {SCREEN_ROWS} at a terminal, else all]",
)
@common.metric_options
@common.engine_options
def sql_command(
    query: str | None,
    source: str | None,
    form: str | None,
    output: str | None,
    limit: int | None,
    **_: Any,  # noqa: ANN401  (click's options)
) -> int:
    """Query the runs in SQL.

    'kbeval sql "SHOW TABLES"' lists the main tables, SHOW ALL TABLES all of them. QUERY is one or more statements; -
    reads them from standard input. Without a query, a prompt opens. Only the data that the query refers to is read.
    Queries are read-only: no statement writes to the database or to a file, and none accesses the network. The golden
    file is needed only for tables that involve labels.
    """
    from kbeval.explore.explorer import open_explorer

    settings = common.Settings()
    database, golden = settings.db(), settings.golden_if_any()
    if query is not None and source is not None:
        msg = "pass either a query or -f FILE, not both"
        raise click.UsageError(msg, click.get_current_context())
    never = [*settings.read_files(), *([source] if source not in (None, "-") else [])]
    target = Target.of(form, output, limit, never)
    text = _text(query, source)
    steps = Steps()
    options = settings.score_options(on_step=steps.step)
    with open_explorer(database, golden, options) as explorer:
        if text is None:
            from kbeval.cli.prompt import Prompt

            if target.output is not None:
                msg = "-o requires a query"
                raise click.UsageError(msg, click.get_current_context())
            return Prompt(explorer, target, steps).run()
        run_text(explorer, text, target, steps)
    return 0


def _text(query: str | None, source: str | None) -> str | None:
    """The text of the query; None if it is to be typed at the prompt."""
    if source is not None and source != "-":
        try:
            with Path(source).open(encoding="utf-8-sig") as file:
                return _limited(file, source)
        except (OSError, UnicodeDecodeError, ValueError) as error:
            msg = f"{source} cannot be read: {getattr(error, 'strerror', None) or error}"
            raise UsageError(msg) from error
    if query is not None and query != "-":
        return query
    if query is None and source is None and sys.stdin is not None and sys.stdin.isatty():
        return None
    try:
        return _limited(sys.stdin, "standard input") if sys.stdin is not None else ""
    except UnicodeDecodeError as error:
        msg = f"standard input is not valid text: {error}"
        raise UsageError(msg) from error


def _limited(file: TextIO, name: str) -> str:
    """Limit the size: a device may be endless, and a file may be the wrong one."""
    text = file.read(LONGEST_QUERY + 1)
    if len(text) > LONGEST_QUERY:
        msg = f"{name} contains more than {LONGEST_QUERY:,} characters, too many for a query"
        raise UsageError(msg)
    return text


class Steps:
    """Forwards the engine's steps to the active progress display, if any."""

    def __init__(self) -> None:
        self._progress: common.Progress | None = None

    def step(self, text: str) -> None:
        if self._progress is not None:
            self._progress.step(text)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show progress until the first rows arrive."""
        with common.Progress() as progress:
            progress.step("running the query")
            self._progress = progress
            try:
                yield
            finally:
                self._progress = None


class Target:
    """Where a result goes, in which format, and how many rows of it."""

    def __init__(self, form: str, output: Path | None, limit: int, never: Sequence[str] = ()) -> None:
        self.form = form
        self.output = output
        self.limit = limit
        self._never = never
        self.for_all = "--limit 0"
        self.said_no_labels = False

    @classmethod
    def of(cls, form: str | None, output: str | None, limit: int | None, never: Sequence[str]) -> Target:
        """The target that the options describe."""
        if output is None:
            if form == "parquet":
                msg = "Parquet cannot be printed; write it to a file: -o FILE.parquet"
                raise UsageError(msg)
            is_screen = sys.stdout is not None and sys.stdout.isatty()
            return cls(form or "table", None, limit if limit is not None else SCREEN_ROWS if is_screen else 0)
        path = Path(output)
        found = form or ENDINGS.get(path.suffix.lower())
        if found is None:
            msg = f"cannot tell the format of {output}; use --format or one of the extensions {', '.join(ENDINGS)}"
            raise UsageError(msg)
        return cls(found, path, limit or 0, never)

    def write(self, explorer: Explorer, statement: Statement, steps: Steps) -> None:
        """Run a statement and write its result."""
        if self.output is None:
            self._print(explorer, statement, steps)
            return
        from kbeval.util.files import whole_file

        with whole_file(self.output, self._never) as file:
            if self.form == "parquet":
                _write_parquet(explorer, statement, file, self.limit, steps)
            else:
                self._answer(
                    explorer, statement, steps, lambda text: file.write(text.encode("utf-8", "backslashreplace"))
                )
        common.note(f"wrote {self.output}")

    def _print(self, explorer: Explorer, statement: Statement, steps: Steps) -> None:
        if statement.is_plan and self.form == "table":
            with steps.shown(), explorer.answering(statement) as answer:
                rows = answer.rows()
            for row in rows:
                click.echo("\n".join(shown(line) for line in str(row[-1]).splitlines()))
            return
        colour = common.wants_colour()
        self._answer(explorer, statement, steps, lambda text: click.echo(text, nl=False, color=colour))

    def _answer(self, explorer: Explorer, statement: Statement, steps: Steps, write: Callable[[str], Any]) -> None:
        paint = common.paint if self.output is None else None
        with contextlib.ExitStack() as stack:
            with steps.shown():
                answer = stack.enter_context(explorer.answering(statement))
                first = next(answer.batches, None)
            batches = itertools.chain(() if first is None else (first,), answer.batches)
            few = _LimitedBatches(batches, self.limit)
            write_rows(answer.columns, few, self.form, write, paint)
        if few.is_cut:
            common.note(f"showing the first {counted(self.limit, 'row')}; use {self.for_all} to show all")


class _LimitedBatches:
    """At most `limit` rows, and whether there were more."""

    def __init__(self, batches: Iterator[list[tuple[Any, ...]]], limit: int) -> None:
        self._batches = batches
        self._limit = limit
        self.is_cut = False

    def __iter__(self) -> Iterator[list[tuple[Any, ...]]]:
        left = self._limit
        for batch in self._batches:
            if not self._limit:
                yield batch
                continue
            if left:
                yield batch[:left]
            if len(batch) > left:
                self.is_cut = True
                return
            left -= len(batch)


def _write_parquet(explorer: Explorer, statement: Statement, file: Any, limit: int, steps: Steps) -> None:  # noqa: ANN401  (a file)
    """Write compressed Parquet, one batch at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from kbeval.explore.explorer import unique

    if statement.lists_tables:
        msg = "SHOW TABLES cannot be written as Parquet; use another format"
        raise UsageError(msg)
    with steps.shown(), explorer.arrow(statement) as reader:
        schema = reader.schema
        names = unique(schema.names)
        schema = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
        left = limit or None
        try:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                while left is None or left > 0:
                    batch = explorer.session.waiting(lambda: next(reader, None))
                    if batch is None:
                        break
                    part = batch if left is None else batch.slice(0, left)
                    writer.write_batch(pa.RecordBatch.from_arrays(part.columns, schema=schema))
                    left = None if left is None else left - part.num_rows
        except MemoryError:
            raise
        except (pa.ArrowException, NotImplementedError) as error:
            msg = f"Parquet cannot store this result: {cut(str(error), 200)}; convert it to text: CAST(… AS VARCHAR)"
            raise UsageError(msg) from error


def run_text(explorer: Explorer, text: str, target: Target, steps: Steps) -> None:
    """Run every statement of a text."""
    with explorer.within_memory():
        _run_text(explorer, text, target, steps)


def _run_text(explorer: Explorer, text: str, target: Target, steps: Steps) -> None:
    statements = explorer.statements(text)
    if not statements:
        msg = "the query is empty; try SHOW TABLES"
        raise UsageError(msg)
    if len(statements) > 1 and (target.output is not None or target.form not in ("table", "md")):
        msg = f"this format takes one statement at a time (got {len(statements)})"
        raise UsageError(msg)
    if explorer.golden is None and not target.said_no_labels and any(map(explorer.needs_labels, statements)):
        target.said_no_labels = True
        common.note(_WITHOUT_LABELS)
    for number, statement in enumerate(statements):
        if number:
            click.echo()
        target.write(explorer, statement, steps)
        if statement.lists_tables and not statement.lists_all:
            common.note(f"SHOW ALL TABLES lists all {len(explorer.listed(every=True))}")
        for warning in explorer.take_warnings():
            common.warn(warning)
