"""The exit code decided so far: it holds even if the reader closes the pipe before the output is printed."""

from __future__ import annotations


class ExitCode:
    """The exit code of a completed check: 0, or 1 if it failed. There is one per process."""

    code = 0

    def decide(self, code: int) -> int:
        """Set the code. Call this before printing, because printing ends when the reader closes the pipe."""
        self.code = code
        return code


EXIT_CODE = ExitCode()
