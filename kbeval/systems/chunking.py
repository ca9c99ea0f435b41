"""Cuts documents into chunks: by headings, or after a fixed number of lines. Positions are lines, counted from 1."""

from __future__ import annotations

import bisect
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

HEADINGS, LINES = CHUNKERS = ("headings", "lines")
DEFAULT_SIZES = {HEADINGS: 60, LINES: 20}
LARGEST_SIZE = 100_000
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Document:
    """A text file. Its id is its path in the folder, separated by /."""

    doc_id: str
    lines: tuple[str, ...]
    is_markdown: bool
    text_sha256: str

    @cached_property
    def headings(self) -> list[tuple[int, int, str]]:
        """The headings of a Markdown file: index of the line, level, text. Lines within fenced code have none."""
        found: list[tuple[int, int, str]] = []
        fence = ""
        for index, line in enumerate(self.lines if self.is_markdown else ()):
            if mark := _FENCE.match(line):
                if not fence:
                    fence = mark[1]
                elif mark[1].startswith(fence) and not line[mark.end() :].strip():
                    fence = ""
                continue
            if not fence and (match := _HEADING.fullmatch(line)):
                found.append((index, len(match[1]), (match[2] or "").strip()))
        return found

    @property
    def title(self) -> str:
        """The first heading of the highest level, or the name of the file."""
        named = [(level, text) for _, level, text in self.headings if text]
        best = min((level for level, _ in named), default=None)
        return next((text for level, text in named if level == best), self.doc_id.rpartition("/")[2])

    @cached_property
    def _paths(self) -> list[list[str]]:
        """For each heading, the headings that apply to a line below it."""
        found: list[list[str]] = []
        above: list[tuple[int, str]] = []
        for _, level, text in self.headings:
            above = [*(one for one in above if one[0] < level), (level, text)]
            found.append([name for _, name in above if name])
        return found

    def heading_path(self, index: int) -> list[str]:
        """The headings that apply to a line, from the highest level down."""
        place = bisect.bisect_right(self.headings, index, key=lambda heading: heading[0])
        return self._paths[place - 1] if place else []


@dataclass(frozen=True)
class Policy:
    """How to cut: the chunker, the maximum number of lines per chunk, and the lines shared with the previous chunk."""

    chunker: str
    size: int
    overlap: int = 0

    @property
    def version(self) -> str:
        """The value of `chunker_version`; other parameters give another name."""
        overlap = f"-{self.overlap}" if self.overlap else ""
        return f"{self.chunker}-{self.size}{overlap}@1"

    @property
    def json(self) -> str:
        """As it is stored."""
        return json.dumps({"chunker": self.chunker, "size": self.size, "overlap": self.overlap})

    @property
    def hash(self) -> str:
        """The value of `policy_hash`."""
        return "kbeval:" + hashlib.sha256(self.json.encode()).hexdigest()[:16]

    def chunks(self, document: Document) -> Iterator[tuple[Any, ...]]:
        """The chunks of a document as rows of the table, without the last column, the time."""
        end_before = 0
        for start, end in self._pieces(document):
            # Empty lines at both ends are not part of the chunk.
            filled = [at for at in range(start, end) if document.lines[at].strip()]
            if not filled or filled[-1] < end_before:
                # Only empty lines, or lines that the previous chunk has too.
                continue
            first, last = filled[0], filled[-1] + 1
            end_before = last
            text = "\n".join(document.lines[first:last])
            headings = document.heading_path(first)
            yield (
                f"{self.version}:{document.doc_id}:{first + 1}-{last}",
                document.doc_id,
                text,
                json.dumps(headings, ensure_ascii=False),
                headings[-1] if headings else None,
                json.dumps([{"kind": "line", "start": first + 1, "end": last}]),
                max(1, len(text) // _CHARACTERS_PER_TOKEN),
                self.version,
                self.hash,
                "[]",
            )

    def _pieces(self, document: Document) -> Iterator[tuple[int, int]]:
        sections: Sequence[tuple[int, int]] = [(0, len(document.lines))]
        if self.chunker == HEADINGS:
            starts = sorted({0, *(index for index, _, _ in document.headings)})
            sections = list(zip(starts, [*starts[1:], len(document.lines)], strict=True))
        for low, high in sections:
            for start in range(low, high, self.size - self.overlap):
                yield start, min(start + self.size, high)
                if start + self.size >= high:
                    break


def policy_of(text: str) -> Policy:
    """A stored policy."""
    found = json.loads(text)
    return Policy(str(found["chunker"]), int(found["size"]), int(found["overlap"]))
