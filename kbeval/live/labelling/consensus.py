"""The decisions of several people about the same item: whether they disagree, and whether that is settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbeval.live.labelling.agreement import same_texts, vote_of
from kbeval.live.labelling.candidates import Candidate
from kbeval.storage.labels import ANSWERABLE, MUST_CONTAIN, NO, SUPPORTS, YES, Decision

# Yes-or-no decisions that go into the golden file: they are not written until people agree.
VOTED = (SUPPORTS, ANSWERABLE, MUST_CONTAIN)
Place = tuple[str, str, str]


class Consensus:
    """The consensus of the decisions in force."""

    def __init__(self, current: Sequence[Decision]) -> None:
        self._places: dict[int, Place] = {}
        self._votes: dict[Place, dict[str, bool]] = {}
        self._settled: dict[Place, bool] = {}
        for one, item in same_texts([one for one in current if one.field in VOTED]):
            place = one.query_id, one.field, item
            self._places[one.label_no] = place
            vote = vote_of(one)
            if vote is None:
                continue
            if one.is_settlement:
                self._settled[place] = bool(vote)
            else:
                self._votes.setdefault(place, {})[one.annotator] = bool(vote)

    def is_disputed(self, decision: Decision) -> bool:
        """Do people disagree on it, and has that not been settled?"""
        place = self._place_of(decision)
        if decision.is_settlement or place in self._settled:
            return False
        return len(set(self._votes.get(place, {}).values())) > 1

    def is_settled(self, decision: Decision) -> bool:
        """Does a settlement override this decision?"""
        return not decision.is_settlement and self._place_of(decision) in self._settled

    def _place_of(self, decision: Decision) -> Place:
        return self._places.get(decision.label_no, (decision.query_id, decision.field, decision.item))

    def disputes(self) -> dict[Place, Mapping[str, bool]]:
        """All items on which people disagree, settled or not."""
        return {place: said for place, said in self._votes.items() if len(set(said.values())) > 1}

    @property
    def settled(self) -> Mapping[Place, bool]:
        """How items were settled."""
        return self._settled

    def open_counts(self) -> dict[str, int]:
        """The number of items to settle, by query."""
        found: dict[str, int] = {}
        for place in self.disputes().keys() - self._settled.keys():
            found[place[0]] = found.get(place[0], 0) + 1
        return found


def in_words(vote: bool) -> str:
    """A vote as the value of a decision."""
    return YES if vote else NO


def key_of(field: str, item: str) -> str:
    """The key of an item that people can disagree on: the hash of a text, or a field of the query."""
    return item if field == SUPPORTS else f"{field}:{item}"


def question_about(field: str, item: str) -> Candidate:
    """A field of the query as a yes-or-no question; or a text that is no longer stored."""
    text = {
        ANSWERABLE: "Can this query be answered from the documents?",
        MUST_CONTAIN: f"Must an answer contain these words?\n{item}",
    }.get(field, "This text is no longer stored.")
    title = {ANSWERABLE: "Answerable", MUST_CONTAIN: "Must contain"}.get(field, "A text")
    key = key_of(field, item)
    return Candidate(
        key=key,
        text=text,
        is_cut=False,
        doc_id=None,
        path=None,
        title=title,
        headings=(),
        chunk_id=None,
        chunker_version=None,
        spans=(),
        n_runs=0,
        best_rank=None,
        is_labelled=False,
        chunk_ids=(),
        keys=(key,),
        is_question=field != SUPPORTS,
    )
