"""What numbers were made from, so that it can be told later whether they are still what scoring would give.

Everything that a number depends on has a short digest: the stored rows with the run's configuration, the labels, the
metric definitions, how hits were matched, and the knowledge base that citations lead to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbeval import __version__
from kbeval.metrics import definitions_hash
from kbeval.model import AggregateMetrics

if TYPE_CHECKING:
    from kbeval.engine import Session
    from kbeval.golden import Golden
    from kbeval.scoring import ScoreOptions

NEW = "new"
DATA, LABELS, DEFINITIONS = "rows changed", "labels changed", "definitions changed"
_REASONS = {
    "rows": DATA,
    "config": "configuration changed",
    "golden": LABELS,
    "metrics": DEFINITIONS,
    "matching": "matching changed",
    "min_overlap": "matching changed",
    "overlap_of": "matching changed",
    "missing": "missing queries count differently",
    "knowledge_base": "chunks or documents changed",
}


def provenance(session: Session, golden: Golden, options: ScoreOptions) -> dict[str, Any]:
    """What is the same for all runs of one scoring."""
    found: dict[str, Any] = {
        "kbeval": __version__,
        "metrics": definitions_hash(options.metrics()),
        "golden": golden.hash,
        "matching": options.matching,
    }
    if options.matching == "span":
        found |= {"min_overlap": options.min_overlap, "overlap_of": options.overlap_of}
    if options.missing_as_zero:
        found["missing"] = "zero"
    found["knowledge_base"] = _knowledge_base(session)
    return found


def of_run(rows: str, config_json: str) -> dict[str, str]:
    """What is a run's own: its rows, by their digest, and its configuration."""
    return {"rows": rows, "config": _short(config_json)}


def _knowledge_base(session: Session) -> str:
    """The chunks and documents that citations are held against, in no order."""
    session.need("known_chunks", "documents")
    found = session.rows(
        "SELECT 'chunks', COUNT(*), BIT_XOR(md5_number(to_json([chunk_id, doc_id, chunker_version, spans_text])))"
        " FROM known_chunks UNION ALL"
        " SELECT 'documents', COUNT(*), BIT_XOR(md5_number(to_json([doc_id, path]))) FROM documents"
    )
    return _short(repr(sorted(found)))


def _short(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def reasons(stored: AggregateMetrics | None, now: Mapping[str, Any]) -> list[str]:
    """Why stored numbers are not what scoring would give now; empty where they are."""
    if stored is None:
        return [NEW]
    made_from = stored.provenance
    if "rows" not in made_from:
        return ["scored by an older version"]
    changed = [name for name in _REASONS if made_from.get(name) != now.get(name)]
    return list(dict.fromkeys(_REASONS[name] for name in changed))
