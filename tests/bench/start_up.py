"""Work on a small database: what remains is start-up, imports and planning, so the peer is an empty program."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbeval.demo import make_demo

Alternate = Callable[[list[list[str]], int], list[tuple[float, int]]]


def rows(folder: Path, alternate: Alternate, times: int = 9) -> list[list[Any]]:
    """One row per command: what, seconds, peak MB, and the ratio to its peer."""
    made = folder / "tiny"
    make_demo(made)
    forced = shutil.copytree(made, folder / "tiny-forced")
    kbeval = [sys.executable, "-m", "kbeval"]

    def on(where: Path, *command: str) -> list[str]:
        golden = [] if command[0] == "runs" else ["--golden", str(where / "golden.yaml")]
        return [*kbeval, *command, "--db", str(where / "kb.db"), *golden]

    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import duckdb'": [sys.executable, "-c", "import duckdb"],
        "kbeval --help": [*kbeval, "--help"],
        "kbeval runs": on(made, "runs"),
        "kbeval score --all, nothing changed": on(made, "score", "--all"),
        "kbeval score --all --force, 4 runs of two chunkers": on(forced, "score", "--all", "--force"),
    }
    found = dict(zip(commands, alternate(list(commands.values()), times), strict=True))
    empty, engine = (found[name][0] for name in ("python -c pass", "python -c 'import duckdb'"))
    wanted = {
        "kbeval --help": (empty, "python -c pass", 2),
        "kbeval runs": (empty, "python -c pass", 4),
        "kbeval score --all --force, 4 runs of two chunkers": (engine, "import duckdb", 2),
    }
    table = []
    for name, measured in found.items():
        peer = wanted.get(name)
        ratio = "" if peer is None else f"{measured[0] / peer[0]:.1f} × {peer[1]} (wanted: {peer[2]})"
        table.append([name, *measured, ratio])
    return table
