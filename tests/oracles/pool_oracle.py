"""The pool of `kbeval label` in slow plain Python: what runs returned for each query, each text once, by value.

Written from the description in docs/labelling.md, with a set of lines for each place and no SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Lines = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Text:
    """A chunk, or a hit without a chunk id: where it is, as the lines of a document."""

    chunk_id: str | None
    version: str | None
    doc_id: str | None
    spans: tuple[tuple[int, int], ...]

    @property
    def lines(self) -> Lines:
        if self.doc_id is None:
            return frozenset()
        return frozenset((self.doc_id, line) for low, high in self.spans for line in range(low, high + 1))

    @property
    def place_text(self) -> str:
        """As it is stored, for the order of ties."""
        return spans_json(self.spans)


def spans_json(spans: Sequence[tuple[int, int]]) -> str:
    return "[" + ", ".join(f'{{"kind": "line", "start": {low}, "end": {high}}}' for low, high in spans) + "]"


@dataclass
class Found:
    """A candidate."""

    texts: set[Text]
    runs: set[str]
    best_rank: int | None
    is_labelled: bool = False
    is_decided: bool = False


@dataclass
class QueryFound:
    """The candidates of a query, and what its value is decided by."""

    candidates: list[Found] = field(default_factory=list)
    most_runs: int = 0
    open: int = 0
    disagreement: Fraction = Fraction(0)


def pool(
    rankings: Mapping[str, Mapping[str, Sequence[Text]]],
    entries: Sequence[Mapping[str, Any]],
    chunks: Mapping[str, Text],
    decided: Mapping[str, Sequence[Text]],
    depth: int,
) -> dict[str, QueryFound]:
    """`rankings`: for each run, in order of time, the hits of each query. `chunks`: what the labels by id mean."""
    found = {}
    for entry in entries:
        query_id = entry["id"]
        returned: dict[Text, tuple[set[str], int]] = {}
        for run_id, ranking in rankings.items():
            for rank, text in enumerate(ranking.get(query_id, ())[:depth], start=1):
                runs, best = returned.get(text, (set(), rank))
                returned[text] = runs | {run_id}, min(best, rank)
        if returned:
            found[query_id] = _query(entry, returned, chunks, decided.get(query_id, ()))
    return found


def _query(
    entry: Mapping[str, Any],
    returned: Mapping[Text, tuple[set[str], int]],
    chunks: Mapping[str, Text],
    decided: Sequence[Text],
) -> QueryFound:
    def place(text: Text) -> tuple[Any, ...]:
        runs, best = returned[text]
        names = ((name is None, name or "") for name in (text.chunk_id, text.version, text.doc_id, text.place_text))
        return -len(runs), best, *names

    candidates: list[tuple[Text, Found]] = []
    for text in sorted(returned, key=place):
        runs, best = returned[text]
        own = next((one for leader, one in candidates if is_same(leader, text)), None)
        if own is None:
            own = Found(set(), set(), None)
            candidates.append((text, own))
        own.texts.add(text)
        own.runs |= runs
        own.best_rank = best if own.best_rank is None else min(own.best_rank, best)
        own.is_labelled |= is_named(text, entry, chunks)
    # What was decided on is found again, and nothing new is added for it: a text of its own is not a hit of a run.
    for text in decided:
        for leader, one in candidates:
            if is_same(leader, text):
                one.is_decided = True
                break
    all_found = [one for _, one in candidates]
    unread = [one for one in all_found if not one.is_labelled and not one.is_decided]
    answering = len(set().union(*(one.runs for one in all_found)))
    agreeing = Fraction(sum(len(one.runs) - 1 for one in all_found), len(all_found) * max(1, answering - 1))
    return QueryFound(
        all_found,
        max((len(one.runs) for one in unread), default=0),
        len(unread),
        1 - agreeing if answering > 1 else Fraction(0),
    )


def is_same(a: Text, b: Text) -> bool:
    """The same chunk, or more than half of both in common."""
    if a.chunk_id is not None and (a.chunk_id, a.version) == (b.chunk_id, b.version):
        return True
    shared = len(a.lines & b.lines)
    return 2 * shared > len(a.lines) and 2 * shared > len(b.lines)


def is_named(text: Text, entry: Mapping[str, Any], chunks: Mapping[str, Text]) -> bool:
    """Does a label name it: by its id, or by a place that it holds at least half of?"""
    for chunk in entry.get("expected_chunk_ids", ()):
        if text.chunk_id == chunk:
            return True
        label = chunks[chunk].lines if chunk in chunks else frozenset()
        if label and text.lines and 2 * len(text.lines & label) >= min(len(label), len(text.lines)):
            return True
    for span in entry.get("expected_spans", ()):
        label = frozenset((span["doc_id"], line) for line in range(span["start"], span["end"] + 1))
        if 2 * len(text.lines & label) >= len(label):
            return True
    return False


def order(entries: Sequence[Mapping[str, Any]], found: Mapping[str, QueryFound]) -> list[str]:
    """The queries by value: first unread texts that most runs returned, then disagreement of runs, then file order."""
    nothing = QueryFound()

    def value(query_id: str) -> tuple[int, Fraction]:
        own = found.get(query_id, nothing)
        return -own.most_runs, -own.disagreement

    return sorted((entry["id"] for entry in entries), key=value)
