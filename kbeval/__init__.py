"""kbeval scores stored evaluation runs of knowledge bases and RAG systems.

    import kbeval
    aggregate = kbeval.compute_aggregate("nightly-42", db="workspace.db", golden="golden.yaml")
    kbeval.store_aggregate("nightly-42", aggregate, db="workspace.db")

Names are loaded on first use, so that importing kbeval is cheap.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` takes as long as all the rest
__version__ = "0.1.0"

_HOMES = {
    "AggregateMetrics": "kbeval.metrics.model",
    "CompareOptions": "kbeval.compare.options",
    "CompareReport": "kbeval.compare.report",
    "Evaluation": "kbeval.frames.evaluation",
    "Evaluations": "kbeval.frames.evaluation",
    "Explorer": "kbeval.explore.explorer",
    "Finding": "kbeval.explore.findings",
    "GateReport": "kbeval.compare.gates",
    "Golden": "kbeval.golden",
    "History": "kbeval.explore.history",
    "HistoryOptions": "kbeval.explore.history",
    "KbevalError": "kbeval.errors",
    "Metric": "kbeval.metrics.catalogue",
    "QueryComparison": "kbeval.compare.report",
    "Recorder": "kbeval.systems.recorder",
    "Run": "kbeval.storage.runs",
    "ScoreOptions": "kbeval.scoring.options",
    "Scored": "kbeval.scoring.aggregate",
    "Scoring": "kbeval.scoring.scorer",
    "Workspace": "kbeval.workspace",
    "archive_runs": "kbeval.storage.archive_writer",
    "check_gates": "kbeval.compare.gates",
    "check_workspace": "kbeval.explore.check",
    "compare_runs": "kbeval.compare.run",
    "compute_aggregate": "kbeval.scoring.aggregate",
    "evaluate": "kbeval.frames.evaluation",
    "load_golden": "kbeval.golden",
    "metric_history": "kbeval.explore.history",
    "open_explorer": "kbeval.explore.explorer",
    "open_scoring": "kbeval.scoring.scorer",
    "open_workspace": "kbeval.workspace",
    "recompute": "kbeval.scoring.attribution",
    "record": "kbeval.systems.recorder",
    "render_report_md": "kbeval.render.comparison",
    "score_runs": "kbeval.scoring.aggregate",
    "store_aggregate": "kbeval.scoring.aggregate",
    "store_scored": "kbeval.scoring.aggregate",
    "write_report": "kbeval.report.writing",
}

__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604  (the names of the table above)

if TYPE_CHECKING:
    from typing import Any

    from kbeval.compare.gates import GateReport as GateReport
    from kbeval.compare.gates import check_gates as check_gates
    from kbeval.compare.options import CompareOptions as CompareOptions
    from kbeval.compare.report import CompareReport as CompareReport
    from kbeval.compare.report import QueryComparison as QueryComparison
    from kbeval.compare.run import compare_runs as compare_runs
    from kbeval.errors import KbevalError as KbevalError
    from kbeval.explore.check import check_workspace as check_workspace
    from kbeval.explore.explorer import Explorer as Explorer
    from kbeval.explore.explorer import open_explorer as open_explorer
    from kbeval.explore.findings import Finding as Finding
    from kbeval.explore.history import History as History
    from kbeval.explore.history import HistoryOptions as HistoryOptions
    from kbeval.explore.history import metric_history as metric_history
    from kbeval.frames.evaluation import Evaluation as Evaluation
    from kbeval.frames.evaluation import Evaluations as Evaluations
    from kbeval.frames.evaluation import evaluate as evaluate
    from kbeval.golden import Golden as Golden
    from kbeval.golden import load_golden as load_golden
    from kbeval.metrics.catalogue import Metric as Metric
    from kbeval.metrics.model import AggregateMetrics as AggregateMetrics
    from kbeval.render.comparison import render_report_md as render_report_md
    from kbeval.report.writing import write_report as write_report
    from kbeval.scoring.aggregate import Scored as Scored
    from kbeval.scoring.aggregate import compute_aggregate as compute_aggregate
    from kbeval.scoring.aggregate import score_runs as score_runs
    from kbeval.scoring.aggregate import store_aggregate as store_aggregate
    from kbeval.scoring.aggregate import store_scored as store_scored
    from kbeval.scoring.attribution import recompute as recompute
    from kbeval.scoring.options import ScoreOptions as ScoreOptions
    from kbeval.scoring.scorer import Scoring as Scoring
    from kbeval.scoring.scorer import open_scoring as open_scoring
    from kbeval.storage.archive_writer import archive_runs as archive_runs
    from kbeval.storage.runs import Run as Run
    from kbeval.systems.recorder import Recorder as Recorder
    from kbeval.systems.recorder import record as record
    from kbeval.workspace import Workspace as Workspace
    from kbeval.workspace import open_workspace as open_workspace


def __getattr__(name: str) -> Any:  # noqa: ANN401  (any public name)
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    msg = f"module 'kbeval' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
