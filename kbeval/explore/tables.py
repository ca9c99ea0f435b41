"""The relations that can be queried: those of `sql/`, as described by the headers of their files."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from kbeval.engine.relations import relations, sql_folder
from kbeval.explore.views import ABOUT, SHOWN
from kbeval.metrics.catalogue import GRAINS
from kbeval.scoring.run_tables import MADE_FROM

# Former names can still be queried, but are not listed.
FORMER = "former"
# The order in which a new user wants to see them.
FOLDERS = ("views", "totals", "grains", "stored", "labels", "places", "matching", "systems", "compare", FORMER)
# Generated from the metrics, so they have no file of their own.
_SCORES = ("scores", "query_scores")
# Built for one pair of runs; `compare(a, b)` works for any pair.
_OF_A_PAIR = ("pairs", "moved_places", "compared", "tested_queries")
# They contain only rows just parsed from JSON; cached rows never pass through them.
_IN_PASSING = ("parsed", "parsed_hits", "stated_hits", "stated_spans")


@dataclass(frozen=True)
class Table:
    """A relation that can be queried, with the description from the header of its file."""

    name: str
    # The folder of its file in `sql/`.
    layer: str
    description: str
    notes: str
    examples: tuple[str, ...] = ()
    # Is it one of those that SHOW TABLES lists? Marked by `-- shown: yes` in its file.
    is_shown: bool = False


# A function, not a relation; listed so that users find it.
COMPARE = Table(
    "compare(a, b)",
    "views",
    "how each query changed between two runs, as reported by `kbeval compare`.",
    "",
    is_shown=True,
)


@functools.cache
def tables() -> dict[str, Table]:
    """All relations that can be queried, by name."""
    found = {}
    for layer in FOLDERS:
        for path in sorted((sql_folder() / layer).glob("*.sql")):
            if path.stem in (*_OF_A_PAIR, *_IN_PASSING):
                continue
            is_known = path.stem in relations() or (layer == "totals" and path.stem in _SCORES)
            if is_known and path.stem not in found:
                found[path.stem] = read_head(path.stem, layer, path.read_text(encoding="utf-8"))
        if layer == "views":
            found |= {
                name: Table(name, layer, about, columns, is_shown=name in SHOWN)
                for name, (about, columns) in ABOUT.items()
            }
    return found


def read_head(name: str, layer: str, text: str) -> Table:
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
        match = re.match(rf"({re.escape(name)}|columns|kind|shown|example):\s*(.*)", line)
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
    is_shown = fields.get("shown", [""])[0] == "yes"
    return Table(name, layer, description, notes, tuple(examples), is_shown)


@functools.cache
def read_by(name: str) -> frozenset[str]:
    """All relations that a relation depends on, directly or indirectly."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        reads = reads_of(waiting.pop())
        waiting.extend(reads - found)
        found |= reads
    return frozenset(found)


def reads_of(name: str) -> frozenset[str]:
    """The relations that a relation reads directly."""
    if name in _SCORES:
        return frozenset(GRAINS)
    if name in MADE_FROM:
        return frozenset(MADE_FROM[name])
    return relations()[name].reads if name in relations() else frozenset()
