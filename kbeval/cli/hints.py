"""Commands that messages recommend: each keeps the options of the command that prints it.

Messages come from every layer and name a command in quotes: 'kbeval score --all'. Only the command line knows how it
was called, so the options are added here, when the message is printed. Without them a hint after `--match span` would
recommend a command that stores other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
from click.core import ParameterSource

# What decides which numbers a command gives. How they are printed, and with how many threads, does not matter.
_KEPT = ("db", "suite", "golden", "extra_ks", "metrics_dir", "match", "min_overlap", "overlap_of", "missing")
_COMMAND = re.compile(r"'kbeval ([a-z]+)((?: [^']*)?)'")
# Commands that print a list and read no data.
_LISTS = ("--help", "--codes")


class Hints:
    """How this process was called, for the commands that it recommends. There is one per process."""

    def __init__(self) -> None:
        self._context: click.Context | None = None

    def called(self, context: click.Context | None) -> None:
        """Remember the command that runs now; None: there is none yet."""
        self._context = context

    def complete(self, text: str) -> str:
        """The same message, with the options of this call in each command that it recommends."""
        return text if self._context is None else _COMMAND.sub(self._completed, text)

    def _completed(self, found: re.Match[str]) -> str:
        name, rest = found.groups()
        if any(option in rest.split() for option in _LISTS):
            return found[0]
        return f"'kbeval {name}{rest}{''.join(self._options(name, rest.split()))}'"

    def _options(self, name: str, said: list[str]) -> Iterator[str]:
        context = self._context
        command = None if context is None else _command(context, name)
        if context is None or command is None:
            return
        known = {option.name: option for option in command.params if isinstance(option, click.Option)}
        import shlex

        for key in _KEPT:
            # A run that is resumed keeps its suite.
            if key == "suite" and "--resume" in said:
                continue
            is_given = context.get_parameter_source(key) is ParameterSource.COMMANDLINE
            if is_given and key in known and known[key].opts[0] not in said:
                yield f" {known[key].opts[0]} {shlex.quote(_written(context.params[key]))}"


def _command(context: click.Context, name: str) -> click.Command | None:
    group = context.find_root().command
    return group.get_command(context, name) if isinstance(group, click.Group) else None


def _written(value: object) -> str:
    """A value as it is written on the command line."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


HINTS = Hints()
