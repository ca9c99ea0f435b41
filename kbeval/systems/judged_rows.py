"""Judgements of `kbeval judge` in rows that are exported, in the fields of the anchor-labelled harness."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbeval.metrics.catalogue import SHIPPED_RUBRICS

if TYPE_CHECKING:
    from kbeval.engine.session import Session
    from kbeval.scoring.options import ScoreOptions
    from kbeval.storage.source import StoredSource

_OTHERS = "judgements"


@dataclass(frozen=True)
class JudgedRows:
    """The judgements of the rows of a run; empty if it was not judged here."""

    rubrics: Sequence[str] = ()
    # By query id, then by rubric.
    judgements: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def row(self, row: Mapping[str, Any], query_id: str, *, full_text: bool) -> dict[str, Any]:
        """A row with its judgements. Scores by another judge, which came with the row, are left out."""
        found = dict(row)
        for rubric in self.rubrics:
            found.pop(rubric, None)
        if self.rubrics:
            for name in ("judge_input", "cost", _OTHERS):
                found.pop(name, None)
        own = self.judgements.get(query_id, {})
        for rubric, said in own.items():
            place = found if rubric in SHIPPED_RUBRICS else found.setdefault(_OTHERS, {})
            place[rubric] = said["judgement"]
        if own:
            found["judge_input"] = {rubric: self._input(said["input_hash"], full_text) for rubric, said in own.items()}
            found["cost"] = {
                name: sum(values) if None not in (values := [said[name] for said in own.values()]) else None
                for name in ("judge_tokens", "judge_cost_usd")
            }
        return found

    def _input(self, input_hash: str, full_text: bool) -> dict[str, Any]:
        """The input of the judge. It contains the texts of chunks, so it is exported only if those are."""
        prompt = self.prompts.get(input_hash) if full_text else None
        return {"input_hash": input_hash, **({} if prompt is None else {"prompt": prompt})}


def read_judged(session: Session, source: StoredSource, run_id: str, options: ScoreOptions) -> JudgedRows:
    """The judgements of a run's rows in the judging that counts."""
    if not source.rubrics():
        return JudgedRows()
    session.add_loaders({"settings": options.load_settings})
    session.need("judgings", "judgements")
    judges = session.rows(
        "SELECT rubric, model, rubric_hash, CAST(parameters AS VARCHAR) FROM judgings WHERE is_chosen AND run_id = $1"
        " ORDER BY rubric",
        [run_id],
    )
    judgements: dict[str, dict[str, dict[str, Any]]] = {}
    hashes = set()
    for query_id, rubric, score, reasoning, supported, unsupported, tokens, cost, input_hash in session.rows(
        "SELECT query_id, rubric, score, reasoning, supported, unsupported, tokens, cost_usd, input_hash"
        " FROM judgements WHERE run_id = $1 ORDER BY query_id, rubric",
        [run_id],
    ):
        said: dict[str, Any] = {"score": score, "reasoning": reasoning}
        if unsupported is not None or supported is not None:
            said |= {
                "unsupported_claims": json.loads(unsupported or "[]"),
                "supported_claims": json.loads(supported or "[]"),
            }
        judgements.setdefault(query_id, {})[rubric] = {
            "judgement": said,
            "judge_tokens": tokens,
            "judge_cost_usd": cost,
            "input_hash": input_hash,
        }
        hashes.add(input_hash)
    return JudgedRows(
        [rubric for rubric, *_ in judges],
        judgements,
        {input_hash: _prompt(text) for input_hash, text in source.judge_inputs(sorted(hashes)).items()},
        _config(judges),
    )


def _prompt(text: str) -> str:
    try:
        return str(json.loads(text).get("prompt", ""))
    except (ValueError, AttributeError):
        return ""


def _config(judges: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The judge, under the keys of the harness."""
    if not judges:
        return {}
    try:
        temperature = json.loads(judges[0][3]).get("temperature")
    except (ValueError, AttributeError):
        temperature = None
    return {
        "judge_model": ", ".join(sorted({str(model) for _, model, *_ in judges})),
        "judge_prompt_version": ", ".join(f"{rubric} {rubric_hash}" for rubric, _, rubric_hash, _ in judges),
        "judge_temperature": temperature,
    }
