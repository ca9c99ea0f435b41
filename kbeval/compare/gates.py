"""Gates: thresholds that a run must meet. A failed gate says by how much, and a missing number never passes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kbeval.compare.options import CompareOptions
from kbeval.errors import BadRowsError, UsageError
from kbeval.golden import Golden
from kbeval.metrics.catalogue import HIGHER, JUDGE, Metric, refuse_neither
from kbeval.metrics.model import AggregateMetrics, Number
from kbeval.metrics.names import ABSTENTION_RATES, Name, Names, ks_named, once_meant
from kbeval.scoring.aggregate import score_runs
from kbeval.storage.run_config import config_of, is_outage
from kbeval.storage.runs import Run, find_baseline, find_run
from kbeval.storage.source import one_snapshot, scores_that_came, stored_rubrics, stored_runs
from kbeval.util.limits import as_stored, as_written, limit_text, side, telling, telling_change
from kbeval.util.text import counted, did_you_mean

if TYPE_CHECKING:
    from kbeval.compare.report import CompareReport

# The keys of [gates] in the config file; on the command line they are written with dashes.
LIMITS = ("min", "max", "max_drop", "min_scored")
# The boolean ones.
SWITCHES = ("no_regressions", "not_worse")
CONFIG_KEYS = (*LIMITS, "max_missing", *SWITCHES, "baseline")
# The ones that limit how much worse than another run this one may be.
NEED_BASELINE = ("max_drop", *SWITCHES)
_MOST_NAMED = 3
# Always checked: a run in which the system was down passes no gates.
OUTAGE = "outage"


@dataclass(frozen=True)
class Gate:
    """One threshold. `metric`: the printed name of a number, or of a metric for min_scored; None if not applicable."""

    kind: str
    metric: str | None
    limit: float

    def __str__(self) -> str:
        if self.kind == OUTAGE:
            return "the system answers"
        option = f"--{self.kind.replace('_', '-')}"
        if self.kind in SWITCHES:
            return option
        limit = limit_text(self.limit)
        return f"{option} {limit}" if self.metric is None else f"{option} {self.metric}={limit}"


@dataclass(frozen=True)
class GateResult:
    """The result of a gate."""

    gate: Gate
    value: Number
    passed: bool
    why: str
    # The queries concerned; `why` names only the first of many.
    queries: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        found = {
            "gate": self.gate.kind,
            "metric": self.gate.metric,
            "limit": self.gate.limit,
            "value": self.value,
            "pass": self.passed,
            "why": self.why,
        }
        return {**found, "queries": list(self.queries)} if self.gate.kind == "no_regressions" else found


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
    """Parse several `hit_at_k.5=0.8` into a table."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            msg = f"--{kind.replace('_', '-')} expects METRIC=VALUE, such as hit_at_k.5=0.8 (got {text!r})"
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
        wanted = dict if key in LIMITS else bool if key in SWITCHES else str if key == "baseline" else int
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
    """Gates from thresholds by kind, with canonical names; raises UsageError if a metric does not exist."""
    found: dict[tuple[str, str | None], Gate] = {}
    names = Names(metrics)
    for kind in LIMITS:
        for text, limit in table.get(kind, {}).items():
            name = names.metric(text).name if kind == "min_scored" else names.number(text).long
            if kind == "max_drop" and name not in ABSTENTION_RATES:
                refuse_neither(names.metric(text), f"--max-drop {text} has no direction; use --min or --max")
            found[kind, name] = Gate(kind, name, limit)
    if table.get("max_missing") is not None:
        found["max_missing", None] = Gate("max_missing", None, table["max_missing"])
    for kind in SWITCHES:
        if table.get(kind):
            found[kind, None] = Gate(kind, None, 0)
    return list(found.values())


def ks_of(table: Mapping[str, Any]) -> list[int]:
    """The values of k that gates refer to, so that they are computed."""
    return ks_named(name for kind in ("min", "max", "max_drop") for name in table.get(kind, {}))


# --- judging -----------------------------------------------------------------------------------------


def check_gates(
    run: str,
    table: Mapping[str, Any],
    *,
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: CompareOptions | None = None,
) -> GateReport:
    """Score a run, compare it with the baseline if the table names one, and check it against its gates.

    `table` has the form of [gates] in a config file: {"min": {"hit_at_k.5": 0.8}, "max_missing": 0, …}. Its `baseline`
    may be `previous`, `~N` or `latest~N`: that many runs before the gated one in its suite.
    """
    options = options or CompareOptions()
    scoring = replace(options.scoring, extra_ks=(*options.scoring.extra_ks, *ks_of(table)))
    metrics = scoring.metrics(_rubrics_named(table, db), scores_that_came(db, _named(table)))
    gates = make_gates(table, metrics)
    if not gates:
        msg = "no gates given: use --min METRIC=VALUE, --max, …, or [gates] in kbeval.toml"
        raise UsageError(msg)
    with one_snapshot(db, options.scoring.cache):
        stored = stored_runs(db)
        gated = find_run(stored, run, str(db), options.scoring.suite)
        # Both runs are known now, and the baseline need not belong to the suite.
        options = replace(options, scoring=replace(scoring, suite=None))
        if table.get("baseline") is None:
            if needy := next((gate for gate in gates if gate.kind in NEED_BASELINE), None):
                msg = f"{needy} requires a baseline: use --baseline RUN"
                raise UsageError(msg)
            found = _alone(gated.run_id, (gates, metrics), db, golden, options)
            return replace(found, results=[*_outage(gated), *found.results])
        baseline = find_baseline(stored, table["baseline"], gated, str(db))
        # Without a baseline nothing is compared.
        from kbeval.compare.report import FALLBACK
        from kbeval.compare.run import compare_runs

        report = compare_runs(baseline.run_id, gated.run_id, db=db, golden=golden, options=options)
        results = [*_outage(gated), *(_judged(gate, report.aggregate_b, metrics, report) for gate in gates)]
        warnings = list(report.warnings)
        if baseline.run_id == gated.run_id:
            warnings.insert(
                0, f"the baseline is {gated.run_id} itself, so nothing can be worse; specify another with --baseline"
            )
        if report.chunker_version_match == FALLBACK:
            warnings.insert(0, "the chunkers differ, so both runs were matched by spans, for every gate")
        return GateReport(report.run_b, report.run_a, results, warnings)


