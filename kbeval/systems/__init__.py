"""Imports: files of other systems become runs (one module per format), and `recorder` records runs from Python.

A row keeps all of its fields. Those that kbeval knows get kbeval's names and shapes (`query_id`, `hits_top_k`,
`answer`); the rest is unchanged, so that an export returns what was imported.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbeval.util.hiding import without_secrets

# Imported fields that have one of our names but another meaning; kept separately, so that nothing is lost.
APART = "kbeval_source"


@dataclass(frozen=True)
class ImportedRun:
    """A run as it will be stored."""

    run_id: str
    suite: str
    # None: it was recorded, not imported.
    system: str | None
    config: dict[str, Any]
    rows: Sequence[tuple[str, str]]
    created_at: str
    warnings: Sequence[str] = field(default_factory=tuple)
    # The scores that came with its rows, each with the direction in which it improves; see `kbeval.metrics.row_scores`.
    scores: Mapping[str, str] = field(default_factory=dict)
    commit_hash: str | None = None

    @functools.cached_property
    def hash(self) -> str:
        """Changes with anything in the run except its secrets, and not with the layout of its files.

        It is shown, and a digest that covered secrets would let others verify guesses.
        """
        config = without_secrets(json.loads(json.dumps(self.config, sort_keys=True)))
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
        for query_id, text in self.rows:
            digest.update(f"\n{json.dumps(query_id)} {text}".encode())
        return "sha256:" + digest.hexdigest()[:16]

    @property
    def config_json(self) -> str:
        """The configuration as stored; kbeval's own values are under one key."""
        about: dict[str, Any] = {} if self.system is None else {"system": self.system}
        about["hash"] = self.hash
        if self.scores:
            about["scores"] = dict(sorted(self.scores.items()))
        if "kbeval" in self.config:
            about["theirs"] = self.config["kbeval"]
        return json.dumps({**self.config, "kbeval": about}, ensure_ascii=False)
