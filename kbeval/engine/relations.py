"""The SQL that ships with kbeval: where it is located, and how a relation's file is read.

In a checkout `sql/` is at the top of the repository; in an installed wheel it is the package `kbeval.sql`. Both contain
the same files.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# The layers of relations that numbers are computed from, in order; FOLDERS adds those that build on them.
LAYERS = ("stored", "labels", "places", "matching", "systems", "grains", "totals")
FOLDERS = (*LAYERS, "compare", "kept", "pool", "checks", "views", "former")
# Templates that are filled in from the existing metrics, so they are not relations themselves.
COMPOSED = (
    *("query_scores", "scores", "summable_scores", "sliced_scores", "run_totals", "percentiles", "applicable"),
    *("asked_slices", "rubric_score", "row_score", "compare_macro"),
    # Read by an engine elsewhere, from all runs of an archive.
    "archived_hits",
)
# Our own files have keywords in capitals and names in small letters.
_REFERENCE = re.compile(r"(?:FROM|JOIN)\s+([a-z_]+)")


@functools.cache
def sql_folder() -> Path:
    """The folder of shipped SQL."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "sql"
    return installed if installed.is_dir() else package.parent / "sql"


def read_sql(name: str) -> str:
    """The text of one shipped file, for example `macros.sql`."""
    return (sql_folder() / name).read_text(encoding="utf-8")


def compose(name: str, **parts: str) -> str:
    """A file of `sql/totals/` with its {parts} filled in."""
    text = without_comments(read_sql(f"totals/{name}.sql")).strip()
    for part, sql in parts.items():
        text = text.replace("{" + part + "}", sql)
    return text


def without_comments(sql: str) -> str:
    """The statement without comments; sufficient for our own files, which have no `--` inside strings."""
    return re.sub(r"--[^\n]*", "", sql)


@dataclass(frozen=True)
class Relation:
    """A named step of the pipeline: one file, one SELECT."""

    name: str
    # The file, and its SELECT alone: the engine would read comments again with each statement.
    sql: str
    select: str
    kind: str
    reads: frozenset[str]


def parse_relation(name: str, text: str) -> Relation:
    """Read a relation's header and find what it reads from."""
    kind = re.search(r"^-- kind: (table|view)$", text, re.MULTILINE)
    if kind is None:
        msg = f"{name}.sql has no '-- kind: table' or '-- kind: view'"
        raise ValueError(msg)
    select = without_comments(text).strip()
    return Relation(name, text, select, kind.group(1), frozenset(_REFERENCE.findall(select)))


class _Relations(Mapping[str, Relation]):
    """Every relation by name. A file is opened when its relation is requested.

    A relation may have variants, `hit_places@ids.sql` next to `hit_places.sql`: the same columns, computed with less
    work where that is sufficient. They are available as `relations()["hit_places@ids"]`, and are not listed.
    """

    def __init__(self) -> None:
        found = {path.stem: path for path in _files(FOLDERS, sql_folder()) if path.stem not in COMPOSED}
        self._paths = {name: path for name, path in found.items() if "@" not in name}
        self._variants = {name: path for name, path in found.items() if "@" in name}
        self._read: dict[str, Relation] = {}

    def __getitem__(self, name: str) -> Relation:
        if name not in self._read:
            path = self._variants[name] if "@" in name else self._paths[name]
            self._read[name] = parse_relation(name.partition("@")[0], path.read_text(encoding="utf-8"))
        return self._read[name]

    def folder(self, name: str) -> str:
        """The folder of a relation's file."""
        return self._paths[name].parent.name

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, name: object) -> bool:
        return name in self._paths


@functools.cache
def _all_relations() -> _Relations:
    return _Relations()


def relations() -> Mapping[str, Relation]:
    """Every relation, by name."""
    return _all_relations()


def layer_of(name: str) -> str:
    """The folder of `sql/` that contains a relation's file."""
    return _all_relations().folder(name)


@functools.cache
def macros() -> dict[str, str]:
    """The statements that create the macros of `macros.sql`, by name."""
    statements = re.split(r"^(?=CREATE MACRO )", without_comments(read_sql("macros.sql")), flags=re.MULTILINE)
    return {statement.split("(")[0].split()[-1]: statement for statement in statements[1:]}


def _names_before_brackets(sql: str) -> Iterator[str]:
    """The names before opening brackets, in small letters. A pattern of all macros takes twenty times as long."""
    for text in sql.split("(")[:-1]:
        before = text.rstrip(' \t\r\n"')
        start = len(before)
        while start and (before[start - 1].isalnum() or before[start - 1] == "_"):
            start -= 1
        yield before[start:].lower()


@functools.lru_cache(maxsize=1024)
def called_macros(sql: str) -> tuple[str, ...]:
    """The macros that a statement calls, each after those that it depends on."""
    names = dict.fromkeys(name for name in _names_before_brackets(sql) if name in macros())
    bodies = {name: macros()[name].partition(" AS")[2] for name in names}
    return tuple(called for name in names for called in (*called_macros(bodies[name]), name))


def definitions(folder: Path) -> dict[str, str]:
    """All SQL between the stored rows and the numbers, by file: the meaning of a number depends on it.

    `folder`: that of shipped SQL.
    """
    paths = [folder / "macros.sql", *_files((*LAYERS, "former", "traces"), folder)]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _files(layers: Iterable[str], folder: Path) -> Iterator[Path]:
    for layer in layers:
        yield from sorted((folder / layer).glob("*.sql"))
