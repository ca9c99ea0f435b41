"""May the scores of two runs' judges be compared? Different judges give different scores to the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbeval.storage.run_config import broken_invariants, config_of, judge_model
from kbeval.storage.runs import Run


def different_judges(a: Run, b: Run, judges: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How the judges of two runs differ, one phrase per difference.

    `judges`: those of runs that were judged here, for each rubric; see `kbeval.scoring.provenance.judges`. The judge
    named in the configuration of an imported run counts only if the run was not judged here.
    """
    of_a, of_b = judges.get(a.run_id), judges.get(b.run_id)
    if of_a is None and of_b is None:
        return broken_invariants(a, b)
    if of_a is None or of_b is None:
        return _one_imported(a if of_a is None else b, of_a or of_b or {})
    found = []
    for rubric in sorted(of_a.keys() & of_b.keys()):
        for what, name in (("model", "judge"), ("rubric", "text of the rubric"), ("parameters", "judge's parameters")):
            if of_a[rubric].get(what) != of_b[rubric].get(what):
                found.append(f"{name} of {rubric}: {of_a[rubric].get(what)} and {of_b[rubric].get(what)}")
    return found


def _one_imported(imported: Run, judged: Mapping[str, Any]) -> list[str]:
    """The difference if one run was judged here and the other was imported with scores and names a judge."""
    theirs = judge_model(config_of(imported))
    ours = {str(judge.get("model")) for judge in judged.values()}
    if theirs is None:
        return []
    return [f"judge: {', '.join(sorted(ours))} (judged here) and {theirs} (came with run {imported.run_id})"]
