"""Metrics are data: each is a small SQL file, and this module reads them.

The first line gives the name and what it measures, header lines say what it needs, and the rest is SQL: an expression
if a query has one row (the grain `per_query`), otherwise one aggregate over the rows of one query. All metrics are
computed together, in one pass per grain.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbeval.engine import relations
from kbeval.errors import MetricError, UsageError
from kbeval.metrics import former
from kbeval.metrics.names import ALIASES, Name
from kbeval.util.numbers import LARGEST, SUMS
from kbeval.util.text import did_you_mean

DEFAULT_KS = (1, 3, 5, 10)
PER_QUERY = "per_query"
PER_ROW_SCORE = "per_row_score"
GRAINS = {
    "per_hit": "one row per hit",
    "per_expected_hit": "one row per hit that some label expects",
    PER_QUERY: "one row per query",
    "per_judgement": "one row per judgement of an answer",
    PER_ROW_SCORE: "one row per score that came with a row",
    "per_label": "one row per judged chunk, found or not",
    "per_piece": "one row per piece of text that a label or a hit covers",
}
JUDGE = "judge_"
# The scores of these rubrics have their own metric files.
SHIPPED_RUBRICS = ("groundedness", "correctness")
# How the per-query values of a metric become the number of a run, as SQL aggregates. Percentiles have their own file.
AGGREGATIONS = {
    "mean": SUMS,
    "count": ("COUNT(CASE WHEN {value} <> 0 THEN 1 END)",),
    "sum": SUMS,
    "percentiles": SUMS,
}
# How many queries have a value.
SCORED = "COUNT({value})"
PERCENTS = (50, 95)
PERCENTILES = ("p50", "p95", "total")
SYSTEMS = ("anchors", "grounded")
# In which direction a metric improves. With `neither` it is shown and tested, but decides nothing.
BETTER = HIGHER, LOWER, NEITHER = ("higher", "lower", "neither")
RESERVED = frozenset(
    ("abstention", "ledger", "provenance", "slices", "run_id", "query_id", "result_no", "aggregate", "metric")
)
# The metrics judge_tokens and judge_cost_usd are not scores.
_TAKEN_RUBRICS = ("tokens", "cost_usd")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_HEADER = re.compile(r"--\s*([a-z_][a-z0-9_]*)\s*:\s*(.*)")
_FIELDS = ("grain", "where", "k", "if_empty", "agg", "better", "comparable", "system", "missing", "labels", "unit")
# The keys allowed for a metric in a config file.
CONFIG_FIELDS = ("expression", "summary", *_FIELDS)


@dataclass(frozen=True)
class Metric:
    """A metric: a name, one sentence, and SQL over the row or the rows of one query."""

    name: str
    summary: str
    expression: str
    grain: str = "per_hit"
    # Which queries it applies to.
    where: str = "is_golden"
    ks: tuple[int, ...] = ()
    # The number of a run if the metric applies to none of its queries.
    if_empty: float | None = None
    aggregation: str = "mean"
    better: str = HIGHER
    # False: it counts chunks, so it does not compare the quality of runs with different chunkers.
    across_chunkers: bool = True
    # It applies to the rows of one system only; None: to all.
    system: str | None = None
    # A field of golden queries that it requires.
    labels: str | None = None
    # Golden queries without a row in the run count, as zero.
    missing_counts: bool = False
    # The unit of its k: hits, or tokens of text.
    unit: str = "hits"
    origin: str = "kbeval"
    # Replacements for deprecated words in its definition.
    former_words: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def columns(self) -> tuple[Name, ...]:
        """Its values for one query: one, or one for each k."""
        # The name of a score that came with the rows has a dot.
        return tuple(Name(self.name, k) for k in self.ks) if self.ks else (Name.parse(self.name),)

    @property
    def numbers(self) -> tuple[Name, ...]:
        """Its numbers for a run: as for a query, or the parts of a distribution."""
        if self.aggregation != "percentiles":
            return self.columns
        return tuple(Name(self.name, part=part) for part in PERCENTILES)

    @property
    def condition(self) -> str:
        """Which queries it applies to, as SQL over `per_query`."""
        parts = [f"({self.where}\n)"]
        if self.system is not None:
            parts.append(f"system = '{self.system}'")
        if not self.missing_counts:
            parts.append("is_counted")
        return " AND ".join(parts)

    def expression_at(self, k: int | None) -> str:
        """The expression with `:k` filled in."""
        return self.expression if k is None else re.sub(r":k\b", str(k), self.expression)

    def with_ks(self, extra: Iterable[int]) -> Metric:
        """The same metric at more values of k; unchanged if it has no k, or its k does not count hits."""
        return replace(self, ks=tuple(sorted({*self.ks, *extra}))) if self.ks and self.unit == "hits" else self


def parse_metric(text: str, origin: str, name: str | None = None) -> Metric:
    """Parse one metric file. `name`: the name of the file, which must equal the name in the first line."""
    lines = text.lstrip("\ufeff").splitlines()
    headers: list[tuple[str, str]] = []
    body_from = 0
    for number, line in enumerate(lines):
        if not line.strip().startswith("--"):
            body_from = number
            break
        body_from = number + 1
        if header := _HEADER.fullmatch(line.strip()):
            headers.append((header.group(1), header.group(2).strip()))
    expression = "\n".join(lines[body_from:]).strip().rstrip(";").strip()
    if not headers:
        msg = f"{origin}: the first line must be '-- NAME: what it measures'"
        raise MetricError(msg)
    (title, summary), fields = headers[0], dict(headers[1:])
    if name is not None and title != name:
        msg = f"{origin}: the first line names the metric {title!r}, but the file is called {name!r}"
        raise MetricError(msg)
    for header_name in fields:
        if header_name not in (*_FIELDS, *former.FIELDS):
            msg = f"{origin}: unknown header {header_name!r}{did_you_mean(header_name, _FIELDS)}"
            raise MetricError(msg)
    return _checked(title, summary, expression, fields, origin)


def _checked(name: str, summary: str, expression: str, given: Mapping[str, str], origin: str) -> Metric:
    fields, former_words = former.renewed(given, origin)

    def fail(what: str) -> MetricError:
        return MetricError(f"{origin}: {what}")

    def choice(what: str, default: str, known: Iterable[str], once: Collection[str] = ()) -> str:
        value = fields.get(what, default)
        if value not in known and value not in once:
            raise fail(f"{what} is {value!r}; it must be one of {', '.join(known)}")
        return value

    if wrong := _wrong_name(name):
        raise fail(wrong)
    if not expression:
        raise fail(f"{name} has no SQL expression")
    uses_k = re.search(r":k\b", expression) is not None
    try:
        ks = tuple(sorted({int(k) for k in re.split(r"[\s,]+", fields["k"])})) if "k" in fields else ()
        if_empty = float(fields["if_empty"]) if "if_empty" in fields else None
    except ValueError as error:
        raise fail(f"k and if_empty must be numbers: {error}") from error
    if if_empty is not None and not abs(if_empty) < LARGEST:
        raise fail(f"if_empty is {if_empty}; it must be an ordinary number")
    if ks and (not uses_k or ks[0] < 1):
        raise fail("k is given, but the expression has no :k" if not uses_k else "k must be 1 or more")
    return Metric(
        name=name,
        summary=summary,
        expression=expression,
        grain=choice("grain", "per_hit", GRAINS, former.GRAINS),
        where=fields.get("where", "is_golden"),
        ks=ks or (DEFAULT_KS if uses_k else ()),
        if_empty=if_empty,
        aggregation=choice("agg", "mean", AGGREGATIONS),
        better=choice("better", NEITHER if fields.get("agg") == "count" else HIGHER, BETTER),
        across_chunkers=choice("comparable", "across", ("across", "within")) == "across",
        system=choice("system", SYSTEMS[0], SYSTEMS) if "system" in fields else None,
        labels=fields.get("labels"),
        missing_counts=choice("missing", "exclude", ("exclude", "include")) == "include",
        unit=choice("unit", "hits", ("hits", "tokens")),
        origin=origin,
        former_words=former_words,
    )


def _wrong_name(name: str) -> str | None:
    """Why a metric must not have this name; None if the name is valid."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a metric name; use lower-case letters, digits and _"
    if name in RESERVED:
        return f"{name!r} is reserved in the results; choose another name"
    return f"{name!r} is short for {ALIASES[name]}; choose another name" if name in ALIASES else None


