"""Files of JSON lines, opened by the engine: many times faster than Python, and less exact.

Where a line holds something else than it should, the engine makes text of a number, or gives nothing. Whoever reads a
file this way looks at what came out, and where anything is odd has the file read line by line instead, by what
can name the line and what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from kbeval.columnar.parts import literal
from kbeval.engine import Session, verbatim
from kbeval.sqlfiles import parse_relation, read_sql

# The engine reads a file in pieces of this size, several at a time. Lines beyond half of it are too long.
_PIECE_BYTES = 4_000_000
_LOOK_BYTES = 256_000
# A character that no JSON may hold as it stands.
_SEPARATOR = 1
# A file with more shapes of lines than this is odd.
_MOST_SHAPES = 1000
# Text that may have been something else in a file: what it is not less than, what it is less than, and what holds then.
_WORDS = "lower({}) IN ('nan', 'inf', 'infinity')"  # the engine takes these for JSON, whatever their case
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
    """Can the engine open it, and again? Not a pipe, nor a name that it would take for something else."""
    try:
        str(path).encode()
        return path.is_file() and "\\" not in str(path.absolute())
    except (OSError, ValueError):
        return False  # whoever reads it exactly will say what is wrong


def file_size(path: Path) -> int:
    """How large it is; nothing where it has gone, as whoever opens it will find out."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def show_lines(session: Session, path: Path, name: str) -> bool:
    """Make a view of a file's lines; False where that cannot be done."""
    if not is_openable(path) or _holds(path, _SEPARATOR):
        return False
    # A character that is not in the file separates columns, so that each line is one.
    file = literal(verbatim(path.absolute()))
    return _succeeds(
        session,
        f"CREATE VIEW {name} AS SELECT line FROM read_csv({file}, columns = {{'line': 'VARCHAR'}},"
        f" auto_detect = false, header = false, delim = chr({_SEPARATOR}), quote = '', escape = '',"
        f" compression = 'none', buffer_size = {_PIECE_BYTES}, max_line_size = {_PIECE_BYTES // 2}) WHERE line <> ''",
    )


def _holds(path: Path, character: int) -> bool:
    """Is it in the file? Read piece by piece: a file that shrinks while it is mapped kills the process."""
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
        return True  # whoever reads it exactly will say what is wrong
    return is_empty


def build(session: Session, name: str) -> None:
    """Make a relation as its file in sql/traces/ says."""
    session.execute(_statement(session, name))


def opens(session: Session, name: str, file: str | None = None) -> bool:
    """Make the relation that opens the lines of a file, as its own file in sql/traces/ says or another there.

    False where the lines cannot be opened so.
    """
    return _succeeds(session, _statement(session, name, file))


def _statement(session: Session, name: str, file: str | None = None) -> str:
    relation = parse_relation(name, read_sql(f"traces/{file or name}.sql"))
    return f"CREATE {session.kind_of(name, relation.kind)} {name} AS {relation.sql}"


def _succeeds(session: Session, sql: str) -> bool:
    """Run a statement; False where the file is not as it must be for it, or has gone."""
    try:
        session.execute(sql)
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        return False
    return True


def has_any(session: Session, relation: str, condition: str) -> bool:
    """Is there a row for which this holds?"""
    return bool(session.rows(f"SELECT 1 FROM {relation} WHERE {condition} LIMIT 1"))


def says_twice(names: Sequence[str]) -> bool:
    """Is a field written more than once? Then it is not clear which counts."""
    return len(set(names)) < len(names)


def maybe_no_text(column: str) -> str:
    """A condition: this text may have been a number, a truth value, a list or an object in the file."""
    return " OR ".join(
        f"({column} >= '{first}' AND {column} < '{after}' AND {test.format(column)})" for first, after, test in _ODD
    )


def look_into(session: Session, relation: str, lists: str) -> tuple[bool, bool]:
    """Of the texts in a column of lists: is one empty, and may one have been no text in the file?"""
    texts = f"(SELECT UNNEST({lists}) AS t FROM {relation})"
    ((least, greatest, n_nothing),) = session.rows(f"SELECT MIN(t), MAX(t), COUNT(*) - COUNT(t) FROM {texts}")
    if least is None:
        return n_nothing > 0, False
    # The least and the greatest text mostly tell that none can be odd. Looking at each takes three times as long.
    can_be = any(least < after and greatest >= first for first, after, _ in _ODD)
    return n_nothing > 0 or least == "", can_be and has_any(session, texts, maybe_no_text("t"))


def all_are(session: Session, lines: str, is_right: Callable[[dict[str, Any]], bool]) -> bool:
    """Do all lines have the right structure? To be asked where values look odd: it takes as long as all the rest."""
    try:
        found = session.rows(f"SELECT DISTINCT json_structure(line) FROM {lines} LIMIT {_MOST_SHAPES}")
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        return False
    return len(found) < _MOST_SHAPES and all(is_right(json.loads(structure)) for (structure,) in found)


def is_list_of_text(structure: Any) -> bool:  # noqa: ANN401  (a piece of json_structure's answer)
    """Nothing, an empty list, or a list of text?"""
    return structure in (None, ["NULL"], ["VARCHAR"])
