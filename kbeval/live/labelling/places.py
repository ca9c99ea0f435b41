"""Where a selected passage is in its document, and the shortest snippet that distinguishes it from other texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_WORD = re.compile(r"\S+")
# Shorter snippets occur in many texts.
_LEAST_WORDS, _LEAST_LETTERS = 3, 12
_LONGEST_SNIPPET = 200

Span = Mapping[str, Any]


def passage_spans(text: str, spans: Sequence[Span], start: int, end: int) -> list[dict[str, Any]] | None:
    """The spans of a part of a text, given the spans of the whole; None if they cannot be determined."""
    if len(spans) != 1 or not 0 <= start < end <= len(text):
        return None
    span = dict(spans[0])
    kind = span.get("kind")
    if kind in ("line", "code"):
        first, last = ("start", "end") if kind == "line" else ("line_start", "line_end")
        return _lines(text, span, first, last, (start, end))
    if kind == "char" and span.get("end", 0) - span.get("start", 0) == len(text):
        return [{**span, "start": span["start"] + start, "end": span["start"] + end}]
    if kind == "byte" and span.get("end", 0) - span.get("start", 0) == len(text.encode()):
        before, inside = len(text[:start].encode()), len(text[start:end].encode())
        return [{**span, "start": span["start"] + before, "end": span["start"] + before + inside}]
    low, high = span.get("char_start"), span.get("char_end")
    if kind == "page" and low is not None and high is not None and high - low == len(text):
        return [{**span, "char_start": low + start, "char_end": low + end}]
    return None


def _lines(
    text: str, span: dict[str, Any], first: str, last: str, part: tuple[int, int]
) -> list[dict[str, Any]] | None:
    """The lines of a part, if the text has as many lines as its span."""
    low, high = span.get(first), span.get(last)
    if low is None or high is None:
        return None
    whole = text.removesuffix("\n")
    if whole.count("\n") + 1 != high - low + 1:
        return None
    start, end = part
    # A selected line end does not make the selection reach into the next line.
    begin = low + text.count("\n", 0, start + len(text[start:end]) - len(text[start:end].lstrip("\n")))
    stop = low + text.count("\n", 0, max(start, start + len(text[start:end].rstrip("\n")) - 1))
    return [{**span, first: begin, last: max(begin, min(stop, high))}]


def proposed_snippet(passage: str, others: Iterable[str]) -> str:
    """The shortest run of words that no other text contains; if there is none, the longest line of the passage.

    Snippets are matched without regard to case, so case is ignored here, too.
    """
    elsewhere = [text.lower() for text in others]
    lines = [line.strip() for line in passage.split("\n") if line.strip()]
    best: tuple[int, int, int, int] | None = None
    found = ""
    for place, line in enumerate(lines):
        words = [match.span() for match in _WORD.finditer(line)]
        for first in range(len(words)):
            for last in range(first + _LEAST_WORDS - 1, len(words)):
                text = line[words[first][0] : words[last][1]]
                if best is not None and (last - first, len(text)) >= best[:2]:
                    break
                if len(text) < _LEAST_LETTERS or len(text) > _LONGEST_SNIPPET:
                    continue
                if not any(text.lower() in other for other in elsewhere):
                    best, found = (last - first, len(text), place, first), text
                    break
    if found:
        return found
    longest = max(lines, key=len, default=passage.strip())
    return longest[:_LONGEST_SNIPPET].strip()
