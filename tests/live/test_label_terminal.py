"""`kbeval label` at a terminal: driven by Textual's pilot, and once in a real one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pexpect
import pyte
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, ListView, Static

from kbeval.live.labelling.session import Chosen, Labelling
from kbeval.live.labelling.terminal import LabelApp
from kbeval.live.labelling.terminal_text import lines_part, text_of
from tests.support.labelled import AFTER, BEFORE, label_ten, make
from tests.support.workspace import Workspace


class Recorded:
    """The steps of a person, to be done one after the other."""

    def __init__(self) -> None:
        self.steps: list[Callable[[Pilot[None]], Awaitable[None]]] = []

    def _type(self, key: str, *texts: str) -> None:
        async def step(pilot: Pilot[None]) -> None:
            await pilot.press(key)
            await pilot.pause()
            pilot.app.screen.query_one(Input).value = " ".join(texts)
            await pilot.press("enter")
            await pilot.pause()

        self.steps.append(step)

    def open(self, query_id: str) -> None:
        async def step(pilot: Pilot[None]) -> None:
            app = pilot.app
            assert isinstance(app, LabelApp)
            # q1 is found before q10.
            assert app.seen is not None
            await pilot.press("slash")
            await pilot.pause()
            app.screen.query_one(Input).value = query_id
            await pilot.press("enter")
            await pilot.pause()
            assert app.seen.query_id == query_id

        self.steps.append(step)

    def choose(self, text: str) -> None:
        async def step(pilot: Pilot[None]) -> None:
            app = pilot.app
            assert isinstance(app, LabelApp)
            assert app.seen is not None
            wanted = next(n for n, one in enumerate(app.seen.candidates) if text in one.text)
            for _ in range(len(app.seen.candidates)):
                await pilot.press("up")
            for _ in range(wanted):
                await pilot.press("down")
            assert app.query_one(ListView).index == wanted

        self.steps.append(step)

    def press(self, key: str) -> None:
        async def step(pilot: Pilot[None]) -> None:
            await pilot.press(key)
            await pilot.pause()

        self.steps.append(step)

    def support_line(self, number: int) -> None:
        self._type("l", str(number))

    def must_contain(self, text: str) -> None:
        self._type("m", text)

    def answer(self, key: str, *texts: str) -> None:
        self._type({"+": "plus"}.get(key, key), *texts)


def test_ten_queries_at_a_terminal(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    recorded = Recorded()
    label_ten(recorded)

    async def main() -> None:
        with Labelling(workspace.db, workspace.golden, Chosen("ann")) as session:
            app = LabelApp(session)
            async with app.run_test(size=(120, 40)) as pilot:
                await pilot.pause()
                assert str(app.query_one("#status", Static).render()).endswith("10 queries and 18 candidates left")
                for step in recorded.steps:
                    await step(pilot)
                    assert app._said in ("", "undone") or "q9 has a text that answers it" in app._said
                # Hostile text is shown as text, without its control characters.
                await pilot.press("slash")
                await pilot.pause()
                app.screen.query_one(Input).value = "q1"
                await pilot.press("enter")
                await pilot.pause()
                shown = app.export_screenshot()
                assert "\x1b" not in shown
                assert "<img src=x" not in shown
                # One candidate alone, or the list next to it.
                is_listed = []
                for _ in range(3):
                    is_listed.append(app.query_one("#list").display)
                    await pilot.press("v")
                    await pilot.pause()
                assert is_listed in ([True, False, True], [False, True, False])
                view = session.view("q2")
                text = text_of(view, view.candidates[0], is_settling=False)
                marked = {text.plain[one.start : one.end] for one in text.spans if "underline" in str(one.style)}
                assert marked == {"Topic"}
                for key in ("v", "question_mark", "escape", "n", "p", "l"):
                    await pilot.press(key)
                    await pilot.pause()
                app.screen.query_one(Input).value = "9-1"
                await pilot.press("enter")
                await pilot.pause()
                assert "is not a line number from 1 to" in app._said
                await pilot.press("q")
            assert session.problems == []

    asyncio.run(main())
    assert workspace.golden.read_bytes().decode() == AFTER


class InTerminal:
    """The command in a terminal: keys are typed, and the screen is read."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        arguments = ["--annotator", "ann", "--db", str(workspace.db), "--golden", str(workspace.golden)]
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        self.child = pexpect.spawn(
            sys.executable, ["-m", "kbeval", "label", *arguments], env=environment, dimensions=(40, 120), timeout=60
        )
        self.child.delaybeforesend = None
        self._screen = pyte.Screen(120, 40)
        self._stream = pyte.ByteStream(self._screen)

    def text(self) -> str:
        return "\n".join(self._screen.display)

    def wait(self, condition: Callable[[str], bool]) -> str:
        """Until the screen shows it."""
        end = time.monotonic() + 60
        while not condition(self.text()):
            assert time.monotonic() < end, self.text()
            with contextlib.suppress(pexpect.TIMEOUT):
                self._stream.feed(self.child.read_nonblocking(65536, timeout=0.05))
        return self.text()

    def wait_for(self, words: str) -> str:
        return self.wait(lambda text: words in text)

    def _prompt(self, key: str, title: str, text: str) -> None:
        self.child.send(key)
        self.wait_for(title)
        # What is there already goes: to the end, and away with all before it.
        while not re.search(r"▊ *▎", self.text()):
            for control in ("\x05", "\x15"):
                before = self.text()
                self.child.send(control)
                self._wait_briefly(before)
        self.child.send(text)
        self.wait_for(text[-30:])
        self.child.send("\r")
        self.wait(lambda shown: title not in shown)

    def open(self, query_id: str) -> None:
        self._prompt("/", "Search queries", query_id)
        self.wait(lambda text: re.search(rf"(?m)^ *{query_id}  ", text) is not None)

    def choose(self, text: str) -> None:
        def is_shown(screen: str) -> bool:
            # To the right of the list.
            return any(text in line[41:] for line in screen.split("\n"))

        def row_of(name: str) -> int | None:
            lines = enumerate(self._screen.display)
            return next((n for n, line in lines if f"Topic {text.rsplit(maxsplit=1)[-1]} {name}" in line[:40]), None)

        # The list is there, with both candidates of this query.
        self.wait(lambda _: None not in (row_of("heading"), row_of("again")))
        if is_shown(self.text()):
            return
        # It is the other one, above or below.
        rows = [row_of("heading") or 0, row_of("again") or 0]
        is_above = (rows[0] < rows[1]) == ("The answer" in text)
        self.child.send("\x1b[A" if is_above else "\x1b[B")
        self.wait(is_shown)

    def _wait_briefly(self, before: str) -> None:
        end = time.monotonic() + 0.5
        while self.text() == before and time.monotonic() < end:
            with contextlib.suppress(pexpect.TIMEOUT):
                self._stream.feed(self.child.read_nonblocking(65536, timeout=0.05))

    def press(self, key: str) -> None:
        """Until it is stored, or asked about."""
        before = self._stored()
        self.child.send(key)
        self.wait(lambda text: self._stored() != before or (key == "x" and "press x again" in text))

    def _stored(self) -> list[tuple[int, int]]:
        return self._workspace.execute("SELECT COUNT(*), COUNT(undone_at) FROM kbeval_labels")

    def support_line(self, number: int) -> None:
        self._prompt("l", "Which lines support the answer?", str(number))

    def must_contain(self, text: str) -> None:
        self._prompt("m", "Which words must an answer contain?", text)

    def answer(self, key: str, *texts: str) -> None:
        title = {"e": "Edit the wording", "t": "Note", "+": "Add a query"}[key]
        self._prompt(key, title, " ".join(texts))


