"""The relations that a number of one query depends on, in build order, with the rows of that query."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbeval.engine.lineage import Columns, Use, column_names, parse_select, uses
from kbeval.engine.relations import LAYERS, Relation, layer_of, relations
from kbeval.explore.tables import read_head

if TYPE_CHECKING:
    from kbeval.metrics.catalogue import Metric
    from kbeval.scoring.scorer import Scoring

# The columns that identify the query of a row: the same in all rows of a step.
KEYS = ("result_no", "run_id", "query_id")
# A relation with more columns than this is shown with the relevant ones only.
MOST_COLUMNS = 9
# Maximum number of rows read per step; if there are more, their number is shown.
MOST_ROWS = 100
ROW, ENTRY, OPTIONS = "stored row", "golden entry", "settings"
# Sources provide the stored row itself, the golden entry, or a table that has its own relation.
_HANDED_IN = {"golden_entries": ENTRY, "settings": OPTIONS}
_ROWS_AGAIN = re.compile(r"stored_(results|places|anchors)")


@dataclass(frozen=True)
class Step:
    """One step of the pipeline for one query: its relation, its file, what it does, and the query's rows."""

    name: str
    layer: str
    # None: it is not built by SQL.
    file: str | None
    what: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    n_rows: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "relation": self.name,
            "layer": self.layer,
            "file": self.file,
            "what": self.what,
            "n_rows": self.n_rows,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
        }


