"""All commands with one line about each: what `kbeval --help` prints, without loading any of them."""

import os

# Where each command is, in the order in which a new user needs them.
COMMANDS = {
    "demo": ("kbeval.cli.demo", "Create a small workspace to try kbeval on."),
    "init": ("kbeval.cli.init", "Start a workspace for your own data."),
    "run": ("kbeval.cli.live_run", "Ask a live system every golden query, and store its answers as a run."),
    "pipeline": (
        "kbeval.cli.pipeline",
        "Make a run, judge and score it, compare it with the previous run of its suite, and check its gates.",
    ),
    "score": ("kbeval.cli.score", "Score runs against the golden file and store the numbers."),
    "compare": ("kbeval.cli.compare", "Compare two runs: is B better than A?"),
    "report": ("kbeval.cli.report", "Write one HTML file that shows the evidence."),
    "runs": ("kbeval.cli.runs", "List the stored runs, oldest first."),
    "show": ("kbeval.cli.show", "Show one run, its worst queries, or one query."),
    "judge": ("kbeval.cli.judge", "Have a language model judge the answers of a run."),
    "label": (
        "kbeval.cli.label",
        "Decide which texts answer the golden queries, and write the labels to the golden file.",
    ),
    "sql": ("kbeval.cli.sql", "Query the runs in SQL."),
    "metrics": ("kbeval.cli.metrics", "List all metrics, built-in and your own."),
    "explain": ("kbeval.cli.metrics", "Explain one metric, or one number of one query."),
    "check": ("kbeval.cli.check", "Check the golden file against the database."),
    "gate": ("kbeval.cli.gate", "Check a run against its thresholds."),
    "history": ("kbeval.cli.history", "Show a metric over time, oldest run first."),
    "grounded": ("kbeval.cli.grounded", "Score a trace against a gold file in one step."),
    "trec": (
        "kbeval.cli.trec",
        "Evaluate TREC run files against a file of judgements, as trec_eval does, without a database.",
    ),
    "recompute": (
        "kbeval.cli.recompute",
        "Rescore runs that changed since they were scored, and show the numbers that change.",
    ),
    "archive": ("kbeval.cli.archive", "Write every run to DIR as Parquet, or bring DIR up to date."),
    "import": ("kbeval.cli.import_export", "Import runs of other systems, or documents to be searched."),
    "export": ("kbeval.cli.import_export", "Export runs as the files of other systems, or as a DuckDB file."),
    "config": ("kbeval.cli.config", "Show each setting and where it comes from."),
}

_ABOUT = (
    "Score stored evaluation runs of knowledge bases and RAG systems.",
    "Try 'kbeval demo' first: it creates a small workspace, scores it and suggests what to try next.",
)
_OPTIONS = {"--version": "Show the version and exit.", "-h, --help": "Show this message and exit."}
_NARROWEST, _WIDEST = 40, 100


def is_overview(arguments: list[str]) -> bool:
    """Do these arguments ask for the overview?"""
    return arguments in ([], ["-h"], ["--help"])


def overview(width: int | None = None) -> str:
    """The overview, for a terminal of this width; None: the width of this one."""
    columns = max(_NARROWEST, min(_terminal_width() if width is None else width, _WIDEST))
    lines = ["Usage: kbeval [OPTIONS] [COMMAND] [ARGS]...", ""]
    for paragraph in _ABOUT:
        lines += [*_wrapped("  ", "  ", paragraph, columns), ""]
    about = {name: summary for name, (_, summary) in COMMANDS.items()}
    for title, entries in (("Options:", _OPTIONS), ("Commands:", about)):
        indent = max(map(len, entries)) + 4
        lines.append(title)
        for name, text in entries.items():
            lines += _wrapped(f"  {name}".ljust(indent), " " * indent, text, columns)
        lines.append("")
    return "\n".join(lines[:-1])


def _wrapped(first: str, other: str, text: str, width: int) -> list[str]:
    """The text in lines of at most this width; `first` and `other` are what lines begin with.

    Python's `textwrap` does the same, but loads regular expressions.
    """
    lines, line, is_empty = [], first, True
    for word in text.split(" "):
        if not is_empty and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, is_empty = other, True
        line += word if is_empty else f" {word}"
        is_empty = False
    return [*lines, line]


def _terminal_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and 0 < len(columns) < 5:
        return int(columns)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80
