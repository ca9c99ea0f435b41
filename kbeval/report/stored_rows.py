"""The parts of stored rows that the scorer does not read: texts, headings, answers and their citations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kbeval.storage.run_config import chunker_version, config_of
from kbeval.storage.runs import Run
from kbeval.storage.source import StoredSource
from kbeval.util.strict_json import parse

# The length to which the anchor-labelled system cuts the texts that it stores.
_CUT = 200
_MARKER = re.compile(r"\D*(\d{1,4})\D*")
_BOUNDS = {
    "line": ("start", "end"),
    "code": ("line_start", "line_end"),
    "byte": ("start", "end"),
    "char": ("start", "end"),
    "time": ("start_ms", "end_ms"),
    "page": ("page", "page"),
}


def stored_rows(source: StoredSource, run: Run, query_ids: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The readable rows of a run for these queries, with the query ids."""
    if not query_ids:
        return
    for query_id, text in source.result_rows(run.run_id, query_ids):
        try:
            row = parse(text)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield query_id, row


def hits_of(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The hits of a row; an item that is not a hit becomes an empty one."""
    hits = row.get("hits_top_k")
    return [hit if isinstance(hit, dict) else {} for hit in hits] if isinstance(hits, list) else []


def first_text(*values: object) -> str | None:
    """The first value that is a non-empty text."""
    return next((value for value in values if isinstance(value, str) and value), None)


def path_of(hit: Mapping[str, Any]) -> str | None:
    """The path of a hit's document, as in the row."""
    return first_text(hit.get("doc_path"), hit.get("rel_path"))


def headings_of(hit: Mapping[str, Any]) -> str | None:
    """The headings above a hit."""
    found = hit.get("heading_path")
    if isinstance(found, list):
        return " › ".join(str(one) for one in found if isinstance(one, str | int | float)) or None
    text = first_text(found)
    return None if text is None else " › ".join(part.strip().lstrip("#").strip() for part in text.split(" > "))


def spans_of(said: object) -> list[Mapping[str, Any]]:
    """Source spans from a list or a single span, parsed or as JSON text."""
    if isinstance(said, str):
        try:
            said = parse(said)
        except ValueError:
            return []
    return [span for span in (said if isinstance(said, list) else [said]) if isinstance(span, dict)]


class KnownChunks:
    """The chunks of hits and labels: from the table `chunks`, and the texts in rows."""

    def __init__(self, source: StoredSource, chunk_ids: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
        # Texts of rows, by chunk.
        self._seen: dict[str, set[str]] = {}
        ids = set(chunk_ids)
        for row in rows:
            ids |= self.see(row)
        self._chunks: dict[str, dict[str, tuple[str | None, str | None]]] = {}
        for chunk_id, version, text, spans in source.chunk_details(sorted(ids)):
            self._chunks.setdefault(str(chunk_id), {})[str(version)] = (text, spans)

    def see(self, row: Mapping[str, Any]) -> set[str]:
        """Remember the texts of a row's hits; returns their chunk ids."""
        found = set()
        for hit in hits_of(row):
            if isinstance(chunk_id := hit.get("chunk_id"), str):
                found.add(chunk_id)
                if text := first_text(hit.get("text")):
                    self._seen.setdefault(chunk_id, set()).add(text)
        return found

    def of_hit(self, hit: Mapping[str, Any], run: Run) -> tuple[str | None, str | None]:
        """The text and spans of a hit's chunk, in its own version or in the only one."""
        version = first_text(hit.get("chunker_version")) or chunker_version(config_of(run))
        versions = self._chunks.get(str(hit.get("chunk_id")), {})
        if version is None and len(versions) == 1:
            (version,) = versions
        return versions.get(version or "", (None, None))

    def text_of(self, chunk_id: str, version: str) -> str | None:
        """The text of a chunk of one version in the table."""
        return self._chunks.get(chunk_id, {}).get(version, (None, None))[0]

    def has_text(self, chunk_id: str) -> bool:
        """Is any text known for the id?"""
        return chunk_id in self._seen or any(text is not None for text, _ in self._chunks.get(chunk_id, {}).values())

    def text(self, chunk_id: str) -> str | None:
        """The text of a chunk, if the id has only one text."""
        found = {text for text, _ in self._chunks.get(chunk_id, {}).values() if text is not None}
        found = found or self._seen.get(chunk_id, set())
        return next(iter(found)) if len(found) == 1 else None


def hit_text(hit: Mapping[str, Any], known: str | None) -> tuple[str | None, str]:
    """The text of a hit, and its origin: the row or, if the row has only its beginning, the whole chunk."""
    stored = first_text(hit.get("text"), hit.get("snippet"))
    if stored is None:
        return known, "text from the table chunks" if known else ""
    if known is not None and len(known) > len(stored):
        beginning = " ".join(stored.removesuffix("...").removesuffix("…").split())
        if " ".join(known.split()).startswith(beginning):
            return known, ""
    if known is not None:
        return stored, ""
    if stored is hit.get("snippet") and not hit.get("text"):
        return stored, "snippet; the whole text is not stored"
    # The anchor-labelled system stores longer texts like this.
    is_cut = stored.endswith("...") and _CUT <= len(stored) <= _CUT + 3
    return stored, "cut when it was stored" if is_cut else ""


def score_of(score: float | None, hit: Mapping[str, Any]) -> str | None:
    """The score of a hit; for the anchor-labelled system the final score and its components."""
    if score is not None:
        return f"{score:.4g}"
    found = {part: hit.get(f"score_{part}") for part in ("final", "vector", "lexical")}
    said = {
        part: f"{value:.4g}"
        for part, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    }
    final = said.pop("final", None)
    parts = ", ".join(f"{part} {value}" for part, value in said.items())
    return f"{final} ({parts})" if final and parts else final or parts or None


# --- answers ---------------------------------------------------------------------------------------


def answer_of(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The answer in a row."""
    found = row.get("answer")
    return found if isinstance(found, dict) else None


def citations_of(answer: Mapping[str, Any]) -> list[Any]:
    """What the answer cites."""
    found = answer.get("citations")
    return found if isinstance(found, list) else []


def references_of(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The passages that the answer of the anchor-labelled system refers to."""
    found = row.get("references")
    return [one if isinstance(one, dict) else {} for one in found] if isinstance(found, list) else []


def cited_chunk(citation: object) -> str | None:
    """The chunk that a citation names."""
    if not isinstance(citation, dict):
        return None
    inner = citation.get("citation")
    return first_text(citation.get("chunk_id"), inner.get("chunk_id") if isinstance(inner, dict) else None)


def cited_rank(citation: object, hits: Sequence[tuple[int, Mapping[str, Any]]]) -> int | None:
    """The rank of the cited hit: by chunk, otherwise by place, otherwise by marker."""
    if not isinstance(citation, dict):
        return None
    inner = citation.get("citation")
    place = inner if isinstance(inner, dict) else {}
    chunk_id = cited_chunk(citation)
    if chunk_id is not None:
        return next((rank for rank, hit in hits if hit.get("chunk_id") == chunk_id), None)
    path = first_text(place.get("path"), citation.get("path"))
    if path is not None:
        inside = [(rank, hit) for rank, hit in hits if path_of(hit) == path]
        return next((rank for rank, hit in inside if _meets(place, hit)), None)
    marker = _MARKER.fullmatch(str(citation.get("marker") or ""))
    return next((rank for rank, _ in hits if marker and rank == int(marker[1])), None)


def _meets(place: Mapping[str, Any], hit: Mapping[str, Any]) -> bool:
    """Does a cited place overlap the place of a hit?"""
    bounds = _bounds(place)
    own = spans_of(hit.get("source_spans")) or spans_of(hit.get("citation"))
    if bounds is None or not own:
        return True
    return any(
        (other := _bounds(span)) is not None
        and other[0] == bounds[0]
        and other[1] <= bounds[2]
        and bounds[1] <= other[2]
        for span in own
    )


def _bounds(span: Mapping[str, Any]) -> tuple[str, float, float] | None:
    kind = str(span.get("kind"))
    low, high = (span.get(name) for name in _BOUNDS.get(kind, ("", "")))
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    # The end of bytes and characters is excluded.
    return ("line" if kind == "code" else kind), low, high - (kind in ("byte", "char", "time"))
