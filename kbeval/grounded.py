"""Grounded question answering in one go: a gold file and a trace in, numbers and gates out, no database kept."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbeval.aggregates import score_runs
from kbeval.errors import UsageError
from kbeval.importers.grounded import read_trace
from kbeval.importers.writing import write_runs
from kbeval.metrics import did_you_mean
from kbeval.scoring import ScoreOptions

# What each gate is about, and whether it is a least or a most.
GATES = {
    "precision": ("answer_precision", "min"),
    "chr": ("citation_hit_rate", "min"),
    "under": ("under_refusal_rate", "max"),
    "over": ("over_refusal_rate", "max"),
}
DEFAULT_GATES = {"precision": 0.80, "chr": 0.75, "under": 0.05, "over": 0.10}
DEFAULT_K = 5


def parse_gates(text: str) -> dict[str, float]:
    """`precision=0.80,chr=0.75` as a table."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = -1
        if name not in GATES:
            msg = f"there is no gate {name!r}{did_you_mean(name, GATES) or '; there are ' + ', '.join(GATES)}"
            raise UsageError(msg)
        if not equals or not 0 <= limit <= 1:
            msg = f"gate {part!r} is not a number from 0 to 1; write it like precision=0.80"
            raise UsageError(msg)
        found[name] = limit
    return found


def score_trace(
    gold: str, trace: str, *, k: int = DEFAULT_K, gates: Mapping[str, float] | None = None, options: ScoreOptions
) -> tuple[dict[str, Any], list[str]]:
    """The numbers of a trace, and what to know about them."""
    gates = DEFAULT_GATES if gates is None else gates
    run = read_trace(Path(trace), "trace")
    with tempfile.TemporaryDirectory(prefix="kbeval-") as folder:
        database = Path(folder) / "trace.db"
        write_runs(database, [run])
        scored = score_runs(database, gold, ["trace"], replace(options, extra_ks=(*options.extra_ks, k), cache="off"))
    aggregate = scored.aggregates["trace"]
    numbers = aggregate.extra
    passed = all(
        numbers[metric] >= gates[name] if side == "min" else numbers[metric] <= gates[name]
        for name, (metric, side) in GATES.items()
        if name in gates
    )
    found = {
        **{name: numbers[name] for name in ("answered", "refused", "answerable", "unanswerable")},
        "precision": numbers["answer_precision"],
        "chr": numbers["citation_hit_rate"],
        "under_refusal": numbers["under_refusal_rate"],
        "over_refusal": numbers["over_refusal_rate"],
        "recall@k": numbers["citation_recall_at_k"][k],
        "k": k,
        "gates": dict(gates),
        "pass": passed,
    }
    return found, [*run.warnings, *scored.warnings]