def metrics_in_folder(folder: Path, origin: str | None = None, only: Collection[str] = ()) -> list[Metric]:
    """Every metric file of a folder, or only those with these names."""
    if not folder.is_dir():
        msg = f"{folder} is not a folder of metric files"
        raise UsageError(msg)
    found = []
    for path in sorted(folder.glob("*.sql")):
        if only and path.stem not in only:
            continue
        if not path.is_file():
            msg = f"{path} is not a regular file"
            raise MetricError(msg)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{path} cannot be read: {error}"
            raise MetricError(msg) from error
        found.append(parse_metric(text, origin or str(path), path.stem))
    if not found:
        msg = f"{folder} contains no metric files (*.sql)"
        raise UsageError(msg)
    return found


def metrics_in_config(table: Mapping[str, str | Mapping[str, Any]], origin: str) -> list[Metric]:
    """The `[metrics]` table of a config file: for each name an expression, or a table with an expression and the
    headers of a metric file. Without the header `better`, such a metric improves in neither direction.
    """
    return [_configured(name, value, f"{origin}, metric {name}") for name, value in sorted(table.items())]


def _configured(name: str, value: str | Mapping[str, Any], origin: str) -> Metric:
    given = {"expression": value} if isinstance(value, str) else dict(value)
    for key, inner in given.items():
        if key not in (*CONFIG_FIELDS, *former.FIELDS):
            msg = f"{origin}: unknown key {key!r}{did_you_mean(key, CONFIG_FIELDS)}"
            raise MetricError(msg)
        items = inner if isinstance(inner, list) and key == "k" else [inner]
        if not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in items):
            msg = f"{origin}: {key} must be text or a number{', or a list of numbers' if key == 'k' else ''}"
            raise MetricError(msg)
    fields = {
        key: " ".join(map(str, inner)) if isinstance(inner, list) else str(inner).strip()
        for key, inner in {"better": NEITHER, **given}.items()
    }
    summary = fields.pop("summary", "user-defined, from the config file.")
    return _checked(name, summary, fields.pop("expression", ""), fields, origin)


