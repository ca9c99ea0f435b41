"""`kbeval label` killed at random moments, at a terminal and as a page: at most the last keystroke is lost.

After each kill, the table of decisions has all that was confirmed and at most one more, the golden file has nothing in
it but what was decided at some moment since it was last saved, and the next start has it in full. What the file must be
is put together here by hand from what was pressed.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import random
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kbeval.live.labelling.session import Chosen, Labelling
from tests.support.examples import sized
from tests.support.labelled import make
from tests.support.workspace import Workspace

QUERIES = range(1, 11)
# Imports once and forks for each start: the interpreter would take most of the time. The command is the real one.
DRIVER = """
import json, os, signal, sys
import kbeval.cli.label, kbeval.live.labelling.session, kbeval.live.labelling.web, kbeval.live.labelling.terminal
from kbeval.cli import run
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    given = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        out = os.open(given["out"], os.O_RDWR | os.O_CREAT)
        for place in (0, 1, 2) if given["is_terminal"] else (1, 2):
            os.dup2(out, place)
        code = 9
        try:
            code = run(["label", *given["arguments"]])
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(child, flush=True)
"""


class Starter:
    """Starts `kbeval label`, again and again."""

    def __init__(self, workspace: Workspace) -> None:
        self._where = ["--annotator", "ann", "--db", str(workspace.db), "--golden", str(workspace.golden)]
        environment = {**os.environ, "TERM": "xterm-256color"}
        self._driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, out: str, *arguments: str, is_terminal: bool = False) -> int:
        given = {"out": out, "is_terminal": is_terminal, "arguments": [*arguments, *self._where]}
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(json.dumps(given) + "\n")
        self._driver.stdin.flush()
        return int(self._driver.stdout.readline())

    def end(self) -> None:
        self._driver.kill()
        self._driver.communicate()


@dataclass
class Row:
    """A decision: of a query, on its field or on one of its two texts (`a` answers it, `b` does not)."""

    query: int
    what: str
    value: Any
    is_undone: bool = False


@dataclass
class Model:
    """What the database and the file must have."""

    rows: list[Row] = field(default_factory=list)
    # What the table may be after the keystroke that is on its way, and the query that this is about.
    possible: list[Row] = field(default_factory=list)
    touched: int | None = None
    # The states that the file may have of each query: since it was last saved.
    since: dict[int, list[str]] = field(default_factory=lambda: {n: [entry(n, [])] for n in QUERIES})

    def decided(self, query: int, *, is_saved: bool) -> None:
        now = entry(query, self.rows)
        self.since[query] = [now] if is_saved else [*self.since[query], now]


def entry(n: int, rows: list[Row]) -> str:
    """An entry of the golden file with what was decided about it."""
    spans, answerable, words = dict[str, str](), None, False
    for row in rows:
        if row.query != n or row.is_undone:
            continue
        if row.what == "answerable":
            answerable = row.value
        elif row.what == "words":
            words = row.value
        elif row.value == "yes":
            lines = {"a": "start: 1, end: 3", "b": "start: 4, end: 6"}[row.what]
            spans.setdefault(row.what, f"{{doc_id: d{n}, kind: line, {lines}}}")
        else:
            spans.pop(row.what, None)
    text = f"- id: q{n}   # {n}\n  query: What is topic {n}?\n"
    text += "" if answerable is None else f"  answerable: {str(answerable).lower()}\n"
    text += f"  expected_spans: [{', '.join(spans.values())}]\n" if spans else ""
    return text + (f"  must_contain: [answer {n}]\n" if words else "")


def stored(workspace: Workspace) -> list[Row]:
    """The table of decisions, read by another program."""
    with closing(sqlite3.connect(workspace.db, timeout=60)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'kbeval_labels'").fetchone():
            return []
        found = connection.execute(
            "SELECT query_id, field, value_json, chunk_id, undone_at IS NOT NULL FROM kbeval_labels ORDER BY label_no"
        ).fetchall()
    rows = []
    for query_id, name, value_json, chunk_id, is_undone in found:
        value = json.loads(value_json)
        value = value["to"] if name == "answerable" else value
        # The text of c1a is that of e1 and of one more line.
        text = {"answerable": "answerable", "must_contain": "words"}.get(name) or ("b" if chunk_id[-1] == "b" else "a")
        rows.append(Row(int(query_id[1:]), text, value, bool(is_undone)))
    return rows


def entries_in(workspace: Workspace) -> dict[int, str]:
    """The file, cut at its entries."""
    text = workspace.golden.read_bytes().decode()
    parts = re.split(r"(?m)^(?=- id: )", text)
    assert parts[0] == ""
    return {int(part[7 : part.index(" ", 7)]): part for part in parts[1:]}


def check_killed(workspace: Workspace, model: Model, wanted: list[list[Row]], touched: int | None) -> None:
    """`wanted`: the tables that there may be; `touched`: the query that the last keystroke was about."""
    found = stored(workspace)
    assert found in wanted
    model.rows = found
    if touched is not None:
        model.decided(touched, is_saved=False)
    entries = entries_in(workspace)
    assert list(entries) == list(QUERIES)
    for n, text in entries.items():
        assert text in model.since[n], n


def check_resumed(workspace: Workspace, model: Model) -> None:
    """All that is in the database is in the file."""
    entries = entries_in(workspace)
    for n in QUERIES:
        model.decided(n, is_saved=True)
        assert entries[n] == model.since[n][0]


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[tuple[Workspace, Starter]]:
    workspace = make(tmp_path)
    workspace.golden.write_text("".join(entry(n, []) for n in QUERIES), encoding="utf-8")
    starter = Starter(workspace)
    yield workspace, starter
    starter.end()


def check_all_undone(workspace: Workspace) -> None:
    with Labelling(workspace.db, workspace.golden, Chosen("ann")) as session:
        while session.undo() is not None:
            pass
    assert workspace.golden.read_bytes().decode() == "".join(entry(n, []) for n in QUERIES)
    assert not list(workspace.golden.parent.glob(".*draft*"))


# --- the page ---------------------------------------------------------------------------------------------


class Client:
    """A page that asks without pause."""

    def __init__(self, out: Path) -> None:
        end = time.monotonic() + 60
        while not (found := re.match(r"http://(127\.0\.0\.1:\d+)/\?token=(\S+)\n", out.read_text(encoding="utf-8"))):
            assert time.monotonic() < end, out.read_text(encoding="utf-8")
            time.sleep(0.01)
        address, token = found.groups()
        self._connection = http.client.HTTPConnection(address, timeout=60)
        self._head = {"X-Kbeval-Token": token, "Content-Type": "application/json"}

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Raises OSError or HTTPException once the server is gone."""
        method, text = ("GET", None) if body is None else ("POST", json.dumps(body))
        self._connection.request(method, f"/api/{path}", text, self._head)
        answer = self._connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status == 200, found
        return found

    def close(self) -> None:
        self._connection.close()


