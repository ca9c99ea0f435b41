"""How many failed queries a run may have: `--max-errors 20%` or a number."""

from __future__ import annotations

import re

from kbeval.errors import UsageError
from kbeval.live.exchange import Failure
from kbeval.live.sending import CONNECTION, HTTP, TIMEOUT
from kbeval.util.text import counted

# A percentage applies once this many queries are done; with fewer it means little.
_LEAST_DONE = 20
# This many consecutive failures of the system are an outage, whatever the percentage.
_IN_A_ROW = 25
_GIVEN = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?)(%?)")


class ErrorsAllowed:
    """Counts failures, and reports when there are too many."""

    def __init__(self, text: str, total: int, done: int = 0) -> None:
        given = _GIVEN.fullmatch(text.strip())
        if given is None or (given[2] and float(given[1]) > 100) or (not given[2] and "." in given[1]):
            msg = f"--max-errors {text!r} is neither a percentage such as 20% nor a whole number"
            raise UsageError(msg)
        self._text = text.strip()
        self._share = float(given[1]) / 100 if given[2] else None
        self._count = None if given[2] else int(given[1])
        self._total = total
        self._done = done
        self._failed = 0
        self._in_a_row = 0

    def count(self, failure: Failure | None) -> str | None:
        """Count a finished query. Returns the reason to stop the run, or None."""
        self._done += 1
        if failure is None:
            self._in_a_row = 0
            return None
        self._failed += 1
        is_outage = failure.kind in (CONNECTION, TIMEOUT) or (failure.kind == HTTP and (failure.status or 0) >= 429)
        self._in_a_row = self._in_a_row + 1 if is_outage else 0
        last = f"the last error: {failure.kind}: {failure.message}"
        if self._count is not None:
            is_over = self._failed > self._count
        else:
            allowed = (self._share or 0) * max(self._done, min(_LEAST_DONE, self._total))
            is_over = self._failed > allowed
        if is_over:
            many = counted(self._failed, "query has", "queries have")
            return f"{many} failed, more than --max-errors {self._text} allows; {last}"
        if self._in_a_row >= _IN_A_ROW and (self._share is None or self._share < 1):
            return f"the last {self._in_a_row} queries have all failed; {last}"
        return None
