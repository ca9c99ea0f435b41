"""Databases with damaged pages: one line that says so, or an answer; never a traceback, a crash or a hang."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kbeval.cli import run
from kbeval.demo import make_demo
from tests.support.examples import sized

PAGE = 4096
COMMANDS = {
    "score": ["score", "--all", "--dry-run", "--force"],
    "check": ["check"],
    "runs": ["runs"],
    "sql": ["sql", "SELECT COUNT(*) FROM hits"],
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged") / "demo"
    make_demo(folder)
    return folder


def damage(path: Path, chance: random.Random) -> str:
    """Change a page, or the length; says how."""
    data = bytearray(path.read_bytes())
    page = chance.randrange(len(data) // PAGE)
    start = page * PAGE
    how = chance.choice(["zeros", "noise", "header", "cells", "byte", "cut"])
    if how == "zeros":
        data[start : start + PAGE] = bytes(PAGE)
    elif how == "noise":
        data[start : start + PAGE] = chance.randbytes(PAGE)
    elif how == "header":
        # After the header of the file, that of the page.
        data[start + (100 if page == 0 else 0)] = chance.randrange(256)
    elif how == "cells":
        for place in chance.sample(range(start + 108, start + PAGE), 20):
            data[place] = chance.randrange(256)
    elif how == "byte":
        data[start + chance.randrange(100 if page == 0 else 0, PAGE)] ^= 1 << chance.randrange(8)
    else:
        del data[max(512, start) :]
    path.write_bytes(data)
    return f"page {page}: {how}"


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_page_is_reported_in_one_line(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    chance = random.Random(f"{command} 7")
    told = 0
    tries = sized(16, 80) if command in ("runs", "sql") else sized(6, 40)
    for _ in range(tries):
        database = tmp_path / "kb.db"
        shutil.copyfile(demo / "kb.db", database)
        how = damage(database, chance)
        golden = [] if command == "runs" else ["--golden", str(demo / "golden.yaml")]
        code = run([*COMMANDS[command], "--db", str(database), *golden])
        captured = capsys.readouterr()
        assert code in (0, 1, 2), how
        assert "internal error" not in captured.err, (how, captured.err)
        assert "Traceback" not in captured.err, how
        told += code == 2
    assert told > tries // 8
