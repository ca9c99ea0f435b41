"""Scores that came with the rows: other tools' numbers, or those of the user's own judge. Each is a metric of its run.

A row contains them under `scores`, by name: `{"scores": {"ragas.faithfulness": 0.8}}`. The configuration of its run
lists the names, and the direction in which each improves, under `kbeval.scores`, so that scoring knows without reading
a row whether there are any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kbeval.engine import relations
from kbeval.metrics.catalogue import BETTER, HIGHER, LOWER, NEITHER, PER_ROW_SCORE, RESERVED, Metric
from kbeval.metrics.names import ALIASES

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}\.[a-z_][a-z0-9_]{0,80}")
_PART = re.compile(r"[^a-z0-9]+")
# The prefix of the names of scores that do not come from a known tool.
OWN = "own"
# Scores for which lower is better, by tool.
_LOWER = {
    "ragas": ("noise_sensitivity",),
    "deepeval": ("hallucination", "bias", "toxicity"),
    "promptfoo": (),
    "inspect": (),
}


def score_fault(name: str) -> str | None:
    """Why a score must not have this name; None if the name is valid."""
    if not _NAME.fullmatch(name):
        return f"{name!r:.80} is not a valid name for a score; use TOOL.NAME in lower-case letters, digits and _"
    head = name.partition(".")[0]
    is_taken = head in RESERVED or head in ALIASES or (relations.sql_folder() / "metrics" / f"{head}.sql").is_file()
    return f"{name!r:.80}: {head!r} is reserved; choose another word before the dot" if is_taken else None


def score_name(tool: str, given: str) -> str:
    """The name of a tool's score as a metric: `Answer Relevancy` of deepeval is `deepeval.answer_relevancy`."""
    part = _PART.sub("_", given.lower()).strip("_")[:80].rstrip("_") or "score"
    return f"{tool}.{part if not part[0].isdigit() else f'_{part}'}"


def score_names(tool: str, given: Iterable[str]) -> dict[str, str]:
    """The names of a tool's scores as metrics, by the tool's own names; all are distinct."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(set(given)):
        wanted = base = score_name(tool, name)
        number = 2
        while wanted in taken:
            wanted, number = f"{base}_{number}", number + 1
        taken.add(wanted)
        found[name] = wanted
    return found


def direction_of(name: str) -> str:
    """The direction in which a tool's score improves; a score of an unknown tool decides nothing."""
    tool, _, part = name.partition(".")
    if tool not in _LOWER:
        return NEITHER
    return LOWER if any(part.startswith(word) for word in _LOWER[tool]) else HIGHER


def listed_scores(config: Mapping[str, Any]) -> dict[str, str]:
    """The scores that the configuration of a run lists, each with its direction; an invalid list counts as empty."""
    about = config.get("kbeval")
    listed = about.get("scores") if isinstance(about, dict) else None
    if not isinstance(listed, dict):
        return {}
    return {
        name: better
        for name, better in listed.items()
        if isinstance(name, str) and score_fault(name) is None and better in BETTER
    }


def row_score_metrics(configs: Iterable[Mapping[str, Any]]) -> list[Metric]:
    """The metrics of the scores that came with the rows of these runs, by their configurations."""
    found: dict[str, str] = {}
    for config in configs:
        for name, better in listed_scores(config).items():
            # If runs disagree, the score decides nothing.
            found[name] = better if found.get(name, better) == better else NEITHER
    return [
        Metric(
            name=name,
            summary=f"the score {name} that came with the rows.",
            expression=relations.compose("row_score", score=name),
            grain=PER_ROW_SCORE,
            where="in_run",
            better=better,
        )
        for name, better in sorted(found.items())
    ]


def file_of(metric: Metric) -> str:
    """The file of a shipped metric; scores that came with the rows share one file."""
    return f"sql/metrics/{metric.name}.sql" if metric.grain != PER_ROW_SCORE else "sql/totals/row_score.sql"
