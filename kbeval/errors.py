"""What can go wrong, and the exit code of each. Only the command line turns these into exits."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kbeval.text import counted, cut, shown

_SHOWN = 50
_LINE = 300


class KbevalError(Exception):
    """Could not do it: the message says what, where and what to do, in one line; details follow one a line."""

    exit_code = 2

    def __init__(self, headline: str, details: Sequence[str] = ()) -> None:
        # Messages quote data, and data is never trusted: one line each, nothing that a terminal would obey.
        self.headline = cut(shown(headline), 4 * _LINE)
        self.details = [cut(shown(detail), _LINE) for detail in details[:_SHOWN]]
        if len(details) > _SHOWN:
            self.details.append(f"… and {len(details) - _SHOWN:,} more")
        super().__init__("\n".join([self.headline, *(f"  {detail}" for detail in self.details)]))


class UsageError(KbevalError):
    """Asked for something that does not exist or does not fit together."""


class DatabaseError(KbevalError):
    """The database cannot be read or written."""


class NotEnoughMemoryError(KbevalError):
    """The engine could not do it within its memory limit."""


class CopyLostError(DatabaseError):
    """The columnar copy beside a database went away while it was read."""


class MetricError(KbevalError):
    """A metric definition is wrong."""


class GoldenError(KbevalError):
    """The golden file has faults; all of them are listed."""

    def __init__(self, path: str, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        if len(faults) == 1:
            super().__init__(f"{path}: {faults[0]}")
        else:
            super().__init__(f"{path}: {len(faults):,} faults in the golden file; correct them first:", faults)


class BrokenRunsError(KbevalError):
    """Runs that are not named by one key, or whose rows are not; each fault names its run and query."""

    def __init__(self, faults: Sequence[str], runs: int, what: str, codes: Collection[str]) -> None:
        """`codes`: the kinds of fault that there are."""
        self.faults = list(faults)
        have, their = ("it has", "its") if runs == 1 else ("they have", "their")
        several = f"{have} {{}} and it is not clear which of them counts"
        why = {
            "repeated-row": several.format("several rows for one query"),
            "repeated-run": several.format("several rows in eval_runs"),
            "unreadable-key": f"{their} run_id or suite is not UTF-8 text",
        }
        because = ", or ".join(text for code, text in why.items() if code in codes)
        advice = "correct it in eval_runs" if codes == {"unreadable-key"} else "keep one of each"
        super().__init__(f"{counted(runs, 'run')} {what}, because {because}; {advice}:", faults)


class BadRowsError(KbevalError):
    """Stored rows that cannot be read; each names its run and query."""

    def __init__(self, faults: Sequence[str], advice: str) -> None:
        self.faults = list(faults)
        super().__init__(f"{counted(len(faults), 'stored row')} cannot be read; {advice}", faults)
