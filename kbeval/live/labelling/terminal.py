"""`kbeval label` at a terminal, with the same actions as the page. Needs Textual, the extra `kbeval[label]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, ListItem, ListView, Static

from kbeval.errors import KbevalError
from kbeval.live.labelling.actions import labels_in_words
from kbeval.live.labelling.candidates import Candidate
from kbeval.live.labelling.session import DoubtError, Labelling, QueryView
from kbeval.live.labelling.terminal_text import is_done_with, line_of, lines_part, text_of
from kbeval.storage.labels import YES
from kbeval.util.text import counted, shown

_HELP = """\
↑ ↓        choose a candidate            n p    next, previous query (saves)
s, space   it supports the answer        /      search queries
f          it does not                   +      add a query
k          skip it                       e      edit the wording
l          label only some of its lines  t      write a note
d          the open ones do not          v      list, or one candidate
a x        answerable, unanswerable      u      undo, without limit
m          words that an answer must contain
q          save and quit"""


class Ask(ModalScreen[str | None]):
    """Asks for one line of text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, title: str, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._title, self._value, self._hint = title, value, hint

    def compose(self) -> ComposeResult:
        with Vertical(id="ask"):
            yield Label(Text(self._title, style="bold"))
            if self._hint:
                yield Label(Text(self._hint, style="dim"))
            yield Input(self._value, id="answer")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_cancel(self) -> None:
        """Close without a change."""
        self.dismiss(None)


class Help(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "close", "Close")]

    def compose(self) -> ComposeResult:
        with Vertical(id="ask"):
            yield Label(Text("Keys", style="bold"))
            yield Static(Text(_HELP))

    def action_close(self) -> None:
        """Close the help."""
        self.dismiss()


