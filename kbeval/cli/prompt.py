"""The prompt of `kbeval sql`: multi-line queries, a history, completion, and commands that begin with a dot.

Only .quit and Ctrl-D end the session: an error is reported in one line, and Ctrl-C stops the running query. Only a
query that cannot be stopped ends the session as well.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbeval import __version__
from kbeval.cli import common
from kbeval.cli.completing import Completer
from kbeval.cli.sql import Steps, Target, run_text
from kbeval.errors import KbevalError, UsageError
from kbeval.render.rows import ROW_FORMATS
from kbeval.render.table import Column
from kbeval.util.interrupts import INTERRUPTS
from kbeval.util.text import counted, did_you_mean, shown

if TYPE_CHECKING:
    from kbeval.explore.explorer import Explorer

try:
    import readline
except ImportError:  # not available everywhere; the prompt works without it
    readline = None  # type: ignore[assignment]

FIRST, MORE = "kbeval> ", "   ...> "
LONGEST_HISTORY = 1000
COMMANDS = {
    ".tables": "list the main tables; .tables WORD: all tables that mention the word; SHOW ALL TABLES: all tables",
    ".schema": "show the columns of a table: .schema hits",
    ".examples": "show example queries",
    ".format": f"set the output format: {', '.join(form for form in ROW_FORMATS if form != 'parquet')}",
    ".limit": "set the maximum number of rows to print; 0: all rows",
    ".help": "show this list",
    ".quit": "leave, like .exit and Ctrl-D",
}
_EXAMPLES = (
    "SELECT run_id, created_at, chunker_version, retriever FROM runs ORDER BY created_at;",
    "SELECT run_id, metric, k, AVG(value) AS mean FROM scores GROUP BY ALL ORDER BY ALL;",
    "SELECT run_id, query_id, error FROM results WHERE failed;",
)


class Prompt:
    """Reads and answers queries and commands."""

    def __init__(self, explorer: Explorer, target: Target, steps: Steps) -> None:
        self._explorer = explorer
        self._target = target
        target.for_all = ".limit 0"
        self._steps = steps
        self._history = InputHistory()
        self._lines: list[str] = []

    def run(self) -> int:
        """Run until the user leaves."""
        runs = counted(len(self._explorer.scoring.runs), "run")
        self._explorer.release()
        common.note(
            f"kbeval {__version__}: {runs} in {self._explorer.database}. Type SQL, end it with ; – .help for help"
        )
        if readline is not None:
            Completer(self._explorer, lambda: self._lines, COMMANDS).install(readline)
        self._history.load()
        while True:
            try:
                line = input(MORE if self._lines else FIRST)
            except EOFError:
                click.echo()
                return 0
            except KeyboardInterrupt:
                # Ctrl-C discards the input, as in a shell.
                INTERRUPTS.settled()
                self._lines.clear()
                click.echo()
                continue
            except UnicodeDecodeError:
                common.note("kbeval: the input is not valid UTF-8; type it again")
                continue
            if self._take(line):
                return 0

    def _take(self, line: str) -> bool:
        """Handle one more line; true if it asks to leave."""
        word = line.strip()
        if not self._lines and (word.startswith(".") or word.lower().rstrip("; ") in ("quit", "exit")):
            self._history.add(word)
            return self._command(word)
        if not word:
            if self._lines:
                self._lines.clear()
                common.note("input discarded; end a query with ;")
            return False
        self._lines.append(line)
        text = "\n".join(self._lines)
        if is_whole(text):
            self._history.add(*self._lines)
            self._lines.clear()
            self._guarded(text)
        return False

    def _guarded(self, text: str) -> None:
        """Answer a query; the session continues after any error."""
        try:
            run_text(self._explorer, text, self._target, self._steps)
        except KbevalError as error:
            common.note(f"kbeval: {error.headline}", *(f"  {detail}" for detail in error.details))
        except KeyboardInterrupt:
            INTERRUPTS.settled()
            common.note("interrupted")
        except Exception as error:
            if os.environ.get("KBEVAL_DEBUG"):
                raise
            # Relations may be incomplete, so they are built again.
            self._explorer.forget()
            common.note(
                f"kbeval: internal error: {' '.join(str(error).split()) or type(error).__name__};"
                " rerun with KBEVAL_DEBUG=1 and please report it"
            )
        finally:
            self._explorer.release()

    # --- commands -------------------------------------------------------------------------------

    def _command(self, text: str) -> bool:
        name, _, rest = text.rstrip("; ").partition(" ")
        name, rest = name.lower(), rest.strip()
        if name in (".quit", ".exit", "quit", "exit"):
            return True
        known = {
            ".tables": self._tables,
            ".schema": self._schema,
            ".examples": self._examples,
            ".format": self._format,
            ".limit": self._limit,
            ".help": self._help,
        }
        try:
            if name not in known:
                msg = f"unknown command {name!r}{did_you_mean(name, COMMANDS) or '; .help lists them'}"
                raise UsageError(msg)
            known[name](rest)
        except KbevalError as error:
            common.note(f"kbeval: {error.headline}", *(f"  {detail}" for detail in error.details))
        except KeyboardInterrupt:
            INTERRUPTS.settled()
            common.note("interrupted")
        return False

    def _help(self, _: str) -> None:
        common.print_table(
            [Column("command"), Column("description", width=100)],
            [[name, text] for name, text in COMMANDS.items()],
            "table",
        )
        click.echo(
            "\nA query is SQL and ends with ; – it may span several lines; a blank line discards it.\n"
            "FROM compare('latest~1', 'latest'); shows how each query changed between two runs.\n"
            "All queries are read-only. Tab completes names; Ctrl-C stops a query or discards the input."
        )

    def _tables(self, word: str) -> None:
        found = [
            [table.name, table.layer, table.description]
            for table in self._explorer.listed(every=bool(word))
            if word.lower() in f"{table.name} {table.layer} {table.description}".lower()
        ]
        common.print_table([Column("table"), Column("layer"), Column("what it holds", width=100)], found, "table")

    def _schema(self, name: str) -> None:
        if not name:
            for table in self._explorer.listed():
                click.echo(f"{common.paint(table.name, 'bold')}: {table.notes or table.description}")
            return
        schema = self._explorer.schema(name.strip('"'))
        click.echo(f"{common.paint(schema.table.name, 'bold')}: {schema.table.description}\n")
        common.print_table([Column("column"), Column("type", width=80)], [list(row) for row in schema.columns], "table")
        if schema.table.notes:
            click.echo(f"\n{schema.table.notes}")

    def _examples(self, _: str) -> None:
        written = [(example, table.name) for table in self._explorer.tables() for example in table.examples]
        for example in _EXAMPLES:
            click.echo(example)
        for example, name in written:
            click.echo(f"{example.rstrip(';')};  {common.paint(f'-- {name}', 'dim')}")

    def _format(self, form: str) -> None:
        possible = [name for name in ROW_FORMATS if name != "parquet"]
        if form and form not in possible:
            msg = f"unknown format {form!r}{did_you_mean(form, possible) or '; use one of ' + ', '.join(possible)}"
            raise UsageError(msg)
        self._target.form = form or self._target.form
        click.echo(f"format: {self._target.form}")

    def _limit(self, number: str) -> None:
        if number and not re.fullmatch(r"[0-9]{1,15}", number):
            msg = f"{number!r} is not a number of rows; use e.g. .limit 100, or .limit 0 for all rows"
            raise UsageError(msg)
        self._target.limit = int(number) if number else self._target.limit
        click.echo(f"limit: {counted(self._target.limit, 'row') if self._target.limit else 'all rows'}")


_PIECE = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*(?:\n|$)|/\*.*?\*/|[^'"$/-]+|.""", re.DOTALL
)


