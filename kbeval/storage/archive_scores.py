"""What scoring an archive stores, in one file next to its tables: the same data that it would write into a database.

That is the numbers of runs, the labels that they were computed with, and the kept spans. The archive itself is not
changed; once it is updated, its own numbers take precedence over this file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from kbeval.engine.quoting import parquet_scan
from kbeval.errors import DatabaseError
from kbeval.storage.kept import NOTHING, Kept
from kbeval.storage.manifest import read_manifest
from kbeval.util.files import write_whole
from kbeval.util.locks import locked

SCORES = "scores.json"
# The folder for the numbers of shards that are not merged yet.
SHARDS = "shards"
_PATIENCE = 10


@dataclass
class Scores:
    """The contents of the file."""

    # For each run, a hash of the archived numbers that are replaced, and the new numbers.
    runs: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Labels by their hash, packed.
    golden: dict[str, str] = field(default_factory=dict)
    # Each with the columns of TABLES["kbeval_chunk_spans"].
    chunk_spans: list[tuple[str, ...]] = field(default_factory=list)

    def numbers(self, run_id: str, archived: str) -> str:
        """The numbers of a run: those of the archive, or their replacement."""
        mark, text = self.runs.get(run_id, ("", ""))
        return text if mark == _mark(archived) else archived


def _mark(aggregate_json: str) -> str:
    return hashlib.sha256(aggregate_json.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_scores(folder: Path) -> Scores:
    """Read the scores next to an archive; empty if it was never scored."""
    try:
        found = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        return Scores(
            {str(run_id): (str(mark), str(text)) for run_id, (mark, text) in found["runs"].items()},
            {str(golden_hash): str(packed) for golden_hash, packed in found["golden"].items()},
            [_chunk_spans(row) for row in found["chunk_spans"]],
        )
    except FileNotFoundError:
        return Scores()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"{folder / SCORES} cannot be read; delete it and score again"
        raise DatabaseError(msg) from error


def _chunk_spans(row: list[str]) -> tuple[str, ...]:
    # An older version kept neither the policy nor the tokens.
    chunk_id, version, doc_id, spans, seen_in, first_seen, policy, tokens = map(str, (*row, "", "")[:8])
    return (chunk_id, version, doc_id, spans, seen_in, first_seen, policy, tokens)


def write_scores(
    folder: Path, aggregates: Mapping[str, str], kept: Kept = NOTHING, packed: Mapping[str, str] | None = None
) -> None:
    """Store the numbers of runs and what belongs to them, all or nothing. `packed`: labels by their hash."""
    folder = folder.resolve()
    archived = _archived_numbers(folder)
    if missing := [run_id for run_id in aggregates if run_id not in archived]:
        msg = f"the archive does not contain run {missing[0]!r} (any more); nothing was stored"
        raise DatabaseError(msg)
    # Two processes that score at once must not lose each other's numbers. Nothing else locks the manifest.
    with locked(folder / "manifest.json", exclusive=True, patience=_PATIENCE) as is_alone:
        if is_alone is False:
            msg = f"{folder / SCORES} is being written by another process; nothing was stored, score again"
            raise DatabaseError(msg)
        old = read_scores(folder)
        marks = {run_id: _mark(text) for run_id, text in archived.items()}
        runs = {run_id: found for run_id, found in old.runs.items() if marks.get(run_id) == found[0]}
        runs |= {run_id: (marks[run_id], text) for run_id, text in aggregates.items()}
        labels = old.golden | dict(packed or {})
        if kept.golden is not None:
            labels[kept.golden.hash] = kept.golden.packed()
        used = [text for _, text in runs.values()]
        found = {
            "runs": runs,
            "golden": {mark: packed for mark, packed in labels.items() if any(mark in text for text in used)},
            "chunk_spans": _merged(old, kept),
        }
        text = json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True)
        write_whole(folder / SCORES, text + "\n")


def _merged(old: Scores, kept: Kept) -> list[tuple[str, ...]]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    found = {(row[0], row[1], row[6], row[2], row[3]): row for row in old.chunk_spans}
    for chunk_id, version, policy, doc_id, spans, tokens, seen_in in kept.spans:
        # A row kept without a place is completed; a row kept with another place stays, next to the new one.
        known = [
            row[5]
            for document in {"", doc_id or ""}
            for place in {"", spans or ""}
            if (row := found.pop((chunk_id, version, policy, document, place), None))
        ]
        first_seen = min(known, default=now)
        size = "" if tokens is None else str(tokens)
        row = (chunk_id, version, doc_id or "", spans or "", seen_in, first_seen, policy, size)
        found[chunk_id, version, policy, row[2], row[3]] = row
    return sorted(found.values())


def _archived_numbers(folder: Path) -> dict[str, str]:
    manifest = read_manifest(folder)
    table = manifest.table("eval_runs")
    if table is None:
        return {}
    with duckdb.connect(":memory:") as reader:
        rows = reader.execute(f"SELECT run_id, aggregate_json FROM {parquet_scan([table])}").fetchall()
    return {str(run_id): str(text) for run_id, text in rows}