class LabelApp(App[None]):
    """The session at a terminal."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #question { padding: 1 2 0 2; height: auto; }
    #facts { padding: 0 2 1 2; height: auto; color: $text-muted; }
    #list { width: 34%; background: transparent; scrollbar-size: 1 1; }
    #list > ListItem { background: transparent; padding: 0 1 1 1; }
    #list > ListItem.-highlight { background: $boost; text-style: none; }
    .alone #list { display: none; }
    #text { padding: 0 2; }
    #status { padding: 0 2; height: 1; color: $text-muted; }
    Ask, Help { align: center middle; }
    #ask { width: 84; max-width: 90%; height: auto; padding: 1 2; border: round $primary; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s,space", "decide('yes')", "Supports"),
        Binding("f", "decide('no')", "Does not"),
        Binding("k", "decide('skip')", "Skip"),
        Binding("l", "lines", "Lines"),
        Binding("d", "rest", "Rest: no"),
        Binding("a", "answerable(True)", "Answerable", show=False),
        Binding("x", "answerable(False)", "Unanswerable", show=False),
        Binding("m", "rule", "Must contain", show=False),
        Binding("e", "wording", "Edit", show=False),
        Binding("t", "note", "Note", show=False),
        Binding("n", "next(1)", "Next"),
        Binding("p", "next(-1)", "Previous", show=False),
        Binding("slash", "search", "Search", show=False),
        Binding("plus", "add", "Add", show=False),
        Binding("v", "view", "List or one", show=False),
        Binding("u", "undo", "Undo"),
        Binding("question_mark", "help", "Help"),
        Binding("q", "end", "Save and quit"),
    ]

    def __init__(self, session: Labelling) -> None:
        super().__init__()
        self.session = session
        self._query = session.first()
        self.seen: QueryView | None = None
        self._said = ""
        self._last = session.latest()
        # The query for which a contradiction was just reported.
        self._doubted: str | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="question")
        yield Static(id="facts")
        with Horizontal(id="body"):
            yield ListView(id="list")
            with VerticalScroll(id="text", can_focus=False):
                yield Static(id="passage")
        yield Static(id="status")
        yield Footer()

    async def on_mount(self) -> None:
        """Begin with the first query that is not done."""
        self.query_one(ListView).focus()
        if self._query is not None:
            await self._open(self._query)

    # --- showing -----------------------------------------------------------------------------------------

    async def _open(self, query_id: str) -> None:
        self._query = query_id
        view = self.session.view(query_id)
        first = next((n for n, one in enumerate(view.candidates) if not is_done_with(view, one)), 0)
        await self._show(view, first)

    async def _show(self, view: QueryView, index: int | None = None) -> None:
        self.seen = view
        place = self.query_one(ListView)
        index = place.index or 0 if index is None else index
        await place.clear()
        await place.extend(ListItem(Static(line_of(view, one))) for one in view.candidates)
        place.index = min(index, len(view.candidates) - 1) if view.candidates else None
        entry = view.entry
        question = Text()
        question.append(f"{shown(view.query_id)}  ", style="dim")
        question.append(shown(str(entry["query"])), style="bold")
        self.query_one("#question", Static).update(question)
        said = {True: "answerable", False: "unanswerable", None: "answerable not set"}
        facts = [said[view.answerable], f"labels: {'; '.join(labels_in_words(entry)) or 'none'}"]
        if entry.get("must_contain"):
            facts.append(f"must contain: {'; '.join(entry['must_contain'])}")
        if view.note:
            facts.append(f"note: {view.note}")
        self.query_one("#facts", Static).update(Text(shown(" · ".join(facts))))
        self._show_text()

    def _show_text(self) -> None:
        one = self._current()
        view = self.seen
        if view is None or one is None:
            nothing = "No run returned anything for this query, and a search of the chunks table found nothing."
            text = Text("" if view is not None and view.is_settling else nothing)
        else:
            text = text_of(view, one, is_settling=self.session.chosen.to_settle)
        self.query_one("#passage", Static).update(text)
        self.query_one("#text", VerticalScroll).scroll_home(animate=False)
        queries, candidates = self.session.left()
        is_settling = self.session.chosen.to_settle
        what = counted(candidates, "disagreement" if is_settling else "candidate")
        left = f"{counted(queries, 'query', 'queries')} and {what} left"
        done = "everything is settled" if is_settling else "everything is decided"
        parts = [self._said, self.session.chosen.annotator, left if queries else done]
        self.query_one("#status", Static).update(Text(shown(" · ".join(filter(None, parts)))))

    def _current(self) -> Candidate | None:
        index = self.query_one(ListView).index
        if self.seen is None or index is None or not 0 <= index < len(self.seen.candidates):
            return None
        return self.seen.candidates[index]

    def on_list_view_highlighted(self) -> None:
        """Another candidate is chosen."""
        self._show_text()

    async def _do(self, action: Callable[[], QueryView], *, onwards: bool = False) -> None:
        """Perform an action; an error is shown at the bottom."""
        self._said, self._doubted = "", None
        is_done = True
        try:
            view = action()
            self._last = self.session.latest()
            self._said = _advice(view.advice)
        except DoubtError as error:
            self._said, self._doubted, is_done = error.headline, self._query, False
            view = self.session.view(self._query or "")
        except KbevalError as error:
            self._said, is_done = error.headline, False
            self._last = self.session.latest()
            view = self.session.view(self._query or "")
        index = self.query_one(ListView).index or 0
        if onwards and is_done and not self._said:
            index = next(
                (n for n, one in enumerate(view.candidates) if n > index and not is_done_with(view, one)), index
            )
        await self._show(view, index)

    # --- actions -----------------------------------------------------------------------------------------

    async def action_decide(self, value: str) -> None:
        """Decide on the current candidate: supports, does not support, skip."""
        one = self._current()
        if one is not None and self._query is not None:
            after = 0 if self.seen is None else self.seen.versions.get(one.key, 0)
            query_id = self._query
            await self._do(lambda: self.session.decide(query_id, one.key, value, None, after), onwards=True)

    async def action_lines(self) -> None:
        """Only some lines of the text support the answer."""
        one = self._current()
        if one is None or self._query is None:
            return
        query_id, lines = self._query, one.text.split("\n")

        async def label(said: str | None) -> None:
            part = None if said is None else lines_part(lines, said)
            if said is not None and part is None:
                self._said = f"{said!r} is not a line number from 1 to {len(lines)} or a range such as 2-4"
                self._show_text()
            elif part is not None:
                after = 0 if self.seen is None else self.seen.versions.get(one.key, 0)
                await self._do(lambda: self.session.decide(query_id, one.key, YES, part, after), onwards=True)

        self.push_screen(Ask("Which lines support the answer?", hint=f"1 to {len(lines)}, for example 2-4"), label)

    async def action_rest(self) -> None:
        """Mark every open candidate as not supporting the answer."""
        if self._query is not None:
            query_id, after = self._query, None if self.seen is None else self.seen.latest
            await self._do(lambda: self.session.decide_rest(query_id, after))

    async def action_answerable(self, value: bool) -> None:
        """Answerable or not; pressed a second time: not set."""
        if self.seen is not None:
            query_id, after = self.seen.query_id, self.seen.versions.get("answerable:", 0)
            wanted, is_sure = None if self.seen.answerable is value else value, self._doubted == self.seen.query_id
            await self._do(lambda: self.session.set_answerable(query_id, wanted, after, is_sure=is_sure))

    async def action_rule(self) -> None:
        """Words that an answer must contain."""
        await self._ask("Which words must an answer contain?", "", self._with_rule, "exactly as in the text")

    def _with_rule(self, query_id: str, text: str) -> QueryView:
        known = self.session.view(query_id).entry.get("must_contain") or ()
        return self.session.set_rule(query_id, text, is_wanted=text.strip() not in known)

    async def action_wording(self) -> None:
        """Edit the wording of the query."""
        if self.seen is not None:
            await self._ask("Edit the wording", str(self.seen.entry["query"]), self.session.set_query)

    async def action_note(self) -> None:
        """Edit the note."""
        if self.seen is not None:
            hint = "kept in the database, not in the golden file"
            await self._ask("Note", self.seen.note, self.session.set_note, hint)

    async def _ask(self, title: str, value: str, action: Callable[[str, str], QueryView], hint: str = "") -> None:
        if self._query is None:
            return
        query_id = self._query

        async def answered(text: str | None) -> None:
            if text is not None:
                await self._do(lambda: action(query_id, text))

        self.push_screen(Ask(title, value, hint), answered)

    async def action_add(self) -> None:
        """Add a query."""

        async def answered(text: str | None) -> None:
            name, _, query = (text or "").strip().partition(" ")
            if not text:
                return
            self._save()
            await self._do(lambda: self.session.add_query(name, query))
            if not self._said:
                await self._open(name)

        self.push_screen(Ask("Add a query", hint="its id, a space, and the query"), answered)

    async def action_search(self) -> None:
        """Open the first query that contains some words."""

        async def answered(text: str | None) -> None:
            wanted = (text or "").strip().lower()
            entries = {entry["id"]: str(entry["query"]) for entry in self.session.file.golden.entries}
            for query_id in self.session.queue if wanted else ():
                if wanted in query_id.lower() or wanted in entries.get(query_id, "").lower():
                    self._save()
                    await self._open(query_id)
                    return

        self.push_screen(Ask("Search queries", hint="part of an id or of a query"), answered)

    async def action_next(self, step: int) -> None:
        """Save, and go to another query."""
        queue = self.session.queue
        if self._query not in queue:
            return
        self._save()
        place = queue.index(self._query)
        later = next((query_id for query_id in queue[place + 1 :] if self.session.is_open(query_id)), None)
        following = queue[place + 1] if place + 1 < len(queue) else None
        target = (later or following) if step > 0 else (queue[place - 1] if place else None)
        if target is None:
            self._said = self._said or "this is the last query; all decisions are saved"
            self._show_text()
        else:
            await self._open(target)

    async def action_undo(self) -> None:
        """Undo the last decision."""
        try:
            query_id = self.session.undo(self._last)
            self._last = self.session.latest()
        except KbevalError as error:
            self._said = error.headline
            self._last = self.session.latest()
            if self._query is not None:
                await self._show(self.session.view(self._query))
            return
        self._said = "there is nothing to undo" if query_id is None else "undone"
        if query_id in self.session.queue:
            index = self.query_one(ListView).index if query_id == self._query else 0
            self._query = query_id
            await self._show(self.session.view(query_id), index)
        elif query_id is not None and (first := self.session.first()) is not None:
            await self._open(first)
        else:
            self._show_text()

    def action_view(self) -> None:
        """Show the list of candidates, or one candidate alone."""
        self.toggle_class("alone")
        self.screen.toggle_class("alone")

    def action_help(self) -> None:
        """The keys."""
        self.push_screen(Help())

    def action_end(self) -> None:
        """Save and quit."""
        self._save()
        self.exit()

    def _save(self) -> None:
        saved = self.session.save(self._query)
        self._said = "; ".join(saved.problems)
        if saved.held:
            self._said = f"{counted(saved.held, 'decision')} not written: people disagree; use kbeval label --settle"


def _advice(text: str) -> str:
    """Advice about a decision, with the key to press."""
    if text.startswith("The whole text"):
        return f"{text} Press l to label only the lines that answer the query."
    return f"{text} Settle it with kbeval label --settle." if text.startswith("Not written") else text
