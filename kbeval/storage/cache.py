"""The cache next to a database: each run's rows are parsed once, and the result is kept until they change.

It can be deleted at any time and is recreated when needed. Everything in it is verified before use:

- The manifest of a part records a digest of the rows that it was made from.
- The current digest of a run's rows is found in one of two ways. Either the database's stamp is the one recorded with
  the digest, so nothing was written since; or the rows are read and the digest is recomputed. A run whose digest
  differs is parsed from the database.
- A file is used only if its size and checksum match the manifest, and a manifest only if its own checksum matches.
- A part is used only by the versions of kbeval's definitions and of DuckDB that parsed it.

Several processes may use the folder at once. Parts are immutable once they have their final name; recorded digests
are valid whichever process wrote them; and parts are deleted only while no other process is reading.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb

from kbeval.engine.quoting import literal, parquet_scan
from kbeval.engine.session import Copied, Session
from kbeval.errors import KbevalError
from kbeval.storage.cache_index import LOCK, TAG, Known, cache_folder, read_known, require_own, write_known
from kbeval.storage.digests import NO_ROWS, digests
from kbeval.storage.parts import (
    ALWAYS,
    MORE,
    PART_FILE,
    Part,
    PartRun,
    copied,
    finish_part,
    new_numbering,
    read_part,
    remove,
    write_relation,
)
from kbeval.storage.stamps import Stamp

# Below this size, parsing takes no longer than startup.
WORTH_BYTES = 32_000_000
# More parts than this are merged into one.
MOST_PARTS = 40


class Cache:
    """The cache folder of a database. Use as a context manager: while it is open, no process deletes its contents."""

    def __init__(self, database: Path) -> None:
        self.folder = cache_folder(database)
        # The stamp of the snapshot being read, if it could be verified.
        self.stamp: Stamp | None = None
        # The runs in the database, with the digest of the rows their stored numbers were computed from; the rest is
        # deleted.
        self.stored: Mapping[str, str | None] | None = None
        self._parts: list[Part] = []
        self._known: dict[str, Known] = {}

    def __enter__(self) -> Self:
        """Raises OSError if the folder cannot be used."""
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, exist_ok=True)
            (self.folder / "CACHEDIR.TAG").write_text(TAG, encoding="utf-8")
        require_own(self.folder)
        self._lock = (self.folder / LOCK).open("a", encoding="utf-8")
        try:
            self._flock(exclusive=False)
            self._known = read_known(self.folder)
            self._parts = self._read_parts()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    @property
    def clock(self) -> int:
        """An open file next to the database; see `Watch.stable_stamp`."""
        return self._lock.fileno()

    def _read_parts(self) -> list[Part]:
        found = (read_part(path) for path in sorted(self.folder.glob("part-*")))
        usable = [part for part in found if part is not None and part.engine == duckdb.__version__]
        # Parts with the basic relations come before parts that add to them.
        return _without_clashes(sorted(usable, key=lambda part: not part.holds(ALWAYS)))

    def _flock(self, *, exclusive: bool) -> bool:
        try:
            import fcntl

            fcntl.flock(self._lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except (ImportError, OSError, AttributeError):
            # Windows has no such locks; nothing is ever deleted there.
            return False
        return True

    def trusted(self) -> dict[str, str]:
        """The digests that need no recomputation: nothing was written since they were computed."""
        now = None if self.stamp is None else str(self.stamp)
        return {run_id: known.digest for run_id, known in self._known.items() if known.stamp == now}

    def suspected(self, run_ids: Collection[str]) -> list[str]:
        """The runs that are cached, provided that their rows have not changed."""
        kept = {run_id for part in self._parts if part.holds(ALWAYS) for run_id in part.runs}
        return [run_id for run_id in run_ids if run_id in kept]

    def _find(self, run_id: str, digest: str, wanted: Sequence[str], like: PartRun | None = None) -> Part | None:
        for part in self._parts:
            found = part.runs.get(run_id)
            if found is not None and found.digest == digest and part.holds(wanted) and like in (None, found):
                return part
        return None

    def choose(self, current: Mapping[str, str]) -> Choice:
        """What can be read from the cache, of runs whose rows have these digests. Damaged parts are discarded."""
        while True:
            choice = self._choose(current)
            broken = [part for part, wanted in choice.used() if not part.is_sound(wanted)]
            if not broken:
                return choice
            for part in broken:
                self._parts.remove(part)
                # Current readers are not disturbed, new ones ignore it, and `_tidy` deletes the rest.
                with contextlib.suppress(OSError):
                    (part.folder / PART_FILE).unlink(missing_ok=True)

    def is_lost(self, choice: Choice) -> bool:
        """Was a part that is being read deleted or truncated?"""
        return not all(part.is_whole() for part, _ in choice.used())

    def _choose(self, current: Mapping[str, str]) -> Choice:
        choice = Choice.none()
        for run_id, digest in current.items():
            part = self._find(run_id, digest, ALWAYS)
            if part is None:
                continue
            choice.base[run_id] = part
            for relation in MORE:
                more = self._find(run_id, digest, (relation,), part.runs[run_id])
                if more is not None:
                    choice.more[relation][run_id] = more
        return choice

    def numbering(self) -> int:
        """A number for rows that are read now, different from those of all parts."""
        return new_numbering({run.numbering for part in self._parts for run in part.runs.values()})

    def keep(self, session: Session, facts: Facts, current: Mapping[str, str]) -> None:
        """Save what the session parsed, and the known digests. A failure is ignored: the cache is optional."""
        with contextlib.suppress(OSError, duckdb.Error, KbevalError):
            self._note({**current, **facts.current})
            fresh = {run_id: facts.current[run_id] for run_id in facts.fresh if run_id in facts.current}
            if fresh and "parsed" in session.built:
                session.need(*ALWAYS)
                more = [relation for relation in MORE if relation in session.built]
                rows = dict(session.rows(f"SELECT run_id, COUNT(*) FROM {session.fresh_name('results')} GROUP BY 1"))
                runs = {
                    run_id: PartRun(digest, facts.numbering, rows.get(run_id, 0)) for run_id, digest in fresh.items()
                }
                names = {relation: session.fresh_name(relation) for relation in ALWAYS}
                self._save(session, runs, {**names, **{r: _of_runs(r, runs) for r in more}})
            self._keep_more(session, facts)
            self._tidy(session)

    def _keep_more(self, session: Session, facts: Facts) -> None:
        """Save relations that were first needed in this session, for runs that are otherwise cached."""
        for relation in MORE:
            missing = [run_id for run_id in facts.choice.base if run_id not in facts.choice.more[relation]]
            if relation in session.built and missing:
                runs = {run_id: facts.choice.base[run_id].runs[run_id] for run_id in missing}
                self._save(session, runs, {relation: _of_runs(relation, runs)})

    def _save(self, session: Session, runs: Mapping[str, PartRun], selects: Mapping[str, str]) -> None:
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=self.folder))
        try:
            for relation, select in selects.items():
                write_relation(session, f"FROM {select}", draft / f"{relation}.parquet", "lz4_raw")
            final = self.folder / f"part-{draft.name.removeprefix('draft-')}"
            self._parts.append(finish_part(draft, final, runs))
        except BaseException:
            remove(draft)
            raise

    def _note(self, current: Mapping[str, str]) -> None:
        """Record the digests of the runs' rows, and the stamp for which they hold."""
        stamp = "" if self.stamp is None else str(self.stamp)
        found = {run_id: Known(digest, stamp) for run_id, digest in current.items()}
        gone = set() if self.stored is None else self._known.keys() - self.stored.keys()
        if gone or any(self._known.get(run_id) != known for run_id, known in found.items()):
            # Other processes may have written meanwhile; their entries are equally valid.
            others = {run_id: known for run_id, known in read_known(self.folder).items() if run_id not in gone}
            self._known = {**others, **found}
            write_known(self.folder, self._known)

    def _tidy(self, session: Session) -> None:
        """Delete obsolete parts and merge the rest if there are too many; not while another process is reading."""
        if self.stored is None:
            return
        current, live = self._live_parts()
        folders = {folder.name for folder in (*self.folder.glob("part-*"), *self.folder.glob("draft-*"))}
        if folders == {folder.name for folder in current | live} and len(current) <= MOST_PARTS:
            return
        # If another process is reading, this also drops our shared lock, so it must be the last step.
        if not self._flock(exclusive=True):
            return
        try:
            # No other process is active, so drafts are leftovers, and what is read now stays valid.
            self._known = read_known(self.folder)
            self._parts = self._read_parts()
            if len(self._live_parts()[0]) > MOST_PARTS:
                self._merge(session)
            live = set().union(*self._live_parts())
            for folder in (*self.folder.glob("part-*"), *self.folder.glob("draft-*")):
                if folder not in live:
                    remove(folder)
        finally:
            self._flock(exclusive=False)

    def _live_parts(self) -> tuple[set[Path], set[Path]]:
        """The parts used for the current rows, and for the rows that stored numbers were computed from."""
        current = {run_id: known.digest for run_id, known in self._known.items()}
        earlier = {run_id: digest for run_id, digest in (self.stored or {}).items() if digest is not None}
        found = ({part.folder for part, _ in self._choose(digests).used()} for digests in (current, earlier))
        return (next(found), next(found))

    def _merge(self, session: Session) -> None:
        """Merge all runs into one part, and each relation of MORE into another. Damaged parts are left out."""
        # Only undamaged parts: a new checksum would hide the damage.
        choice = self.choose({run_id: known.digest for run_id, known in self._known.items()})
        runs = {run_id: part.runs[run_id] for run_id, part in choice.base.items()}
        if not runs:
            return
        merged = len(self._parts)
        self._save(session, runs, {relation: _joined(relation, choice.base, choice.base) for relation in ALWAYS})
        for relation in MORE:
            if of_runs := choice.more[relation]:
                select = _joined(relation, of_runs, choice.base)
                self._save(session, {run_id: runs[run_id] for run_id in of_runs}, {relation: select})
        # From now on these are chosen before the parts that they were made from.
        self._parts = [*self._parts[merged:], *self._parts[:merged]]


