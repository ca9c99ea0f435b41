"""`kbeval score`: computes the numbers of runs and stores them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.util.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kbeval.explore.unjudged import JudgedHits
    from kbeval.metrics.model import AggregateMetrics
    from kbeval.scoring.aggregate import Scored
    from kbeval.scoring.incremental import Due
    from kbeval.scoring.options import ScoreOptions
    from kbeval.scoring.shards import Shard, ShardWriter


@click.command("score")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--all", "all_runs", is_flag=True, help="score every run that changed since it was last scored")
@click.option("--force", is_flag=True, help="with --all: also score runs that did not change")
@click.option("--shard", metavar="I/N", help="with --all, for an archive: score only shard I of N of the runs")
@click.option("--merge", is_flag=True, help="store the numbers of all shards of an archive")
@common.db_option
@common.suite_option
@common.golden_option
@click.option(
    "--by",
    metavar="FIELD",
    multiple=True,
    callback=common.one_value,
    help="also per slice: a field of the golden file or of the rows, or several: category,lang",
)
@common.metric_options
@common.how_options
@click.option("--skip-bad-rows", is_flag=True, help="treat unreadable rows as failed queries")
@click.option("--dry-run", is_flag=True, help="print the numbers without storing them")
@common.format_option
@common.engine_options
@click.option("--engine", metavar="ADDRESS", help="score an archive on a Spark Connect server: sc://HOST:PORT")
def score_command(runs: tuple[str, ...], all_runs: bool, form: str, **flags: Any) -> int:  # noqa: ANN401
    """Score runs against the golden file and store the numbers.

    RUN is a run id, a prefix of one, or 'latest'; a suffix ~1 means the run before that one in its suite. The numbers
    are stored as JSON with four decimals in eval_runs.aggregate_json, in one transaction. Slices are printed, not
    stored. The spans of the chunks that labels and hits refer to are kept in kbeval_chunk_spans, for comparing across
    chunkers.

    --all scores runs that changed since they were scored: rows, labels, metric definitions, matching, chunks. A large
    history is scored and stored in steps; after an interruption, the next call continues where it stopped.

    --shard spreads the runs of an archive over processes or machines: each writes the numbers of its runs to a file of
    its own, and --merge then stores all of them. The result is the same, byte for byte, as without shards.

    --engine has a Spark Connect server score an archive that it can read under the same path; 'spark' takes its address
    from SPARK_REMOTE. It needs the extra kbeval[spark].
    """
    from kbeval.explore.unjudged import judged_in
    from kbeval.scoring.aggregate import score_runs
    from kbeval.scoring.incremental import due_runs, rescore

    if flags["merge"]:
        return _merge(runs, all_runs=all_runs, **flags)
    if bool(runs) == all_runs:
        msg = "specify runs to score, or use --all" if not runs else "specify runs or use --all, not both"
        raise click.UsageError(msg, click.get_current_context())
    by, skip_bad, dry_run, force = (flags[name] for name in ("by", "skip_bad_rows", "dry_run", "force"))
    if force and not all_runs:
        msg = "--force requires --all; runs given by name are always scored"
        raise click.UsageError(msg, click.get_current_context())
    if flags["shard"] is not None and not (all_runs and by is None):
        wrong = (
            "--by prints slices, which are not stored: use it without --shard" if all_runs else "--shard requires --all"
        )
        raise click.UsageError(wrong, click.get_current_context())
    settings = common.Settings()
    shard = None if flags["shard"] is None else _shard(flags["shard"])
    database, golden = settings.db(), settings.golden()
    with common.Progress() as progress:
        options = settings.score_options(by=by, on_step=progress.step, engine=flags["engine"] or "")
        writer = None if shard is None else shard.writer(database)
        job = _Job(database, dry_run=dry_run, skip_bad=skip_bad, step=progress.step, writer=writer)
        if all_runs:
            # Slices are not stored, so they are always computed.
            due = due_runs(
                *(database, golden, options),
                force=force or options.by is not None,
                within=None if shard is None else shard.holds,
            )
            with job.reporting_progress(due):
                scored = rescore(database, due, options, job.store_healthy, to_store=not dry_run)
            job.finish(scored)
        else:
            due = None
            scored = score_runs(database, golden, runs, options, to_store=not dry_run)
            job.store_all(scored)
    # Reported before the table, so that it is not lost if the output fails.
    job.tell(due)
    healthy = [run_id for run_id in scored.aggregates if run_id not in job.broken]
    _print(scored, healthy, form, options, judged_in(database, golden, healthy, options))
    _tell(scored, job.broken)
    return 2 if job.broken or scored.key_faults else 0


def _shard(text: str) -> Shard:
    from kbeval.scoring.shards import Shard  # most scorings have none

    return Shard.parse(text)


def _merge(runs: tuple[str, ...], **flags: Any) -> int:  # noqa: ANN401  (click's options)
    """Join the shards of an archive."""
    from kbeval.scoring.shards import merge_shards

    others = {"RUN": runs, "--all": flags["all_runs"], "--shard": flags["shard"], "--force": flags["force"]}
    others |= {"--by": flags["by"], "--dry-run": flags["dry_run"]}
    if given := [name for name, value in others.items() if value]:
        msg = f"--merge stores what shards have scored; leave out {', '.join(given)}"
        raise click.UsageError(msg, click.get_current_context())
    database = common.Settings().db()
    merged = merge_shards(database)
    runs_text, shards_text = counted(len(merged.stored), "run"), counted(merged.shards, "shard")
    common.note(f"stored the numbers of {runs_text} from {shards_text} in {database}")
    for what, run_ids in (
        ("could not be scored; see the output of its shard", merged.left_out),
        ("has changed since its shard was scored: score again", merged.changed),
    ):
        for run_id in run_ids:
            common.note(f"kbeval: run {run_id} {what}")
    return 2 if merged.left_out or merged.changed else 0


class _Job:
    """Stores scored runs step by step, and remembers what was stored and what could not be."""

    def __init__(
        self,
        database: str,
        *,
        dry_run: bool,
        skip_bad: bool,
        step: Callable[[str], None],
        writer: ShardWriter | None = None,
    ) -> None:
        """`writer`: where the numbers go instead, if only a shard is scored."""
        self._database = database
        self._writer = writer
        self._part: Path | None = None
        self._dry_run = dry_run
        self._skip_bad = skip_bad
        self._step = step
        self.broken: set[str] = set()
        self.stored = 0

    def store_all(self, scored: Scored) -> None:
        """For runs given by name: if any of them has an unreadable row, nothing is stored."""
        from kbeval.errors import BadRowsError

        if scored.bad_rows and not self._skip_bad:
            advice = "nothing was stored; repair them, or treat them as failed queries with --skip-bad-rows:"
            raise BadRowsError([str(row) for row in scored.bad_rows], advice)
        self.store_healthy(scored)

    def store_healthy(self, scored: Scored) -> None:
        """Store all runs that can be stored, in one transaction."""
        from kbeval.scoring.aggregate import store_scored

        if not self._skip_bad:
            self.broken |= {row.run_id for row in scored.bad_rows}
        healthy = [run.run_id for run in scored.runs if run.run_id not in self.broken]
        if healthy and not self._dry_run:
            self._step("storing")
            if self._writer is not None:
                self._writer.add(scored, healthy)
            else:
                store_scored(scored, db=self._database, runs=healthy)
            self.stored += len(healthy)

    def finish(self, scored: Scored) -> None:
        """Write the file of a shard, once all of its runs are scored."""
        if self._writer is not None and not self._dry_run:
            self._part = self._writer.write(sorted(self.broken | {fault.run_id for fault in scored.key_faults}))

    @contextlib.contextmanager
    def reporting_progress(self, due: Due) -> Iterator[None]:
        """If scoring a large history stops halfway, report what has been stored so far."""
        try:
            yield
        except BaseException:
            if self.stored and self._writer is None:
                rest = len(due.reasons) - self.stored
                common.note(
                    f"stopped after the numbers of {counted(self.stored, 'run')} were stored in {self._database};"
                    f" the next call continues with the remaining {rest:,}"
                )
            raise

    def tell(self, due: Due | None) -> None:
        """Report what was done and why; with --all also what was skipped."""
        from kbeval.errors import UsageError
        from kbeval.scoring.incremental import summary
        from kbeval.storage.unfinished import said_of_unfinished

        if self._part is not None:
            common.note(
                f"wrote the numbers of {counted(self.stored, 'run')} to {self._part};"
                " once all shards are written, 'kbeval score --merge' stores them"
            )
        elif due is not None and not due.runs and not due.key_faults and self._writer is None:
            unfinished = said_of_unfinished("latest", self._database)
            msg = f"{self._database} holds no runs yet, so there is nothing to score"
            raise UsageError(f"{msg}; {unfinished or 'store one with kbeval run or kbeval import'}")
        if self._part is not None:
            pass
        elif self._dry_run and due is None:
            common.note("dry run: nothing was stored")
        elif self._dry_run and due is not None:
            some = len(due.reasons.keys() - self.broken)
            if due.reasons:
                common.note(f"dry run: nothing was stored; would store the numbers of {counted(some, 'run')}")
        elif self.stored:
            common.note(f"stored the numbers of {counted(self.stored, 'run')} in {self._database}")
        if due is None:
            return
        common.note(*summary(due, without=self.broken))
        if due.unchanged:
            nothing = "" if due.reasons else "nothing to do: "
            rest = (
                f"{counted(len(due.unchanged), 'run')} unchanged since the last scoring (use --force to rescore them)"
            )
            common.note(nothing + rest)


def _print(
    scored: Scored, healthy: list[str], form: str, options: ScoreOptions, judged: Mapping[str, JudgedHits]
) -> None:
    from kbeval.metrics.row_scores import listed_scores
    from kbeval.render.scores import score_table
    from kbeval.storage.run_config import config_of, imported_from
    from kbeval.util.numbers import rounded

    if form == "json":
        common.print_json([_as_json(scored, run_id, judged.get(run_id)) for run_id in healthy])
        return
    rows: list[tuple[str, str | None, AggregateMetrics]] = []
    for run_id in healthy:
        rows.append((run_id, None, scored.aggregates[run_id]))
        rows += [(run_id, name, aggregate) for name, aggregate in scored.slices.get(run_id, {}).items()]
    own = [
        number.long
        for metric in options.metrics()
        for number in metric.numbers
        if metric.origin != "kbeval" or number.k in options.extra_ks
    ]
    # Scores that came with the rows are always shown, too.
    own += sorted({name for run in scored.runs for name in listed_scores(config_of(run))})
    systems = {imported_from(config_of(run)) for run in scored.runs if run.run_id in healthy}
    if rows:
        shares = {run_id: rounded(found.share) for run_id, found in judged.items()}
        common.print_table(*score_table(rows, form, options.by, own, systems, judged=shares), form)


def _as_json(scored: Scored, run_id: str, judged: JudgedHits | None) -> dict[str, Any]:
    found: dict[str, Any] = {"run_id": run_id, "aggregate": scored.aggregates[run_id].to_dict()}
    if judged is not None:
        found["judged_hits"] = judged.to_dict()
    if run_id in scored.slices:
        found["slices"] = {name: aggregate.to_dict() for name, aggregate in scored.slices[run_id].items()}
    return found


def _tell(scored: Scored, broken: set[str]) -> None:
    from kbeval.errors import BadRowsError
    from kbeval.storage.runs import broken_runs

    common.note(*scored.notes)
    for warning in scored.warnings:
        common.warn(warning)
    if scored.key_faults:
        common.fail(broken_runs(scored.key_faults, "not scored"))
    if broken:
        advice = f"{counted(len(broken), 'run')} not scored; repair the rows, or use --skip-bad-rows:"
        common.fail(BadRowsError([str(row) for row in scored.bad_rows], advice))
        return
    for warning in scored.bad_row_warning():
        common.warn(warning)
