"""Golden queries: the questions with known good answers that runs are scored against.

One loader and one model for all file formats and field spellings. `reading` turns bytes into entries with line
numbers, `labels` checks entries and normalizes their spellings. All faults are reported at once.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbeval.errors import GoldenError
from kbeval.golden.labels import Checked, check_entries, group_faults
from kbeval.golden.reading import read_entries
from kbeval.util.garbage import no_garbage_collection

if TYPE_CHECKING:
    import polars as pl

    from kbeval.engine.session import Loader, Session

# The fields of an entry that the scorer's relations read; see sql/stored/ and sql/labels/.
STRUCTURE = json.dumps(
    {
        "id": "VARCHAR",
        "query": "VARCHAR",
        "answerable": "BOOLEAN",
        "expected_chunk_ids": ["VARCHAR"],
        "expected_doc_ids": ["VARCHAR"],
        "expected_spans": ["JSON"],
        "relevance": "MAP(VARCHAR, DOUBLE)",
        "gold_supports": [{"rel_path": "VARCHAR", "heading_path": "JSON", "snippets": ["VARCHAR"]}],
        "required_support_groups": [["BIGINT"]],
        "gold_claim_substr": ["VARCHAR"],
        "must_contain": ["VARCHAR"],
        "forbidden": ["VARCHAR"],
        "lang": "VARCHAR",
        "difficulty": "VARCHAR",
        "category": "VARCHAR",
        "group": "VARCHAR",
        "tags": ["VARCHAR"],
        "vaults": ["VARCHAR"],
    }
)


@dataclass
class Golden:
    """The entries of a golden file, in file order, with normalized field names."""

    path: str
    entries: Sequence[Mapping[str, Any]]
    warnings: Sequence[str] = ()
    lines: Mapping[str, int] = field(default_factory=dict)
    group_faults: Sequence[str] = ()
    # Fields that kbeval does not know, by query. They can be used for slices, and have no other effect.
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @functools.cached_property
    def hash(self) -> str:
        """A hash that changes when a label or a query changes, not with comments, order or format."""
        text = json.dumps(sorted(self.entries, key=itemgetter("id")), sort_keys=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, query_id: str) -> Mapping[str, Any] | None:
        """One entry by id."""
        return next((entry for entry in self.entries if entry["id"] == query_id), None)

    def has(self, field: str) -> bool:
        """Does any entry have this field?"""
        return field in self._fields

    @functools.cached_property
    def _fields(self) -> frozenset[str]:
        return frozenset().union(*self.entries)

    @functools.cached_property
    def has_span_labels(self) -> bool:
        """Does any entry give the location of the answer, but no chunk ids?"""
        return any(entry.get("expected_spans") and not entry.get("expected_chunk_ids") for entry in self.entries)

    def frame(self) -> pl.DataFrame:
        """The entries as a Polars frame, one row per query."""
        import polars as pl

        return pl.DataFrame(list(self.entries), infer_schema_length=None)

    def prepare(self) -> None:
        """Compute in advance what is needed later anyway, while other work is waiting."""
        _ = self.hash, self._json_lines

    @functools.cached_property
    def _json_lines(self) -> str:
        return "\n".join(map(json.dumps, self.entries))

    def packed(self) -> str:
        """The entries as text to be stored in a database; `unpacked` reads it."""
        return base64.b64encode(zlib.compress(self._json_lines.encode())).decode()

    def loader(self) -> Loader:
        """How a session loads the entries."""

        def load(session: Session) -> None:
            session.execute(
                f"CREATE TABLE golden_entries AS SELECT from_json(line, '{STRUCTURE}') AS e"
                " FROM (SELECT UNNEST(string_split($1, chr(10))) AS line) WHERE line <> ''",
                [self._json_lines],
            )

        return load

    def text_loader(self) -> Loader:
        """The entries as they are archived: `golden_texts`, with the position, id and JSON of each."""

        def load(session: Session) -> None:
            session.execute(
                "CREATE TABLE golden_texts AS SELECT UNNEST($1::BIGINT[]) AS place, UNNEST($2::VARCHAR[]) AS id,"
                " UNNEST($3::VARCHAR[]) AS entry",
                [list(range(1, len(self) + 1)), [e["id"] for e in self.entries], list(map(json.dumps, self.entries))],
            )

        return load


def unpacked(text: str, name: str) -> Golden:
    """Labels that `Golden.packed` wrote. Raises ValueError if the text is something else."""
    try:
        lines = zlib.decompress(base64.b64decode(text, validate=True)).decode()
    except zlib.error as error:
        raise ValueError(name) from error
    return Golden(name, [json.loads(line) for line in lines.split("\n") if line])


def load_golden(path: str | os.PathLike[str], *, groups_must_agree: bool = True) -> Golden:
    """Load a golden file: a list in YAML or JSON, or JSONL. Raises GoldenError with every fault in it."""
    with no_garbage_collection():
        checked: Checked = check_entries(read_entries(Path(path)))
    disagreeing = group_faults(checked)
    faults = [*checked.faults, *(disagreeing if groups_must_agree else ())]
    if faults:
        raise GoldenError(str(path), [text for _, text in sorted(faults)])
    return Golden(
        str(path),
        checked.entries,
        checked.warnings,
        checked.lines,
        [text for _, text in disagreeing],
        checked.own,
    )
