"""What commands share: the options that mean the same everywhere, and how output is written."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click
from click.core import ParameterSource

from kbeval.config import (
    CACHES,
    LARGEST_K,
    MATCHES,
    MISSING,
    MOST_KS,
    MOST_THREADS,
    OVERLAPS_OF,
    Config,
    load_config,
)
from kbeval.errors import KbevalError, UsageError
from kbeval.render.table import FORMATS, Cell, Column, json_text, render
from kbeval.text import counted, cut, shown

if TYPE_CHECKING:
    from kbeval.scoring import ScoreOptions

Command = TypeVar("Command", bound=Callable[..., Any])


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:  # noqa: ANN401  (click's settings)
    return click.option(*names, **settings)


db_option = _option(
    "--db", metavar="FILE", envvar="KBEVAL_DB", help="SQLite database with the runs, or an archive  [KBEVAL_DB]"
)
golden_option = _option(
    "--golden", metavar="FILE", envvar="KBEVAL_GOLDEN", help="golden queries: YAML, JSON or JSONL  [KBEVAL_GOLDEN]"
)
suite_option = _option("--suite", metavar="NAME", help="only runs of this suite, so that 'latest' is its latest")
format_option = _option(
    "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="how to print the data"
)


def one_value(ctx: click.Context, param: click.Parameter, values: tuple[Any, ...]) -> Any:  # noqa: ANN401  (the option's)
    """For an option that takes one value, declared `multiple` so that a second one is noticed and not silently used."""
    if len(values) > 1:
        msg = f"it takes one value, and {len(values)} were given: {', '.join(cut(str(value), 60) for value in values)}"
        raise click.BadParameter(msg, ctx, param)
    return values[0] if values else None


def engine_options(command: Command) -> Command:
    """--threads, --memory-limit and --cache."""
    cache = _option(
        "--cache",
        type=click.Choice(CACHES),
        envvar="KBEVAL_CACHE",
        help="keep parsed rows beside the database: auto where it is large  [KBEVAL_CACHE]",
    )
    return resource_options(cache(command))


def resource_options(command: Command) -> Command:
    """--threads and --memory-limit."""
    threads = _option(
        "--threads",
        type=click.IntRange(1, MOST_THREADS),
        envvar="KBEVAL_THREADS",
        help="processor threads  [KBEVAL_THREADS]",
    )
    memory = _option("--memory-limit", metavar="SIZE", help="memory for the engine, like 400MB; the rest goes to disk")
    return threads(memory(command))


def metric_options(command: Command) -> Command:
    """--k and --metrics."""
    ks = _option("--k", "extra_ks", metavar="1,5,20", callback=parse_ks, help="more values of k, beside 1,3,5,10")
    own = _option("--metrics", "metrics_dir", metavar="DIR", help="folder with your own metrics, one .sql file each")
    return ks(own(command))


# How queries are scored: the same options, with the same meaning, wherever numbers are computed.
HOW = ("match", "min_overlap", "overlap_of", "missing")


def how_options(command: Command) -> Command:
    """--match, --min-overlap, --overlap-of and --missing."""
    match = _option(
        "--match",
        type=click.Choice(MATCHES),
        envvar="KBEVAL_MATCH",
        help="what makes a hit an expected chunk: its id (exact), the text that both share (span), or the id unless the"
        " labels are of another chunker (auto, the default)  [KBEVAL_MATCH]",
    )
    least = _option(
        "--min-overlap",
        type=click.FloatRange(0, 1, min_open=True),
        envvar="KBEVAL_MIN_OVERLAP",
        help="by spans: the least share of text in common, 0.5 by default  [KBEVAL_MIN_OVERLAP]",
    )
    of = _option(
        "--overlap-of",
        type=click.Choice(OVERLAPS_OF),
        envvar="KBEVAL_OVERLAP_OF",
        help="by spans: which side the share is of; auto: the smaller one for chunks, the expected one for"
        " expected_spans  [KBEVAL_OVERLAP_OF]",
    )
    missing = _option(
        "--missing",
        type=click.Choice(MISSING),
        envvar="KBEVAL_MISSING",
        help="golden queries that a run has no row for: left out (skip, the default) or counted as zero"
        "  [KBEVAL_MISSING]",
    )
    return match(least(of(missing(command))))


def parse_ks(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...]:
    """`1,5,20` as numbers."""
    if text is None:
        return ()
    try:
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1 or found[-1] > LARGEST_K or len(found) > MOST_KS:
        wanted = f"whole numbers from 1 to {LARGEST_K:,}, {MOST_KS} at most"
        msg = f"{cut(text, 60)!r} is not a list of {wanted}; write it like 1,5,20"
        raise click.BadParameter(msg, ctx, param)
    return found


class Settings:
    """Flags and environment first, then the config file."""

    def __init__(self, **flags: Any) -> None:  # noqa: ANN401  (the command's options)
        self._flags = {name: value for name, value in flags.items() if value not in (None, ())}
        try:
            here = Path.cwd()
        except OSError as error:
            msg = "the current folder is gone; change to another one"
            raise UsageError(msg) from error
        self.config: Config = load_config(here)

    def get(self, key: str) -> Any:  # noqa: ANN401  (typed by the option or by config.KEYS)
        return self._flags.get(key, self.config.get(key))

    def given(self, *keys: str) -> bool:
        """Was any of these said on the command line?"""
        context = click.get_current_context()
        return any(context.get_parameter_source(key) is ParameterSource.COMMANDLINE for key in keys)

    def db(self) -> str:
        return self._required("db", "the database")

    def golden(self) -> str:
        """The golden file; that of the archive, where an archive is scored and no other is named."""
        return self.golden_if_any() or self._required("golden", "the golden file")

    def golden_if_any(self) -> str | None:
        """As `golden`, for those who can do without."""
        found = self.get("golden") or self._archived_golden()
        return None if found is None else str(found)

    def read_files(self) -> list[str]:
        """What is read, and so must never be written to: the database, the labels, the config file."""
        return [str(path) for path in (self.db(), self.golden_if_any(), self.config.path) if path]

    def _archived_golden(self) -> str | None:
        if not (Path(self.db()) / "manifest.json").is_file():
            return None
        from kbeval.columnar.manifest import read_manifest

        found = read_manifest(Path(self.db())).table("golden")
        return None if found is None else str(found)

    def _required(self, key: str, what: str) -> str:
        value = self.get(key)
        if not value:
            msg = f'say which is {what}: --{key} FILE, KBEVAL_{key.upper()} or {key} = "…" in kbeval.toml'
            raise UsageError(msg)
        return str(value)

    def said_how(self) -> str:
        """The options that say how to score, as they were given on this command line, to repeat in a hint."""
        given = [name for name in HOW if self.given(name)]
        return "".join(f" --{name.replace('_', '-')} {self.get(name)}" for name in given)

    def _tell_threads(self) -> None:
        """Threads need memory: say so where there are fewer of them than were asked for."""
        from kbeval.memory import MEGABYTES_PER_THREAD, most_threads

        asked, possible = self.get("threads") or 1, most_threads(self.get("memory_limit"))
        if asked > possible:
            why = f"each needs {MEGABYTES_PER_THREAD} MB of --memory-limit"
            note(f"kbeval: note: working with {counted(possible, 'thread')} instead of {asked}: {why}")

    def score_options(self, how: Mapping[str, Any] | None = None, **more: Any) -> ScoreOptions:  # noqa: ANN401
        """Everything that flags, environment and file say about scoring. `how`: what holds where they are silent."""
        from kbeval.metrics import metrics_in_config
        from kbeval.scoring import ScoreOptions

        self._tell_threads()
        configured = metrics_in_config(self.config.get("metrics") or {}, str(self.config.path))
        folder = self.get("metrics_dir")
        return ScoreOptions(
            extra_ks=tuple(self._flags.get("extra_ks") or self.config.get("k") or ()),
            metric_folders=(Path(folder),) if folder else (),
            configured_metrics=configured,
            threads=self.get("threads"),
            memory_limit=self.get("memory_limit"),
            cache=self.get("cache") or "auto",
            **{**(how or {}), **{name: value for name in HOW if (value := self.get(name)) is not None}},
            suite=self._flags.get("suite"),
            **more,
        )


# --- output: data to stdout, everything else to stderr ---------------------------------------------


def wants_colour() -> bool:
    """Colours only for eyes: at a terminal, and unless NO_COLOR says otherwise."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def paint(text: str, style: str) -> str:
    """Bold or dim, where colours are wanted."""
    if not style or not wants_colour():
        return text
    return click.style(text, bold=style == "bold" or None, dim=style == "dim" or None)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], form: str) -> None:
    """Print a table in the asked format."""
    click.echo(render(columns, rows, form, paint), color=wants_colour())


def print_json(value: Any) -> None:  # noqa: ANN401  (anything that JSON can hold)
    """Print JSON."""
    click.echo(json_text(value))


def note(*lines: str) -> None:
    """Say something beside the data; each line is one line, whatever data it quotes."""
    if lines:
        click.echo("\n".join(map(shown, lines)), err=True)


def fail(error: KbevalError) -> None:
    """Say what could not be done, where the rest was."""
    note(f"kbeval: {error.headline}", *(f"  {detail}" for detail in error.details))


def warn(text: str) -> None:
    """Say that something may be wrong."""
    note(f"kbeval: warning: {text}")


class Progress:
    """What is going on and for how long, on stderr, at a terminal, once it takes longer than a moment."""

    DELAY = 0.7

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._text = "starting"
        self._stop = threading.Event()
        self._thread = (
            threading.Thread(target=self._run, daemon=True) if sys.stderr is not None and sys.stderr.isatty() else None
        )

    def step(self, text: str) -> None:
        self._text = text

    def _run(self) -> None:
        written = False
        while not self._stop.wait(0.1 if written else self.DELAY):
            sys.stderr.write(f"\r\x1b[K{self._text} … {time.monotonic() - self._started:.0f} s")
            sys.stderr.flush()
            written = True
        if written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
