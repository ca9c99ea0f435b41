"""Options for reading stored runs, shared by all commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval.engine.session import Session
from kbeval.storage.database_file import database_size


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The resources that reading may use, and whether it uses the cache; every field has a default."""

    # Cache parsed rows next to the database: 'auto' (only if it is large), 'on' or 'off'.
    cache: str = "auto"
    # DuckDB threads; None: one per processor, or one for a small database. Never more than the memory limit allows.
    threads: int | None = None
    # DuckDB's memory limit, e.g. '400MB' (the default); what does not fit is spilled to disk.
    memory_limit: str | None = None
    # Use as little memory as possible, however slow: one thread, one row at a time.
    sparing: bool = False
    # The address of an engine elsewhere, a Spark Connect server: sc://HOST:PORT. '': DuckDB does everything.
    engine: str = ""
    # Called with the name of each step, to show progress.
    on_step: Callable[[str], None] | None = None

    def session(self, database: str | os.PathLike[str], reach: Sequence[Path] = ()) -> Session:
        """A session sized for the database. `reach`: folders and files that it may read and write."""
        return Session(**self.session_settings(database, reach))

    def session_settings(self, database: str | os.PathLike[str], reach: Sequence[Path]) -> dict[str, Any]:
        """The settings of such a session."""
        return {
            "threads": self.threads,
            "memory_limit": self.memory_limit,
            # What was written last may still be in the write-ahead log.
            "expected_bytes": database_size(database) + database_size(f"{os.fspath(database)}-wal"),
            "on_step": self.on_step,
            "reach": reach,
            "is_sparing": self.sparing,
        }
