"""Scores grounded question answering in one step: reads a gold file and a trace, keeps no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Self

from kbeval.errors import BadRowsError, UsageError
from kbeval.golden import load_golden
from kbeval.metrics.catalogue import Metric, shipped_metrics
from kbeval.scoring.aggregate import bad_rows, numbers_of, run_totals
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.run_warnings import MISSING_TRACES, gap_warnings
from kbeval.scoring.scorer import Scoring, open_scoring
from kbeval.systems.fast_trace import RUN_ID, score_quickly
from kbeval.util.drafts import draft_folder
from kbeval.util.limits import as_written, limit_text, side, telling
from kbeval.util.text import did_you_mean

# The metric of each gate, and whether its threshold is a minimum or a maximum.
GATES = {
    "precision": ("answer_precision", "min"),
    "chr": ("citation_hit_rate", "min"),
    "under": ("under_refusal_rate", "max"),
    "over": ("over_refusal_rate", "max"),
}
# The name of each gate's number in the output.
NAMES = {"precision": "precision", "chr": "chr", "under": "under_refusal", "over": "over_refusal"}
DEFAULT_GATES = {"precision": 0.80, "chr": 0.75, "under": 0.05, "over": 0.10}
DEFAULT_K = 5
COUNTS = ("answered", "refused", "answerable", "unanswerable")


class TraceOptions(ScoreOptions):
    """How to score a trace: only the metrics that are printed. Nothing is cached."""

    @classmethod
    def of(cls, options: ScoreOptions, **changes: Any) -> Self:  # noqa: ANN401  (any option)
        """The same options, for a trace."""
        given = {field.name: getattr(options, field.name) for field in fields(options)}
        return cls(**{**given, "cache": "off", "match": "exact", **changes})

    def metrics(self, rubrics: Sequence[str] = (), came_along: Sequence[Metric] = ()) -> list[Metric]:  # noqa: ARG002  (a trace has no scores)
        names = [*COUNTS, *(metric for metric, _ in GATES.values()), "citation_recall_at_k"]
        return [metric.with_ks(self.extra_ks) for metric in shipped_metrics(names)]


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
            msg = f"unknown gate {name!r}{did_you_mean(name, GATES) or '; use one of ' + ', '.join(GATES)}"
            raise UsageError(msg)
        if not equals or not 0 <= limit <= 1:
            msg = f"--gates expects NAME=VALUE with a value from 0 to 1, e.g. precision=0.80 (got {part!r})"
            raise UsageError(msg)
        found[name] = limit
    if not found:
        msg = "--gates is empty; use e.g. precision=0.80,under=0.05, or omit it for the defaults"
        raise UsageError(msg)
    return found


class TraceScores(NamedTuple):
    """The numbers of a trace as printed, warnings about them, and a message for each gate that fails."""

    found: dict[str, Any]
    warnings: list[str]
    failed: list[str]


def score_trace(
    gold: str, trace: str, *, k: int = DEFAULT_K, gates: Mapping[str, float] | None = None, options: ScoreOptions
) -> TraceScores:
    """Score a trace and check it against its gates."""
    gates = DEFAULT_GATES if gates is None else gates
    options = TraceOptions.of(options, extra_ks=(*options.extra_ks, k))
    read = _read_quickly(Path(gold), Path(trace), options) or _read_exactly(gold, Path(trace), options)
    numbers = read.numbers
    failed = _failed_gates(numbers, gates, read.exact)
    found = {
        **{name: numbers[name] for name in COUNTS},
        **{NAMES[gate]: numbers[metric] for gate, (metric, _) in GATES.items()},
        "recall@k": numbers["citation_recall_at_k"][k],
        "k": k,
        "gates": dict(gates),
        "pass": not failed,
    }
    return TraceScores(found, read.warnings, failed)


def _failed_gates(numbers: Mapping[str, Any], gates: Mapping[str, float], exact: Mapping[str, Fraction]) -> list[str]:
    """A message for each gate that fails; compares exact numbers, not rounded ones."""
    failed = []
    for gate, (metric, kind) in GATES.items():
        stored, limit = numbers[metric], gates.get(gate)
        if limit is None:
            continue
        value = exact.get(metric, as_written(stored))
        place = side(value, as_written(limit))
        if place < 0 if kind == "min" else place > 0:
            where = "below" if kind == "min" else "above"
            failed.append(f"{gate} is {telling(value, stored, limit)}, {where} {limit_text(limit)}")
    return failed


class _Read(NamedTuple):
    """The numbers, warnings about them, and the same numbers before rounding."""

    numbers: dict[str, Any]
    warnings: list[str]
    exact: dict[str, Fraction]


def _read_quickly(gold: Path, trace: Path, options: ScoreOptions) -> _Read | None:
    """Let the engine read the trace; None if it is irregular."""
    return score_quickly(gold, trace, options, lambda scoring: _numbers(scoring, str(trace)))


def _read_exactly(gold: str, trace: Path, options: ScoreOptions) -> _Read:
    """Through the importer, which reports the line of each error, and a temporary database."""
    import tempfile

    from kbeval.systems.trace_import import read_trace
    from kbeval.systems.writing import write_runs

    golden = load_golden(gold)
    run = read_trace(trace, RUN_ID)
    with draft_folder(Path(tempfile.gettempdir()), "kbeval-") as folder:
        database = folder / "trace.db"
        write_runs(database, [run])
        with open_scoring(database, golden, [RUN_ID], options) as scoring:
            found = _numbers(scoring, str(trace))
            if bad := bad_rows(scoring):
                raise BadRowsError([str(row) for row in bad], f"correct them in {trace}:")
    return found._replace(warnings=[*run.warnings, *found.warnings])


def _numbers(scoring: Scoring, trace: str) -> _Read:
    scoring.build_query_scores()
    (run,) = scoring.runs
    totals = next((found for _, _, found in run_totals(scoring)), {})
    numbers, _, exact = numbers_of(scoring, totals, run)
    ((rows, missing),) = scoring.session.rows(
        "SELECT (SELECT COUNT(*) FROM results), (SELECT COUNT(*) FROM missing_queries)"
    )
    unknown = rows - (len(scoring.golden) - missing)
    gaps = gap_warnings(trace, scoring.golden, (rows, unknown), MISSING_TRACES, "left out")
    return _Read(numbers, [*scoring.golden.warnings, *gaps], exact)
