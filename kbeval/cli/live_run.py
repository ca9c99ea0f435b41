"""`kbeval run`: asks a live system every golden query and stores the answers as a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.errors import UsageError
from kbeval.settings import LARGEST_K
from kbeval.util.hiding import marks_in
from kbeval.util.text import as_argument, counted, json_shown, shown

if TYPE_CHECKING:
    from kbeval.live.run_options import Exchange, Finished, RunOptions
    from kbeval.live.targets import TargetConfig

_MOST_AT_ONCE = 1_000
_MOST_REPEATS = 1_000
# With --resume, these come from the run.
_OF_THE_RUN = ("k", "mode", "run_id", "suite", "limit", "only", "sample", "seed", "repeat", "retrieval_only")
_SHOWN_BODY = 20_000


# The options of a run.
_OPTIONS = (
    click.option(
        "--target", "target_name", metavar="NAME", help="a [targets.NAME] of kbeval.toml, or a type of target"
    ),
    click.option("--url", metavar="URL", help="address of the system, for targets of type http and anchors"),
    click.option("--chunker-version", metavar="NAME", help="chunker whose chunks to search, for targets of type bm25"),
    click.option("--timeout", type=click.FloatRange(0, min_open=True), help="seconds to wait for an answer  [120]"),
    click.option("--k", type=click.IntRange(1, LARGEST_K), help="how many hits to ask for  [10]"),
    click.option("--mode", metavar="TEXT", help="retrieval mode, stored with every row and available to templates"),
    click.option("--run-id", metavar="ID", help="id of the run  [the time in UTC, e.g. 20260304_021000]"),
    click.option(
        "--suite", metavar="NAME", default="live", show_default=True, help="the suite that the run belongs to"
    ),
    click.option("--limit", type=click.IntRange(1), help="only the first N queries"),
    click.option("--only", multiple=True, metavar="ID", help="only this query; repeatable"),
    click.option("--sample", type=click.IntRange(1), help="only a random sample of N queries"),
    click.option("--seed", type=int, default=0, show_default=True, help="seed of the sample"),
    click.option("--repeat", type=click.IntRange(1, _MOST_REPEATS), default=1, help="make N runs of one configuration"),
    click.option("--retrieval-only", is_flag=True, help="store no answers, only hits"),
    click.option("--description", metavar="TEXT", help="what is being tried, stored with the run"),
    click.option(
        "--store-full-text", is_flag=True, help="store the full texts of hits, not only 200 characters of each"
    ),
    click.option("--concurrency", type=click.IntRange(1, _MOST_AT_ONCE), help="maximum requests in flight"),
    click.option("--rate", type=click.FloatRange(0, min_open=True), help="maximum requests per second"),
    click.option(
        "--max-errors",
        default="20%",
        show_default=True,
        metavar="N",
        help="stop if more queries fail: a percentage or a number",
    ),
)


def run_options(command: common.Command) -> common.Command:
    """The options for making or continuing a run."""
    resume = click.option("--resume", metavar="RUN", help="continue an unfinished run")
    for option in reversed((*_OPTIONS, resume)):
        command = option(command)
    return command


@click.command("run")
@run_options
@click.option("--dry-run", is_flag=True, help="show the first request and send nothing")
@click.option("--verbose", is_flag=True, help="show every request with its response and the row made from it")
@common.written_db_option
@common.golden_option
def run_command(dry_run: bool, **given: Any) -> int:  # noqa: ANN401  (click's options)
    """Ask a live system every golden query, and store its answers as a run.

    The system is a target: [target] in kbeval.toml, or options. Every answer is stored at once; a run that was
    interrupted, even by a crash, continues with --resume and asks only the queries without an answer. The
    database is created if it does not exist. Prints the id of the run.
    """
    job = RunJob(given, dry_run=dry_run)
    if dry_run:
        job.show_first_request()
        return 0
    finished = job.make()
    common.note(f"next: 'kbeval score {' '.join(as_argument(run.run_id) for run in finished)}'")
    for run in finished:
        click.echo(shown(run.run_id))
    return 0


class RunJob:
    """The run that the options of a command ask for."""

    def __init__(self, given: Mapping[str, Any], *, dry_run: bool = False, command: str = "run") -> None:
        from kbeval.golden import load_golden
        from kbeval.live.targets import choose_target
        from kbeval.storage.database_file import refuse_database

        self._given = given
        self._command = command
        self._settings = settings = common.Settings()
        path = settings.golden()
        self.database = Path(settings.db())
        refuse_database(path, self.database)
        self.golden = load_golden(path)
        for warning in self.golden.warnings:
            common.warn(warning)
        names = ("url", "timeout", "chunker_version")
        self._overrides = {name: given[name] for name in names}
        if given["resume"] is not None:
            _refuse(settings, dry_run=dry_run)
        else:
            self._target = choose_target(settings.config, given["target_name"], self._overrides)

    def show_first_request(self) -> None:
        """Print the first request."""
        from kbeval.live.run import first_request

        click.echo(_block(first_request(self._target, self.golden, self.database, _options(self._given))))

    @property
    def health_check(self) -> Callable[[], str | None] | None:
        """Checks whether the system is healthy; None for targets without a health check, and for a resumed run."""
        from kbeval.live.run import check_health
        from kbeval.live.targets import ANCHORS, HTTP

        if self._given["resume"] is not None or self._target.type not in (HTTP, ANCHORS):
            return None
        return lambda: check_health(self._target, self.database)

    def make(self) -> list[Finished]:
        """Make the run, or continue it, and report the result."""
        from kbeval.live.run import make_runs, resume_run

        options, resumed = _options(self._given, self._command), self._given["resume"]
        if resumed is not None:
            finished = resume_run(self.database, resumed, self.golden, self._target_of_run, options)
        else:
            finished = make_runs(self.database, self.golden, self._target, options)
        for run in finished:
            common.note(
                f"stored run {run.run_id}: {counted(run.queries, 'query', 'queries')}, {counted(run.failed, 'error')},"
                f" {run.seconds:.1f} s"
            )
            for warning in run.warnings:
                common.warn(f"run {run.run_id}: {warning}")
        return finished

    def _target_of_run(self, chosen: Mapping[str, Any]) -> TargetConfig:
        """The target of an unfinished run, given the options that it was started with."""
        from kbeval.live.targets import choose_target

        merged = {**chosen, **{name: value for name, value in self._overrides.items() if value is not None}}
        then = merged.pop("target", None)
        if marks_in(str(merged.get("url", ""))):
            msg = "the address of the target contains a secret, which is not stored; pass --url again"
            raise UsageError(msg)
        return choose_target(self._settings.config, self._given["target_name"] or then, merged)


def _options(given: Mapping[str, Any], command: str = "run") -> RunOptions:
    from kbeval.live.run_options import Choice, RunOptions

    return RunOptions(
        k=given["k"],
        mode=given["mode"],
        run_id=given["run_id"],
        suite=given["suite"],
        choice=Choice(given["limit"], given["only"], given["sample"], given["seed"]),
        repeat=given["repeat"],
        retrieval_only=given["retrieval_only"],
        description=given["description"],
        store_full_text=given["store_full_text"],
        concurrency=given["concurrency"],
        rate=given["rate"],
        max_errors=given["max_errors"],
        command=command,
        on_exchange=_show if given.get("verbose") else None,
        say=common.note,
    )


def _refuse(settings: common.Settings, *, dry_run: bool) -> None:
    """A resumed run keeps the configuration that it was started with."""
    fixed = [name for name in (*_OF_THE_RUN, "description", "store_full_text") if settings.given(name)]
    if fixed or dry_run:
        option = "--dry-run" if dry_run else f"--{fixed[0].replace('_', '-')}"
        msg = f"{option} cannot be combined with --resume: the run keeps its original configuration"
        raise UsageError(msg)


def _block(text: str) -> str:
    """Several lines from data, each safe to print."""
    return "\n".join(map(shown, text.split("\n")))


def _show(exchange: Exchange) -> None:
    """One exchange, for --verbose."""
    import json

    attempt = exchange.attempt
    lines = [
        f"--- query {exchange.query_id}, attempt {attempt.number}, {attempt.elapsed_ms:.0f} ms",
        "request:",
        exchange.request,
    ]
    if exchange.body is not None:
        body = exchange.body
        lines += [f"response: HTTP {attempt.status}", body[:_SHOWN_BODY] + ("…" if len(body) > _SHOWN_BODY else "")]
    if attempt.failure is not None:
        lines.append(f"error: {attempt.failure.kind}: {attempt.failure.message}")
    lines.append("stored as:")
    common.note(*(part for line in lines for part in line.split("\n")))
    click.echo(json_shown(json.dumps(exchange.row, indent=2, ensure_ascii=False)), err=True)
