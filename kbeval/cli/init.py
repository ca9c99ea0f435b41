"""`kbeval init`: a workspace for your own data, in one command."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from kbeval.cli import common


@click.command("init")
@click.argument("folder", default=".", metavar="[DIR]")
def init_command(folder: str) -> int:
    """Start a workspace for your own data.

    Writes kbeval.toml, a golden file with examples, an empty database, and a Python script that records runs. The
    script runs as it is; replace its search function with a call to your system. Existing files are never overwritten.
    """
    from kbeval.demo.starter import DATABASE, SCRIPT, make_starter

    place = Path(folder)
    made = make_starter(place)
    where = "" if folder == "." else f" in {place}"
    if new := [name for name, is_new in made.items() if is_new]:
        common.note(f"created {', '.join(new)}{where}")
    if kept := [name for name, is_new in made.items() if not is_new]:
        common.note(f"kept {', '.join(kept)}{where}: already exists, not changed")
    if not made[SCRIPT] or not made[DATABASE]:
        return 0
    common.note("", "what to do next:")
    if folder != ".":
        common.note(f"  cd {shlex.quote(os.fspath(place))}")
    common.note(
        f"  python {SCRIPT}              # records two runs; put your own system into it",
        "  kbeval score --all",
        "  kbeval compare latest~1 latest",
    )
    return 0
