"""The interface of a target: a system that is sent queries and returns rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from kbeval.live.environment import Environment
from kbeval.live.sending import OnAttempt, Outcome
from kbeval.live.working import Crew

Row = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """A golden query as it is asked."""

    id: str
    text: str
    entry: Mapping[str, Any]
    k: int
    mode: str | None
    retrieval_only: bool

    @property
    def values(self) -> dict[str, Any]:
        """The values for templates."""
        own = {"k": self.k, "mode": self.mode, "retrieval_only": self.retrieval_only, "query_id": self.id}
        return {**self.entry, **own, "query": self.text, "question": self.text}


@dataclass(frozen=True)
class Asking:
    """What every target is given: the crew that limits its requests, and the environment with its secrets."""

    crew: Crew
    environment: Environment
    on_retry: Callable[[], None] = lambda: None


class Target(Protocol):
    """A system that answers queries. Use as an asynchronous context manager."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def request_text(self, query: Query) -> str:
        """The request as it would be sent, without secrets. Raises `TemplateError` if it cannot be rendered."""
        ...

    async def ask(self, query: Query, on_attempt: OnAttempt[Row]) -> Outcome[Row]:
        """Send the query, and pass every attempt to `on_attempt`, which stores it."""
        ...

    async def check_health(self) -> str | None:
        """What is wrong with the system; None if nothing is."""
        ...
