"""What the command has found out by now: it stands even where nobody reads what is printed."""

from __future__ import annotations


class Answer:
    """The exit code of a question that was answered: 0, or 1 where the answer is no. A process answers one."""

    code = 0

    def say(self, code: int) -> int:
        """To be said before anything is printed, which may come to an end with its reader."""
        self.code = code
        return code


ANSWER = Answer()
