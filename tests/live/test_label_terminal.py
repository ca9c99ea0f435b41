"""`kbeval label` at a terminal: driven by Textual's pilot, and once in a real one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pexpect
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, ListView, Static

from kbeval.live.labelling.session import Chosen, Labelling
from kbeval.live.labelling.terminal import LabelApp
from kbeval.live.labelling.terminal_text import lines_part
from tests.support.labelled import AFTER, BEFORE, label_ten, make


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
                    assert app._said in ("", "undone") or "q9 has labels" in app._said
                # Hostile text is shown as text, without its control characters.
                await pilot.press("slash")
                await pilot.pause()
                app.screen.query_one(Input).value = "q1"
                await pilot.press("enter")
                await pilot.pause()
                shown = app.export_screenshot()
                assert "\x1b" not in shown
                assert "<img src=x" not in shown
                for key in ("v", "v", "question_mark", "escape", "n", "p", "l"):
                    await pilot.press(key)
                    await pilot.pause()
                app.screen.query_one(Input).value = "9-1"
                await pilot.press("enter")
                await pilot.pause()
                assert "is not a line from 1 to" in app._said
                await pilot.press("q")
            assert session.problems == []

    asyncio.run(main())
    assert workspace.golden.read_bytes().decode() == AFTER


def test_in_a_real_terminal(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    arguments = ["-m", "kbeval", "label", "--annotator", "ann", "--only", "q1", "--db", str(workspace.db)]
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": ""}
    child = pexpect.spawn(
        sys.executable,
        [*arguments, "--golden", str(workspace.golden)],
        env=environment,
        dimensions=(40, 120),
        timeout=60,
        encoding="utf-8",
    )
    try:
        child.expect("candidates left")
        child.send("s")
        child.expect("1 candidate left")
        child.send("f")
        child.expect("everything is decided")
        child.send("q")
        child.expect("next: 'kbeval score --all")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    assert child.exitstatus == 0
    # The first that was shown supports the answer, whichever it is: one label, and nothing else changed.
    text = workspace.golden.read_text(encoding="utf-8")
    new = [line for line in text.split("\n") if line not in BEFORE.split("\n")]
    assert len(new) == 1
    assert new[0].startswith("  expected_spans: [{doc_id: d1, kind: line, start: ")


@pytest.mark.parametrize(("said", "found"), [("1", (0, 3)), ("2-3", (4, 11)), (" 3 ", (8, 11)), ("2–2", (4, 7))])
def test_lines_are_positions(said: str, found: tuple[int, int]) -> None:
    text = "one\ntwo\nsix"
    assert lines_part(text.split("\n"), said) == found


@pytest.mark.parametrize("said", ["", "0", "4", "3-2", "1-9", "x", "1,2", "-1"])
def test_what_is_not_lines_is_refused(said: str) -> None:
    assert lines_part(["one", "two", "six"], said) is None
