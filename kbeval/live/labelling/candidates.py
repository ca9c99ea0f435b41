"""What people decide on: each candidate with its whole text, if it is available."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbeval.explore.pool import Item
from kbeval.storage.labels import LabelStore

_CUT_LENGTHS = range(200, 204)


@dataclass(frozen=True)
class Candidate:
    """A text that may support the answer to a query."""

    # Identifies it in decisions: the hash of its text.
    key: str
    text: str
    # Only a part of the text is known.
    is_cut: bool
    doc_id: str | None
    path: str | None
    title: str | None
    headings: tuple[str, ...]
    chunk_id: str | None
    chunker_version: str | None
    spans: tuple[Mapping[str, Any], ...]
    # Hidden while labelling.
    n_runs: int
    best_rank: int | None
    # A label of the golden file names it.
    is_labelled: bool
    # The chunks that are the same text, and earlier decisions about them.
    chunk_ids: tuple[str, ...]
    keys: tuple[str, ...]
    # True if it is not a text but a field of the query that people disagree on.
    is_question: bool = False

    def as_json(self) -> dict[str, Any]:
        """For a front end: without runs and ranks."""
        hidden = ("n_runs", "best_rank", "chunk_ids", "keys")
        return {name: value for name, value in vars(self).items() if name not in hidden}


def text_key(text: str) -> str:
    """The key of a text, independent of its chunk id."""
    return hashlib.sha256(" ".join(text.split()).encode("utf-8", "replace")).hexdigest()[:32]


class Reader:
    """Makes candidates from items: finds their texts, headings and documents."""

    def __init__(self, store: LabelStore) -> None:
        self._store = store
        self._documents = store.document_names()

    def candidates(self, items: Sequence[Item], more: Sequence[Mapping[str, Any]] = ()) -> list[Candidate]:
        """One for each group of items. `more`: hits of a live system, whose texts are not stored anywhere."""
        texts = self._store.chunk_texts(sorted({item.chunk_id for item in items if item.chunk_id is not None}))
        rows: dict[tuple[str, str], Sequence[Mapping[str, Any]]] = {}
        groups: dict[int, list[Item]] = {}
        for item in items:
            groups.setdefault(item.leader_no, []).append(item)
        found = []
        for leader, members in groups.items():
            # An item without a chunk or a run is an earlier decision: it has nothing to show.
            own = [item for item in members if item.run_id is not None or item.n_runs == 0]
            own.sort(key=lambda item: item.item_no != leader)
            shown = self._shown(own, texts, rows, more)
            if shown is not None:
                found.append(self._candidate(*shown, members))
        return found

    def _shown(
        self,
        members: Sequence[Item],
        texts: Mapping[tuple[str, str], tuple[str, str]],
        rows: dict[tuple[str, str], Sequence[Mapping[str, Any]]],
        more: Sequence[Mapping[str, Any]],
    ) -> tuple[Item, str, bool, tuple[str, ...], str | None] | None:
        """The member to be shown: the first whose text is whole, else the first that has any."""
        best = None
        for item in members:
            known = texts.get((item.chunk_id or "", item.chunker_version or ""))
            hit = self._hit(item, rows, more)
            path = _text_of(hit, "doc_path") or _text_of(hit, "rel_path") or item.path
            if known is not None and known[0]:
                return item, known[0], False, _headings(known[1]) or _headings(hit.get("heading_path")), path
            text, is_cut = _hit_text(hit)
            if text and not is_cut:
                return item, text, False, _headings(hit.get("heading_path")), path
            if text and best is None:
                best = item, text, True, _headings(hit.get("heading_path")), path
        return best

    def _hit(
        self,
        item: Item,
        rows: dict[tuple[str, str], Sequence[Mapping[str, Any]]],
        more: Sequence[Mapping[str, Any]],
    ) -> Mapping[str, Any]:
        """The hit as in the stored row, or as the live system returned it."""
        hits = more
        if item.run_id is not None:
            place = item.run_id, item.query_id
            if place not in rows:
                rows[place] = _hits_in(self._store.result_json(*place))
            hits = rows[place]
        for hit in hits:
            if item.chunk_id is not None:
                if _text_of(hit, "chunk_id") == item.chunk_id:
                    return hit
            elif _text_of(hit, "doc_id") == item.doc_id and _same_spans(hit, item.spans_text):
                return hit
        return {}

    def _candidate(  # noqa: PLR0913, PLR0917  (all are known by now)
        self, item: Item, text: str, is_cut: bool, headings: tuple[str, ...], path: str | None, members: Sequence[Item]
    ) -> Candidate:
        document = self._documents.get(item.doc_id or "")
        key = text_key(text)
        return Candidate(
            key,
            text.encode("utf-8", "replace").decode(),
            is_cut,
            item.doc_id,
            path or (document[0] if document else None),
            (document[1] or None) if document else None,
            headings,
            item.chunk_id,
            item.chunker_version,
            tuple(_spans(item.spans_text)),
            max(member.n_runs for member in members),
            min((member.best_rank for member in members if member.best_rank is not None), default=None),
            any(member.is_labelled for member in members),
            tuple(dict.fromkeys(member.chunk_id for member in members if member.chunk_id is not None)),
            tuple(dict.fromkeys([key, *(member.text_hash for member in members if member.text_hash is not None)])),
        )


def items_of_hits(query_id: str, hits: Sequence[Mapping[str, Any]], first_no: int = 0) -> list[Item]:
    """Hits as items, each in a group of its own, where there is no pool."""
    return [
        Item(
            first_no + number,
            query_id,
            _text_of(hit, "chunk_id"),
            _text_of(hit, "chunker_version"),
            _text_of(hit, "doc_id"),
            _text_of(hit, "doc_path"),
            json.dumps(hit.get("source_spans") or []),
            0,
            None,
            None,
            None,
            first_no + number,
            is_labelled=False,
        )
        for number, hit in enumerate(hits)
    ]


def _hits_in(text: str | None) -> list[Mapping[str, Any]]:
    try:
        hits = json.loads(text or "{}").get("hits_top_k")
    except (ValueError, AttributeError):
        return []
    return [hit for hit in hits if isinstance(hit, dict)] if isinstance(hits, list) else []


def _hit_text(hit: Mapping[str, Any]) -> tuple[str, bool]:
    """The text of a hit, and whether it was cut when it was stored."""
    for name in ("text", "snippet"):
        text = hit.get(name)
        if isinstance(text, str) and text.strip():
            digest = hit.get(f"{name}_sha256")
            if isinstance(digest, str):
                return text, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() != digest.lower()
            return text, name == "snippet" or (text.endswith(("...", "…")) and len(text) in _CUT_LENGTHS)
    return "", True


def _text_of(hit: Mapping[str, Any], name: str) -> str | None:
    found = hit.get(name)
    return None if found is None or isinstance(found, bool | dict | list) or found == "" else str(found)


def _headings(value: Any) -> tuple[str, ...]:  # noqa: ANN401  (a list, text with " > ", or JSON of these)
    if isinstance(value, str) and value.lstrip().startswith(("[", '"')):
        try:
            value = json.loads(value)
        except ValueError:
            return ()
    parts = value.split(" > ") if isinstance(value, str) else value if isinstance(value, list) else ()
    return tuple(text for part in parts if isinstance(part, str) and (text := part.strip().strip("#").strip()))


def _spans(text: str | None) -> list[dict[str, Any]]:
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return [dict(span) for span in found if isinstance(span, dict)] if isinstance(found, list) else []


def _same_spans(hit: Mapping[str, Any], text: str | None) -> bool:
    own = hit.get("source_spans") or ([hit["citation"]] if isinstance(hit.get("citation"), dict) else [])
    return text is None or own == _spans(text)
