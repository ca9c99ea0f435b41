"""kbeval scores stored evaluation runs of knowledge bases and RAG systems.

    import kbeval
    aggregate = kbeval.compute_aggregate("nightly-42", db="workspace.db", golden="golden.yaml")
    kbeval.store_aggregate("nightly-42", aggregate, db="workspace.db")

Names are loaded when they are first used, so that importing kbeval costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AggregateMetrics": "kbeval.model",
    "CompareOptions": "kbeval.compare",
    "CompareReport": "kbeval.comparison",
    "Explorer": "kbeval.explore",
    "Golden": "kbeval.golden",
    "History": "kbeval.history",
    "HistoryOptions": "kbeval.history",
    "KbevalError": "kbeval.errors",
    "QueryComparison": "kbeval.comparison",
    "ScoreOptions": "kbeval.scoring",
    "Scored": "kbeval.aggregates",
    "Scoring": "kbeval.scoring",
    "compare_runs": "kbeval.compare",
    "compute_aggregate": "kbeval.aggregates",
    "load_golden": "kbeval.golden",
    "metric_history": "kbeval.history",
    "open_explorer": "kbeval.explore",
    "open_scoring": "kbeval.scoring",
    "render_report_md": "kbeval.render.comparison",
    "score_runs": "kbeval.aggregates",
    "store_aggregate": "kbeval.aggregates",
    "store_scored": "kbeval.aggregates",
}

__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604  (names of the table above)

if TYPE_CHECKING:
    from kbeval.aggregates import Scored as Scored
    from kbeval.aggregates import compute_aggregate as compute_aggregate
    from kbeval.aggregates import score_runs as score_runs
    from kbeval.aggregates import store_aggregate as store_aggregate
    from kbeval.aggregates import store_scored as store_scored
    from kbeval.compare import CompareOptions as CompareOptions
    from kbeval.compare import compare_runs as compare_runs
    from kbeval.comparison import CompareReport as CompareReport
    from kbeval.comparison import QueryComparison as QueryComparison
    from kbeval.errors import KbevalError as KbevalError
    from kbeval.explore import Explorer as Explorer
    from kbeval.explore import open_explorer as open_explorer
    from kbeval.golden import Golden as Golden
    from kbeval.golden import load_golden as load_golden
    from kbeval.history import History as History
    from kbeval.history import HistoryOptions as HistoryOptions
    from kbeval.history import metric_history as metric_history
    from kbeval.model import AggregateMetrics as AggregateMetrics
    from kbeval.render.comparison import render_report_md as render_report_md
    from kbeval.scoring import ScoreOptions as ScoreOptions
    from kbeval.scoring import Scoring as Scoring
    from kbeval.scoring import open_scoring as open_scoring


def __getattr__(name: str) -> Any:  # noqa: ANN401  (any public name)
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    msg = f"module 'kbeval' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
