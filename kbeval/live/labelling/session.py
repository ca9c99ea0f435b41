"""A labelling session: what to decide next, and every action of the two front ends.

Each decision is committed to the database at once. The golden file gets it when the query is left, or at the next start
if the process was killed before.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbeval.errors import GoldenError, KbevalError, UsageError
from kbeval.live.labelling.candidates import Candidate, Reader, items_of_hits
from kbeval.live.labelling.changes import Same
from kbeval.live.labelling.order import Chosen, make_pool, order_of
from kbeval.live.labelling.places import passage_spans
from kbeval.live.labelling.writing import GoldenFile, Saved
from kbeval.live.passages import Bm25
from kbeval.storage.database_file import refuse_database
from kbeval.storage.labels import (
    ANSWERABLE,
    ENTRY,
    KEPT,
    MUST_CONTAIN,
    NO,
    NOTE,
    PENDING,
    QUERY,
    SKIP,
    SUPPORTS,
    YES,
    About,
    Decision,
    LabelStore,
)

__all__ = ["Chosen", "Labelling", "QueryView"]

_LONGEST_TEXT = 20_000


@dataclass(frozen=True)
class QueryView:
    """A query as it is shown."""

    query_id: str
    entry: Mapping[str, Any]
    candidates: Sequence[Candidate]
    # The decision of this person on each candidate, by its key, and its number; the same for the query's own fields.
    decided: Mapping[str, str]
    versions: Mapping[str, int]
    passages: Mapping[str, str]
    # Where people disagree: who decided what, by candidate.
    disputes: Mapping[str, Mapping[str, str]]
    settled: Mapping[str, str]
    note: str

    @property
    def open(self) -> int:
        """How many candidates are neither decided on nor labelled."""
        return sum(not one.is_labelled and self.decided.get(one.key, SKIP) == SKIP for one in self.candidates)


class Labelling:
    """An open session. Use as a context manager. Safe to be called from several threads."""

    def __init__(
        self,
        database: Path,
        golden: Path,
        chosen: Chosen,
        fresh: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    ) -> None:
        """`fresh`: hits of a live system, by query."""
        refuse_database(golden, database)
        self.chosen = chosen
        self._database = database
        self._lock = threading.RLock()
        self.file = GoldenFile(golden, database, chosen.form)
        self._fresh = fresh or {}
        self._store = LabelStore(database)
        self._stack = contextlib.ExitStack()
        self._views: dict[str, QueryView] = {}
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        self._stack.enter_context(self._store)
        try:
            self._store.make_table()
            self._decided = self._store.current()
            self._pool = make_pool(self._database, self.file.golden, self.chosen, self._decided, self._fresh)
            self._reader = Reader(self._store)
            # What was decided before a crash, and is not in the file yet.
            self.saved_before = self._write(self._store.pending())
            self.queue = order_of(self.file.golden, self.chosen, self._pool, self._decided)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._stack.close()

    # --- the work ----------------------------------------------------------------------------------------

    def left(self) -> tuple[int, int]:
        """How many queries, and how many candidates, are still to be decided on."""
        with self._lock:
            counts = [self._open_count(query_id) for query_id in self.queue]
            return sum(count > 0 for count in counts), sum(counts)

    def _open_count(self, query_id: str) -> int:
        if query_id in self._views:
            return self._views[query_id].open
        pool = self._pool.queries.get(query_id)
        if pool is None:
            # Nothing was returned for it yet; it is done once anything was decided about it.
            return 0 if any(one.query_id == query_id for one in self._decided) else 1
        return pool.open

    def is_open(self, query_id: str) -> bool:
        """Is there anything left to decide about a query?"""
        with self._lock:
            return self._open_count(query_id) > 0

    def first(self) -> str | None:
        """The query to begin with: the first that is not done, else the first."""
        return next((query_id for query_id in self.queue if self.is_open(query_id)), next(iter(self.queue), None))

    def view(self, query_id: str) -> QueryView:
        """A query with its candidates and what was decided."""
        with self._lock:
            entry = self.file.golden.get(query_id)
            if entry is None:
                msg = f"{self.file.path} has no query {query_id!r}"
                raise UsageError(msg)
            known = self._views.get(query_id)
            candidates = self._candidates(query_id, entry) if known is None else known.candidates
            found = self._seen(query_id, entry, candidates)
            self._views[query_id] = found
            return found

    def _candidates(self, query_id: str, entry: Mapping[str, Any]) -> list[Candidate]:
        items = self._pool.items(query_id)
        more: Sequence[Mapping[str, Any]] = list(self._fresh.get(query_id, ()))
        if not any(item.n_runs for item in items) and not more:
            with contextlib.suppress(UsageError), Bm25(self._database) as index:
                more = index.search(str(entry["query"]), self.chosen.depth)
            start = max((item.item_no for item in items), default=0) + 1
            items = [*items, *items_of_hits(query_id, more, start)]
        found: dict[str, Candidate] = {}
        labels = set(entry.get("expected_chunk_ids") or ())
        for one in self._reader.candidates(items, more):
            same = found.get(one.key)
            named = one.is_labelled or bool(labels & set(one.chunk_ids)) or (same is not None and same.is_labelled)
            ids = tuple(dict.fromkeys((*(same.chunk_ids if same else ()), *one.chunk_ids)))
            found[one.key] = replace(same or one, is_labelled=named, chunk_ids=ids)
        shuffled = sorted(found.values(), key=lambda one: one.key)
        random.Random(f"{self.chosen.seed} {query_id}").shuffle(shuffled)  # noqa: S311  (an order)
        return shuffled

    def _seen(self, query_id: str, entry: Mapping[str, Any], candidates: Sequence[Candidate]) -> QueryView:
        stands_for = {key: one.key for one in candidates for key in one.keys}
        decided: dict[str, str] = {}
        versions: dict[str, int] = {}
        passages: dict[str, str] = {}
        settled: dict[str, str] = {}
        votes: dict[str, dict[str, str]] = {}
        note = ""
        for one in self._store.current(query_id):
            is_own = one.annotator == self.chosen.annotator
            if one.field == SUPPORTS:
                key = stands_for.get(one.item, one.item)
                if one.is_settlement:
                    settled[key] = str(one.value)
                    continue
                if one.value != SKIP:
                    votes.setdefault(key, {})[one.annotator] = str(one.value)
                if is_own:
                    decided[key], versions[key] = str(one.value), one.label_no
                    if one.about.passage:
                        passages[key] = one.about.passage
            elif is_own:
                versions[f"{one.field}:{one.item}"] = one.label_no
                note = str(one.value) if one.field == NOTE else note
        disputes = {key: who for key, who in votes.items() if len(set(who.values())) > 1}
        return QueryView(query_id, entry, candidates, decided, versions, passages, disputes, settled, note)

    # --- actions -----------------------------------------------------------------------------------------

    def decide(
        self, query_id: str, key: str, value: str, part: tuple[int, int] | None = None, after: int | None = None
    ) -> QueryView:
        """Supporting (`yes`), not supporting (`no`) or `skip`. `part`: the passage, as positions in the text."""
        with self._lock:
            if value not in (YES, NO, SKIP):
                msg = f"a decision is yes, no or skip, not {value!r}"
                raise UsageError(msg)
            one = self._candidate(query_id, key)
            about = _about(one, part if value == YES else None)
            state = KEPT if value == SKIP else PENDING
            settles = self.chosen.to_settle and value != SKIP
            self._add(Decision(query_id, self.chosen.annotator, SUPPORTS, key, value, about, settles, state), after)
            return self.view(query_id)

    def decide_rest(self, query_id: str) -> QueryView:
        """All that is open does not support the answer."""
        with self._lock:
            view = self.view(query_id)
            for one in view.candidates:
                if not one.is_labelled and view.decided.get(one.key, SKIP) == SKIP:
                    self.decide(query_id, one.key, NO)
            return self.view(query_id)

    def set_answerable(self, query_id: str, value: bool | None, after: int | None = None) -> QueryView:
        """Can the query be answered from the documents? None: not said."""
        with self._lock:
            former = self.view(query_id).entry.get("answerable")
            change = {"from": former, "to": value}
            self._add(Decision(query_id, self.chosen.annotator, ANSWERABLE, "", change), after)
            return self._written(query_id)

    def set_query(self, query_id: str, text: str, after: int | None = None) -> QueryView:
        """Another wording."""
        with self._lock:
            former = self.view(query_id).entry["query"]
            change = {"from": former, "to": _checked(text, "the query")}
            self._add(Decision(query_id, self.chosen.annotator, QUERY, "", change), after)
            return self._written(query_id)

    def add_query(self, query_id: str, text: str) -> QueryView:
        """A new query, at the end of the file."""
        with self._lock:
            query_id = _checked(query_id, "the id")
            if self.file.golden.get(query_id) is not None:
                msg = f"{self.file.path} has a query {query_id!r} already; choose another id"
                raise UsageError(msg)
            self._add(Decision(query_id, self.chosen.annotator, ENTRY, "", _checked(text, "the query")), None)
            saved = self._write(self._store.pending(query_id))
            if self.file.golden.get(query_id) is None:
                raise UsageError("; ".join(saved.problems) or f"{query_id} was not written")
            self.queue.append(query_id)
            return self.view(query_id)

    def set_rule(self, query_id: str, text: str, *, is_wanted: bool, after: int | None = None) -> QueryView:
        """Must an answer contain this text?"""
        with self._lock:
            item = _checked(text, "the text")
            # An unknown query is an error before anything is stored.
            self.view(query_id)
            self._add(Decision(query_id, self.chosen.annotator, MUST_CONTAIN, item, is_wanted), after)
            return self._written(query_id)

    def set_note(self, query_id: str, text: str, after: int | None = None) -> QueryView:
        """A note about the query, kept in the database."""
        with self._lock:
            self.view(query_id)
            self._add(Decision(query_id, self.chosen.annotator, NOTE, "", text[:_LONGEST_TEXT], state=KEPT), after)
            return self.view(query_id)

    def undo(self) -> str | None:
        """Take back the last decision of this person that is not taken back yet; returns its query."""
        with self._lock:
            last = self._store.latest(self.chosen.annotator)
            if last is None:
                return None
            if (problem := self.file.undo(last)) is not None:
                raise UsageError(problem)
            self._store.undo(last.label_no)
            self._decided = self._store.current()
            if last.field == ENTRY:
                self._views.pop(last.query_id, None)
                self.queue = [query_id for query_id in self.queue if query_id != last.query_id]
            else:
                self.view(last.query_id)
            return last.query_id

    def save(self, query_id: str | None = None) -> Saved:
        """Write what was decided about a query, or about all, into the golden file."""
        with self._lock:
            return self._write(self._store.pending(query_id))

    # --- inside ------------------------------------------------------------------------------------------

    def _candidate(self, query_id: str, key: str) -> Candidate:
        view = self._views.get(query_id) or self.view(query_id)
        for one in view.candidates:
            if one.key == key:
                return one
        msg = f"query {query_id!r} has no such candidate; reload it"
        raise UsageError(msg)

    def _add(self, decision: Decision, after: int | None) -> None:
        self._decided.append(self._store.add(decision, after))

    def _written(self, query_id: str) -> QueryView:
        """Write what is pending about a query. Raises an error that says what was not written, and why."""
        saved = self._write(self._store.pending(query_id))
        if saved.problems:
            raise UsageError("; ".join(saved.problems))
        return self.view(query_id)

    def _write(self, decisions: Sequence[Decision]) -> Saved:
        current = self._store.current() if decisions else []
        votes: dict[tuple[str, str], dict[str, str]] = {}
        for one in current:
            if one.field == SUPPORTS and one.value != SKIP and not one.is_settlement:
                votes.setdefault((one.query_id, one.item), {})[one.annotator] = str(one.value)
        settled = {(one.query_id, one.item) for one in current if one.is_settlement}

        def disputed(one: Decision) -> bool:
            place = (one.query_id, one.item)
            if one.field != SUPPORTS or one.is_settlement:
                return False
            return place in settled or len(set(votes.get(place, {}).values())) > 1

        try:
            saved = self.file.write(decisions, self._store, self._same_as, disputed)
        except GoldenError as error:
            # The file is not whole at this moment: everything stays pending.
            saved = Saved(
                problems=[f"{self.file.path} cannot be read now: {'; '.join(error.details) or error.headline}"]
            )
        except KbevalError as error:
            saved = Saved(problems=[error.headline])
        self.problems += saved.problems
        return saved

    def _same_as(self, decision: Decision) -> Same:
        if decision.field != SUPPORTS:
            return Same()
        try:
            view = self._views.get(decision.query_id) or self.view(decision.query_id)
        except KbevalError:
            return Same()
        own = next((one for one in view.candidates if decision.item in one.keys), None)
        others = [one.text for one in view.candidates if decision.item not in one.keys]
        return (
            Same(own.chunk_ids, own.text, others) if own is not None else Same((), decision.about.passage or "", others)
        )


def _about(one: Candidate, part: tuple[int, int] | None) -> About:
    spans: Sequence[Mapping[str, Any]] = one.spans
    passage = None
    if part is not None:
        start, end = part
        if not 0 <= start < end <= len(one.text):
            msg = "the selected passage is not in this text; reload the query"
            raise UsageError(msg)
        passage = one.text[start:end]
        spans = passage_spans(one.text, one.spans, start, end) or one.spans
    return About(
        one.key,
        one.chunk_id,
        one.chunker_version,
        one.doc_id,
        one.path,
        json.dumps(list(one.headings), ensure_ascii=False),
        json.dumps([dict(span) for span in spans]),
        passage,
    )


def _checked(text: str, what: str) -> str:
    found = text.strip()
    if not found or len(found) > _LONGEST_TEXT:
        msg = f"{what} must have 1 to {_LONGEST_TEXT:,} characters"
        raise UsageError(msg)
    try:
        found.encode()
    except UnicodeEncodeError:
        msg = f"{what} contains half a character (an unpaired surrogate)"
        raise UsageError(msg) from None
    return found
