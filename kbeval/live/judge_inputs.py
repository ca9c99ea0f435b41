"""What a judge is given to read about each answer of a run: question, answer, context and expected facts.

The context must be what the answering system saw. A text that was cut when it was stored is not; the whole text is
taken from the table `chunks` where it is proven to be the same: by its SHA-256, or by chunk id, chunker version and
what is left of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbeval.errors import BadRowsError
from kbeval.golden import Golden
from kbeval.storage.options import ReadOptions
from kbeval.storage.run_config import chunker_version, config_of
from kbeval.storage.runs import Run, broken_runs, find_run, key_faults
from kbeval.storage.source import open_database, with_or_without_copy
from kbeval.util.strict_json import parse

if TYPE_CHECKING:
    from pathlib import Path

    from kbeval.storage.sqlite import SqliteSource

FROM_ROW, FROM_CHUNKS, MISSING = "row", "chunks", "missing"
_CUT_LENGTHS = range(200, 204)
_ROWS = "rows_to_judge"
NOT_STORED = "(the text of this passage is not stored)"


@dataclass(frozen=True)
class Passage:
    """The text of one hit, as far as it is known."""

    rank: int
    chunk_id: str | None
    text: str
    source: str
    is_cut: bool

    def as_json(self) -> dict[str, Any]:
        """Where it came from, without its text."""
        return {"rank": self.rank, "chunk_id": self.chunk_id, "from": self.source, "is_cut": self.is_cut}


@dataclass(frozen=True)
class Answer:
    """An answer to be judged."""

    query_id: str
    # Changes whenever the stored row changes.
    row_mark: str
    question: str
    answer: str
    passages: tuple[Passage, ...]
    expected_key_facts: tuple[str, ...]

    @property
    def has_cut_context(self) -> bool:
        """Is part of what the system saw unknown?"""
        return any(passage.is_cut for passage in self.passages)

    def values(self) -> dict[str, str | list[str]]:
        """What placeholders are filled with."""
        return {
            "question": self.question,
            "answer": self.answer,
            "context": [passage.text for passage in self.passages],
            "expected_key_facts": [f"- {fact}" for fact in self.expected_key_facts],
        }


@dataclass(frozen=True)
class Answers:
    """The answers of a run that a judge is asked about."""

    run: Run
    answers: tuple[Answer, ...]
    # Rows that are not judged: refusals, failures, no answer.
    others: int


def read_answers(path: Path, name: str, golden: Golden | None, options: ReadOptions, suite: str | None) -> Answers:
    """The answers of a run, by its name."""
    return with_or_without_copy(options, lambda options: _read(path, name, golden, options, suite))


def _read(
    path: str | os.PathLike[str], name: str, golden: Golden | None, options: ReadOptions, suite: str | None
) -> Answers:
    from pathlib import Path

    with open_database(Path(path), options) as (session, source):
        stored = source.runs()
        run = find_run(stored, name, str(path), suite)
        if repeated := key_faults(source, stored, [run]):
            raise broken_runs(repeated, "cannot be judged")
        source.feed(session, [run.run_id])
        session.need("judgeable", "bad_rows")
        if faults := session.rows("SELECT query_id, fault FROM bad_rows ORDER BY query_id"):
            named = [f"run {run.run_id}, query {query_id}: {fault}" for query_id, fault in faults]
            raise BadRowsError(named, "nothing was judged; repair or delete them first:")
        source.load_rows(session, _ROWS, [run.run_id])
        found = session.rows(
            "SELECT j.query_id, CAST(j.row_mark AS VARCHAR), CAST(s.result_json AS VARCHAR)"
            f" FROM judgeable AS j JOIN {_ROWS} AS s ON CAST(s.query_id AS VARCHAR) = j.query_id ORDER BY j.query_id"
        )
        ((rows,),) = session.rows("SELECT COUNT(*) FROM results")
        entries = {} if golden is None else {entry["id"]: entry for entry in golden.entries}
        parsed = [(query_id, mark, parse(text)) for query_id, mark, text in found]
        texts = _Texts(source, run, [row for _, _, row in parsed])
        answers = tuple(
            _answer(query_id, mark, row, entries.get(query_id) or {}, texts) for query_id, mark, row in parsed
        )
    return Answers(run, answers, rows - len(answers))


def _answer(query_id: str, mark: str, row: Mapping[str, Any], entry: Mapping[str, Any], texts: _Texts) -> Answer:
    question = next((row[name] for name in ("query", "question") if isinstance(row.get(name), str) and row[name]), None)
    facts = entry.get("expected_key_facts") or ()
    return Answer(
        query_id,
        mark,
        _plain(question or str(entry.get("query") or "")),
        _plain(str(row["answer"].get("answer") or "")),
        tuple(texts.passage(hit, rank) for rank, hit in texts.hits(row)),
        tuple(_plain(str(fact)) for fact in facts),
    )


class _Texts:
    """Finds the texts of hits."""

    def __init__(self, source: SqliteSource, run: Run, rows: Sequence[Mapping[str, Any]]) -> None:
        config = config_of(run)
        self._version = chunker_version(config)
        k = config.get("eval_k", config.get("k"))
        self._k = k if isinstance(k, int) and not isinstance(k, bool) and k > 0 else None
        wanted = {
            chunk_id
            for row in rows
            for _, hit in self.hits(row)
            if _stored_text(hit).is_cut and (chunk_id := _id(hit)) is not None
        }
        self._chunks: dict[str, list[tuple[str, str]]] = {}
        for chunk_id, version, text, _ in source.chunk_details(sorted(wanted)):
            if text:
                self._chunks.setdefault(str(chunk_id), []).append((str(version), text))

    def hits(self, row: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
        """The hits that the system answered from, with their ranks: as many as the run asked for."""
        found = []
        hits = row.get("hits_top_k")
        for place, hit in enumerate(hits if isinstance(hits, list) else (), start=1):
            if isinstance(hit, dict):
                rank = hit.get("rank")
                found.append((rank if isinstance(rank, int) and not isinstance(rank, bool) else place, place, hit))
        found.sort(key=lambda one: one[:2])
        return [(rank, hit) for rank, _, hit in found if self._k is None or rank <= self._k]

    def passage(self, hit: Mapping[str, Any], rank: int) -> Passage:
        """The text of a hit, in full if it is available."""
        stored, chunk_id = _stored_text(hit), _id(hit)
        if not stored.is_cut:
            return Passage(rank, chunk_id, _plain(stored.text), FROM_ROW, is_cut=False)
        version = hit.get("chunker_version") or self._version
        for known, text in self._chunks.get(chunk_id or "", ()):
            if stored.is_proven(text, is_same_version=version is not None and known == version):
                return Passage(rank, chunk_id, _plain(text), FROM_CHUNKS, is_cut=False)
        if not stored.text:
            return Passage(rank, chunk_id, NOT_STORED, MISSING, is_cut=True)
        return Passage(rank, chunk_id, _plain(stored.text), FROM_ROW, is_cut=True)


@dataclass(frozen=True)
class _Stored:
    """What a row stores of a hit's text."""

    text: str
    is_cut: bool
    sha256: str | None
    is_beginning: bool

    def is_proven(self, whole: str, *, is_same_version: bool) -> bool:
        """Is this the text that was cut?"""
        if self.sha256 is not None:
            return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest() == self.sha256.lower()
        left = _words(self.text.removesuffix("...").removesuffix("…"))
        return is_same_version and (_words(whole).startswith(left) if self.is_beginning else left in _words(whole))


def _stored_text(hit: Mapping[str, Any]) -> _Stored:
    """The hit's `text`, else its `snippet`, which may come from anywhere in the text."""
    for name in ("text", "snippet"):
        text, mark = hit.get(name), hit.get(f"{name}_sha256")
        if not isinstance(text, str) or not text:
            continue
        sha256 = mark if isinstance(mark, str) and mark else None
        if sha256 is not None:
            is_cut = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() != sha256.lower()
        elif name == "text":
            is_cut = text.endswith("...") and len(text) in _CUT_LENGTHS
        else:
            is_cut = text.endswith(("...", "…"))
        return _Stored(text, is_cut, sha256, name == "text")
    return _Stored("", is_cut=True, sha256=None, is_beginning=True)


def _id(hit: Mapping[str, Any]) -> str | None:
    found = hit.get("chunk_id")
    return None if found is None or isinstance(found, bool | dict | list) else str(found)


def _words(text: str) -> str:
    return " ".join(text.split())


def _plain(text: str) -> str:
    """Without unpaired surrogates, which servers and databases do not accept."""
    return text.encode("utf-8", "replace").decode()
