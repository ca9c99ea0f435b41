"""Reads an archive in place of a database. It is never changed: scores are kept in a file beside the tables."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbeval.columnar.cache import Choice, Facts
from kbeval.columnar.manifest import Manifest, read_manifest
from kbeval.columnar.parts import ALWAYS, MORE, Part, literal, new_numbering, read_part, reading
from kbeval.errors import DatabaseError
from kbeval.files import write_whole
from kbeval.golden import Golden, load_golden
from kbeval.sources.sqlite import OPTIONAL, Run

if TYPE_CHECKING:
    import duckdb

    from kbeval.engine import Loader, Session

SCORES = "scores.json"


class ArchiveSource:
    """An archive as a source of facts. What it lacks, or what an older version wrote, is parsed from its rows."""

    # The check costs little here.
    rows_are_unique = False

    def __init__(self, path: str | os.PathLike[str], reader: duckdb.DuckDBPyConnection) -> None:
        """`reader`: a DuckDB connection that may read the folder."""
        self.path = Path(path)
        self._folder = self.path.absolute()
        self._reader = reader
        self._manifest: Manifest = read_manifest(self._folder)
        self._facts: Facts | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def runs(self) -> list[Run]:
        """Every run, oldest first, with the scores that were made from the archive where there are any."""
        scores = read_scores(self._folder)
        found = []
        for row in self._rows(f"SELECT * FROM {reading([self._table('eval_runs')])}"):
            if row["run_id"] not in self._manifest.runs:
                continue
            archived = str(row["aggregate_json"])
            run = Run(
                run_id=str(row["run_id"]),
                suite=str(row["suite"]),
                created_at=str(row["created_at"]),
                commit_hash=row["commit_hash"] or None,
                config_json=str(row["config_snapshot_json"]),
                aggregate_json=scores.get((str(row["run_id"]), _mark(archived)), archived),
                rows=self._part_rows(str(row["run_id"])),
            )
            found.append(run)
        return sorted(found, key=Run.order)

    def _part_rows(self, run_id: str) -> int:
        return self._part(run_id, any_version=True).runs[run_id].rows

    def _table(self, name: str) -> Path:
        found = self._manifest.table(name)
        if found is None or not found.is_file():
            raise self._damaged(found or self._folder / name)
        return found

    def _damaged(self, what: Path) -> DatabaseError:
        return DatabaseError(f"{self.path} is a damaged archive: {what.name} is missing or broken; archive again")

    def _part(self, run_id: str, *, any_version: bool = False) -> Part:
        folder = self._manifest.run_folder(run_id)
        part = read_part(folder, any_version=any_version)
        if part is None or run_id not in part.runs:
            raise self._damaged(folder)
        return part

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        import duckdb

        try:
            cursor = self._reader.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except duckdb.Error as error:
            raise self._damaged(self._folder / "a table") from error

    # --- rows ------------------------------------------------------------------------------------

    def row_digests(self, session: Session, run_ids: Sequence[str]) -> dict[str, str]:  # noqa: ARG002  (as SqliteSource)
        """What the rows of runs are known by, as the archive says."""
        return {run_id: self._part(run_id, any_version=True).runs[run_id].digest for run_id in run_ids}

    def still_kept(self, earlier: Mapping[str, str]) -> set[str]:  # noqa: ARG002
        """An archive holds no earlier rows."""
        return set()

    def labels(self, golden_hash: str) -> Golden | None:
        """The labels of the archive, where they are those."""
        found = self._manifest.table("golden")
        if found is None or self._manifest.golden_hash != golden_hash:
            return None
        return load_golden(found)

    def feed(self, session: Session, run_ids: Sequence[str], earlier: Mapping[str, str] | None = None) -> None:  # noqa: ARG002
        """Say how the session gets at the facts of these runs."""
        choice = Choice.none()
        for run_id in run_ids:
            whole = self._part(run_id, any_version=True)
            if not whole.is_sound(["rows"]):
                raise self._damaged(whole.folder / "rows.parquet")
            part = read_part(whole.folder)
            if part is None or not part.is_sound(ALWAYS):
                continue
            choice.base[run_id] = part
            for relation in MORE:
                if part.holds([relation]) and part.is_sound([relation]):
                    choice.more[relation][run_id] = part
        fresh = [run_id for run_id in run_ids if run_id not in choice.base]
        taken = {part.runs[run_id].numbering for run_id, part in choice.base.items()}
        self._facts = facts = Facts(choice, fresh, new_numbering(taken), self.row_digests(session, run_ids))
        session.add_loaders(self.loaders(run_ids, facts))
        session.add_copies(facts.copies())

    def settled_digests(self, session: Session) -> dict[str, str]:  # noqa: ARG002
        """What the rows of the session's runs are known by."""
        return {} if self._facts is None else self._facts.current

    def keep(self, session: Session) -> None:
        """Nothing is kept: it is all here already."""

    def loaders(self, run_ids: Sequence[str], facts: Facts) -> dict[str, Loader]:
        """How a session gets each stored table."""
        stored = self.runs()
        wanted = set(run_ids)

        def load_runs(session: Session) -> None:
            columns = ("run_id", "suite", "config_snapshot_json", "aggregate_json", "created_at", "commit_hash")
            session.execute(f"CREATE TABLE stored_runs ({', '.join(f'{column} VARCHAR' for column in columns)})")
            for run in stored:
                if run.run_id in wanted:
                    row = [run.run_id, run.suite, run.config_json, run.aggregate_json, run.created_at]
                    session.execute("INSERT INTO stored_runs VALUES (?, ?, ?, ?, ?, ?)", [*row, run.commit_hash or ""])

        number = f"ROW_NUMBER() OVER () + {facts.numbering} * 4294967296"
        selects = {
            "stored_results": f"SELECT {number} AS result_no, * EXCLUDE (result_no) FROM {self._rows_of(facts.fresh)}",
            "stored_places": f"SELECT * FROM {self._rows_of(facts.lacking('hit_claims'))}",
            "stored_anchors": f"SELECT * FROM {self._rows_of(facts.lacking('anchor_rows'))}",
            **{f"stored_{table}": f"SELECT * FROM {reading([self._table(table)])}" for table in OPTIONAL},
        }
        return {
            "stored_runs": load_runs,
            **{name: _view(name, sql) for name, sql in selects.items()},
            "stored_history": self._load_history,
        }

    def _rows_of(self, run_ids: Sequence[str]) -> str:
        paths = [path for run_id in run_ids for path in self._part(run_id, any_version=True).paths("rows")]
        nothing = "(SELECT 0 AS result_no, '' AS run_id, '' AS query_id, '' AS result_json WHERE false)"
        return reading(paths) if paths else nothing

    def _load_history(self, session: Session) -> None:
        session.need("unplaced_chunks")
        ((unplaced,),) = session.rows("SELECT COUNT(*) FROM unplaced_chunks")
        run_ids = list(self._manifest.runs) if unplaced else []
        version = "COALESCE(TRY(CAST(u.config_snapshot_json AS VARCHAR) ->> '$.chunker_version'), '')"
        _view(
            "stored_history",
            f"SELECT {version} AS chunker_version, r.result_json FROM {self._rows_of(run_ids)} AS r"
            f" JOIN {reading([self._table('eval_runs')])} AS u ON u.run_id = r.run_id",
        )(session)

    def result_json(self, run_id: str, query_id: str) -> str | None:
        """One stored row as it stands."""
        found = self._rows(
            f"SELECT result_json FROM {self._rows_of([run_id])} WHERE query_id = {literal(query_id)} LIMIT 1"
        )
        return str(found[0]["result_json"]) if found else None

    def result_texts(self, run_id: str) -> list[str]:
        """Every stored row of a run, in the order in which they were stored."""
        found = self._rows(f"SELECT result_json FROM {self._rows_of([run_id])} ORDER BY result_no")
        return [str(row["result_json"]) for row in found]

    def some_results(self, run_id: str, count: int) -> list[str]:
        """A few stored rows of a run, to see what it is like."""
        found = self._rows(f"SELECT result_json FROM {self._rows_of([run_id])} ORDER BY query_id LIMIT {int(count)}")
        return [str(row["result_json"]) for row in found]

    def chunker_versions(self, chunk_ids: Sequence[str]) -> set[str]:
        """The versions that the tables give for these chunks."""
        wanted = ", ".join(map(literal, sorted(set(chunk_ids)))) or "NULL"
        return {
            str(row["chunker_version"])
            for table in ("chunks", "kbeval_chunk_spans")
            for row in self._rows(
                f"SELECT DISTINCT chunker_version FROM {reading([self._table(table)])} WHERE chunk_id IN ({wanted})"
            )
        }


