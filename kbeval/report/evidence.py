"""The evidence for every query: its labels, and for each run the ranking, the answer and the results of checks.

Queries are read one batch at a time, for all runs at once. The result is the data of the page: plain dictionaries and
lists, with numbers in place of texts that occur more than once (`Texts`), the same for the templates and the script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbeval.explore.inspect import Label
from kbeval.render.places import counts_as, span_text, spans_text
from kbeval.report.answers import Answers, Asked, View, support_text
from kbeval.report.expected_texts import FROM_HIT, NOT_STORED, Covering, text_at
from kbeval.report.facts import BatchFacts, Facts, Key
from kbeval.report.marks import common_lines, found_words, marked_ranges
from kbeval.report.stored_rows import (
    KnownChunks,
    first_text,
    headings_of,
    hit_text,
    hits_of,
    path_of,
    score_of,
    spans_of,
    stored_rows,
)
from kbeval.report.texts import Texts, link, name
from kbeval.scoring.scorer import StoredScoring
from kbeval.storage.runs import Run
from kbeval.storage.source import StoredSource

# How many queries are in memory at a time: as many as a page lists without JavaScript.
BATCH = 500
# How many hits of a ranking are shown; a hit that counts is shown at any rank.
MOST_HITS = 10
COUNTS, NEAR, OTHER = 2, 1, 0
# Times outside this range are not shown in whole milliseconds.
_SHORTEST_MS, _LONGEST_MS = 10, 1e9
_BY_SPAN = ("expected_chunk_ids", "expected_spans", "gold_supports")


class Evidence:
    """The queries of one or two runs. `texts` contains the texts that the views refer to by number."""

    def __init__(self, scoring: StoredScoring, runs: Sequence[Run], *, redact: bool = False) -> None:
        self.texts = Texts(redact=redact)
        self._runs = runs
        self._source = scoring.source
        self._golden = {str(entry["id"]): entry for entry in scoring.golden.entries}
        self._facts = Facts(scoring)
        self._answers = Answers(self._facts, self.texts)

    def batches(self, queries: Sequence[tuple[str, View]]) -> Iterator[list[View]]:
        """The queries in this order, as data of the page. Each id comes with additional fields for its view."""
        for first in range(0, len(queries), BATCH):
            chosen = queries[first : first + BATCH]
            batch = _Batch(self._source, self._runs, self._golden, self._facts, [query_id for query_id, _ in chosen])
            yield [{**self._query(batch, query_id), **more} for query_id, more in chosen]

    def _query(self, batch: _Batch, query_id: str) -> View:
        entry = self._golden.get(query_id, {})
        rows = [batch.rows[run.run_id].pop(query_id, {}) for run in self._runs]
        question = first_text(
            entry.get("query"), *(row.get("query") for row in rows), *(r.get("question") for r in rows)
        )
        expected = list(self._expected(batch, query_id, entry, rows))
        sides = [self._side(batch, Asked(run, query_id, row, entry)) for run, row in zip(self._runs, rows, strict=True)]
        self._answers.compare(sides)
        facts = [[what, name(str(entry[what]))] for what in ("difficulty", "lang", "group") if what in entry]
        if not entry:
            facts.append(["labels", "not in the golden file: it counts only in totals"])
        return {
            "id": name(query_id),
            "link": link(query_id),
            "query": self.texts.words(question or ""),
            "category": name(str(entry["category"])) if "category" in entry else None,
            "tags": [name(tag) for tag in entry.get("tags") or ()],
            "facts": facts,
            "expected": expected,
            "sides": sides,
        }

    # --- labels --------------------------------------------------------------------------------------

    def _expected(
        self, batch: _Batch, query_id: str, entry: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
    ) -> Iterator[list[Any]]:
        """What the labels expect: a description, its text if known, and a note about the origin of the text."""
        grades = entry.get("relevance") or {}
        for chunk_id in entry.get("expected_chunk_ids") or ():
            text = batch.chunks.text(chunk_id)
            what = f"chunk {name(chunk_id)}{f', grade {_whole(grades[chunk_id])}' if chunk_id in grades else ''}"
            yield self._with_text(what, text, None) if text else self._at_place(batch, query_id, chunk_id, what, rows)
        for number, span in enumerate(entry.get("expected_spans") or (), start=1):
            where = span_text(
                {field: _whole(value) for field, value in span.items() if field not in ("doc_id", "path")}
            )
            what = f"place {name(str(span.get('doc_id') or span.get('path')))} {self.texts.place(where)}"
            yield self._at_place(batch, query_id, f"span {number}", what, rows)
        for support in entry.get("gold_supports") or ():
            words = " … ".join(support.get("snippets") or ())
            note = None if words else "any passage below these headings"
            yield self._with_text(f"support {support_text(support, self.texts)}", words or None, note)
        if not any(entry.get(what) for what in _BY_SPAN):
            for doc_id in entry.get("expected_doc_ids") or ():
                yield [f"document {name(doc_id)}", None, None]
        for fact in entry.get("expected_key_facts") or ():
            yield self._with_text("fact", fact, None)
        if claims := entry.get("gold_claim_substr"):
            yield self._with_text("the claim contains one of", "\n".join(map(str, claims)), None)
        if entry.get("answerable") is False or (entry.get("expected_doc_ids") == [] and "answerable" not in entry):
            yield ["nothing: the right answer is a refusal", None, None]

    def _with_text(self, what: str, text: str | None, note: str | None) -> list[Any]:
        return [what, None if text is None else self.texts.marked(text, ())[0], note]

    def _at_place(
        self, batch: _Batch, query_id: str, label: str, what: str, rows: Sequence[Mapping[str, Any]]
    ) -> list[Any]:
        """A label whose text cannot be found by chunk id: the text at its place."""
        found = text_at(batch.facts.places.get((query_id, label), []), batch.covering(query_id, label, rows))
        if found is None:
            return self._with_text(what, None, NOT_STORED if label.startswith("span ") else "its text is not stored")
        return self._with_text(what, *found)

    # --- one run -------------------------------------------------------------------------------------

    def _side(self, batch: _Batch, asked: Asked) -> View:
        key, row = asked.key, asked.row
        result = batch.facts.results.get(key)
        if result is None:
            return {"asked": False, "error": None, "ms": None, "took": None, "hits": [], "more": 0, "answer": None}
        stored = hits_of(row)
        scored = batch.facts.hits.get(key, [])
        chosen = [hit for place, hit in enumerate(scored) if place < MOST_HITS or batch.counts(key, hit[1])]
        kept = [self._hit(batch, asked, hit, stored) for hit in chosen]
        ranked = [(rank, stored[position - 1]) for rank, position, *_ in scored if position <= len(stored)]
        ms = result.ms
        return {
            "asked": True,
            "error": self.texts.words(str(result.error), 2_000) if result.failed else None,
            "ms": ms,
            "took": None if ms is None else _took(ms),
            "hits": kept,
            "more": len(scored) - len(kept),
            "answer": self._answers.view(asked, ranked, batch.facts),
        }

    def _hit(self, batch: _Batch, asked: Asked, scored: Sequence[Any], stored: Sequence[Mapping[str, Any]]) -> View:
        key, entry = asked.key, asked.entry
        rank, position, chunk_id, doc_id, score, places = scored
        hit = stored[position - 1] if position <= len(stored) else {}
        known, known_spans = batch.chunks.of_hit(hit, asked.run)
        text, source = hit_text(hit, known)
        labels = batch.facts.labels.get((*key, position), [])
        shared = batch.facts.shared.get((*key, position), [])
        by_document = batch.facts.matching.get(key) == "doc"
        ranges = marked_ranges(text or "", shared)
        if not ranges and text is not None:
            expected = [batch.chunks.text(label.label) for label in labels if label.kind == "chunk"]
            ranges = common_lines(text, [one for one in expected if one is not None and one != text])
        if not ranges:
            # As in the golden file: supports are numbered from 0.
            supports = [int(label.label.split()[-1]) for label in labels if label.kind == "support" and label.counts]
            ranges = found_words(
                text or "", [word for one in supports for word in entry["gold_supports"][one].get("snippets") or ()]
            )
        number, marks = (None, []) if text is None else self.texts.marked(text, ranges)
        spans = next(
            filter(None, map(spans_of, (places, hit.get("source_spans"), known_spans, hit.get("citation")))), []
        )
        headings = headings_of(hit)
        return {
            "rank": rank,
            "counts": COUNTS if batch.counts(key, position) else NEAR if labels else OTHER,
            "chunk": None if chunk_id is None else name(chunk_id),
            "doc": name(path_of(hit) or doc_id or "") or None,
            "headings": None if headings is None else self.texts.line(headings, 200),
            "score": score_of(score, hit),
            "where": self.texts.place(spans_text(spans) or "") or None,
            "text": number,
            "marks": marks,
            "source": source or None,
            "labels": [self._said(label, entry, by_document=by_document) for label in labels],
        }

    def _said(self, label: Label, entry: Mapping[str, Any], *, by_document: bool) -> str:
        """What a label means for a hit."""
        if label.kind == "document" and not by_document:
            return name(f"in the expected document {label.label}", 400)
        if self.texts.redact:
            # Without headings, which count as texts.
            supports = entry.get("gold_supports") or ()
            entry = {"gold_supports": [{"rel_path": support_text(one, self.texts)} for one in supports]}
        said = counts_as(label, entry)
        return name(f"counts as {said}" if label.counts else f"shares too little with {said.removeprefix('not ')}", 400)


class _Batch:
    """The data of some queries: their rows, the facts about them, and the chunks that they refer to."""

    def __init__(
        self,
        source: StoredSource,
        runs: Sequence[Run],
        golden: Mapping[str, Mapping[str, Any]],
        facts: Facts,
        query_ids: Sequence[str],
    ) -> None:
        self._runs = runs
        self.facts: BatchFacts = facts.about(query_ids)
        self.rows = {run.run_id: dict(stored_rows(source, run, query_ids)) for run in runs}
        expected = {
            str(chunk_id)
            for query_id in query_ids
            for chunk_id in golden.get(query_id, {}).get("expected_chunk_ids") or ()
        }
        near = {one.chunk_id for found in self.facts.near.values() for one in found}
        self.chunks = KnownChunks(
            source, expected | near, (row for of_run in self.rows.values() for row in of_run.values())
        )
        # Texts of expected chunks that are not in the table, but may be in hits of other queries.
        unknown = sorted(chunk_id for chunk_id in expected if not self.chunks.has_text(chunk_id))
        wanted: dict[str, set[str]] = {}
        for _, run_id, query_id in facts.rows_with(unknown) if unknown else ():
            wanted.setdefault(run_id, set()).add(query_id)
        for run in runs:
            for _, row in stored_rows(source, run, sorted(wanted.get(run.run_id, ()))):
                self.chunks.see(row)

    def counts(self, key: Key, position: int) -> bool:
        """Does the hit count, by the kind of matching of its query?"""
        by_document = self.facts.matching.get(key) == "doc"
        labels = self.facts.labels.get((*key, position), [])
        return any(label.counts and (label.kind != "document" or by_document) for label in labels)

    def covering(self, query_id: str, label: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Covering]:
        """The texts that overlap the place of a label: chunks of the table, and hits of the query."""
        for one in self.facts.near.get((query_id, label), ()):
            text = self.chunks.text_of(one.chunk_id, one.version)
            if text is not None:
                yield Covering(one.axis, one.low, one.high, text, f"chunk {name(one.chunk_id)}")
        by_run = {run.run_id: (run, hits_of(row)) for run, row in zip(self._runs, rows, strict=True)}
        for run_id, position, shared in self.facts.sharing.get((query_id, label), ()):
            run, stored = by_run[run_id]
            hit = stored[position - 1] if position <= len(stored) else {}
            text, _ = hit_text(hit, self.chunks.of_hit(hit, run)[0])
            if text is not None:
                yield Covering(shared.axis, shared.low, shared.high, text, FROM_HIT)


def _took(ms: float) -> str:
    return f"{ms:,.0f} ms" if _SHORTEST_MS <= abs(ms) < _LONGEST_MS else f"{ms:.2g} ms"


def _whole(value: object) -> object:
    """A whole number without decimals: 46, not 46.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
