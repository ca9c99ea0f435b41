"""An archive's table of contents: its runs with their folders, and the tables that all of them share.

The manifest is replaced atomically, after everything that it names is in place. What only the previous manifest named
is deleted by the next update after that, and never while a kbeval command is reading.

Checksums cover everything: the manifest has those of the tables and of each run's `part.json`, which has those of the
run's files.
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
from kbeval.errors import DatabaseError
from kbeval.storage.database_file import MANIFEST_FILE
from kbeval.storage.parts import PART_FILE, Part, PartFile, definitions, read_part, sha256_of
from kbeval.util.files import write_whole

FORMAT = 1
RUNS = "runs"
# The tables that all runs share: eval_runs, the knowledge base, what kbeval keeps in the database, the labels.
TABLES = (
    "eval_runs",
    "documents",
    "chunks",
    "kbeval_chunk_spans",
    "kbeval_golden",
    "kbeval_judgings",
    "kbeval_judged",
    "kbeval_judgements",
    "golden",
)
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_OWN_FOLDER = re.compile(r"[A-Za-z0-9._-]+-[0-9a-f]{8}-[0-9a-f]{12}-[0-9a-f]{6}")
_OWN_FILE = re.compile(
    rf"({'|'.join(TABLES)})-[0-9a-f]{{12}}\.parquet|draft-[a-z0-9_]{{8}}|\.{re.escape(MANIFEST_FILE)}\..+"
)


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run below runs/, and the checksum of its `part.json`."""

    name: str
    sha256: str


@dataclass
class Manifest:
    """What an archive holds."""

    folder: Path
    runs: dict[str, RunFolder] = field(default_factory=dict)
    tables: dict[str, PartFile] = field(default_factory=dict)
    golden_hash: str | None = None
    # What the previous manifest named and this one does not.
    before: list[str] = field(default_factory=list)
    # The whole text, as read.
    text: str = ""

    def table(self, name: str) -> Path | None:
        """The verified file of a table; None if there is none."""
        found = self.tables.get(name)
        if found is None:
            return None
        if not found.is_sound(self.folder):
            raise damaged(self.folder, found.name)
        return self.folder / found.name

    def part(self, run_id: str) -> Part:
        """The files of a run, whichever version of kbeval wrote them."""
        place = self.runs[run_id]
        folder = self.folder / RUNS / place.name
        try:
            is_ours = sha256_of(folder / PART_FILE) == place.sha256
        except OSError:
            is_ours = False
        part = read_part(folder, any_version=True) if is_ours else None
        if part is None or run_id not in part.runs:
            raise damaged(self.folder, f"{RUNS}/{place.name}")
        return part

    def names(self) -> list[str]:
        """Everything that it names."""
        return [
            *(file.name for file in self.tables.values()),
            *(f"{RUNS}/{place.name}" for place in self.runs.values()),
        ]

    def write(self, old: Manifest) -> None:
        """Replace an old manifest, unless both have the same contents."""
        self.before = old.before
        if self._as_text() == old.text:
            return
        self.before = [name for name in old.names() if name not in self.names()]
        write_whole(self.folder / MANIFEST_FILE, self._as_text())

    def _as_text(self) -> str:
        found = {
            "format": FORMAT,
            "kbeval": __version__,
            "duckdb": duckdb.__version__,
            "definitions": definitions(),
            "golden": self.golden_hash,
            "tables": {table: vars(file) for table, file in self.tables.items()},
            "runs": {run_id: vars(place) for run_id, place in self.runs.items()},
            "before": self.before,
        }
        return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def damaged(folder: Path, what: str) -> DatabaseError:
    """The error for an archive in which a file is missing or has changed."""
    return DatabaseError(
        f"{folder} is a damaged archive: {what} is missing or damaged;"
        " archive the database again, or restore it from a backup"
    )


def read_manifest(folder: Path) -> Manifest:
    """The contents of an archive."""
    try:
        text = (folder / MANIFEST_FILE).read_text(encoding="utf-8")
        found = json.loads(text)
        if found["format"] != FORMAT:
            msg = f"{folder} was written by another version of kbeval (format {found['format']!r}); use that version"
            raise DatabaseError(msg)
        golden = found["golden"]
        tables: Mapping[str, Mapping[str, Any]] = found["tables"]
        runs: Mapping[str, Mapping[str, Any]] = found["runs"]
        return Manifest(
            folder,
            {run_id: RunFolder(_plain_name(place["name"]), str(place["sha256"])) for run_id, place in runs.items()},
            {
                table: PartFile(_plain_name(file["name"]), int(file["size"]), str(file["sha256"]))
                for table, file in tables.items()
            },
            None if golden is None else str(golden),
            [str(name) for name in found["before"]],
            text,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = (
            f"{folder} is a damaged archive: its {MANIFEST_FILE} cannot be read; restore it from a backup,"
            " or delete that file and archive the database again"
        )
        raise DatabaseError(msg) from error


def folder_name(run_id: str, digest: str) -> str:
    """A recognisable folder name for a run id, which may contain any characters.

    Different runs, different rows of a run, and different versions of the definitions have different names.
    """
    plain = _NOT_PLAIN.sub("_", run_id).strip("._-")[:60] or "run"
    own = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain}-{own}-{digest.rpartition(':')[2][:12]}-{definitions()[:6]}"


def is_own(path: Path, folder: Path) -> bool:
    """Did kbeval create it? Anything else in the folder belongs to the user."""
    return bool((_OWN_FOLDER if path.parent == folder / RUNS else _OWN_FILE).fullmatch(path.name))


def _plain_name(name: Any) -> str:  # noqa: ANN401  (any JSON value)
    """The name, if it cannot lead out of the folder."""
    if not isinstance(name, str) or Path(name).name != name or name in ("", "..") or not name.isprintable():
        raise ValueError(name)
    return name