def _outage(run: Run) -> list[GateResult]:
    if not is_outage(config_of(run)):
        return []
    why = "every answer is a refusal with nothing retrieved: the system may have been down"
    return [GateResult(Gate(OUTAGE, None, 0), None, passed=False, why=why)]


def _rubrics_named(table: Mapping[str, Any], db: str | os.PathLike[str]) -> list[str]:
    """The rubrics that runs were judged by, if a gate may refer to one."""
    return stored_rubrics(db) if any(name.startswith(JUDGE) for name in _named(table)) else []


def _named(table: Mapping[str, Any]) -> list[str]:
    """The names of numbers in a table of gates."""
    kinds = ("min", "max", "max_drop", "min_scored")
    return [str(name) for kind in kinds if isinstance(table.get(kind), Mapping) for name in table[kind]]


def _alone(
    run: str,
    asked: tuple[Sequence[Gate], Sequence[Metric]],
    db: str | os.PathLike[str],
    golden: Golden | str | os.PathLike[str],
    options: CompareOptions,
) -> GateReport:
    scored = score_runs(db, golden, [run], options.scoring)
    if scored.bad_rows and not options.skip_bad_rows:
        raise BadRowsError([str(row) for row in scored.bad_rows], "--skip-bad-rows counts them as failed queries:")
    ((run_id, aggregate),) = scored.aggregates.items()
    gates, metrics = asked
    results = [_judged(gate, aggregate, metrics, None) for gate in gates]
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
    if report is not None and gate.kind in SWITCHES:
        return _switched(gate, report)
    name = gate.metric or ""
    value, exact = _value(aggregate, name)
    if value is None or exact is None:
        why = f"{name} has no value: it does not apply to any query of this run{once_meant(name)}"
        return _said(gate, None, why, passed=False)
    if gate.kind == "max_drop":
        before = (None, None) if report is None else _value(report.aggregate_a, name)
        higher = name not in ABSTENTION_RATES and Names(metrics).metric(name).better == HIGHER
        return _dropped(gate, before, (value, exact), higher_is_better=higher)
    text = telling(exact, value, gate.limit)
    place = side(exact, as_written(gate.limit))
    passed = place >= 0 if gate.kind == "min" else place <= 0
    return _said(gate, value if text in as_stored(value) else float(text), f"{name} is {text}", passed=passed)


def _switched(gate: Gate, report: CompareReport) -> GateResult:
    if gate.kind == "not_worse":
        # If some numbers got better and others worse, the run is worse in the latter.
        worse = [Name.parse(name).short for name in report.verdict.worse]
        said = f"worse in {', '.join(worse)}" if worse else report.verdict.answer
        return _said(gate, len(worse), said, passed=not worse)
    lost = [one.query_id for one in report.of_kind("regression")]
    some = ", ".join(lost[:_MOST_NAMED]) + (", …" if len(lost) > _MOST_NAMED else "")
    said = f"{counted(len(lost), 'regression')}: {some}" if lost else "no regression"
    return replace(_said(gate, len(lost), said, passed=not lost), queries=lost)


Value = tuple[Number, Fraction | None]


def _dropped(gate: Gate, before: Value, after: tuple[float, Fraction], *, higher_is_better: bool) -> GateResult:
    stored_before, exact_before = before
    if stored_before is None or exact_before is None:
        return _said(
            gate,
            None,
            f"{gate.metric} has no value in the baseline: it does not apply to any query there",
            passed=False,
        )
    stored, exact = after
    change = exact - exact_before
    worse = -change if higher_is_better else change
    old, new = telling_change((exact_before, stored_before), (exact, stored), gate.limit)
    difference = Fraction(new) - Fraction(old)
    shown = int(difference) if isinstance(stored, int) and isinstance(stored_before, int) else float(difference)
    said = f"{gate.metric} went from {old} to {new}"
    return _said(gate, shown, said, passed=side(worse, as_written(gate.limit)) <= 0)


def _said(gate: Gate, value: Number, said: str, *, passed: bool) -> GateResult:
    limit = limit_text(gate.limit)
    wanted = {
        "min": f"at least {limit}",
        "max": f"at most {limit}",
        "max_drop": f"worse by at most {limit}",
        "min_scored": f"at least {limit}",
        "max_missing": f"at most {limit}",
        "no_regressions": "none",
        "not_worse": "worse in none",
    }
    return GateResult(gate, value, passed, said if passed else f"{said}; wanted: {wanted[gate.kind]}")


def _scored(aggregate: AggregateMetrics, metric: str) -> int:
    counts = aggregate.ledger.get("metrics", {}).get(metric, {})
    return int(counts.get("scored", 0))


def _value(aggregate: AggregateMetrics, name: str) -> Value:
    """A number as stored, and its exact value. None if it was scored on no query, whatever is shown instead."""
    if name not in ABSTENTION_RATES and not aggregate.counts(name).get("scored"):
        return None, None
    value = aggregate.value(name)
    return value, None if value is None else aggregate.exact_value(name)