def _joined(relation: str, of_runs: Mapping[str, Part], base: Mapping[str, Part]) -> str:
    return f"({'UNION ALL BY NAME '.join(_live_rows(relation, of_runs, base))})"


def _live_rows(relation: str, of_runs: Mapping[str, Part], base: Mapping[str, Part]) -> Iterator[str]:
    for part, run_ids in grouped(of_runs):
        wanted = ", ".join(map(literal, run_ids))
        if relation in ("results", "bad_rows"):
            yield f"SELECT * FROM {parquet_scan(part.paths(relation))} WHERE run_id IN ({wanted}) "
            continue
        results = [
            path
            for folder, _ in grouped({run_id: base[run_id] for run_id in run_ids})
            for path in folder.paths("results")
        ]
        rows = f"SELECT result_no FROM {parquet_scan(results)} WHERE run_id IN ({wanted})"
        yield f"SELECT * FROM {parquet_scan(part.paths(relation))} WHERE result_no IN ({rows}) "


def _of_runs(relation: str, run_ids: Collection[str]) -> str:
    """The rows of some runs in a relation that has result_no but not run_id."""
    wanted = ", ".join(map(literal, run_ids))
    return f"(SELECT * FROM {relation} WHERE result_no IN (SELECT result_no FROM results WHERE run_id IN ({wanted})))"


