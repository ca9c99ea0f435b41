"""A comparison as text: the verdict first, then the numbers, then the queries that changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kbeval import __version__
from kbeval.compare.overlap import SIDES
from kbeval.compare.report import FALLBACK, CompareReport, Comparison, Delta, QueryComparison
from kbeval.compare.stats import ALPHA, BETTER, MIXED, NO_DIFFERENCE, ROUGH, WORSE, Significance
from kbeval.metrics.catalogue import NEITHER
from kbeval.metrics.model import Number
from kbeval.metrics.names import short_name
from kbeval.render.table import Cell, Column, render
from kbeval.util.text import counted, json_text, markdown

# A report is for reading: of ten thousand wins, the first hundred are enough.
MOST_ROWS = 100
# How far rounding alone can separate a difference of two numbers from the mean of the differences.
_ROUNDED = 2e-4
_ROUGHLY = "~"
_DIFFERS, _OTHER_CHUNKS = "(differs?)", "(other chunks)"

Table = tuple[list[Column], list[list[Cell]]]


def _tested_columns(*parts: Comparison) -> list[Column]:
    """A number in both runs and its significance; the number of groups if queries are grouped."""
    grouped = any(one.is_grouped for part in parts for one in part.significance.values())
    return [
        Column("metric"),
        Column("a", "A", right=True),
        Column("b", "B", right=True),
        Column("delta", right=True),
        Column("interval", "95 % interval", right=True),
        Column("n", "queries", right=True),
        *([Column("clusters", "groups", right=True)] if grouped else []),
        Column("p", right=True),
        Column("holds", ""),
    ]


def _tested_cells(one: Significance | None, columns: Sequence[Column]) -> list[Cell]:
    """The cells of these columns, starting with the interval."""
    cells: dict[str, Cell] = {"interval": None, "n": None, "clusters": None, "p": None, "holds": ""}
    if one is not None:
        cells |= {
            "interval": interval_text(one),
            "n": one.n,
            "clusters": one.clusters,
            "p": p_text(one.p),
            "holds": says(one),
        }
    return [cells[column.name] for column in columns if column.name in cells]


# --- sentences ---------------------------------------------------------------------------------------


def verdict_sentence(part: Comparison) -> str:
    """The result of the comparison in one line."""
    verdict, tested = part.verdict, _tested(part)
    every = sum(one.decides for one in part.significance.values())
    if verdict.metric is None or verdict.evidence is None:
        return f"{NO_DIFFERENCE}: {_why_nothing_decides(part)}"
    if verdict.answer != NO_DIFFERENCE:
        sides = [(BETTER, verdict.better), (WORSE, verdict.worse)]
        changes = ", ".join(f"{side} in {_some(names)}" for side, names in sides if names)
        found = changes if verdict.answer != MIXED else f"{MIXED}: {changes}"
        if len(verdict.better) + len(verdict.worse) > tested > 1:
            # Those that changed alike count once, so more can be significant than were tested.
            return f"{found} (of {every} numbers, {tested} of which changed differently and were tested)"
        return f"{found} (of {tested} numbers tested)" if tested > 1 else found
    if not any(one.changed for one in part.significance.values()):
        return f"{NO_DIFFERENCE}: no tested number changed for any query"
    return f"{NO_DIFFERENCE}: {_what_would_show(short_name(verdict.metric), verdict.evidence, tested)}"


def _tested(part: Comparison) -> int:
    """How many numbers the correction is for: those that decide; several that changed identically count once."""
    return sum(1 for one in part.significance.values() if one.decides and one.same_as is None)


def _why_nothing_decides(part: Comparison) -> str:
    if not part.significance:
        return "there is nothing to compare"
    if all(one.better == NEITHER for one in part.significance.values()):
        return "for the numbers tested, neither higher nor lower is better"
    return "the numbers tested count chunks, which differ between the runs"


def _what_would_show(name: str, one: Significance, tested: int) -> str:
    queries = queries_text(one)
    if one.needed is None:
        return f"with {tested:,} numbers tested, no change in {name} can be significant; test fewer with --only"
    if one.needed > one.clusters:
        return f"{queries} {'is' if one.n == 1 else 'are'} too few to show a difference"
    if one.detectable is None:
        what = "groups" if one.is_grouped else "queries"
        return (
            f"too few {what} changed to tell: {one.clusters_changed:,} of {one.clusters:,} in {name}; at least"
            f" {one.needed} would have to change in one direction"
        )
    return f"with {queries}, a change in {name} is detectable from about {one.detectable:.4f}"


def queries_text(one: Significance) -> str:
    """`100 queries in 20 groups`. A query without a group is a group of its own."""
    queries = counted(one.n, "query", "queries")
    return f"{queries} in {counted(one.clusters, 'group')}" if one.is_grouped else queries


def _some(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(short_name(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def matching_sentence(report: CompareReport) -> str:
    """How hits were matched to labels, and how many queries were matched in each way."""
    version_a, version_b = (version or "unknown" for version in report.chunker_versions)
    found = report.matching
    ways = {
        "exact": "by chunk id",
        "span": "by spans",
        "doc": "by document",
        "support": "by supports",
        "unmatched": "that cannot be matched",
    }
    parts = [f"{found[way]:,} {text}" for way, text in ways.items() if found.get(way)]
    if found["none"]:
        parts.append(f"{found['none']:,} with nothing expected")
    chunkers = f"chunker {version_a} → {version_b}" if version_a != version_b else f"chunker {version_a}"
    why = (
        ", so chunk ids are not comparable"
        if report.chunker_version_match == FALLBACK and version_a != version_b
        else ""
    )
    return f"{chunkers}{why}; queries matched: {', '.join(parts) or 'none'}{_overlap_rule(report)}"


def _overlap_rule(report: CompareReport) -> str:
    if report.overlap is None:
        return ""
    least, of = report.overlap
    return f" (by spans: at least {least:g} in common, of {SIDES[of]})"


def counts_sentence(part: Comparison) -> str:
    """How many queries are wins, draws, losses and regressions."""
    many = {"win": "wins", "draw": "draws", "loss": "losses", "regression": "regressions"}
    return ", ".join(counted(number, kind, many[kind]) for kind, number in part.counts.items())


def legend(part: Comparison) -> str:
    """What the words next to the numbers mean, and how a group of queries is counted."""
    every = part.significance.values()
    tested = counted(_tested(part), "number")
    alike = " (numbers that changed identically count once)" if any(one.same_as for one in every) else ""
    words = f"better, worse: significant after correcting for {tested} tested{alike}"
    words += " · (better?), (worse?): p is below 0.05 only before the correction"
    if any(says(one) == _DIFFERS for one in every):
        words += f" · {_DIFFERS}: likewise, for numbers where neither higher nor lower is better"
    if any(says(one) == _OTHER_CHUNKS for one in every):
        words += f" · {_OTHER_CHUNKS}: counts chunks, so it cannot compare chunkers"
    if any(map(_is_over_others, part.rows())):
        words += " · intervals cover the queries that have a value in both runs, deltas those of each run"
    if any(one.is_rough and one.low is not None for one in every):
        words += f" · {_ROUGHLY}: fewer than {ROUGH} queries or groups, so the interval is approximate"
    if grouped := [one for one in every if one.is_grouped]:
        most = max(grouped, key=lambda one: one.n)
        words += (
            f" · {queries_text(most)}: a group counts as one, so the permutation test flips the signs of whole groups"
        )
    return words


def _is_over_others(row: Delta) -> bool:
    """Are the run's numbers based on other queries than the test, so that the two do not agree?"""
    one = row.significance
    return one is not None and row.exact_delta is not None and abs(row.exact_delta - one.mean_delta) > _ROUNDED


