"""A workspace in Python: the functions of the commands, with the settings of the folder's config file.

    workspace = kbeval.open_workspace(".")
    workspace.score()
    print(workspace.compare("latest~1", "latest").verdict)

Everything here calls the functions that the commands call. Nothing is printed; errors are raised as `KbevalError`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbeval.errors import UsageError
from kbeval.settings import Config, load_config

if TYPE_CHECKING:
    from kbeval.compare.gates import GateReport
    from kbeval.compare.report import CompareReport
    from kbeval.explore.explorer import Explorer
    from kbeval.explore.findings import Finding
    from kbeval.explore.history import History
    from kbeval.scoring.aggregate import Scored
    from kbeval.scoring.attribution import Recomputed
    from kbeval.scoring.options import ScoreOptions
    from kbeval.storage.archive_writer import Archived
    from kbeval.storage.runs import Run
    from kbeval.systems import ImportedRun

# Keys of the config file that are scoring options of the same name.
_OPTIONS = ("threads", "memory_limit", "cache", "match", "min_overlap", "overlap_of", "missing")

Location = str | os.PathLike[str]


@dataclass(frozen=True)
class Workspace:
    """A database with its golden file and its scoring options. See `open_workspace`."""

    db: Path
    golden: Path | None
    options: ScoreOptions
    config: Config

    def runs(self) -> list[Run]:
        """Every stored run, oldest first."""
        from kbeval.storage.source import stored_runs

        return stored_runs(self.db)

    def score(self, *runs: str, store: bool = True) -> Scored:
        """Score these runs; if none are given, those that changed since they were scored.

        Runs with unreadable rows are listed in the result, under `bad_rows`, and are not stored.
        """
        from kbeval.scoring.aggregate import score_runs, store_scored
        from kbeval.scoring.incremental import due_runs, rescore

        def keep(scored: Scored) -> None:
            broken = {row.run_id for row in scored.bad_rows}
            healthy = [run_id for run_id in scored.aggregates if run_id not in broken]
            if store and healthy:
                store_scored(scored, db=self.db, runs=healthy)

        if not runs:
            due = due_runs(self.db, self._labels(), self.options)
            return rescore(self.db, due, self.options, keep, to_store=store)
        scored = score_runs(self.db, self._labels(), runs, self.options, to_store=store)
        keep(scored)
        return scored

    def compare(self, a: str, b: str) -> CompareReport:
        """Is run B better than run A?"""
        from kbeval.compare.options import CompareOptions
        from kbeval.compare.run import compare_runs

        return compare_runs(a, b, db=self.db, golden=self._labels(), options=CompareOptions(scoring=self.options))

    def report(self, path: Location, *runs: str, history: Sequence[str] = (), redact: bool = False) -> Path:
        """Write one HTML file that shows the evidence: for one run, two runs, or metrics over time."""
        from kbeval.compare.options import CompareOptions
        from kbeval.report.writing import write_report

        labels = self.golden if history else self._labels()
        options = CompareOptions(scoring=self.options)
        return write_report(path, *runs, db=self.db, golden=labels, history=history, options=options, redact=redact)

    def gate(self, run: str, gates: Mapping[str, Any] | None = None) -> GateReport:
        """Check a run against gates: those of the config file, or `gates`, a table of the same form."""
        from kbeval.compare.gates import check_gates, read_gates
        from kbeval.compare.options import CompareOptions

        stored, origin = self.config.get("gates") or {}, str(self.config.path)
        table = read_gates(stored if gates is None else gates, origin if gates is None else "gates")
        options = CompareOptions(scoring=self.options)
        return check_gates(run, table, db=self.db, golden=self._labels(), options=options)

    def check(self, *runs: str) -> list[Finding]:
        """Problems that make the numbers of these runs (all runs if none are given) unreliable."""
        from kbeval.explore.check import check_workspace
        from kbeval.explore.findings import known_codes
        from kbeval.golden import load_golden
        from kbeval.scoring.scorer import open_scoring

        ignored = known_codes((self.config.get("check") or {}).get("ignore", ()), f"{self.config.path}: check.ignore")
        golden = load_golden(self._labels(), groups_must_agree=False)
        with open_scoring(self.db, golden, list(runs) or None, self.options, leave_out=True) as scoring:
            return [finding for finding in check_workspace(scoring) if finding.code not in ignored]

    def recompute(self, *runs: str, explain: bool = False) -> Recomputed:
        """Which stored numbers would change if they were computed now, and why. Nothing is stored."""
        from kbeval.scoring.attribution import recompute

        return recompute(self.db, self._labels(), self.options, list(runs) or None, explain=explain)

    def history(self, *metrics: str, **options: Any) -> History:  # noqa: ANN401  (fields of HistoryOptions)
        """Metrics over time, from the stored numbers. `options`: suite, last, since, by."""
        from kbeval.explore.history import HistoryOptions, metric_history

        return metric_history(*metrics, db=self.db, options=HistoryOptions(**options, metrics=self.options.metrics()))

    @contextlib.contextmanager
    def explore(self) -> Iterator[Explorer]:
        """SQL queries over everything that is stored."""
        from kbeval.explore.explorer import open_explorer

        with open_explorer(self.db, self.golden, self.options) as explorer:
            yield explorer

    def archive(self, folder: Location, *, prune: bool = False) -> Archived:
        """Write every run to a folder as Parquet, or update that folder."""
        from kbeval.golden import load_golden
        from kbeval.storage.archive_writer import archive_runs

        golden = None if self.golden is None else load_golden(self.golden)
        return archive_runs(self.db, Path(folder), golden, self.options, prune=prune)

    def import_anchors(self, *folders: Location, suite: str = "anchors", replace: bool = False) -> dict[str, str]:
        """Import results folders; returns the outcome of each run: imported, unchanged or replaced."""
        from kbeval.systems.anchors import read_folder

        return self._import([read_folder(Path(folder), suite) for folder in folders], replace=replace)

    def import_traces(
        self, trace: Location, run_id: str, *, suite: str = "grounded", replace: bool = False
    ) -> dict[str, str]:
        """Import a trace of grounded question answering as a run; returns its outcome."""
        from kbeval.systems.trace_import import read_trace

        return self._import([read_trace(Path(trace), run_id, suite)], replace=replace)

    def _import(self, runs: list[ImportedRun], *, replace: bool) -> dict[str, str]:
        from kbeval.systems.writing import write_runs

        return dict(write_runs(str(self.db), runs, replace=replace))

    def _labels(self) -> str:
        if self.golden is None:
            msg = 'no golden file given: pass golden=…, or put golden = "…" in kbeval.toml'
            raise UsageError(msg)
        return str(self.golden)


def open_workspace(
    folder: Location = ".",
    *,
    db: Location | None = None,
    golden: Location | None = None,
    **options: Any,  # noqa: ANN401  (fields of ScoreOptions)
) -> Workspace:
    """The workspace of a folder, as set in its `kbeval.toml` or the nearest one above; arguments override the file.

    `options`: fields of `ScoreOptions`, such as `match="span"` or `memory_limit="2GB"`.
    """
    from kbeval.metrics.catalogue import metrics_in_config
    from kbeval.scoring.options import ScoreOptions

    config = load_config(Path(folder).absolute())
    database = db or config.get("db")
    if database is None:
        msg = f'no database given: pass db=…, or put db = "…" in {Path(folder) / "kbeval.toml"}'
        raise UsageError(msg)
    labels = golden or config.get("golden")
    own = config.get("metrics_dir")
    configured: dict[str, Any] = {
        "extra_ks": tuple(config.get("k") or ()),
        "metric_folders": (Path(own),) if own else (),
        "configured_metrics": metrics_in_config(config.get("metrics") or {}, str(config.path)),
        **{name: value for name in _OPTIONS if (value := config.get(name)) is not None},
    }
    chosen = ScoreOptions(**{**configured, **options})
    return Workspace(Path(database), None if labels is None else Path(labels), chosen, config)
