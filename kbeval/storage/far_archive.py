"""An archive whose rows and hits are read by an engine elsewhere. Only tables that all runs share are read here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.engine.exchange import Exchange
from kbeval.engine.far_session import FarSession
from kbeval.engine.spark import SparkConnect
from kbeval.errors import DatabaseError, UsageError
from kbeval.storage.archive import ArchiveSource
from kbeval.storage.cache import Choice, Facts
from kbeval.storage.database_file import is_archive
from kbeval.storage.manifest import RUNS, damaged
from kbeval.storage.parts import ALWAYS, ELSEWHERE, Part, read_part
from kbeval.storage.runs import REPEATED_ROW, KeyFault

if TYPE_CHECKING:
    from kbeval.engine.session import Session
    from kbeval.storage.options import ReadOptions

_NEEDED = (*ALWAYS, "hit_claims", *ELSEWHERE[""])
_OF_ANCHORS = ("anchor_rows", *ELSEWHERE["anchors"])


class FarArchive(ArchiveSource):
    """As ArchiveSource, for a session that has an engine elsewhere."""

    def __init__(self, path: str | os.PathLike[str], session: FarSession) -> None:
        super().__init__(path, session.connection)
        self._session = session

    def _current(self, run_id: str) -> Part:
        """The files of a run, all of which must be there: nothing is parsed from its rows."""
        stored = self._part(run_id)
        part = read_part(stored.folder)
        if part is None or not part.holds(_NEEDED):
            msg = (
                f"run {run_id!r} in {self.path} was archived by another version, so an engine elsewhere cannot read it:"
                " archive the database again with this version"
            )
            raise DatabaseError(msg)
        # By their sizes: to compute a checksum is to read everything.
        if not part.is_whole():
            raise damaged(self.path, f"{RUNS}/{part.folder.name}")
        return part

    def repeated_rows(self, run_ids: Sequence[str]) -> list[KeyFault]:
        if not run_ids:
            return []
        engine = self._session.engine
        engine.read("stored_keys", [path for run_id in run_ids for path in self._current(run_id).paths("results")])
        found = engine.rows(
            "SELECT run_id, query_id, COUNT(*) AS n FROM stored_keys GROUP BY run_id, query_id HAVING COUNT(*) > 1"
            " ORDER BY run_id, query_id"
        )
        return [KeyFault(REPEATED_ROW, str(run_id), str(query_id), int(n)) for run_id, query_id, n in found]

    def feed(self, session: Session, run_ids: Sequence[str], earlier: Mapping[str, str] | None = None) -> None:  # noqa: ARG002  (as StoredSource)
        """Register which files the engine reads for each relation, and how this session loads the tables."""
        parts = {run_id: self._current(run_id) for run_id in run_ids}
        files: dict[str, list[Path]] = {}
        for part in parts.values():
            for relation in part.files:
                if relation != "rows":
                    files.setdefault(relation, []).extend(part.paths(relation))
        self._session.add_archived(files)
        self._facts = facts = Facts(Choice.none(), [], 0, self.row_digests(session, run_ids))
        session.add_loaders(self.loaders(run_ids, facts))
        session.add_loaders({"archived_versions": self._load_versions})
        self._session.add_lazily(self._history)
        lacking = [run_id for run_id, part in parts.items() if not part.holds(_OF_ANCHORS)]
        if lacking:
            self._refuse_supports(files, lacking)

    def _refuse_supports(self, files: Mapping[str, Sequence[Path]], lacking: Sequence[str]) -> None:
        """Where labels name supports, the hits of all runs are compared with them; not every archive has that."""

        def load(session: Session) -> None:
            session.need("supports")
            has_supports = session.rows("SELECT 1 FROM supports LIMIT 1")
            if has_supports or not files.get("anchor_rows"):
                msg = (
                    f"run {lacking[0]!r} in {self.path} was archived without what gold_supports are compared with:"
                    " archive the database again with this golden file (--golden)"
                )
                raise DatabaseError(msg)

        self._session.add_checks(dict.fromkeys(_OF_ANCHORS, load))

    def _load_versions(self, session: Session) -> None:
        """The chunker of every run of the archive, as its configuration says."""
        version = "COALESCE(TRY(CAST(config_snapshot_json AS VARCHAR) ->> '$.chunker_version'), '')"
        session.execute(
            f"CREATE TABLE archived_versions AS SELECT CAST(run_id AS VARCHAR) AS run_id,"
            f" NULLIF({version}, '') AS chunker_version FROM {self._table('eval_runs')}"
        )

    def _history(self) -> dict[str, list[Path]]:
        """The files of all runs of the archive, for what any of them may say about a chunk."""
        parts = [self._current(run_id) for run_id in self._manifest.runs]
        return {
            relation: [path for part in parts for path in part.paths(whole)]
            for relation, whole in (
                ("archived_claims", "hit_claims"),
                ("archived_results", "results"),
                ("archived_bad_claims", "bad_claims"),
            )
        }


@contextlib.contextmanager
def open_far_archive(path: Path, options: ReadOptions) -> Iterator[tuple[FarSession, FarArchive]]:
    """A session with an engine elsewhere, and the archive that it reads."""
    if not is_archive(path):
        advice = "make one with 'kbeval archive FOLDER', and specify it with --db"
        msg = f"--engine reads archives, and {path} is not one; {advice}"
        raise UsageError(msg)
    engine = SparkConnect(options.engine)
    with contextlib.ExitStack() as stack:
        stack.callback(engine.stop)
        # The server must know the place by the same name.
        folder = path.resolve()
        exchange = Exchange(folder)
        stack.callback(exchange.remove)
        session = FarSession(engine, exchange.folder, **options.session_settings(path, [folder, exchange.folder]))
        stack.enter_context(session)
        session.check_place()
        yield session, stack.enter_context(FarArchive(folder, session))
