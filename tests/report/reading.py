"""Reads a report as its script does."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

_CHUNK = ("chunk", "doc", "headings", "where", "source", "text")


def data_of(path: Path) -> dict[str, Any]:
    """The data of a page, as its script unpacks it."""
    found = re.search(r'<script type="application/json" id="data">"([A-Za-z0-9+/=]*)"</script>', path.read_text())
    assert found
    batches: list[dict[str, Any]] = json.loads(zlib.decompress(base64.b64decode(found[1])))
    return {name: [one for batch in batches for one in batch[name]] for name in batches[0]}


def hits_of(data: dict[str, Any], side: dict[str, Any]) -> list[dict[str, Any]]:
    """The hits of a ranking, from their columns."""
    columns = side["hits"]
    found = [
        {
            **dict(zip(_CHUNK, data["chunks"][chunk], strict=True)),
            "rank": place + 1, "score": columns["scores"][place], "counts": 0, "labels": [], "marks": [],
        }
        for place, chunk in enumerate(columns["chunks"])
    ]  # fmt: skip
    for hit, rank in zip(found, columns["ranks"] or (), strict=False):
        hit["rank"] = rank
    for place, counts, marks, labels in columns["labelled"]:
        found[place] |= {"counts": counts, "marks": marks, "labels": [data["labels"][one] for one in labels]}
    return found


def everything_in(path: Path) -> str:
    """All that a page says, packed or not."""
    text = path.read_text()
    packed = json.dumps(data_of(path), ensure_ascii=False) if 'id="data"' in text else ""
    return f"{text} {packed}"
