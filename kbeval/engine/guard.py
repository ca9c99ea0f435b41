"""Checks what an SQL query reads, with DuckDB's own parser, before anything runs.

Only read-only queries are allowed, and only tables and functions that are known to be harmless: allow lists, not deny
lists, because every version of DuckDB adds features.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from kbeval.errors import NotEnoughMemoryError, UsageError
from kbeval.util.text import cut, did_you_mean

# The allowed parts of a parsed query: those that read, none that write.
_NODES = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"))
_TABLE_REFS = frozenset(
    ("BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "EMPTY_FROM", "PIVOT", "SHOW_REF")
)
_MODIFIERS = frozenset(("ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"))
_ORDERS = frozenset(("ORDER_DEFAULT", "ASCENDING", "DESCENDING"))
_PARTS = _NODES | _TABLE_REFS | _MODIFIERS | _ORDERS
# Built-in tables and functions that depend only on the query and the session itself.
_CATALOGUE = frozenset(("duckdb_functions", "duckdb_keywords", "duckdb_types"))
_TABLE_FUNCTIONS = _CATALOGUE | {"range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row"}
# Scalar functions that access the outside or change something; new versions may add names of this form.
_FORBIDDEN_FUNCTIONS = re.compile(
    r"(read|write|copy|load|install|http|parquet|sqlite|query|json_execute)_.*|getenv|glob|query|nextval|setval|currval"
    r"|.*_scan|which_secret|setseed|current_setting"
    # This one takes a statement as text and reads every file that it names.
    r"|json_serialize_plan"
)
_EXPLAIN = re.compile(
    r"((?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*)EXPLAIN\b((?:\s+ANALYZE\b|\s*\(\s*(?:ANALYZE|FORMAT\s+\w+|\s|,)+\))?)(.*)",
    re.IGNORECASE | re.DOTALL,
)
_TOO_DEEP = "this statement is nested too deeply; simplify it"
_POSSIBLE = "only read-only queries are allowed: SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE, EXPLAIN"


@dataclass(frozen=True)
class Statement:
    """One read-only statement: its text, the relations that it names, and the pairs of runs that it compares."""

    sql: str
    reads: frozenset[str]
    compares: frozenset[tuple[str, str]] = frozenset()
    # Its result is a drawing over several lines, not a table.
    is_plan: bool = False
    # It lists the tables; the explorer answers it, because it knows those that are not built yet.
    lists_tables: bool = False
    # SHOW ALL TABLES: including the intermediate ones.
    lists_all: bool = False


def read_statements(connection: duckdb.DuckDBPyConnection, sql: str, known: Collection[str]) -> list[Statement]:
    """The statements of a text, each checked. If one of them does more than read, it is refused and nothing is run.

    `known`: the relations that a statement may name.
    """
    if "\0" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        msg = "the query contains a NUL byte or an unpaired surrogate; save it as UTF-8 text"
        raise UsageError(msg)
    try:
        found = connection.extract_statements(sql)
    except duckdb.OutOfMemoryException as error:
        msg = "not enough memory to parse the query; nest it less, or try a higher --memory-limit"
        raise NotEnoughMemoryError(msg) from error
    except duckdb.Error as error:
        raise query_error(error) from error
    return [_checked(connection, statement, known) for statement in found]


def _checked(connection: duckdb.DuckDBPyConnection, statement: Any, known: Collection[str]) -> Statement:  # noqa: ANN401  (DuckDB's)
    text = statement.query.strip()
    if statement.named_parameters:
        msg = f"the query has parameters ({', '.join(sorted(statement.named_parameters))}); write the values instead"
        raise UsageError(msg)
    try:
        kind = statement.type
    except ValueError as error:
        # DuckDB's parser accepts statements that its Python interface has no name for.
        msg = f"this kind of statement is not allowed: {_POSSIBLE}"
        raise UsageError(msg) from error
    if kind == duckdb.StatementType.EXPLAIN:
        return _explained(connection, text, known)
    if kind == duckdb.StatementType.MULTI:
        msg = "PIVOT needs a list of the columns to create: PIVOT … ON metric IN ('mrr', 'refused')"
        raise UsageError(msg)
    if kind != duckdb.StatementType.SELECT:
        msg = f"{kind.name.replace('_', ' ')} is not allowed: {_POSSIBLE}"
        raise UsageError(msg)
    return _Checker(known).statement(text, _tree(connection, text))


def _explained(connection: duckdb.DuckDBPyConnection, text: str, known: Collection[str]) -> Statement:
    """Check the query after EXPLAIN, too: EXPLAIN ANALYZE runs it."""
    match = _EXPLAIN.fullmatch(text)
    inner = read_statements(connection, match[3], known) if match else []
    if match is None or len(inner) != 1:
        msg = f"this form of EXPLAIN is not supported; write EXPLAIN or EXPLAIN ANALYZE before a query: {_POSSIBLE}"
        raise UsageError(msg)
    (question,) = inner
    return Statement(f"EXPLAIN{match[2]} {question.sql}", question.reads, question.compares, is_plan=True)


def _tree(connection: duckdb.DuckDBPyConnection, text: str) -> Any:  # noqa: ANN401  (what the parser found, as JSON)
    try:
        ((found,),) = connection.execute("SELECT CAST(json_serialize_sql($1) AS VARCHAR)", [text]).fetchall()
        tree = json.loads(found)
    except (duckdb.Error, ValueError, RecursionError) as error:
        msg = "this statement cannot be checked; simplify it"
        raise UsageError(msg) from error
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        msg = f"this statement cannot be checked ({tree.get('error_message') or 'several statements'}); {_POSSIBLE}"
        raise UsageError(msg)
    return tree["statements"][0]


class _Checker:
    """Walks over the parse tree and records what is read."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._reads: set[str] = set()
        self._compares: set[tuple[str, str]] = set()
        self._lists_tables = self._lists_all = False
        self._whole: Any = None

    def statement(self, text: str, tree: Mapping[str, Any]) -> Statement:
        self._whole = tree["node"].get("from_table")
        try:
            self._walk(tree, frozenset())
        except RecursionError as error:
            raise UsageError(_TOO_DEEP) from error
        return Statement(
            text,
            frozenset(self._reads),
            frozenset(self._compares),
            lists_tables=self._lists_tables,
            lists_all=self._lists_all,
        )

    def _walk(self, part: Any, names: frozenset[str]) -> None:  # noqa: ANN401  (any JSON)
        """`names`: the tables defined by the WITH clauses around this part."""
        if isinstance(part, list):
            for inner in part:
                self._walk(inner, names)
        elif isinstance(part, dict):
            if "class" in part:
                self._check_expression(part)
            elif isinstance(part.get("type"), str):
                self._check_part(part, part["type"], names)
            names = self._with_definitions(part, names)
            for key, inner in part.items():
                if key != "cte_map":
                    self._walk(inner, names)

    def _with_definitions(self, part: Mapping[str, Any], names: frozenset[str]) -> frozenset[str]:
        """Each definition in a WITH clause can use those before it, and itself only if it is recursive."""
        if part.get("type") in ("RECURSIVE_CTE_NODE", "CTE_NODE"):
            names |= {_name(part["cte_name"])}
        for definition in _definitions(part):
            name = _name(definition["key"])
            # A name that looks like a file would mean that file wherever the definition is not visible.
            if not re.fullmatch(r"[\w -]+", name):
                msg = f"{cut(name, 80)!r} cannot be defined by WITH; use letters, digits and _ in its name"
                raise UsageError(msg)
            self._walk(definition["value"], names)
            names |= {name}
        return names

    def _check_part(self, part: Mapping[str, Any], kind: str, names: frozenset[str]) -> None:
        if kind in ("BASE_TABLE", "SHOW_REF"):
            self._read_table(part, kind, names)
        elif kind == "TABLE_FUNCTION":
            self._call(part["function"])
        elif kind.endswith("_NODE") and kind not in _NODES:
            msg = f"{kind.partition('_')[0]} is not allowed: {_POSSIBLE}"
            raise UsageError(msg)
        elif kind not in _PARTS and not kind.endswith("TYPE_INFO"):
            msg = f"this kind of statement is not supported ({kind}); {_POSSIBLE}"
            raise UsageError(msg)

    def _read_table(self, part: Mapping[str, Any], kind: str, names: frozenset[str]) -> None:
        path = [str(step) for step in (part.get("qualified_name") or {}).get("path") or () if step]
        if not path and kind == "SHOW_REF":
            return  # DESCRIBE of a query, which is walked like any other
        name = _name(path[-1]) if path else ""
        if kind == "SHOW_REF" and name in ('"tables"', "__show_tables_expanded"):
            # The explorer answers it, but cannot run a query around it.
            if part is not self._whole:
                msg = "SHOW TABLES cannot be part of another query; run it on its own"
                raise UsageError(msg)
            self._lists_tables = True
            self._lists_all = name == "__show_tables_expanded"
        elif len(path) == 1 and (name in names or name in _CATALOGUE):
            pass
        elif name in self._known and [_name(step) for step in path[:-1]] in (
            [],
            ["main"],
            ["memory", "main"],
        ):
            self._reads.add(name)
        else:
            hint = did_you_mean(name, self._known) or "; SHOW ALL TABLES lists them"
            if name == "compare":
                hint = "; compare is a function of two runs: compare('latest~1', 'latest')"
            msg = f"there is no table {cut('.'.join(path), 80)!r}{hint}"
            raise UsageError(msg)

    def _call(self, function: Mapping[str, Any]) -> None:
        """Check a function that returns a table."""
        name = _name(function["function_name"])
        if name == "compare":
            self._compares.add(_compared_runs(function))
        elif name not in _TABLE_FUNCTIONS:
            possible = ", ".join(sorted((_TABLE_FUNCTIONS - _CATALOGUE) | {"compare"}))
            why = "no files, no network, no settings"
            msg = f"the table function {cut(name, 80)!r} is not allowed: {why}; allowed: {possible}"
            raise UsageError(msg)

    @staticmethod
    def _check_expression(part: Mapping[str, Any]) -> None:
        name = _name(part.get("function_name") or "")
        if part["class"] in ("FUNCTION", "WINDOW") and _FORBIDDEN_FUNCTIONS.fullmatch(name):
            msg = f"the function {cut(name, 80)!r} is not allowed: no files, no network, no settings, no environment"
            raise UsageError(msg)


