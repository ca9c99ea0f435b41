"""Metrics are data: each is a small SQL file, and this module reads them.

The first line gives the name and the question it answers, header lines say what it needs, and the rest
is one SQL aggregate over the rows of one query. All metrics are computed together, one pass a grain.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import kbeval.sqlfiles as sqlfiles
from kbeval.errors import MetricError, UsageError
from kbeval.exact import LARGEST

DEFAULT_KS = (1, 3, 5, 10)
GRAINS = {
    "ranked": "one row a hit",
    "matched": "one row a hit that some label expects",
    "answered": "one row a query",
}
AGGREGATIONS = ("mean", "count", "sum", "percentiles")
PERCENTILES = ("p50", "p95", "total")
SYSTEMS = ("anchors", "grounded")
# What a person says for a metric; `hit@5` is the short way to write `hit_at_k.5`.
SHORT_NAMES = {
    "hit": "hit_at_k",
    "recall": "recall_at_k_doc",
    "prec": "precision_at_k_chunk",
    "cited": "citation_coverage",
    "grounded": "groundedness",
    "refused": "refusal_correctness",
    "queries": "total_queries",
    "failed": "failed_queries",
    "precision": "answer_precision",
    "chr": "citation_hit_rate",
    "under": "under_refusal_rate",
    "over": "over_refusal_rate",
    "citation_recall": "citation_recall_at_k",
    "support_any": "support_recall_any_at_k",
    "support_all": "support_recall_all_at_k",
    "support_prec": "support_precision_at_k",
    "attributed": "attribution_hit_rate",
}
RESERVED = frozenset(
    ("abstention", "ledger", "provenance", "slices", "run_id", "query_id", "result_no", "aggregate", "metric")
)
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_HEADER = re.compile(r"--\s*([a-z_]+)\s*:\s*(.*)")
_FIELDS = ("grain", "over", "k", "none", "agg", "better", "comparable", "system", "missing", "labels", "unit")


@dataclass(frozen=True)
class Column:
    """One number of a metric: the metric itself, or the metric at one k. Its name parses back."""

    metric: str
    k: int | None

    @property
    def name(self) -> str:
        return self.metric if self.k is None else f"{self.metric}.{self.k}"


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
    higher_is_better: bool = True
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
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(self.name, k) for k in self.ks) if self.ks else (Column(self.name, None),)

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

    if not _NAME.fullmatch(name):
        raise fail(f"{name!r} is not a metric name; use small letters, digits and _")
    if name in RESERVED:
        raise fail(f"{name!r} has a meaning of its own in the results; choose another name")
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
        higher_is_better=choice("better", "higher", ("higher", "lower")) == "higher",
        across_chunkers=choice("comparable", "across", ("across", "within")) == "across",
        system=choice("system", SYSTEMS[0], SYSTEMS) if "system" in fields else None,
        labels=fields.get("labels"),
        missing_counts=choice("missing", "left out", ("left out", "counted")) == "counted",
        unit=choice("unit", "hits", ("hits", "tokens")),
        origin=origin,
    )


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


def metrics_in_config(table: Mapping[str, str], origin: str) -> list[Metric]:
    """The `[metrics]` table of a config file: a name and an expression each."""
    return [
        _checked(name, "your own, from the config file.", expression.strip(), {}, f"{origin}, metric {name}")
        for name, expression in sorted(table.items())
    ]


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


def find_metric(metrics: Sequence[Metric], name: str) -> Metric:
    """One metric by name; `hit_at_k.5` and `hit@5` name one too."""
    wanted = long_name(name).partition(".")[0]
    # A metric that is called like the short name of another comes first; `x@5` may be short for `x_at_k.5`.
    for candidate in (name, wanted, f"{wanted}_at_k"):
        for metric in metrics:
            if metric.name == candidate:
                return metric
    hint = did_you_mean(wanted, [metric.name for metric in metrics])
    msg = f"there is no metric {name!r}{hint or '; see kbeval metrics, and --metrics DIR for your own'}"
    raise UsageError(msg)


def long_name(name: str) -> str:
    """`hit@5` as `hit_at_k.5`; other names as they are."""
    short, _, k = name.partition("@")
    return f"{SHORT_NAMES.get(short, short)}.{k}" if k else SHORT_NAMES.get(short, short)


def short_name(name: str) -> str:
    """`hit_at_k.5` as `hit@5`; names that have no short form as they are."""
    metric, _, k = name.partition(".")
    short = next((short for short, long in SHORT_NAMES.items() if long == metric), None)
    return name if short is None else f"{short}@{k}" if k else short


def find_column(metrics: Sequence[Metric], name: str) -> Column:
    """One number by its printed name, `mrr` or `hit_at_k.5`; without a k, the largest one."""
    metric = find_metric(metrics, name)
    _, _, k = ("", "", "") if name == metric.name else long_name(name).partition(".")
    if not k:
        return metric.columns[-1]
    name = f"{metric.name}.{k}"
    for column in metric.columns:
        if column.name == name:
            return column
    known = ", ".join(column.name for column in metric.columns)
    msg = f"{metric.name} is not computed at {name.partition('.')[2]!r}; there is {known} (more with --k)"
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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint to the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
