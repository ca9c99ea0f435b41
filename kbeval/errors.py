"""The errors of kbeval with their exit codes. Only the command line exits with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kbeval.util.text import counted, cut, shown

_SHOWN = 50
_LINE = 300
WANT_OF_MEMORY = "not enough memory; try a higher --memory-limit"


class KbevalError(Exception):
    """Base class. The message says what happened, where, and what to do, in one line; details follow, one per line."""

    exit_code = 2

    def __init__(self, headline: str, details: Sequence[str] = ()) -> None:
        from kbeval.util.hiding import hide_known

        # Messages quote data, and data is never trusted: one line each, no terminal escape sequences, no secrets.
        self.headline = cut(shown(hide_known(headline)), 4 * _LINE)
        self.details = [cut(shown(hide_known(detail)), _LINE) for detail in details[:_SHOWN]]
        if len(details) > _SHOWN:
            self.details.append(f"… and {len(details) - _SHOWN:,} more")
        super().__init__("\n".join([self.headline, *(f"  {detail}" for detail in self.details)]))


class UsageError(KbevalError):
    """The request refers to something that does not exist, or its parts contradict each other."""


class DatabaseError(KbevalError):
    """The database cannot be read or written."""


class NotEnoughMemoryError(KbevalError):
    """The engine ran out of its memory limit."""


class EngineError(KbevalError):
    """An engine elsewhere is away, or cannot do what it was asked."""


class EngineAwayError(EngineError):
    """An engine elsewhere does not answer."""


class CopyLostError(DatabaseError):
    """The cache next to a database disappeared while it was being read."""


class MetricError(KbevalError):
    """A metric definition is wrong."""


class DeprecatedMetricWarning(FutureWarning):
    """A metric definition uses syntax that will stop working; the message names the replacement."""


class GoldenError(KbevalError):
    """The golden file has errors; all of them are listed."""

    def __init__(self, path: str, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        if len(faults) == 1:
            super().__init__(f"{path}: {faults[0]}")
        else:
            super().__init__(f"{path}: {len(faults):,} errors in the golden file; fix them first:", faults)


class BrokenRunsError(KbevalError):
    """Runs or rows with a duplicate or unreadable key; each fault names its run and query."""

    def __init__(self, faults: Sequence[str], runs: int, what: str, codes: Collection[str]) -> None:
        """`codes`: the kinds of fault that occurred."""
        self.faults = list(faults)
        have, their = ("it has", "its") if runs == 1 else ("they have", "their")
        several = f"{have} {{}} and it is ambiguous which of them counts"
        why = {
            "repeated-row": several.format("several rows for one query"),
            "repeated-run": several.format("several rows in eval_runs"),
            "unreadable-key": f"{their} run_id or suite is not UTF-8 text",
        }
        because = ", or ".join(text for code, text in why.items() if code in codes)
        advice = "fix it in eval_runs" if codes == {"unreadable-key"} else "keep one of each"
        super().__init__(f"{counted(runs, 'run')} {what}, because {because}; {advice}:", faults)


class BadRowsError(KbevalError):
    """Stored rows that cannot be read; each fault names its run and query."""

    def __init__(self, faults: Sequence[str], advice: str) -> None:
        self.faults = list(faults)
        super().__init__(f"{counted(len(faults), 'stored row')} cannot be read; {advice}", faults)
