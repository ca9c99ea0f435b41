"""The columnar copy beside a database: each run's rows are parsed once, and kept until they change.

It may be deleted at any time, and is made again. Nothing in it is believed without proof:

- Which rows a copy was made from is in its manifest, as a digest of their text.
- Which rows the database holds now is known in one of two ways. Either the database's stamp is the one under which
  the digest of a run was written down, so nothing was written since; or the rows are read and their digest is
  computed again. A run whose digest is another one is parsed from the database.
- A file of a copy counts only where its length and its checksum are those of the manifest.

Several processes may use the folder at once. Parts never change once they have their name; what is written down
about digests is true whoever wrote it; and parts are deleted only while nobody else reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb

from kbeval.columnar.digests import NO_ROWS, digests
from kbeval.columnar.parts import (
    ALWAYS,
    MORE,
    Part,
    PartRun,
    copied,
    finish_part,
    literal,
    new_numbering,
    read_part,
    reading,
    remove,
    write_relation,
)
from kbeval.engine import Copied, Session
from kbeval.errors import KbevalError
from kbeval.files import CACHE_ENDING, write_whole
from kbeval.sources.stamps import Stamp, settled_stamp, times

# Below this, parsing takes no longer than starting.
WORTH_BYTES = 32_000_000
# So many parts are merged into one.
MOST_PARTS = 40
_STATE = "rows.json"
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# The columnar copy of the database beside it, kept by kbeval. Delete it at any time: it is made again.\n"
)


@dataclass(frozen=True)
class Known:
    """The digest of a run's rows, and the stamp of the database that it was computed under ('' where there is none)."""

    digest: str
    stamp: str


class Cache:
    """The folder beside a database. Use as a context manager: while it is open, nobody deletes what is in it."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.folder = Path(f"{database.absolute()}{CACHE_ENDING}")
        self.stamp: Stamp | None = None
        # The runs that the database holds, and the rows that their stored numbers were made from; the rest is deleted.
        self.stored: Mapping[str, str | None] | None = None
        self._parts: list[Part] = []
        self._known: dict[str, Known] = {}

    def __enter__(self) -> Self:
        """Raises OSError where the folder cannot be used."""
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700)
            (self.folder / "CACHEDIR.TAG").write_text(_TAG, encoding="utf-8")
        elif hasattr(os, "geteuid") and self.folder.stat().st_uid != os.geteuid():
            # What somebody else put there is not to be believed.
            raise PermissionError(self.folder)
        self._lock = (self.folder / "lock").open("a", encoding="utf-8")
        self._flock(exclusive=False)
        self.stamp = settled_stamp(self.database)
        self._known = read_known(self.folder)
        found = (read_part(path) for path in sorted(self.folder.glob("part-*")))
        self._parts = _without_clashes([part for part in found if part is not None])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    def _flock(self, *, exclusive: bool) -> bool:
        try:
            import fcntl

            fcntl.flock(self._lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except (ImportError, OSError, AttributeError):
            # Windows has no such locks, and nothing is ever deleted there.
            return False
        return True

    def still_steady(self) -> bool:
        """Is the database as it was when this was opened? Asked from within a snapshot, whose state that then is."""
        if self.stamp is not None and times(self.database) != self.stamp.times:
            self.stamp = None
        return self.stamp is not None

    def trusted(self) -> dict[str, str]:
        """The digests that need no proof: nothing was written since they were computed."""
        now = None if self.stamp is None else str(self.stamp)
        return {run_id: known.digest for run_id, known in self._known.items() if known.stamp == now}

    def suspected(self, run_ids: Collection[str]) -> list[str]:
        """The runs that there are copies of, if only their rows are still the same."""
        return [
            run_id
            for run_id in run_ids
            if run_id in self._known and self._find(run_id, self._known[run_id].digest, ALWAYS) is not None
        ]

    def _find(self, run_id: str, digest: str, wanted: Sequence[str], like: PartRun | None = None) -> Part | None:
        for part in self._parts:
            found = part.runs.get(run_id)
            if found is not None and found.digest == digest and part.holds(wanted) and like in (None, found):
                return part
        return None

    def choose(self, current: Mapping[str, str]) -> Choice:
        """What can be read from copies, of runs whose rows have these digests now. Broken parts are forgotten."""
        while True:
            choice = self._choose(current)
            broken = [part for part, wanted in choice.used() if not part.is_sound(wanted)]
            if not broken:
                return choice
            for part in broken:
                self._parts.remove(part)
                if self._flock(exclusive=True):
                    remove(part.folder)
                    self._flock(exclusive=False)

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
        """A number for rows that are read now, other than those of all parts."""
        return new_numbering({run.numbering for part in self._parts for run in part.runs.values()})

    def keep(self, session: Session, facts: Facts, current: Mapping[str, str]) -> None:
        """Save what the session parsed, and what is known about digests. Failing is no fault of the caller's."""
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
        """Relations that were asked for only now, of runs whose other facts are copied already."""
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
        """Write down which rows the runs have, and as of when."""
        stamp = "" if self.stamp is None else str(self.stamp)
        found = {run_id: Known(digest, stamp) for run_id, digest in current.items()}
        gone = set() if self.stored is None else self._known.keys() - self.stored.keys()
        if gone or any(self._known.get(run_id) != known for run_id, known in found.items()):
            # Others may have written meanwhile; what they know is as true.
            others = {run_id: known for run_id, known in read_known(self.folder).items() if run_id not in gone}
            self._known = {**others, **found}
            write_known(self.folder, self._known)

    def _tidy(self, session: Session) -> None:
        """Delete what nobody will ask for again, and make one part of many; not while somebody else is reading."""
        if self.stored is None:
            return
        dead = [part for part in self._parts if not self._is_live(part)]
        if len(list(self.folder.glob("*-*"))) == len(self._parts) <= MOST_PARTS and not dead:
            return
        if not self._flock(exclusive=True):
            return
        try:
            # Nobody else is here, so drafts belong to nobody, and what is read now stays.
            self._known = read_known(self.folder)
            found = (read_part(path) for path in sorted(self.folder.glob("part-*")))
            self._parts = _without_clashes([part for part in found if part is not None and self._is_live(part)])
            if len(self._parts) > MOST_PARTS:
                self._merge(session)
            kept = {part.folder for part in self._parts}
            for folder in (*self.folder.glob("part-*"), *self.folder.glob("draft-*")):
                if folder not in kept:
                    remove(folder)
        finally:
            self._flock(exclusive=False)

    def _is_live(self, part: Part) -> bool:
        return any(
            (run_id in self._known and self._known[run_id].digest == run.digest)
            or (self.stored is not None and self.stored.get(run_id) == run.digest)
            for run_id, run in part.runs.items()
        )

    def _merge(self, session: Session) -> None:
        """All live runs in one part. Relations that only some have are kept for those."""
        current = {run_id: known.digest for run_id, known in self._known.items()}
        choice = self._choose(current)
        runs = {run_id: part.runs[run_id] for run_id, part in choice.base.items()}
        whole = [relation for relation in MORE if choice.more[relation].keys() == choice.base.keys()]
        selects = {}
        for relation in (*ALWAYS, *whole):
            of_runs = choice.base if relation in ALWAYS else choice.more[relation]
            selects[relation] = f"({'UNION ALL BY NAME '.join(_live_rows(relation, of_runs, choice.base))})"
        self._save(session, runs, selects)
        self._parts = self._parts[-1:]


