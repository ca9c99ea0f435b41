"""An archive's table of contents: which runs it holds and where, and the tables that all of them share.

The manifest is replaced in one step, after everything that it names is in place. What it named before is deleted
only by the next archiving after that, so whoever is reading is not disturbed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from kbeval import __version__
from kbeval.columnar.parts import definitions
from kbeval.errors import DatabaseError
from kbeval.files import write_whole

NAME = "manifest.json"
FORMAT = 1
RUNS = "runs"
# The tables beside the runs' own: eval_runs as it stands, the knowledge base, what was archived of it, the labels.
TABLES = ("eval_runs", "documents", "chunks", "kbeval_chunk_spans", "golden")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass
class Manifest:
    """What an archive holds."""

    folder: Path
    # Each run's folder below runs/, and each table's file.
    runs: dict[str, str] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    golden_hash: str | None = None
    # What the manifest before this one named.
    before: list[str] = field(default_factory=list)

    def table(self, name: str) -> Path | None:
        """The file of a table, where there is one."""
        return self.folder / self.tables[name] if name in self.tables else None

    def run_folder(self, run_id: str) -> Path:
        return self.folder / RUNS / self.runs[run_id]

    def names(self) -> list[str]:
        """Everything that it names."""
        return [*self.tables.values(), *(f"{RUNS}/{name}" for name in self.runs.values())]

    def write(self) -> None:
        found = {
            "format": FORMAT,
            "kbeval": __version__,
            "duckdb": duckdb.__version__,
            "definitions": definitions(),
            "golden": self.golden_hash,
            "tables": self.tables,
            "runs": self.runs,
            "before": self.before,
        }
        write_whole(self.folder / NAME, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def is_archive(folder: Path) -> bool:
    """Is it a folder that `kbeval archive` wrote?"""
    return (folder / NAME).is_file()


def read_manifest(folder: Path) -> Manifest:
    """The contents of an archive."""
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            msg = f"{folder} was archived by another version of kbeval (format {found['format']!r}); use that one"
            raise DatabaseError(msg)
        golden = found["golden"]
        return Manifest(
            folder,
            _names(found["runs"]),
            _names(found["tables"]),
            None if golden is None else str(golden),
            [str(name) for name in found["before"]],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"{folder} is a damaged archive: its {NAME} cannot be read; archive the database again"
        raise DatabaseError(msg) from error


def _names(found: Any) -> dict[str, str]:  # noqa: ANN401  (whatever the manifest holds)
    """Names that lead nowhere else."""
    names: Mapping[str, str] = {str(key): str(value) for key, value in found.items()}
    if any(Path(name).name != name for name in names.values()):
        raise ValueError(found)
    return dict(names)


def folder_name(run_id: str, digest: str) -> str:
    """A name that a person recognises, of a run id that may hold anything: no two runs and no two states share one."""
    plain = _NOT_PLAIN.sub("_", run_id).strip("._-")[:60] or "run"
    own = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain}-{own}-{digest.rpartition(':')[2][:12]}"
