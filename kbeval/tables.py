"""What can be asked about: the relations of `sql/`, as the heads of their files describe them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from kbeval.sqlfiles import relations, sql_folder
from kbeval.views import ABOUT, MADE_FROM

# In the order in which someone who looks around wants to see them.
ROOMS = ("views", "scores", "grains", "facts", "matches", "compare")
# Composed from the metrics, so they are no relations like the others.
_SCORES = ("scores", "query_scores")
# Made for one pair of runs; `compare(a, b)` is there for any.
_OF_A_PAIR = ("pairs", "moved_places", "compared")
# They hold only rows that are read from JSON just now; those of which a columnar copy is there never pass through them.
_IN_PASSING = ("parsed", "parsed_hits")


@dataclass(frozen=True)
class Table:
    """What can be asked about: a relation, and what the head of its file says."""

    name: str
    room: str
    description: str
    notes: str
    examples: tuple[str, ...] = ()


# No relation but a function; whoever looks around should see it beside them.
COMPARE = Table(
    "compare(a, b)", "views", "what became of each query between two runs, as `kbeval compare` tells it.", ""
)


@functools.cache
def tables() -> dict[str, Table]:
    """Everything that can be asked about, by name."""
    found = {}
    for room in ROOMS:
        for path in sorted((sql_folder() / room).glob("*.sql")):
            if path.stem in (*_OF_A_PAIR, *_IN_PASSING):
                continue
            is_known = path.stem in relations() or (room == "scores" and path.stem in _SCORES)
            if is_known and path.stem not in found:
                found[path.stem] = _read_head(path.stem, room, path.read_text(encoding="utf-8"))
        if room == "views":
            found |= {name: Table(name, room, about, columns) for name, (about, columns) in ABOUT.items()}
    return found


def _read_head(name: str, room: str, text: str) -> Table:
    """The comment at the top of a file: what it is, its columns, examples."""
    head = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        head.append(line[2:].removeprefix(" "))
    fields: dict[str, list[str]] = {}
    examples: list[str] = []
    current: list[str] = []
    for line in head:
        match = re.match(rf"({re.escape(name)}|columns|kind|example):\s*(.*)", line)
        if match and match[1] == "example":
            current = []
            examples.append(match[2])
        elif match:
            current = fields.setdefault(match[1], [])
            current.append(match[2])
        else:
            current.append(line.strip())
    description = " ".join(" ".join(fields.get(name, ())).split())
    notes = "\n".join(line for line in fields.get("columns", ()) if line)
    return Table(name, room, description, notes, tuple(examples))


@functools.cache
def read_by(name: str) -> frozenset[str]:
    """Everything that a relation is made from, however many steps away."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        reads = reads_of(waiting.pop())
        waiting.extend(reads - found)
        found |= reads
    return frozenset(found)


def reads_of(name: str) -> frozenset[str]:
    """What a relation is made from."""
    if name in _SCORES:
        return frozenset(("answered", "ranked", "matched"))
    if name in MADE_FROM:
        return frozenset(MADE_FROM[name])
    return relations()[name].reads if name in relations() else frozenset()
