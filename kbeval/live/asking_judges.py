"""Sends questions to a judge and stores its replies. A reply that cannot be read is requested once more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kbeval.errors import KbevalError
from kbeval.live.environment import Environment
from kbeval.live.exchange import Failure
from kbeval.live.judge_replies import Reading, Reply, read_reply
from kbeval.live.limits import Limit
from kbeval.live.prices import Price, estimated_tokens
from kbeval.live.progress import Progress
from kbeval.live.rubrics import Rubric
from kbeval.live.sending import Attempt, Policy, Sender
from kbeval.live.wire import Judge, Message, asked_again, question, read_response, why_rejected
from kbeval.live.working import Crew, Interrupted, Stopped, handling_interrupts, run_async
from kbeval.storage.judgements import SCORED, UNSCORED, Asked, Judged, JudgementStore, Said
from kbeval.util.text import counted

# The key, the address or the model is wrong: every other question would fail as well.
_HOPELESS = frozenset((401, 403, 404, 405, 407))
# Something is wrong with this one question; the others may be answered.
_REJECTED = frozenset((400, 413, 415, 422))
# After this many failures in a row, the server is assumed to be down.
_FAILURES_IN_A_ROW = 5
_MOST_REPLY = 20_000

# How to continue what was stopped.
_AGAIN = "run the same command again to continue"


@dataclass(frozen=True)
class Question:
    """A question to a judge, and the answers of the run that it is about."""

    asked: Asked
    rubric: Rubric
    prompt: str
    input_json: str
    judged: tuple[Judged, ...]


@dataclass
class Budget:
    """How much may be spent, in US dollars; None: no limit."""

    limit: float | None
    spent: float = 0.0
    reserved: float = 0.0

    def allows(self, more: float) -> bool:
        """Does the budget allow a request of this estimated cost?"""
        return self.limit is None or self.spent + self.reserved + more <= self.limit


@dataclass
class _Round:
    """The state of one call of `ask`."""

    judge: Judge
    price: Price | None
    judging_id: str | None
    headers: dict[str, str]
    crew: Crew
    sender: Sender
    progress: Progress
    any_scored: bool
    found: dict[str, Said] = field(default_factory=dict)
    rejected: list[tuple[Question, Failure]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    in_a_row: int = 0
    # Requests that are paid from the budget, and whether one of them has ended.
    in_flight: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    advice: str = _AGAIN


class Asking:
    """Asks judges, within one budget."""

    def __init__(  # noqa: PLR0913, PLR0917  (what it works with)
        self,
        store: JudgementStore,
        environment: Environment,
        budget: Budget,
        concurrency: int,
        rate: float | None,
        policy: Policy,
    ) -> None:
        self._store = store
        self._environment = environment
        self._budget = budget
        self._concurrency = concurrency
        self._rate = rate
        self._policy = policy
        self.requests = 0

    def ask(  # noqa: PLR0913  (all are needed)
        self,
        judge: Judge,
        price: Price | None,
        questions: Sequence[Question],
        label: str,
        judging_id: str | None,
        *,
        any_scored: bool,
    ) -> dict[str, Said]:
        """The judge's reply to each question, by the key of the question.

        `any_scored`: the judge has scored such questions before; if it rejects one, the question is at fault.
        """
        if not questions:
            return {}
        headers = judge.headers(self._environment)
        return run_async(self._ask(judge, price, headers, questions, label, judging_id, any_scored=any_scored))

    async def _ask(  # noqa: PLR0913, PLR0917  (as above)
        self,
        judge: Judge,
        price: Price | None,
        headers: dict[str, str],
        questions: Sequence[Question],
        label: str,
        judging_id: str | None,
        *,
        any_scored: bool,
    ) -> dict[str, Said]:
        limit = Limit(self._concurrency, self._rate)
        crew = Crew(limit)
        progress = Progress(label, len(questions), limit)
        async with Sender(crew, self._policy, self._environment.secrets, on_retry=progress.retried) as sender:
            if wrong := await sender.reach(judge.url):
                msg = f"the judge {judge.name} at {judge.base_url} cannot be reached: {wrong}"
                raise KbevalError(_continued(msg, 0, len(questions)))
            work = _Round(judge, price, judging_id, headers, crew, sender, progress, any_scored)

            async def job(one: Question) -> None:
                await self._one(work, one)

            try:
                with handling_interrupts(crew):
                    async with progress.shown():
                        await crew.run(questions, job)
            except Interrupted as error:
                raise Interrupted(_continued("interrupted", len(work.found), len(questions))) from error
            except Stopped as error:
                raise Stopped(_continued(error.headline, len(work.found), len(questions), work.advice)) from error
        self._settle_rejected(work)
        if work.failures:
            first = work.failures[0].message
            what = f"{counted(len(work.failures), 'question')} to {judge.name} failed, first: {first}"
            raise KbevalError(_continued(what, len(work.found), len(questions)))
        return work.found

    async def _one(self, work: _Round, one: Question) -> None:
        """Ask once and, if the reply cannot be read, once more."""
        spent: list[Reply] = []
        messages: Sequence[Message] = [{"role": "user", "content": one.prompt}]
        for last in (False, True):
            price = await self._reserve(work, messages)
            if price is None:
                return

            async def store(attempt: Attempt[Reply], *, is_last: bool = last) -> None:
                self.requests += 1
                if attempt.value is not None:
                    spent.append(attempt.value)
                    self._keep(work, one, spent, attempt.elapsed_ms, is_last=is_last)

            request = question(work.judge, one.rubric, messages, work.headers)
            try:
                outcome = await work.sender.send(
                    request, read=lambda response: read_response(work.judge, response), on_attempt=store
                )
            finally:
                self._budget.reserved -= price
                work.in_flight -= 1
                work.ended.set()
            if outcome.failure is not None:
                self._failed(work, one, outcome.failure)
                return
            work.in_a_row = 0
            if one.asked.key in work.found:
                work.progress.finished(is_error=work.found[one.asked.key].state != SCORED)
                return
            messages = asked_again(one.prompt, spent[-1], read_reply(spent[-1], one.rubric).fault or "", one.rubric)

    async def _reserve(self, work: _Round, messages: Sequence[Message]) -> float | None:
        """Reserve the maximum cost of a request. If the budget does not allow it, stop the work and return None."""
        budget, most = self._budget, 0.0
        if work.price is not None and budget.limit is not None:
            tokens = sum(estimated_tokens(message["content"]) for message in messages)
            most = work.price.of(tokens, work.judge.max_tokens) or 0.0
            # Most replies are short, so what is in flight will cost less than was reserved for it.
            while not budget.allows(most) and work.in_flight:
                work.ended.clear()
                await work.ended.wait()
            if not budget.allows(most):
                work.crew.stop(
                    f"--max-cost {budget.limit:g} allows no further question: {budget.spent:.4f} US dollars were spent,"
                    f" and one may cost up to {most:.4f}, as a reply may have {work.judge.max_tokens:,} tokens"
                )
                if most > budget.limit:
                    work.advice = "continue with a higher --max-cost"
                return None
        budget.reserved += most
        work.in_flight += 1
        return most

    def _keep(self, work: _Round, one: Question, replies: Sequence[Reply], elapsed: float, *, is_last: bool) -> None:
        """Store a judgement, unless its reply cannot be read and may be requested once more."""
        reading = read_reply(replies[-1], one.rubric)
        last = replies[-1]
        cost = None if work.price is None else work.price.of(last.tokens_in, last.tokens_out)
        self._budget.spent += cost or 0.0
        if reading.fault is not None and not is_last:
            return
        said = self._said(work, reading, replies, elapsed)
        self._store.add(one.asked, said, one.input_json, work.judging_id, one.judged)
        work.found[one.asked.key] = said
        work.any_scored = work.any_scored or said.state == SCORED

    def _said(self, work: _Round, reading: Reading, replies: Sequence[Reply], elapsed: float) -> Said:
        """The judgement as it is stored, without secrets that the server echoed."""
        hide = self._environment.secrets.hide_in
        tokens_in, tokens_out = (
            None if None in counts else sum(filter(None, counts))
            for counts in ([reply.tokens_in for reply in replies], [reply.tokens_out for reply in replies])
        )
        return Said(
            state=UNSCORED if reading.fault is not None else SCORED,
            requests=len(replies),
            score=None if reading.score is None else float(reading.score),
            reasoning=_clean(hide(reading.reasoning)),
            supported_json=_list(reading.supported, hide),
            unsupported_json=_list(reading.unsupported, hide),
            why=_clean(hide(reading.fault)),
            reply=_clean(hide(replies[-1].raw))[:_MOST_REPLY],
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost_usd=None if work.price is None else work.price.of(tokens_in, tokens_out),
            elapsed_ms=elapsed,
        )

    @staticmethod
    def _failed(work: _Round, one: Question, failure: Failure) -> None:
        """Nothing is stored, so the next call asks the question again."""
        work.progress.finished(is_error=True)
        if failure.status in _HOPELESS:
            work.crew.stop(f"{work.judge.name} at {work.judge.base_url} refuses requests: {failure.message}")
            return
        if failure.status in _REJECTED:
            work.rejected.append((one, failure))
            if len(work.rejected) >= _FAILURES_IN_A_ROW and not work.any_scored:
                # Every other question would be rejected as well.
                work.crew.stop(_all_rejected(work))
            return
        work.failures.append(failure)
        work.in_a_row += 1
        if work.in_a_row >= _FAILURES_IN_A_ROW:
            work.crew.stop(
                f"{work.judge.name} at {work.judge.base_url} does not answer"
                f" ({counted(work.in_a_row, 'failure')} in a row): {failure.message}"
            )

    def _settle_rejected(self, work: _Round) -> None:
        """Store rejected questions as unscored: a server that judges other answers would reject these again."""
        if work.rejected and not work.any_scored:
            raise KbevalError(_all_rejected(work))
        for one, failure in work.rejected:
            said = Said(UNSCORED, 1, why=_clean(f"the server rejected the request: {failure.message}"))
            self._store.add(one.asked, said, one.input_json, work.judging_id, one.judged)
            work.found[one.asked.key] = said


def _all_rejected(work: _Round) -> str:
    first = why_rejected(work.judge, work.rejected[0][1].message)
    return f"{work.judge.name} at {work.judge.base_url} rejects all questions, first: {first}"


def _continued(what: str, done: int, wanted: int, advice: str = _AGAIN) -> str:
    return f"{what}; {done:,} of {counted(wanted, 'judgement')} were made and stored; {advice}"


def _list(claims: Sequence[str] | None, hide: Callable[[list[str]], list[str]]) -> str | None:
    return None if claims is None else _clean(json.dumps(hide(list(claims)), ensure_ascii=False))


def _clean(text: str | None) -> str:
    """Without unpaired surrogates, which databases do not accept."""
    return "" if text is None else text.encode("utf-8", "replace").decode()
