"""What the relations of a session contain about some queries, by run and query. Queries are read in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kbeval.engine.session import Session
from kbeval.explore.inspect import Label
from kbeval.report.marks import Shared
from kbeval.scoring.scorer import StoredScoring

Key = tuple[str, str]
# Larger numbers are not positions in a text.
_FARTHEST = 1e12
# More chunks at one place would be a text of many pages.
_MOST_CHUNKS = 40


class Result(NamedTuple):
    """The result of a query in a run."""

    failed: bool
    error: str | None
    ms: float | None
    refused: bool | None
    flagged: bool


class Reference(NamedTuple):
    """What a reference of an answer leads to: an expected support, the rank of a hit. None: nothing."""

    support: int | None
    rank: int | None


class Place(NamedTuple):
    """A part of an expected place, on its axis; the end is excluded."""

    axis: str
    low: int
    high: int


class Near(NamedTuple):
    """A chunk of the table `chunks` that overlaps an expected place, with its own place."""

    chunk_id: str
    version: str
    axis: str
    low: int
    high: int


class Facts:
    """The session, with all relations built that are read later."""

    def __init__(self, scoring: StoredScoring) -> None:
        session = scoring.session
        session.need(
            "results", "per_query", "hit_docs", "hit_places", "hit_labels", "matching", "citation_checks",
            "known_chunks", "rule_checks", "expected_spans", "table_spans", "chunks",
        )  # fmt: skip
        self.session: Session = session
        self.has_anchors = "anchor_rows" in session.built
        self.has_places = "span_pieces" in session.built
        self.is_judged = bool(scoring.rubrics)
        ((known,),) = session.rows("SELECT COUNT(*) FROM (SELECT 1 FROM known_chunks LIMIT 1)")
        self.knows_chunks = bool(known)
        # Views over many relations, stored as tables because they are read many times.
        session.execute(
            "CREATE OR REPLACE TEMP TABLE report_labels AS SELECT run_id, query_id, position, kind, label, counts,"
            " shared, hit_size, label_size FROM hit_labels"
        )
        if self.has_places:
            session.execute(_SHARED)
        ((places,),) = session.rows(f"SELECT COUNT(*) FROM ({_UNTOLD} LIMIT 1)")
        self._has_untold = bool(places)
        if self._has_untold:
            session.execute(_CHUNK_PLACES)
        self.judged_rubrics: dict[str, set[str]] = {}
        if self.is_judged:
            session.need("judgings", "judgements", "judged_claims")
            for run_id, rubric in session.rows("SELECT run_id, rubric FROM judgings WHERE is_chosen"):
                self.judged_rubrics.setdefault(run_id, set()).add(rubric)

    def about(self, query_ids: Sequence[str]) -> BatchFacts:
        """What is known about these queries, in every run of the session."""
        return BatchFacts(self, list(query_ids))

    def rows_with(self, chunk_ids: Sequence[str]) -> list[tuple[str, str, str]]:
        """For each of these chunks and each run, one query that it is a hit of: chunk, run, query."""
        return [
            (chunk_id, run_id, query_id)
            for chunk_id, run_id, query_id in self.session.rows(
                "SELECT h.chunk_id, r.run_id, MIN(r.query_id) FROM hit_docs AS h"
                " JOIN results AS r ON r.result_no = h.result_no WHERE h.chunk_id IN (SELECT UNNEST($1))"
                " GROUP BY ALL ORDER BY ALL",
                [list(chunk_ids)],
            )
        ]


class BatchFacts:
    """The facts about some queries."""

    def __init__(self, facts: Facts, query_ids: list[str]) -> None:
        self._facts = facts
        self._ids = query_ids
        self.results: dict[Key, Result] = {
            (run_id, query_id): Result(*rest)
            for run_id, query_id, *rest in self._rows(
                "SELECT r.run_id, r.query_id, r.failed, r.error, p.elapsed_ms, r.refused, r.flagged FROM results AS r"
                " LEFT JOIN per_query AS p ON p.result_no = r.result_no"
                " WHERE r.query_id IN (SELECT UNNEST($1))"
            )
        }
        self.hits: dict[Key, list[tuple[Any, ...]]] = {}
        for run_id, query_id, *hit in self._rows(
            "SELECT r.run_id, r.query_id, h.rank, h.position, h.chunk_id, h.doc_id, h.score, p.spans_text"
            " FROM hit_docs AS h JOIN results AS r ON r.result_no = h.result_no"
            " LEFT JOIN hit_places AS p ON p.result_no = h.result_no AND p.position = h.position"
            " WHERE h.rank IS NOT NULL AND r.query_id IN (SELECT UNNEST($1))"
            " ORDER BY r.run_id, r.query_id, h.rank, h.position"
        ):
            self.hits.setdefault((run_id, query_id), []).append(tuple(hit))
        self.labels: dict[tuple[str, str, int], list[Label]] = {}
        for run_id, query_id, position, *label in self._rows(
            "SELECT * FROM report_labels WHERE query_id IN (SELECT UNNEST($1))"
            " ORDER BY run_id, query_id, position, counts DESC, kind, label"
        ):
            self.labels.setdefault((run_id, query_id, position), []).append(Label(*label))
        self.matching: dict[Key, str] = {
            (run_id, query_id): way
            for run_id, query_id, way in self._rows(
                "SELECT r.run_id, r.query_id, m.matching FROM matching AS m"
                " JOIN results AS r ON r.result_no = m.result_no WHERE r.query_id IN (SELECT UNNEST($1))"
            )
        }
        self.citations: dict[Key, dict[int, bool]] = {}
        for run_id, query_id, number, is_real in self._rows(
            "SELECT r.run_id, r.query_id, c.citation_no, c.is_real FROM citation_checks AS c"
            " JOIN results AS r ON r.result_no = c.result_no WHERE r.query_id IN (SELECT UNNEST($1))"
        ):
            self.citations.setdefault((run_id, query_id), {})[number] = is_real
        self.rules: dict[Key, list[tuple[bool, str, bool]]] = {}
        for run_id, query_id, *rule in self._rows(
            "SELECT r.run_id, r.query_id, c.must_contain, c.needle, c.is_kept FROM rule_checks AS c"
            " JOIN results AS r ON r.result_no = c.result_no WHERE NOT r.failed AND r.query_id IN (SELECT UNNEST($1))"
            " ORDER BY r.run_id, r.query_id, c.must_contain DESC, c.needle"
        ):
            self.rules.setdefault((run_id, query_id), []).append((rule[0], rule[1], rule[2]))
        self._read_places()
        self._read_references()
        self._read_judgements()

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._facts.session.rows(sql, [self._ids])

    def _read_places(self) -> None:
        """Where hits overlap the expected text, and where expected text is that cannot be found by chunk id."""
        # By run, query and hit: the shared parts. By query and label: the hits that share it, in any run.
        self.shared: dict[tuple[str, str, int], list[Shared]] = {}
        self.sharing: dict[Key, list[tuple[str, int, Shared]]] = {}
        # By query and label: its parts, and the chunks that overlap them.
        self.places: dict[Key, list[Place]] = {}
        self.near: dict[Key, list[Near]] = {}
        if self._facts.has_places:
            for run_id, query_id, position, label, axis, *ends in self._rows(
                "SELECT * FROM report_shared WHERE query_id IN (SELECT UNNEST($1)) ORDER BY ALL"
            ):
                shared = Shared(axis, *map(int, ends))
                self.shared.setdefault((run_id, query_id, position), []).append(shared)
                self.sharing.setdefault((query_id, label), []).append((run_id, position, shared))
        for query_id, label, axis, low, high in self._rows(
            "SELECT e.query_id, e.place, e.axis, e.low, e.high FROM expected_spans AS e"
            f" WHERE e.query_id IN (SELECT UNNEST($1)) AND GREATEST(ABS(e.low), ABS(e.high)) < {_FARTHEST:g}"
            " ORDER BY e.query_id, e.place, e.low, e.high, e.axis"
        ):
            self.places.setdefault((query_id, label), []).append(Place(axis, int(low), int(high)))
        if self._facts._has_untold:  # noqa: SLF001  (of this module)
            for query_id, label, chunk_id, version, axis, low, high in self._rows(_NEAR):
                found_near = self.near.setdefault((query_id, label), [])
                found_near.append(Near(chunk_id, version, axis, int(low), int(high)))

    def _read_references(self) -> None:
        self.references: dict[Key, dict[int, Reference]] = {}
        if not self._facts.has_anchors:
            return
        self._facts.session.need("supports", "hit_anchors")
        for run_id, query_id, number, *leads in self._rows(_REFERENCES):
            self.references.setdefault((run_id, query_id), {})[number] = Reference(*leads)

    def _read_judgements(self) -> None:
        self.judgements: dict[Key, list[tuple[Any, ...]]] = {}
        self.claims: dict[tuple[str, str, str], list[tuple[bool, str]]] = {}
        if not self._facts.is_judged:
            return
        for run_id, query_id, *said in self._rows(
            "SELECT run_id, query_id, rubric, model, score, why, reasoning FROM judgements"
            " WHERE query_id IN (SELECT UNNEST($1)) ORDER BY run_id, query_id, rubric"
        ):
            self.judgements.setdefault((run_id, query_id), []).append(tuple(said))
        for run_id, query_id, rubric, supported, claim in self._rows(
            "SELECT run_id, query_id, rubric, is_supported, claim FROM judged_claims"
            " WHERE claim IS NOT NULL AND query_id IN (SELECT UNNEST($1))"
            " ORDER BY run_id, query_id, rubric, is_supported, place"
        ):
            self.claims.setdefault((run_id, query_id, rubric), []).append((supported, claim))


# --- SQL for what is shown; none of it decides a number --------------------------------------------

_SHARED = f"""
CREATE OR REPLACE TEMP TABLE report_shared AS
WITH single AS (
    SELECT major, minor, axis, MIN(low) AS low, MIN(high) AS high
    FROM span_pieces WHERE owner = 'hit' AND axis IN ('line', 'char', 'byte')
    GROUP BY major, minor, axis HAVING COUNT(*) = 1
)
SELECT
    r.run_id, r.query_id, l.position, l.label, a.axis,
    a.low, a.high, GREATEST(a.low, b.low) AS from_here, LEAST(a.high, b.high) AS to_here
