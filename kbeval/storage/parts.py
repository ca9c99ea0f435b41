"""A part: the facts of some runs as Parquet files, with a manifest of what they were computed from."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import duckdb

from kbeval.engine.quoting import literal, parquet_scan
from kbeval.engine.relations import read_sql, relations, without_comments
from kbeval.engine.session import Copied, Session
from kbeval.util.files import write_whole

# The relations that depend on the stored rows alone. Those in MORE are written only when a session needed them.
ALWAYS = ("results", "bad_rows", "hits", "repeated_hits", "cited_places", "answers")
MORE = ("hit_claims", "anchor_rows")
# What an engine elsewhere cannot make from those itself, because JSON is opened or text folded for it; only archives
# have it. By the kind of run: any, of the anchor-labelled system, of grounded answering, with scores that came along.
ELSEWHERE = {
    "": ("bad_claims",),
    "anchors": ("hit_anchors", "answer_references", "row_folders", "row_vaults"),
    "grounded": ("folded_answers",),
    "scores": ("row_scores",),
}
# Rows of these have a run_id column; rows of the others refer to a result.
_WITH_RUN_ID = ("results", "bad_rows")

FORMAT = 1
PART_FILE = "part.json"
_FILE_NAME = re.compile(r"[a-z_]+(-\d+)?\.parquet")
_NUMBERINGS = 2**30


@functools.cache
def definitions() -> str:
    """A hash that changes when the meaning of anything in a part changes."""
    names: set[str] = set()
    open_names = [*ALWAYS, *MORE, *(name for names in ELSEWHERE.values() for name in names)]
    while open_names:
        name = open_names.pop()
        if name in relations() and name not in names:
            names.add(name)
            open_names.extend(relations()[name].reads)
    texts = [read_sql("macros.sql"), *(relations()[name].sql for name in sorted(names))]
    meaning = "\n".join(" ".join(without_comments(text).split()) for text in texts)
    return hashlib.sha256(f"{FORMAT}\n{meaning}".encode()).hexdigest()[:16]


def no_bad_rows(session: Session) -> str | None:
    """The variant of `bad_claims`: without bad rows, the stored rows need not be read again."""
    session.need("bad_rows")
    return None if session.rows("SELECT 1 FROM bad_rows LIMIT 1") else "none"


def new_numbering(taken: Collection[int] = ()) -> int:
    """A number for a session that reads rows; unlikely to be used by any other session."""
    while (found := 1 + secrets.randbelow(_NUMBERINGS)) in taken:
        pass
    return found


@dataclass(frozen=True)
class PartRun:
    """A run in a part: the digest of its rows, how they are numbered, and how many they are."""

    digest: str
    numbering: int
    rows: int


@dataclass(frozen=True)
class PartFile:
    """A file name with the expected size and checksum, so that a damaged file is detected."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """Describe a file as it is now."""
        return cls(path.name, path.stat().st_size, sha256_of(path))

    def is_sound(self, folder: Path) -> bool:
        """Is the file unchanged since it was written?"""
        try:
            path = folder / self.name
            return path.stat().st_size == self.size and sha256_of(path) == self.sha256
        except OSError:
            return False


@dataclass(frozen=True)
class Part:
    """A folder with the facts of some runs."""

    folder: Path
    runs: Mapping[str, PartRun]
    files: Mapping[str, Sequence[PartFile]] = field(default_factory=dict)
    # The version of DuckDB that parsed the rows.
    engine: str = duckdb.__version__

    def paths(self, relation: str) -> list[Path]:
        """The files of one relation."""
        return [self.folder / file.name for file in self.files[relation]]

    def holds(self, wanted: Iterable[str]) -> bool:
        return all(relation in self.files for relation in wanted)

    def is_whole(self) -> bool:
        """Do all its files exist with the expected size? Faster but weaker than `is_sound`."""
        try:
            return all(
                (self.folder / file.name).stat().st_size == file.size for found in self.files.values() for file in found
            )
        except OSError:
            return False

    def is_sound(self, wanted: Iterable[str]) -> bool:
        """Are the files of these relations unchanged since they were written?"""
        import concurrent.futures  # slow to load, and most sessions have no files

        files = [file for relation in wanted for file in self.files[relation]]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return all(pool.map(lambda file: file.is_sound(self.folder), files))


def read_part(folder: Path, *, any_version: bool = False) -> Part | None:
    """The part in a folder; None if there is no usable one: incomplete, damaged, or written by another version.

    `any_version`: for callers that only need the rows and their digest.
    """
    try:
        found = read_sealed(folder / PART_FILE)
        if found["format"] != FORMAT or (found["definitions"] != definitions() and not any_version):
            return None
        return Part(
            folder,
            {
                str(run_id): PartRun(str(digest), int(numbering), int(rows))
                for run_id, (digest, numbering, rows) in found["runs"].items()
            },
            {
                str(relation): [PartFile(_file_name(name), int(size), str(digest)) for name, size, digest in files]
                for relation, files in found["files"].items()
            },
            str(found["duckdb"]),
        )
    except UNREADABLE:
        return None


def _file_name(name: Any) -> str:  # noqa: ANN401  (any JSON value)
    """The name, if a file of a part may have it."""
    if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
        raise ValueError(name)
    return name


def finish_part(folder: Path, final: Path, runs: Mapping[str, PartRun]) -> Part:
    """Write the manifest of a folder of Parquet files (`hits.parquet`, `hits-1.parquet`) and rename it to `final`."""
    files: dict[str, list[PartFile]] = {}
    for path in sorted(folder.glob("*.parquet")):
        relation = path.stem.partition("-")[0]
        files.setdefault(relation, []).append(PartFile.of(path))
    manifest = {
        "format": FORMAT,
        "definitions": definitions(),
        "duckdb": duckdb.__version__,
        "runs": {run_id: [run.digest, run.numbering, run.rows] for run_id, run in runs.items()},
        "files": {
            relation: [[file.name, file.size, file.sha256] for file in found] for relation, found in files.items()
        },
    }
    write_sealed(folder / PART_FILE, manifest)
    folder.rename(final)
    return Part(final, runs, files)


def remove(folder: Path) -> None:
    """Delete a part, its manifest first: without one it is not a part, even if the deletion is interrupted."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    with contextlib.suppress(OSError):
        (folder / PART_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


# Exceptions that reading a possibly damaged file can raise.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


def read_sealed(path: Path) -> Any:  # noqa: ANN401  (the caller checks the contents)
    """The contents of a file that `write_sealed` wrote. Raises one of UNREADABLE if it has changed since."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if found.pop("sha256") != _seal(found):
        raise ValueError(path)
    return found


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, with a checksum of its contents."""
    write_whole(path, json.dumps({**content, "sha256": _seal(content)}, indent=1) + "\n", sync=False)


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def copied(relation: str, chosen: Iterable[tuple[Part, Collection[str]]], *, fresh: bool) -> Copied:
    """How a session reads one relation: from each part, the rows of the requested runs.

    `fresh`: there are also rows that are not in any part.
    """
    chosen = list(chosen)
    is_partial = any(set(run_ids) != set(part.runs) for part, run_ids in chosen)
    return Copied(
        "\nUNION ALL BY NAME\n".join(_branches(relation, chosen)),
        fresh,
        group="rows" if relation in ALWAYS else relation,
        needs_results=is_partial and relation not in _WITH_RUN_ID,
    )


def _branches(relation: str, chosen: Iterable[tuple[Part, Collection[str]]]) -> Iterator[str]:
    whole: list[Path] = []
    for part, run_ids in chosen:
        paths = part.paths(relation)
        if set(run_ids) == set(part.runs):
            whole += paths
            continue
        wanted = ", ".join(map(literal, sorted(run_ids)))
        if relation in _WITH_RUN_ID:
            yield f"SELECT * FROM {parquet_scan(paths)} WHERE run_id IN ({wanted})"
        else:
            rows = f"SELECT result_no FROM results WHERE run_id IN ({wanted})"
            yield f"SELECT * FROM {parquet_scan(paths)} WHERE result_no IN ({rows})"
    if whole:
        yield f"SELECT * FROM {parquet_scan(whole)}"


def write_relation(session: Session, sql: str, path: Path, compression: str) -> None:
    """Write the rows of a query to one Parquet file."""
    session.execute(f"COPY ({sql}) TO {literal(str(path))} (FORMAT parquet, COMPRESSION {compression})")


def sha256_of(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
