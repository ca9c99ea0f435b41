"""Files of JSON lines, parsed by the engine: many times faster than Python, and less strict.

If a line does not have the expected types, the engine turns numbers into text or returns null. Callers therefore check
the result, and if anything is irregular, the file is read line by line instead, which can report the line and the
error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from kbeval.engine.quoting import literal, verbatim
from kbeval.engine.relations import parse_relation, read_sql
from kbeval.engine.session import Session

# The engine reads a file in pieces of this size, several at a time. Lines beyond half of it are too long.
_PIECE_BYTES = 4_000_000
_LOOK_BYTES = 256_000
# A character that must not appear unescaped in JSON.
_SEPARATOR = 1
# A file with more shapes of lines than this is irregular.
_MOST_SHAPES = 1000
# Text that may not have been text in the file: lower bound, upper bound (exclusive), and a further condition.
_WORDS = "lower({}) IN ('nan', 'inf', 'infinity')"  # the engine accepts these as JSON, in any case
_ODD = (
    ("", ":", "TRY_CAST({} AS DOUBLE) IS NOT NULL"),
    ("I", "J", _WORDS),
    ("N", "O", _WORDS),
    ("[", "\\", "true"),
    ("f", "g", "{} = 'false'"),
    ("i", "j", _WORDS),
    ("n", "o", _WORDS),
    ("t", "u", "{} = 'true'"),
    ("{", "|", "true"),
)


def is_openable(path: Path) -> bool:
    """Can the engine open it repeatedly? Not a pipe, and not a name that the engine would interpret."""
    try:
        str(path).encode()
        return path.is_file() and "\\" not in str(path.absolute())
    except (OSError, ValueError):
        return False  # the strict reader will report the error


def file_size(path: Path) -> int:
    """Its size; 0 if it no longer exists, which is reported when it is opened."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def show_lines(session: Session, path: Path, name: str) -> bool:
    """Create a view of a file's lines; False if that is impossible."""
    if not is_openable(path) or _holds(path, _SEPARATOR):
        return False
    # The column separator is a character that is not in the file, so that each line is one column.
    file = literal(verbatim(path.absolute()))
    return _succeeds(
        session,
        f"CREATE VIEW {name} AS SELECT line FROM read_csv({file}, columns = {{'line': 'VARCHAR'}},"
        f" auto_detect = false, header = false, delim = chr({_SEPARATOR}), quote = '', escape = '',"
        f" compression = 'none', buffer_size = {_PIECE_BYTES}, max_line_size = {_PIECE_BYTES // 2}) WHERE line <> ''",
    )


def _holds(path: Path, character: int) -> bool:
    """Is it in the file? Read in pieces: if a memory-mapped file shrinks, the process is killed."""
    piece = bytearray(_LOOK_BYTES)
    try:
        with path.open("rb", buffering=0) as file:
            read = file.readinto(piece)
            is_empty = not read
            while read:
                if piece.find(character, 0, read) >= 0:
                    return True
                read = file.readinto(piece)
    except OSError:
        return True  # the strict reader will report the error
    return is_empty


def build(session: Session, name: str, kind: str | None = None) -> None:
    """Create a relation from its file in sql/traces/. `kind`: table or view, if not as in the file."""
    session.execute(_statement(name, kind=kind))


def try_create(session: Session, name: str, file: str | None = None) -> bool:
    """Create the relation that parses the lines of a file, from its own file in sql/traces/ or another one there.

    False if the lines cannot be parsed this way.
    """
    return _succeeds(session, _statement(name, file))


def _statement(name: str, file: str | None = None, kind: str | None = None) -> str:
    relation = parse_relation(name, read_sql(f"traces/{file or name}.sql"))
    return f"CREATE {kind or relation.kind} {name} AS {relation.select}"


def _succeeds(session: Session, sql: str) -> bool:
    """Run a statement; False if the file does not have the expected form or no longer exists."""
    try:
        session.execute(sql)
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        return False
    return True


def has_any(session: Session, relation: str, condition: str) -> bool:
    """Does any row satisfy the condition?"""
    return bool(session.rows(f"SELECT 1 FROM {relation} WHERE {condition} LIMIT 1"))


def has_duplicates(names: Sequence[str]) -> bool:
    """Does a field appear more than once? Then it is ambiguous."""
    return len(set(names)) < len(names)


def may_be_non_text(column: str) -> str:
    """A condition: this text may have been a number, a boolean, a list or an object in the file."""
    return " OR ".join(
        f"({column} >= '{first}' AND {column} < '{after}' AND {test.format(column)})" for first, after, test in _ODD
    )


def scan_values(session: Session, relation: str, lists: str) -> tuple[bool, bool]:
    """For a column of lists of texts: is any text empty, and may any not have been text in the file?"""
    texts = f"(SELECT UNNEST({lists}) AS t FROM {relation})"
    ((least, greatest, n_nothing),) = session.rows(f"SELECT MIN(t), MAX(t), COUNT(*) - COUNT(t) FROM {texts}")
    if least is None:
        return n_nothing > 0, False
    # Minimum and maximum mostly suffice to rule that out. Checking every text takes three times as long.
    can_be = any(least < after and greatest >= first for first, after, _ in _ODD)
    return n_nothing > 0 or least == "", can_be and has_any(session, texts, may_be_non_text("t"))


def all_lines_match(session: Session, lines: str, is_right: Callable[[dict[str, Any]], bool]) -> bool:
    """Do all lines have the right structure? Only for doubtful values: it takes as long as everything else."""
    try:
        found = session.rows(f"SELECT DISTINCT json_structure(line) FROM {lines} LIMIT {_MOST_SHAPES}")
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        return False
    return len(found) < _MOST_SHAPES and all(is_right(json.loads(structure)) for (structure,) in found)


def is_list_of_text(structure: Any) -> bool:  # noqa: ANN401  (a part of json_structure's result)
    """Is it absent, an empty list, or a list of texts?"""
    return structure in (None, ["NULL"], ["VARCHAR"])
