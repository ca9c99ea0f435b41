"""Makes sure that Ctrl-C always works: it stops the current work, and ends the process if that does not stop.

DuckDB cannot be stopped in the middle of a function call on one value, and a library that is being loaded must not be
interrupted: that could abort the process. So an interrupt waits until the current import is finished; and if it has no
effect for a while, or is repeated, the process ends at once. No partial results are written even then: files are
written under a temporary name, and databases in transactions.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from types import FrameType
from typing import NoReturn

from kbeval.util.ending import ENDING

# How long the interrupted work may take to stop, and after how long a second Ctrl-C counts as a repetition.
GRACE_SECONDS = 2.0
IMPATIENT_SECONDS = 0.5
CODE = 130
_RETRY_SECONDS = 0.02


class Interrupts:
    """Watches for Ctrl-C in a separate thread, which runs even while the main thread is busy."""

    def __init__(self) -> None:
        self._since: float | None = None
        # Signals that we sent ourselves, because the first one arrived during an import.
        self._own = 0
        self._lock = threading.Lock()
        self._reading: int | None = None

    def install(self) -> None:
        """Handle Ctrl-C from now on, unless the caller handles or ignores it, as for a background job."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._watch, args=(self._reading,), name="kbeval-interrupts", daemon=True).start()

    def settled(self) -> None:
        """The interrupted work has stopped, and the program continues."""
        with self._lock:
            # On a busy machine the watching thread may not have read this interrupt yet; it must not read it later.
            self._heard()
            self._since = None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The signal handler, run in the main thread."""
        if not _is_importing(frame):
            raise KeyboardInterrupt

        def again() -> None:
            time.sleep(_RETRY_SECONDS)
            with self._lock:
                self._own += 1
            # Sent to the main thread, so that it wakes up.
            signal.pthread_kill(threading.main_thread().ident or 0, number)

        threading.Thread(target=again, daemon=True).start()

    def _watch(self, reading: int) -> None:
        while True:
            _wait_for(reading, _RETRY_SECONDS if self._since else None)
            with self._lock:
                self._note(self._heard())

    def _heard(self) -> int:
        """How often Ctrl-C was pressed since the last call."""
        if self._reading is None:
            return 0
        try:
            count = os.read(self._reading, 4096).count(signal.SIGINT)
        except BlockingIOError:
            return 0
        own = min(self._own, count)
        self._own -= own
        return count - own

    def _note(self, count: int) -> None:
        """Record `count` more presses; end the process if it did not stop in time."""
        now = time.monotonic()
        waited = 0.0 if self._since is None else now - self._since
        if waited > GRACE_SECONDS or (count and waited > IMPATIENT_SECONDS):
            _end()
        if count and self._since is None:
            self._since = now


INTERRUPTS = Interrupts()


def _wait_for(file: int, seconds: float | None) -> None:
    select.select([file], [], [], seconds)


def _is_importing(frame: FrameType | None) -> bool:
    """Is the main thread in the middle of an import?"""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _end() -> NoReturn:
    """End the process at once."""
    with contextlib.suppress(OSError):
        os.write(2, b"kbeval: interrupted; no partial results were written\n")
    ENDING.end(CODE)
