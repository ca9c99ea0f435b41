"""The options of a run, and its result."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbeval.errors import UsageError
from kbeval.golden import Golden
from kbeval.live.asking import Row
from kbeval.live.sending import Attempt

Say = Callable[[str], None]
_QUIET: Say = lambda _: None  # noqa: E731  (says nothing)


@dataclass(frozen=True)
class Choice:
    """Which golden queries to ask."""

    limit: int | None = None
    only: Sequence[str] = ()
    sample: int | None = None
    seed: int = 0

    def choose(self, golden: Golden) -> list[str]:
        """The ids of the queries, in the order of the file."""
        ids = [str(entry["id"]) for entry in golden.entries]
        if self.only:
            if unknown := [query_id for query_id in self.only if query_id not in set(ids)]:
                msg = f"--only: {golden.path} has no query {unknown[0]!r}"
                raise UsageError(msg)
            ids = [query_id for query_id in ids if query_id in set(self.only)]
        if self.sample is not None and self.sample < len(ids):
            # The same seed chooses the same queries, whatever their order in the file.
            drawn = set(random.Random(self.seed).sample(sorted(ids), self.sample))  # noqa: S311  (reproducible)
            ids = [query_id for query_id in ids if query_id in drawn]
        return ids[: self.limit]

    def described(self) -> dict[str, Any]:
        """As it is stored; empty if all queries are asked."""
        found: dict[str, Any] = {}
        if self.only:
            found["only"] = list(self.only)
        if self.sample is not None:
            found |= {"sample": self.sample, "seed": self.seed}
        return found if self.limit is None else {**found, "limit": self.limit}


@dataclass(frozen=True)
class Exchange:
    """A request, the body of its response, and the row made from it; all without secrets."""

    query_id: str
    request: str
    attempt: Attempt[Row]
    body: str | None
    row: Row


@dataclass(frozen=True)
class RunOptions:
    """How to make a run. Where a value is None, that of the target or a default applies."""

    k: int | None = None
    mode: str | None = None
    run_id: str | None = None
    suite: str = "live"
    choice: Choice = field(default_factory=Choice)
    repeat: int = 1
    retrieval_only: bool = False
    description: str | None = None
    store_full_text: bool = False
    concurrency: int | None = None
    rate: float | None = None
    max_errors: str = "20%"
    # The command that makes the run, and continues it.
    command: str = "run"
    # Shows each request with its response and the row made from it.
    on_exchange: Callable[[Exchange], None] | None = None
    say: Say = _QUIET


@dataclass(frozen=True)
class Finished:
    """A run that was stored."""

    run_id: str
    queries: int
    failed: int
    seconds: float
    warnings: Sequence[str]