FROM hit_labels AS l
JOIN results AS r ON r.result_no = l.result_no
JOIN single AS a
    ON a.major = CAST(l.result_no AS VARCHAR) AND a.minor = CAST(l.position AS VARCHAR)
JOIN span_pieces AS b
    ON b.owner = 'place' AND b.major = r.query_id AND b.minor = l.label AND b.axis = a.axis
WHERE a.low < b.high AND b.low < a.high AND l.kind IN ('chunk', 'span')
  AND GREATEST(ABS(a.low), ABS(a.high), ABS(b.low), ABS(b.high)) < {_FARTHEST:g}
"""

# Places whose text cannot be found by chunk id.
_UNTOLD = """
SELECT p.query_id, p.place, p.doc_id
FROM expected_places AS p
WHERE p.doc_id IS NOT NULL AND (p.is_span_label OR p.place NOT IN (SELECT chunk_id FROM chunks))
"""

_CHUNK_PLACES = f"""
CREATE OR REPLACE TEMP TABLE report_chunk_places AS
SELECT c.chunk_id, c.chunker_version, c.doc_id, s.axis, MIN(s.low) AS low, MIN(s.high) AS high
FROM chunks AS c
JOIN table_spans AS s ON s.text_key = span_key(c.spans_text)
WHERE s.is_place AND s.axis <> 'region' AND c.doc_id IN (SELECT doc_id FROM ({_UNTOLD}))
  AND GREATEST(ABS(s.low), ABS(s.high)) < {_FARTHEST:g}