def _view(name: str, sql: str) -> Loader:
    def load(session: Session) -> None:
        session.execute(f"CREATE VIEW {name} AS {sql}")

    return load


# --- scores, beside the archive ---------------------------------------------------------------------


def _mark(aggregate_json: str) -> str:
    return hashlib.sha256(aggregate_json.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_scores(folder: Path) -> dict[tuple[str, str], str]:
    """Aggregates by run and by the archived aggregate that they stand in for; none where there are none."""
    try:
        found = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        return {(str(run_id), str(mark)): str(text) for run_id, (mark, text) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def write_scores(folder: Path, aggregates: Mapping[str, str]) -> None:
    """Keep the aggregates of runs, all or none of them. An archive that is brought up to date comes before them."""
    import duckdb

    manifest = read_manifest(folder)
    table = manifest.table("eval_runs")
    with duckdb.connect(":memory:") as reader:
        rows = reader.execute(f"SELECT run_id, aggregate_json FROM {reading([table or folder])}").fetchall()
    archived = {str(run_id): _mark(str(text)) for run_id, text in rows}
    if missing := [run_id for run_id in aggregates if run_id not in archived]:
        msg = f"there is no run {missing[0]!r} in the archive, or no longer; nothing was stored"
        raise DatabaseError(msg)
    kept = {
        run_id: [mark, text] for (run_id, mark), text in read_scores(folder).items() if archived.get(run_id) == mark
    }
    kept |= {run_id: [archived[run_id], text] for run_id, text in aggregates.items()}
    write_whole(folder / SCORES, json.dumps(kept, ensure_ascii=False, indent=1, sort_keys=True) + "\n")
