"""`kbeval check`: can the numbers be trusted?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.cli.exit_code import EXIT_CODE
from kbeval.util.text import counted, shown

if TYPE_CHECKING:
    from kbeval.explore.findings import Finding
    from kbeval.render.table import Cell


@click.command("check")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE,…",
    help="leave out findings, in addition to those of [check] ignore; repeatable",
)
@click.option("--codes", is_flag=True, help="list the codes of all findings and exit")
@common.db_option
@common.suite_option
@common.golden_option
@common.how_options
@common.format_option
@common.engine_options
def check_command(runs: tuple[str, ...], ignore: tuple[str, ...], codes: bool, form: str, **_: Any) -> int:  # noqa: ANN401
    """Check the golden file against the database. Exit code 1 if problems are found.

    Checks the given runs, or all runs: unreadable or duplicate rows, rows without hits, misnamed fields, unknown
    expected ids, unlabelled queries, rows without a golden query and the reverse, duplicate hits, ranks with gaps. Each
    finding has a code: --codes lists them, and --ignore CODE, or ignore = ["CODE"] under [check] in kbeval.toml,
    leaves it out. Notes do not change the exit code.
    """
    from kbeval.explore.check import check_workspace
    from kbeval.explore.findings import known_codes
    from kbeval.golden import load_golden
    from kbeval.scoring.scorer import open_scoring
    from kbeval.storage.database_file import refuse_database
    from kbeval.storage.labels import stored_decisions

    if codes:
        _print_codes(form)
        return 0
    settings = common.Settings()
    asked = known_codes((code.strip() for text in ignore for code in text.split(",") if code.strip()), "--ignore")
    ignored = asked | known_codes(
        (settings.config.get("check") or {}).get("ignore", ()), f"{settings.config.path}: check.ignore"
    )
    database = settings.db()
    refuse_database(settings.golden(), database)
    golden = load_golden(settings.golden(), groups_must_agree=False)
    with common.Progress() as progress:
        options = settings.score_options(on_step=progress.step)
        with open_scoring(database, golden, list(runs) or None, options, leave_out=True) as scoring:
            every = check_workspace(scoring, stored_decisions(database))
            looked_at = len(scoring.runs) + len({fault.run_id for fault in scoring.key_faults})
    found = [finding for finding in every if finding.code not in ignored]
    findings = [finding for finding in found if not finding.is_note]
    EXIT_CODE.decide(1 if findings else 0)
    _print(found, form)
    _tell_ignored([finding for finding in every if finding.code in ignored])
    what = f"{counted(len(golden), 'golden query', 'golden queries')} and {counted(looked_at, 'run')}"
    if not findings:
        common.note(f"no problems found in {what}")
        return 0
    common.note(f"{counted(sum(finding.count for finding in findings), 'finding')} in {what}")
    return 1


def _print_codes(form: str) -> None:
    from kbeval.explore.findings import CODES
    from kbeval.render.table import Column

    common.print_table([Column("code"), Column("meaning", width=120)], [[*pair] for pair in CODES.items()], form)


def _print(found: Sequence[Finding], form: str) -> None:
    from kbeval.render.table import Column

    if form == "json":
        common.print_json(
            [
                {
                    "code": f.code,
                    "level": _level(f),
                    "finding": f.kind,
                    "count": f.count,
                    "examples": list(f.examples),
                    "advice": f.advice,
                }
                for f in found
            ]
        )
    elif form != "table":
        columns = [Column("code"), Column("level"), Column("finding"), Column("count", right=True)]
        columns += [Column("examples"), Column("advice")]
        rows: list[list[Cell]] = [[f.code, _level(f), f.kind, f.count, "; ".join(f.examples), f.advice] for f in found]
        common.print_table(columns, rows, form)
    else:
        for f in found:
            more = "; …" if f.count > len(f.examples) else ""
            head = common.paint(f"{'note: ' if f.is_note else ''}{f.kind}: {f.count:,}", "bold")
            click.echo(f"{head}  [{f.code}]\n  for example  {shown('; '.join(f.examples))}{more}")
            click.echo(f"  what to do   {shown(f.advice)}")


def _level(finding: Finding) -> str:
    return "note" if finding.is_note else "finding"


def _tell_ignored(ignored: Sequence[Finding]) -> None:
    if ignored:
        which = ", ".join(f"{finding.code} ({finding.count:,})" for finding in ignored)
        common.note(f"{counted(sum(finding.count for finding in ignored), 'finding')} ignored: {which}")
