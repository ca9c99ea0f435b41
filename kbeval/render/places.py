"""Where a hit or a label is, in words: `lines 3–9`, `docs/a.md > Prices`; and the label that a hit matches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kbeval.explore.inspect import Label

# How the positions of each kind of span are shown: the unit, and the fields of its two ends.
_ENDS = {
    "line": ("lines", "start", "end"),
    "code": ("lines", "line_start", "line_end"),
    "byte": ("bytes", "start", "end"),
    "char": ("characters", "start", "end"),
    "time": ("ms", "start_ms", "end_ms"),
}


def spans_text(spans: Sequence[Mapping[str, Any]]) -> str | None:
    """The location of a hit, in short."""
    return "; ".join(map(span_text, spans)) or None


def span_text(span: Mapping[str, Any]) -> str:
    """One span, in short."""
    kind = span.get("kind")
    if kind in _ENDS:
        word, low, high = _ENDS[kind]
        return f"{word} {_plain(span.get(low))}–{_plain(span.get(high))}"
    if kind == "page":
        characters = f", characters {_plain(span.get('char_start'))}–{_plain(span.get('char_end'))}"
        return f"page {_plain(span.get('page'))}{characters if span.get('char_start') is not None else ''}"
    return json.dumps({name: value for name, value in span.items() if value is not None}, ensure_ascii=False)


def label_text(item: object) -> str:
    """A label as written in the golden file."""
    if isinstance(item, str):
        return item
    if isinstance(item, dict) and "rel_path" in item:
        headings = item.get("heading_path") or ""
        place = " > ".join(headings) if isinstance(headings, list) else headings
        return " > ".join(filter(None, (item["rel_path"], place)))
    if isinstance(item, dict) and "kind" in item:
        place = {name: _plain(value) for name, value in item.items() if name not in ("doc_id", "path")}
        return f"{item.get('doc_id') or item.get('path')} {span_text(place)}"
    return json.dumps(item, ensure_ascii=False)


def counts_as(label: Label, golden: Mapping[str, Any]) -> str:
    """The label that a hit matches, or nearly matches, with the share of text in common."""
    name = label.label if label.kind in ("span", "support") else f"{label.kind} {label.label}"
    if label.kind == "support":
        # As in the golden file: supports are numbered from 0.
        name = f"support {label_text(golden['gold_supports'][int(label.label.split()[-1])])}"
    shares = ""
    if label.shared is not None and label.hit_size and label.label_size:
        shares = f" ({label.shared / label.label_size:.2f} of it, {label.shared / label.hit_size:.2f} of the hit)"
    return f"{name}{shares}" if label.counts else f"not {name}{shares}"


def _plain(value: object) -> object:
    """A position as people write it: 46, not 46.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