def act(client: Client, model: Model, source: random.Random) -> None:
    """One action; what is confirmed goes into the model."""
    n = source.choice(QUERIES)
    kind = source.choice(("decide", "decide", "decide", "answerable", "words", "undo", "save"))
    if kind == "save":
        client.ask("save", {"query": f"q{n}"})
        model.decided(n, is_saved=True)
        return
    if kind == "undo":
        last = next((row for row in reversed(model.rows) if not row.is_undone), None)
        if last is not None:
            model.touched, model.possible = last.query, undone(model.rows)
        client.ask("undo", {})
        if last is not None:
            last.is_undone = True
            model.decided(last.query, is_saved=False)
        return
    if kind == "decide":
        view = client.ask(f"query/q{n}")
        one = source.choice(view["candidates"])
        row = Row(n, "a" if "The answer" in one["text"] else "b", source.choice(("yes", "no")))
        path, body = "decide", {"query": f"q{n}", "key": one["key"], "value": row.value}
    elif kind == "answerable":
        row = Row(n, "answerable", source.choice((True, None)))
        path, body = "answerable", {"query": f"q{n}", "value": row.value}
    else:
        row = Row(n, "words", source.choice((True, False)))
        path, body = "rule", {"query": f"q{n}", "text": f"answer {n}", "wanted": row.value}
    model.touched, model.possible = n, [*model.rows, row]
    client.ask(path, body)
    model.rows.append(row)
    model.decided(n, is_saved=kind != "decide")


def undone(rows: list[Row]) -> list[Row]:
    last = max(place for place, row in enumerate(rows) if not row.is_undone)
    return [Row(r.query, r.what, r.value, r.is_undone or place == last) for place, r in enumerate(rows)]


