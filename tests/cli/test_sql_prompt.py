"""The prompt of `kbeval sql`, driven in a real terminal."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from kbeval.cli.prompt import FIRST, MORE, is_whole
from tests.support.workspace import Workspace, hits

CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"


class Terminal:
    """A person at the prompt."""

    def __init__(self, workspace: Workspace, *options: str, **environment: str) -> None:
        arguments = ["-m", "kbeval", "sql", "--db", str(workspace.db), *options]
        env = {**os.environ, "TERM": "dumb", "HOME": str(workspace.db.parent), "INPUTRC": os.devnull, **environment}
        if "XDG_STATE_HOME" not in environment:
            env.pop("XDG_STATE_HOME", None)
        self.process = pexpect.spawn(
            sys.executable, arguments, env=env, encoding="utf-8", timeout=30, dimensions=(50, 200), echo=True
        )
        self.process.delaybeforesend = None
        self.process.ptyproc.delayafterclose = 0.01
        self.greeting = self.until()

    def until(self, prompt: str = FIRST) -> str:
        """Everything up to the next prompt."""
        self.process.expect_exact(prompt)
        return str(self.process.before)

    def ask(self, line: str) -> str:
        """The output of one line, without the line itself, which the terminal echoes."""
        self.process.send(line + "\r")
        return self.until().partition("\r\n")[2].replace("\r\n", "\n")

    def leave(self) -> int | None:
        """The exit code."""
        self.process.expect(pexpect.EOF)
        self.process.close()
        status: int | None = self.process.exitstatus
        return status


Open = Callable[..., Terminal]


@pytest.fixture
def open_prompt(workspace: Workspace) -> Iterator[Open]:
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c1"]})
    workspace.add_run("run-1", {"q1": {"hits_top_k": hits("c1", None)}})
    opened: list[Terminal] = []

    def begin(*options: str, **environment: str) -> Terminal:
        opened.append(Terminal(workspace, *options, **environment))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.process.close(force=True)


@pytest.fixture
def prompt(open_prompt: Open, workspace: Workspace) -> Terminal:
    return open_prompt("--golden", str(workspace.golden))


def test_it_greets_answers_and_leaves(prompt: Terminal) -> None:
    assert "1 run in " in prompt.greeting
    assert ".help" in prompt.greeting
    assert prompt.ask("SELECT run_id FROM runs;") == "run_id\nrun-1\n"
    prompt.process.send(".quit\r")
    assert prompt.leave() == 0


@pytest.mark.parametrize("goodbye", [CTRL_D, ".exit\r", "quit;\r"])
def test_there_are_several_ways_to_leave(prompt: Terminal, goodbye: str) -> None:
    prompt.process.send(goodbye)
    assert prompt.leave() == 0


def test_a_question_may_go_over_lines(prompt: Terminal) -> None:
    for line in ("SELECT COUNT(*) AS n", "-- a comment with a ;", "FROM hits WHERE chunk_id <> 'a;"):
        prompt.process.send(line + "\r")
        prompt.until(MORE)
    assert prompt.ask("b';") == "n\n2\n"


def test_a_blank_line_or_ctrl_c_drops_what_was_typed(prompt: Terminal) -> None:
    prompt.process.send("SELECT nonsense\r")
    prompt.until(MORE)
    assert "discarded" in prompt.ask("")
    prompt.process.send("SELECT more nonsense\r")
    prompt.until(MORE)
    prompt.process.send("and more" + CTRL_C)
    prompt.until()
    assert prompt.ask("SELECT 7 AS n;") == "n\n7\n"


def test_an_error_ends_nothing(prompt: Terminal) -> None:
    assert prompt.ask("SELECT nope FROM runs;").startswith("kbeval: the query failed: ")
    assert "did you mean 'hits'?" in prompt.ask("FROM hit;")
    assert "DROP is not allowed" in prompt.ask("DROP TABLE runs;")
    assert "unknown command '.nope'" in prompt.ask(".nope")
    assert "no table 'hit'; did you mean 'hits'?" in prompt.ask(".schema hit")
    assert prompt.ask("SELECT COUNT(*) AS n FROM runs;") == "n\n1\n"


def test_ctrl_c_stops_a_query_and_nothing_else(prompt: Terminal) -> None:
    prompt.process.send("SELECT COUNT(*) FROM range(10000000000000) AS t(i) WHERE i % 7 = 8;\r")
    time.sleep(1)
    start = time.monotonic()
    prompt.process.send(CTRL_C)
    assert "interrupted" in prompt.until()
    assert time.monotonic() - start < 10
    assert prompt.ask("SELECT COUNT(*) AS n FROM hits;") == "n\n2\n"


def test_the_commands(prompt: Terminal) -> None:
    listed = prompt.ask(".tables")
    assert "one row per stored run" in listed
    assert "query_scores" in listed
    assert "id_matches" not in listed
    assert "query_scores" not in prompt.ask(".tables stored run")
    assert "id_matches" in prompt.ask(".tables id_match")
    schema = prompt.ask(".schema hits")
    assert re.search(r"\brank +BIGINT", schema)
    assert "as stored" in schema
    assert "hits: result_no" in prompt.ask(".schema")
    shown = prompt.ask(".help")
    for name in (".tables", ".schema", ".format", ".limit", ".quit", ".examples"):
        assert name in shown
    assert "FROM runs" in prompt.ask(".examples")


def test_the_examples_work(prompt: Terminal) -> None:
    for line in prompt.ask(".examples").splitlines():
        assert "kbeval:" not in prompt.ask(line.partition("  -- ")[0])


def test_format_and_limit_hold_until_they_are_changed(prompt: Terminal) -> None:
    assert prompt.ask(".format csv") == "format: csv\n"
    assert prompt.ask("SELECT 1 AS a, 2 AS b;") == "a,b\n1,2\n"
    assert "unknown format 'xls'" in prompt.ask(".format xls")
    assert prompt.ask(".limit 2") == "limit: 2 rows\n"
    answer = prompt.ask("SELECT i FROM range(5) AS t(i) ORDER BY i;")
    assert answer == "i\n0\n1\nshowing the first 2 rows; use .limit 0 to show all\n"
    assert "not a number of rows" in prompt.ask(".limit many")
    prompt.ask(".limit 0")
    assert prompt.ask("SELECT i FROM range(300) AS t(i) ORDER BY i;").splitlines()[-1] == "299"


def test_tab_completes_tables_columns_words_and_commands(prompt: Terminal) -> None:
    assert prompt.ask("SELECT COUNT(*) AS n FROM resul\t;") == "n\n1\n"
    assert prompt.ask("SELECT chunker_v\t FROM runs;") == "chunker_version\nmd@1\n"
    # The columns of the table that the question names, also after its alias.
    assert prompt.ask("FROM searched_folders AS f SELECT f.pref\t;") == "prefix\n"
    assert prompt.ask("sel\t 1 AS n;") == "n\n1\n"
    assert "prefix     VARCHAR" in prompt.ask(".sch\t searched_f\t")
    assert prompt.ask(".form\t jsonl") == "format: jsonl\n"


def test_tab_offers_what_there_is(prompt: Terminal) -> None:
    prompt.process.send("SELECT * FROM expected_\t\t")
    for name in ("expected_chunks", "expected_docs", "expected_hits"):
        prompt.process.expect_exact(name)
    prompt.process.send(CTRL_C)
    prompt.until()


def test_the_history_is_kept_for_the_next_session(open_prompt: Open, tmp_path: Path) -> None:
    first = open_prompt(XDG_STATE_HOME=str(tmp_path / "state"))
    first.process.send("SELECT 40 +\r")
    first.until(MORE)
    assert "42" in first.ask("2 AS answer;")
    first.process.send(".quit\r")
    assert first.leave() == 0
    path = tmp_path / "state" / "kbeval" / "sql_history"
    assert path.read_text() == "SELECT 40 + 2 AS answer;\n.quit\n"
    assert path.stat().st_mode & 0o077 == 0

    second = open_prompt(XDG_STATE_HOME=str(tmp_path / "state"))
    second.process.send(UP + UP)
    assert second.ask("") == "answer\n    42\n"


def test_without_a_writable_directory_there_is_no_history_and_no_error(open_prompt: Open, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    terminal = open_prompt(XDG_STATE_HOME=str(tmp_path / "file"))
    assert terminal.ask("SELECT 1 AS n;") == "n\n1\n"


def test_history_is_kept_in_the_home_folder_by_default(open_prompt: Open, tmp_path: Path) -> None:
    terminal = open_prompt()
    terminal.ask("SELECT 1;")
    assert (tmp_path / ".local" / "state" / "kbeval" / "sql_history").read_text() == "SELECT 1;\n"


def test_missing_labels_are_reported_once(open_prompt: Open) -> None:
    terminal = open_prompt()
    assert "no golden file given" in terminal.ask("SELECT COUNT(*) AS n FROM queries;")
    assert terminal.ask("SELECT COUNT(*) AS n FROM queries;") == "n\n0\n"


def test_others_may_write_while_it_waits(prompt: Terminal, workspace: Workspace) -> None:
    assert prompt.ask("SELECT COUNT(*) AS n FROM hits;") == "n\n2\n"
    workspace.add_run("run-2", {"q1": {"hits_top_k": hits("c1")}})
    assert prompt.ask("SELECT COUNT(*) AS n FROM hits;") == "n\n3\n"


def test_a_file_to_write_needs_a_query(workspace: Workspace) -> None:
    arguments = ["-m", "kbeval", "sql", "--db", str(workspace.db), "-o", "x.csv"]
    process = pexpect.spawn(sys.executable, arguments, encoding="utf-8", timeout=30)
    process.expect_exact("-o requires a query")
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == 2


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT 1;", True),
        ("SELECT 1 ;  \n", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT ';'", False),
        ("SELECT 'it''s;';", True),
        ('SELECT ";"', False),
        ('SELECT 1 AS ";";', True),
        ("SELECT 1 -- ;", False),
        ("SELECT 1; -- done", True),
        ("SELECT 1 /* ; */", False),
        ("SELECT 1 /* ;", False),
        ("SELECT $$;$$", False),
        ("SELECT $$;$$;", True),
        ("SELECT 4 / 2 - 1;", True),
        (";", True),
        ("", False),
    ],
)
def test_a_question_ends_with_a_semicolon_that_is_one(text: str, whole: bool) -> None:
    assert is_whole(text) is whole
