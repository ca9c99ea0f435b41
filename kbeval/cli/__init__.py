"""The command line: parse, call, print, nothing else. A module a family of commands, loaded when it is used."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from kbeval import __version__
from kbeval.cli.answer import ANSWER
from kbeval.errors import KbevalError
from kbeval.text import shown

# In the order in which someone new needs them.
COMMANDS = {
    "demo": "kbeval.cli.demo",
    "score": "kbeval.cli.score",
    "compare": "kbeval.cli.compare",
    "runs": "kbeval.cli.runs",
    "show": "kbeval.cli.show",
    "sql": "kbeval.cli.sql",
    "metrics": "kbeval.cli.metrics",
    "explain": "kbeval.cli.metrics",
    "check": "kbeval.cli.check",
    "gate": "kbeval.cli.gate",
    "history": "kbeval.cli.history",
    "grounded": "kbeval.cli.grounded",
    "recompute": "kbeval.cli.recompute",
    "archive": "kbeval.cli.archive",
    "import": "kbeval.cli.transfer",
    "export": "kbeval.cli.transfer",
    "config": "kbeval.cli.config",
}


class _Commands(click.Group):
    """Knows every command by name and imports only the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name]), f"{cmd_name}_command")
        if not isinstance(command, click.Command):
            raise TypeError(cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:  # noqa: ANN401  (click's triple)
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from kbeval.text import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kbeval")
@click.pass_context
def cli(context: click.Context) -> None:
    """Score stored evaluation runs of knowledge bases and RAG systems.

    Try 'kbeval demo' first: it makes a small workspace, scores it and says what to try next.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; every error becomes its line and its exit code here."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal or a file of another encoding cannot show is escaped, and stops nothing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:] if arguments is None else arguments)
    # All is written and closed. Taking the interpreter apart piece by piece would only take time.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 done, 1 the answer is no, 2 could not, 130 interrupted."""
    ANSWER.say(0)
    try:
        code = cli.main(args=arguments, prog_name="kbeval", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except SystemExit:
        # Whoever read our output has stopped, as `| head` does, and click leaves then. That is no failure, and a no
        # stays a no.
        code = ANSWER.code
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("KBEVAL_DEBUG"):
            raise
        code = _explain(error)
    return code if isinstance(code, int) else 0


def _explain(error: BaseException) -> int:
    """Say in one line what happened; returns the exit code."""
    if _is_interruption(error):
        return _fail("interrupted; nothing is half-written", code=130)
    if isinstance(error, KbevalError):
        return _fail(error.headline, details=error.details, code=error.exit_code)
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        return _fail(error.format_message(), f"see '{context.command_path} --help'" if context else None)
    if isinstance(error, OSError):
        return _fail(f"cannot write the output: {error.strerror or error}")
    what = " ".join(str(error).split()) or type(error).__name__
    return _fail(f"this should not have happened: {what}", "KBEVAL_DEBUG=1 shows where; please report it")


def _is_interruption(error: BaseException) -> bool:
    """Was it Ctrl-C? Also where closing something in the middle of it went wrong, too."""
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
        click.echo("\n".join([f"kbeval: {line}", *(f"  {detail}" for detail in details)]), err=True)
    return code
