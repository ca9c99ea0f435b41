"""What a decision changes in an entry of the golden file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbeval.golden.editing import REMOVED
from kbeval.golden.spans import KINDS
from kbeval.live.labelling.places import proposed_snippet
from kbeval.storage.labels import ANSWERABLE, MUST_CONTAIN, NO, QUERY, SUPPORTS, YES, Decision

SPANS, CHUNKS, SUPPORT = FORMS = ("spans", "chunks", "supports")
_FIELDS = {SPANS: "expected_spans", CHUNKS: "expected_chunk_ids", SUPPORT: "gold_supports"}


class ConflictError(ValueError):
    """The file has changed since the decision was made."""


@dataclass(frozen=True)
class Same:
    """Texts related to a decision: chunks with the same text, and other texts to distinguish it from."""

    chunk_ids: Sequence[str] = ()
    text: str = ""
    others: Sequence[str] = ()


def form_of(entry: Mapping[str, Any], usual: str) -> str:
    """The form in which an entry is labelled: the one it already uses, otherwise the usual one."""
    for form in (SUPPORT, CHUNKS, SPANS):
        if entry.get(_FIELDS[form]):
            return form
    return usual


def usual_form(entries: Sequence[Mapping[str, Any]]) -> str:
    """The form in which most entries of a file are labelled; spans if none is labelled."""
    counts = {form: sum(bool(entry.get(name)) for entry in entries) for form, name in _FIELDS.items()}
    return max(FORMS, key=lambda form: counts[form]) if any(counts.values()) else SPANS


def usual_names(entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """How spans name their document, by `doc_id` or `path`: as in the entry, otherwise as in most of the file."""
    own = [_names(span) for span in entry.get("expected_spans") or ()]
    if own:
        return own[-1]
    found = Counter(_names(span) for one in entries for span in one.get("expected_spans") or ())
    return max(found, key=lambda names: (found[names], names)) if found else ("doc_id",)


def _names(span: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in ("doc_id", "path") if span.get(name))


def changes_of(
    decision: Decision, entry: Mapping[str, Any], form: str, same: Same, names: Sequence[str] = ("doc_id",)
) -> dict[str, Any]:
    """The fields of an entry that a decision changes, with their new values; empty if nothing changes.

    `entry` has normalized fields. `names`: how its spans name their document. Raises ConflictError if a value is
    neither the old nor the new one.
    """
    if decision.field == SUPPORTS:
        if decision.value == YES:
            return _supporting(decision, entry, form, same, names)
        return _not_supporting(decision, entry, same) if decision.value == NO else {}
    if decision.field == MUST_CONTAIN:
        own = list(entry.get("must_contain") or ())
        if decision.value and decision.item not in own:
            return {"must_contain": [*own, decision.item]}
        left = [text for text in own if text != decision.item]
        return {} if decision.value or left == own else {"must_contain": left or REMOVED}
    if decision.field in (ANSWERABLE, QUERY):
        return _replaced(decision, entry)
    return {}


def _replaced(decision: Decision, entry: Mapping[str, Any]) -> dict[str, Any]:
    own, former, new = entry.get(decision.field), decision.value["from"], decision.value["to"]
    if own == new:
        return {}
    if own != former:
        msg = f"{decision.field} is now {own!r} in the file"
        raise ConflictError(msg)
    return {decision.field: REMOVED if new is None else new}


def _supporting(
    decision: Decision, entry: Mapping[str, Any], form: str, same: Same, names: Sequence[str]
) -> dict[str, Any]:
    about = decision.about
    changes: dict[str, Any] = {}
    spans = label_spans(decision)
    if form == SPANS and not spans:
        # Its place is not known.
        form = CHUNKS if about.chunk_id else SUPPORT
    if form == SUPPORT and not (about.path or about.doc_id):
        form = CHUNKS
    if form == CHUNKS and not about.chunk_id:
        form = SPANS if spans else SUPPORT
    if form == SPANS:
        own = list(entry.get("expected_spans") or ())
        if not contains_label(decision, entry):
            own += [_named(span, names) for span in spans if not any(_covers(known, span) for known in own)]
        changes["expected_spans"] = own
    elif form == CHUNKS:
        own = list(entry.get("expected_chunk_ids") or ())
        known = set(own) & {about.chunk_id, *same.chunk_ids}
        changes["expected_chunk_ids"] = own if known else [*own, about.chunk_id]
    else:
        changes |= _with_support(decision, entry, same)
    documents = entry.get("expected_doc_ids")
    if documents is not None and about.doc_id and about.doc_id not in documents:
        changes["expected_doc_ids"] = [*documents, about.doc_id]
    return {name: value for name, value in changes.items() if value != (entry.get(name) or [])}


def contains_label(decision: Decision, entry: Mapping[str, Any]) -> bool:
    """Is there a span label within a text that was confirmed as a whole? That label is the more precise one."""
    if decision.about.passage is not None:
        return False
    places = label_spans(decision)
    return any(_covers(place, span) for span in entry.get("expected_spans") or () for place in places)


def _with_support(decision: Decision, entry: Mapping[str, Any], same: Same) -> dict[str, Any]:
    about = decision.about
    own = list(entry.get("gold_supports") or ())
    headings = json.loads(about.headings_json or "[]")
    path = about.path or about.doc_id
    written_as_text = any(isinstance(support.get("heading_path"), str) for support in own)
    heading: Any = " > ".join(headings) if written_as_text else headings
    snippet = proposed_snippet(about.passage or same.text, same.others)
    for number, support in enumerate(own):
        if support.get("rel_path") == path and _plain(support.get("heading_path")) == _plain(headings):
            if snippet in support.get("snippets", ()):
                return {}
            more = {**support, "snippets": [*support.get("snippets", ()), snippet]}
            return {"gold_supports": [*own[:number], more, *own[number + 1 :]]}
    return {"gold_supports": [*own, {"rel_path": path, "heading_path": heading, "snippets": [snippet]}]}


def _plain(headings: Any) -> list[str]:  # noqa: ANN401  (a list or text)
    parts = headings.split(" > ") if isinstance(headings, str) else headings or ()
    return [text for part in parts if (text := " ".join(str(part).strip("# ").split()))]


def _not_supporting(decision: Decision, entry: Mapping[str, Any], same: Same) -> dict[str, Any]:
    """Remove the labels that name this text."""
    about = decision.about
    changes: dict[str, Any] = {}
    ids = {about.chunk_id, *same.chunk_ids}
    own = list(entry.get("expected_chunk_ids") or ())
    left = [chunk for chunk in own if chunk not in ids]
    if left != own:
        changes["expected_chunk_ids"] = left or REMOVED
    spans = list(entry.get("expected_spans") or ())
    places = label_spans(decision)
    kept = [span for span in spans if not any(_covers(place, span) for place in places)]
    if kept != spans:
        changes["expected_spans"] = kept or REMOVED
    supports = list(entry.get("gold_supports") or ())
    # Support groups refer to supports by number, so supports of entries with groups are left to be edited by hand.
    if supports and same.text and not entry.get("required_support_groups"):
        remaining = [support for support in supports if not _is_support(support, about.path, same.text)]
        if remaining != supports:
            changes["gold_supports"] = remaining or REMOVED
    return changes


def _is_support(support: Mapping[str, Any], path: str | None, text: str) -> bool:
    snippets = support.get("snippets") or ()
    return support.get("rel_path") == path and any(snippet.lower() in text.lower() for snippet in snippets)


def label_spans(decision: Decision) -> list[dict[str, Any]]:
    """The spans of a decision, with all names of the document and only the numbers of their kind."""
    about = decision.about
    where = {name: value for name, value in (("doc_id", about.doc_id), ("path", about.path)) if value}
    if not where:
        return []
    found = []
    for span in json.loads(about.spans_json or "[]"):
        kind = KINDS.get(str(span.get("kind")))
        if kind is not None and kind.names and all(span.get(name) is not None for name in kind.needs):
            numbers = {name: _whole(span[name]) for name in kind.names if span.get(name) is not None}
            found.append({**where, "kind": span["kind"], **numbers})
    return found


def _named(span: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A span as a label, naming its document as other labels do."""
    kept = [name for name in names if name in span] or ["doc_id" if "doc_id" in span else "path"]
    return {name: value for name, value in span.items() if name in kept or name not in ("doc_id", "path")}


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number


def _covers(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    """Is a span entirely inside another one of the same document and kind?"""
    names = [name for name in ("doc_id", "path") if outer.get(name) and inner.get(name)]
    if not names or any(outer[name] != inner[name] for name in names) or outer["kind"] != inner["kind"]:
        return False
    kind = KINDS[str(outer["kind"])]
    if kind.ends is None or outer.get("page") != inner.get("page"):
        return {**outer} == {**inner}
    low, high = kind.ends
    if outer.get(low) is None:
        return True
    return inner.get(low) is not None and bool(outer[low] <= inner[low] and inner[high] <= outer[high])
