"""People score the answers of a run by a rubric, without seeing the judge's scores: the reference for judges."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbeval.errors import UsageError
from kbeval.golden import Golden
from kbeval.live.agreement import Agreement, agreement
from kbeval.live.judge_inputs import Answer, read_answers
from kbeval.live.labelling.agreement import ORDINAL, alpha, alpha_interval
from kbeval.live.rubrics import Rubric
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from kbeval.storage.labels import KEPT, SCORE, About, Decision, LabelStore, check_known


@dataclass(frozen=True)
class AnswerView:
    """An answer as it is shown."""

    answer: Answer
    scores: Mapping[str, int]
    versions: Mapping[str, int]
    # While settling: the score of each person, by rubric, where they differ.
    said: Mapping[str, Mapping[str, int]]


class AnswerScoring:
    """An open session. Use as a context manager. Safe to be called from several threads."""

    def __init__(  # noqa: PLR0913, PLR0917  (what to score, and how)
        self,
        database: Path,
        run: str,
        golden: Golden | None,
        rubrics: Sequence[Rubric],
        annotator: str,
        options: ScoreOptions,
        *,
        seed: int = 0,
        to_settle: bool = False,
    ) -> None:
        """`to_settle`: only the answers to which people gave different scores, to settle them."""
        self.annotator = annotator
        self.is_settling = to_settle
        self.rubrics = {rubric.name: rubric for rubric in rubrics}
        found = read_answers(database, run, golden, options, options.suite)
        self.run_id = found.run.run_id
        self._answers = {answer.query_id: answer for answer in found.answers}
        self.queue = sorted(self._answers)
        random.Random(seed).shuffle(self.queue)  # noqa: S311  (an order)
        self._store = LabelStore(database)
        self._stack = contextlib.ExitStack()
        self._lock = threading.RLock()
        self._scored: dict[str, dict[str, Decision]] = {}
        self._said: dict[str, dict[str, dict[str, int]]] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(self._store)
        self._store.make_table()
        self._look()
        if self.is_settling:
            self.queue = [query_id for query_id in self.queue if self._disputed(query_id)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._stack.close()

    def _look(self) -> None:
        self._scored, self._said = {}, {}
        for one in self._store.current():
            name, answer = one.field.removeprefix(SCORE), self._answers.get(one.query_id)
            # If the row was stored again since, it is a different answer.
            if name not in self.rubrics or one.item != self.run_id or answer is None:
                continue
            if one.about.text_hash != answer.row_mark or one.value is None:
                continue
            if not one.is_settlement:
                self._said.setdefault(one.query_id, {}).setdefault(name, {})[one.annotator] = int(one.value)
            # A settlement counts, no matter which person made it.
            if one.is_settlement if self.is_settling else one.annotator == self.annotator and not one.is_settlement:
                self._scored.setdefault(one.query_id, {})[name] = one

    def _disputed(self, query_id: str) -> dict[str, dict[str, int]]:
        own = self._said.get(query_id, {})
        return {name: said for name, said in own.items() if len(set(said.values())) > 1}

    def view(self, query_id: str) -> AnswerView:
        """An answer, and how this person scored it, or how it was settled."""
        with self._lock:
            if query_id not in self._answers:
                msg = f"run {self.run_id} has no answer to query {query_id!r} that can be scored"
                raise UsageError(msg)
            own = self._scored.get(query_id, {})
            versions = {name: one.label_no for name, one in own.items() if one.annotator == self.annotator}
            said = self._disputed(query_id) if self.is_settling else {}
            return AnswerView(
                self._answers[query_id], {name: int(one.value) for name, one in own.items()}, versions, said
            )

    def score(self, query_id: str, rubric: str, value: int, after: int | None = None) -> AnswerView:
        """Give a score."""
        with self._lock:
            found = self.rubrics.get(rubric)
            if found is None or not found.low <= value <= found.high:
                msg = f"a score of {rubric} is a whole number from {found.low} to {found.high}" if found else rubric
                raise UsageError(msg)
            answer = self.view(query_id).answer
            if self.is_settling and rubric not in self._disputed(query_id):
                msg = f"there is no disagreement on {rubric} for this answer"
                raise UsageError(msg)
            made = Decision(
                query_id,
                self.annotator,
                f"{SCORE}{rubric}",
                self.run_id,
                value,
                About(text_hash=answer.row_mark),
                self.is_settling,
                KEPT,
            )
            self._store.add(made, after)
            self._look()
            return self.view(query_id)

    def latest(self) -> int:
        """The number of the score that an undo would revert; 0 if there is none."""
        with self._lock:
            last = self._store.latest(self.annotator, self.run_id)
            return 0 if last is None else last.label_no

    def undo(self, after: int | None = None) -> str | None:
        """Undo the last score of this person; returns its query. `after`: the last score that the caller knows."""
        with self._lock:
            last = self._store.latest(self.annotator, self.run_id)
            if after is not None:
                check_known(after, 0 if last is None else last.label_no)
            if last is None:
                return None
            self._store.undo(last.label_no)
            self._look()
            return last.query_id

    def missing(self, view: AnswerView) -> int:
        """How many scores of an answer are missing."""
        wanted = view.said.keys() if self.is_settling else self.rubrics.keys()
        return len(wanted - view.scores.keys())

    def is_open(self, query_id: str) -> bool:
        """Does a rubric have no score yet?"""
        with self._lock:
            return self.missing(self.view(query_id)) > 0

    def left(self) -> tuple[int, int]:
        """How many answers, and how many scores, are missing."""
        with self._lock:
            missing = [self.missing(self.view(query_id)) for query_id in self.queue]
            return sum(count > 0 for count in missing), sum(missing)

    def first(self) -> str | None:
        """The answer to begin with."""
        return next((query_id for query_id in self.queue if self.is_open(query_id)), next(iter(self.queue), None))


# --- agreement of the judge with people -----------------------------------------------------------------


@dataclass(frozen=True)
class JudgedBy:
    """How well the judge agrees with one person, or with all (`people`: settled scores, otherwise means)."""

    rubric: str
    judge: str
    person: str
    agreement: Agreement


@dataclass(frozen=True)
class PeopleAndJudge:
    """How well people and the judge of a run agree."""

    run_id: str
    rows: Sequence[JudgedBy]
    # By rubric: how many people, their ordinal Krippendorff's alpha (the ceiling for any judge) and its interval.
    people: Mapping[str, tuple[int, float | None, tuple[float, float] | None]]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "run_id": self.run_id,
            "agreement": [
                {"rubric": row.rubric, "judge": row.judge, "person": row.person, **row.agreement.to_dict()}
                for row in self.rows
            ],
            "people": {
                name: {"people": count, "alpha": value, "interval": interval}
                for name, (count, value, interval) in self.people.items()
            },
        }


def people_and_judge(database: Path, run: str, options: ScoreOptions) -> PeopleAndJudge:
    """Compare the scores of the judge of a run with those of people."""
    with open_scoring(database, None, [run], options, lazily=True) as scoring:
        (found,) = scoring.runs
        scoring.session.need("judgements", "results")
        judged = scoring.session.rows(
            "SELECT query_id, rubric, model, score FROM judgements WHERE score IS NOT NULL ORDER BY query_id, rubric"
        )
        marks = dict(scoring.session.rows("SELECT query_id, CAST(row_mark AS VARCHAR) FROM results"))
    said: dict[str, dict[str, dict[str, float]]] = {}
    settled: dict[tuple[str, str], float] = {}
    with LabelStore(database, mode="ro") as store:
        for one in store.current():
            is_same = one.item == found.run_id and one.about.text_hash == marks.get(one.query_id)
            if one.field.startswith(SCORE) and is_same and one.value is not None:
                rubric = one.field.removeprefix(SCORE)
                if one.is_settlement:
                    settled[rubric, one.query_id] = float(one.value)
                    continue
                said.setdefault(rubric, {}).setdefault(one.query_id, {})[one.annotator] = float(one.value)
    rows = []
    for rubric in sorted({str(name) for _, name, _, _ in judged} & said.keys()):
        models = {str(model) for _, name, model, _ in judged if name == rubric}
        scores = {str(query_id): float(score) for query_id, name, _, score in judged if name == rubric}
        units = said[rubric]
        people = sorted({who for unit in units.values() for who in unit})
        for who in (*people, *(["people"] if len(people) > 1 else [])):
            pairs = [
                (unit[who] if who in people else settled.get((rubric, query_id), mean), scores[query_id])
                for query_id, unit in sorted(units.items())
                for mean in (sum(unit.values()) / len(unit),)
                if query_id in scores and (who in unit or who not in people)
            ]
            by = agreement([a for a, _ in pairs], [b for _, b in pairs])
            rows.append(JudgedBy(rubric, ", ".join(sorted(models)), who, by))
    alphas = {
        rubric: (
            len({who for unit in units.values() for who in unit}),
            alpha(list(units.values()), ORDINAL),
            alpha_interval(list(units.values()), ORDINAL),
        )
        for rubric, units in sorted(said.items())
    }
    return PeopleAndJudge(found.run_id, rows, alphas)
