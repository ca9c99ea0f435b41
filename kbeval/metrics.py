"""Metrics are data: each is a small SQL file, and this module reads them.

The first line gives the name and the question it answers, header lines say what it needs, and the rest
is one SQL aggregate over the rows of one query. All metrics are computed together, one pass a grain.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kbeval.sqlfiles as sqlfiles
from kbeval.errors import MetricError, UsageError
from kbeval.exact import LARGEST
from kbeval.names import ALIASES, Name
from kbeval.text import did_you_mean

DEFAULT_KS = (1, 3, 5, 10)
GRAINS = {
    "ranked": "one row a hit",
    "matched": "one row a hit that some label expects",
    "answered": "one row a query",
}
AGGREGATIONS = ("mean", "count", "sum", "percentiles")
PERCENTILES = ("p50", "p95", "total")
SYSTEMS = ("anchors", "grounded")
# Which way a metric improves. One that improves neither way is shown and tested, and decides nothing.
BETTER = HIGHER, LOWER, NEITHER = ("higher", "lower", "neither")
RESERVED = frozenset(
    ("abstention", "ledger", "provenance", "slices", "run_id", "query_id", "result_no", "aggregate", "metric")
)
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_HEADER = re.compile(r"--\s*([a-z_]+)\s*:\s*(.*)")
_FIELDS = ("grain", "over", "k", "none", "agg", "better", "comparable", "system", "missing", "labels", "unit")
# What a metric in a config file may say.
CONFIG_FIELDS = ("expression", "summary", *_FIELDS)


@dataclass(frozen=True)
class Metric:
    """What is measured: a name, one sentence, and an SQL aggregate over the rows of one query."""

    name: str
    summary: str
    expression: str
    grain: str = "ranked"
    over: str = "is_golden"
    ks: tuple[int, ...] = ()
    none: float | None = None
    aggregation: str = "mean"
    better: str = HIGHER
    # False: it counts chunks, so that between runs of different chunkers it says nothing about quality.
    across_chunkers: bool = True
    # It is about the rows of one system alone; None: about any.
    system: str | None = None
    # A field of golden queries without which it applies to nothing.
    labels: str | None = None
    # Golden queries that a run has no row for count, as nothing.
    missing_counts: bool = False
    # What its k counts: hits, or tokens of text.
    unit: str = "hits"
    origin: str = "kbeval"

    @property
    def columns(self) -> tuple[Name, ...]:
        """What it is for one query: one value, or one at each k."""
        return tuple(Name(self.name, k) for k in self.ks) if self.ks else (Name(self.name),)

    @property
    def numbers(self) -> tuple[Name, ...]:
        """What it is for a run: as for a query, or the parts of a distribution."""
        if self.aggregation != "percentiles":
            return self.columns
        return tuple(Name(self.name, part=part) for part in PERCENTILES)

    @property
    def condition(self) -> str:
        """Which queries it applies to, as SQL over `answered`."""
        parts = [f"({self.over}\n)"]
        if self.system is not None:
            parts.append(f"system = '{self.system}'")
        if not self.missing_counts:
            parts.append("is_counted")
        return " AND ".join(parts)

    def expression_at(self, k: int | None) -> str:
        """The expression with `:k` filled in."""
        return self.expression if k is None else re.sub(r":k\b", str(k), self.expression)

    def of_one_row(self, k: int | None) -> str | None:
        """Its value where a query has one row in its grain, which needs no grouping; None where it takes more.

        The greatest of one value is that value.
        """
        expression = self.expression_at(k).strip()
        if self.grain != "answered" or not expression.upper().startswith("MAX(") or not expression.endswith(")"):
            return None
        inner = expression[len("MAX(") : -1]
        depth = 0
        for character in inner:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                return None
        is_plain = not re.search(r"['\"]|--|/\*|\b(DISTINCT|ORDER|FILTER|OVER)\b", inner, re.IGNORECASE)
        return inner if depth == 0 and is_plain and "," not in _without_groups(inner) else None

    def with_ks(self, extra: Iterable[int]) -> Metric:
        """The same metric at more values of k; one that has no k, or whose k counts something else, stays as it is."""
        return replace(self, ks=tuple(sorted({*self.ks, *extra}))) if self.ks and self.unit == "hits" else self


def _without_groups(expression: str) -> str:
    """The outermost level alone: what stands in parentheses is left out."""
    while (shorter := re.sub(r"\([^()]*\)", "", expression)) != expression:
        expression = shorter
    return expression


def parse_metric(text: str, origin: str, name: str | None = None) -> Metric:
    """Read one metric file. `name`: what the file's name says, which the first line must repeat."""
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
        msg = f"{origin}: the first line names the metric {title!r}, the file is called {name!r}"
        raise MetricError(msg)
    for field in fields:
        if field not in _FIELDS:
            msg = f"{origin}: unknown header {field!r}{did_you_mean(field, _FIELDS)}"
            raise MetricError(msg)
    return _checked(title, summary, expression, fields, origin)


