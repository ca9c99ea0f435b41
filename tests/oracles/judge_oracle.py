"""What judged numbers must be, in slow plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any


@dataclass(frozen=True)
class Given:
    """One judgement of a judging; no score: unscored."""

    query_id: str
    rubric: str
    score: float | None
    tokens: int
    cost: float | None
    is_cached: bool = False
    supported: int = 0
    unsupported: int = 0


def judged_numbers(judgings: Sequence[Sequence[Given]], query_ids: Sequence[str]) -> dict[str, Any]:
    """The numbers and the ledger of a run with these complete judgings, oldest first: the last counts."""
    chosen: dict[str, list[Given]] = {}
    for judging in judgings:
        for rubric in {one.rubric for one in judging}:
            chosen[rubric] = [one for one in judging if one.rubric == rubric]
    numbers: dict[str, float] = {}
    ledger: dict[str, Any] = {}
    for rubric in sorted(chosen):
        scores = [Fraction(one.score) for one in chosen[rubric] if one.score is not None]
        if scores:
            numbers[f"judge_{rubric}"] = rounded(sum(scores, Fraction(0)) / len(scores))
        ledger[rubric] = {
            "judged": len(scores),
            "unscored": len(chosen[rubric]) - len(scores),
            "not_judged": len(query_ids) - len(chosen[rubric]),
            "cached": sum(one.is_cached for one in chosen[rubric]),
        }
    tokens, costs = [], []
    for query_id in query_ids:
        own = [one for some in chosen.values() for one in some if one.query_id == query_id]
        if not own:
            continue
        tokens.append(sum(0 if one.is_cached else one.tokens for one in own))
        paid = [Decimal(0) if one.is_cached else None if one.cost is None else Decimal(str(one.cost)) for one in own]
        if None not in paid:
            costs.append(sum((cost for cost in paid if cost is not None), Decimal(0)))
    if tokens:
        numbers["judge_tokens"] = float(sum(tokens))
    if costs:
        numbers["judge_cost_usd"] = rounded(Fraction(sum(costs, Decimal(0))))
    return {"numbers": numbers, "ledger": ledger}


def rounded(value: Fraction) -> float:
    """To four decimals, half away from zero."""
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return float(exact.quantize(Decimal("0.0001"), ROUND_HALF_UP))
