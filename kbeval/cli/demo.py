"""`kbeval demo`: something to try, in one command."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from kbeval.cli import common


@click.command("demo")
@click.argument("folder", default="kbeval-demo", metavar="[DIR]")
def demo_command(folder: str) -> int:
    """Make a small workspace in DIR (kbeval-demo), score it, and say what to try next.

    Seven documents, two chunkers, three runs of a little search engine with answers, refusals and a failed
    query. Needs no network. A folder that the demo did not make is never touched.
    """
    from kbeval.aggregates import score_runs
    from kbeval.demo import GOLDEN, make_demo
    from kbeval.render.scores import score_table
    from kbeval.store import store_json

    place = Path(folder)
    made = "made anew" if place.exists() else "made"
    database = make_demo(place)
    scored = score_runs(database, place / GOLDEN)
    store_json(database, {run_id: aggregate.to_json() for run_id, aggregate in scored.aggregates.items()})
    common.note(f"{made} {place}: a knowledge base of 7 documents, 25 golden queries and 3 scored runs", "")
    rows = [(run.run_id, None, scored.aggregates[run.run_id]) for run in scored.runs]
    common.print_table(*score_table(rows, "table", None), "table")
    common.note("")
    for warning in scored.warnings:
        common.warn(warning)
    common.note(
        "",
        "what to try next:",
        f"  cd {shlex.quote(os.fspath(place))}",
        "  kbeval show latest~1 --worst 5 --metric mrr",
        "  kbeval score --all --by category",
        "  kbeval check",
    )
    return 0
