"""`python -m kbeval`."""

from kbeval.cli import main

if __name__ == "__main__":
    main()
