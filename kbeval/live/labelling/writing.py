"""Writes decisions to the golden file: atomically, with a backup, and without overwriting changes made by others.

Each write begins by reading the current file, under a lock that other labelling processes take, too. A decision is then
applied to the current entry: edits made by hand in the meantime are kept. If the value that the decision is about was
itself edited, the decision is refused and the file is not changed.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbeval.errors import GoldenError, UsageError
from kbeval.golden import Golden, load_golden
from kbeval.golden.editing import (
    REMOVED,
    Document,
    NotEditableError,
    add_entry,
    change_entry,
    remove_entry,
    replace_entry,
    take_apart,
)
from kbeval.golden.labels import SPELLINGS, check_entries, group_faults
from kbeval.golden.reading import as_text, read_bytes
from kbeval.golden.writing_values import is_bare
from kbeval.live.labelling.changes import ConflictError, Same, changes_of, form_of, usual_form, usual_names
from kbeval.live.labelling.consensus import Consensus
from kbeval.storage.labels import ENTRY, HELD, PENDING, REFUSED, WRITTEN, Decision, LabelStore
from kbeval.util.files import write_whole
from kbeval.util.garbage import no_garbage_collection
from kbeval.util.locks import take_lock

_PATIENCE_SECONDS = 10.0


@dataclass
class Saved:
    """The result of writing decisions."""

    written: int = 0
    # Not written because people disagree; written once that is settled.
    held: int = 0
    problems: list[str] = field(default_factory=list)


class GoldenFile:
    """A golden file that is being labelled."""

    def __init__(self, path: Path, database: Path, form: str | None = None) -> None:
        """`form`: the form of new labels, even if the entries use another one."""
        self.path = path
        self._database = database
        self._form = form
        self._backup: Path | None = None
        if path.suffix.lower() == ".parquet":
            msg = f"{path} is the golden file of an archive, which is never changed; use the original golden file"
            raise UsageError(msg)
        self._content = b""
        self._document: Document | None = None
        self.golden = self.read()

    @property
    def backup(self) -> Path | None:
        """The file as it was before this session first changed it."""
        return self._backup

    def read(self) -> Golden:
        """The entries as they are now."""
        self._content, self._document = read_regular(self.path), None
        self.golden = load_golden(self.path, groups_must_agree=False)
        return self.golden

    def form_of(self, query_id: str) -> str:
        """The form of a query's labels: spans, chunks or supports."""
        return self._form or form_of(self.golden.get(query_id) or {}, usual_form(self.golden.entries))

    # --- writing -----------------------------------------------------------------------------------------

    def write(self, store: LabelStore, query_id: str | None, same_as: Callable[[Decision], Same]) -> Saved:
        """Apply the decisions about one query, or about all (None), and record the result of each in the database."""
        saved = Saved()
        if not store.pending(query_id):
            return saved
        with self._alone(), no_garbage_collection():
            # Read again: another process may have written some of it while this one waited.
            decisions, consensus = store.pending(query_id), Consensus(store.current(query_id))
            content, document = self._current()
            states: dict[int, tuple[str, Mapping[str, Any] | None]] = {}
            for decision in decisions:
                if consensus.is_disputed(decision) or consensus.is_settled(decision):
                    states[decision.label_no] = HELD, None
                    saved.held += consensus.is_disputed(decision)
                    continue
                try:
                    document, written = self._applied(document, decision, same_as(decision))
                except (ConflictError, GoldenError) as error:
                    states[decision.label_no] = REFUSED, None
                    saved.problems.append(
                        f"{decision.query_id}: {'; '.join(_reasons(error))}; not written, the file was not changed"
                    )
                    continue
                # A decision that was written before a crash changes nothing now; how to undo it is already stored.
                states[decision.label_no] = WRITTEN, written or decision.written
                saved.written += 1
            # Recorded first, so that a crash in between loses nothing: applying a decision again changes nothing.
            store.mark(
                {number: (PENDING, kept) for number, (state, kept) in states.items() if state == WRITTEN and kept}
            )
            self._replace(content, document)
            store.mark(states)
        return saved

    def undo(self, decision: Decision) -> str | None:
        """Undo what a decision changed in the file. Returns the problem if that is not possible, or None."""
        written = decision.written
        if written is None or written["before"] == written["after"]:
            return None
        with self._alone(), no_garbage_collection():
            content, document = self._current()
            number = document.number_of(decision.query_id)
            if number is None:
                return f"{decision.query_id} is no longer in {self.path}; the file was not changed"
            try:
                if document.entry_text(number) != written["after"]:
                    document = self._undone_by_fields(document, number, written)
                elif written["before"] is None:
                    document = remove_entry(document, number)
                else:
                    document = replace_entry(document, number, str(written["before"]))
            except (ConflictError, GoldenError) as error:
                return f"{decision.query_id}: {'; '.join(_reasons(error))}; the file was not changed"
            self._replace(content, document)
        return None

    @staticmethod
    def _undone_by_fields(document: Document, number: int, written: Mapping[str, Any]) -> Document:
        """If the entry was edited since, undo only what the decision added or removed."""
        if written["before"] is None:
            msg = "the entry was edited after it was added"
            raise ConflictError(msg)
        changes: dict[str, Any] = {}
        own = document.entries[number].fields
        for name, (before, after) in written["fields"].items():
            now = own.get(name)
            if isinstance(before, list | None) and isinstance(after, list | None) and isinstance(now, list | None):
                added = [item for item in after or () if item not in (before or ())]
                removed = [item for item in before or () if item not in (after or ())]
                left = [item for item in now or () if not any(_alike(item, one) for one in added)]
                changes[name] = [*left, *removed] or (REMOVED if before is None else [])
            elif _alike(now, after):
                changes[name] = REMOVED if before is None else before
            else:
                msg = f"{name} was edited since"
                raise ConflictError(msg)
        return change_entry(document, number, changes)

    def _applied(self, document: Document, decision: Decision, same: Same) -> tuple[Document, dict[str, Any] | None]:
        number = document.number_of(decision.query_id)
        if decision.field == ENTRY:
            if number is not None:
                there = check_entries([document.entries[number]]).entries
                if not there or there[0].get("query") != decision.value:
                    msg = "the file now has another query with this id"
                    raise ConflictError(msg)
                return document, None
            changed = add_entry(document, {"id": decision.query_id, "query": decision.value})
            return changed, {"before": None, "after": changed.entry_text(len(changed.entries) - 1), "fields": {}}
        if number is None:
            msg = f"it is no longer in {self.path.name}"
            raise ConflictError(msg)
        entries = check_entries(document.entries).entries
        entry = next((one for one in entries if one["id"] == decision.query_id), {})
        form = self._form or form_of(entry, usual_form(entries))
        changes = changes_of(decision, entry, form, same, usual_names(entry, entries))
        if not changes:
            return document, None
        raw = document.entries[number].fields
        spelt = {name: next((s for s, n in SPELLINGS.items() if n == name and s in raw), name) for name in changes}
        changes = {spelt[name]: _as_it_was(entry.get(name), raw.get(spelt[name]), new) for name, new in changes.items()}
        changed = self._without_faults(document, number, changes)
        fields = {name: [_plain(raw.get(name)), _plain(changed.entries[number].fields.get(name))] for name in changes}
        before, after = document.entry_text(number), changed.entry_text(number)
        return changed, {"before": before, "after": after, "fields": fields}

    def _without_faults(self, document: Document, number: int, changes: Mapping[str, Any]) -> Document:
        """The document with the changes; without expected_doc_ids if queries of a group would then differ."""
        faults = _faults(document)
        changed = change_entry(document, number, changes)
        if _faults(changed) <= faults:
            return changed
        fewer = {name: value for name, value in changes.items() if name != "expected_doc_ids"}
        changed = change_entry(document, number, fewer)
        if _faults(changed) <= faults:
            return changed
        raise NotEditableError(str(self.path), sorted(_faults(changed) - faults))

    # --- the file ----------------------------------------------------------------------------------------

    def _current(self) -> tuple[bytes, Document]:
        content = read_regular(self.path)
        if self._document is not None and content == self._content:
            return content, self._document
        document = take_apart(self.path, _with_line_feeds(as_text(self.path, content)))
        if faults := check_entries(document.entries).faults:
            # It may be being edited by hand: nothing is lost by waiting until it is complete again.
            raise GoldenError(str(self.path), [text for _, text in sorted(faults)])
        return content, document

    def _replace(self, content: bytes, document: Document) -> None:
        mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
        text = document.text.replace("\n", "\r") if _ends_lines_by_cr(content) else document.text
        new = mark + text.encode("utf-8")
        if new == content:
            self._took(content, document)
            return
        if self._backup is None:
            self._backup = self._kept(content)
        if read_regular(self.path) != content:
            msg = f"{self.path} was just changed by another program; nothing was written, save again"
            raise UsageError(msg)
        write_whole(self.path, new, [self._database])
        self._took(new, document)

    def _took(self, content: bytes, document: Document) -> None:
        """Remember the current content of the file."""
        checked = check_entries(document.entries)
        self._content, self._document = content, document
        self.golden = Golden(str(self.path), checked.entries, checked.warnings, checked.lines)

    def _kept(self, content: bytes) -> Path:
        moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        for more in ("", *(f"-{number}" for number in range(2, 1000))):
            path = self.path.with_name(f"{self.path.name}.{moment}{more}.bak")
            if not path.exists():
                write_whole(path, content, [self._database, self.path])
                return path
        msg = f"cannot make a backup of {self.path}: remove old ones ({self.path.name}.*.bak)"
        raise UsageError(msg)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other labelling processes from writing this file."""
        name = hashlib.sha256(os.fsencode(os.path.realpath(self.path))).hexdigest()[:24]
        lock = Path(tempfile.gettempdir()) / f"kbeval-label-{os.getuid()}-{name}.lock"
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError:
            yield
            return
        try:
            if take_lock(handle, exclusive=True, patience=_PATIENCE_SECONDS) is False:
                msg = f"{self.path} is locked by another labelling process; try again"
                raise UsageError(msg)
            yield
        finally:
            os.close(handle)


def read_regular(path: Path) -> bytes:
    """The content of a regular file: reading from a pipe would block, and writing would replace it."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        # Raises the same error as other commands.
        return read_bytes(path)
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read()
    finally:
        os.close(handle)
    if path.is_dir():
        return read_bytes(path)
    raise GoldenError(str(path), ["it is a pipe or a device; labelling needs a regular file"])


