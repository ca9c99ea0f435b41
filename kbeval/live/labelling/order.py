"""What to label, and in which order: undecided candidates that most runs returned come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbeval.errors import UsageError
from kbeval.explore.pool import DEFAULT_DEPTH, MoreItem, Pool, QueryPool, build_pool, decided_items
from kbeval.golden import Golden
from kbeval.live.labelling.candidates import items_of_hits
from kbeval.live.labelling.consensus import Consensus
from kbeval.scoring.options import ScoreOptions
from kbeval.scoring.scorer import open_scoring
from kbeval.storage.labels import Decision
from kbeval.storage.runs import find_run
from kbeval.storage.source import with_or_without_copy
from kbeval.util.text import did_you_mean

_NOTHING = QueryPool("", 0, 0, 0, 0.0)


@dataclass(frozen=True)
class Chosen:
    """Which queries to label, and how."""

    annotator: str
    depth: int = DEFAULT_DEPTH
    only: Sequence[str] = ()
    category: str | None = None
    unlabelled: bool = False
    since_run: str | None = None
    # The form of new labels: spans, chunks or supports; None: the form that the entries already use.
    form: str | None = None
    # Candidates are shown in an order that reveals nothing about ranks; the same seed gives the same order.
    seed: int = 0
    # Only the queries on which people disagree, to settle them.
    to_settle: bool = False
    options: ScoreOptions = field(default_factory=ScoreOptions)


def make_pool(
    database: Path,
    golden: Golden,
    chosen: Chosen,
    decided: Sequence[Decision],
    fresh: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Pool:
    """The pool of what runs returned, what this person decided on, and what a live system returned now."""
    own = decided if chosen.to_settle else [one for one in decided if one.annotator == chosen.annotator]
    more = decided_items(own)
    for query_id, hits in fresh.items():
        more += [
            MoreItem(query_id, one.chunk_id, one.chunker_version, one.doc_id, one.path, one.spans_text, None)
            for one in items_of_hits(query_id, hits)
        ]

    def pooled(options: ScoreOptions) -> Pool:
        with open_scoring(database, golden, None, options, lazily=True, leave_out=True) as scoring:
            runs = list(scoring.runs)
            if chosen.since_run is not None:
                first = find_run(runs, chosen.since_run, str(database), None)
                runs = runs[runs.index(first) :]
            build_pool(scoring.session, runs, more, chosen.depth)
            return Pool(scoring.session)

    return with_or_without_copy(chosen.options, pooled)


def order_of(golden: Golden, chosen: Chosen, pool: Pool, decided: Sequence[Decision]) -> list[str]:
    """The queries to be labelled, the most valuable first."""
    entries = {str(entry["id"]): entry for entry in golden.entries}
    for name in chosen.only:
        if name not in entries:
            msg = f"{golden.path} has no query {name!r}{did_you_mean(name, entries)}"
            raise UsageError(msg)
    found = [
        query_id
        for query_id, entry in entries.items()
        if (not chosen.only or query_id in chosen.only)
        and (chosen.category is None or entry.get("category") == chosen.category)
        and (not chosen.unlabelled or not _is_labelled(entry))
    ]
    if chosen.to_settle:
        open_ones = Consensus(decided).open_counts()
        found = [query_id for query_id in found if query_id in open_ones]
    elif chosen.since_run is not None:
        found = [query_id for query_id in found if pool.queries.get(query_id, _NOTHING).open]
    place = {query_id: number for number, query_id in enumerate(entries)}

    def value(query_id: str) -> tuple[float, float, int]:
        own = pool.queries.get(query_id, _NOTHING)
        return -own.most_runs, -own.disagreement, place[query_id]

    return sorted(found, key=value)


def _is_labelled(entry: Mapping[str, Any]) -> bool:
    return (
        any(entry.get(name) for name in ("expected_chunk_ids", "expected_spans", "gold_supports", "relevance"))
        or entry.get("answerable") is False
        or entry.get("expected_doc_ids") is not None
    )
