"""How to score: the options that a caller chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbeval.errors import UsageError
from kbeval.metrics.catalogue import Metric, catalogue
from kbeval.scoring.slices import slice_fields
from kbeval.settings import MATCHES, MISSING, OVERLAPS_OF
from kbeval.storage.options import ReadOptions
from kbeval.util.numbers import OVERLAP_TOLERANCE

if TYPE_CHECKING:
    from kbeval.engine.session import Session


@dataclass(frozen=True)
class ScoreOptions(ReadOptions):
    """How to score; every field has a default.

    What is measured:

    - `extra_ks`: values of k in addition to those of each metric.
    - `metric_folders`: folders with metric files of your own.
    - `configured_metrics`: metrics of your own that are not files, as `[metrics]` in kbeval.toml.
    - `by`: a field of the golden file or of the stored rows, or several separated by commas; every number is also
      computed for each of its values, or for each combination.
    - `suite`: only runs of this suite; None: all suites.
    - `missing`: golden queries for which a run has no row: 'skip' leaves them out, 'zero' counts them as not found.

    Which hit is an expected one:

    - `match`: 'exact' compares ids, 'span' compares the text that both cover, 'auto' compares ids unless the labels are
      chunks of another chunker than the run's.
    - `min_overlap`: by span, the minimum share of text in common, above 0 and at most 1.
    - `overlap_of`: the side that the share is relative to; 'auto': the smaller side if the label is a chunk, the
      expected text if it is a span.

    Whose judgements count:

    - `judge`: a judging or a model, if runs were judged more than once; '': the latest judging that is complete.

    Resources, as for everything that reads runs:

    - `cache`: cache parsed rows next to the database: 'auto' (only if it is large), 'on' or 'off'.
    - `threads`: threads of the engine; None: one per processor, or one for a small database. Never more than the memory
      limit allows.
    - `memory_limit`: memory of the engine, e.g. '400MB' (the default); what does not fit is spilled to disk.
    - `sparing`: use as little memory as possible, however slow: one thread, one row at a time.
    - `engine`: the address of a Spark Connect server (sc://HOST:PORT) that scores an archive; '': DuckDB, here.
    - `on_step`: called with the name of each step, to show progress.
    """

    extra_ks: Sequence[int] = ()
    metric_folders: Sequence[Path] = ()
    configured_metrics: Sequence[Metric] = ()
    by: str | None = None
    suite: str | None = None
    missing: str = "skip"
    match: str = "auto"
    min_overlap: float = 0.5
    overlap_of: str = "auto"
    judge: str = ""

    def __post_init__(self) -> None:
        ks: Any = self.extra_ks
        if not isinstance(ks, list | tuple | set | range) or not all(type(k) is int and k > 0 for k in ks):
            msg = f"extra_ks is {ks!r}; it must be a list of integers of 1 or more"
            raise UsageError(msg)
        if self.by is not None:
            slice_fields(self.by)
        for name, known in (("match", MATCHES), ("overlap_of", OVERLAPS_OF), ("missing", MISSING)):
            if (value := getattr(self, name)) not in known:
                msg = f"{name} is {value!r}; it must be one of {', '.join(known)}"
                raise UsageError(msg)
        if not 0 < self.min_overlap <= 1:
            msg = f"min_overlap is {self.min_overlap}; it must be above 0 and at most 1"
            raise UsageError(msg)

    def metrics(self, rubrics: Sequence[str] = (), came_along: Sequence[Metric] = ()) -> list[Metric]:
        """Every metric to compute. `rubrics`: those that runs were judged by; each user-defined one is a metric.
        `came_along`: the metrics of scores that came with the rows.
        """
        return catalogue(self.metric_folders, self.configured_metrics, self.extra_ks, rubrics, came_along)

    def load_settings(self, session: Session, *, together: bool = False) -> None:
        """Create `settings`, from which relations read the options. `together`: as in `open_scoring`."""
        session.execute(
            "CREATE TABLE settings AS SELECT $1::BOOLEAN AS missing_as_zero, $2::VARCHAR AS match,"
            " $3::DOUBLE AS least_overlap, $4::VARCHAR AS overlap_of, $5::BOOLEAN AS together, $6::VARCHAR AS judge",
            [
                self.missing == "zero",
                self.match,
                self.min_overlap - OVERLAP_TOLERANCE,
                self.overlap_of,
                together,
                self.judge,
            ],
        )
