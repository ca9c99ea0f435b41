"""Judges the answers of a run: plans what to ask, asks it once, and stores each judgement as it arrives.

A question that was asked before, by the same judge with the same rubric about the same input, is not asked again: its
judgement is taken from the database. So a judging that was interrupted continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbeval.errors import UsageError
from kbeval.golden import Golden
from kbeval.live.agreement import Agreement, agreement
from kbeval.live.asking_judges import Asking, Budget, Question
from kbeval.live.environment import Environment
from kbeval.live.journal import only_one
from kbeval.live.judge_inputs import Answer, Answers, read_answers
from kbeval.live.limits import DEFAULT_CEILING
from kbeval.live.prices import Price, estimated_tokens, price_of
from kbeval.live.rubrics import Rubric
from kbeval.live.sending import Policy
from kbeval.live.wire import Judge
from kbeval.storage.judgements import SCORED, Asked, Judged, JudgementStore, Judging, NewJudging, Said
from kbeval.storage.options import ReadOptions
from kbeval.util.text import counted

# Tokens per reply while no reply is known; only for estimates.
_USUAL_REPLY = 300


@dataclass(frozen=True)
class JudgeOptions:
    """How to judge."""

    judge: Judge
    rubrics: Sequence[Rubric]
    allow_cut_context: bool = False
    prices: Mapping[str, Price] = field(default_factory=dict)
    max_cost: float | None = None
    concurrency: int = DEFAULT_CEILING
    rate: float | None = None
    policy: Policy = field(default_factory=Policy)
    reading: ReadOptions = field(default_factory=ReadOptions)
    suite: str | None = None
    # How many answers to judge again, by `second_judge` or by the same judge.
    spot_check: int = 0
    second_judge: Judge | None = None
    seed: int = 0


@dataclass(frozen=True)
class Plan:
    """What is to be asked about a run."""

    answers: Answers
    questions: tuple[Question, ...]
    options: JudgeOptions

    @property
    def run_id(self) -> str:
        """The run to be judged."""
        return self.answers.run.run_id

    @property
    def cut(self) -> int:
        """How many answers have a context that is not what the system saw."""
        return sum(answer.has_cut_context for answer in self.answers.answers)

    @property
    def wanted(self) -> int:
        """Answers × rubrics."""
        return sum(len(question.judged) for question in self.questions)

    def identity(self) -> str:
        """A hash that identifies an interrupted judging as this one."""
        parts = sorted([one.query_id, one.rubric, one.key, one.row_mark] for q in self.questions for one in q.judged)
        return _hash([_judge_parts(self.options.judge), self.options.allow_cut_context, parts])

    def judging(self) -> NewJudging:
        """As it is stored."""
        judge = self.options.judge
        about = {"allow_cut_context": self.options.allow_cut_context, "cut_contexts": self.cut}
        return NewJudging(
            run_id=self.run_id,
            identity=self.identity(),
            judge=_hash([judge.provider, judge.model, judge.parameters]),
            provider=judge.provider,
            model=judge.model,
            base_url=judge.base_url,
            parameters_json=_json(judge.parameters),
            rubrics_json=_json([rubric.as_json() for rubric in self.options.rubrics]),
            options_json=_json(about),
            n_wanted=self.wanted,
        )


@dataclass(frozen=True)
class RubricResult:
    """The results of one rubric."""

    rubric: str
    answers: int
    judged: int
    unscored: int
    cached: int
    mean: float | None
    tokens: int | None
    cost_usd: float | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Differing:
    """An answer on which two judgements differ."""

    query_id: str
    rubric: str
    first: float
    second: float


@dataclass(frozen=True)
class SpotCheck:
    """How well a second judging of some answers agrees with the first."""

    judge: str
    answers: int
    agreements: Mapping[str, Agreement]
    # Judged by only one of the two.
    unpaired: int
    differing: Sequence[Differing]
    cost_usd: float | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "judge": self.judge,
            "answers": self.answers,
            "unpaired": self.unpaired,
            "cost_usd": self.cost_usd,
            "agreement": {name: found.to_dict() for name, found in self.agreements.items()},
            "differing": [vars(one) for one in self.differing],
        }


@dataclass(frozen=True)
class JudgeReport:
    """The results of a judging."""

    plan: Plan
    judging_id: str
    rubrics: Sequence[RubricResult]
    # Requests that were sent; 0: everything was known before.
    requests: int
    spot_check: SpotCheck | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "run_id": self.plan.run_id,
            "judging": self.judging_id,
            "judge": self.plan.options.judge.name,
            "base_url": self.plan.options.judge.base_url,
            "requests": self.requests,
            "not_asked": self.plan.answers.others,
            "cut_contexts": self.plan.cut,
            "rubrics": [result.to_dict() for result in self.rubrics],
            "spot_check": None if self.spot_check is None else self.spot_check.to_dict(),
        }


@dataclass(frozen=True)
class Estimate:
    """What a judging would require."""

    questions: int
    cached: int
    tokens_in: int
    tokens_out: int
    cost_usd: float | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return dict(vars(self))


def make_plan(database: Path, run: str, golden: Golden | None, options: JudgeOptions) -> Plan:
    """Read the answers of a run and work out what is to be asked about them."""
    answers = read_answers(database, run, golden, options.reading, options.suite)
    return Plan(answers, tuple(_questions(answers.answers, options.rubrics, options.judge, 0)), options)


def refuse_cut_context(plan: Plan) -> None:
    """Raise an error if a rubric reads the context and the stored context is not what the system saw."""
    readers = [rubric.name for rubric in plan.options.rubrics if rubric.reads("context")]
    if not plan.cut or not readers or plan.options.allow_cut_context:
        return
    first = next(answer.query_id for answer in plan.answers.answers if answer.has_cut_context)
    msg = (
        f"the stored context of {counted(plan.cut, 'answer')} is not what the system saw: texts were cut or not"
        f" stored (first: query {first}); make the run with --store-full-text, use rubrics other than"
        f" {', '.join(readers)}, or use --allow-cut-context, which is recorded"
    )
    raise UsageError(msg)


def estimate(database: Path, plan: Plan) -> Estimate:
    """What would be asked, and what it would cost. Nothing is sent or stored."""
    asked: list[tuple[Judge, Sequence[Question]]] = [(plan.options.judge, plan.questions)]
    if plan.options.spot_check:
        asked.append((_second_judge(plan), _second_questions(plan)[1]))
    with JudgementStore(database, mode="ro") as store:
        known = store.known([question.asked.key for _, questions in asked for question in questions])
    replies = [said.tokens_out for said in known.values() if said.tokens_out is not None]
    usual = sum(replies) // len(replies) if replies else _USUAL_REPLY
    wanted = tokens_in = tokens_out = cached = 0
    costs: list[float | None] = []
    for judge, questions in asked:
        left = [question for question in questions if question.asked.key not in known]
        own = sum(estimated_tokens(question.prompt) for question in left), usual * len(left)
        price = price_of(plan.options.prices, judge.provider, judge.model)
        costs.append(None if price is None else price.of(*own))
        wanted, cached = wanted + len(questions), cached + len(questions) - len(left)
        tokens_in, tokens_out = tokens_in + own[0], tokens_out + own[1]
    cost = None if None in costs else sum(filter(None, costs))
    return Estimate(wanted, cached, tokens_in, tokens_out, cost)


def judge_run(database: Path, plan: Plan, environment: Environment) -> JudgeReport:
    """Judge a run. Raises an error if an answer could not be judged; what was judged is stored."""
    options = plan.options
    refuse_cut_context(plan)
    budget = Budget(options.max_cost)
    for judge in filter(None, (options.judge, options.second_judge)):
        if options.max_cost is not None and price_of(options.prices, judge.provider, judge.model) is None:
            msg = (
                f'--max-cost needs the price of {judge.name}: add [prices."{judge.name}"] to kbeval.toml,'
                " with input and output in US dollars per million tokens"
            )
            raise UsageError(msg)
    with only_one(database, plan.run_id, "judged"), JudgementStore(database) as store:
        store.make_tables()
        judging, known = _begun(store, plan)
        left = [question for question in plan.questions if question.asked.key not in known]
        asking = Asking(store, environment, budget, options.concurrency, options.rate, options.policy)
        price = price_of(options.prices, options.judge.provider, options.judge.model)
        new = asking.ask(
            options.judge, price, left, f"judging {plan.run_id}", judging.judging_id, any_scored=_any_scored(known)
        )
        found = {**known, **new}
        results = [_result(plan, rubric, found, new) for rubric in options.rubrics]
        checked = _spot_check(store, plan, asking, found) if options.spot_check else None
    return JudgeReport(plan, judging.judging_id, results, asking.requests, checked)


def _begun(store: JudgementStore, plan: Plan) -> tuple[Judging, dict[str, Said]]:
    """The judging to continue, or a new one, with all known judgements linked to it."""
    known = store.known([question.asked.key for question in plan.questions])
    judging = store.latest(plan.run_id, plan.identity()) or store.begin(plan.judging())
    linked = store.judged(judging.judging_id)
    cached = [
        replace(one, is_cached=True)
        for question in plan.questions
        if question.asked.key in known
        for one in question.judged
        if (one.query_id, one.rubric) not in linked
    ]
    store.link(judging.judging_id, cached)
    return judging, known


def _any_scored(known: Mapping[str, Said]) -> bool:
    return any(said.state == SCORED for said in known.values())


def _result(plan: Plan, rubric: Rubric, found: Mapping[str, Said], new: Mapping[str, Said]) -> RubricResult:
    own = [q for q in plan.questions if q.rubric.name == rubric.name]
    said = [found[q.asked.key] for q in own for _ in q.judged]
    paid = [new[q.asked.key] for q in own if q.asked.key in new]
    scores = [one.score for one in said if one.score is not None]
    tokens = [_total(one.tokens_in, one.tokens_out) for one in paid]
    costs = [one.cost_usd for one in paid]
    return RubricResult(
        rubric.name,
        len(said),
        len(scores),
        len(said) - len(scores),
        sum(len(q.judged) for q in own if q.asked.key not in new),
        sum(scores) / len(scores) if scores else None,
        None if None in tokens else sum(filter(None, tokens)),
        None if None in costs else sum(filter(None, costs)),
    )


def _total(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


# --- a second opinion ---------------------------------------------------------------------------------


def _second_judge(plan: Plan) -> Judge:
    return plan.options.second_judge or plan.options.judge


def _second_questions(plan: Plan) -> tuple[int, list[Question]]:
    """How many answers are judged again, and what is asked about them."""
    options, second = plan.options, _second_judge(plan)
    # The same judge is asked a second time; another judge is asked for the first time.
    repetition = 1 if second == options.judge else 0
    answers = sorted(plan.answers.answers, key=lambda answer: answer.query_id)
    chosen = random.Random(options.seed).sample(answers, min(options.spot_check, len(answers)))  # noqa: S311  (a sample)
    return len(chosen), _questions(chosen, options.rubrics, second, repetition)


def _spot_check(store: JudgementStore, plan: Plan, asking: Asking, first: Mapping[str, Said]) -> SpotCheck:
    """Judge a sample again and compare."""
    options, second = plan.options, _second_judge(plan)
    chosen, questions = _second_questions(plan)
    known = store.known([question.asked.key for question in questions])
    left = [question for question in questions if question.asked.key not in known]
    price = price_of(options.prices, second.provider, second.model)
    new = asking.ask(second, price, left, f"spot check of {plan.run_id}", None, any_scored=_any_scored(known))
    found = {**known, **new}
    before = {(one.query_id, one.rubric): first[q.asked.key] for q in plan.questions for one in q.judged}
    pairs: dict[str, list[tuple[str, float, float]]] = {rubric.name: [] for rubric in options.rubrics}
    unpaired = 0
    for question in questions:
        for one in question.judged:
            a, b = before[one.query_id, one.rubric].score, found[question.asked.key].score
            if a is None or b is None:
                unpaired += 1
            else:
                pairs[one.rubric].append((one.query_id, a, b))
    differing = [Differing(query_id, name, a, b) for name, some in pairs.items() for query_id, a, b in some if a != b]
    differing.sort(key=lambda one: (-abs(one.first - one.second), one.rubric, one.query_id))
    costs = [said.cost_usd for said in new.values()]
    return SpotCheck(
        second.name,
        chosen,
        {name: agreement([a for _, a, _ in some], [b for _, _, b in some]) for name, some in pairs.items()},
        unpaired,
        differing[:10],
        None if None in costs else sum(filter(None, costs)),
    )


# --- questions ----------------------------------------------------------------------------------------


def _questions(answers: Sequence[Answer], rubrics: Sequence[Rubric], judge: Judge, repetition: int) -> list[Question]:
    """One question per distinct input: identical answers are judged once."""
    found: dict[str, Question] = {}
    for answer in answers:
        for rubric in rubrics:
            question = _question(answer, rubric, judge, repetition)
            known = found.setdefault(question.asked.key, question)
            if known is not question:
                found[question.asked.key] = replace(known, judged=(*known.judged, *question.judged))
    return list(found.values())


def _question(answer: Answer, rubric: Rubric, judge: Judge, repetition: int) -> Question:
    prompt = rubric.prompt(answer.values())
    given: dict[str, Any] = {"prompt": prompt, "schema": rubric.schema()}
    if rubric.reads("context"):
        given["context"] = [passage.as_json() for passage in answer.passages]
    input_json = _json(given)
    input_hash = _hash_text(input_json)
    parameters = _json(judge.parameters)
    key = _hash([_judge_parts(judge), rubric.text, input_hash, repetition])
    asked = Asked(
        key, judge.provider, judge.model, judge.base_url, rubric.name, rubric.hash, parameters, input_hash, repetition
    )
    judged = Judged(answer.query_id, rubric.name, key, answer.row_mark, is_cached=False)
    return Question(asked, rubric, prompt, input_json, (judged,))


def _judge_parts(judge: Judge) -> list[Any]:
    return [judge.provider, judge.model, judge.base_url, judge.parameters]


def _json(value: Any) -> str:  # noqa: ANN401  (any JSON value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _hash(value: Any) -> str:  # noqa: ANN401  (any JSON value)
    return _hash_text(_json(value))


def _hash_text(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
