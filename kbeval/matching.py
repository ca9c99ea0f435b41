"""How the hits of runs are matched, and so which variants of the relations a scoring needs.

The rule itself is in `sql/matches/run_matching.sql`. Here it is found out when it need not be asked at all: mostly the
labels are the chunks of the one chunker that there is, and then neither the places nor the chunkers of hits matter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbeval.engine import Choice, Session
    from kbeval.golden import Golden
    from kbeval.scoring import ScoreOptions


class Matching:
    """What one scoring knows about how its runs are matched."""

    def __init__(
        self, session: Session, golden: Golden, options: ScoreOptions, stored_versions: Collection[str | None]
    ) -> None:
        """`stored_versions`: the chunker versions that the configurations of all stored runs name, None among them."""
        self._session = session
        self._golden = golden
        self._options = options
        self._stored_versions = set(stored_versions)

    def choices(self) -> dict[str, Choice]:
        """For each relation that has a variant, whether that will do."""

        def when(will_do: Callable[[], bool], variant: str) -> Choice:
            return lambda _: variant if will_do() else None

        by_ids = ("chunk_matches", "first_finds", "place_counts")
        return {
            **{name: when(lambda: not self.places_matter, "ids") for name in by_ids},
            **{name: when(lambda: not self.places_matter, "none") for name in ("expected_places", "span_matches")},
            "run_matching": when(lambda: self._is_alike, "alike"),
            "run_chunkers": when(lambda: self._is_configured, "configured"),
            "hit_places": when(lambda: not self.places_matter and not self._documents_missing, "ids"),
            "hit_docs": when(lambda: not self._documents_missing, "named"),
            "reading_cost": when(lambda: not self._expects_chunks, "none"),
            "hit_texts": when(lambda: not self._sizes_missing, "none"),
        }

    @functools.cached_property
    def places_matter(self) -> bool:
        """Does it matter for any run where hits and labels stand?"""
        if self._options.match == "span" or self._golden.has_span_labels:
            return True
        if self._options.match == "exact":
            return False
        self._session.need("run_matching")
        ((by_span,),) = self._session.rows("SELECT COUNT(*) FROM run_matching WHERE matching = 'span'")
        return bool(by_span)

    @property
    def _expects_chunks(self) -> bool:
        return self._golden.has("expected_chunk_ids") or self._golden.has_span_labels

    def of_runs(self) -> dict[str, str]:
        """How each run is matched: `exact` or `span`."""
        self._session.need("run_matching")
        return dict(self._session.rows("SELECT run_id, matching FROM run_matching"))

    @functools.cached_property
    def _is_alike(self) -> bool:
        """Is it clear without a look at any hit that the ids of labels and hits compare, or that nothing tells?"""
        session = self._session
        session.need("archived_chunks", "chunks", "expected_chunks", "runs")
        ((unnamed, named, indexed, versions, policies, labels, unknown, gone, sighted),) = session.rows(
            """
            WITH indexed AS (
                SELECT chunker_version, policy_hash FROM chunks
                UNION
                SELECT chunker_version, policy_hash FROM archived_chunks WHERE seen_in = 'chunks'
            )
            SELECT
                (SELECT COUNT(*) FROM runs WHERE chunker_version IS NULL),
                (SELECT COUNT(DISTINCT chunker_version) FROM runs),
                (SELECT COUNT(*) FROM indexed),
                (
                    SELECT COUNT(DISTINCT chunker_version)
                    FROM (SELECT chunker_version FROM indexed UNION SELECT chunker_version FROM runs)
                ),
                (
                    -- Chunks kept from before policies were known may be another text than those of a policy.
                    SELECT COUNT(DISTINCT policy_hash)
                    FROM (SELECT policy_hash FROM indexed UNION SELECT NULLIF(policy_hash, '') FROM runs)
                ),
                (SELECT COUNT(*) FROM expected_chunks),
                (SELECT COUNT(*) FROM expected_chunks WHERE chunk_id NOT IN (SELECT chunk_id FROM chunks)),
                (
                    SELECT COUNT(*)
                    FROM archived_chunks
                    WHERE seen_in = 'chunks' AND chunk_id NOT IN (SELECT chunk_id FROM chunks)
                ),
                (
                    SELECT COUNT(*)
                    FROM archived_chunks
                    WHERE seen_in = 'hits' AND chunk_id IN (SELECT chunk_id FROM expected_chunks)
                )
            """
        )
        if self._options.together and (named > 1 or (named and unnamed)):
            # Whether the chunkers of two runs differ is asked whatever the labels are.
            return False
        if not labels:
            return not (self._options.together and unnamed)
        if versions <= 1 and policies <= 1 and not (unknown or gone):
            return not unnamed or not (self._options.together or self._hits_name_chunkers)
        if indexed or sighted:
            return False
        if len(self._stored_versions) == 1 and None not in self._stored_versions:
            return True
        return not named and not self._hits_name_chunkers

    @property
    def _hits_name_chunkers(self) -> bool:
        self._session.need("hits")
        return bool(self._session.rows("SELECT 1 FROM hits WHERE chunker_version IS NOT NULL LIMIT 1"))

    @functools.cached_property
    def _is_configured(self) -> bool:
        """Do the configurations say all that must be known about the chunkers of runs?"""
        if not self._is_alike:
            return False
        ((unnamed, policies),) = self._session.rows(
            "SELECT (SELECT COUNT(*) FROM runs WHERE chunker_version IS NULL),"
            " (SELECT COUNT(DISTINCT policy_hash) FROM (SELECT policy_hash FROM chunks"
            " UNION SELECT policy_hash FROM archived_chunks) WHERE policy_hash <> '')"
        )
        return not unnamed and policies <= 1

    @functools.cached_property
    def _documents_missing(self) -> bool:
        """Is there a hit that does not name its document?"""
        self._session.need("hits")
        return bool(self._session.rows("SELECT 1 FROM hits WHERE doc_id IS NULL LIMIT 1"))

    @functools.cached_property
    def _sizes_missing(self) -> bool:
        """Is there a hit of which neither its own count nor the tables tell how long it is?"""
        self._session.need("read_hits")
        return bool(self._session.rows("SELECT 1 FROM read_hits WHERE tokens IS NULL LIMIT 1"))
