"""Selects the variant of each relation that a scoring uses.

A relation may have several files, `hit_places.sql` and `hit_places@ids.sql`: the same columns, computed with less work
where that is sufficient. A rule is evaluated when its relation is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from kbeval.storage.parts import no_bad_rows

if TYPE_CHECKING:
    from kbeval.engine.session import Choice, Session
    from kbeval.golden import Golden
    from kbeval.scoring.matching import Matching


class Situation(NamedTuple):
    """What one scoring knows about its runs and labels."""

    session: Session
    golden: Golden
    # The systems that runs were imported from.
    systems: Collection[str]
    matching: Matching
    # The database contains judgings.
    is_judged: bool = False

    def has_no_anchors(self) -> bool:
        """No run comes from the anchor-labelled system, and no label names a support."""
        return "anchors" not in self.systems and not self.golden.has("gold_supports")

    def has_no_judgings(self) -> bool:
        """No run was judged here."""
        return not self.is_judged

    def has_no_traces(self) -> bool:
        """No run comes from grounded question answering."""
        return "grounded" not in self.systems

    def ids_decide(self) -> bool:
        """The places of hits and labels matter for no run."""
        return not self.matching.places_matter

    def documents_are_named(self) -> bool:
        """Every hit names its document."""
        return not self.matching.documents_missing

    def ids_decide_and_documents_are_named(self) -> bool:
        """Then the place of a hit is not needed, and its document is known without a table."""
        return self.ids_decide() and self.documents_are_named()

    def hits_name_chunks(self) -> bool:
        """Every hit names its chunk."""
        return not self.matching.names_missing

    def ids_keep_their_text(self) -> bool:
        """No chunk id is reused for other text than before."""
        return not self.matching.ids_reused

    def hits_agree_with_tables(self) -> bool:
        """Every hit of a known chunk states the document and the place that the tables have."""
        self.session.need("hit_sources", "indexed_places")
        # Programs write JSON with spaces or without. Places that differ still do so without spaces.
        return not self.session.rows(
            "SELECT 1 FROM hit_sources AS h JOIN indexed_places AS k"
            " ON k.chunk_id = h.chunk_id AND k.chunker_version = COALESCE(h.chunker_version, k.chunker_version)"
            " WHERE k.doc_id <> h.doc_id"
            " OR REPLACE(k.spans_text, ' ', '') <> REPLACE(COALESCE(h.spans_text, h.cited_text), ' ', '') LIMIT 1"
        )

    def expects_no_chunks(self) -> bool:
        """No label names a chunk or a place."""
        return not (self.golden.has("expected_chunk_ids") or self.golden.has_span_labels)

    def reading_has_no_cost(self) -> bool:
        """No label names a chunk or a place, or no hit has a known length."""
        return self.expects_no_chunks() or (not self.matching.sizes_stated and self._no_hit_has("text"))

    def texts_are_of_no_use(self) -> bool:
        """The length of each hit is known from its own count or from the tables, or no hit has a text."""
        return not self.matching.sizes_missing or self._no_hit_has("text")

    def hits_state_no_spans(self) -> bool:
        """No hit has source_spans."""
        return self._no_hit_has("spans")

    def _no_hit_has(self, what: str) -> bool:
        return no_row_has(self.session, f"may_hold_{what}")

    def ids_compare(self) -> bool:
        """It is known without reading any hit that the ids of labels and hits are comparable, or that this cannot be
        known.
        """
        return self.matching.is_alike

    def chunkers_are_configured(self) -> bool:
        """The configurations state everything that is needed about the chunkers of runs."""
        return self.matching.is_configured

    def is_of_one_chunker(self) -> bool:
        """The configurations of all runs name the same chunker."""
        self.session.need("runs")
        ((versions, unknown),) = self.session.rows(
            "SELECT COUNT(DISTINCT chunker_version), COUNT(*) - COUNT(chunker_version) FROM runs"
        )
        return bool(versions == 1 and not unknown)


# Relation, its variant, and when that is sufficient.
RULES: tuple[tuple[str, str, Callable[[Situation], bool]], ...] = (
    ("anchor_checks", "none", Situation.has_no_anchors),
    ("support_hits", "none", Situation.has_no_anchors),
    ("support_matches", "none", Situation.has_no_anchors),
    ("claim_checks", "none", Situation.has_no_traces),
    ("judgings", "none", Situation.has_no_judgings),
    ("judgements", "none", Situation.has_no_judgings),
    ("judge_checks", "none", Situation.has_no_judgings),
    ("chunk_matches", "ids", Situation.ids_decide),
    ("expected_hits", "ids", Situation.ids_decide),
    ("place_counts", "ids", Situation.ids_decide),
    ("label_ranks", "ids", Situation.ids_decide),
    ("expected_places", "none", Situation.ids_decide),
    ("span_matches", "none", Situation.ids_decide),
    ("hit_places", "ids", Situation.ids_decide_and_documents_are_named),
    ("hit_docs", "named", Situation.documents_are_named),
    ("reading_cost", "none", Situation.reading_has_no_cost),
    ("hit_texts", "none", Situation.texts_are_of_no_use),
    ("hits_to_keep", "none", Situation.hits_state_no_spans),
    ("nameless_hits", "none", Situation.hits_name_chunks),
    ("told_places", "none", Situation.ids_keep_their_text),
    ("displaced_hits", "none", Situation.hits_agree_with_tables),
    ("run_matching", "alike", Situation.ids_compare),
    ("run_chunkers", "configured", Situation.chunkers_are_configured),
    ("hit_chunks", "alike", Situation.is_of_one_chunker),
)
# The relations that have a variant.
VARIED = frozenset(relation for relation, _, _ in RULES)


def chunks_stay_in_place(session: Session) -> bool:
    """The table has every kept chunk that it contains at the place that was kept, with the same text."""
    session.need("chunks", "kept_chunks")
    return not session.rows(
        "SELECT 1 FROM kept_chunks AS a JOIN chunks AS c USING (chunk_id, chunker_version, policy_hash)"
        " WHERE a.doc_id <> c.doc_id OR a.spans_text <> c.spans_text LIMIT 1"
    )


def no_row_has(session: Session, condition: str) -> bool:
    """Known only if all rows were read in this session; otherwise false."""
    if session.is_kept("results") or "stored_results" not in session.handed_in:
        return False
    session.need("parsed")
    return not session.rows(f"SELECT 1 FROM parsed WHERE {condition} LIMIT 1")


def answers_cite_nothing(session: Session) -> bool:
    """No answer has a citation."""
    return no_row_has(session, "len(r.answer.citations) > 0")


def nothing_is_cited(session: Session) -> bool:
    """As above, evaluated once."""
    session.need("cited_places")
    return session.is_built_empty("cited_places")


def no_chunk_has_spans(session: Session) -> bool:
    """Neither the table `chunks` nor the kept chunks have a text of spans."""
    session.need("chunks", "kept_chunks")
    return not session.rows(
        "SELECT 1 FROM (SELECT spans_text FROM chunks UNION ALL SELECT spans_text FROM kept_chunks)"
        " WHERE spans_text IS NOT NULL LIMIT 1"
    )


def ranks_are_positions(session: Session) -> bool:
    """Every rank is the position of its hit in the list."""
    session.need("parsed_hits")
    return not session.rows("SELECT 1 FROM parsed_hits WHERE rank <> position LIMIT 1")


def ranks_and_rows_are_sound(session: Session) -> bool:
    """As above, and every row can be read. Hits in files are as they should be, and no row is read for them."""
    if session.is_kept("hits"):
        return False
    session.need("tied_ranks")
    return session.is_built_empty("tied_ranks") and no_bad_rows(session) is not None


def nothing_moved(session: Session) -> bool:
    """As above, evaluated once."""
    session.need("moved_chunks")
    return session.is_built_empty("moved_chunks")


def labels_are_placed(session: Session) -> bool:
    """The tables know the place of every expected chunk."""
    session.need("unplaced_chunks")
    return not session.rows("SELECT 1 FROM unplaced_chunks LIMIT 1")


def no_span_is_a_region(session: Session) -> bool:
    """None of the spans that are compared is a region."""
    session.need("span_sets")
    return not session.rows("SELECT 1 FROM span_sets WHERE axis = 'region' LIMIT 1")


def spans_are_on_lines(session: Session) -> bool:
    """As above, evaluated once."""
    session.need("complex_sets")
    return session.is_built_empty("complex_sets")


def engine_is_elsewhere(session: Session) -> bool:
    """The rows are read by another engine, which folds letters in its own way."""
    return session.is_far


# As RULES, for conditions that depend on relations only, not on the scoring.
STORED_RULES: tuple[tuple[str, str, Callable[[Session], bool]], ...] = (
    ("chunks", "none", lambda session: "stored_chunks" in session.empty),
    ("documents", "none", lambda session: "stored_documents" in session.empty),
    ("kept_chunks", "none", lambda session: "stored_kbeval_chunk_spans" in session.empty),
    ("moved_chunks", "none", chunks_stay_in_place),
    ("known_places", "settled", nothing_moved),
    ("sightings", "none", labels_are_placed),
    ("timeouts", "archived", engine_is_elsewhere),
    ("bad_claims", "none", lambda session: no_bad_rows(session) is not None),
    ("table_spans", "none", no_chunk_has_spans),
    ("tied_ranks", "none", ranks_are_positions),
    ("hits", "plain", ranks_and_rows_are_sound),
    ("cited_places", "none", answers_cite_nothing),
    ("citation_checks", "none", nothing_is_cited),
    ("complex_sets", "none", no_span_is_a_region),
    ("span_pieces", "lines", spans_are_on_lines),
)


def stored_choices() -> dict[str, Choice]:
    """As `choices`, for the relations of STORED_RULES."""

    def choose(variant: str, will_do: Callable[[Session], bool]) -> Choice:
        return lambda session: variant if will_do(session) else None

    return {relation: choose(variant, will_do) for relation, variant, will_do in STORED_RULES}


def choices(situation: Situation) -> dict[str, Choice]:
    """For each relation that has a variant, how to decide whether it is sufficient."""

    def choose(variant: str, will_do: Callable[[Situation], bool]) -> Choice:
        return lambda _: variant if will_do(situation) else None

    return {relation: choose(variant, will_do) for relation, variant, will_do in RULES}
