"""A labelling session: what to decide next, and every action of the two front ends.

Each decision is committed to the database at once. It is written to the golden file when the user leaves the query, or
at the next start if the process was killed before that.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbeval.errors import GoldenError, KbevalError, UsageError
from kbeval.live.labelling.candidates import Candidate, Reader, items_of_hits
from kbeval.live.labelling.changes import SPANS, Same, contains_label
from kbeval.live.labelling.consensus import Consensus, key_of
from kbeval.live.labelling.order import Chosen, make_pool, order_of
from kbeval.live.labelling.places import passage_spans
from kbeval.live.labelling.views import QueryView, advice_on, has_support, seen_by
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
    WRITTEN,
    YES,
    About,
    Decision,
    LabelStore,
    check_known,
)

__all__ = ["Chosen", "DoubtError", "Labelling", "QueryView"]

_LONGEST_TEXT = 20_000


class DoubtError(UsageError):
    """The action contradicts existing labels; it is performed if it is requested once more."""


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
        self._texts: dict[str, Sequence[Candidate]] = {}
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        self._stack.enter_context(self._store)
        try:
            self._store.make_table()
            self._decided = self._store.current()
            self._pool = make_pool(self._database, self.file.golden, self.chosen, self._decided, self._fresh)
            self._reader = Reader(self._store)
            # Decisions from before a crash that are not in the file yet.
            self.saved_before = self._write(None)
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
        """How many queries and how many candidates are still to be decided."""
        with self._lock:
            settling = Consensus(self._decided).open_counts() if self.chosen.to_settle else None
            counts = [
                self._open_count(query_id) if settling is None else settling.get(query_id, 0) for query_id in self.queue
            ]
            return sum(count > 0 for count in counts), sum(counts)

    def _open_count(self, query_id: str) -> int:
        if self.chosen.to_settle:
            return Consensus([one for one in self._decided if one.query_id == query_id]).open_counts().get(query_id, 0)
        if query_id in self._views:
            return self._views[query_id].open
        pool = self._pool.queries.get(query_id)
        if pool is None:
            # Nothing was returned for it yet; it is done once there is any decision about it.
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
        """A query with its candidates and decisions."""
        with self._lock:
            entry = self.file.golden.get(query_id)
            if entry is None:
                msg = f"{self.file.path} has no query {query_id!r}"
                raise UsageError(msg)
            if query_id not in self._texts:
                self._texts[query_id] = self._candidates(query_id, entry)
            candidates = self._texts[query_id]
            found = seen_by(self.chosen, query_id, entry, candidates, self._store.current(query_id))
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
            if one.is_question:
                return self._settle_field(query_id, key, value, after)
            view = self._views[query_id]
            if value == YES and view.answerable is False:
                msg = f"{query_id} is marked as unanswerable: press a if it can be answered, then label it"
                raise UsageError(msg)
            about = _about(one, part if value == YES else None)
            state = KEPT if value == SKIP else PENDING
            settles = self.chosen.to_settle and value != SKIP
            made = Decision(query_id, self.chosen.annotator, SUPPORTS, key, value, about, settles, state)
            self._add(made, after)
            return replace(self.view(query_id), advice=self._advice(made, one, part))

    def _settle_field(self, query_id: str, key: str, value: str, after: int | None) -> QueryView:
        field, _, item = key.partition(":")
        if value == SKIP:
            return self.view(query_id)
        if field == ANSWERABLE:
            return self.set_answerable(query_id, value == YES, after, is_sure=True)
        return self.set_rule(query_id, item, is_wanted=value == YES, after=after)

    def _advice(self, made: Decision, one: Candidate, part: tuple[int, int] | None) -> str:
        if self.file.form_of(made.query_id) != SPANS:
            return ""
        if made.value == YES and contains_label(made, self.file.golden.get(made.query_id) or {}):
            return "Part of this text is labelled already. To label another part as well, select it."
        return advice_on(made, one, part)

    def decide_rest(self, query_id: str, after: int | None = None) -> QueryView:
        """Mark every open candidate as not supporting. `after`: the last decision about it that the caller knows."""
        with self._lock:
            view = self.view(query_id)
            if after is not None:
                check_known(after, view.latest)
            if view.is_settling:
                msg = "disagreements are settled one by one"
                raise UsageError(msg)
            for one in view.candidates:
                if not one.is_labelled and view.decided.get(one.key, SKIP) == SKIP:
                    self.decide(query_id, one.key, NO)
            return self.view(query_id)

    def set_answerable(
        self, query_id: str, value: bool | None, after: int | None = None, *, is_sure: bool = False
    ) -> QueryView:
        """Can the query be answered from the documents? None: unknown. `is_sure`: even if labels contradict it."""
        with self._lock:
            view = self.view(query_id)
            if value is False and not is_sure and has_support(view):
                msg = f"{query_id} has a text that answers it: press x again to mark it as unanswerable anyway"
                raise DoubtError(msg)
            change = {"from": view.entry.get("answerable"), "to": value}
            settles = self.chosen.to_settle and value is not None
            self._add(Decision(query_id, self.chosen.annotator, ANSWERABLE, "", change, is_settlement=settles), after)
            return self._written(query_id, key_of(ANSWERABLE, ""))

    def set_query(self, query_id: str, text: str, after: int | None = None) -> QueryView:
        """Change the wording of the query."""
        with self._lock:
            former = self.view(query_id).entry["query"]
            change = {"from": former, "to": _checked(text, "the query")}
            self._add(Decision(query_id, self.chosen.annotator, QUERY, "", change), after)
            return self._written(query_id)

    def add_query(self, query_id: str, text: str) -> QueryView:
        """Add a query at the end of the file."""
        with self._lock:
            query_id = _checked(query_id, "the id")
            if self.file.golden.get(query_id) is not None:
                msg = f"{self.file.path} already has a query {query_id!r}; choose another id"
                raise UsageError(msg)
            self._add(Decision(query_id, self.chosen.annotator, ENTRY, "", _checked(text, "the query")), None)
            saved = self._write(query_id)
            if saved.problems or self.file.golden.get(query_id) is None:
                raise UsageError("; ".join(saved.problems) or f"{query_id} was not written")
            self.queue.append(query_id)
            return self.view(query_id)

    def set_rule(self, query_id: str, text: str, *, is_wanted: bool, after: int | None = None) -> QueryView:
        """Must an answer contain this text?"""
        with self._lock:
            item = _checked(text, "the text")
            # An unknown query is an error before anything is stored.
            self.view(query_id)
            settles = self.chosen.to_settle
            made = Decision(query_id, self.chosen.annotator, MUST_CONTAIN, item, is_wanted, is_settlement=settles)
            self._add(made, after)
            return self._written(query_id, key_of(MUST_CONTAIN, item))

    def set_note(self, query_id: str, text: str, after: int | None = None) -> QueryView:
        """A note about the query, kept in the database."""
        with self._lock:
            self.view(query_id)
            self._add(Decision(query_id, self.chosen.annotator, NOTE, "", text[:_LONGEST_TEXT], state=KEPT), after)
            return self.view(query_id)

    def latest(self) -> int:
        """The number of the decision that an undo would revert; 0 if there is none."""
        with self._lock:
            last = self._store.latest(self.chosen.annotator)
            return 0 if last is None else last.label_no

    def undo(self, after: int | None = None) -> str | None:
        """Undo the last decision of this person that is still in force; returns its query.

        `after`: the number of the last decision that the caller knows.
        """
        with self._lock:
            last = self._store.latest(self.chosen.annotator)
            if after is not None:
                check_known(after, 0 if last is None else last.label_no)
            if last is None:
                return None
            if last.state == WRITTEN:
                # If the process is killed before the undo is stored, the next start writes it again.
                self._store.mark({last.label_no: (PENDING, last.written)})
            if (problem := self.file.undo(last)) is not None:
                self._store.mark({last.label_no: (last.state, last.written)})
                raise UsageError(problem)
            self._store.undo(last.label_no)
            self._decided = self._store.current()
            if last.field == ENTRY:
                self._views.pop(last.query_id, None)
                self._texts.pop(last.query_id, None)
                self.queue = [query_id for query_id in self.queue if query_id != last.query_id]
            elif self.file.golden.get(last.query_id) is not None:
                self.view(last.query_id)
            return last.query_id

    def save(self, query_id: str | None = None) -> Saved:
        """Write the decisions about one query, or about all (None), to the golden file."""
        with self._lock:
            return self._write(query_id)

    # --- internals ---------------------------------------------------------------------------------------

    def _candidate(self, query_id: str, key: str) -> Candidate:
        view = self._views.get(query_id) or self.view(query_id)
        for one in view.candidates:
            if one.key == key:
                return one
        msg = f"query {query_id!r} has no such candidate; reload it"
        raise UsageError(msg)

    def _add(self, decision: Decision, after: int | None) -> None:
        self._decided.append(self._store.add(decision, after))

    def _written(self, query_id: str, key: str = "") -> QueryView:
        """Write the pending decisions about a query. Raises an error that says what was not written, and why."""
        saved = self._write(query_id)
        if saved.problems:
            raise UsageError("; ".join(saved.problems))
        view = self.view(query_id)
        is_held = key in view.disputes and key not in view.settled
        return replace(view, advice="Not written: people disagree on it.") if is_held else view

    def _write(self, query_id: str | None) -> Saved:
        try:
            saved = self.file.write(self._store, query_id, self._same_as)
        except GoldenError as error:
            # The file is incomplete at the moment: everything stays pending.
            saved = Saved(problems=[f"{self.file.path} cannot be read now: {'; '.join(error.faults)}"])
        except KbevalError as error:
            saved = Saved(problems=[error.headline])
        self.problems += saved.problems
        return saved

    def _same_as(self, decision: Decision) -> Same:
        if decision.field != SUPPORTS:
            return Same()
        try:
            self.view(decision.query_id)
        except KbevalError:
            return Same()
        texts = self._texts[decision.query_id]
        own = next((one for one in texts if decision.item in one.keys), None)
        others = [one.text for one in texts if decision.item not in one.keys]
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
        msg = f"{what} contains an unpaired surrogate"
        raise UsageError(msg) from None
    return found
