"""`kbeval demo`: a workspace to try, in one command."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from kbeval.cli import common

_COMPARED = ("hit_at_k.1", "hit_at_k.5", "mrr", "recall_at_k_doc.5", "groundedness", "refusal_correctness")


@click.command("demo")
@click.argument("folder", default="kbeval-demo", metavar="[DIR]")
def demo_command(folder: str) -> int:
    """Create a small workspace to try kbeval on.

    Creates it in DIR (kbeval-demo), scores and compares its runs, and suggests what to try next. It has seven
    documents, two chunkers, a BM25 baseline, and three runs of a small search engine with answers, refusals and a
    failed query. Needs no network. A folder that the demo did not create is never touched.
    """
    from kbeval.cli.compare import print_summary
    from kbeval.compare.run import compare_runs
    from kbeval.demo import GOLDEN, make_demo
    from kbeval.render.scores import score_table
    from kbeval.scoring.aggregate import score_runs, store_scored

    place = Path(folder)
    made = "recreated" if place.exists() else "created"
    database = make_demo(place)
    scored = score_runs(database, place / GOLDEN, to_store=True)
    store_scored(scored, db=database)
    common.note(f"{made} {place}: a knowledge base of 7 documents, 25 golden queries and 4 scored runs", "")
    rows = [(run.run_id, None, scored.aggregates[run.run_id]) for run in scored.runs]
    common.print_table(*score_table(rows, "table", None), "table")
    common.note("", *scored.notes)
    for warning in scored.warnings:
        common.warn(warning)
    common.note("")
    print_summary(compare_runs("latest~1", "latest", db=database, golden=place / GOLDEN), _COMPARED)
    common.note(
        "",
        "what to try next:",
        f"  cd {shlex.quote(os.fspath(place))}",
        "  kbeval compare latest~1 latest",
        "  kbeval show latest~1 --worst 5 --metric mrr",
        "  kbeval score --all --by category",
        "  kbeval check",
    )
    return 0
