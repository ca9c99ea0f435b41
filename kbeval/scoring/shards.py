"""Scoring an archive in shards: each process scores its share of the runs into a separate file, and one process merges
the files.

Which shard a run belongs to follows from its id alone, so it does not change when other runs are added. A shard's file
is written when all of its runs are scored, and replaces the file of an earlier attempt: a shard that fails leaves
nothing behind, and one that runs twice writes the same numbers. Nothing is stored until all shards are merged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbeval.errors import DatabaseError, UsageError
from kbeval.scoring.aggregate import Scored
from kbeval.scoring.provenance import of_run
from kbeval.storage.archive_scores import SHARDS, write_scores
from kbeval.storage.database_file import is_archive
from kbeval.storage.kept import ChunkSpans, Kept
from kbeval.storage.options import ReadOptions
from kbeval.storage.parts import read_sealed, write_sealed
from kbeval.storage.source import open_source

_NAME = re.compile(r"([1-9][0-9]{0,4})-of-([1-9][0-9]{0,4})\.json")
MOST = 10_000
# What must be equal in all shards.
_ALIKE = {
    "kbeval": "versions of kbeval",
    "metrics": "definitions of metrics",
    "golden": "golden files",
    "match": "--match",
    "missing": "--missing",
    "judge_named": "--judge",
}


@dataclass(frozen=True)
class Shard:
    """One of `count` shares of the runs, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read I/N, e.g. 3/16."""
        found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        number, count = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= count <= MOST:
            msg = f"--shard is {text!r}; it must be I/N with I from 1 to N, e.g. 3/16, and N at most {MOST:,}"
            raise UsageError(msg)
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def holds(self, run_id: str) -> bool:
        """Does a run belong to this shard? The answer does not depend on other runs."""
        digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1

    def file(self, archive: Path) -> Path:
        """The file that holds its numbers until they are merged."""
        return archive / SHARDS / f"{self.number}-of-{self.count}.json"

    def writer(self, archive: str | os.PathLike[str]) -> ShardWriter:
        """What collects its numbers."""
        return ShardWriter(archive, self)


class ShardWriter:
    """Collects the numbers of one shard, and writes them at the end."""

    def __init__(self, archive: str | os.PathLike[str], shard: Shard) -> None:
        self._archive = Path(archive).resolve()
        self._shard = shard
        self._runs: dict[str, str] = {}
        self._golden: dict[str, str] = {}
        self._spans: list[ChunkSpans] = []
        check_archive(archive)

    def add(self, scored: Scored, run_ids: Sequence[str]) -> None:
        """Add the numbers of these runs, and the data stored along with them."""
        self._runs |= {run_id: scored.aggregates[run_id].to_json() for run_id in run_ids}
        self._spans += scored.spans
        if scored.golden is not None:
            self._golden[scored.golden.hash] = scored.golden.packed()

    def write(self, left_out: Sequence[str]) -> Path:
        """Write the file. `left_out`: runs that could not be scored."""
        found = {
            "shard": [self._shard.number, self._shard.count],
            "runs": self._runs,
            "golden": self._golden,
            "chunk_spans": self._spans,
            "left_out": sorted(left_out),
        }
        path = self._shard.file(self._archive)
        write_sealed(path, found)
        return path


@dataclass
class Merged:
    """The runs that were stored, and those that could not be."""

    shards: int
    stored: list[str] = field(default_factory=list)
    # Runs that a shard could not score, and runs whose rows or configuration have changed since.
    left_out: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Part:
    shard: Shard
    runs: Mapping[str, str]
    golden: Mapping[str, str]
    spans: Sequence[ChunkSpans]
    left_out: Sequence[str]
    made_from: Mapping[str, Mapping[str, Any]]


def check_archive(database: str | os.PathLike[str]) -> None:
    """Shards require an archive, which many processes on many machines can read."""
    if is_archive(Path(database)):
        return
    wrong = f"{database} is not an archive" if Path(database).exists() else f"there is no archive {database}"
    msg = f"{wrong}; create one with 'kbeval archive FOLDER', and specify it with --db"
    raise UsageError(msg)


def merge_shards(archive: str | os.PathLike[str]) -> Merged:
    """Store the numbers of all shards in one transaction, and remove their files."""
    check_archive(archive)
    folder = Path(archive).resolve()
    parts = list(_parts(folder))
    _refuse_incomplete(archive, parts)
    _refuse_different(parts)
    merged = Merged(len(parts), left_out=sorted(run_id for part in parts for run_id in part.left_out))
    numbers = {run_id: text for part in parts for run_id, text in part.runs.items()}
    made_from = {run_id: found for part in parts for run_id, found in part.made_from.items()}
    with open_source(archive, ReadOptions()) as (session, source):
        runs = {run.run_id: run for run in source.runs()}
        digests = source.row_digests(session, [run_id for run_id in numbers if run_id in runs])
    for run_id in sorted(numbers):
        now = of_run(digests[run_id], runs[run_id].config_json) if run_id in runs else {"rows": ""}
        is_same = all(made_from[run_id].get(name) == value for name, value in now.items())
        (merged.stored if is_same else merged.changed).append(run_id)
    labels = {golden_hash: packed for part in parts for golden_hash, packed in part.golden.items()}
    spans = list(_joined(row for part in parts for row in part.spans))
    write_scores(folder, {run_id: numbers[run_id] for run_id in merged.stored}, Kept(spans), labels)
    for part in parts:
        part.shard.file(folder).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (folder / SHARDS).rmdir()
    return merged


def _parts(folder: Path) -> Iterator[_Part]:
    try:
        names = sorted(path.name for path in (folder / SHARDS).iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        msg = f"{folder / SHARDS} cannot be read: {error.strerror}"
        raise DatabaseError(msg) from error
    for name in names:
        if found := _NAME.fullmatch(name):
            yield _read(folder / SHARDS / name, Shard(int(found[1]), int(found[2])))


def _read(path: Path, shard: Shard) -> _Part:
    try:
        found = read_sealed(path)
        runs = {str(run_id): str(text) for run_id, text in found["runs"].items()}
        part = _Part(
            shard,
            runs,
            {str(golden_hash): str(packed) for golden_hash, packed in found["golden"].items()},
            [_spans(*row) for row in found["chunk_spans"]],
            [str(run_id) for run_id in found["left_out"]],
            {run_id: dict(json.loads(text)["provenance"]) for run_id, text in runs.items()},
        )
        is_own = found["shard"] == [shard.number, shard.count] and all(map(shard.holds, runs))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"{path} cannot be read; nothing was stored: score with --shard {shard} again"
        raise DatabaseError(msg) from error
    if not is_own:
        msg = f"{path} contains runs of another shard; nothing was stored: score with --shard {shard} again"
        raise DatabaseError(msg)
    return part


def _spans(  # noqa: PLR0913, PLR0917  (the fields of ChunkSpans)
    chunk_id: object,
    version: object,
    policy: object,
    doc_id: object,
    spans: object,
    tokens: float | None,
    seen_in: object,
) -> ChunkSpans:
    place = (None if doc_id is None else str(doc_id), None if spans is None else str(spans))
    return (str(chunk_id), str(version), str(policy), *place, None if tokens is None else float(tokens), str(seen_in))


def _refuse_incomplete(archive: str | os.PathLike[str], parts: Sequence[_Part]) -> None:
    if not parts:
        msg = f"{archive} contains no shards to merge; score each with 'kbeval score --all --shard I/N' first"
        raise UsageError(msg)
    counts = sorted({part.shard.count for part in parts})
    if len(counts) > 1:
        several = " and of ".join(map(str, counts))
        msg = f"{Path(archive) / SHARDS} contains shards of {several}; delete those that do not belong together"
        raise DatabaseError(msg)
    missing = sorted(set(range(1, counts[0] + 1)) - {part.shard.number for part in parts})
    if missing:
        some = ", ".join(map(str, missing[:10])) + (" and more" if len(missing) > 10 else "")
        verb = "is" if len(missing) == 1 else "are"
        which = f"of {counts[0]} shards {some} {verb} missing"
        msg = f"{which}; nothing was stored: score each with --shard I/{counts[0]}, then merge"
        raise DatabaseError(msg)


def _refuse_different(parts: Sequence[_Part]) -> None:
    """Reject shards that were not all scored with the same labels, metrics and options."""
    for name, what in _ALIKE.items():
        found: dict[Any, Shard] = {}
        for part in parts:
            for made_from in part.made_from.values():
                found.setdefault(json.dumps(made_from.get(name)), part.shard)
        if len(found) > 1:
            a, b, *_ = found.values()
            where = f"within shard {a}" if a == b else f"in shards {a} and {b}"
            msg = f"different {what} {where}; nothing was stored: score all shards again with the same"
            raise DatabaseError(msg)


def _joined(rows: Iterable[ChunkSpans]) -> Iterator[ChunkSpans]:
    """The spans to keep from all shards. If hits of several shards state different places for one chunk, one is
    kept.
    """
    found: dict[tuple[str, ...], ChunkSpans] = {}
    for row in sorted(rows, key=lambda row: (row[3] is None, row[4] or "", row[3] or "")):
        chunk_id, version, policy, doc_id, spans, _, seen_in = row
        is_of_table = seen_in == "chunks"
        found.setdefault(
            (seen_in, chunk_id, version, policy, *((doc_id or "", spans or "") if is_of_table else ())), row
        )
    return iter(sorted(found.values(), key=lambda row: (row[6], row[0], row[1], row[2], row[3] or "", row[4] or "")))
