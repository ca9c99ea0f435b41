"""One HTML page with a plot and its numbers: no scripts, no external resources, all text from data escaped."""

from __future__ import annotations

import html

from kbeval.explore.history import History
from kbeval.render.history import direction_note, history_table
from kbeval.render.table import Cell, Column, display_text
from kbeval.util.text import counted, shown

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; }}
body {{ max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }}
figure {{ margin: 1rem 0; }}
svg {{ width: 100%; height: auto; }}
div.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.875rem; }}
th, td {{ padding: 0.25rem 0.75rem 0.25rem 0; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
</style>
</head>
<body>
<h1>{title}</h1>
<figure role="img" aria-label="{title}">
{svg}</figure>
{notes}<div class="wide">
{table}
</div>
</body>
</html>
"""


def history_page(history: History, svg: str) -> str:
    """The page. `svg`: the plot as written by matplotlib, embedded without its XML header."""
    runs = sum(len(series.points) for series in history.series)
    title = f"{', '.join(metric.short for metric in history.metrics)} over {counted(runs, 'run')}"
    direction = direction_note(history)
    notes = "".join(f"<p>{_text(note)}</p>\n" for note in ([direction] if direction else []) + list(history.notes))
    columns, rows = history_table(history)
    return _PAGE.format(title=_text(title), svg=svg[svg.index("<svg") :], notes=notes, table=_table(columns, rows))


def _text(text: str) -> str:
    return html.escape(shown(text))


def _table(columns: list[Column], rows: list[list[Cell]]) -> str:
    def line(tag: str, texts: list[str]) -> str:
        kinds = [' class="number"' if column.right else "" for column in columns]
        return f"<tr>{''.join(f'<{tag}{kind}>{text}</{tag}>' for kind, text in zip(kinds, texts, strict=True))}</tr>"

    head = line("th", [_text(column.title) for column in columns])
    body = [line("td", [html.escape(display_text(value)) for value in row]) for row in rows]
    return "\n".join(["<table>", f"<thead>{head}</thead>", "<tbody>", *body, "</tbody>", "</table>"])
