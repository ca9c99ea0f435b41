"""What became of every query: its labels, and for each run the ranking, the answer and what was found about it.

Everything is read for all queries at once. The result is what the page holds as data: plain dictionaries and lists,
with numbers in place of texts that occur more than once (`Texts`), the same for the templates and for the script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbeval.explore.inspect import Label
from kbeval.render.places import counts_as, label_text, spans_text
from kbeval.report.differences import SAME, word_differences
from kbeval.report.marks import Shared, common_lines, found_words, marked_ranges
from kbeval.report.stored_rows import (
    KnownChunks,
    answer_of,
    citations_of,
    cited_rank,
    first_text,
    headings_of,
    hit_text,
    hits_of,
    path_of,
    spans_of,
    stored_rows,
)
from kbeval.report.texts import Texts, link, name
from kbeval.scoring.scorer import StoredScoring
from kbeval.storage.runs import Run
from kbeval.util.text import json_text

# How many hits of a ranking are shown; one that counts is shown wherever it is.
MOST_HITS = 10
COUNTS, NEAR, OTHER = 2, 1, 0
_MOST_CLAIMS = 50
_LONGEST_MS = 1e9

View = dict[str, Any]
_Key = tuple[str, str]


class Evidence:
    """The queries of one or two runs. `texts` holds what the views refer to by number."""

    def __init__(self, scoring: StoredScoring, runs: Sequence[Run], *, redact: bool = False) -> None:
        self.texts = Texts(redact=redact)
        self._runs = runs
        self._golden = {str(entry["id"]): entry for entry in scoring.golden.entries}
        self._facts = _Facts(scoring)
        rows = {run.run_id: dict(stored_rows(scoring.source, run)) for run in runs}
        self._rows = rows
        expected = [chunk_id for entry in self._golden.values() for chunk_id in entry.get("expected_chunk_ids") or ()]
        self._chunks = KnownChunks(
            scoring.source, expected, (row for of_run in rows.values() for row in of_run.values())
        )

    def query(self, query_id: str) -> View:
        """One query, as the page holds it; each can be asked for once."""
        entry = self._golden.get(query_id, {})
        rows = [self._rows[run.run_id].pop(query_id, {}) for run in self._runs]
        question = first_text(
            entry.get("query"), *(row.get("query") for row in rows), *(r.get("question") for r in rows)
        )
        sides = [self._side(run, query_id, row, entry) for run, row in zip(self._runs, rows, strict=True)]
        self._compare_answers(sides)
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
            "expected": list(self._expected(entry)),
            "sides": sides,
        }

    # --- labels --------------------------------------------------------------------------------------

    def _expected(self, entry: Mapping[str, Any]) -> Iterator[list[Any]]:
        """What the labels ask for: what it is, and its text where it is known."""
        for chunk_id in entry.get("expected_chunk_ids") or ():
            text = self._chunks.text(chunk_id)
            yield [f"chunk {name(chunk_id)}", None if text is None else self.texts.marked(text, ())[0]]
        for span in entry.get("expected_spans") or ():
            yield [f"place {name(label_text(span))}", None]
        for support in entry.get("gold_supports") or ():
            words = " … ".join(support.get("snippets") or ())
            yield [f"support {name(label_text(support))}", self.texts.marked(words, ())[0] if words else None]
        if not any(entry.get(what) for what in ("expected_chunk_ids", "expected_spans", "gold_supports")):
            for doc_id in entry.get("expected_doc_ids") or ():
                yield [f"document {name(doc_id)}", None]
        for fact in entry.get("expected_key_facts") or ():
            yield ["fact", self.texts.marked(fact, ())[0]]
        if entry.get("answerable") is False or entry.get("expected_doc_ids") == []:
            yield ["nothing: the right answer is a refusal", None]

    # --- one run -------------------------------------------------------------------------------------

    def _side(self, run: Run, query_id: str, row: Mapping[str, Any], entry: Mapping[str, Any]) -> View:
        facts = self._facts
        key = (run.run_id, query_id)
        result = facts.results.get(key)
        if result is None:
            return {"asked": False, "error": None, "ms": None, "took": None, "hits": [], "more": 0, "answer": None}
        failed, error, ms, refused = result
        stored = hits_of(row)
        scored = facts.hits.get(key, [])
        chosen = [hit for place, hit in enumerate(scored) if place < MOST_HITS or self._counts(key, hit[1])]
        kept = [self._hit(run, key, hit, stored, entry) for hit in chosen]
        ranked = [(rank, stored[position - 1]) for rank, position, *_ in scored if position <= len(stored)]
        return {
            "asked": True,
            "error": self.texts.words(str(error), 2_000) if failed else None,
            "ms": ms,
            "took": None if ms is None else f"{ms:,.0f} ms" if abs(ms) < _LONGEST_MS else f"{ms:.3g} ms",
            "hits": kept,
            "more": len(scored) - len(kept),
            "answer": self._answer(key, row, ranked, refused=bool(refused)),
        }

    def _counts(self, key: _Key, position: int) -> bool:
        """Does a label count the hit, by what decides about its query?"""
        by_document = self._facts.matching.get(key) == "doc"
        labels = self._facts.labels.get((*key, position), ())
        return any(label.counts and (label.kind != "document" or by_document) for label in labels)

    def _hit(
        self,
        run: Run,
        key: _Key,
        scored: Sequence[Any],
        stored: Sequence[Mapping[str, Any]],
        entry: Mapping[str, Any],
    ) -> View:
        rank, position, chunk_id, doc_id, score, places = scored
        hit = stored[position - 1] if position <= len(stored) else {}
        known, known_spans = self._chunks.of_hit(hit, run)
        text, source = hit_text(hit, known)
        labels = self._facts.labels.get((*key, position), [])
        shared = self._facts.shared.get((*key, position), [])
        by_document = self._facts.matching.get(key) == "doc"
        is_counted = self._counts(key, position)
        ranges = marked_ranges(text or "", shared)
        if not ranges and text is not None:
            expected = [self._chunks.text(label.label) for label in labels if label.kind == "chunk"]
            ranges = common_lines(text, [one for one in expected if one is not None and one != text])
        if not ranges:
            # As in the golden file: supports are numbered from 0.
            supports = [int(label.label.split()[-1]) for label in labels if label.kind == "support" and label.counts]
            ranges = found_words(
                text or "", [word for one in supports for word in entry["gold_supports"][one]["snippets"]]
            )
        number, marks = (None, []) if text is None else self.texts.marked(text, ranges)
        spans = next(
            filter(None, map(spans_of, (places, hit.get("source_spans"), known_spans, hit.get("citation")))), []
        )
        headings = headings_of(hit)
        return {
            "rank": rank,
            "counts": COUNTS if is_counted else NEAR if labels else OTHER,
            "chunk": None if chunk_id is None else name(chunk_id),
            "doc": name(path_of(hit) or doc_id or "") or None,
            "headings": None if headings is None else self.texts.line(headings, 200),
            "score": None if score is None else f"{score:.4g}",
            "where": name(spans_text(spans) or "") or None,
            "text": number,
            "marks": marks,
            "source": source or None,
            "labels": [name(_said(label, entry, by_document=by_document), 400) for label in labels],
        }

    def _answer(
        self, key: _Key, row: Mapping[str, Any], hits: Sequence[tuple[int, Mapping[str, Any]]], *, refused: bool
    ) -> View | None:
        facts = self._facts
        answer = answer_of(row)
        if answer is None:
            return None
        said = answer.get("answer")
        text = said if isinstance(said, str) else "" if said is None else json_text(said)
        real = facts.citations.get(key, {})
        return {
            "pieces": [[SAME, self.texts.words(text)]] if text else [],
            "refused": refused,
            "citations": [
                [self._citation(one), real.get(number), cited_rank(one, hits)]
                for number, one in enumerate(citations_of(answer), start=1)
            ],
            "rules": [
                ["must contain" if must else "must not contain", self.texts.line(needle), kept]
                for must, needle, kept in facts.rules.get(key, [])
            ],
            "judged": [
                {
                    "rubric": name(rubric),
                    "model": name(model),
                    "score": None if score is None else f"{score:g}",
                    "why": None if why is None else self.texts.words(why, 2_000),
                    "reasoning": None if reasoning is None else self.texts.words(reasoning),
                    "claims": [
                        [supported, self.texts.words(claim, 1_000)]
                        for supported, claim in facts.claims.get((*key, rubric), [])[:_MOST_CLAIMS]
                    ],
                }
                for rubric, model, score, why, reasoning in facts.judgements.get(key, [])
            ],
        }

    @staticmethod
    def _citation(citation: object) -> str:
        """What is cited, in short."""
        if not isinstance(citation, dict):
            return name(str(citation))
        inner = citation.get("citation")
        place = inner if isinstance(inner, dict) else {}
        chunk_id = first_text(citation.get("chunk_id"), place.get("chunk_id"))
        path = first_text(place.get("path"))
        where = spans_text([place]) if place.get("kind") and path else None
        parts = [first_text(citation.get("marker")), chunk_id and f"chunk {chunk_id}", path, where]
        return name(" ".join(filter(None, parts)) or json_text(citation))

    def _compare_answers(self, sides: Sequence[View]) -> None:
        """Replace two answers by their pieces, where they differ."""
        answers = [side["answer"] for side in sides if side["answer"] is not None]
        if len(answers) != 2 or self.texts.redact:
            return
        a, b = ("".join(piece for _, piece in answer["pieces"]) for answer in answers)
        if a == b:
            return
        found = word_differences(a, b)
        for answer, pieces in zip(answers, found or (), strict=False):
            answer["pieces"] = [list(piece) for piece in pieces]
        if found is None:
            for answer in answers:
                answer["too_long"] = True


def _said(label: Label, entry: Mapping[str, Any], *, by_document: bool) -> str:
    """What a label says about a hit."""
    if label.kind == "document" and not by_document:
        return f"in the expected document {label.label}"
    said = counts_as(label, entry)
    return f"counts as {said}" if label.counts else f"shares too little with {said.removeprefix('not ')}"


class _Facts:
    """What the relations of the session say, by run and query."""

    def __init__(self, scoring: StoredScoring) -> None:
        session = scoring.session
        session.need("results", "hit_docs", "hit_places", "hit_labels", "matching", "citation_checks", "rule_checks")
        self._session = session
        self.results: dict[_Key, tuple[Any, ...]] = {
            (run_id, query_id): tuple(rest)
            for run_id, query_id, *rest in session.rows(
                "SELECT run_id, query_id, failed, error, elapsed_ms, refused FROM results"
            )
        }
        self.hits: dict[_Key, list[tuple[Any, ...]]] = {}
        for run_id, query_id, *hit in session.rows(
            "SELECT r.run_id, r.query_id, h.rank, h.position, h.chunk_id, h.doc_id, h.score, p.spans_text"
            " FROM hit_docs AS h JOIN results AS r ON r.result_no = h.result_no"
            " LEFT JOIN hit_places AS p ON p.result_no = h.result_no AND p.position = h.position"
            " WHERE h.rank IS NOT NULL ORDER BY r.run_id, r.query_id, h.rank, h.position"
        ):
            self.hits.setdefault((run_id, query_id), []).append(tuple(hit))
        self.labels: dict[tuple[str, str, int], list[Label]] = {}
        for run_id, query_id, position, *label in session.rows(
            "SELECT run_id, query_id, position, kind, label, counts, shared, hit_size, label_size FROM hit_labels"
            " ORDER BY run_id, query_id, position, counts DESC, kind, label"
        ):
            self.labels.setdefault((run_id, query_id, position), []).append(Label(*label))
        self.matching: dict[_Key, str] = {
            (run_id, query_id): way
            for run_id, query_id, way in session.rows(
                "SELECT r.run_id, r.query_id, m.matching FROM matching AS m"
                " JOIN results AS r ON r.result_no = m.result_no"
            )
        }
        self.citations: dict[_Key, dict[int, bool]] = {}
        for run_id, query_id, number, is_real in session.rows(
            "SELECT r.run_id, r.query_id, c.citation_no, c.is_real FROM citation_checks AS c"
            " JOIN results AS r ON r.result_no = c.result_no"
        ):
            self.citations.setdefault((run_id, query_id), {})[number] = is_real
        self.rules: dict[_Key, list[tuple[bool, str, bool]]] = {}
        for run_id, query_id, *rule in session.rows(
            "SELECT r.run_id, r.query_id, c.must_contain, c.needle, c.is_kept FROM rule_checks AS c"
            " JOIN results AS r ON r.result_no = c.result_no WHERE NOT r.failed"
            " ORDER BY r.run_id, r.query_id, c.must_contain DESC, c.needle"
        ):
            self.rules.setdefault((run_id, query_id), []).append((rule[0], rule[1], rule[2]))
        self.shared = dict(self._shared()) if "span_pieces" in session.built else {}
        self.judgements: dict[_Key, list[tuple[Any, ...]]] = {}
        self.claims: dict[tuple[str, str, str], list[tuple[bool, str]]] = {}
        if scoring.rubrics:
            self._read_judgements()

    def _shared(self) -> Iterator[tuple[tuple[str, str, int], list[Shared]]]:
        """The text that hits have in common with what is expected, where the place of both is known."""
        found: dict[tuple[str, str, int], list[Shared]] = {}
        for run_id, query_id, position, axis, *ends in self._session.rows(
            """
            WITH single AS (
                SELECT major, minor, axis, MIN(low) AS low, MIN(high) AS high
                FROM span_pieces WHERE owner = 'hit' AND axis IN ('line', 'char', 'byte')
                GROUP BY major, minor, axis HAVING COUNT(*) = 1
            )
            SELECT
                r.run_id, r.query_id, l.position, a.axis,
                a.low, a.high, GREATEST(a.low, b.low) AS from_here, LEAST(a.high, b.high) AS to_here
            FROM hit_labels AS l
            JOIN results AS r ON r.result_no = l.result_no
            JOIN single AS a
                ON a.major = CAST(l.result_no AS VARCHAR) AND a.minor = CAST(l.position AS VARCHAR)
            JOIN span_pieces AS b
                ON b.owner = 'place' AND b.major = r.query_id AND b.minor = l.label AND b.axis = a.axis
            WHERE a.low < b.high AND b.low < a.high AND l.kind IN ('chunk', 'span')
            ORDER BY ALL
            """
        ):
            if all(abs(end) < 1e12 for end in ends):
                found.setdefault((run_id, query_id, position), []).append(Shared(axis, *map(int, ends)))
        yield from found.items()

    def _read_judgements(self) -> None:
        self._session.need("judgements", "judged_claims")
        for run_id, query_id, *said in self._session.rows(
            "SELECT run_id, query_id, rubric, model, score, why, reasoning FROM judgements"
            " ORDER BY run_id, query_id, rubric"
        ):
            self.judgements.setdefault((run_id, query_id), []).append(tuple(said))
        for run_id, query_id, rubric, supported, claim in self._session.rows(
            "SELECT run_id, query_id, rubric, is_supported, claim FROM judged_claims WHERE claim IS NOT NULL"
            " ORDER BY run_id, query_id, rubric, is_supported, place"
        ):
            self.claims.setdefault((run_id, query_id, rubric), []).append((supported, claim))
