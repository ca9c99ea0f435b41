"""Gates: limits that a run must keep. One that fails says by how much, and a number that vanished never passes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbeval.aggregates import score_runs
from kbeval.compare import CompareOptions, compare_runs
from kbeval.comparison import FALLBACK, CompareReport
from kbeval.errors import BadRowsError, UsageError
from kbeval.exact import difference
from kbeval.golden import Golden
from kbeval.metrics import (
    HIGHER,
    PERCENTILES,
    Metric,
    did_you_mean,
    find_column,
    find_metric,
    long_name,
    refuse_neither,
)
from kbeval.model import AggregateMetrics, Number
from kbeval.text import counted

# What may stand in the config file's [gates], and on the command line with dashes.
LIMITS = ("min", "max", "max_drop", "min_scored")
CONFIG_KEYS = (*LIMITS, "max_missing", "no_regressions", "baseline")
# Numbers of the section `abstention` that limits are put on; the others are counts.
ABSTENTION = ("abstention.unsupported_rate", "abstention.over_cautious_rate")
_NEED_BASELINE = ("max_drop", "no_regressions")
# Limits are decimals; a number that is exactly at its limit passes.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Gate:
    """One limit. `metric`: the printed name of a number, or a metric's for min_scored; None where there is none."""

    kind: str
    metric: str | None
    limit: float

    def __str__(self) -> str:
        option = f"--{self.kind.replace('_', '-')}"
        if self.kind == "no_regressions":
            return option
        return f"{option} {self.limit:g}" if self.metric is None else f"{option} {self.metric}={self.limit:g}"


@dataclass(frozen=True)
class GateResult:
    """What became of a gate."""

    gate: Gate
    value: Number
    passed: bool
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "gate": self.gate.kind,
            "metric": self.gate.metric,
            "limit": self.gate.limit,
            "value": self.value,
            "pass": self.passed,
            "why": self.why,
        }


@dataclass(frozen=True)
class GateReport:
    """All gates of a run."""

    run: str
    baseline: str | None
    results: Sequence[GateResult]
    warnings: Sequence[str] = field(default_factory=tuple)

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "baseline": self.baseline,
            "pass": self.passed,
            "gates": [result.to_dict() for result in self.results],
        }


# --- reading -----------------------------------------------------------------------------------------


def parse_limits(kind: str, texts: Sequence[str]) -> dict[str, float]:
    """`hit_at_k.5=0.8`, several times, as a table."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            msg = f"--{kind.replace('_', '-')} {text!r} is no limit; write it like hit_at_k.5=0.8"
            raise UsageError(msg)
        found[name.strip()] = _number(f"--{kind.replace('_', '-')} {name.strip()}", value.strip())
    return found


def _number(where: str, value: Any) -> float:  # noqa: ANN401  (text from the command line, anything from a file)
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        msg = f"{where}: {value!r} is not a number"
        raise UsageError(msg)
    return number


def read_gates(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The `[gates]` of a config file, checked."""
    for key, value in table.items():
        if key not in CONFIG_KEYS:
            msg = f"{origin}: unknown key {key!r} in [gates]{did_you_mean(key, CONFIG_KEYS)}"
            raise UsageError(msg)
        wanted = dict if key in LIMITS else bool if key == "no_regressions" else str if key == "baseline" else int
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            shape = {dict: "a table of metric = number", bool: "true or false", str: "text", int: "a whole number"}
            msg = f"{origin}: {key} in [gates] must be {shape[wanted]}"
            raise UsageError(msg)
    if table.get("max_missing", 0) < 0:
        msg = f"{origin}: max_missing in [gates] must be 0 or more"
        raise UsageError(msg)
    return {
        key: {name: _number(f"{origin}: {key} {name}", limit) for name, limit in value.items()}
        if key in LIMITS
        else value
        for key, value in table.items()
    }


def make_gates(table: Mapping[str, Any], metrics: Sequence[Metric]) -> list[Gate]:
    """Gates from limits by kind, each with its one name; raises UsageError where a metric does not exist."""
    found: dict[tuple[str, str | None], Gate] = {}
    for kind in LIMITS:
        for name, limit in table.get(kind, {}).items():
            metric = find_metric(metrics, name).name if kind == "min_scored" else _number_name(metrics, name)
            if kind == "max_drop" and metric not in ABSTENTION:
                refuse_neither(find_metric(metrics, metric), f"--max-drop {name} has no direction; use --min or --max")
            found[kind, metric] = Gate(kind, metric, limit)
    if table.get("max_missing") is not None:
        found["max_missing", None] = Gate("max_missing", None, table["max_missing"])
    if table.get("no_regressions"):
        found["no_regressions", None] = Gate("no_regressions", None, 0)
    return list(found.values())


def _number_name(metrics: Sequence[Metric], name: str) -> str:
    if name in ABSTENTION:
        return name
    metric = find_metric(metrics, name)
    if metric.aggregation == "percentiles":
        part = name.partition(".")[2]
        if part not in PERCENTILES:
            msg = f"{name!r} has several values: say which, like {metric.name}.{PERCENTILES[0]}"
            raise UsageError(msg)
        return f"{metric.name}.{part}"
    if metric.ks and "." not in long_name(name):
        msg = f"{name!r} has several values: say which, like {metric.columns[0].name}"
        raise UsageError(msg)
    return find_column(metrics, name).name


