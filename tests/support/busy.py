"""Processes that work on something: waiting for them by what they have done, not by the clock."""

from __future__ import annotations

import os
import time
from pathlib import Path


def seconds_used(pid: int) -> float:
    """The processor time of a process so far."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_busy(pid: int, waited: float, more: float) -> None:
    """Wait until a process has worked for a while: `more` seconds of processor time, or at least `waited` seconds where
    that is not known.
    """
    if not Path(f"/proc/{pid}/stat").exists():
        time.sleep(waited)
        return
    enough, until = seconds_used(pid) + more, time.monotonic() + 60
    while seconds_used(pid) < enough and time.monotonic() < until:
        time.sleep(0.02)
