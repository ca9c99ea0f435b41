"""The pages of the documentation, followed as a reader would: files are written, commands are run, in order.

What a block means is said by its language and by the line before it:

- a line that is only `` `NAME`: `` before a block of any language: the block is that file;
- `console`: lines after `$ ` are commands, the lines after a command are what it prints. `…` alone on a line matches
  any number of lines, and a command with nothing below it may print anything;
- without a file name, `sql` is a question for `kbeval sql`, `python` a script, `yaml` a golden file, `toml` a
  configuration, `json` one row of results, `yml` a workflow, `crontab` a table for cron;
- `text`: a picture, which is not run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import yaml

from kbeval.cli import run
from kbeval.golden import load_golden

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./-]+)`:\n\n?)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
# Commands that are not run here: each installs something, or leaves the folder.
_NOT_RUN = ("cd", "make", "pip", "source")
_FAILED = 2


@dataclass(frozen=True)
class Block:
    """A piece of a page between two fences."""

    language: str
    text: str
    file: str | None = None


def blocks_in(text: str) -> list[Block]:
    """Every block of a page, or of a part of one."""
    return [Block(found["language"], found["text"], found["file"]) for found in _BLOCK.finditer(text)]


def section(page: str, title: str) -> str:
    """A part of a page: from its heading to the next one that is as high."""
    heading = re.search(rf"^(#+) {re.escape(title)}$", page, re.MULTILINE)
    if heading is None:
        msg = f"there is no section {title!r}"
        raise LookupError(msg)
    rest = page[heading.end() :]
    # A block may contain a document with headings of its own.
    in_blocks = [found.span() for found in _BLOCK.finditer(rest)]
    for end in re.finditer(rf"^#{{1,{len(heading[1])}}} ", rest, re.MULTILINE):
        if not any(low <= end.start() < high for low, high in in_blocks):
            return rest[: end.start()]
    return rest


def follow(text: str, folder: Path) -> int:
    """Do what a page says, in a folder that is also the current one; returns how many blocks were tried."""
    script: list[str] = []
    blocks = blocks_in(text)
    for block in blocks:
        if block.file is not None:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            # The scripts of a page build on each other.
            script.append(block.text)
        else:
            _try(block, folder)
    if script:
        subprocess.run([sys.executable, "-c", "\n".join(script)], cwd=folder, check=True, capture_output=True)
    return len(blocks)


def _try(block: Block, folder: Path) -> None:
    match block.language:
        case "console":
            for line, printed in _commands(block.text):
                _run_line(line, printed)
        case "sql":
            kbeval("sql", block.text)
        case "yaml":
            _load(block.text, folder)
        case "toml":
            _configure(block.text, folder)
        case "json":
            _score_row(block.text, folder)
        case "yml" | "crontab":
            _schedule(block)
        case "text":
            pass
        case other:
            msg = f"a block of language {other!r} is not known here"
            raise ValueError(msg)


class _Screen(io.StringIO):
    """A terminal for the output of commands."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class _Notes(io.StringIO):
    """Standard error: it appears on the same screen, without the progress that only terminals get."""

    def __init__(self, screen: _Screen) -> None:
        super().__init__()
        self._screen = screen

    def write(self, text: str) -> int:
        return self._screen.write(text)


def kbeval(*arguments: str) -> tuple[int, str]:
    """Run a command; its exit code, and what a person at a terminal sees. It must do what it was asked to."""
    screen = _Screen()
    looks = patch.dict(os.environ, NO_COLOR="1", COLUMNS="100")
    with looks, contextlib.redirect_stdout(screen), contextlib.redirect_stderr(_Notes(screen)):
        code = run(list(arguments))
    # Settings in a file name whole paths, and readers have other folders.
    seen = screen.getvalue().replace(f"{Path.cwd()}/", "")
    assert code < _FAILED, f"kbeval {shlex.join(arguments)}: {seen}"
    return code, seen


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a block, which may go over several lines, and what it prints."""
    _, *parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    for part in parts:
        lines = part.splitlines()
        end = 1
        while lines[end - 1].endswith("\\") or not _is_whole("\n".join(lines[:end])):
            end += 1
        yield "\n".join(lines[:end]).replace("\\\n", " "), "\n".join(lines[end:]).strip("\n")


def _is_whole(command: str) -> bool:
    """Is every quotation closed?"""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


def _run_line(line: str, printed: str) -> None:
    program, *arguments = shlex.split(line, comments=True)
    if program == "sqlite3":
        database, sign, script = arguments
        assert sign == "<"
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.executescript(Path(script).read_text(encoding="utf-8"))
    elif program == "python":
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    elif program == "kbeval":
        _, seen = kbeval(*arguments)
        if printed:
            pattern = ".*".join(re.escape(part) for part in re.split(r"^…$", printed, flags=re.MULTILINE))
            assert re.fullmatch(pattern, seen.strip("\n"), re.DOTALL), f"{line}\n{seen}"
    else:
        assert program in _NOT_RUN, f"{line}: this is not tried"


def _load(text: str, folder: Path) -> None:
    path = folder / "of-the-page.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_golden(path).warnings == []


def _configure(text: str, folder: Path) -> None:
    """The settings are understood, and scoring and gates take them."""
    path = folder / "kbeval.toml"
    before = path.read_text(encoding="utf-8")
    path.write_text(text if re.search(r"^db\s*=", text, re.MULTILINE) else before + text, encoding="utf-8")
    kbeval("config")
    kbeval("score", "latest", "--dry-run")
    if "[gates]" in text:
        kbeval("gate", "latest")
    path.write_text(before, encoding="utf-8")


def _score_row(text: str, folder: Path) -> None:
    """One query's result: every field of it is where kbeval looks for it."""
    row = json.loads(text)
    database, golden = folder / "of-the-page.db", folder / "of-the-page.jsonl"
    database.unlink(missing_ok=True)
    schema = (ROOT / "sql" / "schema" / "workspace.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(schema)
        connection.execute("INSERT INTO eval_runs VALUES ('r', 's', '{}', '', NULL, '2026-01-01')")
        connection.execute("INSERT INTO eval_query_results VALUES ('r', ?, ?)", (row["query_id"], text))
    golden.write_text(json.dumps({"id": row["query_id"], "query": "?", "expected_doc_ids": ["d1"]}), encoding="utf-8")
    where = ["--db", str(database), "--golden", str(golden)]
    kbeval("score", "r", *where)
    _, found = kbeval("check", *where, "--format", "json")
    assert "misnamed-field" not in found
    assert "malformed" not in found


def _schedule(block: Block) -> None:
    """The commands that a workflow or cron would run; where their output goes is up to them."""
    if block.language == "yml":
        yaml.safe_load(block.text)
    lines = re.findall(r"\bkbeval (\w.*?)\s*(?:>>.*)?$", block.text, re.MULTILINE)
    assert lines
    for line in lines:
        kbeval(*shlex.split(line))


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def anchors(page: str) -> set[str]:
    """Every anchor of a page; a second heading with the same text has a number appended."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", without_blocks(page), re.MULTILINE):
        name = slug(heading)
        number = 1
        while name in found:
            name = f"{slug(heading)}-{number}"
            number += 1
        found.add(name)
    return found


def links(page: str) -> list[str]:
    """Where a page points to, except the web."""
    targets = re.findall(r"\]\(([^)\s]+)\)", without_blocks(page))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def without_blocks(page: str) -> str:
    """A page without the pieces between fences."""
    return _BLOCK.sub("", page)
