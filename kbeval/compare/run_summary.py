"""The data of a run's summary; `kbeval.render.summary` writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbeval.compare.gates import GateReport
from kbeval.compare.report import CompareReport
from kbeval.compare.run import IncomparableError
from kbeval.metrics.catalogue import Metric
from kbeval.metrics.model import AggregateMetrics

if TYPE_CHECKING:
    from kbeval.storage.runs import Run

SKIPPED, DONE, FAILED, ERROR = "skipped", "done", "failed", "error"


@dataclass(frozen=True)
class StepResult:
    """One step of an evaluation: its exit code (None: it was not run) and its result in one line."""

    name: str
    code: int | None
    text: str

    @property
    def state(self) -> str:
        """The exit code in a word."""
        return {None: SKIPPED, 0: DONE, 1: FAILED}.get(self.code, ERROR)


@dataclass(frozen=True)
class RunSummary:
    """The settings, the results, and what changed since the previous run of the suite."""

    run: Run
    # The settings to show, without secrets.
    config: Mapping[str, Any]
    aggregate: AggregateMetrics | None
    metrics: Sequence[Metric]
    # The previous run of its suite, and the result of comparing with it; None if there is none.
    before: Run | None = None
    compared: CompareReport | IncomparableError | None = None
    gates: GateReport | None = None
    description: str | None = None
    steps: Sequence[StepResult] = ()
    warnings: Sequence[str] = ()
