"""Writes the command reference: the part of docs/commands.md below its mark, from the commands' own help.

`make docs` runs it. A test fails when the page and the help differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from kbeval.cli import cli

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
MARK = "<!-- Below this line the page is generated: `make docs`. -->\n"
WIDTH = 100


def commands(group: click.Group, parent: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command below a group in the order of its help, by its full name; groups before their members."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None:
            raise LookupError(name)
        context = click.Context(command, parent, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH)
        yield context.command_path, command, context
        if isinstance(command, click.Group):
            yield from commands(command, context)


def all_commands() -> list[tuple[str, click.Command, click.Context]]:
    """Every command of the program."""
    return list(commands(cli, click.Context(cli, info_name="kbeval", help_option_names=["-h", "--help"])))


def reference() -> str:
    """The generated part of the page."""
    sections = [
        f"## {name}\n\n```text\n{command.get_help(context)}\n```\n" for name, command, context in all_commands()
    ]
    return "\n".join(sections)


def with_reference(page: str) -> str:
    """The page with its generated part replaced."""
    written, mark, _ = page.partition(MARK)
    if not mark:
        msg = f"{PAGE} has no line {MARK!r}"
        raise ValueError(msg)
    return f"{written}{mark}\n{reference()}"


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