def _checked(name: str, summary: str, expression: str, fields: Mapping[str, str], origin: str) -> Metric:
    def fail(what: str) -> MetricError:
        return MetricError(f"{origin}: {what}")

    def choice(field: str, default: str, known: Iterable[str]) -> str:
        value = fields.get(field, default)
        if value not in known:
            raise fail(f"{field} is {value!r}; it must be one of {', '.join(known)}")
        return value

    if wrong := _wrong_name(name):
        raise fail(wrong)
    if not expression:
        raise fail(f"{name} has no SQL expression")
    uses_k = re.search(r":k\b", expression) is not None
    try:
        ks = tuple(sorted({int(k) for k in re.split(r"[\s,]+", fields["k"])})) if "k" in fields else ()
        none = float(fields["none"]) if "none" in fields else None
    except ValueError as error:
        raise fail(f"k and none must be numbers: {error}") from error
    if none is not None and not abs(none) < LARGEST:
        raise fail(f"none is {none}; it must be an ordinary number")
    if ks and (not uses_k or ks[0] < 1):
        raise fail("k is given, but the expression has no :k" if not uses_k else "k must be 1 or more")
    return Metric(
        name=name,
        summary=summary,
        expression=expression,
        grain=choice("grain", "ranked", GRAINS),
        over=fields.get("over", "is_golden"),
        ks=ks or (DEFAULT_KS if uses_k else ()),
        none=none,
        aggregation=choice("agg", "mean", AGGREGATIONS),
        better=choice("better", NEITHER if fields.get("agg") == "count" else HIGHER, BETTER),
        across_chunkers=choice("comparable", "across", ("across", "within")) == "across",
        system=choice("system", SYSTEMS[0], SYSTEMS) if "system" in fields else None,
        labels=fields.get("labels"),
        missing_counts=choice("missing", "left out", ("left out", "counted")) == "counted",
        unit=choice("unit", "hits", ("hits", "tokens")),
        origin=origin,
    )


def _wrong_name(name: str) -> str | None:
    """Why a metric may not be called so; None where it may."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a metric name; use small letters, digits and _"
    if name in RESERVED:
        return f"{name!r} has a meaning of its own in the results; choose another name"
    return f"{name!r} is short for {ALIASES[name]}; choose another name" if name in ALIASES else None


def metrics_in_folder(folder: Path, origin: str | None = None, only: Collection[str] = ()) -> list[Metric]:
    """Every metric file of a folder, or those that are named."""
    if not folder.is_dir():
        msg = f"{folder} is not a folder of metric files"
        raise UsageError(msg)
    found = []
    for path in sorted(folder.glob("*.sql")):
        if only and path.stem not in only:
            continue
        if not path.is_file():
            msg = f"{path} is not a file"
            raise MetricError(msg)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{path} cannot be read: {error}"
            raise MetricError(msg) from error
        found.append(parse_metric(text, origin or str(path), path.stem))
    if not found:
        msg = f"{folder} has no metric files (*.sql)"
        raise UsageError(msg)
    return found


def metrics_in_config(table: Mapping[str, str | Mapping[str, Any]], origin: str) -> list[Metric]:
    """The `[metrics]` table of a config file: for each name an expression, or a table of an expression and the headers
    of a metric file. Which way such a metric improves is not known unless it says so.
    """
    return [_configured(name, value, f"{origin}, metric {name}") for name, value in sorted(table.items())]


def _configured(name: str, value: str | Mapping[str, Any], origin: str) -> Metric:
    given = {"expression": value} if isinstance(value, str) else dict(value)
    for field, inner in given.items():
        if field not in CONFIG_FIELDS:
            msg = f"{origin}: unknown key {field!r}{did_you_mean(field, CONFIG_FIELDS)}"
            raise MetricError(msg)
        items = inner if isinstance(inner, list) and field == "k" else [inner]
        if not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in items):
            msg = f"{origin}: {field} must be text or a number{', or a list of numbers' if field == 'k' else ''}"
            raise MetricError(msg)
    fields = {
        field: " ".join(map(str, inner)) if isinstance(inner, list) else str(inner).strip()
        for field, inner in {"better": NEITHER, **given}.items()
    }
    summary = fields.pop("summary", "your own, from the config file.")
    return _checked(name, summary, fields.pop("expression", ""), fields, origin)


def shipped_metrics(only: Collection[str] = ()) -> list[Metric]:
    """The metrics that come with kbeval, or those of them that are named."""
    return metrics_in_folder(sqlfiles.sql_folder() / "metrics", "kbeval", only)


def catalogue(
    folders: Sequence[Path] = (), configured: Sequence[Metric] = (), extra_ks: Sequence[int] = ()
) -> list[Metric]:
    """The shipped metrics and the user's own, by name; a name may be used only once."""
    metrics = shipped_metrics()
    for own in (*configured, *(metric for folder in folders for metric in metrics_in_folder(folder))):
        if any(own.name == metric.name for metric in metrics):
            msg = f"{own.origin}: there is already a metric {own.name!r}; choose another name"
            raise MetricError(msg)
        metrics.append(own)
    return sorted((metric.with_ks(extra_ks) for metric in metrics), key=lambda metric: metric.name)


def refuse_neither(metric: Metric, consequence: str) -> None:
    """Refuse to order the values of a metric that improves neither way."""
    if metric.better != NEITHER:
        return
    remedy = f"; add 'better' (higher or lower) to its definition in {metric.origin}"
    msg = f"more {metric.name} is neither better nor worse, so {consequence}"
    msg += "" if metric.origin == "kbeval" else remedy
    raise UsageError(msg)


def definitions_hash(metrics: Sequence[Metric]) -> str:
    """Changes when the meaning of any number changes, and not with a header's comment or a summary."""
    meaning = [
        [m.name, m.expression, m.grain, m.condition, m.labels, m.ks, m.none, m.aggregation]
        for m in sorted(metrics, key=lambda m: m.name)
    ]
    road = [[name, " ".join(sqlfiles.without_comments(text).split())] for name, text in sqlfiles.road().items()]
    text = json.dumps([meaning, road], sort_keys=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:16]