# --- tables ------------------------------------------------------------------------------------------


def delta_table(part: Comparison, only: Collection[str] | None = None) -> Table:
    """One row per number, with direction, interval and significance.

    `only`: the numbers to show; without it, those that either run has.
    """
    columns = _tested_columns(part)
    rows: list[list[Cell]] = []
    for row in part.rows():
        if only is not None and row.name not in only:
            continue
        if only is None and row.a is None and row.b is None:
            continue
        delta = None if row.a is None or row.b is None else row.exact_delta
        tested = _tested_cells(row.significance, columns)
        rows.append([short_name(row.name), row.a, row.b, signed(delta), *tested])
    return columns, rows


def signed(value: Number) -> str | None:
    """A difference with its sign."""
    if value is None:
        return None
    return "0" if not value else f"{value:+,}" if isinstance(value, int) else f"{value:+.4f}"


def interval_text(one: Significance) -> str | None:
    """The interval of a difference; None if there is none."""
    if one.low is None or one.high is None:
        return None
    return f"{_ROUGHLY if one.is_rough else ''}{one.low:+.4f} to {one.high:+.4f}"


def p_text(value: float) -> str:
    """A p value: four decimals."""
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def says(one: Significance) -> str:
    """What is significant after correction; in brackets, what would be if this were the only number tested."""
    alone = bool(one.mean_delta) and one.p <= ALPHA
    if one.better == NEITHER:
        return _DIFFERS if alone else ""
    if not one.decides:
        return _OTHER_CHUNKS
    return one.direction or (f"({one.leaning}?)" if alone else "")