class Steps:
    """Reads the relations that a session has built, for one query of its only run."""

    def __init__(self, scoring: Scoring, result_no: int, query_id: str) -> None:
        self._scoring = scoring
        self._session = scoring.session
        (run,) = scoring.runs
        self._keys: dict[str, Any] = {"result_no": result_no, "query_id": query_id, "run_id": run.run_id}
        self._wanted: dict[str, Columns] = {}
        self._reads: dict[str, set[str]] = {}
        self._known: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        # Do citations matter? Then every chunk of a cited document does.
        self._cites = False

    def values_of(self, name: str) -> list[dict[str, Any]]:
        """The query's rows of a relation."""
        where, parameters = self._of_query(name)
        found = self._session.rows(f"SELECT * FROM {name} WHERE {where} {self._order(name)}", parameters)
        return [dict(zip(self._columns(name), row, strict=True)) for row in found]

    def behind(self, metric: Metric, expression: str, stored_row: str | None) -> Iterator[Step]:
        """Every step from the stored row to the grain of a metric."""
        node = parse_select(self._session, f"SELECT (\n{expression}\n), (\n{metric.condition}\n) FROM {metric.grain}")
        wanted = None if node is None else frozenset(column_names(node)) & set(self._columns(metric.grain))
        self._want(metric.grain, wanted, is_empty=False)
        if "citations" in self._wanted:
            self._cites = True
            for found in (self._wanted, self._reads, self._counts):
                found.clear()
            self._want(metric.grain, wanted, is_empty=False)
        self._wanted[ROW] = None
        if self._scoring.golden.get(self._keys["query_id"]) is not None:
            self._wanted[ENTRY] = None
        for name in self._in_order():
            if (step := self._step(name, stored_row)) is not None:
                yield step

    # --- which of them matter -------------------------------------------------------------------

    def _want(self, name: str, wanted: Columns, *, is_empty: bool) -> None:
        """Mark these columns of a relation as relevant, and the columns that they depend on."""
        before = self._wanted.get(name, frozenset())
        if name in self._wanted and (before is None or (wanted is not None and wanted <= before)):
            return
        self._wanted[name] = None if wanted is None or before is None else before | wanted
        for source, use in self._uses(name, self._wanted[name]).items():
            if source in _HANDED_IN or _ROWS_AGAIN.fullmatch(source):
                inner = _HANDED_IN.get(source, ROW)
                self._reads.setdefault(name, set()).add(inner)
                self._wanted[inner] = _joined(self._wanted.get(inner, frozenset()), use.columns)
            elif self._matters(source, use, is_empty=is_empty or use.is_sole or _is_outer(name, use)):
                self._reads.setdefault(name, set()).add(source)
                self._want(source, use.columns, is_empty=not self._count(source))

    def _matters(self, name: str, use: Use, *, is_empty: bool) -> bool:
        """Is the step relevant? `is_empty`: its lack of rows would explain why its readers have none, or no more."""
        if name not in self._session.built or self._session.variant_of(name) is None:
            return False
        if self._count(name):
            # A wide relation that only connects others would show nothing.
            return len(self._columns(name)) <= MOST_COLUMNS or use.columns is None or not use.columns <= set(KEYS)
        # A variant that reads nothing is for cases that do not occur here.
        return is_empty and bool(self._relation(name).reads)

    def _uses(self, name: str, wanted: Columns) -> dict[str, Use]:
        relation = self._relation(name)
        node = parse_select(self._session, relation.sql)
        if node is None:
            return {source: Use(None) for source in relation.reads}
        return uses(node, wanted, self._known_columns, self._has_value)

    def _has_value(self, name: str, column: str, text: str) -> bool:
        """Does a row of this query have this text in a column?"""
        if name not in self._session.built or column not in self._columns(name):
            return True
        where, parameters = self._of_query(name)
        parameters = [*parameters, text]
        sql = f"SELECT COUNT(*) FROM {name} WHERE ({where}) AND {column} = ${len(parameters)}"
        ((count,),) = self._session.rows(sql, parameters)
        return bool(count)

    def _in_order(self) -> list[str]:
        """Sort steps so that each follows its inputs; among several, the one of the lowest layer comes first."""
        left = set(self._wanted)
        found: list[str] = []
        while left:
            ready = [name for name in left if not self._reads.get(name, set()) & left]
            name = min(ready, key=lambda name: (LAYERS.index(_layer(name)), name not in (ROW, ENTRY), name))
            left.remove(name)
            found.append(name)
        return found

    # --- their rows -----------------------------------------------------------------------------

    def _step(self, name: str, stored_row: str | None) -> Step | None:
        if name == ROW:
            return self._stored_row(stored_row)
        if name == ENTRY:
            entry = self._scoring.golden.get(self._keys["query_id"])
            if entry is None:
                return None
            what = "the query as written in the golden file"
            return _fields(ENTRY, "labels", what, {key: value for key, value in entry.items() if value is not None})
        columns = self._shown_columns(name)
        if not columns:
            return None
        where, parameters = self._of_query(name)
        names = ", ".join(f'"{column}"' for column in columns)
        rows = self._session.rows(
            f"SELECT {names} FROM {name} WHERE {where} {self._order(name)} LIMIT {MOST_ROWS}", parameters
        )
        if name == OPTIONS:
            return Step(name, "labels", None, "the scoring options", columns, tuple(rows), len(rows))
        variant = self._session.variant_of(name) or name
        what = _what(name, variant)
        if self._session.is_kept(name):
            what += " Read from cached files that already contain these rows."
        return Step(
            name, _layer(name), f"sql/{_layer(name)}/{variant}.sql", what, columns, tuple(rows), self._count(name)
        )

    def _stored_row(self, text: str | None) -> Step:
        what = "the row as stored in eval_query_results"
        if text is None:
            return Step(ROW, "stored", None, what, (), (), 0)
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        return _fields(ROW, "stored", what, row if isinstance(row, dict) else {"result_json": text})

    def _shown_columns(self, name: str) -> tuple[str, ...]:
        columns, wanted = self._columns(name), self._wanted[name]
        is_wide = len(columns) > MOST_COLUMNS and _layer(name) != "matching"
        if (is_wide or _layer(name) == "stored" or name == OPTIONS) and wanted is not None:
            columns = [column for column in columns if column in wanted or column in ("position", "rank")]
        # Values that are equal in all rows are not repeated.
        return tuple(column for column in columns if column not in KEYS)

    def _relation(self, name: str) -> Relation:
        return relations()[self._session.variant_of(name) or name]

    def _known_columns(self, name: str) -> Sequence[str] | None:
        """Data from sources can be read only once; not even its columns can be queried."""
        return self._columns(name) if self._session.variant_of(name) or name == OPTIONS else None

    def _columns(self, name: str) -> list[str]:
        if name not in self._known:
            self._known[name] = [row[0] for row in self._session.rows(f"DESCRIBE {name}")]
        return self._known[name]

    def _count(self, name: str) -> int:
        """The number of rows of a relation that belong to this query."""
        if name not in self._counts:
            where, parameters = self._of_query(name)
            ((count,),) = self._session.rows(f"SELECT COUNT(*) FROM {name} WHERE {where}", parameters)
            self._counts[name] = int(count)
        return self._counts[name]

    def _of_query(self, name: str) -> tuple[str, list[Any]]:
        """A condition that is true for the rows of this query, and its parameters."""
        columns = set(self._columns(name))
        keys = self._keys
        if "result_no" in columns:
            return "result_no = $1", [keys["result_no"]]
        if {"owner", "major"} <= columns:
            hit, place = "owner = 'hit' AND major = $1", "owner = 'place' AND major = $2"
            return f"(({hit}) OR ({place}))", [str(keys["result_no"]), keys["query_id"]]
        named = [key for key in ("run_id", "query_id") if key in columns]
        if named:
            return " AND ".join(f"{key} = ${n}" for n, key in enumerate(named, 1)), [keys[key] for key in named]
        if "chunk_id" in columns:
            chunks = "list_contains($1, chunk_id)"
            if "doc_id" in columns and self._cites:
                return f"({chunks} OR list_contains($2, doc_id))", [self._chunks, self._cited_docs]
            return chunks, [self._chunks]
        return ("list_contains($1, doc_id)", [self._docs]) if "doc_id" in columns else ("true", [])

    @staticmethod
    def _order_columns(columns: Sequence[str]) -> list[str]:
        first = (
            "rank",
            "position",
            "owner",
            "minor",
            "support_no",
            "citation_no",
            "place",
            "chunk_id",
            "doc_id",
            "low",
        )
        return [column for column in first if column in columns]

    def _order(self, name: str) -> str:
        found = self._order_columns(self._columns(name))
        return f"ORDER BY {', '.join(found)}" if found else ""

    # --- the chunks and documents in play -------------------------------------------------------

    def _listed(self, *questions: tuple[str, str, str]) -> list[str]:
        """The values of a column in the rows of this query: relation, column, key."""
        found: set[str] = set()
        for relation, column, key in questions:
            if relation in self._session.built:
                sql = f"SELECT DISTINCT {column} FROM {relation} WHERE {key} = $1 AND {column} IS NOT NULL"
                found.update(str(row[0]) for row in self._session.rows(sql, [self._keys[key]]))
        return sorted(found)

    @functools.cached_property
    def _chunks(self) -> list[str]:
        """Chunks that hits, labels or citations name."""
        return self._listed(
            ("hits", "chunk_id", "result_no"),
            ("expected_chunks", "chunk_id", "query_id"),
            ("citations", "chunk_id", "result_no"),
        )

    @functools.cached_property
    def _cited_docs(self) -> list[str]:
        return self._listed(("citations", "doc_id", "result_no"))

    @functools.cached_property
    def _docs(self) -> list[str]:
        """Documents that hits, labels or citations name."""
        named = self._listed(("hit_docs", "doc_id", "result_no"), ("expected_docs", "doc_id", "query_id"))
        return sorted({*named, *self._cited_docs})


def _is_outer(name: str, use: Use) -> bool:
    """Is it outer-joined to a grain, which always has a row for the query?"""
    return use.is_joined and _layer(name) == "grains"


def _joined(a: Columns, b: Columns) -> Columns:
    return None if a is None or b is None else a | b


def _layer(name: str) -> str:
    if name in (ROW, ENTRY, OPTIONS):
        return "stored" if name == ROW else "labels"
    return layer_of(name)


def _what(name: str, variant: str) -> str:
    """The first sentence of the header of a relation's file; for a variant, also when it is used."""
    text = _first_sentence(read_head(name, "", relations()[name].sql).description)
    if variant == name:
        return text
    said = read_head(name, "", relations()[variant].sql).description
    return f"{text} This variant: {said.removeprefix(f'as {name}.sql, ')}"


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.?!])\s+(?=[A-Z])", text, maxsplit=1)[0]


def _fields(name: str, layer: str, what: str, fields: Mapping[str, Any]) -> Step:
    """A step that is a single object: one row per field."""
    rows = tuple((str(key), value) for key, value in fields.items())
    return Step(name, layer, None, what, ("field", "value"), rows, len(rows))
