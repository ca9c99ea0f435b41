"""What differs between two answers, word by word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

# The time for comparing grows with the square of the number of words; longer answers are shown without differences.
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
    codes = difflib.SequenceMatcher(None, words_a, words_b, autojunk=False).get_opcodes()
    for place, (tag, a_from, a_to, b_from, b_to) in enumerate(codes):
        # A space between two differing words is not counted as shared text.
        is_space = 0 < place < len(codes) - 1 and not "".join(words_a[a_from:a_to]).strip()
        kind = SAME if tag == "equal" and not is_space else ONLY_HERE
        _add(left, kind, words_a[a_from:a_to])
        _add(right, kind, words_b[b_from:b_to])
    return left, right


def _add(pieces: list[Piece], kind: int, words: Sequence[str]) -> None:
    text = "".join(words)
    if pieces and pieces[-1][0] == kind:
        pieces[-1] = (kind, pieces[-1][1] + text)
    elif text:
        pieces.append((kind, text))
