"""What a person is shown of a query: its candidates, what was decided, and what people disagree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbeval.live.labelling.candidates import Candidate
from kbeval.live.labelling.changes import label_spans
from kbeval.live.labelling.consensus import VOTED, Consensus, in_words, key_of, question_about
from kbeval.live.labelling.order import Chosen
from kbeval.live.labelling.places import passage_spans
from kbeval.storage.labels import ANSWERABLE, HELD, NOTE, SKIP, SUPPORTS, YES, Decision

# A label with more lines, or characters, hardly locates the answer.
_MANY_LINES, _MANY_CHARACTERS = 10, 1_000


@dataclass(frozen=True)
class QueryView:
    """A query as it is shown."""

    query_id: str
    entry: Mapping[str, Any]
    candidates: Sequence[Candidate]
    # The decision of this person on each candidate, by its key, and its number; the same for the query's own fields.
    decided: Mapping[str, str]
    versions: Mapping[str, int]
    passages: Mapping[str, str]
    # Where people disagree: who decided what, by candidate.
    disputes: Mapping[str, Mapping[str, str]]
    settled: Mapping[str, str]
    note: str
    # This person's decision, even if it is not in the file because people disagree; otherwise the file's value.
    answerable: bool | None
    # The number of this person's last decision about the query.
    latest: int
    is_settling: bool
    # About the decision that was just made.
    advice: str = ""

    @property
    def open(self) -> int:
        """How many candidates are neither decided nor labelled; while settling, how many items are left."""
        if self.is_settling:
            return len(self.disputes.keys() - self.settled.keys())
        return sum(not one.is_labelled and self.decided.get(one.key, SKIP) == SKIP for one in self.candidates)


def seen_by(
    chosen: Chosen,
    query_id: str,
    entry: Mapping[str, Any],
    candidates: Sequence[Candidate],
    current: Sequence[Decision],
) -> QueryView:
    """A query as one person sees it. `current`: the decisions about it that are in force."""
    stands_for = {key: one.key for one in candidates for key in one.keys}
    decided: dict[str, str] = {}
    versions: dict[str, int] = {}
    passages: dict[str, str] = {}
    note, answerable = "", entry.get("answerable")
    is_settling = chosen.to_settle
    own = [one for one in current if one.annotator == chosen.annotator]
    for one in own:
        if one.is_settlement != is_settling and one.field in VOTED:
            continue
        key = key_of(one.field, one.item)
        key = stands_for.get(key, key)
        versions[key] = one.label_no
        if one.field == SUPPORTS:
            decided[key] = str(one.value)
            if one.about.passage:
                passages[key] = one.about.passage
        elif one.field == NOTE:
            note = str(one.value)
        elif one.field == ANSWERABLE and one.state == HELD:
            answerable = one.value["to"]
    consensus = Consensus(current)
    disputes, settled = {}, {}
    for place, votes in consensus.disputes().items():
        key = key_of(*place[1:])
        key = stands_for.get(key, key)
        disputes[key] = {who: in_words(vote) for who, vote in votes.items()}
        if place in consensus.settled:
            settled[key] = in_words(consensus.settled[place])
    if is_settling:
        decided, candidates = settled, _disputed(candidates, consensus, disputes)
    latest = max((one.label_no for one in own), default=0)
    return QueryView(
        query_id,
        entry,
        candidates,
        decided,
        versions,
        passages,
        disputes,
        settled,
        note,
        answerable,
        latest,
        is_settling,
    )


def _disputed(candidates: Sequence[Candidate], consensus: Consensus, disputes: Mapping[str, object]) -> list[Candidate]:
    """What there is to settle: fields of the query first, then texts."""
    known = {one.key: one for one in candidates}
    fields = [question_about(*place[1:]) for place in consensus.disputes() if key_of(*place[1:]) not in known]
    missing = [one for one in fields if one.key in disputes]
    return [*missing, *(one for one in candidates if one.key in disputes and one not in missing)]


def advice_on(decision: Decision, one: Candidate, part: tuple[int, int] | None) -> str:
    """Advice about a label that is less precise than it could be."""
    if decision.value != YES or not label_spans(decision):
        return ""
    if part is not None:
        is_placed = passage_spans(one.text, one.spans, *part) is not None
        return "" if is_placed else "The position of this passage is unknown: the whole text is the label."
    lines = one.text.strip().count("\n") + 1
    if lines <= _MANY_LINES and len(one.text) <= _MANY_CHARACTERS:
        return ""
    return (
        f"The whole text is the label, {lines:,} lines of {len(one.text):,} characters."
        if lines > 1
        else (f"The whole text is the label, {len(one.text):,} characters.")
    )


def has_support(view: QueryView) -> bool:
    """Does any label or decision say where the answer is?"""
    names = ("expected_chunk_ids", "expected_spans", "gold_supports")
    return any(view.entry.get(name) for name in names) or YES in view.decided.values()
