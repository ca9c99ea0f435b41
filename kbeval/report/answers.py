"""The answers of a run: their text, citations and where these lead, rules, judgements and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbeval.render.places import spans_text
from kbeval.report.differences import SAME, word_differences
from kbeval.report.facts import BatchFacts, Facts, Key
from kbeval.report.stored_rows import (
    answer_of,
    citations_of,
    cited_chunk,
    cited_rank,
    first_text,
    headings_of,
    references_of,
)
from kbeval.report.texts import Texts, name
from kbeval.storage.run_config import config_of
from kbeval.storage.runs import Run
from kbeval.util.text import json_text

View = dict[str, Any]
_MOST_CLAIMS = 50
_MOST_CITATIONS = 100
# Judgements of the anchor-labelled system, which are in the row itself.
_ROW_RUBRICS = ("groundedness", "correctness")
_GOOD, _BAD, _UNKNOWN = "ok", "bad", ""


@dataclass(frozen=True)
class Asked:
    """One query of one run: its stored row, and what the golden file says about it."""

    run: Run
    query_id: str
    row: Mapping[str, Any]
    entry: Mapping[str, Any]

    @property
    def key(self) -> Key:
        return self.run.run_id, self.query_id


class Answers:
    """The answers of one or two runs."""

    def __init__(self, facts: Facts, texts: Texts) -> None:
        self._facts = facts
        self._texts = texts

    def view(self, asked: Asked, hits: Sequence[tuple[int, Mapping[str, Any]]], batch: BatchFacts) -> View | None:
        """The answer of a row; None if it contains neither an answer nor a refusal."""
        key, row = asked.key, asked.row
        result = batch.results[key]
        answer = answer_of(row)
        judged = [*self._judged(key, batch), *self._judged_in_row(asked)]
        cited = [*self._citations(asked, answer or {}, hits, batch), *self._references(asked, batch)]
        is_refusal = bool(result.refused) and (answer is not None or result.flagged)
        if answer is None and not judged and not cited and not is_refusal:
            return None
        said = None if answer is None else answer.get("answer")
        text = said if isinstance(said, str) else "" if said is None else json_text(said)
        reason = first_text((answer or {}).get("refusal_reason"), row.get("abstain_reason"))
        return {
            "pieces": [[SAME, self._texts.words(text)]] if text else [],
            "refused": is_refusal,
            "reason": None if reason is None else self._texts.line(reason),
            "citations": cited[:_MOST_CITATIONS],
            "more": max(0, len(cited) - _MOST_CITATIONS),
            "rules": [
                ["must contain" if must else "must not contain", self._texts.line(needle), kept]
                for must, needle, kept in batch.rules.get(key, [])
            ],
            "judged": judged,
        }

    # --- citations -----------------------------------------------------------------------------------

    def _citations(
        self, asked: Asked, answer: Mapping[str, Any], hits: Sequence[tuple[int, Mapping[str, Any]]], batch: BatchFacts
    ) -> Iterator[list[Any]]:
        """Each citation: its text, its sign, the result of its check, and the rank of the cited hit."""
        real = batch.citations.get(asked.key, {})
        expected = asked.entry.get("expected_chunk_ids") or ()
        for number, one in enumerate(citations_of(answer), start=1):
            chunk_id = cited_chunk(one)
            is_expected = chunk_id is not None and chunk_id in expected
            said = (_GOOD, "an expected chunk") if is_expected else self._real(real.get(number))
            yield [self._cited(one), *said, cited_rank(one, hits)]

    def _real(self, is_real: bool | None) -> tuple[str, str]:
        if not self._facts.knows_chunks:
            return _UNKNOWN, "not checked, because no chunks are known"
        if is_real is None:
            return _UNKNOWN, "not checked, because the answer is not marked as grounded"
        return (_GOOD, "a known chunk") if is_real else (_BAD, "does not lead to a known chunk")

    def _cited(self, citation: object) -> str:
        """A citation in short form."""
        if not isinstance(citation, dict):
            return self._texts.line(str(citation), 160)
        inner = citation.get("citation")
        place = inner if isinstance(inner, dict) else {}
        chunk_id = cited_chunk(citation)
        path = first_text(place.get("path"))
        where = spans_text([place]) if place.get("kind") and path else None
        marker = first_text(citation.get("marker"))
        parts = [
            marker and self._texts.line(marker, 40),
            chunk_id and f"chunk {chunk_id}",
            path,
            where and self._texts.place(where),
        ]
        said = " ".join(filter(None, parts))
        return name(said) if said else self._texts.line(json_text(citation), 160)

    def _references(self, asked: Asked, batch: BatchFacts) -> Iterator[list[Any]]:
        """The passages that an answer of the anchor-labelled system refers to."""
        leads = batch.references.get(asked.key, {})
        supports = asked.entry.get("gold_supports") or ()
        for number, one in enumerate(references_of(asked.row), start=1):
            vault, path = first_text(one.get("vault")), first_text(one.get("rel_path"), one.get("path"))
            headings = headings_of(one)
            parts = ["/".join(filter(None, (vault, path))), headings and self._texts.line(headings, 120)]
            text = name(" › ".join(filter(None, parts))) or self._texts.line(json_text(one), 160)
            lead = leads.get(number)
            sign, said = _UNKNOWN, "not checked, because the query has no expected support"
            if supports:
                is_support = lead is not None and lead.support is not None
                sign, said = (_GOOD, "an expected support") if is_support else (_BAD, "not an expected support")
            yield [text, sign, said, None if lead is None else lead.rank]

    # --- judges --------------------------------------------------------------------------------------

    def _judged(self, key: Key, batch: BatchFacts) -> Iterator[View]:
        for rubric, model, score, why, reasoning in batch.judgements.get(key, []):
            claims = batch.claims.get((*key, rubric), [])
            yield self._judgement(rubric, f"judged by {self._texts.called(model)}", score, (why, reasoning), claims)

    def _judged_in_row(self, asked: Asked) -> Iterator[View]:
        """Scores in the row: of its own judge, unless the run was judged again, and of other tools."""
        model = first_text(config_of(asked.run).get("judge_model"))
        again = self._facts.judged_rubrics.get(asked.run.run_id, set())
        for rubric in _ROW_RUBRICS:
            said = asked.row.get(rubric)
            if rubric in again or not isinstance(said, dict):
                continue
            score, reasoning = said.get("score"), said.get("reasoning")
            claims = [
                (supported, claim)
                for field, supported in (("unsupported_claims", False), ("supported_claims", True))
                for claim in _texts_in(said.get(field))
            ]
            if _is_number(score) or first_text(reasoning) or claims:
                by = f"judged by {self._texts.called(model)}, as stored in the row" if model else "as stored in the row"
                yield self._judgement(rubric, by, score if _is_number(score) else None, (None, reasoning), claims)
        scores = asked.row.get("scores")
        for rubric, score in sorted(scores.items()) if isinstance(scores, dict) else ():
            if _is_number(score) or score is None:
                yield self._judgement(str(rubric), "came with the row", score, (None, None), [])

    def _judgement(
        self,
        rubric: str,
        by: str,
        score: float | None,
        because: tuple[str | None, object],
        claims: Sequence[tuple[bool, str]],
    ) -> View:
        """`because`: why there is no score, and the reasoning."""
        why, reasoning = because
        reason = first_text(reasoning)
        return {
            "rubric": name(rubric),
            "by": by,
            "score": None if score is None else f"{score:.4g}",
            "why": None if why is None else self._texts.words(why, 2_000),
            "reasoning": None if reason is None else self._texts.words(reason),
            "claims": [[supported, self._texts.words(claim, 1_000)] for supported, claim in claims[:_MOST_CLAIMS]],
            "more": max(0, len(claims) - _MOST_CLAIMS),
        }

    # --- two answers ---------------------------------------------------------------------------------

    def compare(self, sides: Sequence[View]) -> None:
        """If two answers differ, replace them by their pieces."""
        answers = [side["answer"] for side in sides if side["answer"] is not None]
        if len(answers) != 2 or self._texts.redact:
            return
        a, b = ("".join(piece for _, piece in answer["pieces"]) for answer in answers)
        if a == b:
            return
        found = word_differences(a, b)
        for answer, pieces in zip(answers, found or (), strict=False):
            answer["pieces"] = [list(piece) for piece in pieces]
        if found is None:
            for answer in answers:
                answer["too_long"] = True


def support_text(support: Mapping[str, Any], texts: Texts) -> str:
    """A support of the golden file in short form. Headings count as texts, which `redact` leaves out."""
    headings = headings_of(support)
    return name(" › ".join(filter(None, (str(support.get("rel_path")), headings and texts.line(headings, 120)))))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _texts_in(value: object) -> list[str]:
    return [one if isinstance(one, str) else json_text(one) for one in value] if isinstance(value, list) else []
