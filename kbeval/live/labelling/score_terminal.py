"""`kbeval label --as-judge RUN` at a terminal: people score answers by a rubric."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from kbeval.errors import KbevalError
from kbeval.live.labelling.answers import AnswerScoring, AnswerView
from kbeval.util.text import counted, shown


class ScoreApp(App[None]):
    """One answer at a time."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "#page { padding: 1 2; } #status { padding: 0 2; height: 1; color: $text-muted; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("0", "ignore", "to 5: the score", show=True),
        Binding("tab", "rubric", "Next rubric"),
        Binding("r", "text", "The rubric"),
        Binding("n", "next(1)", "Next"),
        Binding("p", "next(-1)", "Previous"),
        Binding("u", "undo", "Undo"),
        Binding("q", "quit", "End"),
    ]

    def __init__(self, session: AnswerScoring) -> None:
        super().__init__()
        self.session = session
        self._query = session.first()
        self._rubrics = list(session.rubrics)
        self._rubric = 0
        self._shows_rubric = False
        self._said = ""
        self._last = session.latest()

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="page"):
            yield Static(id="answer")
        yield Static(id="status")
        yield Footer()

    def on_mount(self) -> None:
        """Begin with the first answer without a score."""
        self._open(self._query)

    def on_key(self, event: events.Key) -> None:
        """A digit is a score."""
        if event.key.isdecimal() and self._query is not None:
            event.stop()
            self._score(int(event.key))

    def action_ignore(self) -> None:
        """Keys are read in `on_key`; this exists for the footer."""
        self._score(0)

    def _score(self, value: int) -> None:
        if self._query is None:
            return
        name = self._rubrics[self._rubric]
        try:
            after = self.session.view(self._query).versions.get(name, 0)
            view = self.session.score(self._query, name, value, after)
        except KbevalError as error:
            self._said = error.headline
            self._last = self.session.latest()
        else:
            self._said = ""
            self._last = self.session.latest()
            left = [place for place, rubric in enumerate(self._rubrics) if self._is_open(view, rubric)]
            self._rubric = left[0] if left else self._rubric
        self._show()

    def action_rubric(self) -> None:
        """Select the next rubric."""
        self._rubric = (self._rubric + 1) % len(self._rubrics)
        self._show()

    def action_text(self) -> None:
        """Show or hide the text of the rubric."""
        self._shows_rubric = not self._shows_rubric
        self._show()

    def action_next(self, step: int) -> None:
        """Go to another answer."""
        queue = self.session.queue
        if self._query in queue:
            place = queue.index(self._query) + step
            if 0 <= place < len(queue):
                self._open(queue[place])

    def action_undo(self) -> None:
        """Undo the last score."""
        try:
            query_id = self.session.undo(self._last)
            self._said = "there is nothing to undo" if query_id is None else "undone"
        except KbevalError as error:
            query_id, self._said = None, error.headline
        self._last = self.session.latest()
        self._open(query_id or self._query)

    def _open(self, query_id: str | None) -> None:
        self._query = query_id
        if query_id is not None:
            view = self.session.view(query_id)
            open_ones = (place for place, name in enumerate(self._rubrics) if self._is_open(view, name))
            self._rubric = next(open_ones, 0)
        self._show()

    def _is_open(self, view: AnswerView, rubric: str) -> bool:
        return rubric not in view.scores and (rubric in view.said or not self.session.is_settling)

    def _show(self) -> None:
        text = Text()
        if self._query is not None:
            view = self.session.view(self._query)
            text.append(f"{shown(view.answer.query_id)}  ", style="dim")
            text.append(f"{shown(view.answer.question)}\n\n", style="bold")
            _lines(text, view.answer.answer)
            text.append("\n")
            for place, name in enumerate(self._rubrics):
                rubric = self.session.rubrics[name]
                score = view.scores.get(name)
                line = f"{'▸' if place == self._rubric else ' '} {name} ({rubric.low}–{rubric.high}): "
                text.append(shown(line), style="bold" if place == self._rubric else "")
                text.append("–" if score is None else f"{score}", style="green")
                said = ", ".join(f"{who}: {given}" for who, given in view.said.get(name, {}).items())
                text.append(shown(f"   {said}\n") if said else "\n", style="red")
            if self._shows_rubric:
                text.append("\n")
                _lines(text, self.session.rubrics[self._rubrics[self._rubric]].template, "dim")
            if view.answer.expected_key_facts:
                text.append("\nExpected facts\n", style="bold")
                _lines(text, "\n".join(view.answer.expected_key_facts))
            for passage in view.answer.passages:
                text.append("\n────\n", style="dim")
                _lines(text, passage.text)
                if passage.is_cut:
                    text.append("Only part of this text is stored.\n", style="red")
        self.query_one("#answer", Static).update(text)
        answers, scores = self.session.left()
        left = (
            f"{counted(answers, 'answer')} and {counted(scores, 'score')} left" if answers else "everything is scored"
        )
        status = " · ".join(filter(None, (self._said, self.session.annotator, left)))
        self.query_one("#status", Static).update(Text(shown(status)))


def _lines(text: Text, more: str, style: str = "") -> None:
    for line in more.split("\n"):
        text.append(f"{shown(line)}\n", style=style)
