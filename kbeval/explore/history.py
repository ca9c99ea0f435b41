"""A metric over time: the stored numbers of many runs, one series per suite, without reading any hits.

A change is the exact difference from the previous run of the series that has a value. If labels, definitions or
matching changed in between, the numbers are not comparable: this is reported, and the change is called neither better
nor worse.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbeval.errors import UsageError
from kbeval.explore.history_names import Measured, find_measured, stored_numbers
from kbeval.metrics.catalogue import Metric, catalogue
from kbeval.metrics.model import Number, matched_by
from kbeval.metrics.names import once_meant
from kbeval.storage.run_config import (
    Difference,
    config_diff,
    config_fields,
    config_of,
    is_readable,
    stored_warnings,
)
from kbeval.storage.runs import of_suite, run_faults
from kbeval.util.hiding import Hider, is_hidden
from kbeval.util.numbers import difference
from kbeval.util.text import counted, cut, did_you_mean
from kbeval.util.times import moment
from kbeval.util.times import since as parse_since

if TYPE_CHECKING:
    import polars as pl

    from kbeval.storage.runs import Run

# Values of --by in addition to the fields of the configurations.
RUN_FIELDS = ("suite", "commit_hash", "chunker_version")
NO_VALUE = "(none)"
CHUNK_IDS = "chunk ids changed"
# What must be equal for two numbers to be comparable, and the provenance field that records it.
_ASPECTS = {
    "labels changed": ("golden",),
    "definitions changed": ("metrics",),
    "matching changed": ("match", "min_overlap", "overlap_of"),
    "missing rule changed": ("missing",),
}


@dataclass(frozen=True)
class HistoryOptions:
    """Which runs, and what defines a series. `metrics`: the catalogue, including user-defined metrics."""

    suite: str | None = None
    last: int | None = None
    since: str | datetime | None = None
    by: str | None = None
    metrics: Sequence[Metric] | None = None


@dataclass(frozen=True)
class Value:
    """One number of a run. `better` is None if nothing changed, or if it is not known."""

    value: Number
    change: Number = None
    comparable: bool = True
    better: bool | None = None


@dataclass(frozen=True)
class Point:
    """One run of a series: its numbers by name, and what differs from the previous run."""

    run_id: str
    created_at: str
    moment: datetime | None
    commit_hash: str | None
    scored: bool
    values: Mapping[str, Value]
    # Keys of the configuration, old and new; secrets are hidden.
    config: Sequence[Difference] = ()
    # Why the numbers are not comparable with the previous ones: `labels changed`, ….
    breaks: Sequence[str] = ()
    # What decided which hits are correct: `id` or `span`; None if not recorded.
    matching: str | None = None


@dataclass(frozen=True)
class Series:
    """Runs that belong together, oldest first. `group`: their value of the field that --by names."""

    suite: str
    group: str | None
    points: Sequence[Point]

    def values(self, name: str) -> list[Number]:
        return [point.values[name].value for point in self.points]

    def summary(self, name: str) -> dict[str, Number]:
        """The smallest, the largest and the last value; None if there is none."""
        found = [value for value in self.values(name) if value is not None]
        if not found:
            return {"min": None, "max": None, "last": None}
        return {"min": min(found), "max": max(found), "last": found[-1]}


@dataclass(frozen=True)
class History:
    """Metrics over time, as series."""

    metrics: Sequence[Measured]
    by: str | None
    series: Sequence[Series]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def has_suites(self) -> bool:
        """Must the label of a series include its suite?"""
        return self.by == "suite" or len({one.suite for one in self.series}) > 1

    def label(self, series: Series) -> str:
        """The label of a series."""
        parts = [series.suite] if self.has_suites or series.group is None else []
        return ", ".join([*parts, *([] if series.group is None else [series.group])]) or NO_VALUE

    def to_dict(self) -> dict[str, Any]:
        """For programs: the series and their points."""
        return {
            "metrics": [{"name": one.name, "higher_is_better": one.higher_is_better} for one in self.metrics],
            "by": self.by,
            "series": [
                {
                    "suite": one.suite,
                    "group": one.group,
                    "summary": {metric.name: one.summary(metric.name) for metric in self.metrics},
                    "points": [_point_dict(point) for point in one.points],
                }
                for one in self.series
            ],
        }

    def _repr_html_(self) -> str:
        """The notebook view: every number."""
        return self.frame()._repr_html_()

    def frame(self) -> pl.DataFrame:
        """One row per run and metric, as a Polars frame."""
        import polars as pl

        schema: dict[str, Any] = {
            "suite": pl.String,
            "group": pl.String,
            "run_id": pl.String,
            "created_at": pl.String,
            "commit_hash": pl.String,
            "metric": pl.String,
            "value": pl.Float64,
            "change": pl.Float64,
            "comparable": pl.Boolean,
            "better": pl.Boolean,
            "breaks": pl.List(pl.String),
            "changed_keys": pl.List(pl.String),
        }
        rows = [
            (
                *(series.suite, series.group, point.run_id, point.created_at, point.commit_hash, name),
                *(None if number is None else float(number) for number in (value.value, value.change)),
                *(value.comparable, value.better, list(point.breaks), [one.key for one in point.config]),
            )
            for series in self.series
            for point in series.points
            for name, value in point.values.items()
        ]
        return pl.DataFrame(rows, schema=schema, orient="row")


def _point_dict(point: Point) -> dict[str, Any]:
    return {
        "run_id": point.run_id,
        "created_at": point.created_at,
        "commit_hash": point.commit_hash,
        "scored": point.scored,
        "values": {name: vars(value) for name, value in point.values.items()},
        "breaks": list(point.breaks),
        "config": [{"key": one.key, "before": one.a, "after": one.b} for one in point.config],
    }


def metric_history(*metrics: str, db: str | os.PathLike[str], options: HistoryOptions | None = None) -> History:
    """The stored values of metrics, such as "mrr" and "hit@5", over the runs of a database."""
    from kbeval.storage.source import stored_runs

    return history_of(stored_runs(db), metrics, options or HistoryOptions())


def history_of(runs: Sequence[Run], names: Sequence[str], options: HistoryOptions) -> History:
    """As `metric_history`, for runs that are already read."""
    if not names:
        msg = "specify a metric, e.g. mrr or hit@5"
        raise UsageError(msg)
    start = _start(options.since)
    known = catalogue() if options.metrics is None else options.metrics
    faults = run_faults(runs)
    broken = {fault.run_id for fault in faults}
    runs = [run for run in runs if run.run_id not in broken]
    in_suite = {run.run_id for run in of_suite(runs, options.suite, "the database")}
    hider = Hider()
    entries = [_Entry(run, hider) for run in runs]
    measured = find_measured(names, known, {name for entry in entries for name in entry.numbers})
    _make_alike(entries, measured)
    chosen = sorted((one for one in entries if one.run.run_id in in_suite), key=lambda one: one.run.order())
    groups = _grouped(chosen, options.by)
    series = []
    for (suite, group), members in sorted(groups.items(), key=lambda item: (item[0][0], _natural(item[0][1] or ""))):
        kept = [one for one in members if start is None or (one.moment is not None and one.moment >= start)]
        kept = kept[-options.last :] if options.last is not None else kept
        if kept:
            series.append((suite, group, kept))
    shown = [entry for _, _, kept in series for entry in kept]
    found = [Series(suite, group, list(_points(kept, measured))) for suite, group, kept in series]
    undated = [entry for entry in (shown if start is None else chosen) if entry.moment is None]
    notes = [f"run {fault.run_id} is left out: {fault.what}" for fault in faults]
    notes += [f"run {one.run.run_id}: {text}" for one in shown for text in stored_warnings(one.config or {})]
    notes += _notes(shown, found, measured, undated, left_out=start is not None)
    return History(measured, options.by, found, notes)


def _start(since: str | datetime | None) -> datetime | None:
    if isinstance(since, str):
        return parse_since(since)
    return since.replace(tzinfo=UTC) if since is not None and since.tzinfo is None else since


def _make_alike(entries: Sequence[_Entry], measured: Sequence[Measured]) -> None:
    """If some values of a metric have decimals, an integer 1 becomes 1.0 as well."""
    for name in (metric.name for metric in measured):
        if any(isinstance(entry.numbers.get(name), float) for entry in entries):
            for entry in entries:
                value = entry.numbers.get(name)
                entry.numbers[name] = None if value is None else float(value)


class _Entry:
    """A run with its JSON parsed once."""

    def __init__(self, run: Run, hider: Hider) -> None:
        """`hider`: numbers the secrets across all runs that are shown together."""
        self.run = run
        self.hider = hider
        self.moment = moment(run.created_at)
        aggregate = run.aggregate()
        self.scored = aggregate is not None
        self.numbers = stored_numbers(aggregate) if aggregate is not None else {}
        self.provenance: dict[str, Any] = aggregate.provenance if aggregate is not None else {}
        self.config = config_of(run) if is_readable(run) else None
        chunker = (self.config or {}).get("chunker_version")
        self.chunker = None if chunker in (None, "") else str(chunker)

    def field(self, name: str) -> Any:  # noqa: ANN401  (whatever JSON holds)
        if name in ("suite", "commit_hash"):
            return getattr(self.run, name)
        return self.fields.get(name, self.chunker if name == "chunker_version" else None)

    @functools.cached_property
    def fields(self) -> dict[str, Any]:
        return config_fields(self.config or {}, self.hider)


def _grouped(entries: Sequence[_Entry], by: str | None) -> dict[tuple[str, str | None], list[_Entry]]:
    """Runs by suite, and by their value of a field."""
    if by is not None:
        _check_field(entries, by)
    found: dict[tuple[str, str | None], list[_Entry]] = {}
    for entry in entries:
        group = None if by in (None, "suite") else _label(entry.field(by))
        found.setdefault((entry.run.suite, group), []).append(entry)
    return found


def _check_field(entries: Sequence[_Entry], by: str) -> None:
    known = {field for entry in entries for field in entry.fields}
    if by not in known and by not in RUN_FIELDS and entries:
        if inside := sorted(name for name in known if name.startswith(f"{by}.")):
            msg = f"{cut(by, 60)!r} is not a single value; specify one of its parts, such as {_some(inside)}"
            raise UsageError(msg)
        names = sorted({*known, *RUN_FIELDS})
        msg = f"no run has a field {cut(by, 60)!r}{did_you_mean(by, names) or f'; known fields: {_some(names, 8)}'}"
        raise UsageError(msg)
    if any(is_hidden(entry.field(by)) for entry in entries):
        msg = f"the values of {cut(by, 60)!r} look secret and are not shown; choose another field"
        raise UsageError(msg)


def _label(value: Any) -> str:  # noqa: ANN401  (whatever JSON holds)
    if value is None or value == "":
        return NO_VALUE
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _points(entries: Sequence[_Entry], measured: Sequence[Measured]) -> Iterator[Point]:
    """The runs of one series, each compared with the closest previous run that has the number."""
    before_value: dict[str, _Entry] = {}
    before_config: _Entry | None = None
    before_scored: _Entry | None = None
    for entry in entries:
        values = {}
        for metric in measured:
            values[metric.name] = _value(metric, before_value.get(metric.name), entry)
            if values[metric.name].value is not None:
                before_value[metric.name] = entry
        diff: list[Difference] = []
        if before_config is not None and entry.config is not None:
            diff = config_diff(before_config.config or {}, entry.config, entry.hider)
        breaks = _breaks(before_scored, entry, any(metric.by_chunk_id for metric in measured))
        run = entry.run
        yield Point(
            run.run_id,
            run.created_at,
            entry.moment,
            run.commit_hash,
            entry.scored,
            values,
            tuple(diff),
            tuple(breaks),
            matched_by(entry.provenance),
        )
        # If a configuration in between cannot be read, it is unknown where a change was made.
        before_config = entry if entry.config is not None else None
        before_scored = entry if entry.scored else before_scored


def _value(metric: Measured, before: _Entry | None, entry: _Entry) -> Value:
    value = entry.numbers.get(metric.name)
    if before is None or value is None:
        return Value(value)
    change = difference(before.numbers[metric.name], value)
    moved = before.chunker is not None and entry.chunker is not None and before.chunker != entry.chunker
    comparable = not _breaks(before, entry, metric.by_chunk_id) and (metric.across_chunkers or not moved)
    better = None
    if change and comparable and metric.higher_is_better is not None:
        better = (change > 0) is metric.higher_is_better
    return Value(value, change, comparable, better)


def _breaks(before: _Entry | None, entry: _Entry, by_chunk_id: bool) -> list[str]:
    """Why the numbers of two runs are not comparable. Unknown values are ignored."""
    if before is None or not (before.provenance and entry.provenance):
        return []
    found = []
    for what, keys in _ASPECTS.items():
        # The rule for missing rows is stored only if it is not the default, and span settings only if spans decided. A
        # run that was matched differently only because its chunks differ is still comparable.
        both = (before.provenance, entry.provenance)
        known = [key for key in keys if key == "missing" or all(one.get(key) is not None for one in both)]
        if any(before.provenance.get(key) != entry.provenance.get(key) for key in known):
            found.append(what)
    by_id = all(one.provenance.get("matching") != "span" for one in (before, entry))
    if by_chunk_id and by_id and before.chunker and entry.chunker and before.chunker != entry.chunker:
        found.append(CHUNK_IDS)
    return found


def _notes(
    shown: Sequence[_Entry],
    series: Sequence[Series],
    measured: Sequence[Measured],
    undated: Sequence[_Entry],
    *,
    left_out: bool,
) -> Iterator[str]:
    """Warnings next to the numbers."""
    if unscored := [entry.run.run_id for entry in shown if not entry.scored]:
        have = "has" if len(unscored) == 1 else "have"
        yield (
            f"{counted(len(unscored), 'run')} without numbers {have} not been scored yet"
            f" ({_some(unscored)}): run 'kbeval score --all'"
        )
    if undated:
        what = "left out by --since" if left_out else "put first"
        yield (
            f"created_at is not a date in {counted(len(undated), 'run')}"
            f" ({_some([one.run.run_id for one in undated])}),"
            f" {what}; write it e.g. as 2026-03-01T14:00:00Z"
        )
    if unreadable := [entry.run.run_id for entry in shown if entry.config is None]:
        yield (
            f"the configuration of {counted(len(unreadable), 'run')} cannot be read ({_some(unreadable)}): what changed"
            " there, or in the next run, is unknown"
        )
    if any(metric.by_chunk_id for metric in measured) and (mixed := list(_mixed(series))):
        yield (
            f"matched differently from the previous run: {_some(mixed)}; if the labels are the same, the numbers are"
            " comparable, because ids and spans are two ways to identify the same text"
        )
    for metric in measured:
        if any(entry.scored for entry in shown) and all(entry.numbers.get(metric.name) is None for entry in shown):
            yield f"{metric.name} has no value in any of these runs{once_meant(metric.name)}"
    breaks = {what for one in series for point in one.points for what in point.breaks}
    if again := [what for what in _ASPECTS if what in breaks]:
        yield (
            f"{', '.join(again)}: numbers before and after are not comparable; 'kbeval score --all' scores every run"
            " in the same way"
        )
    if CHUNK_IDS in breaks:
        yield (
            f"{CHUNK_IDS}: runs of different chunkers were matched by chunk id, so their numbers are not comparable;"
            " 'kbeval score --all' compares the text if ids are not comparable"
        )


def _mixed(series: Sequence[Series]) -> Iterator[str]:
    """Runs that were matched by id after others were matched by span, or the reverse, with the same settings."""
    for one in series:
        before = None
        for point in one.points:
            if before not in (None, point.matching) and point.matching is not None and not point.breaks:
                yield f"{point.run_id} (by {point.matching})"
            before = point.matching or before


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Natural sort order: 2 before 10, anywhere in a name."""
    parts = re.findall(r"([0-9]{1,15})|([^0-9]+)", text)
    return [(not number, int(number or 0), word) for number, word in parts]


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(cut(name, 40) for name in names[:most]) + (", …" if len(names) > most else "")
