"""How the hits of runs are matched.

The rule itself is in `sql/matching/run_matching.sql`. This module decides when it need not be evaluated: usually the
labels are chunks of the only chunker, and then neither the places nor the chunkers of hits matter.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbeval.engine.session import Session
    from kbeval.golden import Golden
    from kbeval.scoring.options import ScoreOptions


class MatchedRun(NamedTuple):
    """A row of `run_matching`, without what only SQL reads."""

    run_id: str
    chunker_version: str | None
    n_expected: int
    n_foreign: int
    n_unclear: int
    owner: str | None
    is_nameless: bool
    # exact, span or none.
    matching: str


class Matching:
    """What one scoring knows about how its runs are matched."""

    def __init__(
        self,
        session: Session,
        golden: Golden,
        options: ScoreOptions,
        stored_versions: Collection[str | None],
        *,
        together: bool = False,
    ) -> None:
        """`stored_versions`: the chunker versions named by the configurations of all stored runs, possibly with None.
        `together`: all runs must be matched in the same way.
        """
        self._session = session
        self._golden = golden
        self._options = options
        self._together = together
        self._stored_versions = set(stored_versions)

    @functools.cached_property
    def places_matter(self) -> bool:
        """Does the place of hits and labels matter for any run?"""
        if self._options.match == "span" or self._golden.has_span_labels:
            return True
        if self._options.match == "exact":
            return False
        return any(run.matching != "exact" for run in self.runs)

    @functools.cached_property
    def runs(self) -> list[MatchedRun]:
        """How each run is matched, sorted by their ids; read once, for many questions."""
        self._session.need("run_matching")
        sql = f"SELECT {', '.join(MatchedRun._fields)} FROM run_matching ORDER BY run_id"
        return [MatchedRun(*row) for row in self._session.rows(sql)]

    @functools.cached_property
    def foreign_runs(self) -> list[MatchedRun]:
        """Runs that cannot hit most expected chunks by id, because the labels refer to other chunks."""
        if not any(run.n_foreign for run in self.runs):
            return []
        self._session.need("foreign_runs")
        found = {run_id for (run_id,) in self._session.rows("SELECT run_id FROM foreign_runs")}
        return [run for run in self.runs if run.run_id in found]

    def of_runs(self) -> dict[str, str]:
        """How each run is matched: `exact` or `span`; `none` if matching is impossible."""
        found = {run.run_id: run.matching for run in self.runs}
        if self._golden.has_span_labels and not any(entry.get("expected_chunk_ids") for entry in self._golden.entries):
            # No label names a chunk, so nothing is matched by id, whatever was requested.
            return {run_id: "span" if way == "exact" else way for run_id, way in found.items()}
        return found

    def _counts(self, *names: str) -> list[int]:
        """The rows of `version_counts`, read once: planning the query takes longer than running it."""
        return [self._all_counts[name] for name in names]

    @functools.cached_property
    def _all_counts(self) -> dict[str, int]:
        self._session.need("version_counts")
        return dict(self._session.rows("SELECT name, n FROM version_counts"))

    @functools.cached_property
    def is_alike(self) -> bool:
        """Is it known without reading any hit that the ids of labels and hits are comparable, or that this cannot be
        known?
        """
        unnamed, named, labels = self._counts("n_runs_unnamed", "n_versions_named", "n_labels")
        if self._together and (named > 1 or (named and unnamed)):
            # Whether the chunkers of two runs differ matters whatever the labels are.
            return False
        if not labels:
            return not (self._together and unnamed)
        # By id, hits that do not name a chunk cannot be expected ones.
        return not self.names_missing and self._is_one_index

    @property
    def _is_one_index(self) -> bool:
        """As `is_alike`, if chunks are expected and all hits name theirs."""
        unnamed, named, indexed, versions, policies = self._counts(
            "n_runs_unnamed", "n_versions_named", "n_indexed", "n_versions", "n_policies"
        )
        unknown, gone, moved, sighted = self._counts(
            "n_labels_unknown", "n_chunks_gone", "n_chunks_moved", "n_labels_sighted"
        )
        if versions <= 1 and policies <= 1 and not (unknown or gone or moved):
            return not unnamed or not (self._together or self._hits_name_chunkers)
        if indexed or sighted:
            return False
        if len(self._stored_versions) == 1 and None not in self._stored_versions:
            return True
        return not named and not self._hits_name_chunkers

    @functools.cached_property
    def _hits_have(self) -> tuple[int, int, int, int, int, int]:
        """How many hits there are, and how many name their chunk, their document, the chunker, their size, and their
        chunk or document.
        """
        self._session.need("hits")
        (found,) = self._session.rows(
            "SELECT COUNT(*), COUNT(chunk_id), COUNT(doc_id), COUNT(chunker_version), COUNT(token_count),"
            " COUNT(COALESCE(chunk_id, doc_id)) FROM hits"
        )
        hits, chunks, documents, chunkers, sizes, named = found
        return hits, chunks, documents, chunkers, sizes, named

    @property
    def names_missing(self) -> bool:
        """Is there a hit that does not name its chunk?"""
        hits, chunks, *_ = self._hits_have
        return chunks < hits

    @functools.cached_property
    def ids_reused(self) -> bool:
        """Does the table reuse an id for other text than before?"""
        self._session.need("reused_chunks")
        return bool(self._session.rows("SELECT 1 FROM reused_chunks LIMIT 1"))

    @property
    def _hits_name_chunkers(self) -> bool:
        return self._hits_have[3] > 0

    @functools.cached_property
    def is_configured(self) -> bool:
        """Do the configurations state everything that is needed about the chunkers of runs, or that can be known?"""
        unnamed, policies, indexed = self._counts("n_runs_unnamed", "n_policies_of_chunks", "n_indexed")
        if not indexed and not self._hits_name_chunkers:
            return True
        return self.is_alike and not unnamed and policies <= 1

    @property
    def documents_missing(self) -> bool:
        """Is there a hit that does not name its document?"""
        hits, _, documents, *_ = self._hits_have
        return documents < hits

    @property
    def ids_missing(self) -> bool:
        """Is there a hit that names neither its chunk nor its document?"""
        hits, *_, named = self._hits_have
        return named < hits

    @property
    def sizes_stated(self) -> bool:
        """Does a hit state its length, or do the tables have one?"""
        return self._hits_have[4] > 0 or self._counts("n_sizes") != [0]

    @functools.cached_property
    def sizes_missing(self) -> bool:
        """Is there a hit whose length is known neither from its own count nor from the tables?"""
        self._session.need("read_hits")
        return bool(self._session.rows("SELECT 1 FROM read_hits WHERE tokens IS NULL LIMIT 1"))
