"""What differs between two answers, word by word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

# Comparing words takes time with the square of their number; longer answers are shown without the differences.
MOST_WORDS = 1_500
SAME, ONLY_HERE = 0, 1

_PIECES = re.compile(r"\s+|\w+|[^\w\s]")

Piece = tuple[int, str]


def word_differences(a: str, b: str) -> tuple[list[Piece], list[Piece]] | None:
    """Both texts in pieces: what they share, and what only one of them has. None: they are too long to compare."""
    words_a, words_b = _PIECES.findall(a), _PIECES.findall(b)
    if max(len(words_a), len(words_b)) > MOST_WORDS:
        return None
    left: list[Piece] = []
    right: list[Piece] = []
    matcher = difflib.SequenceMatcher(None, words_a, words_b, autojunk=False)
    for tag, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        kind = SAME if tag == "equal" else ONLY_HERE
        _add(left, kind, words_a[a_from:a_to])
        _add(right, kind, words_b[b_from:b_to])
    return left, right


def _add(pieces: list[Piece], kind: int, words: Sequence[str]) -> None:
    if words:
        pieces.append((kind, "".join(words)))
