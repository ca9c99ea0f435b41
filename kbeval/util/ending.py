"""How this process ends: the command line ends it with its command, and leaves it to the system to release memory."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn


class Ending:
    """Set up by the command line; in other programs, a session is closed where it ends."""

    def __init__(self) -> None:
        self.is_with_command = False

    @staticmethod
    def end(code: int) -> NoReturn:
        """End the process at once. Spilled data is removed from disk."""
        if (spilling := sys.modules.get("kbeval.engine.spill")) is not None:
            with contextlib.suppress(Exception):
                spilling.remove_own()
        os._exit(code)


ENDING = Ending()