def test_ten_queries_in_a_real_terminal(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    terminal = InTerminal(workspace)
    try:
        terminal.wait_for("10 queries and 18 candidates left")
        label_ten(terminal)
        terminal.wait_for("q11  Is this one new?")
        assert "\x1b" not in terminal.text()
        terminal.child.send("q")
        terminal.child.expect("left to decide: ")
        terminal.child.expect(pexpect.EOF)
    finally:
        terminal.child.close(force=True)
    assert terminal.child.exitstatus == 0
    assert workspace.golden.read_bytes().decode() == AFTER
    (backup,) = workspace.golden.parent.glob("golden.yaml.*.bak")
    assert backup.read_bytes().decode() == BEFORE


@pytest.mark.parametrize(("said", "found"), [("1", (0, 3)), ("2-3", (4, 11)), (" 3 ", (8, 11)), ("2–2", (4, 7))])
def test_lines_are_positions(said: str, found: tuple[int, int]) -> None:
    text = "one\ntwo\nsix"
    assert lines_part(text.split("\n"), said) == found


@pytest.mark.parametrize("said", ["", "0", "4", "3-2", "1-9", "x", "1,2", "-1"])
def test_what_is_not_lines_is_refused(said: str) -> None:
    assert lines_part(["one", "two", "six"], said) is None
