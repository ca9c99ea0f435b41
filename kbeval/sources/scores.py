"""What scoring keeps beside an archive, in one file: what it would write into a database.

That is the numbers of runs, the labels that they were made with, and the places of chunks. The archive itself stays
as it is; brought up to date, it comes before what was kept beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from kbeval.archive import NOTHING, Kept
from kbeval.columnar.manifest import read_manifest
from kbeval.columnar.parts import reading
from kbeval.errors import DatabaseError
from kbeval.files import write_whole
from kbeval.locks import locked

SCORES = "scores.json"
_PATIENCE = 10


@dataclass
class Scores:
    """The contents of the file."""

    # Of each run a mark of the archived numbers that these stand in for, and these.
    runs: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Labels by their hash, packed.
    golden: dict[str, str] = field(default_factory=dict)
    # Each as the columns of TABLES["kbeval_chunk_spans"] say.
    chunk_spans: list[tuple[str, ...]] = field(default_factory=list)

    def numbers(self, run_id: str, archived: str) -> str:
        """The numbers of a run: those of the archive, or those that stand in for them."""
        mark, text = self.runs.get(run_id, ("", ""))
        return text if mark == _mark(archived) else archived


def _mark(aggregate_json: str) -> str:
    return hashlib.sha256(aggregate_json.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_scores(folder: Path) -> Scores:
    """What is kept beside an archive; nothing where nothing was scored."""
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


def write_scores(folder: Path, aggregates: Mapping[str, str], kept: Kept = NOTHING) -> None:
    """Keep the numbers of runs and what belongs to them, all or none of it."""
    folder = folder.resolve()
    archived = _archived_numbers(folder)
    if missing := [run_id for run_id in aggregates if run_id not in archived]:
        msg = f"there is no run {missing[0]!r} in the archive, or no longer; nothing was stored"
        raise DatabaseError(msg)
    # Two who score at once must not forget each other's numbers; the table of contents is never locked but here.
    with locked(folder / "manifest.json", exclusive=True, patience=_PATIENCE) as is_alone:
        if is_alone is False:
            msg = f"{folder / SCORES} is being written by somebody else; nothing was stored, score again"
            raise DatabaseError(msg)
        old = read_scores(folder)
        marks = {run_id: _mark(text) for run_id, text in archived.items()}
        runs = {run_id: found for run_id, found in old.runs.items() if marks.get(run_id) == found[0]}
        runs |= {run_id: (marks[run_id], text) for run_id, text in aggregates.items()}
        labels = dict(old.golden)
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
    found = {(row[0], row[1], row[6]): row for row in old.chunk_spans}
    for chunk_id, version, policy, doc_id, spans, tokens, seen_in in kept.spans:
        key = (chunk_id, version, policy)
        first_seen = found[key][5] if key in found else now
        size = "" if tokens is None else str(tokens)
        found[key] = (chunk_id, version, doc_id or "", spans or "", seen_in, first_seen, policy, size)
    return sorted(found.values())


def _archived_numbers(folder: Path) -> dict[str, str]:
    manifest = read_manifest(folder)
    table = manifest.table("eval_runs")
    if table is None:
        return {}
    with duckdb.connect(":memory:") as reader:
        rows = reader.execute(f"SELECT run_id, aggregate_json FROM {reading([table])}").fetchall()
    return {str(run_id): str(text) for run_id, text in rows}
