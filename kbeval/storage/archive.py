"""Reads an archive in place of a database. It is never changed: scores are stored in a file next to the tables."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbeval.engine.interruptible import run_interruptible
from kbeval.engine.quoting import parquet_scan
from kbeval.golden import Golden, load_golden, unpacked
from kbeval.storage.archive_scores import Scores, read_scores
from kbeval.storage.cache import Choice, Facts
from kbeval.storage.judged_rubrics import rubric_names
from kbeval.storage.manifest import RUNS, Manifest, damaged, read_manifest
from kbeval.storage.parts import ALWAYS, MORE, Part, new_numbering, read_part
from kbeval.storage.runs import REPEATED_ROW, KeyFault, Run
from kbeval.storage.stamps import times
from kbeval.storage.tables import OPTIONAL, ROW_BITS, RUN_COLUMNS, TABLES, load_runs
from kbeval.util.locks import locked

if TYPE_CHECKING:
    import duckdb

    from kbeval.engine.session import Loader, Session

_NO_ROWS = "SELECT CAST(0 AS BIGINT) AS result_no, '' AS run_id, '' AS query_id, '' AS result_json WHERE false"


class ArchiveSource:
    """An archive as a source of facts. What is missing, or was written by an older version, is parsed from its rows.

    Use as a context manager: while it is open, `kbeval archive` deletes nothing in it.
    """

    def __init__(self, path: str | os.PathLike[str], reader: duckdb.DuckDBPyConnection) -> None:
        """`reader`: a DuckDB connection that may read the folder."""
        self.path = Path(path)
        self._folder = self.path.absolute()
        self._reader = reader
        self._facts: Facts | None = None
        self._tables: dict[str, Path] = {}
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._held.enter_context(locked(self._folder / RUNS, exclusive=False, patience=1))
        try:
            self._seen = times(self._folder)
            self._manifest: Manifest = read_manifest(self._folder)
            self._scores: Scores = read_scores(self._folder)
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def release(self) -> None:
        """Let `kbeval archive` delete old files, until `resume`."""
        self._held.close()

    def resume(self) -> bool:
        """Continue reading; False if the archive has changed."""
        before = self._seen
        self.__enter__()
        return self._seen == before

    def sharing(self) -> contextlib.AbstractContextManager[None]:
        """In this context, opening the same archive again reads the same state of it."""
        return contextlib.nullcontext()  # files do not change while they are being read

    def runs(self) -> list[Run]:
        """Every run, oldest first, with the scores that were computed from the archive, if any."""
        stored = self._rows(f"SELECT {', '.join(RUN_COLUMNS)} FROM {self._table('eval_runs')}")
        if {row["run_id"] for row in stored} != self._manifest.runs.keys():
            raise damaged(self.path, self._manifest.tables["eval_runs"].name)
        found = [
            Run(
                run_id=str(row["run_id"]),
                suite=str(row["suite"]),
                created_at=str(row["created_at"]),
                commit_hash=row["commit_hash"] or None,
                config_json=str(row["config_snapshot_json"]),
                aggregate_json=self._scores.numbers(str(row["run_id"]), str(row["aggregate_json"])),
                rows=self._part(str(row["run_id"])).runs[str(row["run_id"])].rows,
            )
            for row in stored
        ]
        return sorted(found, key=Run.order)

    def _table(self, name: str) -> str:
        """A table, as an SQL expression to select from."""
        if name not in self._tables:
            found = self._manifest.table(name)
            if found is None:
                raise damaged(self.path, f"the table {name}")
            self._tables[name] = found
        return parquet_scan([self._tables[name]])

    def _part(self, run_id: str) -> Part:
        """A run's files, whichever version wrote them."""
        return self._manifest.part(run_id)

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        import duckdb

        def read() -> list[dict[str, Any]]:
            cursor = self._reader.execute(sql, list(parameters))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        try:
            return run_interruptible(self._reader, read)
        except duckdb.Error as error:
            raise damaged(self.path, "a table") from error

    # --- rows ------------------------------------------------------------------------------------

    def row_digests(self, session: Session, run_ids: Sequence[str]) -> dict[str, str]:  # noqa: ARG002  (as StoredSource)
        """The digests of the runs' rows, as recorded in the archive."""
        return {run_id: self._part(run_id).runs[run_id].digest for run_id in run_ids}

    keeps_rows = True

    def rubrics(self) -> list[str]:
        """The rubrics that runs were judged by."""
        if "kbeval_judgings" not in self._manifest.tables:
            return []
        sql = f"SELECT DISTINCT rubrics_json FROM ({self._table_sql('kbeval_judgings')})"
        return rubric_names(str(row["rubrics_json"]) for row in self._rows(sql))

    def judge_inputs(self, hashes: Sequence[str]) -> dict[str, str]:  # noqa: ARG002  (as StoredSource)
        """What judges were given to read is not archived."""
        return {}

    def row_marks(self, earlier: Mapping[str, str]) -> dict[str, dict[str, int]]:  # noqa: ARG002  (as StoredSource)
        """An archive does not change."""
        return {}

    def repeated_rows(self, run_ids: Sequence[str]) -> list[KeyFault]:
        """The queries for which one of these runs has several rows."""
        paths: list[Path] = []
        for run_id in run_ids:
            part = self._part(run_id)
            # Damaged files are skipped here; the code that needs them reports them.
            sound = (name for name in ("results", "rows") if part.holds([name]) and part.is_sound([name]))
            if (name := next(sound, None)) is not None:
                paths += part.paths(name)
        if not paths:
            return []
        found = self._rows(
            f"SELECT run_id, query_id, COUNT(*) AS n FROM (SELECT run_id, query_id FROM {parquet_scan(paths)})"
            " GROUP BY ALL HAVING COUNT(*) > 1 ORDER BY ALL"
        )
        return [KeyFault(REPEATED_ROW, str(row["run_id"]), str(row["query_id"]), int(row["n"])) for row in found]

    def still_kept(self, earlier: Mapping[str, str]) -> set[str]:  # noqa: ARG002  (as StoredSource)
        """An archive holds no earlier rows."""
        return set()

    def labels(self, golden_hash: str) -> Golden | None:
        """The labels that stored numbers were computed with, if they are kept."""
        sql = f"SELECT entries FROM {self._table('kbeval_golden')} WHERE golden_hash = ?"
        kept = [str(row["entries"]) for row in self._rows(sql, [golden_hash])]
        kept += [packed for mark, packed in self._scores.golden.items() if mark == golden_hash]
        for packed in kept:
            with contextlib.suppress(ValueError):
                return unpacked(packed, "the earlier labels")
        own = self._manifest.table("golden") if self._manifest.golden_hash == golden_hash else None
        return None if own is None else load_golden(own)

    def feed(self, session: Session, run_ids: Sequence[str], earlier: Mapping[str, str] | None = None) -> None:  # noqa: ARG002  (as StoredSource)
        """Register with the session how it obtains the facts of these runs."""
        choice = Choice.none()
        taken: set[int] = set()
        for run_id in run_ids:
            part = read_part(self._part(run_id).folder)
            if part is None or not part.holds(ALWAYS) or not part.is_sound(ALWAYS):
                continue
            # Rows of two runs must not share numbers.
            numbering = part.runs[run_id].numbering
            if numbering in taken:
                continue
            taken.add(numbering)
            choice.base[run_id] = part
            for relation in MORE:
                if part.holds([relation]) and part.is_sound([relation]):
                    choice.more[relation][run_id] = part
        fresh = [run_id for run_id in run_ids if run_id not in choice.base]
        self._facts = facts = Facts(choice, fresh, new_numbering(taken), self.row_digests(session, run_ids))
        session.empty |= self._empty_tables()
        session.add_loaders(self.loaders(run_ids, facts))
        session.add_copies(facts.copies())

    def begin(self, session: Session) -> None:
        """Start to read what a scoring needs besides the rows: nothing, as files of columns are read at once."""

    def settled_digests(self, session: Session) -> dict[str, str]:  # noqa: ARG002  (as Source)
        """The digests of the rows of the session's runs."""
        return {} if self._facts is None else self._facts.current

    def loaders(self, run_ids: Sequence[str], facts: Facts) -> dict[str, Loader]:
        """How a session loads each stored table."""
        stored = self.runs()
        wanted = set(run_ids)
        number = f"ROW_NUMBER() OVER () + {facts.numbering << ROW_BITS}"
        fresh = f"SELECT {number} AS result_no, * EXCLUDE (result_no) FROM"
        return {
            "stored_runs": lambda session: load_runs(session, [run for run in stored if run.run_id in wanted]),
            "stored_results": self._rows_loader("stored_results", fresh, facts.fresh),
            "stored_places": self._rows_loader("stored_places", "FROM", facts.lacking("hit_claims")),
            "stored_anchors": self._rows_loader("stored_anchors", "FROM", facts.lacking("anchor_rows")),
            "stored_fields": self._rows_loader("stored_fields", "FROM", run_ids),
            "stored_history": self._load_history,
            "stored_samples": self._load_samples,
            **{f"stored_{table}": self._table_loader(table) for table in OPTIONAL},
            "stored_kbeval_chunk_spans": self._load_chunk_spans,
        }

    def _rows_loader(self, name: str, select: str, run_ids: Sequence[str]) -> Loader:
        def load(session: Session) -> None:
            session.execute(f"CREATE VIEW {name} AS {select} {self._rows_of(run_ids)}")

        return load

    def _table_loader(self, table: str) -> Loader:
        def load(session: Session) -> None:
            session.execute(f"CREATE VIEW stored_{table} AS {self._table_sql(table)}")

        return load

    def _empty_tables(self) -> set[str]:
        """Names (in a session) of optional tables that do not exist; without them, much less has to be planned."""
        found = {f"stored_{table}" for table in OPTIONAL if self._manifest.table(table) is None}
        return found - {"stored_kbeval_chunk_spans"} if self._scores.chunk_spans else found

    def _table_sql(self, table: str) -> str:
        """A table with all its columns; older versions archived fewer of them."""
        if self._manifest.table(table) is None:
            # Written by a version without this table, or from a database without it.
            nothing = ", ".join(f"'' AS {column}" for column in TABLES[table])
            return f"SELECT {nothing} WHERE false"
        there = {row["column_name"] for row in self._rows(f"DESCRIBE SELECT * FROM {self._table(table)}")}
        names = [column if column in there else f"'' AS {column}" for column in TABLES[table]]
        return f"SELECT {', '.join(names)} FROM {self._table(table)}"

    def _rows_of(self, run_ids: Sequence[str]) -> str:
        """The rows of runs as they were stored, as an SQL expression to select from."""
        paths = []
        for run_id in run_ids:
            part = self._part(run_id)
            if not part.holds(["rows"]) or not part.is_sound(["rows"]):
                raise damaged(self.path, f"{RUNS}/{part.folder.name}/rows.parquet")
            paths += part.paths("rows")
        return parquet_scan(paths) if paths else f"({_NO_ROWS})"

    def _load_chunk_spans(self, session: Session) -> None:
        """The kept spans in the archive, and those that scoring the archive has added since."""
        columns = TABLES["kbeval_chunk_spans"]
        values = [f"UNNEST(${place}::VARCHAR[]) AS {column}" for place, column in enumerate(columns, start=1)]
        since = [[row[place] for row in self._scores.chunk_spans] for place in range(len(columns))]
        session.execute(f"CREATE TABLE chunk_spans_since AS SELECT {', '.join(values)}", since)
        key = "(chunk_id, chunker_version, policy_hash, COALESCE(doc_id, ''), COALESCE(source_spans_json, ''))"
        session.execute(
            f"CREATE VIEW stored_kbeval_chunk_spans AS FROM ({self._table_sql('kbeval_chunk_spans')})"
            f" WHERE {key} NOT IN (SELECT {key} FROM chunk_spans_since) UNION ALL BY NAME FROM chunk_spans_since"
        )

    def _load_history(self, session: Session) -> None:
        session.need("unplaced_chunks")
        ((unplaced,),) = session.rows("SELECT COUNT(*) FROM unplaced_chunks")
        run_ids = list(self._manifest.runs) if unplaced else []
        version = "COALESCE(TRY(CAST(u.config_snapshot_json AS VARCHAR) ->> '$.chunker_version'), '')"
        session.execute(
            f"CREATE VIEW stored_history AS SELECT {version} AS chunker_version, r.result_json"
            f" FROM {self._rows_of(run_ids)} AS r JOIN {self._table('eval_runs')} AS u ON u.run_id = r.run_id"
        )

    def _load_samples(self, session: Session) -> None:
        """The rows that `sampled_rows` names, unchanged; damaged files are skipped."""
        session.need("sampled_rows")
        run_ids = [row[0] for row in session.rows("SELECT DISTINCT run_id FROM sampled_rows ORDER BY run_id")]
        parts = [part for part in map(self._part, run_ids) if part.holds(["rows"]) and part.is_sound(["rows"])]
        rows = parquet_scan(path for part in parts for path in part.paths("rows")) if parts else f"({_NO_ROWS})"
        session.execute(
            f"CREATE VIEW stored_samples AS SELECT r.run_id, r.query_id, r.result_json FROM {rows} AS r"
            " JOIN sampled_rows AS s ON s.run_id = r.run_id AND s.query_id = r.query_id"
        )

    def result_json(self, run_id: str, query_id: str) -> str | None:
        """One stored row, unchanged."""
        found = self._rows(
            f"SELECT result_json FROM {self._rows_of([run_id])} WHERE query_id = ? ORDER BY result_no LIMIT 1",
            [query_id],
        )
        return str(found[0]["result_json"]) if found else None

    def result_rows(self, run_id: str, query_ids: Sequence[str]) -> list[tuple[str, str]]:
        """The stored rows of a run for these queries, with the ids of the queries."""
        found = self._rows(
            f"SELECT query_id, result_json FROM {self._rows_of([run_id])} WHERE query_id IN (SELECT UNNEST(?))"
            " ORDER BY query_id",
            [list(query_ids)],
        )
        return [(str(row["query_id"]), str(row["result_json"])) for row in found]

    def result_texts(self, run_id: str) -> list[str]:
        """Every stored row of a run, in the order in which they were stored."""
        found = self._rows(f"SELECT result_json FROM {self._rows_of([run_id])} ORDER BY result_no")
        return [str(row["result_json"]) for row in found]

    def chunk_details(self, chunk_ids: Sequence[str]) -> list[tuple[str, str, str | None, str | None]]:
        """The entries of these chunks in `chunks`: id, version, text (not archived, so None) and source spans."""
        wanted = set(chunk_ids)
        sql = f"SELECT chunk_id, chunker_version, source_spans_json FROM {self._table('chunks')}"
        return [
            (str(row["chunk_id"]), str(row["chunker_version"]), None, row["source_spans_json"] or None)
            for row in self._rows(sql)
            if row["chunk_id"] in wanted
        ]
