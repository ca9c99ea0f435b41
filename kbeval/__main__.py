"""Where the program starts: `kbeval` and `python -m kbeval`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C is heard even while it is still being loaded."""
    try:
        from kbeval.interrupts import INTERRUPTS

        INTERRUPTS.install()
        from kbeval.cli import main as run_and_exit

        run_and_exit()
    except KeyboardInterrupt:
        sys.stderr.write("kbeval: interrupted; nothing is half-written\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