def is_whole(text: str) -> bool:
    """Does it end with a ; that is neither in a string nor in a comment?"""
    last = ""
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece.startswith("--") or (piece.startswith("/*") and len(piece) > 2):
            continue
        if piece in ("'", '"') or (piece == "/" and text.startswith("/*", match.start())):
            return False  # opened and not closed
        last = piece.rstrip() or last
    return last.endswith(";") and not (last[0] in "'\"$" and len(last) > 1)


class InputHistory:
    """The input history, kept across sessions. Failing to keep it is not an error."""

    def __init__(self) -> None:
        state = os.environ.get("XDG_STATE_HOME") or ""
        # The XDG specification requires relative paths to be ignored.
        folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
        self.path = folder / "kbeval" / "sql_history"

    def load(self) -> None:
        """Load the history of earlier sessions."""
        if readline is None:
            return
        with contextlib.suppress(AttributeError):
            # Whole queries are added, not their lines.
            readline.set_auto_history(False)
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except (OSError, ValueError):
            return
        for line in lines[-LONGEST_HISTORY:]:
            readline.add_history(line)
        if len(lines) > 2 * LONGEST_HISTORY:
            with contextlib.suppress(KbevalError):
                from kbeval.util.files import write_whole

                write_whole(self.path, "\n".join(lines[-LONGEST_HISTORY:]) + "\n")

    def add(self, *lines: str) -> None:
        """Add a query."""
        # A comment ends with its line, so lines with comments cannot be joined.
        entries = lines if any("--" in line for line in lines) else (" ".join(line.strip() for line in lines),)
        for entry in entries:
            if readline is not None:
                readline.add_history(entry)
            with contextlib.suppress(OSError, ValueError):
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as file:
                    file.write(shown(entry) + "\n")
