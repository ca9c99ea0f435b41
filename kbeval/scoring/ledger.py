"""The counts of each run: rows and their outcomes, answers and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kbeval.metrics.names import ABSTENTION
from kbeval.util.numbers import rounded_mean, units

if TYPE_CHECKING:
    from kbeval.scoring.scorer import Scoring


def run_ledgers(scoring: Scoring) -> dict[str, dict[str, Any]]:
    """For each run, the number of rows, their outcomes, and how they were matched."""
    golden = len(scoring.golden)
    scoring.session.need("run_ledger")
    ledgers = {
        run_id: {
            "golden": golden,
            "rows": rows,
            "missing": golden - (rows - unknown),
            "unknown": unknown,
            "failed": failed,
            "unreadable": unreadable,
            "repeated_hits": int(repeated),
            **({"malformed_citations": int(malformed)} if malformed else {}),
        }
        for run_id, rows, unknown, failed, unreadable, repeated, malformed in scoring.session.rows(
            "SELECT * FROM run_ledger"
        )
    }
    if "anchor_rows" in scoring.session.built:
        scoring.session.need("unverified_supports")
        for run_id, unverified in scoring.session.rows("SELECT run_id, n FROM unverified_supports"):
            ledgers[run_id]["unverified_supports"] = unverified
    if scoring.rubrics:
        scoring.session.need("judge_ledger")
        for run_id, rubric, *counts in scoring.session.rows("SELECT * FROM judge_ledger ORDER BY run_id, rubric"):
            names = ("judged", "unscored", "not_judged", "cached")
            ledgers[run_id].setdefault("judgements", {})[rubric] = dict(zip(names, counts, strict=True))
    if scoring.matching.places_matter:
        scoring.session.need("matched_queries")
        for run_id, by_span, by_doc, by_nothing in scoring.session.rows("SELECT * FROM matched_queries"):
            ledgers[run_id]["matched"] = {"span": by_span, "doc": by_doc}
            ledgers[run_id]["unmatched"] = by_nothing
        scoring.session.need("unmet_queries")
        for run_id, unmet in scoring.session.rows("SELECT run_id, n FROM unmet_queries"):
            ledgers[run_id]["other_kinds_of_position"] = unmet
    return ledgers


def run_abstention(scoring: Scoring) -> dict[str, dict[str, Any]]:
    """How many queries each run answered and refused, with and without the evidence."""
    scoring.session.need("abstention")
    found = {}
    for run_id, k, *counts in scoring.session.rows("SELECT * FROM abstention"):
        answered, refused, wrongly, rightly, supported, unsupported, over_cautious, honest = counts
        found[run_id] = {
            "k": k,
            "answerable_answered": answered,
            "answerable_refused": refused,
            "unanswerable_answered": wrongly,
            "unanswerable_refused": rightly,
            "answered_with_evidence": supported,
            "answered_without_evidence": unsupported,
            "refused_with_evidence": over_cautious,
            "refused_without_evidence": honest,
            "unsupported_rate": _share(unsupported, supported + unsupported),
            "over_cautious_rate": _share(over_cautious, supported + over_cautious),
        }
    return found


def exact_rates(abstention: Mapping[str, Any]) -> dict[str, Fraction]:
    """The rates of a run's abstention before rounding."""
    wrong = {"unsupported_rate": "answered_without_evidence", "over_cautious_rate": "refused_with_evidence"}
    supported = abstention.get("answered_with_evidence", 0)
    return {
        f"{ABSTENTION}.{rate}": Fraction(abstention[count], supported + abstention[count])
        for rate, count in wrong.items()
        if abstention.get(rate) is not None
    }


def _share(part: int, whole: int) -> float | None:
    return rounded_mean(units(part), whole) if whole else None