def shipped_metrics(only: Collection[str] = ()) -> list[Metric]:
    """The metrics that ship with kbeval, or only those with these names."""
    return list(_shipped(relations.sql_folder() / "metrics", frozenset(only)))


@functools.lru_cache(maxsize=8)
def _shipped(folder: Path, only: frozenset[str]) -> tuple[Metric, ...]:
    """Every scoring needs them several times, and they do not change while a program runs."""
    return tuple(metrics_in_folder(folder, "kbeval", only))


def rubric_fault(name: str) -> str | None:
    """Why a rubric must not have this name, which is also the name of its metric; None if it is valid."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not the name of a rubric; use lower-case letters, digits and _"
    return f"{name!r} is used by the metric {JUDGE}{name}; choose another name" if name in _TAKEN_RUBRICS else None


def rubric_metrics(rubrics: Iterable[str]) -> list[Metric]:
    """The metrics of user-defined rubrics that runs were judged by."""
    return [
        Metric(
            name=f"{JUDGE}{rubric}",
            summary=f"the judge's score for the user-defined rubric {rubric}.",
            expression=relations.compose("rubric_score", rubric=rubric),
            grain="per_judgement",
            where="in_run",
        )
        for rubric in sorted(set(rubrics))
        if rubric not in SHIPPED_RUBRICS and rubric_fault(rubric) is None
    ]


def catalogue(
    folders: Sequence[Path] = (),
    configured: Sequence[Metric] = (),
    extra_ks: Sequence[int] = (),
    rubrics: Sequence[str] = (),
    came_along: Sequence[Metric] = (),
) -> list[Metric]:
    """The shipped and the user-defined metrics, sorted by name; names must be unique.

    `came_along`: those of scores that came with the rows, whose names have a dot.
    """
    metrics = [*shipped_metrics(), *rubric_metrics(rubrics), *came_along]
    for own in (*configured, *(metric for folder in folders for metric in metrics_in_folder(folder))):
        if any(own.name == metric.name for metric in metrics):
            msg = f"{own.origin}: there is already a metric {own.name!r}; choose another name"
            raise MetricError(msg)
        metrics.append(own)
    former.warn_about_words(metrics)
    return sorted((metric.with_ks(extra_ks) for metric in metrics), key=lambda metric: metric.name)


def refuse_neither(metric: Metric, consequence: str) -> None:
    """Refuse to rank by a metric that improves in neither direction."""
    if metric.better != NEITHER:
        return
    remedy = f"; add 'better' (higher or lower) to its definition in {metric.origin}"
    msg = f"a higher {metric.name} is neither better nor worse, so {consequence}"
    msg += "" if metric.origin == "kbeval" else remedy
    raise UsageError(msg)
