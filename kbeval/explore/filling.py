"""SQL expressions in which columns are replaced by the values of a row."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb

from kbeval.engine.lineage import parse_select
from kbeval.engine.relations import without_comments

if TYPE_CHECKING:
    from kbeval.engine.session import Session

# Literals and function names are left unchanged; a column name may be qualified by its table.
_TOKEN = re.compile(r"""'(?:[^']|'')*'|/\*.*?\*/|\d[\w.]*|"[^"]*"|(?:\w+\s*\.\s*)?[A-Za-z_]\w*\b(?!\s*\()""", re.DOTALL)
_NAME = re.compile(r"""(?:(\w+)\s*\.\s*)?([A-Za-z_]\w*)""")


def filled_in(expression: str, row: Mapping[str, Any], grain: str) -> str:
    """An expression over the columns of a grain, with the values of one row."""
    values = {name.lower(): value for name, value in row.items()}

    def fill(match: re.Match[str]) -> str:
        name = _NAME.fullmatch(match[0].replace('"', "") if match[0].startswith('"') else match[0])
        if name is None or (name[1] or grain).lower() != grain or name[2].lower() not in values:
            return match[0]
        return literal(values[name[2].lower()])

    return " ".join(_TOKEN.sub(fill, without_comments(expression)).split())


def literal(value: Any) -> str:  # noqa: ANN401  (whatever a column holds)
    """A value as SQL writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if value == int(value) and abs(value) < 1e15 else repr(value)
    return str(value) if isinstance(value, int | Decimal) else "'" + str(value).replace("'", "''") + "'"


def conjuncts(session: Session, condition: str) -> list[str]:
    """The conjuncts of a condition, each as SQL; the whole condition if it cannot be split."""
    whole = " ".join(condition.split())
    node = parse_select(session, f"SELECT (\n{condition}\n) FROM per_query")
    if node is None:
        return [whole]
    found = []
    for part in _parts(node["select_list"][0]):
        statement = {"error": False, "statements": [{"node": {**node, "select_list": [part]}}]}
        try:
            ((text,),) = session.rows("SELECT json_deserialize_sql($1::JSON)", [json.dumps(statement)])
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            return [whole]
        found.append(_bare(text.removeprefix("SELECT ").removesuffix(" FROM per_query")))
    return found


def _parts(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if part.get("type") != "CONJUNCTION_AND":
        return [part]
    return [inner for child in part["children"] for inner in _parts(child)]


def _bare(text: str) -> str:
    """The text without its outer parentheses."""
    plain = re.sub(r"'(?:[^']|'')*'", lambda match: "x" * len(match[0]), text)
    if not (plain.startswith("(") and plain.endswith(")")):
        return text
    depth = 0
    for character in plain[:-1]:
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text
    return text[1:-1]
