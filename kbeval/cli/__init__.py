"""The command line: parse, call, print, nothing else. One module per family of commands, loaded on use."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbeval.cli.entry import cli as cli
    from kbeval.cli.entry import main as main
    from kbeval.cli.entry import run as run


def __getattr__(name: str) -> object:
    """`cli`, `main` and `run`, loaded on use: the overview of all commands needs none of them."""
    if name in {"cli", "main", "run"}:
        from kbeval.cli import entry

        return getattr(entry, name)
    msg = f"module 'kbeval.cli' has no attribute {name!r}"
    raise AttributeError(msg)
