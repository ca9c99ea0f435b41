"""Column lineage: which columns of which relations a column of a statement depends on, based on DuckDB's own parser.

`Relation.reads` names everything that a file mentions. This finds only what certain columns depend on: a column of
`per_query` that counts rules does not depend on citations, although both are in one file. If in doubt, more is reported
rather than less.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from kbeval.engine.session import Session

# Names of columns; None: all of them.
Columns = frozenset[str] | None
# A relation, a column and a text: does any relevant row have this text in the column?
HasValue = Callable[[str, str, str], bool]
# The columns of a relation; None if they are unknown.
ColumnsOf = Callable[[str], Collection[str] | None]
Node = Mapping[str, Any]


@dataclass
class Use:
    """What a statement uses of a relation."""

    columns: Columns = frozenset()
    # It is joined in the outermost SELECT, so without its rows the result has none.
    is_joined: bool = False
    # Of several branches that are added up, it is the only relevant one.
    is_sole: bool = False

    def add(self, columns: Columns, *, is_joined: bool, is_sole: bool) -> None:
        """Record that these columns are used as well."""
        self.columns = None if self.columns is None or columns is None else self.columns | columns
        self.is_joined |= is_joined
        self.is_sole |= is_sole


def parse_select(session: Session, sql: str) -> Node | None:
    """The parse tree of a text with a single SELECT; None if it is not one."""
    try:
        ((text,),) = session.rows("SELECT CAST(json_serialize_sql($1) AS VARCHAR)", [sql])
        statements = json.loads(text).get("statements") or []
        return statements[0]["node"] if len(statements) == 1 else None
    except duckdb.InterruptException:
        raise
    except (duckdb.Error, ValueError, RecursionError):
        return None


def column_names(part: Any) -> Iterator[str]:  # noqa: ANN401  (any JSON)
    """The last name of every column that an expression mentions, in lower case."""
    for path in _references(part):
        yield path[-1]


def uses(node: Node, wanted: Columns, columns_of: ColumnsOf, has_value: HasValue) -> dict[str, Use]:
    """What the `wanted` columns of a SELECT depend on, by relation.

    `has_value` tells which branches of a UNION can have rows.
    """
    walk = _Walk(columns_of, has_value)
    walk.node(node, wanted, {}, is_outermost=True)
    return walk.found


@dataclass
class _Select:
    """The FROM clause of one SELECT: its sources by name, and how they are joined."""

    # A base table's name, or the node of a subquery.
    sources: dict[str, str | Node] = field(default_factory=dict)
    # Sources of a LEFT JOIN: they do not decide which rows there are. By name, with the condition.
    optional: dict[str, Any] = field(default_factory=dict)
    conditions: list[Any] = field(default_factory=list)


class _Walk:
    def __init__(self, columns_of: ColumnsOf, has_value: HasValue) -> None:
        self._columns_of = columns_of
        self._has_value = has_value
        self.found: dict[str, Use] = {}
        self._seen: set[tuple[int, Columns]] = set()
        self._is_sole = False

    def node(self, node: Node, wanted: Columns, ctes: Mapping[str, Node], *, is_outermost: bool = False) -> None:
        """Record what these columns of a query depend on. `ctes`: the definitions of WITH clauses around it."""
        for definition in (node.get("cte_map") or {}).get("map") or ():
            ctes = {**ctes, definition["key"].lower(): definition["value"]["query_node"]}
        if not is_outermost and (id(node), wanted) in self._seen:
            return
        self._seen.add((id(node), wanted))
        if node["type"] == "SELECT_NODE":
            self._select(node, wanted, ctes, is_outermost=is_outermost)
        else:
            self._branches(node, wanted, ctes, is_outermost=is_outermost, is_summed=False)

    # --- UNION ----------------------------------------------------------------------------------

    def _branches(
        self, node: Node, wanted: Columns, ctes: Mapping[str, Node], *, is_outermost: bool, is_summed: bool
    ) -> None:
        children: Sequence[Node] = node["children"]
        names = [_output(item) for item in children[0].get("select_list") or ()]
        if not names or None in names or not all(len(c.get("select_list") or ()) == len(names) for c in children):
            for child in children:
                # Columns of a star are found by name, others by position.
                has_star = any(_output(item) is None for item in child.get("select_list") or ())
                self.node(child, wanted if has_star else None, ctes)
            return
        places = [place for place, name in enumerate(names) if wanted is None or name in wanted]
        kept: Sequence[Node] = [child for child in children if self._can_have_rows(child, ctes)]
        if is_summed:
            kept = _adding(kept, places)
        self._is_sole = is_summed and is_outermost and len(kept) == 1
        for child in kept:
            inner = frozenset(_output(child["select_list"][place]) or f"#{place}" for place in places)
            self._select(child, inner, ctes, is_outermost=is_outermost and len(kept) == 1, places=places)

    def _can_have_rows(self, node: Node, ctes: Mapping[str, Node]) -> bool:
        """False if it requires a text in a column that no row has."""
        if node["type"] != "SELECT_NODE":
            return True
        found = _from(node.get("from_table"))
        for alias, column, text in _equalities(node.get("where_clause")):
            source = found.sources.get(alias)
            if isinstance(source, str) and source not in ctes and not self._has_value(source, column, text):
                return False
        return True

    # --- SELECT ---------------------------------------------------------------------------------

    def _select(
        self,
        node: Node,
        wanted: Columns,
        ctes: Mapping[str, Node],
        *,
        is_outermost: bool,
        places: Sequence[int] | None = None,
    ) -> None:
        items = node.get("select_list") or []
        chosen = _chosen(items, wanted) if places is None else [items[place] for place in places]
        if any(modifier.get("type") == "DISTINCT_MODIFIER" for modifier in node.get("modifiers") or ()):
            chosen = items
        rest = [node.get(key) for key in ("where_clause", "having", "qualify", "group_expressions", "modifiers")]
        found = _from(node.get("from_table"))
        parts = [*(item for item in chosen if item.get("class") != "STAR"), *rest, *found.conditions]
        asked: dict[str, Columns] = {alias: frozenset() for alias in found.sources if alias not in found.optional}
        for item in chosen:
            if item.get("class") == "STAR":
                self._ask_star(item, items, wanted, found, asked, ctes)
                parts.append({key: value for key, value in item.items() if key != "class"})
        self._ask(_references(parts), found, asked, ctes)
        # The source of a LEFT JOIN is needed if one of its columns is, together with the join condition.
        joined: set[str] = set()
        while more := [alias for alias in asked if alias in found.optional and alias not in joined]:
            joined.update(more)
            conditions = [found.optional[alias] for alias in more]
            parts += conditions
            self._ask(_references(conditions), found, asked, ctes)
        for inner in _subqueries(parts):
            self.node(inner, None, ctes)
        is_summed = bool(node.get("group_expressions"))
        for alias, columns in asked.items():
            self._follow(found.sources[alias], columns, ctes, is_outermost=is_outermost, is_summed=is_summed)

    def _follow(
        self, source: str | Node, columns: Columns, ctes: Mapping[str, Node], *, is_outermost: bool, is_summed: bool
    ) -> None:
        if not isinstance(source, str):
            if source["type"] == "SET_OPERATION_NODE" and not (source.get("cte_map") or {}).get("map"):
                self._branches(source, columns, ctes, is_outermost=is_outermost, is_summed=is_summed)
            else:
                self.node(source, columns, ctes)
        elif source in ctes:
            # A definition cannot use itself or later ones: such a name means a relation.
            names = list(ctes)
            self.node(ctes[source], columns, {name: ctes[name] for name in names[: names.index(source)]})
        else:
            self.found.setdefault(source, Use()).add(columns, is_joined=is_outermost, is_sole=self._is_sole)

    def _ask(
        self, paths: Iterable[Sequence[str]], found: _Select, asked: dict[str, Columns], ctes: Mapping[str, Node]
    ) -> None:
        for path in paths:
            if len(path) > 1 and path[0] in found.sources:
                _add(asked, path[0], frozenset((path[1],)))
                continue
            holders = [alias for alias, source in found.sources.items() if self._may_have(source, path[0], ctes)]
            for alias in holders:
                _add(asked, alias, frozenset((path[0],)))

    def _ask_star(  # noqa: PLR0913, PLR0917  (one star and its context)
        self,
        star: Node,
        items: Sequence[Node],
        wanted: Columns,
        found: _Select,
        asked: dict[str, Columns],
        ctes: Mapping[str, Node],
    ) -> None:
        named = {_output(item) for item in items}
        alias = str(star.get("relation_name") or "").lower()
        for name in [alias] if alias else list(found.sources):
            left = None if wanted is None else wanted - named
            if left is not None:
                left = frozenset(column for column in left if self._may_have(found.sources[name], column, ctes))
            if name not in found.optional or left is None or left:
                _add(asked, name, left)

    def _may_have(self, source: str | Node, column: str, ctes: Mapping[str, Node]) -> bool:
        """Does it have a column of this name, or could it?"""
        if isinstance(source, str) and source not in ctes:
            known = self._columns_of(source)
            return known is None or column in known
        node = ctes[source] if isinstance(source, str) else source
        first = node if node["type"] == "SELECT_NODE" else (node.get("children") or [node])[0]
        names = {_output(item) for item in first.get("select_list") or ()}
        return column in names or None in names


def _add(asked: dict[str, Columns], alias: str, columns: Columns) -> None:
    before = asked.get(alias, frozenset())
    asked[alias] = None if before is None or columns is None else before | columns


def _chosen(items: Sequence[Node], wanted: Columns) -> Sequence[Node]:
    """The items of a SELECT that define these columns; all items if one of the columns is not found."""
    names = [_output(item) for item in items]
    if wanted is None or (None not in names and not wanted <= set(names)):
        return items
    return [item for item, name in zip(items, names, strict=True) if name is None or name in wanted]


def _output(item: Node) -> str | None:
    """The name of a column of a SELECT; None if it is not a single name."""
    if item.get("class") == "STAR" or item.get("function_name") == "unnest":
        return str(item["alias"]).lower() if item.get("alias") else None
    if item.get("alias"):
        return str(item["alias"]).lower()
    return str(item["column_names"][-1]).lower() if item.get("class") == "COLUMN_REF" else ""


def _from(table: Node | None) -> _Select:
    found = _Select()
    if table is not None:
        _collect(table, found, None)
    return found


def _collect(table: Node, found: _Select, optional: Any) -> None:  # noqa: ANN401  (the condition of a left join)
    kind = table.get("type")
    if kind == "JOIN":
        is_left = table.get("join_type") == "LEFT"
        _collect(table["left"], found, optional)
        condition = table.get("condition") or [
            {"class": "COLUMN_REF", "column_names": [name]} for name in _using(table)
        ]
        _collect(table["right"], found, condition if is_left else optional)
        if not is_left:
            found.conditions.append(condition)
        return
    name = str(((table.get("qualified_name") or {}).get("path") or [table.get("table_name") or ""])[-1]).lower()
    alias = str(table.get("alias") or name).lower() or f"#{len(found.sources)}"
    if kind == "BASE_TABLE":
        found.sources[alias] = name
    elif kind == "SUBQUERY":
        found.sources[alias] = table["subquery"]["node"]
    else:
        # A function of the other sources, or literal values.
        found.conditions.append(table)
        return
    if optional is not None:
        found.optional[alias] = optional


def _using(table: Node) -> Sequence[str]:
    return table.get("using_columns") or ()


def _references(part: Any) -> Iterator[list[str]]:  # noqa: ANN401  (any JSON)
    """Every column that an expression mentions, except those in subqueries."""
    if isinstance(part, list):
        for inner in part:
            yield from _references(inner)
    elif isinstance(part, dict):
        if part.get("class") == "COLUMN_REF":
            yield [str(step).lower() for step in part["column_names"]]
        for key, inner in part.items():
            if key != "subquery":
                yield from _references(inner)


def _subqueries(part: Any) -> Iterator[Node]:  # noqa: ANN401  (any JSON)
    if isinstance(part, list):
        for inner in part:
            yield from _subqueries(inner)
    elif isinstance(part, dict):
        if "subquery" in part:
            yield part["subquery"]["node"]
            part = {key: inner for key, inner in part.items() if key != "subquery"}
        for inner in part.values():
            yield from _subqueries(inner)


def _equalities(condition: Any) -> Iterator[tuple[str, str, str]]:  # noqa: ANN401  (any JSON)
    """The literal comparisons of a condition: the name of a table, its column, and a text."""
    if not isinstance(condition, dict):
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for child in condition.get("children") or ():
            yield from _equalities(child)
    elif condition.get("type") == "COMPARE_EQUAL":
        left, right = condition.get("left") or {}, condition.get("right") or {}
        literal = right.get("literal") or {}
        path: list[str] = left.get("column_names") or []
        if len(path) == 2 and literal.get("kind") == "STRING":
            yield str(path[0]).lower(), str(path[1]).lower(), str(literal["text"])


def _adding(branches: Sequence[Node], places: Sequence[int]) -> Sequence[Node]:
    """Of branches that are added up, those that contribute: not those with 0 wherever others have more."""

    def is_zero(branch: Node, place: int) -> bool:
        literal = branch["select_list"][place].get("literal") or {}
        return bool(literal.get("kind") == "INTEGER" and literal.get("text") == "0")

    telling = [place for place in places if len({is_zero(branch, place) for branch in branches}) > 1]
    if not telling:
        return branches
    return [branch for branch in branches if not all(is_zero(branch, place) for place in telling)]
