"""Tab completion at the prompt: dot commands, tables, their columns and SQL keywords. No data is read for it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from kbeval.render.rows import ROW_FORMATS

if TYPE_CHECKING:
    from kbeval.explore.explorer import Explorer

_WORDS = (
    "ALL AND AS ASC AVG BETWEEN BY CASE CAST COALESCE COUNT CROSS DESC DESCRIBE DISTINCT ELSE END EXCEPT EXCLUDE EXISTS"
    " EXPLAIN FILTER FROM FULL GROUP HAVING ILIKE IN INNER INTERSECT IS JOIN LEFT LIKE LIMIT MAX MEDIAN MIN NOT NULL"
    " OFFSET ON OR ORDER OVER PARTITION PIVOT QUALIFY RECURSIVE RIGHT SELECT SHOW SUM SUMMARIZE TABLES THEN UNION"
    " UNPIVOT USING VALUES WHEN WHERE WINDOW WITH"
)
KEYWORDS = tuple(_WORDS.split())
# Their columns are offered before the query has named a table.
_USUAL = ("runs", "results", "hits", "per_query")
_DELIMITERS = " \t\n,()=<>;'\"+-*/|[]{}!"


class Completer:
    """Completes the word at the cursor."""

    def __init__(self, explorer: Explorer, lines: Callable[[], list[str]], commands: Collection[str]) -> None:
        """`lines`: the lines of the query that are already typed."""
        self._explorer = explorer
        self._lines = lines
        self._commands = commands
        self._found: list[str] = []

    def install(self, readline: Any) -> None:  # noqa: ANN401  (the module, if there is one)
        """Register this completer for the Tab key."""
        readline.set_completer_delims(_DELIMITERS)
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

        def complete(word: str, state: int) -> str | None:
            if state == 0:
                self._found = self.options(word, readline.get_line_buffer())
            return self._found[state] if state < len(self._found) else None

        readline.set_completer(complete)

    def options(self, word: str, line: str) -> list[str]:
        """The possible completions of the word."""
        start = line.lstrip()
        if not self._lines() and start.startswith("."):
            return self._after_dot(word, start)
        asked = "\n".join([*self._lines(), line])
        if re.search(r"\b(?:from|join)\s+\S*$", line, re.IGNORECASE):
            # Without a prefix, the tables that are queried most; with one, every table that matches.
            return _matching(word, self._names() if word else self._usual_names())
        table, dot, part = word.rpartition(".")
        if dot:
            return [f"{table}.{column}" for column in _matching(part, self._columns(asked))]
        found = _matching(word, {*self._columns(asked), *self._names()})
        keywords = _matching(word.upper(), KEYWORDS)
        return found + [key.lower() if word.islower() else key for key in keywords if key.lower() not in found]

    def _after_dot(self, word: str, line: str) -> list[str]:
        name, space, _ = line.partition(" ")
        if not space:
            return _matching(word, self._commands)
        if name == ".schema":
            return _matching(word, self._names())
        return _matching(word, [form for form in ROW_FORMATS if form != "parquet"]) if name == ".format" else []

    def _names(self) -> list[str]:
        return [table.name for table in self._explorer.tables()]

    def _usual_names(self) -> list[str]:
        return [table.name for table in self._explorer.tables() if table.is_shown]

    def _columns(self, asked: str) -> set[str]:
        """The columns of the tables that the query names."""
        names = set(self._names())
        named = [word for word in re.findall(r"\w+", asked.lower()) if word in names]
        found: set[str] = set()
        for name in named or _USUAL:
            # A failed completion must not end the session.
            with contextlib.suppress(Exception):
                found.update(column for column, _ in self._explorer.schema(name).columns)
        return found


def _matching(word: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.lower().startswith(word.lower()))
