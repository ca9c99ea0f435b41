"""Gold files of grounded question answering, read by the engine: a session has the entries, Python only if it asks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from kbeval.golden import STRUCTURE, Golden, load_golden
from kbeval.golden.labels import OTHER_ID, SPELLINGS
from kbeval.jsonlines import all_are, has_any, is_list_of_text, look_into, maybe_no_text, opens, says_twice, show_lines

if TYPE_CHECKING:
    from kbeval.engine import Loader, Session

# Fields that are lists of text, and the column of `gold_items` that each is read into.
_LISTS = {"expected_chunk_ids": "chunks", "gold_claim_substr": "claims", "constraints": "constraints"}
# The fields that such files mostly have, and no others.
_ORDINARY = ("qid", "question", "answerable", "gold_claim_substr", "gold_citations")
_FIELDS = {"id", "query", "answerable", *_LISTS}


class _Entries(Sequence[Mapping[str, Any]]):
    """The entries for whoever asks for them after all: read then."""

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
    """Golden queries whose entries a session holds already."""

    def __init__(self, path: Path, count: int, fields: Collection[str]) -> None:
        super().__init__(str(path), _Entries(path, count))
        self._fields = fields

    def has(self, field: str) -> bool:
        return field in self._fields

    def prepare(self) -> None:
        """Everything is ready."""

    def loader(self) -> Loader:
        def load(session: Session) -> None:
            session.execute(
                "CREATE VIEW golden_entries AS SELECT struct_update("
                f"from_json('{{}}', '{STRUCTURE}'), id := id, query := query, answerable := answerable,"
                " expected_chunk_ids := chunks, gold_claim_substr := claims) AS e FROM gold_items"
            )

        return load


def read_quickly(session: Session, path: Path) -> QuickGolden | None:
    """Read a gold file into a session; None where something in it is odd, and `load_golden` must read it."""
    if path.suffix.lower() not in (".jsonl", ".ndjson") or not show_lines(session, path, "gold_lines"):
        return None
    shapes = _shapes(session)
    if not shapes or not all(_is_plain(*shape) for shape in shapes) or _is_odd(session):
        return None
    looks = [look_into(session, "gold_items", lists) for lists in _LISTS.values()]
    if any(has_empty for has_empty, _ in looks):
        return None
    texts = f"{maybe_no_text('id')} OR {maybe_no_text('query')}"
    is_doubtful = any(is_doubtful for _, is_doubtful in looks) or has_any(session, "gold_items", texts)
    if is_doubtful and not all_are(session, "gold_lines", _is_right):
        return None
    fields = {name for names, *_ in shapes for name in _known(names)}
    return QuickGolden(path, sum(items for _, items, *_ in shapes), fields)


def _shapes(session: Session) -> list[tuple[Any, ...]]:
    """Open the lines: which fields do they have, and how many of each were read? Nothing where that does not work."""
    counts = ", ".join(f"COUNT({column})" for column in ("*", "answerable", *_LISTS.values()))
    if opens(session, "gold_items") and not has_any(session, "gold_items", "has_more"):
        return session.rows(f"SELECT $1, {counts} FROM gold_items", [list(_ORDINARY)])
    session.execute("DROP TABLE IF EXISTS gold_items")
    if not opens(session, "gold_items", "gold_items_of_any_shape"):
        return []
    return session.rows(f"SELECT names, {counts} FROM gold_items GROUP BY ALL")


def _is_odd(session: Session) -> bool:
    """Is anything empty that must not be, or there twice, or is there nothing at all?"""
    ((items, questions),) = session.rows("SELECT COUNT(*), COUNT(DISTINCT id) FROM gold_items")
    empty = "has_nul OR COALESCE(id, '') = '' OR COALESCE(query, '') = ''"
    return not 0 < items == questions or has_any(session, "gold_items", empty)


def _is_plain(names: list[str] | None, items: int, *counts: int) -> bool:
    """Lines with these fields: is each known, there once, in one spelling, and read?"""
    known = _known(names or ())
    if says_twice(known) or not set(known) <= _FIELDS or not {"id", "query"} <= set(known):
        return False
    read = zip(("answerable", *_LISTS), counts, strict=True)
    return all(count == items for name, count in read if name in known)


def _known(names: Iterable[str]) -> list[str]:
    """The fields in their one spelling. As `load_golden` has it, q_id is the id where there is no other."""
    known = [SPELLINGS.get(name, name) for name in names]
    return known if "id" in known else ["id" if name == OTHER_ID else name for name in known]


def _is_right(item: dict[str, Any]) -> bool:
    """A structure: all that is read is text, or lists of it."""
    found = dict(zip(_known(item), item.values(), strict=True))
    return found["id"] == found["query"] == "VARCHAR" and all(is_list_of_text(found.get(name)) for name in _LISTS)
