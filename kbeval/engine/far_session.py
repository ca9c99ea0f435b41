"""A session that has an engine elsewhere do the work after the facts.

Facts that are small are made by DuckDB, as in any session. What an archive holds of rows and hits is read by the engine
there, and every relation that reads such a relation is made there, too, by the same SQL. A statement runs where the
rows are that it reads. Where one needs a relation of the other side, it is written to the exchange folder: from here
only what is small; from there what JSON is opened or text folded for, each different text once.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbeval.engine.quoting import literal, quoted
from kbeval.engine.relations import read_sql, relations, without_comments
from kbeval.engine.session import Session
from kbeval.errors import EngineAwayError, EngineError, UsageError

if TYPE_CHECKING:
    import duckdb

    from kbeval.engine.session import Added, Loader
    from kbeval.engine.spark import FarEngine

# Made here though they read what is there: JSON is opened or letters are folded for them. What they read comes back.
HERE = frozenset(("chunks_to_keep", "judged_claims", "place_spans", "sightings", "timeout_errors", "told_places"))
# Looked for in the rows as they are stored, or hit by hit in JSON: `kbeval check` does that.
UNCHECKED = {
    "displaced_hits": "hits at another place than their chunk",
    "misnamed_fields": "misnamed fields",
    "runs_without_hits": "rows without 'hits_top_k'",
}
_OF_ROWS = ("fields", "hit_fields", "field_names")
_CREATE = re.compile(r"\s*CREATE (OR REPLACE )?(TABLE|VIEW) ([a-z_0-9]+) AS\s+(.*)", re.DOTALL)
_READS = re.compile(r"\b(?:FROM|JOIN)\s+([a-z_]+)", re.IGNORECASE)
_TYPES = {"string": "VARCHAR", "bigint": "BIGINT", "int": "INTEGER", "double": "DOUBLE", "boolean": "BOOLEAN"}


class FarSession(Session):
    """As Session; what reads an archive's rows is done by an engine elsewhere."""

    is_far = True

    def __init__(self, engine: FarEngine, exchange: Path, **settings: Any) -> None:  # noqa: ANN401  (those of Session)
        """`exchange`: a folder that both sides can read and write; the session may reach it."""
        super().__init__(**settings)
        self.engine = engine
        self._exchange = exchange
        self._archived: dict[str, Sequence[Path]] = {}
        self._whole: Callable[[], Mapping[str, Sequence[Path]]] = dict
        self._checks: dict[str, Loader] = {}
        # Relations whose rows are there; those of here that were handed over; those of there that came back.
        self._there: set[str] = set()
        self._handed: set[str] = set()
        self._back: set[str] = set()
        self._unchecked: set[str] = set()

    def check_place(self) -> None:
        """Make sure that the engine sees the same files: a path may lead elsewhere there, or nowhere."""
        token, path = secrets.token_hex(8), self._exchange / "probe.parquet"
        super().execute(f"COPY (SELECT {literal(token)} AS token) TO {literal(str(path))} (FORMAT parquet)")
        found: list[tuple[Any, ...]] = []
        try:
            self.engine.read("probe", [path])
            found = self.engine.rows("SELECT token FROM probe")
        except EngineAwayError:
            raise
        except EngineError:
            # Some engines take a file that is not there for one without columns.
            pass
        if found != [(token,)]:
            where = self._exchange.parent
            msg = f"the engine at {self.engine.name} does not see {where}: the archive must be at the same path there"
            raise EngineError(msg)

    @property
    def unchecked(self) -> list[str]:
        return sorted({UNCHECKED[name] for name in self._unchecked})

    def add_archived(self, files: Mapping[str, Sequence[Path]]) -> None:
        """Register relations that the engine reads from files."""
        self._archived.update(files)

    def add_lazily(self, files: Callable[[], Mapping[str, Sequence[Path]]]) -> None:
        """Register relations of the whole archive, which few sessions read."""
        self._whole = files

    def add_checks(self, checks: Mapping[str, Loader]) -> None:
        """Register what is looked at before relations are read from files; it may raise an error."""
        self._checks.update(checks)

    def add_columns(self, columns: Mapping[str, Added]) -> None:
        """Fields of rows are JSON, which is not read there."""
        if columns:
            what = " and ".join(sorted({added.column for added in columns.values()}))
            msg = f"--engine cannot compute metrics that name {what}: fields of stored rows are read by DuckDB alone"
            raise UsageError(msg)

    def is_kept(self, name: str) -> bool:
        return name in self._archived or super().is_kept(name)

    @contextlib.contextmanager
    def building(self, *names: str) -> Iterator[None]:  # noqa: ARG002  (as Session)
        """Nothing is built in the background: the work is not done here."""
        yield

    @staticmethod
    def quoted(name: str) -> str:
        return f"`{name.replace('`', '``')}`"

    # --- building ---------------------------------------------------------------------------------

    def need(self, *names: str) -> None:
        for name in names:
            if name in self._built:
                continue
            if name in UNCHECKED:
                self._unchecked.add(name)
                self._built.add(name)
                continue
            if name in self._checks:
                self._checks.pop(name)(self)
            if name in self._archived:
                self._step(f"reading {name.replace('_', ' ')}")
                self.engine.read(name, self._archived[name])
                self._there.add(name)
            elif name in _OF_ROWS:
                msg = "--engine does not read fields of stored rows: slice by fields of the golden file"
                raise UsageError(msg)
            elif name == "history_hits":
                self._need_history()
            elif name in self._loaders or name not in relations():
                super().need(name)
            else:
                self._need_somewhere(name)
            self._built.add(name)

    def _need_somewhere(self, name: str) -> None:
        variant = self._choices[name](self) if name in self._choices else None
        self._variants[name] = name if variant is None else f"{name}@{variant}"
        relation = relations()[self._variants[name]]
        known = self._loaders.keys() | relations().keys() | self._archived.keys()
        self.need(*sorted(relation.reads & known))
        self._step(f"building {name.replace('_', ' ')}")
        if name in HERE or not relation.reads & self._there:
            self._bring_back(relation.reads & self._there)
            self.define_macros(relation.select)
            super().execute(f"CREATE {relation.kind.upper()} {name} AS {relation.select}")
        else:
            self._make(name, relation.kind, relation.select)

    def _need_history(self) -> None:
        """What hits of all runs of the archive say about chunks that no table knows."""
        self.add_archived(self._whole())
        self.need("unplaced_chunks", "archived_claims", "archived_results", "archived_bad_claims", "archived_versions")
        self._make("history_hits", "table", read_sql("places/archived_hits.sql"))
        self._bring_back(["history_hits"])
        # From now on it is here.
        self._there.discard("history_hits")

    def _make(self, name: str, kind: str, sql: str) -> None:
        """Make a relation there. Tables are really written: a plan that grows with each step takes all memory."""
        self._hand_over(_reads(sql))
        text = without_comments(sql).strip()
        if kind.lower() == "view":
            self.engine.view(name, text)
        else:
            self.engine.write(name, text, self._exchange / name)
        self._there.add(name)
        self._back.discard(name)

    def _hand_over(self, names: Collection[str]) -> None:
        """Give the engine relations that are here."""
        for name in sorted(set(names) - self._there - self._handed):
            if not self._is_here(name):
                continue
            path = self._exchange / f"{name}.parquet"
            columns = ", ".join(_plain_columns(super().rows(f"DESCRIBE {name}")))
            copied = f"COPY (SELECT {columns} FROM {name}) TO {literal(str(path))} (FORMAT parquet)"
            super().execute(copied)
            self.engine.read(name, [path])
            self._handed.add(name)

    def _is_here(self, name: str) -> bool:
        tables = "SELECT table_name AS name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views()"
        return bool(super().rows(f"SELECT 1 FROM ({tables}) WHERE name = $1", [name]))

    def _bring_back(self, names: Collection[str]) -> None:
        """Make relations that are there readable here, too."""
        for name in sorted(set(names) - self._back):
            folder = self._exchange / name
            if not folder.is_dir():
                folder = self._exchange / f"{name}-back"
                self.engine.write(f"{name}_back", f"SELECT * FROM {name}", folder)
            files = sorted(folder.rglob("*.parquet"))
            if files:
                rows = f"SELECT * FROM read_parquet([{', '.join(literal(str(path)) for path in files)}])"
            else:
                columns = (
                    f"CAST(NULL AS {_TYPES.get(kind, kind)}) AS {quoted(column)}"
                    for column, kind in self.engine.columns(name)
                )
                rows = f"SELECT {', '.join(columns)} WHERE false"
            super().execute(f"CREATE OR REPLACE VIEW {name} AS {rows}")
            self._back.add(name)

    # --- statements -------------------------------------------------------------------------------

    def execute(self, sql: str, parameters: list[Any] | None = None) -> duckdb.DuckDBPyConnection:
        created = _CREATE.fullmatch(sql)
        if created is None or not _reads(created[4]) & self._there:
            if created is not None:
                self._handed.discard(created[3])
            return super().execute(sql, parameters)
        self._make(created[3], created[2], created[4])
        return self.connection

    def rows(self, sql: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
        reads = _reads(sql)
        if reads & self._unchecked:
            return []
        if not reads & self._there:
            return super().rows(sql, parameters)
        self._hand_over(reads)
        return self.engine.rows(sql, parameters)


def _reads(sql: str) -> set[str]:
    return set(_READS.findall(without_comments(sql)))


def _plain_columns(described: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """The columns of single values, in types that every engine has. Lists and structures are for facts alone."""
    for column, kind, *_ in described:
        if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "JSON", "UNION")):
            continue
        name = quoted(column)
        yield f"CAST({name} AS BIGINT) AS {name}" if kind in {"HUGEINT", "UBIGINT", "UINTEGER"} else name
