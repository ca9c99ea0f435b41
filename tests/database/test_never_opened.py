"""No command opens a database, or a file next to it, in its own process: only the process that it starts does."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.archives import fill
from tests.support.examples import THOROUGH
from tests.support.workspace import Workspace

# An audit hook reports files that Python opens; those that libraries open appear among the open files.
GUARD = """
    import os, sys
    database = os.path.realpath(sys.argv[1])
    names = {database, *(database + end for end in ("-wal", "-shm", "-journal"))}
    opened = []

    def watch(event, arguments):
        if event in ("open", "os.open", "sqlite3.connect") and isinstance(arguments[0], (str, bytes)):
            name = os.fsdecode(arguments[0])
            if name.startswith("file:") or os.path.realpath(name) in names:
                opened.append(f"{event} {name}")

    sys.addaudithook(watch)
    from kbeval.cli import run

    for command in sys.argv[2].split(";"):
        code = run(command.split("|"))
        assert code in (0, 1, 2), command
        if opened:
            sys.exit(f"{command}: {opened}")
        print(code, flush=True)
    # A second copy of SQLite would be among the libraries.
    maps = open("/proc/self/maps").read()
    assert "adbc" not in maps and "_sqlite3" not in maps, "SQLite is loaded"
"""

COMMANDS = [
    "runs",
    "score|--all|--cache|on",
    "score|--all|--cache|on|--force",
    "score|one|--cache|off|--skip-bad-rows",
    "show|one",
    "show|one|--query|q1",
    "show|one|--worst|2",
    "compare|one|two|--skip-bad-rows",
    "check",
    "gate|two|--min|mrr=0",
    "gate|two|--baseline|one|--max-drop|mrr=0.1|--skip-bad-rows",
    "history|mrr",
    "report|one|two|--skip-bad-rows|-o|two.html",
    "report|one|--skip-bad-rows|-o|one.html",
    "report|--history|mrr|-o|history.html",
    "recompute|--explain|--cache|on",
    "recompute|--store",
    "sql|SELECT COUNT(*) FROM scores",
    "sql|SELECT * FROM compare('one', 'two')",
    "sql|--cache|on|SELECT COUNT(*) FROM results",
    "archive|old",
    "export|duckdb|all.duckdb",
    "export|anchors|one|folder",
    "import|anchors|nowhere",
]
# Named where another file belongs.
MISTAKEN = [
    "score|--all|--golden|{db}",
    "check|--golden|{db}",
    "recompute|--golden|{db}",
    "compare|one|two|--golden|{db}-wal",
    "sql|SELECT 1|--golden|{db}",
    "archive|old2|--golden|{db}",
    "export|duckdb|{db}|--replace",
    "export|duckdb|{db}-wal|--replace",
    "sql|SELECT 1|-o|{db}",
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_no_command_opens_a_database_itself(tmp_path: Path, mode: str) -> None:
    workspace = fill(Workspace(tmp_path))
    workspace.execute(f"PRAGMA journal_mode = {mode}")
    (tmp_path / "kbeval.toml").write_text(f'db = "{workspace.db}"\ngolden = "{workspace.golden}"\n')
    # With a write-ahead log, where there are more files, all of them; without one, each command in one form.
    forms = {command.split("|")[0]: command for command in reversed(COMMANDS)}
    chosen = [command for command in COMMANDS if mode == "WAL" or THOROUGH or command in forms.values()]
    commands = ";".join([*chosen, *MISTAKEN]).format(db=workspace.db)
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(GUARD), str(workspace.db), commands],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KBEVAL_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr
    assert "internal error" not in found.stderr
    codes = [line for line in found.stdout.splitlines() if line in ("0", "1", "2")]
    assert codes[-len(MISTAKEN) :] == ["2"] * len(MISTAKEN), found.stderr
