"""The SQL that ships with kbeval: where it lies, and what a relation's file says about itself.

In a checkout `sql/` stands at the top of the repository; in an installed wheel it is the package
`kbeval.sql`. Both hold the same files.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# What numbers are made of, in order; and what is made beside them.
ROAD = ("facts", "matches", "grains")
ROOMS = (*ROAD, "compare", "archive", "checks", "views")
_REFERENCE = re.compile(r"\b(?:FROM|JOIN)\s+([a-z_]+)", re.IGNORECASE)


@functools.cache
def sql_folder() -> Path:
    """The folder of shipped SQL."""
    here = Path(__file__).resolve().parent
    installed = here / "sql"
    return installed if installed.is_dir() else here.parent / "sql"


def read_sql(name: str) -> str:
    """The text of one shipped file, for example `schema.sql`."""
    return (sql_folder() / name).read_text(encoding="utf-8")


def compose(name: str, **parts: str) -> str:
    """A file of `sql/scores/` with its {parts} filled in."""
    text = without_comments(read_sql(f"scores/{name}.sql")).strip()
    for part, sql in parts.items():
        text = text.replace("{" + part + "}", sql)
    return text


def without_comments(sql: str) -> str:
    """The statement alone; enough for our own files, which have no `--` inside strings."""
    return re.sub(r"--[^\n]*", "", sql)


@dataclass(frozen=True)
class Relation:
    """A named step of the road: one file, one SELECT."""

    name: str
    sql: str
    kind: str
    reads: frozenset[str]


def parse_relation(name: str, text: str) -> Relation:
    """Read a relation's header and find what it reads from."""
    kind = re.search(r"^-- kind: (table|view)$", text, re.MULTILINE)
    if kind is None:
        msg = f"{name}.sql has no '-- kind: table' or '-- kind: view'"
        raise ValueError(msg)
    reads = frozenset(_REFERENCE.findall(without_comments(text)))
    return Relation(name, text, kind.group(1), reads)


class _Relations(Mapping[str, Relation]):
    """Every relation by name. A file is opened when its relation is asked for.

    A relation may have variants, `hit_places@ids.sql` next to `hit_places.sql`: the same columns, made with less work
    where that will do. They are reached as `relations()["hit_places@ids"]`, and are not listed.
    """

    def __init__(self) -> None:
        found = {path.stem: path for room in ROOMS for path in sorted((sql_folder() / room).glob("*.sql"))}
        self._paths = {name: path for name, path in found.items() if "@" not in name}
        self._variants = {name: path for name, path in found.items() if "@" in name}
        self._read: dict[str, Relation] = {}

    def __getitem__(self, name: str) -> Relation:
        if name not in self._read:
            path = self._variants[name] if "@" in name else self._paths[name]
            self._read[name] = parse_relation(name.partition("@")[0], path.read_text(encoding="utf-8"))
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, name: object) -> bool:
        return name in self._paths


@functools.cache
def relations() -> Mapping[str, Relation]:
    """Every relation of the road, by name."""
    return _Relations()


@functools.cache
def macros() -> dict[str, str]:
    """The statements that make the helpers of `macros.sql`, by the name of each."""
    statements = re.split(r"^(?=CREATE MACRO )", without_comments(read_sql("macros.sql")), flags=re.MULTILINE)
    return {statement.split("(")[0].split()[-1]: statement for statement in statements[1:]}


@functools.cache
def _macro_calls() -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(macros())})\"?\s*\(", re.IGNORECASE)


def called_macros(sql: str) -> Iterator[str]:
    """The helpers that a statement needs, each after those that it needs itself."""
    for name in dict.fromkeys(map(str.lower, _macro_calls().findall(sql))):
        body = macros()[name].partition(" AS")[2]
        yield from called_macros(body)
        yield name


def road() -> dict[str, str]:
    """Everything between the stored rows and the numbers, by file: what a number's meaning depends on."""
    paths = [sql_folder() / "macros.sql"]
    paths += [path for room in (*ROAD, "scores") for path in sorted((sql_folder() / room).glob("*.sql"))]
    return {path.stem: path.read_text(encoding="utf-8") for path in paths}
