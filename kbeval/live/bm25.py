"""BM25 as a target: a baseline that needs no server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbeval.live.asking import Asking, Query, Row
from kbeval.live.passages import WORD, Bm25
from kbeval.live.program_targets import attempt_once
from kbeval.live.sending import OnAttempt, Outcome


class Bm25Target:
    """The baseline as a target."""

    def __init__(self, database: Path, chunker_version: str | None, asking: Asking) -> None:
        self._index = Bm25(database, chunker_version)
        self._asking = asking
        self._lock = asyncio.Lock()

    @property
    def index(self) -> Bm25:
        """The index itself, which knows the version of the chunks."""
        return self._index

    async def __aenter__(self) -> Self:
        self._index.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._index.__exit__(kind, error, trace)

    def request_text(self, query: Query) -> str:
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(WORD.findall(query.text)))
        return f"BM25 over the table chunks: the best {query.k} of {words}"

    async def ask(self, query: Query, on_attempt: OnAttempt[Row]) -> Outcome[Row]:
        async def answer() -> dict[str, Any]:
            # The process answers one request at a time.
            async with self._lock:
                return {"hits_top_k": await asyncio.to_thread(self._index.search, query.text, query.k)}

        return await attempt_once(query, self._asking, answer, on_attempt)

    async def check_health(self) -> str | None:
        """Nothing to check: the index was built on entry."""
        return None