@dataclass
class Choice:
    """Which part to read each run's facts from."""

    base: dict[str, Part]
    more: dict[str, dict[str, Part]]

    @classmethod
    def none(cls) -> Self:
        """Everything from the database."""
        return cls({}, {relation: {} for relation in MORE})

    def used(self) -> Iterator[tuple[Part, list[str]]]:
        """Every part that is read, with the relations read from it."""
        found: dict[Path, tuple[Part, list[str]]] = {}
        for part in self.base.values():
            found.setdefault(part.folder, (part, list(ALWAYS)))
        for relation, parts in self.more.items():
            for part in {part.folder: part for part in parts.values()}.values():
                found.setdefault(part.folder, (part, []))[1].append(relation)
        return iter(found.values())


@dataclass
class Facts:
    """How a session obtains the facts of some runs."""

    choice: Choice
    # Runs whose rows are parsed in this session, under this number.
    fresh: Sequence[str]
    numbering: int
    # The digest of each run's rows; for fresh runs only once they are parsed.
    current: dict[str, str]

    def copies(self) -> dict[str, Copied]:
        """What the session reads from files."""
        if not self.choice.base:
            return {}
        found = {}
        for relation in ALWAYS:
            found[relation] = copied(relation, grouped(self.choice.base), fresh=bool(self.fresh))
        for relation, parts in self.choice.more.items():
            if parts:
                found[relation] = copied(relation, grouped(parts), fresh=bool(self.lacking(relation)))
        return found

    def lacking(self, relation: str) -> list[str]:
        """The runs whose rows must be read from the database for a relation that is not always cached."""
        return [*self.fresh, *(run_id for run_id in self.choice.base if run_id not in self.choice.more[relation])]

    def compute_digests(self, session: Session) -> dict[str, str]:
        """The digests of all runs; parses the fresh ones if that has not happened yet."""
        if any(run_id not in self.current for run_id in self.fresh):
            session.need("parsed")
            found = digests(session, "parsed")
            self.current |= {run_id: found.get(run_id, NO_ROWS) for run_id in self.fresh}
        return self.current


def grouped(parts: Mapping[str, Part]) -> list[tuple[Part, list[str]]]:
    """Runs grouped by the part that holds them."""
    found: dict[Path, tuple[Part, list[str]]] = {}
    for run_id, part in parts.items():
        found.setdefault(part.folder, (part, []))[1].append(run_id)
    return list(found.values())


def _without_clashes(parts: Sequence[Part]) -> list[Part]:
    """Leave out parts whose row numbers conflict: two sessions may have drawn the same numbering."""
    owners: dict[int, dict[str, PartRun]] = {}
    found = []
    for part in parts:
        by_number: dict[int, dict[str, PartRun]] = {}
        for run_id, run in part.runs.items():
            by_number.setdefault(run.numbering, {})[run_id] = run
        if all(_agree(owners.get(number, {}), runs) for number, runs in by_number.items()):
            found.append(part)
            for number, runs in by_number.items():
                owners.setdefault(number, {}).update(runs)
    return found


def _agree(one: Mapping[str, PartRun], other: Mapping[str, PartRun]) -> bool:
    """Is it the numbering of the same session? Then both share some of its runs, with equal entries."""
    shared = one.keys() & other.keys()
    return not one or (bool(shared) and all(one[run_id] == other[run_id] for run_id in shared))
