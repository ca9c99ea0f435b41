"""What numbers were computed from, so that a later call knows whether they are still current.

Everything that a number depends on has a short digest: the stored rows with the run's configuration, the labels, the
metric definitions, how hits were matched, the knowledge base that citations refer to and, if places decide, the places
of the expected chunks, which hits of other runs may state.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from kbeval import __version__
from kbeval.metrics.definitions import definitions_hash
from kbeval.metrics.model import AggregateMetrics
from kbeval.storage.digests import digest_of
from kbeval.storage.run_config import kept_config

if TYPE_CHECKING:
    from kbeval.engine.session import Session
    from kbeval.golden import Golden
    from kbeval.scoring.options import ScoreOptions

NEW, FORCED = "new", "scored again as requested"
DATA, LABELS, DEFINITIONS = "rows changed", "labels changed", "definitions changed"
MATCHING, CONFIGURATION = "matching changed", "configuration changed"
JUDGEMENTS = "judgements changed"
KNOWLEDGE_BASE, PLACES = "chunks or documents changed", "places of expected chunks changed"
_REASONS = {
    "rows": DATA,
    "config": CONFIGURATION,
    "golden": LABELS,
    "metrics": DEFINITIONS,
    "match": MATCHING,
    "min_overlap": MATCHING,
    "overlap_of": MATCHING,
    "missing": "missing queries count differently",
    "knowledge_base": KNOWLEDGE_BASE,
    "places": PLACES,
    "label_versions": PLACES,
    "judge": JUDGEMENTS,
}
# Fields that matter only for numbers that were matched by places.
_OF_PLACES = ("min_overlap", "overlap_of", "places")


def provenance(session: Session, golden: Golden, options: ScoreOptions) -> dict[str, Any]:
    """The part that is the same for all runs of one scoring."""
    found: dict[str, Any] = {
        "kbeval": __version__,
        "metrics": definitions_hash(options.metrics()),
        "golden": golden.hash,
        "match": options.match,
    }
    if options.missing != "skip":
        found["missing"] = options.missing
    if options.judge:
        found["judge_named"] = options.judge
    session.need("known_chunks", "documents")
    found["knowledge_base"] = _shortened(digest_of(session, "FROM known_chunks", "FROM documents"))
    return found


def of_places(session: Session, options: ScoreOptions) -> dict[str, Any]:
    """The part that matters only for numbers that were matched by places."""
    return {"min_overlap": options.min_overlap, "overlap_of": options.overlap_of, "places": _places(session)}


class LabelVersions:
    """The chunker versions of the labels, if they are known only from hits of other runs: `match = auto` then depends
    on them.
    """

    def __init__(
        self, session: Session, golden: Golden, options: ScoreOptions, stored_versions: Collection[str | None]
    ) -> None:
        """`stored_versions`: the chunkers named by the configurations of all stored runs, possibly with None."""
        self._session = session
        self._matters = options.match == "auto" and golden.has("expected_chunk_ids")
        self._several = len({version for version in stored_versions if version is not None}) > 1

    def of_run(self, version: str | None) -> dict[str, str]:
        """For a run whose configuration names this version; empty if nothing depends on it."""
        needed = self._matters and (self._several or version is None) and self._digest
        return {"label_versions": needed} if needed else {}

    @functools.cached_property
    def _digest(self) -> str | None:
        self._session.need("unplaced_chunks")
        if not self._session.rows("SELECT 1 FROM unplaced_chunks LIMIT 1"):
            return None
        self._session.need("label_versions")
        return _shortened(digest_of(self._session, "FROM label_versions"))


def of_run(rows: str, config_json: str) -> dict[str, str]:
    """The part of one run: the digest of its rows, and its configuration.

    Secrets are excluded: no number depends on them, and a digest would make guesses verifiable.
    """
    return {"rows": rows, "config": _short(kept_config(config_json))}


def judges(session: Session) -> dict[str, dict[str, Any]]:
    """For each run that was judged here: the judging that its scores come from, for each rubric."""
    session.need("judgings")
    found: dict[str, dict[str, Any]] = {}
    for run_id, rubric, judging, provider, model, rubric_hash, parameters, cut, unfinished in session.rows(
        "SELECT run_id, rubric, judging_id, provider, model, rubric_hash, parameters, n_cut_contexts,"
        " CASE WHEN NOT is_complete THEN n_judged END FROM judgings WHERE is_chosen ORDER BY run_id, rubric"
    ):
        found.setdefault(run_id, {})[rubric] = {
            "judging": judging,
            "model": f"{provider}:{model}",
            "rubric": rubric_hash,
            "parameters": parameters,
            **({"cut_contexts": cut} if cut else {}),
            **({} if unfinished is None else {"unfinished": unfinished}),
        }
    return found


def by_places(provenance: Mapping[str, Any]) -> bool:
    """Were numbers matched by places?"""
    return "places" in provenance


def _places(session: Session) -> str:
    """The places of labels, and of hits that do not state their own."""
    session.need("expected_places", "indexed_places")
    return _shortened(digest_of(session, "FROM expected_places", "FROM indexed_places"))


def _shortened(digest: str) -> str:
    return digest[: len("sha256:") + 16]


def _short(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def reasons(stored: AggregateMetrics | None, now: Mapping[str, Any]) -> list[str]:
    """Why stored numbers differ from what scoring would give now; empty if they do not."""
    if stored is None:
        return [NEW]
    made_from = stored.provenance
    if "rows" not in made_from:
        return ["scored by an older version"]
    # How a run was matched follows from the other parts, so places matter only if they decided.
    left_out = () if by_places(made_from) else _OF_PLACES
    changed = [name for name in _REASONS if name not in left_out and made_from.get(name) != now.get(name)]
    found = dict.fromkeys(_REASONS[name] for name in changed)
    if PLACES in found and found.keys() & {LABELS, KNOWLEDGE_BASE, MATCHING, CONFIGURATION}:
        # Already reported.
        del found[PLACES]
    return list(found)
