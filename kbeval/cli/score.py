"""`kbeval score`: compute the numbers of runs and store them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.text import counted

if TYPE_CHECKING:
    from kbeval.aggregates import Scored
    from kbeval.model import AggregateMetrics
    from kbeval.scoring import ScoreOptions


@click.command("score")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "all_runs", is_flag=True, help="score every run of the database")
@common.db_option
@common.golden_option
@click.option("--by", metavar="FIELD", help="also per slice: category, difficulty, lang, tags or group")
@common.metric_options
@click.option(
    "--missing",
    type=click.Choice(["skip", "zero"]),
    default="skip",
    show_default=True,
    help="golden queries that a run has no row for",
)
@common.match_option("exact")
@common.overlap_options
@click.option("--skip-bad-rows", is_flag=True, help="count rows that cannot be read as failed queries")
@click.option("--dry-run", is_flag=True, help="print the numbers, store nothing")
@common.format_option
@common.engine_options
def score_command(runs: tuple[str, ...], all_runs: bool, form: str, **flags: Any) -> int:  # noqa: ANN401
    """Score runs against the golden file and store the numbers.

    RUN is a run's id, the beginning of it, 'latest', or 'latest~1' for the one before. All runs are stored in
    one transaction, as JSON with four decimals, in eval_runs.aggregate_json. Slices are printed, not stored. The
    places of the chunks that labels and hits name are kept in kbeval_chunk_spans, for comparing across chunkers.
    """
    from kbeval.aggregates import score_runs, store_scored

    if bool(runs) == all_runs:
        msg = "name the runs to score, or say --all" if not runs else "name runs or say --all, not both"
        raise click.UsageError(msg, click.get_current_context())
    matching = {name: flags.pop(name) for name in ("by", "matching", "min_overlap", "overlap_of")}
    missing, skip_bad, dry_run = flags.pop("missing"), flags.pop("skip_bad_rows"), flags.pop("dry_run")
    settings = common.Settings(**flags)
    database, golden = settings.db(), settings.golden()
    with common.Progress() as progress:
        options = settings.score_options(
            missing_as_zero=missing == "zero", archive=not dry_run, on_step=progress.step, **matching
        )
        scored = score_runs(database, golden, None if all_runs else runs, options)
        broken = _broken_runs(scored, all_runs, skip_bad)
        healthy = [run.run_id for run in scored.runs if run.run_id not in broken]
        if healthy and not dry_run:
            progress.step("storing")
            store_scored(scored, db=database, runs=healthy)
    # Said before the table, so that it is true whatever happens to the output.
    if dry_run:
        common.note("dry run: nothing was stored")
    elif healthy:
        common.note(f"stored the numbers of {counted(len(healthy), 'run')} in {database}")
    _print(scored, healthy, form, options)
    _tell(scored, broken)
    return 2 if broken else 0


def _broken_runs(scored: Scored, all_runs: bool, skip_bad: bool) -> set[str]:
    """Runs that must not be stored. With named runs one of them stops all."""
    from kbeval.errors import BadRowsError, UsageError

    if not scored.runs:
        msg = "the database holds no runs yet, so there is nothing to score"
        raise UsageError(msg)
    broken = set() if skip_bad else {row.run_id for row in scored.bad_rows}
    if broken and not all_runs:
        advice = "nothing was stored; repair them, or count them as failed queries with --skip-bad-rows:"
        raise BadRowsError([str(row) for row in scored.bad_rows], advice)
    return broken


def _print(scored: Scored, healthy: list[str], form: str, options: ScoreOptions) -> None:
    from kbeval.render.scores import score_table

    if form == "json":
        common.print_json([_as_json(scored, run_id) for run_id in healthy])
        return
    rows: list[tuple[str, str | None, AggregateMetrics]] = []
    for run_id in healthy:
        rows.append((run_id, None, scored.aggregates[run_id]))
        rows += [(run_id, name, aggregate) for name, aggregate in scored.slices.get(run_id, {}).items()]
    own = [
        column.name
        for metric in options.metrics()
        for column in metric.columns
        if metric.origin != "kbeval" or column.k in options.extra_ks
    ]
    if rows:
        common.print_table(*score_table(rows, form, options.by, own), form)


def _as_json(scored: Scored, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = {"run_id": run_id, "aggregate": scored.aggregates[run_id].to_dict()}
    if run_id in scored.slices:
        found["slices"] = {name: aggregate.to_dict() for name, aggregate in scored.slices[run_id].items()}
    return found


def _tell(scored: Scored, broken: set[str]) -> None:
    from kbeval.errors import BadRowsError

    for warning in scored.warnings:
        common.warn(warning)
    if broken:
        advice = f"{counted(len(broken), 'run')} not scored; repair them, or use --skip-bad-rows:"
        listing = BadRowsError([str(row) for row in scored.bad_rows], advice)
        common.note(f"kbeval: {listing.headline}", *(f"  {detail}" for detail in listing.details))
        return
    for warning in scored.bad_row_warning():
        common.warn(warning)