def ks_of(table: Mapping[str, Any]) -> list[int]:
    """The values of k that gates name, so that they are computed."""
    names = [name for kind in ("min", "max", "max_drop") for name in table.get(kind, {})]
    ks = (long_name(name).partition(".")[2] for name in names)
    return sorted({int(k) for k in ks if k.isascii() and k.isdigit() and 0 < int(k) < 10**9})


# --- judging -----------------------------------------------------------------------------------------


def check_gates(
    run: str,
    table: Mapping[str, Any],
    *,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: CompareOptions | None = None,
) -> GateReport:
    """Score a run, compare it with the baseline where the table names one, and hold it against its gates.

    `table` is what [gates] in a config file may hold: {"min": {"hit_at_k.5": 0.8}, "max_missing": 0, …}.
    """
    options = options or CompareOptions()
    baseline = table.get("baseline")
    scoring = replace(options.scoring, extra_ks=(*options.scoring.extra_ks, *ks_of(table)))
    gates = make_gates(table, scoring.metrics())
    if not gates:
        msg = "there are no gates: give --min METRIC=VALUE, --max, …, or [gates] in kbeval.toml"
        raise UsageError(msg)
    if baseline is None:
        if needy := next((gate for gate in gates if gate.kind in _NEED_BASELINE), None):
            msg = f"{needy} needs something to compare with: --baseline RUN"
            raise UsageError(msg)
        return _alone(run, gates, db, golden, replace(options, scoring=scoring))
    report = compare_runs(baseline, run, db=db, golden=golden, options=replace(options, scoring=scoring))
    results = [_judged(gate, report.aggregate_b, scoring.metrics(), report) for gate in gates]
    warnings = list(report.warnings)
    if report.chunker_version_match == FALLBACK:
        warnings.insert(0, "the chunkers differ, so both runs were matched by spans, for every gate")
    return GateReport(report.run_b, report.run_a, results, warnings)


def _alone(
    run: str,
    gates: Sequence[Gate],
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: CompareOptions,
) -> GateReport:
    scored = score_runs(db, golden, [run], options.scoring)
    if scored.bad_rows and not options.skip_bad_rows:
        raise BadRowsError([str(row) for row in scored.bad_rows], "--skip-bad-rows counts them as failed queries:")
    ((run_id, aggregate),) = scored.aggregates.items()
    results = [_judged(gate, aggregate, options.scoring.metrics(), None) for gate in gates]
    return GateReport(run_id, None, results, [*scored.warnings, *scored.bad_row_warning()])


def _judged(
    gate: Gate, aggregate: AggregateMetrics, metrics: Sequence[Metric], report: CompareReport | None
) -> GateResult:
    if gate.kind == "min_scored":
        scored = _scored(aggregate, gate.metric or "")
        said = f"scored on {counted(scored, 'query', 'queries')}"
        return _said(gate, scored, said, passed=scored >= gate.limit)
    if gate.kind == "max_missing":
        missing = int(aggregate.ledger.get("missing", 0))
        said = f"no row for {counted(missing, 'golden query', 'golden queries')}"
        return _said(gate, missing, said, passed=missing <= gate.limit)
    if gate.kind == "no_regressions" and report is not None:
        lost = report.of_kind("regression")
        some = ", ".join(one.query_id for one in lost[:3]) + (", …" if len(lost) > 3 else "")
        said = f"{counted(len(lost), 'regression')}: {some}" if lost else "no regression"
        return _said(gate, len(lost), said, passed=not lost)
    name = gate.metric or ""
    value = _value(aggregate, name)
    if value is None:
        return _said(gate, None, f"{name} has no value: it applies to no query of this run", passed=False)
    if gate.kind == "max_drop":
        before = None if report is None else _value(report.aggregate_a, name)
        higher = name not in ABSTENTION and find_metric(metrics, name).better == HIGHER
        return _dropped(gate, before, value, higher_is_better=higher)
    above = value - gate.limit if gate.kind == "min" else gate.limit - value
    return _said(gate, value, f"{name} is {value:g}", passed=above >= -_TOLERANCE)


def _dropped(gate: Gate, before: Number, value: float, *, higher_is_better: bool) -> GateResult:
    if before is None:
        return _said(
            gate, None, f"{gate.metric} has no value in the baseline: it applies to no query there", passed=False
        )
    change = difference(before, value) or 0
    worse = -change if higher_is_better else change
    said = f"{gate.metric} went from {before:g} to {value:g}"
    return _said(gate, change, said, passed=worse <= gate.limit + _TOLERANCE)


def _said(gate: Gate, value: Number, said: str, *, passed: bool) -> GateResult:
    wanted = {
        "min": f"at least {gate.limit:g}",
        "max": f"at most {gate.limit:g}",
        "max_drop": f"worse by at most {gate.limit:g}",
        "min_scored": f"at least {gate.limit:g}",
        "max_missing": f"at most {gate.limit:g}",
        "no_regressions": "none",
    }
    return GateResult(gate, value, passed, said if passed else f"{said}; wanted: {wanted[gate.kind]}")


def _scored(aggregate: AggregateMetrics, metric: str) -> int:
    counts = aggregate.ledger.get("metrics", {}).get(metric, {})
    return int(counts.get("scored", 0))


def _value(aggregate: AggregateMetrics, name: str) -> Number:
    """A number that was scored on no query is no number, whatever stands in for it in the JSON."""
    has_value = name in ABSTENTION or _scored(aggregate, name.partition(".")[0])
    return aggregate.value(name) if has_value else None
