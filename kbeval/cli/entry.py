"""Runs one command and exits: every error becomes one line and an exit code here."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, TextIO

import click
from click.core import ParameterSource

from kbeval import __version__
from kbeval.cli.exit_code import EXIT_CODE
from kbeval.cli.hints import HINTS
from kbeval.cli.overview import COMMANDS, overview
from kbeval.errors import WANT_OF_MEMORY, DeprecatedMetricWarning, KbevalError
from kbeval.util.ending import ENDING
from kbeval.util.text import shown


class _Commands(click.Group):
    """Knows every command by name and imports only the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), f"{cmd_name}_command")
        if not isinstance(command, click.Command):
            raise TypeError(cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:  # noqa: ANN401  (click's triple)
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from kbeval.util.text import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            ctx.fail(f"unknown command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:  # noqa: ARG002  (click's signature)
        return overview()


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kbeval")
@click.pass_context
def cli(context: click.Context) -> None:
    """What it prints is in `kbeval.cli.overview`."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        return
    from kbeval.cli.common import FileDefaults

    context.default_map = FileDefaults()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; every error is turned into one line and an exit code here."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that the output's encoding cannot represent are escaped instead of raising an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.excepthook = print_traceback
    ENDING.is_with_command = True
    code = run(sys.argv[1:] if arguments is None else arguments)
    # Everything is written. An orderly shutdown of the interpreter would only take time.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    ENDING.end(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 success, 1 the check failed, 2 error, 130 interrupted."""
    EXIT_CODE.decide(0)
    HINTS.called(None)
    try:
        with _deprecations_as_lines():
            code = cli.main(args=arguments, prog_name="kbeval", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except SystemExit:
        # The reader closed the pipe, as `| head` does, and click exits. Not an error: keep the code decided so far.
        code = EXIT_CODE.code
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("KBEVAL_DEBUG"):
            raise
        code = _explain(error)
    return code if isinstance(code, int) else 0


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print where an error came from, for KBEVAL_DEBUG. It quotes data, so each line is escaped like any other."""
    import traceback

    for line in "".join(traceback.format_exception(kind, error, trace)).splitlines():
        click.echo(shown(line), err=True)


@contextlib.contextmanager
def _deprecations_as_lines() -> Iterator[None]:
    """Report deprecations in one line each, once per command, instead of in Python's format."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_line(  # noqa: PLR0913, PLR0917  (as Python calls it)
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, DeprecatedMetricWarning):
                click.echo(shown(f"kbeval: warning: {message}"), err=True)
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = show_line
        warnings.simplefilter("default", DeprecatedMetricWarning)
        yield


def _explain(error: BaseException) -> int:
    """Report in one line what happened; returns the exit code."""
    if _is_interruption(error):
        return _fail("interrupted; no partial results were written", code=130)
    if isinstance(error, KbevalError):
        details = [HINTS.complete(detail) for detail in error.details]
        return _fail(HINTS.complete(error.headline), details=details, code=error.exit_code)
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        return _fail(_usage_message(error), f"see '{context.command_path} --help'" if context else None)
    if isinstance(error, MemoryError):
        return _fail(WANT_OF_MEMORY)
    if isinstance(error, OSError):
        return _fail(f"cannot write the output: {error.strerror or error}")
    what = " ".join(str(error).split()) or type(error).__name__
    return _fail(f"internal error: {what}", "rerun with KBEVAL_DEBUG=1 and please report it")


def _usage_message(error: click.ClickException) -> str:
    """Click's message; names the environment variable if the value came from one."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and isinstance(error.ctx.command, click.Group):
        # Click's message would be the whole help.
        names = error.ctx.command.list_commands(error.ctx)
        return f"{error.ctx.command_path!r} requires a subcommand: {', '.join(names)}"
    message = error.format_message()
    for kind, name in (("a valid integer range", "a whole number"), ("a valid float range", "a number")):
        message = message.replace(kind, name)
    parameter, context = getattr(error, "param", None), getattr(error, "ctx", None)
    if not isinstance(parameter, click.Option) or context is None or not parameter.name:
        return message
    if context.get_parameter_source(parameter.name) is not ParameterSource.ENVIRONMENT:
        return message
    return message.replace(f"'{parameter.opts[0]}'", f"{parameter.envvar} (environment)", 1)


def _is_interruption(error: BaseException) -> bool:
    """Was it Ctrl-C? True also if the interruption caused another error while resources were being closed."""
    cause: BaseException | None = error
    while cause is not None:
        is_engines = type(cause).__name__ == "InterruptException" or str(cause) == "Query interrupted"
        if is_engines or isinstance(cause, KeyboardInterrupt | click.Abort):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _fail(message: str, advice: str | None = None, details: Sequence[str] = (), code: int = 2) -> int:
    line = shown(f"{message.rstrip('.')}; {advice}" if advice else message)
    with contextlib.suppress(OSError):
        click.echo("\n".join([f"kbeval: {line}", *(f"  {shown(detail)}" for detail in details)]), err=True)
    return code
