"""Rows from the records of other tools. Nothing is lost: a field that is not read stays in the row.

Most tools name neither queries nor passages. A query without an id is identified by a hash of its question, and a
passage without one by a hash of its text: the same question and the same passage have the same id in every file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbeval.metrics.row_scores import direction_of, score_names
from kbeval.systems import APART, ImportedRun
from kbeval.systems.json_lines import ImportFaultError, id_of, is_container, written
from kbeval.systems.tool_files import Record
from kbeval.util.hiding import without_secrets

# Fields that have a meaning in our rows.
_OURS = frozenset(
    (
        *("query_id", "query", "hits_top_k", "answer", "error", "elapsed_ms", "abstained", "abstention", "tokens"),
        *("usage", "cost", "cost_usd", "scores", "latency", "references", "folder_selection", "debug", "config"),
        *("groundedness", "correctness", APART),
    )
)
# The usual names of retrieved passages, for tools that do not define one.
RETRIEVED = (
    *(
        "retrieved_contexts",
        "retrieval_context",
        "retrieved_chunks",
        "retrieved_documents",
        "retrieved_docs",
        "retrieved",
    ),
    *("hits", "contexts", "context", "chunks", "documents", "passages", "sources"),
)
_NO_HITS = '"hits_top_k": []'
# Beyond it, nothing can be done with a number.
LARGEST = 1e300
_TEXT = ("text", "content", "page_content", "chunk", "passage", "snippet")
_CHUNK = ("chunk_id", "id", "_id", "node_id", "passage_id")
_DOCUMENT = ("doc_id", "document_id", "docid", "doc")


def digest(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def question_id(question: str) -> str:
    """The id of a query that has none."""
    return f"q-{digest(question)}"


def passage_id(text: str) -> str:
    """The id of a passage that has none."""
    return f"text-{digest(text)}"


def own_id(*places: Any) -> str | None:  # noqa: ANN401  (any JSON values)
    """The first id in these objects; None if there is none."""
    for place in places:
        for name in ("query_id", "id", "qid", "case_id"):
            found = id_of(place.get(name)) if isinstance(place, Mapping) else None
            if found is not None and not is_container(found):
                return found
    return None


def hits_in(value: Any, ids: Any = None) -> list[Record] | None:  # noqa: ANN401  (any JSON values)
    """Hits from texts, or from objects with texts or ids, best first; None if the value is anything else."""
    items = [value] if isinstance(value, str) and value else value
    names = ids if isinstance(ids, list) else []
    if not isinstance(items, list) or not all(isinstance(item, str | Mapping) for item in items):
        items = []
    if not items and not names:
        return [] if value == [] or ids == [] else None
    found = []
    for place in range(max(len(items), len(names))):
        hit = _hit(items[place]) if place < len(items) else {}
        name = id_of(names[place]) if place < len(names) else None
        found.append({"rank": place + 1, **hit, **({"chunk_id": name} if name is not None else {})})
    return found


def _hit(item: str | Mapping[str, Any]) -> Record:
    if isinstance(item, str):
        return {"chunk_id": passage_id(item), "text": item}
    hit: Record = {name: value for name, value in item.items() if name not in ("rank", "chunk_id", "doc_id")}
    of_item = item.get("metadata")
    more = of_item if isinstance(of_item, Mapping) else {}
    text = next((item[name] for name in _TEXT if isinstance(item.get(name), str) and item[name]), None)
    for ours, theirs in (("chunk_id", _CHUNK), ("doc_id", _DOCUMENT)):
        given = (id_of(place.get(name)) for place in (item, more) for name in theirs)
        if (name := next((one for one in given if one is not None and not is_container(one)), None)) is not None:
            hit[ours] = name
    if text is not None:
        hit.setdefault("text", text)
        hit.setdefault("chunk_id", passage_id(text))
    score = hit.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        hit[f"{APART}_score"] = hit.pop("score")
    return hit


def retrieved_in(*places: Any) -> tuple[str, list[Record]] | None:  # noqa: ANN401  (any JSON values)
    """The first list of hits under one of the usual names in these objects, and its name."""
    for place in places:
        for name in RETRIEVED if isinstance(place, Mapping) else ():
            found = hits_in(place.get(name)) if name in place else None
            if found:
                return name, found
    return None


def row_from(record: Mapping[str, Any], read: Iterable[str], ours: Mapping[str, Any]) -> Record:
    """A row: the parsed fields of a record in our form, and the others unchanged."""
    rest = {name: value for name, value in record.items() if name not in set(read)}
    apart = {name: rest.pop(name) for name in list(rest) if name in _OURS}
    found = {name: value for name, value in ours.items() if value is not None or name == "answer"}
    return {**found, **rest, **({APART: apart} if apart else {})}


def number(value: Any) -> float | None:  # noqa: ANN401  (any JSON value)
    """A number, or a truth value as 1 or 0; None for anything else."""
    return float(value) if isinstance(value, int | float) and abs(value) < LARGEST else None


@dataclass
class ToolRun:
    """One run of a tool's file while it is being read."""

    tool: str
    run_id: str
    suite: str
    created_at: str
    config: Record = field(default_factory=dict)
    rows: dict[str, Record] = field(default_factory=dict)
    # The scores of each query, under the tool's names.
    scores: dict[str, dict[str, float | None]] = field(default_factory=dict)
    golden: dict[str, Record] = field(default_factory=dict)
    # The direction in which scores improve, if the file states it.
    directions: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    # Hits that are JSON already, by query; the row has an empty list in their place.
    hit_texts: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        query_id: str,
        row: Record,
        scores: Mapping[str, float | None] | None = None,
        golden: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a row; if the query id already exists, a number is appended to it."""
        name, again = query_id, 2
        while name in self.rows:
            name, again = f"{query_id}-{again}", again + 1
        self.rows[name] = {**row, "query_id": name}
        if scores:
            self.scores[name] = dict(scores)
        if golden is not None:
            self._expect(query_id, name, {key: value for key, value in golden.items() if value not in (None, [], "")})
        return name

    def _expect(self, query_id: str, name: str, entry: Record) -> None:
        """Add a golden query. One that is asked again, with the same labels, is in a group with the first."""
        first = self.golden.get(query_id)
        self.golden[name] = entry = {**entry, "id": name}
        if first is not None and {**entry, "id": query_id} == {k: v for k, v in first.items() if k != "group"}:
            entry["group"] = first.setdefault("group", query_id)

    def drop(self, name: str) -> bool:
        """Leave a field of the records out: of the rows, and of the hits if each record is one. Was there any?"""
        is_there = False
        for row in self.rows.values():
            hits = row.get("hits_top_k") if self.tool == "table" else None
            for place in (row, row.get(APART), *(hits if isinstance(hits, list) else ())):
                is_there = (isinstance(place, dict) and place.pop(name, self) is not self) or is_there
        return is_there

    def finished(self, path: Path) -> ImportedRun:
        """The run as it is stored. Its scores have the names of metrics."""
        names = score_names(self.tool, (name for scores in self.scores.values() for name in scores))
        faults: list[str] = []
        rows = []
        for query_id, row in self.rows.items():
            scores = {names[name]: value for name, value in self.scores.get(query_id, {}).items()}
            try:
                text = written({"query_id": query_id, **row, **({"scores": scores} if scores else {})})
                if query_id in self.hit_texts:
                    # Not in any text: quotation marks in those are escaped.
                    text = text.replace(_NO_HITS, f'"hits_top_k": [{self.hit_texts[query_id]}]', 1)
                rows.append((query_id, text))
            except ValueError as error:
                faults.append(f"query {query_id!r}: {error}")
        if faults:
            raise ImportFaultError(path, faults, has_rows=bool(rows))
        if not rows:
            self.warnings.append(f"{path} contains no results")
        return ImportedRun(
            self.run_id,
            self.suite,
            self.tool,
            without_secrets(self.config),
            rows,
            self.created_at,
            self.warnings,
            {name: self.directions.get(given) or direction_of(name) for given, name in names.items()},
        )


Reader = Callable[[Path, str | None, str], Sequence[ToolRun]]


def safe_part(text: str) -> str:
    """A text from a file as part of a run id."""
    kept = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in text)
    return kept.strip("-.")[:80] or "unnamed"
