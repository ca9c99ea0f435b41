"""A history as a plot: SVG, PNG, or one HTML page. The same history gives the same bytes.

matplotlib is an optional extra, imported only for plotting. Text from data is drawn literally: nothing in it is a
formula, and a character that the font lacks is drawn as a box. Runs are evenly spaced, oldest first: on a time axis, a
night of experiments would be one blot and a quiet month half of the plot.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbeval.errors import UsageError
from kbeval.explore.history import History, Point, Series
from kbeval.explore.history_names import Measured
from kbeval.render.history import changed
from kbeval.util.text import counted, cut, cut_inside, display_width, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".svg", ".png", ".html")
# Okabe and Ito's colours, which colour-blind people can distinguish; the yellow is too pale for a line.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", ":")
MOST_SERIES = len(_COLOURS) * len(_LINES)
MOST_METRICS = 8
_MOST_NOTES = 8
_MOST_LINES = 40
_MOST_DATES = 8
_GREY = "#666666"
_INCHES_WIDE = 10.0
_LEFT = 0.1
_NOTE_HEIGHT = 0.2
_LEGEND_COLUMNS = 4
# In inches: the sample line before a label, and one character of a label (most are narrower).
_LEGEND_LINE = 0.7
_LEGEND_CHARACTER = 0.078
_DPI = 120
_STYLE: dict[str, Any] = {
    # Shipped with matplotlib, so every machine draws the same; SVG viewers without it fall back to another font.
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "kbeval",
    "text.parse_math": False,
    "text.usetex": False,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": False,
}


def check_ending(path: str) -> str:
    """The format of the plot, from the file extension; raises UsageError for any other extension."""
    ending = next((ending for ending in ENDINGS if path.lower().endswith(ending)), None)
    if ending is None:
        msg = f"--plot {cut(path, 200)!r}: the extension must be .svg, .png or .html"
        raise UsageError(msg)
    return ending


def draw(history: History, path: str) -> bytes:
    """The contents of the plot file."""
    ending = check_ending(path)
    if ending == ".html":
        from kbeval.render.page import history_page

        return history_page(history, _drawn(history, "svg").decode("utf-8")).encode("utf-8", "backslashreplace")
    return _drawn(history, ending[1:])


def _drawn(history: History, form: str) -> bytes:
    if len(history.series) > MOST_SERIES:
        msg = (
            f"{counted(len(history.series), 'series', 'series')} are too many for one plot (maximum {MOST_SERIES});"
            " use --suite, --since or another --by"
        )
        raise UsageError(msg)
    if len(history.metrics) > MOST_METRICS:
        msg = f"{len(history.metrics)} metrics are too many for one plot (maximum {MOST_METRICS})"
        raise UsageError(msg)
    with _quiet():
        try:
            import matplotlib as mpl
        except ImportError as error:
            msg = "plotting needs matplotlib; install it with: pip install 'kbeval[plot]'"
            raise UsageError(msg) from error
        # The user's matplotlib settings must not change the plot.
        style: Any = {**mpl.rcParamsDefault, "backend": "agg", **_STYLE}
        with mpl.rc_context(style):
            figure = _figure(history)
            out = io.BytesIO()
            # No date and no version: the same history gives the same bytes.
            omitted: Mapping[str, Any] = (
                {"Software": None} if form == "png" else dict.fromkeys(("Date", "Creator", "Format", "Type"))
            )
            figure.savefig(out, format=form, dpi=_DPI, metadata=dict(omitted))
    return out.getvalue()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence matplotlib's messages about fonts and folders: the user cannot act on them."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class _Mark:
    """A run from which on something differs, and a note about it. Without a number it is only marked."""

    place: int
    number: int | None
    text: str
    breaks: bool
    # How far above the plot its number is drawn, so that the numbers of neighbours do not overlap.
    level: int


def _figure(history: History) -> Figure:
    from matplotlib.figure import Figure

    runs = sorted(
        (point for series in history.series for point in series.points),
        key=lambda point: (point.moment is not None, point.moment or "", point.created_at, point.run_id),
    )
    places = {point.run_id: place for place, point in enumerate(runs)}
    marks = _marks(history, places)
    notes = _notes(marks)
    # All in inches, so that a plot of eight metrics has the same margins as a plot of one.
    panel = 3.2 if len(history.metrics) == 1 else 2.4
    levels = 0.12 * max((mark.level for mark in marks), default=0)
    between = 0.3 + levels
    labels = [_safe(cut_inside(shown(history.label(series)), 28)) for series in history.series]
    legend_columns = _legend_columns(labels)
    legend_rows = -(-len(labels) // legend_columns) if len(labels) > 1 else 0
    top = 0.55 + 0.24 * legend_rows + levels
    bottom = 0.75 + _NOTE_HEIGHT * len(notes)
    height = panel * len(history.metrics) + between * (len(history.metrics) - 1) + top + bottom
    figure = Figure(figsize=(_INCHES_WIDE, height))
    figure.subplots_adjust(left=_LEFT, right=0.95, top=1 - top / height, bottom=bottom / height, hspace=between / panel)
    panels = figure.subplots(len(history.metrics), 1, sharex=True, squeeze=False)[:, 0]
    for axes, metric in zip(panels, history.metrics, strict=True):
        _panel(axes, history, metric, places, marks)
    _dates(panels[-1], runs)
    what = ", ".join(metric.short for metric in history.metrics)
    figure.text(_LEFT, 1 - 0.3 / height, _safe(f"{what} over {counted(len(runs), 'run')}", 80), size=13, weight="bold")
    if legend_rows:
        _legend(figure, labels, panels[0], 1 - 0.38 / height, legend_columns)
    for row, text in enumerate(notes):
        where = (bottom - 0.75 - _NOTE_HEIGHT * (row + 0.25)) / height
        figure.text(_LEFT, where, text, size=8.5, color="#333333", va="center")
    return figure


def _safe(text: str, width: int = 40) -> str:
    """Text from data: one line, not too long, and no characters that XML forbids."""
    return cut(shown(text), width).replace("\ufffe", "?").replace("\uffff", "?")


def _panel(axes: Axes, history: History, metric: Measured, places: Mapping[str, int], marks: Sequence[_Mark]) -> None:
    size = 5.5 if len(places) <= 40 else 4.0 if len(places) <= 100 else 2.5
    for place, series in enumerate(history.series):
        colour, line = _COLOURS[place % len(_COLOURS)], _LINES[place // len(_COLOURS)]
        for number, part in enumerate(_unbroken(series, metric.name)):
            axes.plot(
                [places[point.run_id] for point in part],
                [_height(point.values[metric.name].value) for point in part],
                color=colour,
                linestyle=line,
                linewidth=1.6,
                marker="o",
                markersize=size,
                label=f"series {place}" if number == 0 else "_",
            )
    for mark in marks:
        if len(marks) > _MOST_LINES and mark.number is None and not mark.breaks:
            continue
        axes.axvline(
            mark.place,
            color=_GREY if mark.breaks or mark.number is not None else "#BBBBBB",
            linewidth=1.0 if mark.breaks else 0.8,
            linestyle="-" if mark.breaks else ":",
            zorder=0.9,
        )
        if mark.number is not None:
            axes.annotate(
                str(mark.number),
                (mark.place, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 1 + 8 * mark.level),
                textcoords="offset points",
                ha="center",
                va="bottom",
                size=8,
                color="#333333",
            )
    axes.set_xlim(-0.5, max(len(places) - 0.5, 0.5))
    _y_range(axes, [value for series in history.series for value in series.values(metric.name) if value is not None])
    better = {True: "", False: "\n(lower is better)", None: ""}[metric.higher_is_better]
    axes.set_ylabel(_safe(metric.short, 32) + better)


def _height(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _unbroken(series: Series, name: str) -> list[list[Point]]:
    """Parts of a series whose numbers are comparable; no line connects one part to the next."""
    parts: list[list[Point]] = [[]]
    for point in series.points:
        if not point.values[name].comparable and parts[-1]:
            parts.append([])
        parts[-1].append(point)
    return parts


def _y_range(axes: Axes, values: Sequence[float]) -> None:
    """Show shares from 0 to 1 if they vary much, and otherwise zoom in, but not too far."""
    from matplotlib.ticker import MaxNLocator

    if not values:
        axes.set_ylim(0, 1)
        axes.text(0.5, 0.5, "no value", transform=axes.transAxes, ha="center", va="center", color=_GREY)
        return
    low, high = min(values), max(values)
    if low >= 0 and high <= 1 and any(isinstance(value, float) for value in values):
        low, high = _share_range(low, high)
    else:
        margin = 0.08 * (high - low) or abs(high) * 0.1 or 1.0
        low, high = (0.0 if 0 <= low <= margin else low - margin), high + margin
    # A small margin, so that a point at the edge is drawn completely.
    edge = 0.04 * (high - low)
    low, high = low - edge, high + edge
    axes.set_ylim(low, high)
    counts = all(isinstance(value, int) for value in values)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=counts))
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")


def _share_range(low: float, high: float) -> tuple[float, float]:
    """From 0 to 1 if shares vary much; otherwise around them, at least 0.1 wide, and always within 0 and 1."""
    if high - low > 0.4:
        return 0.0, 1.0
    margin = max(0.05 * (high - low), (0.1 - (high - low)) / 2)
    low, high = low - margin, high + margin
    low, high = (0.0, high - low) if low < 0 else (low, high)
    return (low - (high - 1), 1.0) if high > 1 else (low, high)


def _dates(axes: Axes, runs: Sequence[Point]) -> None:
    """A date under every run, or under every second, third, … if there are many."""
    chosen = range(0, len(runs), max(1, -(-len(runs) // _MOST_DATES)))
    days = [point.moment.strftime("%Y-%m-%d") if point.moment else None for point in runs]
    # If several of the chosen runs are from one day, the time is needed too.
    seen = [days[place] for place in chosen if days[place]]
    finer = "%Y-%m-%d\n%H:%M" if len(set(seen)) < len(seen) else "%Y-%m-%d"
    labels = []
    for place in chosen:
        when = runs[place].moment
        labels.append(when.strftime(finer) if when else _safe(runs[place].created_at or "no date", 12))
    axes.set_xticks(chosen, labels)
    axes.set_xlabel("run, oldest first (UTC)" if "%H" in finer else "run, oldest first")


def _legend_columns(labels: Sequence[str]) -> int:
    """As many as fit next to each other."""
    widest = _LEGEND_LINE + _LEGEND_CHARACTER * max(map(display_width, labels), default=0)
    return max(1, min(_LEGEND_COLUMNS, len(labels), int(_INCHES_WIDE * (0.98 - _LEFT) / widest)))


def _legend(figure: Figure, labels: Sequence[str], axes: Axes, top: float, columns: int) -> None:
    handles = [line for line in axes.get_lines() if str(line.get_label()).startswith("series ")]
    legend = figure.legend(
        handles,
        [f"series {place}" for place in range(len(labels))],
        loc="upper left",
        bbox_to_anchor=(_LEFT - 0.007, top),
        ncols=columns,
        frameon=False,
        fontsize=9,
    )
    # Set afterwards: matplotlib omits labels that begin with _.
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)


def _marks(history: History, places: Mapping[str, int]) -> list[_Mark]:
    found = sorted(
        (
            (places[point.run_id], series, point)
            for series in history.series
            for point in series.points
            if point.breaks or point.config
        ),
        key=lambda item: item[0],
    )
    marks: list[_Mark] = []
    for count, (place, series, point) in enumerate(found, start=1):
        # The latest changes are the most relevant.
        number = count - max(0, len(found) - _MOST_NOTES)
        whose = f"{cut_inside(history.label(series), 28)}: " if len(history.series) > 1 else ""
        text = f"{cut(point.run_id, 36)}: {whose}{changed(point, 2)}"
        near = bool(marks) and marks[-1].number is not None and place - marks[-1].place < 0.02 * len(places)
        level = (marks[-1].level + 1) % 3 if near else 0
        marks.append(_Mark(place, number if number > 0 else None, text, bool(point.breaks), level))
    return marks


def _notes(marks: Sequence[_Mark]) -> list[str]:
    """What changed, one line per mark, as many as are readable, and what the lines mean."""
    if not marks:
        return []
    found = [_safe(f"{mark.number}  {mark.text}", 120) for mark in marks if mark.number is not None]
    more = len(marks) - len(found)
    says = ["dotted line: the configuration changed"] if any(not mark.breaks for mark in marks) else []
    says += ["solid line: numbers before and after are not comparable"] if any(mark.breaks for mark in marks) else []
    unlisted = "not drawn" if len(marks) > _MOST_LINES else "without a number"
    earlier = [f"{counted(more, 'earlier change')} {unlisted}"] if more else []
    return ["; ".join([*says, *earlier]), *found]
