"""`kbeval check`: can the numbers be trusted?"""

from __future__ import annotations

from typing import Any

import click

from kbeval.cli import common
from kbeval.cli.answer import ANSWER
from kbeval.text import counted, shown


@click.command("check")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@common.db_option
@common.golden_option
@common.how_options
@common.format_option
@common.engine_options
def check_command(runs: tuple[str, ...], form: str, **flags: Any) -> int:  # noqa: ANN401
    """Hold the golden file against the database. Exit code 1 if anything is found.

    Looks at all runs, or at those that are named: expected ids that nothing knows, unlabelled queries, rows
    without a golden query and the reverse, repeated hits, ranks with gaps, rows that cannot be read.
    """
    from kbeval.checks import check_workspace
    from kbeval.golden import load_golden
    from kbeval.render.table import Column
    from kbeval.scoring import open_scoring

    settings = common.Settings(**flags)
    database = settings.db()
    golden = load_golden(settings.golden(), groups_must_agree=False)
    with common.Progress() as progress:
        options = settings.score_options(on_step=progress.step)
        with open_scoring(database, golden, list(runs) or None, options) as scoring:
            findings = check_workspace(scoring)
            looked_at = len(scoring.runs)
    ANSWER.say(1 if findings else 0)
    if form == "json":
        common.print_json(
            [{"finding": f.kind, "count": f.count, "examples": list(f.examples), "advice": f.advice} for f in findings]
        )
    elif form != "table":
        columns = [Column("finding"), Column("count", right=True), Column("examples"), Column("advice")]
        common.print_table(columns, [[f.kind, f.count, "; ".join(f.examples), f.advice] for f in findings], form)
    else:
        for f in findings:
            more = ", …" if f.count > len(f.examples) else ""
            head = common.paint(f"{f.kind}: {f.count:,}", "bold")
            click.echo(f"{head}\n  for example  {shown('; '.join(f.examples))}{more}\n  what to do   {shown(f.advice)}")
    what = f"{counted(len(golden), 'golden query', 'golden queries')} and {counted(looked_at, 'run')}"
    if not findings:
        common.note(f"nothing to complain about in {what}")
        return 0
    common.note(f"{counted(len(findings), 'kind')} of trouble in {what}")
    return 1
