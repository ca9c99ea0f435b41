"""Other systems' files → runs of a database: `anchors` (a results folder) and `grounded` (traces).

A row keeps everything that it held. What kbeval knows gets kbeval's name and shape (`query_id`, `hits_top_k`,
`answer`); the rest stays as it is, so that exporting gives back what was imported.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Fields of a row of theirs that have one of our names, and mean something else; kept apart, so that nothing is lost.
APART = "kbeval_source"


@dataclass(frozen=True)
class ImportedRun:
    """A run as it will be stored."""

    run_id: str
    suite: str
    system: str
    config: dict[str, Any]
    rows: Sequence[tuple[str, str]]
    created_at: str
    warnings: Sequence[str] = field(default_factory=tuple)

    @functools.cached_property
    def hash(self) -> str:
        """Changes when anything in the run does, and not with the layout of its files."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for query_id, text in self.rows:
            digest.update(f"\n{json.dumps(query_id)} {text}".encode())
        return "sha256:" + digest.hexdigest()[:16]

    @property
    def config_json(self) -> str:
        """The configuration as stored; what is kbeval's own is under one key."""
        about = {"system": self.system, "hash": self.hash}
        if "kbeval" in self.config:
            about["theirs"] = self.config["kbeval"]
        return json.dumps({**self.config, "kbeval": about}, ensure_ascii=False)