GROUP BY c.chunk_id, c.chunker_version, c.policy_hash, c.doc_id, s.axis
HAVING COUNT(*) = 1
"""

_NEAR = f"""
SELECT query_id, place, chunk_id, chunker_version, axis, low, high
FROM (
    SELECT
        u.query_id, u.place, c.chunk_id, c.chunker_version, c.axis, c.low, c.high,
        ROW_NUMBER() OVER (
            PARTITION BY u.query_id, u.place ORDER BY c.low, c.high DESC, c.chunk_id, c.chunker_version
        ) AS number
    FROM ({_UNTOLD}) AS u
    JOIN expected_spans AS e ON e.query_id = u.query_id AND e.place = u.place
    JOIN report_chunk_places AS c ON c.doc_id = u.doc_id AND c.axis = e.axis AND c.low < e.high AND e.low < c.high
    WHERE u.query_id IN (SELECT UNNEST($1))
)
WHERE number <= {_MOST_CHUNKS}
ORDER BY ALL
"""

_REFERENCES = """
WITH listed AS (
    SELECT
        r.result_no, r.run_id, r.query_id, f.number,
        f.reference.rel_path AS path, canonical_headings(f.reference.heading_path) AS headings
    FROM (
        SELECT
            result_no,
            UNNEST(range(1, len(reference_list) + 1)) AS number,
            UNNEST(reference_list)                    AS reference
        FROM anchor_rows
    ) AS f
    JOIN results AS r ON r.result_no = f.result_no
    WHERE r.query_id IN (SELECT UNNEST($1))
)
SELECT l.run_id, l.query_id, l.number, MIN(s.support_no), MIN(h.rank)
FROM listed AS l
LEFT JOIN supports AS s
    ON s.query_id = l.query_id AND s.path = l.path AND LEFT(l.headings, LENGTH(s.headings)) = s.headings
LEFT JOIN hit_anchors AS a ON a.result_no = l.result_no AND a.path = l.path AND a.headings = l.headings
LEFT JOIN hit_docs AS h ON h.result_no = a.result_no AND h.position = a.position
GROUP BY ALL
ORDER BY ALL
"""
