"""What a user-defined metric may contain: a deterministic expression over the rows of one query.

This is checked with the engine's own parser, before anything runs. Only known kinds of expressions are accepted, only
columns of the grain, and only functions that the engine declares consistent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import duckdb

from kbeval.engine.relations import macros
from kbeval.util.text import cut, did_you_mean

if TYPE_CHECKING:
    from kbeval.engine.session import Session

_ALLOWED = frozenset(
    (
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"),
        # The number of columns that a star expands to is checked when the expression is tried.
        *("LAMBDA", "OPERATOR", "STAR", "TYPE"),
    )
)
_REFUSED = {
    "WINDOW": "the window function {name!r} is not allowed: it would see other queries",
    "PARAMETER": "parameters are not allowed; write the value itself",
}
# Functions that the engine declares consistent although they depend on the clock or on the engine's state.
_OF_THE_MOMENT = re.compile(r"(current|get_current|pg)_.*|.*localtime(stamp)?|version|json_serialize_plan")
# Marked volatile so that it is not evaluated early; it returns no value.
_HARMLESS = frozenset(("error",))
# Aggregates whose value depends on the order of the rows, which varies.
_ORDERED = frozenset(
    ("any_value", "arbitrary", "array_agg", "first", "group_concat", "json_group_array", "last", "list", "listagg")
) | {"string_agg"}
_SAMPLED = re.compile(r"approx_.*|reservoir_.*")
# The engine does not declare whether its macros are consistent; these are.
_MACROS = re.compile(
    r"(array|list|map|md5_number)_.*|json_group_.*|json|date_add|days_in_month|fdiv|fmod|geomean|geometric_mean|if|nullif"
    r"|split_part|wavg|weighted_avg"
)


class Expressions:
    """Checks expressions over the grains of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._columns: dict[str, set[str]] = {}
        # By name: may its value be used?
        self._functions: dict[str, bool] = {}

    def fault(self, expression: str, grain: str) -> str | None:
        """Why an expression is rejected; None if it is accepted, or if it cannot be parsed, which is reported
        elsewhere.
        """
        found = self._parsed(f"SELECT (\n{expression}\n) AS value FROM {grain} GROUP BY result_no")
        if found is None:
            return None
        frame = self._parsed(f"SELECT 1 AS value FROM {grain} GROUP BY result_no")
        items = found.pop("select_list", ())
        if frame is None or len(items) != 1 or found != _rest(frame):
            return "it must be a single expression"
        try:
            return next(self._faults(items[0], grain, frozenset()), None)
        except RecursionError:
            return "it is nested too deeply; write it more simply"

    def _parsed(self, sql: str) -> dict[str, Any] | None:
        """The single SELECT of a text as parsed; None if the text is not one."""
        try:
            ((text,),) = self._session.rows("SELECT CAST(json_serialize_sql($1) AS VARCHAR)", [sql])
            statements: list[Any] = json.loads(text).get("statements") or []
            return _placeless(statements[0]["node"]) if len(statements) == 1 else None
        except duckdb.InterruptException:
            raise
        except (duckdb.Error, ValueError, RecursionError):
            return None

    def _faults(self, part: Any, grain: str, names: frozenset[str]) -> Iterator[str]:  # noqa: ANN401  (any JSON)
        """`names`: the argument names of enclosing lambdas."""
        if isinstance(part, list):
            for inner in part:
                yield from self._faults(inner, grain, names)
        elif isinstance(part, dict):
            kind = part.get("class")
            if isinstance(kind, str):
                yield from self._faults_of(part, kind, grain, names)
                if kind == "LAMBDA":
                    names |= set(_lambda_names(part["lhs"]))
            for inner in part.values():
                yield from self._faults(inner, grain, names)

    def _faults_of(self, part: Mapping[str, Any], kind: str, grain: str, names: frozenset[str]) -> Iterator[str]:
        name = str(part.get("function_name") or "").lower()
        if kind == "SUBQUERY":
            relations = sorted(set(_relations(part)))
            seen = f"{', '.join(cut(repr(one), 60) for one in relations)} in a subquery" if relations else "a subquery"
            yield f"{seen} is not allowed: a metric sees the rows of one query in {grain!r} and nothing else"
        elif kind not in _ALLOWED:
            what = _REFUSED.get(
                kind, "{kind} is not allowed: it must be an expression over columns, values and functions"
            )
            yield what.format(name=cut(name, 60), kind=kind.replace("_", " ").lower())
        elif kind == "FUNCTION":
            yield from self._function_faults(name, part)
        elif kind == "COLUMN_REF":
            yield from self._column_faults([str(step).lower() for step in part["column_names"]], grain, names)

    def _function_faults(self, name: str, part: Mapping[str, Any]) -> Iterator[str]:
        known = self._known_functions()
        is_of_the_moment = _OF_THE_MOMENT.fullmatch(name) or not known.get(name, True)
        # With one argument, age() depends on the current time.
        if is_of_the_moment or (name == "age" and len(part["arguments"]) == 1):
            yield f"the function {cut(name, 60)!r} is not allowed: its value depends on the time or on the machine"
        elif _SAMPLED.fullmatch(name):
            yield f"the function {cut(name, 60)!r} is not allowed: it may return different values for the same rows"
        elif name in _ORDERED and not (part.get("order_bys") or {}).get("orders"):
            yield f"the function {cut(name, 60)!r} is not allowed without an order: write {name}(… ORDER BY …)"

    def _column_faults(self, path: list[str], grain: str, names: frozenset[str]) -> Iterator[str]:
        columns = self._columns_of(grain)
        if path[0] in columns or path[0] in names or path == [grain]:
            return
        own = path[path.index(grain) + 1 :] if grain in path[:3] else path
        if own and own[0] in columns and own is not path:
            return
        shown = cut(".".join(path), 60)
        if len(path) == 1 and (path[0] in self._known_functions() or _OF_THE_MOMENT.fullmatch(path[0])):
            yield f"the function {shown!r} is not allowed: its value depends on the time or on the machine"
        else:
            hint = (
                did_you_mean(own[0] if own else path[-1], columns) or f"; its columns are {', '.join(sorted(columns))}"
            )
            yield f"{grain} has no column {shown!r}{hint}"

    def _columns_of(self, grain: str) -> set[str]:
        if grain not in self._columns:
            self._columns[grain] = {str(row[0]).lower() for row in self._session.rows(f"DESCRIBE {grain}")}
        return self._columns[grain]

    def _known_functions(self) -> Mapping[str, bool]:
        if not self._functions:
            found = self._session.rows(
                "SELECT function_name, function_type, MIN(CASE WHEN stability = 'CONSISTENT' THEN 1 ELSE 0 END)"
                " FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate', 'macro') GROUP BY ALL"
            )
            ours = macros().keys()
            for name, kind, consistent in found:
                is_good = bool(consistent) or name in _HARMLESS
                if kind == "macro":
                    is_good = name in ours or _MACROS.fullmatch(name) is not None
                self._functions[name.lower()] = self._functions.get(name.lower(), True) and is_good
        return self._functions


