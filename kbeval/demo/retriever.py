"""A small but real search engine for the demo: two chunkers, two rankings, extractive answers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_WORD = re.compile(r"[a-z0-9]+")
_STOP_WORDS = """
    a an and are at be can do does for from has have how i in is it my of on or the to
    what when where which with you
"""
_COMMON = frozenset(_WORD.findall(_STOP_WORDS))


@dataclass(frozen=True)
class Chunk:
    """Some lines of a document."""

    chunk_id: str
    doc_id: str
    path: str
    headings: tuple[str, ...]
    start: int
    end: int
    text: str
    version: str

    @property
    def span(self) -> dict[str, Any]:
        return {"kind": "line", "start": self.start, "end": self.end}

    @property
    def citation(self) -> dict[str, Any]:
        section = self.headings[-1] if self.headings else None
        return {"kind": "line", "path": self.path, "start": self.start, "end": self.end, "section": section}


@dataclass(frozen=True)
class Document:
    """A page of the knowledge base."""

    doc_id: str
    path: str
    text: str


def chunk_by_lines(document: Document, size: int = 4) -> list[Chunk]:
    """Split every `size` lines, regardless of the content."""
    count = len(document.text.splitlines())
    return _chunks(document, [(at, min(at + size, count)) for at in range(0, count, size)], "lines@1", "l1")


def chunk_by_heading(document: Document) -> list[Chunk]:
    """Split before every heading."""
    lines = document.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("#")]
    return _chunks(document, list(zip(starts, [*starts[1:], len(lines)], strict=True)), "headings@2", "h2")


def _chunks(document: Document, pieces: Sequence[tuple[int, int]], version: str, prefix: str) -> list[Chunk]:
    lines = document.text.splitlines()
    found = []
    for number, (start, end) in enumerate(pieces, start=1):
        text = "\n".join(lines[start:end]).strip()
        if not text:
            continue
        above = [line.lstrip("# ") for line in lines[: start + 1] if line.startswith("#")]
        found.append(
            Chunk(
                chunk_id=f"{prefix}-{document.doc_id}-{number:02d}",
                doc_id=document.doc_id,
                path=document.path,
                headings=tuple(dict.fromkeys(above[:1] + above[-1:])),
                start=start + 1,
                end=end,
                text=text,
                version=version,
            )
        )
    return found


def words(text: str) -> list[str]:
    """The words that carry meaning, without their plural s."""
    return [word.removesuffix("s") for word in _WORD.findall(text.lower()) if word not in _COMMON]


Ranking = Callable[[str], list[tuple[Chunk, float]]]


def by_shared_words(chunks: Sequence[Chunk]) -> Ranking:
    """Rank by the number of words that the question and the chunk share: deliberately crude, as a first version."""
    bags = {chunk.chunk_id: set(words(chunk.text)) for chunk in chunks}

    def rank(question: str) -> list[tuple[Chunk, float]]:
        asked = set(words(question))
        return _sorted({chunk: float(len(asked & bags[chunk.chunk_id])) for chunk in chunks})

    return rank


def by_bm25(chunks: Sequence[Chunk], k1: float = 1.2, b: float = 0.75) -> Ranking:
    """BM25 over the chunks."""
    counts = {chunk.chunk_id: Counter(words(chunk.text)) for chunk in chunks}
    lengths = {name: sum(bag.values()) for name, bag in counts.items()}
    average = sum(lengths.values()) / len(lengths)
    frequency = Counter(word for bag in counts.values() for word in bag)
    rarity = {w: math.log(1 + (len(chunks) - n + 0.5) / (n + 0.5)) for w, n in frequency.items()}

    def rank(question: str) -> list[tuple[Chunk, float]]:
        scores = {}
        for chunk in chunks:
            bag, length = counts[chunk.chunk_id], lengths[chunk.chunk_id]
            scores[chunk] = sum(
                rarity[word] * bag[word] * (k1 + 1) / (bag[word] + k1 * (1 - b + b * length / average))
                for word in words(question)
                if word in bag
            )
        return _sorted(scores)

    return rank


def _sorted(scores: Mapping[Chunk, float]) -> list[tuple[Chunk, float]]:
    found = [(chunk, round(score, 4)) for chunk, score in scores.items() if score > 0]
    return sorted(found, key=lambda pair: (-pair[1], pair[0].chunk_id))


def best_line(chunk: Chunk, question: str) -> str:
    """The line of a chunk that shares the most words with the question."""
    lines = [line for line in chunk.text.splitlines() if line and not line.startswith("#")] or [chunk.text]
    asked = set(words(question))
    return max(lines, key=lambda line: (len(asked & set(words(line))), -lines.index(line)))
