"""Ctrl-C always gets through: it stops what is going on, and where that does not stop it ends the process.

The engine cannot be stopped in the middle of one function of one value, and a library that is being loaded may not be
interrupted at all: it would abort the process. So an interruption waits until what is being imported is there; and
where nothing came of it for a while, or it is repeated, the process ends as if it had been stopped. Nothing is
half-written then: files are written under another name, and databases in transactions.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

# How long what was interrupted may take to stop, and when a second Ctrl-C is meant as one.
GRACE_SECONDS = 2.0
IMPATIENT_SECONDS = 0.5
CODE = 130
_RETRY_SECONDS = 0.02


class Interrupts:
    """Watches for Ctrl-C from a thread of its own, which runs whatever the main thread is busy with."""

    def __init__(self) -> None:
        self._since: float | None = None
        # Signals that we sent ourselves, because the first one came at a bad moment.
        self._own = 0
        self._lock = threading.Lock()

    def install(self) -> None:
        """From here on Ctrl-C is ours; not where the caller ignores it, as for a job in the background."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._watch, args=(reading,), name="kbeval-interrupts", daemon=True).start()

    def settled(self) -> None:
        """What was interrupted has stopped, and the program goes on."""
        with self._lock:
            self._since = None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, between two of its steps."""
        if not _is_importing(frame):
            raise KeyboardInterrupt

        def again() -> None:
            time.sleep(_RETRY_SECONDS)
            with self._lock:
                self._own += 1
            # To the main thread itself, so that it wakes up.
            signal.pthread_kill(threading.main_thread().ident or 0, number)

        threading.Thread(target=again, daemon=True).start()

    def _watch(self, reading: int) -> None:
        while True:
            heard = (
                bytes(os.read(reading, 64)) if _is_readable(reading, _RETRY_SECONDS if self._since else None) else b""
            )
            with self._lock:
                count = heard.count(signal.SIGINT)
                own = min(self._own, count)
                self._own -= own
                self._note(count - own)

    def _note(self, count: int) -> None:
        """So many more; ends the process where that is enough."""
        now = time.monotonic()
        waited = 0.0 if self._since is None else now - self._since
        if waited > GRACE_SECONDS or (count and waited > IMPATIENT_SECONDS):
            _end()
        if count and self._since is None:
            self._since = now


INTERRUPTS = Interrupts()


def _is_readable(file: int, seconds: float | None) -> bool:
    return bool(select.select([file], [], [], seconds)[0])


def _is_importing(frame: FrameType | None) -> bool:
    """Is the main thread in the middle of an import?"""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _end() -> NoReturn:
    """End the process at once. What was spilled to disk goes with it."""
    if (spilling := sys.modules.get("kbeval.spilling")) is not None:
        with contextlib.suppress(Exception):
            spilling.remove_own()
    with contextlib.suppress(OSError):
        os.write(2, b"kbeval: interrupted; nothing is half-written\n")
    os._exit(CODE)