def _rest(frame: Mapping[str, Any]) -> dict[str, Any]:
    """A SELECT without its list of expressions."""
    return {key: value for key, value in frame.items() if key != "select_list"}


def _placeless(part: Any) -> Any:  # noqa: ANN401  (any JSON)
    """The parse tree without positions in the text."""
    if isinstance(part, list):
        return [_placeless(inner) for inner in part]
    if isinstance(part, dict):
        return {key: _placeless(inner) for key, inner in part.items() if not key.startswith("query_location")}
    return part


def _lambda_names(part: Any) -> Iterator[str]:  # noqa: ANN401  (any JSON)
    """The argument names of a lambda: one column, or a row of them."""
    if isinstance(part, list):
        for inner in part:
            yield from _lambda_names(inner)
    elif isinstance(part, dict):
        if part.get("class") == "COLUMN_REF":
            yield from (str(step).lower() for step in part["column_names"])
        for inner in part.values():
            yield from _lambda_names(inner)


def _relations(part: Any) -> Iterator[str]:  # noqa: ANN401  (any JSON)
    """The tables and table functions that a subquery names."""
    if isinstance(part, list):
        for inner in part:
            yield from _relations(inner)
    elif isinstance(part, dict):
        if part.get("type") == "BASE_TABLE":
            yield ".".join(str(step) for step in (part.get("qualified_name") or {}).get("path") or ())
        elif part.get("type") == "TABLE_FUNCTION":
            yield str(part["function"].get("function_name"))
        for inner in part.values():
            yield from _relations(inner)
