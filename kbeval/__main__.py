"""The entry point of `kbeval` and `python -m kbeval`."""

import sys

# Commands that usually read or write a database.
_WITH_DATABASE = frozenset(
    (
        *("archive", "check", "compare", "demo", "export", "gate", "history", "import"),
        *("recompute", "run", "runs", "score", "show", "sql"),
    )
)


def _prepare(arguments: list[str]) -> None:
    """Start the process that opens the database early, so that it is ready when it is needed."""
    if arguments and arguments[0] in _WITH_DATABASE and not {"-h", "--help"} & set(arguments):
        from kbeval.database.process import SPARE

        SPARE.prepare()


def main() -> None:
    """Run the command line; Ctrl-C works even while it is still being loaded."""
    try:
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