def _compared_runs(function: Mapping[str, Any]) -> tuple[str, str]:
    """The two names that `compare` is called with: the runs to read must be known before anything runs."""
    given = [argument["expression"] for argument in function["arguments"] if not argument["name"]]
    literals = [one["literal"] for one in given if one["class"] == "CONSTANT"]
    texts = [literal["text"] for literal in literals if literal["kind"] == "STRING"]
    if not len(texts) == len(function["arguments"]) == 2:
        msg = "compare expects the names of two runs as literals: compare('latest~1', 'latest')"
        raise UsageError(msg)
    first, second = texts
    return first, second


def _definitions(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    definitions = part.get("cte_map")
    yield from (definitions.get("map") or ()) if isinstance(definitions, dict) else ()


def _name(text: str) -> str:
    """Names are case-insensitive."""
    return text.lower()


def query_error(error: duckdb.Error) -> UsageError:
    """DuckDB's error about a query as one line: what is wrong, what exists instead, and where."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "max_expression_depth" in lines[0]:
        # DuckDB advises to change a setting, which a query cannot do.
        return UsageError(_TOO_DEEP)
    what = re.sub(r"^[A-Z]\w+( \w+)? Error: ", "", lines[0]).rstrip("!.")
    there = [line.strip() for line in lines[1:] if line.startswith("Candidate bindings: ")]
    what = "; ".join([what, *(f"available: {line.removeprefix('Candidate bindings: ')}" for line in there)])
    return UsageError(f"the query failed: {what}{_place(lines)}")


def _place(lines: list[str]) -> str:
    """The position in the query; DuckDB shows the line, with a mark below it."""
    for line, marks in itertools.pairwise(lines):
        match = re.match(r"LINE (\d+): ", line)
        if match and marks.strip().startswith("^"):
            column = marks.index("^")
            near = cut(line[column:], 40)
            # If a long line is shown in part, the column is unknown.
            at = f", column {column - match.end() + 1}" if not line[match.end() :].startswith("...") else ""
            return f" (line {match[1]}{at}: {near})" if near else f" (line {match[1]}{at}, at its end)"
    return ""
