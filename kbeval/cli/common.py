"""Shared by all commands: options with the same meaning everywhere, and how output is written."""

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

from kbeval.cli.hints import HINTS
from kbeval.engine.memory import DEFAULT_MEMORY_LIMIT
from kbeval.errors import KbevalError, UsageError
from kbeval.render.table import FORMATS, Cell, Column, render
from kbeval.settings import (
    CACHES,
    KEYS,
    LARGEST_K,
    MATCHES,
    MISSING,
    MOST_KS,
    MOST_THREADS,
    OVERLAPS_OF,
    Config,
    load_config,
)
from kbeval.util.text import counted, cut, json_text, shown

if TYPE_CHECKING:
    from kbeval.scoring.options import ScoreOptions

Command = TypeVar("Command", bound=Callable[..., Any])


# The options that the config file may set, with their keys there.
FILE_OPTIONS = {"extra_ks" if key == "k" else key: key for key, kind in KEYS.items() if kind is not dict}


class FileDefaults(dict[str, Any]):
    """The config file as click's `default_map` of every command. The file is read on first use."""

    def __init__(self) -> None:
        super().__init__()
        self._config: Config | None = None

    @property
    def config(self) -> Config:
        """The nearest config file."""
        if self._config is None:
            try:
                here = Path.cwd()
            except OSError as error:
                msg = "the current directory no longer exists; change to another one"
                raise UsageError(msg) from error
            self._config = load_config(here)
        return self._config

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401, ARG002  (click's signature)
        """The defaults of a command: the file applies to all commands alike."""
        return self

    def __contains__(self, option: object) -> bool:
        return option in FILE_OPTIONS and self.config.get(FILE_OPTIONS[str(option)]) not in (None, [])

    def __getitem__(self, option: str) -> Any:  # noqa: ANN401  (what the file holds)
        found = self.config.get(FILE_OPTIONS[option])
        # The form used on the command line.
        return ",".join(map(str, found)) if isinstance(found, list) else found


def file_defaults(context: click.Context) -> FileDefaults:
    """The config file of a command line."""
    found = context.find_root().default_map
    return found if isinstance(found, FileDefaults) else FileDefaults()


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:  # noqa: ANN401  (click's settings)
    return click.option(*names, **settings)


db_option = _option(
    "--db", metavar="FILE", envvar="KBEVAL_DB", help="SQLite database with the runs, or an archive  [KBEVAL_DB]"
)
written_db_option = _option("--db", metavar="FILE", envvar="KBEVAL_DB", help="SQLite database  [KBEVAL_DB]")
golden_option = _option(
    "--golden", metavar="FILE", envvar="KBEVAL_GOLDEN", help="golden queries: YAML, JSON or JSONL  [KBEVAL_GOLDEN]"
)
suite_option = _option("--suite", metavar="NAME", help="only runs of this suite; 'latest' is then its latest run")
runs_dir_option = _option(
    "--runs-dir", metavar="DIR", help="folder for reports of runs  [default: 'runs' next to the database]"
)
format_option = _option(
    "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="output format"
)


def one_value(ctx: click.Context, param: click.Parameter, values: tuple[Any, ...]) -> Any:  # noqa: ANN401  (the option's)
    """For an option that takes one value. It is declared `multiple` so that a second value is an error."""
    if len(values) > 1:
        msg = f"expected one value, got {len(values)}: {', '.join(cut(str(value), 60) for value in values)}"
        raise click.BadParameter(msg, ctx, param)
    return values[0] if values else None


def engine_options(command: Command) -> Command:
    """--threads, --memory-limit and --cache."""
    cache = _option(
        "--cache",
        type=click.Choice(CACHES),
        default="auto",
        envvar="KBEVAL_CACHE",
        help="cache parsed rows next to the database; auto: only if it is large  [KBEVAL_CACHE]",
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
    memory = _option(
        "--memory-limit",
        metavar="SIZE",
        default=DEFAULT_MEMORY_LIMIT,
        help="memory for the engine, e.g. 400MB; more than that spills to disk",
    )
    return threads(memory(command))


def metric_options(command: Command) -> Command:
    """--k and --metrics."""
    ks = _option(
        "--k", "extra_ks", metavar="1,5,20", callback=parse_ks, help="additional values of k  [always: 1,3,5,10]"
    )
    own = _option(
        "--metrics", "metrics_dir", metavar="DIR", help="folder with your own metrics, one .sql file per metric"
    )
    return ks(own(command))


# How queries are scored: the same options, with the same meaning, wherever numbers are computed.
HOW = ("match", "min_overlap", "overlap_of", "missing", "judge")


def how_options(command: Command) -> Command:
    """--match, --min-overlap, --overlap-of, --missing and --judge."""
    match = _option(
        "--match",
        type=click.Choice(MATCHES),
        default="auto",
        envvar="KBEVAL_MATCH",
        help="how hits are matched to expected chunks: by id (exact), by text overlap (span), or by id unless the"
        " labels come from another chunker (auto, the default)  [KBEVAL_MATCH]",
    )
    least = _option(
        "--min-overlap",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.5,
        envvar="KBEVAL_MIN_OVERLAP",
        help="with spans: minimum share of text in common, 0.5 by default  [KBEVAL_MIN_OVERLAP]",
    )
    of = _option(
        "--overlap-of",
        type=click.Choice(OVERLAPS_OF),
        default="auto",
        envvar="KBEVAL_OVERLAP_OF",
        help="with spans: the side that the share is relative to; auto: the smaller one for chunks, the expected one"
        " for expected_spans  [KBEVAL_OVERLAP_OF]",
    )
    missing = _option(
        "--missing",
        type=click.Choice(MISSING),
        default="skip",
        envvar="KBEVAL_MISSING",
        help="golden queries without a row in the run: left out (skip, the default) or counted as zero"
        "  [KBEVAL_MISSING]",
    )
    judge = _option(
        "--judge",
        metavar="NAME",
        help="which scores count if runs were judged more than once: a judging or a model [default: the latest judging"
        " that is complete]",
    )
    return match(least(of(missing(judge(command)))))


def parse_ks(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...]:
    """`1,5,20` as numbers."""
    if text is None:
        return ()
    try:
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1 or found[-1] > LARGEST_K or len(found) > MOST_KS:
        wanted = f"at most {MOST_KS} integers from 1 to {LARGEST_K:,}"
        msg = f"{cut(text, 60)!r} is not a list of {wanted}, e.g. 1,5,20"
        raise click.BadParameter(msg, ctx, param)
    return found


class Settings:
    """The settings of a command: click takes each from the flag, the environment, the file or the default."""

    def __init__(self) -> None:
        self._context = click.get_current_context()
        HINTS.called(self._context)
        # Always read, whatever the flags are: a mistake in the file is reported before anything is done.
        self.config: Config = file_defaults(self._context).config

    def get(self, key: str) -> Any:  # noqa: ANN401  (typed by the option)
        """The value of a setting, or None. If the command has no such option, the value comes from the config file."""
        if key not in self._context.params:
            return self.config.get(FILE_OPTIONS.get(key, key)) or None
        return self._context.params[key] or None

    def is_set(self, key: str) -> bool:
        """Is there a value that is not kbeval's own default?"""
        return self._context.get_parameter_source(key) not in (None, ParameterSource.DEFAULT)

    def given(self, *keys: str) -> bool:
        """Was any of these given on the command line?"""
        return any(self._context.get_parameter_source(key) is ParameterSource.COMMANDLINE for key in keys)

    def db(self) -> str:
        return self._required("db", "database")

    def golden(self) -> str:
        """The golden file; if an archive is scored and no file is given, the archive's own."""
        return self.golden_if_any() or self._required("golden", "golden file")

    def golden_if_any(self) -> str | None:
        """As `golden`, for commands in which it is optional; None if there is none."""
        found = self.get("golden") or self._archived_golden()
        return None if found is None else str(found)

    def read_files(self) -> list[str]:
        """Input files, which must never be overwritten: the database, the labels, the config file, own metrics."""
        found = [str(path) for path in (self.db(), self.golden_if_any(), self.config.path) if path]
        folder = self.get("metrics_dir")
        return [*found, *(str(path) for path in Path(folder).glob("*.sql"))] if folder else found

    def _archived_golden(self) -> str | None:
        if not (Path(self.db()) / "manifest.json").is_file():
            return None
        from kbeval.storage.manifest import read_manifest

        found = read_manifest(Path(self.db())).table("golden")
        return None if found is None else str(found)

    def _required(self, key: str, what: str) -> str:
        value = self.get(key)
        if not value:
            msg = f'no {what} given: pass --{key} FILE, set KBEVAL_{key.upper()}, or put {key} = "…" in kbeval.toml'
            raise UsageError(msg)
        return str(value)

    def _tell_threads(self) -> None:
        """Threads need memory: tell the user if fewer are used than requested."""
        from kbeval.engine.memory import MEGABYTES_PER_THREAD, most_threads

        asked, possible = self.get("threads") or 1, most_threads(self.get("memory_limit"))
        if asked > possible:
            why = f"each needs {MEGABYTES_PER_THREAD} MB of --memory-limit"
            note(f"kbeval: note: using {counted(possible, 'thread')} instead of {asked}: {why}")

    def score_options(self, how: Mapping[str, Any] | None = None, **more: Any) -> ScoreOptions:  # noqa: ANN401
        """All settings for scoring. `how`: values for what flags, environment and file leave unset."""
        from kbeval.metrics.catalogue import metrics_in_config
        from kbeval.scoring.options import ScoreOptions

        self._tell_threads()
        configured = metrics_in_config(self.config.get("metrics") or {}, str(self.config.path))
        folder = self.get("metrics_dir")
        return ScoreOptions(
            extra_ks=self.get("extra_ks") or (),
            metric_folders=(Path(folder),) if folder else (),
            configured_metrics=configured,
            threads=self.get("threads"),
            memory_limit=self.get("memory_limit"),
            cache=self.get("cache") or "auto",
            **{**(how or {}), **{name: self.get(name) for name in HOW if self.is_set(name)}},
            suite=self.get("suite"),
            **more,
        )


# --- output: data to stdout, everything else to stderr ---------------------------------------------


def wants_colour() -> bool:
    """Colours only at a terminal, and not if NO_COLOR is set."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def paint(text: str, style: str) -> str:
    """Bold or dim, if colours are wanted."""
    if not style or not wants_colour():
        return text
    return click.style(text, bold=style == "bold" or None, dim=style == "dim" or None)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], form: str) -> None:
    """Print a table in the requested format."""
    click.echo(render(columns, rows, form, paint), color=wants_colour())


def print_json(value: Any) -> None:  # noqa: ANN401  (anything that JSON can hold)
    """Print JSON."""
    click.echo(json_text(value))


def note(*lines: str) -> None:
    """Write to stderr, apart from the data; each argument stays one line, whatever data it quotes."""
    if lines:
        click.echo("\n".join(shown(HINTS.complete(line)) for line in lines), err=True)


def fail(error: KbevalError) -> None:
    """Report what failed, although the rest succeeded."""
    note(f"kbeval: {error.headline}", *(f"  {detail}" for detail in error.details))


def warn(text: str) -> None:
    """Report that something may be wrong."""
    note(f"kbeval: warning: {text}")


class Progress:
    """Shows the current step and the elapsed time on stderr, at a terminal, once a command takes a moment."""

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
            sys.stderr.write(f"\r\x1b[K{shown(self._text)} … {time.monotonic() - self._started:.0f} s")
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
