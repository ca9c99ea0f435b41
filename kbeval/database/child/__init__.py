"""The process that opens a database: it alone in kbeval reads, writes and inspects the files.

It is started as `python -I -S`, imports only the standard library, and is a package of its own there, named `child`.
Requests arrive on a socket and are answered in order, both marshalled (both ends are the same interpreter). Rows to be
read in bulk are written as columns in Arrow's layout into shared memory, slightly ahead of the requests, so that one
process reads while the other parses. The process ends when the other end of the socket closes, whatever it is doing;
uncommitted changes are rolled back.
"""

from __future__ import annotations

import gc
import os
import signal

from .server import Server


def main(arena: int, parent: int) -> None:
    """Serve the other end of the socket on standard input. `arena`: shared memory, -1 if there is none."""
    # Ctrl-C is for the process that started this one, which closes its end when it stops.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Nothing here creates reference cycles.
    gc.disable()
    server = Server(0, None if arena < 0 else arena, parent)
    try:
        server.serve()
    except (OSError, SystemExit):
        pass  # the other end has closed
    finally:
        try:
            server.close()
        finally:
            os._exit(0)