def _ends_lines_by_cr(content: bytes) -> bool:
    return b"\r" in content and b"\n" not in content


def _with_line_feeds(text: str) -> str:
    """A file whose lines end with CR alone is edited like any other, and written with CR again."""
    return text.replace("\r", "\n") if "\n" not in text else text


def _reasons(error: ConflictError | GoldenError) -> Sequence[str]:
    return error.faults if isinstance(error, GoldenError) else [str(error)]


def _faults(document: Document) -> set[str]:
    checked = check_entries(document.entries)
    # Without line numbers, which change.
    return {text.partition(", ")[2] for _, text in (*checked.faults, *group_faults(checked))}


def _as_it_was(normal: Any, raw: Any, new: Any) -> Any:  # noqa: ANN401  (values of a field)
    """The items of a new list as in the file: with their original spelling and unknown fields."""
    if (
        not isinstance(new, list)
        or not isinstance(raw, list)
        or not isinstance(normal, list)
        or len(raw) != len(normal)
    ):
        return new
    known = {id(item): as_read for item, as_read in zip(normal, raw, strict=True)}
    found = [known.get(id(item), item) for item in new]
    if len(found) == len(raw):
        # One item was changed in place.
        pairs = zip(found, raw, strict=True)
        found = [{**old, **item} if isinstance(item, dict) and isinstance(old, dict) else item for item, old in pairs]
    return found


def _plain(value: Any) -> Any:  # noqa: ANN401
    """As JSON for the database, with numbers and booleans as such."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if is_bare(value):
        with contextlib.suppress(ValueError):
            return json.loads(value.lower())
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _alike(a: Any, b: Any) -> bool:  # noqa: ANN401
    return bool(_plain(a) == _plain(b))
