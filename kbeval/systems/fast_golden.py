"""Gold files of grounded question answering, read by the engine: the entries stay in the session unless Python asks."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from kbeval.golden import STRUCTURE, Golden, load_golden
from kbeval.golden.labels import OTHER_ID, SPELLINGS
from kbeval.systems.fast_lines import (
    all_lines_match,
    has_any,
    has_duplicates,
    is_list_of_text,
    may_be_non_text,
    scan_values,
    show_lines,
    try_create,
)

if TYPE_CHECKING:
    from kbeval.engine.session import Loader, Session

# Fields that are lists of text, and the column of `gold_items` that each is read into.
_LISTS = {"expected_chunk_ids": "chunks", "gold_claim_substr": "claims", "constraints": "constraints"}
# The fields of an ordinary file; it has no others.
_ORDINARY = ("qid", "question", "answerable", "gold_claim_substr", "gold_citations")
_FIELDS = {"id", "query", "answerable", *_LISTS}


class _Entries(Sequence[Mapping[str, Any]]):
    """The entries, read only if they are requested."""

    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        self._count = count
        self._entries: Sequence[Mapping[str, Any]] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, place: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if self._entries is None:
            self._entries = load_golden(self._path).entries
        return self._entries[place]


class QuickGolden(Golden):
    """Golden queries whose entries are already in a session."""

    def __init__(self, path: Path, count: int, fields: Collection[str]) -> None:
        super().__init__(str(path), _Entries(path, count))
        # Known without reading the entries.
        self._fields = frozenset(fields)

    @functools.cached_property
    def has_span_labels(self) -> bool:
        """No: a file with spans has a field that is not read here."""
        return False

    def prepare(self) -> None:
        """Nothing to do: the session holds the entries."""

    def loader(self) -> Loader:
        def load(session: Session) -> None:
            session.execute(
                "CREATE VIEW golden_entries AS SELECT struct_update("
                f"from_json('{{}}', '{STRUCTURE}'), id := id, query := query, answerable := answerable,"
                " expected_chunk_ids := chunks, gold_claim_substr := claims) AS e FROM gold_items"
            )

        return load


def read_quickly(session: Session, path: Path) -> QuickGolden | None:
    """Read a gold file into a session; None if it is irregular and `load_golden` must read it."""
    if path.suffix.lower() not in (".jsonl", ".ndjson") or not show_lines(session, path, "gold_lines"):
        return None
    shapes = _shapes(session)
    if not shapes or not all(_is_plain(*shape) for shape in shapes) or _is_odd(session):
        return None
    looks = [scan_values(session, "gold_items", lists) for lists in _LISTS.values()]
    if any(has_empty for has_empty, _ in looks):
        return None
    texts = f"{may_be_non_text('id')} OR {may_be_non_text('query')}"
    is_doubtful = any(is_doubtful for _, is_doubtful in looks) or has_any(session, "gold_items", texts)
    if is_doubtful and not all_lines_match(session, "gold_lines", _is_right):
        return None
    fields = {name for names, *_ in shapes for name in _known(names)}
    return QuickGolden(path, sum(items for _, items, *_ in shapes), fields)


def _shapes(session: Session) -> list[tuple[Any, ...]]:
    """Parse the lines: which fields do they have, and how many of each were read? Empty if they cannot be parsed."""
    counts = ", ".join(f"COUNT({column})" for column in ("*", "answerable", *_LISTS.values()))
    if try_create(session, "gold_items") and not has_any(session, "gold_items", "has_more"):
        return session.rows(f"SELECT $1, {counts} FROM gold_items", [list(_ORDINARY)])
    session.execute("DROP TABLE IF EXISTS gold_items")
    if not try_create(session, "gold_items", "gold_items_of_any_shape"):
        return []
    return session.rows(f"SELECT names, {counts} FROM gold_items GROUP BY ALL")


def _is_odd(session: Session) -> bool:
    """Is a required field empty, is an id duplicated, or is the file empty?"""
    ((items, questions),) = session.rows("SELECT COUNT(*), COUNT(DISTINCT id) FROM gold_items")
    empty = "is_odd OR COALESCE(id, '') = '' OR COALESCE(query, '') = ''"
    return not 0 < items == questions or has_any(session, "gold_items", empty)


def _is_plain(names: list[str] | None, items: int, *counts: int) -> bool:
    """For lines with these fields: is each field known, present once, in one spelling, and read?"""
    known = _known(names or ())
    if has_duplicates(known) or not set(known) <= _FIELDS or not {"id", "query"} <= set(known):
        return False
    read = zip(("answerable", *_LISTS), counts, strict=True)
    return all(count == items for name, count in read if name in known)


def _known(names: Iterable[str]) -> list[str]:
    """The canonical names of the fields. As in `load_golden`, q_id is the id if there is no other."""
    known = [SPELLINGS.get(name, name) for name in names]
    return known if "id" in known else ["id" if name == OTHER_ID else name for name in known]


def _is_right(item: dict[str, Any]) -> bool:
    """Of a JSON structure: is everything that is read text, or a list of texts?"""
    found = dict(zip(_known(item), item.values(), strict=True))
    return found["id"] == found["query"] == "VARCHAR" and all(is_list_of_text(found.get(name)) for name in _LISTS)