def _live_rows(relation: str, of_runs: Mapping[str, Part], base: Mapping[str, Part]) -> Iterator[str]:
    for part, run_ids in grouped(of_runs):
        wanted = ", ".join(map(literal, run_ids))
        if relation in ("results", "bad_rows"):
            yield f"SELECT * FROM {reading(part.paths(relation))} WHERE run_id IN ({wanted}) "
            continue
        results = [
            path
            for folder, _ in grouped({run_id: base[run_id] for run_id in run_ids})
            for path in folder.paths("results")
        ]
        rows = f"SELECT result_no FROM {reading(results)} WHERE run_id IN ({wanted})"
        yield f"SELECT * FROM {reading(part.paths(relation))} WHERE result_no IN ({rows}) "


def _of_runs(relation: str, run_ids: Collection[str]) -> str:
    """The rows of some runs in a relation that goes by result_no."""
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
        """Every part that is read, and what of it."""
        found: dict[Path, tuple[Part, list[str]]] = {}
        for part in self.base.values():
            found.setdefault(part.folder, (part, list(ALWAYS)))
        for relation, parts in self.more.items():
            for part in {part.folder: part for part in parts.values()}.values():
                found.setdefault(part.folder, (part, []))[1].append(relation)
        return iter(found.values())


@dataclass
class Facts:
    """How a session gets at the facts of some runs."""

    choice: Choice
    # Runs whose rows are parsed in this session, under this number.
    fresh: Sequence[str]
    numbering: int
    # What is known about the rows of each run; those of fresh runs once they are parsed.
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
        """The runs whose rows must be read from the database for a relation that is copied only where it was needed."""
        return [*self.fresh, *(run_id for run_id in self.choice.base if run_id not in self.choice.more[relation])]

    def settle(self, session: Session) -> dict[str, str]:
        """The digests of all runs; parses the fresh ones, where that has not happened yet."""
        if any(run_id not in self.current for run_id in self.fresh):
            session.need("parsed")
            found = digests(session, "parsed")
            self.current |= {run_id: found.get(run_id, NO_ROWS) for run_id in self.fresh}
        return self.current


def grouped(parts: Mapping[str, Part]) -> list[tuple[Part, list[str]]]:
    """Runs by the part that holds them."""
    found: dict[Path, tuple[Part, list[str]]] = {}
    for run_id, part in parts.items():
        found.setdefault(part.folder, (part, []))[1].append(run_id)
    return list(found.values())


def _without_clashes(parts: Sequence[Part]) -> list[Part]:
    """Rows of different runs must not have the same numbers. Two sessions may have drawn the same one."""
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
    """Is it the same session's numbering? Then both know some of its runs, and the same about them."""
    shared = one.keys() & other.keys()
    return not one or (bool(shared) and all(one[run_id] == other[run_id] for run_id in shared))


def read_known(folder: Path) -> dict[str, Known]:
    """What is known about runs; nothing where it cannot be read."""
    try:
        found = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        return {str(run_id): Known(str(digest), str(stamp)) for run_id, (digest, stamp) in found["runs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def write_known(folder: Path, known: Mapping[str, Known]) -> None:
    """Replace what is known, in one step."""
    runs = {run_id: [found.digest, found.stamp] for run_id, found in known.items()}
    write_whole(folder / _STATE, json.dumps({"runs": runs}, indent=1) + "\n")


def carry_over(database: Path, before: Stamp, after: Stamp) -> None:
    """We wrote to the database ourselves, and only numbers: what was known about rows before is known still."""
    folder = Cache(database).folder
    known = read_known(folder)
    moved = {run_id: Known(found.digest, str(after)) for run_id, found in known.items() if found.stamp == str(before)}
    if moved:
        with contextlib.suppress(OSError, KbevalError):
            write_known(folder, {**known, **moved})
