"""What makes a hit correct, again: in slow plain Python, from the definitions alone, with exact fractions.

An `Oracle` is given a whole small database (`World`) and the options. For each run it determines the chunker version
and policy, whether it is matched by id or by span, what decides for each query, which hits are correct, and the
resulting numbers; for two runs, the result of a comparison.

If the definitions leave a choice, these choices are made:

 1. A run whose hits name several chunker versions has no known version; the tables are not consulted then.
 2. '' is not a policy that a run can have: chunks that are known only under '' are no evidence about it, and neither
    are those that are known under '' and another one.
 3. The tables are the table `chunks` and the kept rows that were seen in it. Kept rows that were only seen in hits
    count like the hits of stored runs: they are *sightings*. They give the position and the version of an expected
    chunk that the tables do not know, and never the position of a hit. So keeping what was seen does not change any
    number.
 4. A kept row with the key (chunk, version, policy) of a row of the table is in the table now, and the table's row was
    first seen when the kept one was; unless both have a position and these differ: then the id was reused (*reused*),
    and the kept row is a chunk of an earlier index. The table's own content comes first; what it lacks (usable spans, a
    size) is taken from the kept row, except for spans that were only seen in hits. A row of the table that was not kept
    is seen now: after everything that was kept. Rows first seen at the same time are ordered by version, then by
    policy.
 5. If several rows match a hit, one is chosen, preferably one with usable spans; position, document and size are those
    of its key. A known policy that none of these rows has does not exclude any of them.
 6. The position of an expected chunk is that of its first seen row in the tables; if that has no usable spans, that of
    the first sighting that has: sightings that name a document before the others, those with usable `source_spans`
    before those with a usable citation, then by version (the hit's, otherwise the configured one; unknown ones first)
    and by the spans as text. A run's own hits are sightings, too. If the first seen row names a document, sightings in
    another document are ignored. A position in an unknown document is not a place.
    An expected chunk that the tables do not know is own if a sighting has the run's version, and foreign if all
    sightings with a version have others. The label's place, for own and foreign, is the first seen row of the tables.
    Which index a run belongs to, if it names reused ids: hits on such ids with usable `source_spans` decide, by
    majority, and in a tie it is the current one. Without such hits, a run that names a chunk that no longer exists
    belongs to an earlier index; otherwise it is *unclear*. Expected ids that are reused are then neither own nor
    foreign, and if they are the majority, nothing can be matched. A run of an earlier index that names reused ids owns
    the chunks of the table that have not moved. Any other run belongs to an earlier index if it is not current, the
    table has chunks of its version, and more than half of its distinct hit chunk ids were in it at that version and no
    longer are: then a row that is in the table now is not its own.
 7. The document of an expected chunk is that of its place; without one, that of the first seen row, otherwise that of
    the first sighting with a document.
 8. A label means a known row if its own place has the same version and policy, or the same spans: as they are written,
    in the same document.
 9. A query with `expected_spans` has only their places and documents (and `expected_doc_ids`): its expected chunks then
    contribute no places and no documents. Each of its spans is a separate place.
10. The right documents are the expected documents and those of the places. Every hit in a document of a place must be
    placed; in an expected document without one, any hit is a miss. In a run that is matched by id, this also holds for
    queries with `expected_spans` only.
11. A caption is a known place without a size: a hit that is a caption is placed and matches nothing; if all expected
    places are captions, the document decides, and they do not count among the places of `recall_at_k_chunk`. A run in
    which more than half of the hits name no chunk is matched by span, if any golden query expects a chunk.
12. Labels that decide between `exact` and `span` under `auto`: those of all golden queries, in the run or not.
13. In a comparison, the versions differ if one is known and the other is not; two unknown ones are equal. A query is
    matched by span if every hit in a right document of either run is placed.
14. A hit without a chunk id is never a repetition. The text of a repeated chunk is read once, at its first occurrence
    (by rank, then by position in the list).
15. Tokens: the hit's `token_count`; otherwise the table's `token_estimate`, otherwise the characters of its text / 4,
    or what was kept of either; otherwise the characters of the hit's text / 4. Text that was cut (200 characters and
    '...') and empty text give no size.
16. `hit_within_tokens` is null, whatever the budget, if the size of a hit that is read is unknown: the hits up to the
    first correct one, or all if none is correct (a run without sizes has no number, not 0, and misses count only where
    hits would). A query without hits is 0, in a run in which any query with such labels has known sizes.
17. Hits of one ranking with the same rank: in the order of ranks, then of the list, each takes its stored rank or the
    next free one. Other ranks stay as they are stored, including gaps.
18. A place named by a path that `documents` does not know is in the document of every hit that names this path, with or
    without an id. That, and a path used in place of an unknown document, count wherever places decide, also if the
    query falls back to documents, and never in `recall_at_k_doc`.
19. A hit that has no kind of position in common with an expected place in its document cannot be compared with it, and
    counts as unplaced: the query falls back to documents, whatever its other hits are. One common kind is enough; all
    pages are of one kind, and so are lines of text and of code. A caption has no kind, and is compared with everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple

from tests.oracles import span_oracle
from tests.oracles.span_oracle import Box, covered, is_match, kinds, real, says_something

KS = (1, 3, 5, 10)
BUDGETS = (500, 1000, 2000, 4000)
Hit = Mapping[str, Any]
LATER = "~"  # after every time that a kept row names


@dataclass(frozen=True)
class Chunk:
    """A row of the table `chunks`, or a kept one."""

    chunk_id: str
    version: str
    policy: str
    doc_id: str
    spans: Any
    tokens: float | None = None  # as the table estimates it, or as it was kept
    characters: int | None = None
    seen_in: str = "chunks"
    first_seen: str = LATER


@dataclass(frozen=True)
class Run:
    run_id: str
    config: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]
    created_at: str = "2026-01-01"


@dataclass(frozen=True)
class World:
    """A whole small database, and the golden file. `documents`: path → doc_id."""

    golden: Sequence[Mapping[str, Any]]
    runs: Sequence[Run]
    table: Sequence[Chunk] = ()
    kept: Sequence[Chunk] = ()
    documents: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Known:
    """A chunk that the tables know."""

    chunk: Chunk
    is_in_table: bool
    is_from_table: bool
    first_seen: str

    @property
    def key(self) -> tuple[Any, ...]:
        """What counts as one chunk: the row and what was kept of it, unless that has another position."""
        where = None if self.is_in_table else (self.chunk.doc_id, as_text(self.chunk.spans))
        return *key_of(self.chunk), where

    @property
    def age(self) -> tuple[Any, ...]:
        where = (self.is_in_table, self.chunk.doc_id, json.dumps(self.chunk.spans))
        return self.first_seen, self.chunk.version, self.chunk.policy, *where, not self.is_from_table


def key_of(chunk: Chunk) -> tuple[str, str, str]:
    return chunk.chunk_id, chunk.version, chunk.policy


def as_text(spans: Any) -> str:
    return json.dumps(spans, separators=(",", ":"), ensure_ascii=False)


def elsewhere(a: Chunk, b_doc: str | None, b_spans: Any) -> bool:
    """Do both have a position, and do these differ?"""
    if a.doc_id and b_doc and a.doc_id != b_doc:
        return True
    return says_something(a.spans) and says_something(b_spans) and a.spans != b_spans


class Sighting(NamedTuple):
    """What a hit says of its chunk."""

    is_cited: bool
    version: str
    doc: str | None
    spans: Any

    @property
    def order(self) -> tuple[Any, ...]:
        return self.spans is None, self.doc is None, self.is_cited, self.version, as_text(self.spans), self.doc or ""


@dataclass(frozen=True)
class ExpectedPlace:
    name: str
    doc: str | None
    boxes: tuple[Box, ...]
    of: str  # the side that the overlap is a share of


@dataclass(frozen=True)
class Judged:
    """One query of one run: what decided, and which hits are correct (places in the list, from 0)."""

    matching: str
    correct: tuple[int, ...]
    ranks: tuple[int, ...]  # of all hits
    found_at: Mapping[str, int]  # expected chunk or place → the best rank that finds it
    expected: tuple[str, ...]

    @property
    def first_rank(self) -> int | None:
        return min((self.ranks[number] for number in self.correct), default=None)


def rounded(value: Fraction) -> float:
    """Four decimals, half away from zero, decided exactly."""
    scaled = abs(value) * 10_000
    whole = floor(scaled + Fraction(1, 2))
    return (whole if value >= 0 else -whole) / 10_000


def mean(values: Sequence[Fraction | int], none: float | None) -> float | None:
    return rounded(Fraction(sum(values)) / len(values)) if values else none


def text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def hits_of(row: Mapping[str, Any]) -> list[Hit]:
    """The hits as stored, whether the query failed or not."""
    return list(row.get("hits_top_k") or [])


def rank_of(hit: Hit, position: int) -> int:
    rank = hit.get("rank")
    return position if rank is None else int(rank)


def ranks_of(hits: Sequence[Hit]) -> tuple[int, ...]:
    """The place of each hit: its stored rank; where others have it too, the next place that is free."""
    stored = [rank_of(hit, position) for position, hit in enumerate(hits, start=1)]
    found = [0] * len(hits)
    last = 0
    for number in sorted(range(len(hits)), key=lambda number: (stored[number], number)):
        found[number] = last = max(stored[number], last + 1)
    return tuple(found)


def identities(hits: Sequence[Hit]) -> list[Any]:
    return [hit.get("chunk_id") or number for number, hit in enumerate(hits)]


class Oracle:
    def __init__(self, world: World, match: str = "auto", min_overlap: float = 0.5, overlap_of: str = "auto") -> None:
        self.world = world
        self.match = match
        self.least = Fraction(min_overlap)
        self.overlap_of = overlap_of
        self.labels = {entry["id"]: entry for entry in world.golden}
        self.runs = {run.run_id: run for run in world.runs}
        self.versions: dict[str, tuple[str | None, str | None]] = {}
        self.policies: dict[str, str | None] = {}
        self.sighted: dict[str, list[Sighting]] = {}
        self.indices: dict[str, str] = {}
        self.owned: dict[tuple[str, str], str] = {}
        in_table = {key_of(c): c for c in world.table}
        since: dict[tuple[str, str, str], str] = {}
        self.known: dict[str, list[Known]] = {}
        for c in world.kept:
            now = in_table.get(key_of(c))
            is_there = now is not None and not elsewhere(now, c.doc_id, c.spans)
            if is_there:
                since[key_of(c)] = min(c.first_seen, since.get(key_of(c), LATER))
            if c.seen_in == "chunks" or is_there:
                one = Known(c if c.seen_in == "chunks" else replace(c, spans=None), is_there, False, c.first_seen)
                self.known.setdefault(c.chunk_id, []).append(one)
        for c in world.table:
            self.known.setdefault(c.chunk_id, []).append(Known(c, True, True, since.get(key_of(c), LATER)))
        for rows in self.known.values():
            rows.sort(key=lambda one: one.age)
        gone = {key_of(one.chunk) for rows in self.known.values() for one in rows if not one.is_in_table}
        self.reused = [c for c in world.table if key_of(c) in gone]

    # --- the run -----------------------------------------------------------------------------------

    def hits_in(self, run: Run) -> list[Hit]:
        return [hit for row in run.rows.values() for hit in hits_of(row)]

    def chunk_ids(self, run: Run) -> set[str]:
        return {hit["chunk_id"] for hit in self.hits_in(run) if text(hit.get("chunk_id"))}

    def indexed(self, chunk_id: str) -> list[Chunk]:
        """What the table says, and said when its rows were kept."""
        return [one.chunk for one in self.known.get(chunk_id, ())]

    def version_and_source(self, run: Run) -> tuple[str | None, str | None]:
        if run.run_id not in self.versions:
            self.versions[run.run_id] = self.find_version(run)
        return self.versions[run.run_id]

    def find_version(self, run: Run) -> tuple[str | None, str | None]:
        if version := text(run.config.get("chunker_version")):
            return version, "config"
        named = {version for hit in self.hits_in(run) if (version := text(hit.get("chunker_version")))}
        if named:
            return (min(named), "hits") if len(named) == 1 else (None, None)
        given = {c.version for chunk_id in self.chunk_ids(run) for c in self.indexed(chunk_id)}
        return (min(given), "tables") if len(given) == 1 else (None, None)

    def version(self, run: Run) -> str | None:
        return self.version_and_source(run)[0]

    def policy(self, run: Run) -> str | None:
        if run.run_id not in self.policies:
            self.policies[run.run_id] = self.find_policy(run)
        return self.policies[run.run_id]

    def find_policy(self, run: Run) -> str | None:
        if policy := text(run.config.get("policy_hash")):
            return policy
        version = self.version(run)
        given: set[str] = set()
        for chunk_id in self.chunk_ids(run):
            policies = {c.policy for c in self.indexed(chunk_id) if c.version == version}
            if len(policies) == 1:
                given |= policies - {""}
        return min(given) if len(given) == 1 else None

    def told(self, run: Run) -> tuple[int, int]:
        """How many hits on reused ids have the position that the table has now, and how many have another."""
        found = {}
        for hit in self.hits_in(run):
            version, spans, doc = text(hit.get("chunker_version")), hit.get("source_spans"), text(hit.get("doc_id"))
            if (version or self.version(run)) != self.version(run) or not says_something(spans):
                continue
            now = [c for c in self.reused if c.chunk_id == hit.get("chunk_id") and c.version == self.version(run)]
            if now:
                found[hit["chunk_id"], doc, as_text(spans)] = any(not elsewhere(c, doc, spans) for c in now)
        return sum(found.values()), sum(not is_as_now for is_as_now in found.values())

    def reused_ids(self, run: Run) -> set[str]:
        return {c.chunk_id for c in self.reused if c.version == self.version(run)}

    def names_reused(self, run: Run) -> bool:
        return bool(self.chunk_ids(run) & self.reused_ids(run))

    def gone_ids(self, run: Run) -> set[str]:
        version = self.version(run)
        there = {c.chunk_id for c in self.world.table if c.version == version}
        return {c.chunk_id for c in self.world.kept if c.seen_in == "chunks" and c.version == version} - there

    def index_of(self, run: Run) -> str:
        """The index that a run was made with: `current`, `earlier`, or `unclear`; else `unknown`.

        Remembered, as ownership is: every hit and every label asks for it.
        """
        if run.run_id not in self.indices:
            self.indices[run.run_id] = self.find_index(self.runs.get(run.run_id, run))
        return self.indices[run.run_id]

    def find_index(self, run: Run) -> str:
        version, ids = self.version(run), self.chunk_ids(run)
        there = {c.chunk_id for c in self.world.table if c.version == version}
        if not there:
            return "unknown"
        now, before = self.told(run)
        if now or before:
            return "current" if now >= before else "earlier"
        if self.names_reused(run):
            return "earlier" if ids & self.gone_ids(run) else "unclear"
        if not ids or 2 * len(ids & there) >= len(ids):
            return "current"
        return "earlier" if 2 * len(ids & self.gone_ids(run)) > len(ids) else "unknown"

    def is_current(self, run: Run) -> bool:
        if self.index_of(run) != "unclear":
            return self.index_of(run) == "current"
        there = {c.chunk_id for c in self.world.table if c.version == self.version(run)}
        return 2 * len(self.chunk_ids(run) & there) >= len(self.chunk_ids(run))

    def is_earlier(self, run: Run) -> bool:
        """Was it made with what the table held before?"""
        return self.index_of(run) == "earlier"

    def ownership(self, run: Run, chunk_id: str) -> str:
        """`own`, `foreign`, `unclear` or `unknown`."""
        key = run.run_id, chunk_id
        if key not in self.owned:
            self.owned[key] = self.find_ownership(self.runs.get(run.run_id, run), chunk_id)
        return self.owned[key]

    def find_ownership(self, run: Run, chunk_id: str) -> str:
        if self.index_of(run) == "unclear" and chunk_id in self.reused_ids(run):
            return "unclear"
        version, policy = self.version(run), self.policy(run)
        is_current, is_earlier = self.is_current(run), self.is_earlier(run)
        known = self.known.get(chunk_id, [])
        label = self.first_seen(chunk_id)
        for one in known:
            c = one.chunk
            if c.version != version or (policy is not None and c.policy not in {"", policy}):
                continue
            if is_current and not one.is_in_table:
                continue
            if is_earlier and one.is_in_table and not self.names_reused(run):
                continue
            assert label is not None
            c = self.completed(one)
            is_same = label.doc_id == c.doc_id and label.spans == c.spans and says_something(c.spans)
            is_named_alike = (label.version, label.policy) == (c.version, c.policy)
            if is_same or (is_named_alike and not elsewhere(label, c.doc_id, c.spans)):
                return "own"
        if known or is_current:
            return "foreign"
        seen = self.sighted_versions(chunk_id)
        return "own" if version in seen else "foreign" if seen else "unknown"

    def matching(self, run: Run) -> str:
        if self.match != "auto":
            return self.match
        labels = [c for entry in self.world.golden for c in set(entry.get("expected_chunk_ids") or ())]
        owned = [] if self.version(run) is None else [self.ownership(run, c) for c in labels]
        if 2 * owned.count("unclear") > len(labels):
            return "none"
        names = [text(hit.get("chunk_id")) for hit in self.hits_in(run)]
        is_nameless = bool(labels) and 2 * names.count(None) > len(names)
        return "span" if is_nameless or 2 * owned.count("foreign") > len(labels) else "exact"

    def said(self, run: Run) -> str:
        """What is said to have decided: where no label names a chunk and some name places, nothing went by id."""
        golden = self.world.golden
        if any(entry.get("expected_spans") for entry in golden) and not any(
            entry.get("expected_chunk_ids") for entry in golden
        ):
            return "span"
        return self.matching(run)

    # --- the hit -----------------------------------------------------------------------------------

    def version_of(self, run: Run, hit: Hit) -> str | None:
        return text(hit.get("chunker_version")) or self.version(run)

    def rows_for(self, run: Run, hit: Hit) -> list[Chunk]:
        """What the tables know of a hit's chunk: a row of the table, what was kept of it, or both."""
        version = self.version_of(run, hit)
        policy = self.policy(run)
        found = [
            one
            for one in self.known.get(hit.get("chunk_id") or "", ())
            if version is None or one.chunk.version == version
        ]
        is_earlier = self.is_earlier(run)
        found.sort(
            key=lambda one: (policy is not None and one.chunk.policy != policy, one.is_in_table == is_earlier, one.age)
        )
        chosen = next((one for one in found if says_something(one.chunk.spans)), found[0] if found else None)
        return [one.chunk for one in found if chosen is not None and one.key == chosen.key]

    def spans_of(self, run: Run, hit: Hit) -> Any:
        """The position of a hit; None if it is unknown."""
        if says_something(hit.get("source_spans")):
            return hit["source_spans"]
        for c in self.rows_for(run, hit):
            if says_something(c.spans):
                return c.spans
        cited = [hit.get("citation")]
        return cited if says_something(cited) else None

    def path_of(self, hit: Hit) -> str | None:
        return text(hit.get("doc_path")) or text((hit.get("citation") or {}).get("path"))

    def doc_of(self, run: Run, hit: Hit) -> str | None:
        if doc := text(hit.get("doc_id")):
            return doc
        for c in self.rows_for(run, hit):
            if c.doc_id:
                return c.doc_id
        return self.world.documents.get(self.path_of(hit) or "")

    def doc_or_path(self, run: Run, hit: Hit) -> str | None:
        return self.doc_of(run, hit) or self.path_of(hit)

    def documents_of(self, run: Run, hit: Hit) -> set[str]:
        """What a hit's document may be called where places decide."""
        return {name for name in (self.doc_of(run, hit), self.path_of(hit)) if name is not None}

    def tokens_of(self, run: Run, hit: Hit) -> Fraction | None:
        count = hit.get("token_count")
        if count is not None and real(count) and count >= 0:
            return Fraction(count)
        for c in self.rows_for(run, hit):
            if c.tokens is not None:
                return Fraction(c.tokens)
            if c.characters is not None:
                return Fraction(c.characters, 4)
        shown = text(hit.get("text"))
        if shown and not (len(shown) == 203 and shown.endswith("...")):
            return Fraction(len(shown), 4)
        return None

    # --- the labels --------------------------------------------------------------------------------

    def sightings(self, chunk_id: str) -> list[Sighting]:
        """What hits said of a chunk, in the order of belief. Remembered, because many labels name one chunk."""
        if chunk_id not in self.sighted:
            self.sighted[chunk_id] = self._sightings(chunk_id)
        return self.sighted[chunk_id]

    def _sightings(self, chunk_id: str) -> list[Sighting]:
        found = [
            Sighting(False, c.version, c.doc_id, c.spans if says_something(c.spans) else None)
            for c in self.world.kept
            if c.seen_in == "hits" and c.chunk_id == chunk_id
        ]
        for run in self.world.runs:
            for hit in self.hits_in(run):
                if hit.get("chunk_id") != chunk_id:
                    continue
                version = text(hit.get("chunker_version")) or text(run.config.get("chunker_version")) or ""
                own, cited = hit.get("source_spans"), [hit.get("citation")]
                spans = own if says_something(own) else cited if says_something(cited) else None
                is_cited = spans is cited
                found.append(Sighting(is_cited, version, self.doc_or_path(run, hit), spans))
        return sorted(found, key=lambda one: one.order)

    def sighted_versions(self, chunk_id: str) -> set[str]:
        """The versions under which hits had a chunk."""
        return {one.version for one in self.sightings(chunk_id) if one.version}

    def place_of_chunk(self, chunk_id: str) -> tuple[str | None, Any]:
        """The document and the spans of an expected chunk, as far as they are known."""
        label = self.first_seen(chunk_id)
        doc = label.doc_id or None if label else None
        if label and says_something(label.spans):
            return doc, label.spans
        sighted = [seen for seen in self.sightings(chunk_id) if doc is None or seen.doc in {doc, None}]
        for seen in sighted:
            if seen.spans is not None:
                return seen.doc or doc, seen.spans
        return doc or next((seen.doc for seen in sighted if seen.doc), None), None

    def first_seen(self, chunk_id: str) -> Chunk | None:
        """The first row of a chunk that the tables knew, with what was kept of it where it has no usable spans."""
        known = self.known.get(chunk_id, [])
        return self.completed(known[0]) if known else None

    def completed(self, one: Known) -> Chunk:
        """A row with usable spans of what is the same chunk, the table's own first; else the row itself."""
        rows = [other for other in self.known[one.chunk.chunk_id] if other.key == one.key]
        rows.sort(key=lambda other: not other.is_from_table)
        return next((other.chunk for other in rows if says_something(other.chunk.spans)), one.chunk)

    def expected_places(self, entry: Mapping[str, Any]) -> tuple[list[ExpectedPlace], set[str]]:
        """The places of the right text, and their documents."""
        docs = set(entry.get("expected_doc_ids") or ())
        places = []
        for number, span in enumerate(entry.get("expected_spans") or ()):
            doc = text(span.get("doc_id")) or self.world.documents.get(span["path"], span["path"])
            of = "expected" if self.overlap_of == "auto" else self.overlap_of
            places.append(ExpectedPlace(f"span {number}", doc, covered([span]), of))
        if not places:
            for chunk_id in sorted(set(entry.get("expected_chunk_ids") or ())):
                found_in, spans = self.place_of_chunk(chunk_id)
                of = "smaller" if self.overlap_of == "auto" else self.overlap_of
                places.append(ExpectedPlace(chunk_id, found_in, covered(spans), of))
        docs |= {place.doc for place in places if place.doc is not None}
        return [place for place in places if place.boxes and place.doc is not None], docs

    def documents_of_places(self, entry: Mapping[str, Any]) -> set[str]:
        """The documents in which text is expected, whether its place is known or not."""
        _, docs = self.expected_places({name: value for name, value in entry.items() if name != "expected_doc_ids"})
        return docs

    # --- the query ---------------------------------------------------------------------------------

    def how(self, entry: Mapping[str, Any] | None, matching: str, runs: Sequence[Run]) -> str:
        """What decides a query: `exact`, `span`, `doc`, `support`; it is `unmatched`, or has no labels: `none`."""
        if entry is None:
            return "none"
        if entry.get("expected_chunk_ids") and matching == "exact":
            return "exact"
        if matching == "none" and (entry.get("expected_chunk_ids") or entry.get("expected_spans")):
            return "unmatched"
        if entry.get("expected_chunk_ids") or entry.get("expected_spans"):
            places, docs = self.expected_places(entry)
            inside = self.documents_of_places(entry)
            are_placed = all(
                self.can_be_held(run, hit, places)
                for run in runs
                for hit in hits_of(run.rows.get(entry["id"]) or {})
                if self.documents_of(run, hit) & inside
            )
            return "span" if places and are_placed else "doc" if docs else "unmatched"
        if entry.get("expected_doc_ids"):
            return "doc"
        return "support" if entry.get("gold_supports") else "none"

    def can_be_held(self, run: Run, hit: Hit, places: Sequence[ExpectedPlace]) -> bool:
        """Is it known of a hit whether it shares text with the expected places in its document?"""
        spans = self.spans_of(run, hit)
        mine = kinds(covered(spans))
        names = self.documents_of(run, hit)
        others = [kinds(place.boxes) for place in places if place.doc in names]
        return spans is not None and (not mine or all(mine & other for other in others))

    def judge(self, run: Run, query_id: str, matching: str, together: Sequence[Run] = ()) -> Judged:
        entry = self.labels.get(query_id)
        hits = hits_of(run.rows.get(query_id) or {})
        ranks = ranks_of(hits)
        how = self.how(entry, matching, together or [run])
        found: dict[str, list[int]] = {}  # what is expected → the hits that find it
        if entry is None or how in {"none", "support", "unmatched"}:
            return Judged(how, (), ranks, {}, ())
        if how == "exact":
            expected = sorted(set(entry["expected_chunk_ids"]))
            for number, hit in enumerate(hits):
                if hit.get("chunk_id") in expected:
                    found.setdefault(hit["chunk_id"], []).append(number)
        elif how == "span":
            places, _ = self.expected_places(entry)
            expected = [place.name for place in places]
            for number, hit in enumerate(hits):
                boxes, docs = covered(self.spans_of(run, hit)), self.documents_of(run, hit)
                for place in places:
                    if place.doc in docs and is_match(boxes, place.boxes, self.least, place.of):
                        found.setdefault(place.name, []).append(number)
        else:
            _, docs = self.expected_places(entry)
            expected = sorted(docs)
            for number, hit in enumerate(hits):
                for doc in self.documents_of(run, hit) & docs:
                    found.setdefault(doc, []).append(number)
        correct = sorted({number for numbers in found.values() for number in numbers})
        best = {name: min(ranks[number] for number in numbers) for name, numbers in found.items()}
        return Judged(how, tuple(correct), ranks, best, tuple(expected))

    # --- the numbers -------------------------------------------------------------------------------

    def score(
        self, run_id: str, matching: str | None = None, together: Sequence[str] = (), query_id: str | None = None
    ) -> dict[str, Any]:
        """The numbers that depend on what is a correct hit, of all queries or of one."""
        run = self.runs[run_id]
        matching = matching or self.matching(run)
        if query_id is not None:
            run = replace(run, rows={query_id: run.rows[query_id]})
        others = [self.runs[one] for one in together]
        known = {query_id: row for query_id, row in run.rows.items() if query_id in self.labels}
        judged = {query_id: self.judge(run, query_id, matching, others) for query_id in known}
        by_chunk = [query_id for query_id in known if self.is_about_chunks(judged[query_id], query_id)]
        by_place = [query_id for query_id in by_chunk if judged[query_id].matching != "doc"]
        found: dict[str, Any] = {
            "hit_at_k": {str(k): mean([hit_at(judged[q], k) for q in by_chunk], 0.0) for k in KS},
            "mrr": mean([reciprocal(judged[q].first_rank) for q in by_chunk], 0.0),
            "recall_at_k_doc": {
                str(k): mean([self.doc_recall(run, q, k) for q in known if self.labels[q].get("expected_doc_ids")], 0.0)
                for k in KS
            },
            "precision_at_k_chunk": {
                str(k): mean([precision(judged[q], hits_of(known[q]), k) for q in by_chunk], 0.0) for k in KS
            },
            "empty_result_rate": mean([0 if hits_of(row) else 1 for row in run.rows.values()], 0.0),
            "total_queries": len(run.rows),
            "failed_queries": sum(1 for row in run.rows.values() if row.get("error")),
        }
        if by_place:
            found["recall_at_k_chunk"] = {
                str(k): mean([place_recall(judged[q], k) for q in by_place], None) for k in KS
            }
        is_measured = self.is_measured(self.runs[run_id], matching, others)
        sized = [self.within(run, q, judged[q]) if hits_of(known[q]) or is_measured else None for q in by_chunk]
        if any(one is not None for one in sized):
            found["hit_within_tokens"] = {
                str(budget): mean([one[budget] for one in sized if one is not None], None) for budget in BUDGETS
            }
        return found

    def doc_recall(self, run: Run, query_id: str, k: int) -> Fraction:
        hits = hits_of(run.rows[query_id])
        docs = {self.doc_of(run, hit) for hit, rank in zip(hits, ranks_of(hits), strict=True) if rank <= k}
        expected = set(self.labels[query_id]["expected_doc_ids"])
        return Fraction(len(docs & expected), len(expected))

    def is_about_chunks(self, judged: Judged, query_id: str) -> bool:
        """It has labels for chunks or places, and can be matched."""
        return self.expects_text(query_id) and judged.matching != "unmatched"

    def expects_text(self, query_id: str) -> bool:
        entry = self.labels.get(query_id, {})
        return bool(entry.get("expected_chunk_ids") or entry.get("expected_spans"))

    def is_measured(self, run: Run, matching: str, together: Sequence[Run]) -> bool:
        """Are the sizes known of any ranking for a query with such labels?"""
        for query_id, row in run.rows.items():
            if self.expects_text(query_id) and hits_of(row):
                judged = self.judge(run, query_id, matching, together)
                if self.within(run, query_id, judged) is not None:
                    return True
        return False

    def within(self, run: Run, query_id: str, judged: Judged) -> dict[int, int] | None:
        """For each budget: is a correct hit among those that it buys? None where the sizes are not known."""
        hits = hits_of(run.rows[query_id])
        names = identities(hits)
        seen = set()
        total = Fraction(0)
        for number in sorted(range(len(hits)), key=lambda number: (judged.ranks[number], number)):
            if names[number] not in seen:
                tokens = self.tokens_of(run, hits[number])
                if tokens is None:
                    return None
                total += tokens
                seen.add(names[number])
            if number in judged.correct:
                return {budget: 1 if total <= budget else 0 for budget in BUDGETS}
        return dict.fromkeys(BUDGETS, 0)

    # --- two runs ----------------------------------------------------------------------------------

    def matching_of_both(self, a: str, b: str) -> str:
        if self.match != "auto":
            return self.match
        runs = self.runs[a], self.runs[b]
        if "none" in map(self.matching, runs):
            return "none"
        if self.version(runs[0]) != self.version(runs[1]):
            return "span"
        return "span" if "span" in map(self.matching, runs) else "exact"

    def compare(self, a: str, b: str) -> dict[str, tuple[str, int | None, int | None, str]]:
        """For each query of either run: the kind, both ranks, and what decided."""
        matching = self.matching_of_both(a, b)
        runs = [self.runs[a], self.runs[b]]
        found = {}
        for query_id in sorted({*runs[0].rows, *runs[1].rows}):
            first, second = (self.judge(run, query_id, matching, runs) for run in runs)
            ranks = first.first_rank, second.first_rank
            found[query_id] = (kind(*ranks), *ranks, first.matching)
        return found


def kind(a: int | None, b: int | None) -> str:
    if a is None or b is None:
        return "draw" if a == b else "win" if a is None else "regression"
    return "win" if b < a else "loss" if b > a else "draw"


def hit_at(judged: Judged, k: int) -> int:
    return 1 if judged.first_rank is not None and judged.first_rank <= k else 0


def reciprocal(rank: int | None) -> Fraction:
    return Fraction(1, rank) if rank is not None and rank <= 10 else Fraction(0)


def precision(judged: Judged, hits: Sequence[Hit], k: int) -> Fraction:
    names = identities(hits)
    return Fraction(len({names[number] for number in judged.correct if judged.ranks[number] <= k}), k)


def place_recall(judged: Judged, k: int) -> Fraction:
    return Fraction(sum(1 for rank in judged.found_at.values() if rank <= k), len(judged.expected))


OVERLAPS_OF = ("auto", *span_oracle.OVERLAP_OF)
