"""Candidates as text for a terminal. Text from data is shown without control characters."""

from __future__ import annotations

import re

from rich.text import Text

from kbeval.live.labelling.actions import words_to_mark
from kbeval.live.labelling.candidates import Candidate
from kbeval.live.labelling.session import QueryView
from kbeval.live.passages import WORD
from kbeval.storage.labels import NO, SKIP, YES
from kbeval.util.text import cut, shown

_MARKS = {YES: "●", NO: "○", SKIP: "–"}
_STATES = {YES: "supports the answer", NO: "does not support it", SKIP: "skipped"}
_LINES = re.compile(r"\s*(\d+)\s*(?:[-–]\s*(\d+))?\s*")


def lines_part(lines: list[str], said: str) -> tuple[int, int] | None:
    """`2-4` as positions in the text; None if there are no such lines."""
    found = _LINES.fullmatch(said)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    if not 1 <= first <= last <= len(lines):
        return None
    start = sum(len(line) + 1 for line in lines[: first - 1])
    end = start + len("\n".join(lines[first - 1 : last]))
    return (start, end) if start < end else None


def is_done_with(view: QueryView, one: Candidate) -> bool:
    """Is there nothing left to decide about it?"""
    if view.is_settling:
        return one.key in view.settled
    return one.is_labelled or view.decided.get(one.key) in (YES, NO, SKIP)


def _name(one: Candidate) -> str:
    return one.title or one.path or one.doc_id or "unknown document"


def line_of(view: QueryView, one: Candidate) -> Text:
    """A candidate in the list."""
    value = view.decided.get(one.key)
    mark = _MARKS.get(value or "", "◆" if one.is_labelled else " ")
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{mark} ", style={YES: "green", NO: "red"}.get(value or "", ""))
    line.append(shown(cut(_name(one), 40)), style="bold")
    first = next((line for line in one.text.split("\n") if line.strip() and not line.startswith("#")), one.text)
    line.append(f"\n  {shown(cut(first.strip(), 70))}", style="dim")
    return line


def text_of(view: QueryView, one: Candidate, *, is_settling: bool) -> Text:
    """A candidate's text with the words of the query marked, and its lines numbered."""
    text = Text()
    heads = [head for place, head in enumerate(one.headings) if place or head != one.title]
    where = " › ".join([_name(one), *heads])
    text.append(shown(where), style="bold")
    value = view.decided.get(one.key)
    states = {YES: "yes", NO: "no"} if one.is_question else _STATES
    state = states.get(value or "") or ("labelled" if one.is_labelled else "")
    if state:
        text.append(f"   {state}", style={YES: "green", NO: "red"}.get(value or "", "dim"))
    text.append(f"\n{shown(one.path or '')}\n\n", style="dim")
    words = set(words_to_mark(view))
    passage = view.passages.get(one.key)
    start = one.text.find(passage) if passage else -1
    at = 0
    for number, line in enumerate(one.text.split("\n"), start=1):
        is_part = passage is not None and start <= at < start + len(passage) and start >= 0
        text.append(f"{number:>3} ", style="dim")
        for piece in re.split(f"({WORD.pattern})", line):
            style = "underline bold" if piece.lower() in words else ""
            text.append(shown(piece), style=f"{style} on dark_green".strip() if is_part else style)
        text.append("\n")
        at += len(line) + 1
    if one.is_cut:
        text.append("\nOnly part of this text is stored.", style="red")
    votes = view.disputes.get(one.key)
    if votes and is_settling:
        text.append("\n" + shown(" · ".join(f"{who}: {states[what]}" for who, what in votes.items())), style="red")
    return text
