"""`compare(a, b)` in a query: the rows of `kbeval compare` for the two runs that it names.

They are computed by the comparison itself, in a separate session: the two runs are matched as they must be (by spans if
their chunkers differ), whatever the enclosing session does, and no other run is read.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from kbeval.compare.options import CompareOptions
from kbeval.errors import UsageError
from kbeval.golden import Golden

if TYPE_CHECKING:
    from kbeval.engine.session import Session
    from kbeval.scoring.options import ScoreOptions

_MACRO = (
    "CREATE MACRO compare(first_run, second_run) AS TABLE SELECT * EXCLUDE (first_name, second_name) FROM comparisons"
    " WHERE first_name = first_run AND second_name = second_run"
)


class Comparisons:
    """The comparisons that a session has built so far."""

    def __init__(self, database: str | os.PathLike[str], options: ScoreOptions) -> None:
        # The query is answered; objections to the comparison are reported as warnings.
        self._options = CompareOptions(options, ignore_invariants=True, skip_bad_rows=True)
        self._database = database
        self._made: set[tuple[str, str]] = set()
        self._warnings: dict[str, None] = {}

    def make(self, session: Session, golden: Golden | None, pairs: Collection[tuple[str, str]]) -> None:
        """Build the comparisons that do not exist yet. Runs are given as everywhere: by id, prefix or `latest`."""
        if pairs and golden is None:
            msg = "compare(a, b) needs labels, and no golden file is given; use --golden FILE"
            raise UsageError(msg)
        if not set(pairs) - self._made:
            return
        from kbeval.compare.run import compared_rows  # most queries compare nothing, and NumPy is large

        for first, second in sorted(set(pairs) - self._made):
            rows, warnings = compared_rows(first, second, db=self._database, golden=golden, options=self._options)
            session.connection.register("arriving", rows.to_arrow())
            try:
                columns = "SELECT $1::VARCHAR AS first_name, $2::VARCHAR AS second_name, * FROM arriving"
                how = "INSERT INTO comparisons BY NAME" if self._made else "CREATE TABLE comparisons AS"
                session.execute(f"{how} {columns}", [first, second])
            finally:
                session.connection.unregister("arriving")
            if not self._made:
                session.execute(_MACRO)
            self._made.add((first, second))
            self._warnings.update(dict.fromkeys(f"compare {first} {second}: {warning}" for warning in warnings))

    def forget(self) -> None:
        """Forget all comparisons, because their session has ended."""
        self._made.clear()

    def take_warnings(self) -> list[str]:
        """The warnings about the answers, each once."""
        found = list(self._warnings)
        self._warnings.clear()
        return found