def query_table(found: Sequence[QueryComparison], most: int) -> Table:
    """Some queries, with their ranks in both runs and what changed."""
    columns = [
        Column("query_id", "query", 24),
        Column("a_hit_rank", "A", right=True),
        Column("b_hit_rank", "B", right=True),
        Column("note", width=120),
        Column("text", width=60),
    ]
    return columns, [[one.query_id, one.a_hit_rank, one.b_hit_rank, one.note, one.query] for one in found[:most]]


def every_query_table(report: CompareReport) -> Table:
    """Every query, for programs."""
    names = ("query_id", "kind", "a_hit_rank", "b_hit_rank", "note", "matching", "answer", "query")
    return [Column(name) for name in names], [[getattr(one, name) for name in names] for one in report.per_query]


def slice_table(report: CompareReport) -> Table:
    """One row per slice: the headline number and the verdict."""
    columns = [
        Column("slice", report.sliced_by),
        *_tested_columns(*report.slices.values()),
        Column("verdict", width=60),
        Column("kinds", "W/D/L/R", right=True),
    ]
    rows: list[list[Cell]] = []
    for name, part in report.slices.items():
        kinds = "/".join(str(number) for number in part.counts.values())
        metric = part.verdict.metric
        found = next((row for row in part.rows() if row.name == metric), None)
        one = None if found is None else found.significance
        numbers: list[Cell] = [None] * 4
        if found is not None and one is not None:
            numbers = [short_name(found.name), found.a, found.b, signed(found.exact_delta)]
        rows.append([name, *numbers, *_tested_cells(one, columns), part.verdict.answer, kinds])
    return columns, rows


def config_table(report: CompareReport) -> Table:
    """Every configuration key that differs."""
    columns = [Column("key", width=50), Column("a", "A", 50), Column("b", "B", 50)]
    return columns, [[one.key, _value(one.a), _value(one.b)] for one in report.config_diff]


def _value(value: object) -> Cell:
    return value if value is None or isinstance(value, str) else " ".join(json_text(value).split())


def sections(report: CompareReport, most: int) -> Iterator[tuple[str, Table, int]]:
    """The lists of queries that changed, the worst first: title, rows, and how many more there are."""
    if not most:
        return
    lists = {
        "regressions": report.of_kind("regression"),
        "losses": report.of_kind("loss"),
        "wins": report.of_kind("win"),
        "answers that got worse": [one for one in report.per_query if one.answer == WORSE],
        "answers that got better": [one for one in report.per_query if one.answer == BETTER],
    }
    for title, found in lists.items():
        if found:
            yield title, query_table(found, most), max(0, len(found) - most)


# --- Markdown ----------------------------------------------------------------------------------------


def render_report_md(report: CompareReport, most: int = MOST_ROWS) -> str:
    """The report as Markdown: the verdict, the numbers, then regressions, losses and wins."""
    parts = [
        f"# {markdown(report.run_a)} → {markdown(report.run_b)}",
        f"**{markdown(verdict_sentence(report.whole))}**",
        f"{counts_sentence(report.whole)}. {markdown(matching_sentence(report))}.",
        *(f"> {markdown(warning)}" for warning in report.warnings),
        "## Numbers",
        _md(delta_table(report.whole, report.shown)),
        legend(report.whole),
    ]
    if report.slices:
        parts += [f"## By {markdown(report.sliced_by or '')}", _md(slice_table(report))]
    for title, table, more in sections(report, most):
        parts += [f"## {title.capitalize()} ({len(table[1]) + more:,})", _md(table)]
        if more:
            parts.append(f"… and {more:,} more.")
    if report.config_diff:
        parts += ["## Configuration", _md(config_table(report))]
    parts.append(f"*kbeval {__version__}*")
    return "\n\n".join(parts) + "\n"


def _md(table: Table) -> str:
    return render(*table, "md")
