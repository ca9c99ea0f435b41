"""The data of a page for its script: compressed JSON as Base64, so that no text can break out of it.

It is written one batch of queries at a time: each batch contains the texts, chunks and labels that are new in it. The
hits of a ranking are stored as columns: the chunk, the rank (null: 1, 2, 3, …) and the score; and how they count, only
for hits with labels. `report.js` unpacks them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import Any

from kbeval.report.answers import View

# What the hits of one chunk have in common; it is stored once.
_CHUNK = ("chunk", "doc", "headings", "where", "source", "text")


class Packer:
    """Compresses views as they arrive."""

    def __init__(self) -> None:
        self._chunks: dict[bytes, int] = {}
        self._labels: dict[str, int] = {}
        self._compressor = zlib.compressobj(9)
        self._pieces: list[bytes] = []
        self._is_empty = True

    def add(self, views: Sequence[View], new_texts: Sequence[str]) -> None:
        """Add a batch, and the texts that it is the first to refer to."""
        chunks: list[tuple[Any, ...]] = []
        labels: list[str] = []
        packed = [{**view, "sides": [self._side(side, chunks, labels) for side in view["sides"]]} for view in views]
        data = {"texts": new_texts, "chunks": chunks, "labels": labels, "queries": packed}
        text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        self._write(("[" if self._is_empty else ",") + text)
        self._is_empty = False

    def done(self) -> str | None:
        """All data as Base64; None if there is none."""
        if self._is_empty:
            return None
        self._write("]")
        self._pieces.append(self._compressor.flush())
        return base64.b64encode(b"".join(self._pieces)).decode()

    def _write(self, text: str) -> None:
        self._pieces.append(self._compressor.compress(text.encode()))

    def _side(self, side: View, chunks: list[tuple[Any, ...]], labels: list[str]) -> View:
        hits = side["hits"]
        ranks = [hit["rank"] for hit in hits]
        columns = {
            "chunks": [self._chunk(tuple(hit[name] for name in _CHUNK), chunks) for hit in hits],
            "scores": [hit["score"] for hit in hits],
            "ranks": None if ranks == list(range(1, len(hits) + 1)) else ranks,
            "labelled": [
                [place, hit["counts"], hit["marks"], [self._label(one, labels) for one in hit["labels"]]]
                for place, hit in enumerate(hits)
                if hit["counts"] or hit["labels"] or hit["marks"]
            ],
        }
        return {**side, "hits": columns}

    def _chunk(self, chunk: tuple[Any, ...], new: list[tuple[Any, ...]]) -> int:
        key = hashlib.blake2b(repr(chunk).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._chunks:
            self._chunks[key] = len(self._chunks)
            new.append(chunk)
        return self._chunks[key]

    def _label(self, label: str, new: list[str]) -> int:
        if label not in self._labels:
            self._labels[label] = len(self._labels)
            new.append(label)
        return self._labels[label]
