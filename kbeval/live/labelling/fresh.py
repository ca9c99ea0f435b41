"""Asks a live system what it returns now, for the pool. Nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbeval.golden import Golden
from kbeval.live.asking import Asking, Query, Row
from kbeval.live.limits import Limit
from kbeval.live.progress import Progress
from kbeval.live.sending import Attempt
from kbeval.live.targets import TargetConfig, open_target
from kbeval.live.working import Crew, handling_interrupts, run_async


def ask_target(
    target: TargetConfig, golden: Golden, ids: Sequence[str], database: Path, k: int
) -> tuple[Mapping[str, Sequence[Mapping[str, Any]]], list[str]]:
    """The hits for each query, and the queries that failed."""
    found: dict[str, Sequence[Mapping[str, Any]]] = {}
    failed: list[str] = []
    entries = {str(entry["id"]): entry for entry in golden.entries}
    mode = target.table.get("mode")
    queries = [Query(i, str(entries[i]["query"]), entries[i], k, mode, retrieval_only=True) for i in ids]

    async def main() -> None:
        limit = Limit(target.ceiling, target.table.get("rate"))
        crew = Crew(limit)
        progress = Progress("asking the live system", len(queries), limit)
        opened = open_target(target, Asking(crew, target.environment(), progress.retried), database)

        async def ignore(attempt: Attempt[Row]) -> None:
            """Nothing is stored."""

        async def job(query: Query) -> None:
            outcome = await opened.ask(query, ignore)
            progress.finished(is_error=outcome.failure is not None)
            if outcome.failure is not None or outcome.value is None:
                failed.append(query.id)
                return
            hits = outcome.value.get("hits_top_k")
            found[query.id] = [hit for hit in hits if isinstance(hit, dict)] if isinstance(hits, list) else []

        with handling_interrupts(crew):
            async with opened, progress.shown():
                await crew.run(queries, job)

    run_async(main())
    return found, sorted(failed)
