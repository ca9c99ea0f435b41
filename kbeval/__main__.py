"""The entry point of `kbeval` and `python -m kbeval`."""

import gc
import os
import sys

# DuckDB's threads ask Python for each batch of rows. While Python is busy with the golden file, each of them would wait
# five milliseconds, Python's default, with nothing to parse.
_SWITCH_SECONDS = 0.0002
# A command makes few cycles, and is soon over: Python's default is to look for them at every 700 new objects.
_GARBAGE_AFTER = 50_000
# Commands that usually read or write a database.
_WITH_DATABASE = frozenset(
    (
        *("archive", "check", "compare", "demo", "export", "gate", "history", "import"),
        *("recompute", "run", "runs", "score", "show", "sql"),
    )
)
# Commands that start programs of the user, which get the environment as it is.
_WITH_PROGRAMS = frozenset(("pipeline", "run"))


def _prepare(arguments: list[str]) -> None:
    """Start the process that opens the database early, and have threads leave the processors to those with work."""
    if not arguments or {"-h", "--help"} & set(arguments):
        return
    gc.set_threshold(_GARBAGE_AFTER)
    if arguments[0] not in _WITH_PROGRAMS:
        # NumPy's library would start a thread for each processor, which spins after each call and when it is loaded.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if arguments[0] in _WITH_DATABASE:
        from kbeval.database.process import SPARE

        SPARE.prepare()
        sys.setswitchinterval(_SWITCH_SECONDS)


def _printed_overview(arguments: list[str]) -> bool:
    """Print the overview if that is what was asked for. It needs nothing else, so nothing else is loaded."""
    from kbeval.cli.overview import is_overview, overview

    if not is_overview(arguments) or sys.stdout is None:
        return False
    try:
        sys.stdout.write(f"{overview()}\n")
        sys.stdout.flush()
    except OSError:  # the reader has closed the pipe, or the disk is full: the full command line reports that
        return False
    return True


def main() -> None:
    """Run the command line; Ctrl-C works even while it is still being loaded."""
    try:
        if _printed_overview(sys.argv[1:]):
            return
        from kbeval.util.interrupts import INTERRUPTS

        INTERRUPTS.install()
        _prepare(sys.argv[1:])
        from kbeval.cli import main as run_and_exit

        run_and_exit()
    except KeyboardInterrupt:
        sys.stderr.write("kbeval: interrupted; no partial results were written\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