def test_the_page_killed_at_random_moments(killed: tuple[Workspace, Starter], tmp_path: Path) -> None:
    workspace, starter = killed
    source, model = random.Random(16), Model()
    for number in range(sized(8, 60)):
        out = tmp_path / f"out{number}"
        out.touch()
        pid = starter.start(str(out), "--web")
        with closing(Client(out)) as client:
            check_resumed(workspace, model)
            confirmed, wanted = 0, source.randrange(6)
            timer = threading.Timer(source.uniform(0.0, 0.08), os.kill, (pid, signal.SIGKILL))
            with contextlib.suppress(OSError, http.client.HTTPException):
                while True:
                    if confirmed == wanted:
                        timer.start()
                    model.touched, model.possible = None, model.rows
                    act(client, model, source)
                    confirmed += 1
            timer.join()
        check_killed(workspace, model, [model.rows, model.possible], model.touched)
    assert len(model.rows) > 10
    check_all_undone(workspace)


# --- the terminal -----------------------------------------------------------------------------------------


def wait_for(workspace: Workspace, condition: str) -> None:
    """Until the database says so."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with closing(sqlite3.connect(workspace.db, timeout=60)) as connection, contextlib.suppress(sqlite3.Error):
            if connection.execute(f"SELECT {condition}").fetchone()[0]:
                return
        time.sleep(0.01)
    pytest.fail(condition)


def test_the_terminal_killed_at_random_moments(killed: tuple[Workspace, Starter]) -> None:  # noqa: PLR0915
    workspace, starter = killed
    source, model = random.Random(7), Model()
    said = {"s": "yes", "f": "no"}
    for _ in range(sized(6, 40)):
        master, slave = os.openpty()
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        seen: list[bytes] = []
        reader = threading.Thread(target=drain, args=(master, seen), daemon=True)
        reader.start()
        pid = starter.start(os.ttyname(slave), is_terminal=True)
        end = time.monotonic() + 60
        while b" left" not in b"".join(seen) and b"everything is decided" not in b"".join(seen):
            assert time.monotonic() < end, b"".join(seen)[-2000:]
            time.sleep(0.01)
        check_resumed(workspace, model)
        for step in range(source.randrange(1, 5)):
            key = source.choice("ssffauun")
            is_last = step == 3 or source.random() < 0.4
            os.write(master, key.encode())
            if is_last:
                break
            if key == "n":
                # What was decided about the query that is left is saved, if anything was.
                wait_for(workspace, "COUNT(*) = 0 FROM kbeval_labels WHERE state = 'pending' AND undone_at IS NULL")
                for n in QUERIES:
                    model.since[n].append(entry(n, model.rows))
            elif key == "u":
                left = sum(not row.is_undone for row in model.rows)
                if left:
                    wait_for(workspace, f"COUNT(*) = {left - 1} FROM kbeval_labels WHERE undone_at IS NULL")
                    touched = [row for row in model.rows if not row.is_undone][-1].query
                    model.rows = undone(model.rows)
                    model.decided(touched, is_saved=False)
            else:
                wait_for(workspace, f"COUNT(*) > {len(model.rows)} FROM kbeval_labels")
                *before, row = stored(workspace)
                assert before == model.rows
                assert row.what == "answerable" if key == "a" else row.value == said[key]
                model.rows.append(row)
                model.decided(row.query, is_saved=False)
        time.sleep(source.uniform(0, 0.06))
        os.kill(pid, signal.SIGKILL)
        os.close(slave)
        reader.join(30)
        os.close(master)
        # The last key was not waited for: it is there, or it is not.
        found = stored(workspace)
        possible = [model.rows, undone(model.rows) if any(not row.is_undone for row in model.rows) else model.rows]
        if len(found) > len(model.rows):
            assert found[:-1] == model.rows
            assert found[-1].value in ("yes", "no", True, None)
            possible = [found]
        changed = [place for place, row in enumerate(found) if place >= len(model.rows) or row != model.rows[place]]
        check_killed(workspace, model, possible, found[changed[0]].query if changed else None)
    assert len(model.rows) > 3
    check_all_undone(workspace)


def drain(master: int, seen: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(master, 65536):
            seen.append(data)
