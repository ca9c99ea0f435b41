"""What can go wrong, and the exit code of each. Only the command line turns these into exits."""

from __future__ import annotations

from collections.abc import Sequence

from kbeval.text import counted


class KbevalError(Exception):
    """Could not do it: the message says what, where and what to do."""

    exit_code = 2


class UsageError(KbevalError):
    """Asked for something that does not exist or does not fit together."""


class DatabaseError(KbevalError):
    """The database cannot be read or written."""


class MetricError(KbevalError):
    """A metric definition is wrong."""


class GoldenError(KbevalError):
    """The golden file has faults; all of them are listed."""

    def __init__(self, path: str, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        if len(faults) == 1:
            super().__init__(f"{path}: {faults[0]}")
            return
        shown = "\n".join(f"  {fault}" for fault in faults)
        super().__init__(f"{path}: {len(faults):,} faults in the golden file; correct them first:\n{shown}")


class BadRowsError(KbevalError):
    """Stored rows that cannot be read; each names its run and query."""

    SHOWN = 20

    def __init__(self, faults: Sequence[str], advice: str) -> None:
        self.faults = list(faults)
        lines = [f"  {fault}" for fault in faults[: self.SHOWN]]
        if len(faults) > self.SHOWN:
            lines.append(f"  … and {len(faults) - self.SHOWN:,} more")
        super().__init__(f"{counted(len(faults), 'stored row')} cannot be read; {advice}\n" + "\n".join(lines))
