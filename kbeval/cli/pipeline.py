"""`kbeval pipeline`: make a run, judge it, score it, compare it and check its gates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.cli.compare import parent_folder, print_summary
from kbeval.cli.exit_code import EXIT_CODE
from kbeval.cli.judge import is_configured, judge_options, judge_plan
from kbeval.cli.live_run import RunJob, run_options
from kbeval.util.text import shown

if TYPE_CHECKING:
    from kbeval.compare.run_summary import StepResult
    from kbeval.live.pipeline import Evaluation

_MOST_SETTINGS = 30


@click.command("pipeline")
@run_options
@click.option("--dry-run", is_flag=True, help="show the first request and send nothing")
@click.option("--verbose", is_flag=True, help="show every request with its response and the row made from it")
@click.option("--no-input", is_flag=True, help="never prompt, even at a terminal")
@judge_options
@click.option(
    "--judge-concurrency", type=click.IntRange(1, 1000), default=16, help="maximum requests to the judge at once  [16]"
)
@click.option("--judge-rate", type=click.FloatRange(0, min_open=True), help="maximum requests to the judge per second")
@click.option(
    "--judge-timeout",
    type=click.FloatRange(0, min_open=True),
    default=120.0,
    metavar="SECONDS",
    help="seconds to wait for the judge  [120]",
)
@click.option("--skip-judge", is_flag=True, help="do not judge the answers")
@click.option("--skip-score", is_flag=True, help="do not score the run")
@click.option("--skip-compare", is_flag=True, help="do not compare it with the previous run of its suite")
@common.written_db_option
@common.golden_option
@common.how_options
@common.runs_dir_option
@common.engine_options
def pipeline_command(dry_run: bool, **given: Any) -> int:  # noqa: ANN401  (click's options)
    """Make a run, judge and score it, compare it with the previous run of its suite, and check its gates.

    The target and its options are those of 'kbeval run', the judge (if there is one) and its options those of
    'kbeval judge', the gates those of [gates] in kbeval.toml. Writes summary.md, report.html and, if there is an
    earlier run, report.md to RUNS_DIR/RUN. If a step fails after the run was made, the others are still tried; the
    exit code is that of the worst step.
    """
    from kbeval.compare.gates import read_gates
    from kbeval.live.pipeline import COMPARE, JUDGE, SCORE, Plan, evaluate

    settings = common.Settings()
    gates = read_gates(settings.config.get("gates") or {}, str(settings.config.path))
    job = RunJob(given, dry_run=dry_run, command="pipeline")
    if dry_run:
        job.show_first_request()
        return 0
    if not given["no_input"] and given["description"] is None and given["resume"] is None and _is_interactive():
        given["description"] = _ask_description(settings, given["suite"])
    skip = {name: f"--skip-{name} was given" for name in (JUDGE, SCORE, COMPARE) if given[f"skip_{name}"]}
    if given["retrieval_only"]:
        skip.setdefault(JUDGE, "a retrieval-only run has no answers")
    plan = Plan(
        database=job.database,
        golden=settings.golden(),
        # The run may be of another suite, if it is resumed.
        scoring=replace(settings.score_options(), suite=None),
        runs_dir=Path(settings.get("runs_dir") or parent_folder(settings.db()) / "runs"),
        check_health=job.health_check,
        make=lambda: [run.run_id for run in job.make()],
        judge=_judge(given) if is_configured(settings, given) else None,
        gates=gates,
        skip=skip,
        never=settings.read_files(),
        on_begin=lambda name: common.note(common.paint(f"── {name}", "bold")),
        on_step=_tell,
    )
    found = evaluate(plan)
    code = EXIT_CODE.decide(found.code)
    _print(found)
    return code


def _judge(given: Mapping[str, Any]) -> Callable[[str], str]:
    """A function that judges a run as 'kbeval judge' does, and returns the result in one line."""
    politeness = {name: given[f"judge_{name}"] for name in ("concurrency", "rate", "timeout")}

    def judge(run_id: str) -> str:
        from kbeval.live.environment import Environment
        from kbeval.live.judging import judge_run

        with common.Progress() as progress:
            plan = judge_plan(run_id, {**given, **politeness}, progress)
        report = judge_run(Path(common.Settings().db()), plan, Environment())
        said = [
            f"{one.rubric} {_mean(one.mean)} ({one.judged} judged, {one.unscored} unscored)" for one in report.rubrics
        ]
        return f"{plan.options.judge.name}: {', '.join(said)}"

    return judge


def _mean(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def _ask_description(settings: common.Settings, suite: str) -> str | None:
    """Ask what is being tried, and show the configuration of the last run as a reminder."""
    from kbeval.render.table import Column, render
    from kbeval.storage.run_config import config_fields, config_of
    from kbeval.storage.source import stored_runs
    from kbeval.util.hiding import Hider

    runs = [run for run in stored_runs(settings.db()) if run.suite == suite] if Path(settings.db()).exists() else []
    if runs:
        fields = config_fields(config_of(runs[-1]), Hider())
        rows = [[key, str(value)] for key, value in sorted(fields.items()) if not key.startswith("kbeval.")]
        common.note(f"the last run of suite {suite} is {runs[-1].run_id}:")
        table = render([Column("setting", width=40), Column("value", width=70)], rows[:_MOST_SETTINGS], "table")
        click.echo(table, err=True)
    text = click.prompt("What is being tried? (Enter: no description)", default="", show_default=False, err=True)
    return text.strip() or None


def _tell(step: StepResult) -> None:
    common.note(f"{step.name}: {step.state}: {step.text}")


def _print(found: Evaluation) -> None:
    """Print the numbers, the comparison and the gates, as the individual commands do."""
    from kbeval.compare.report import CompareReport
    from kbeval.render.gates import gate_table
    from kbeval.render.scores import score_table
    from kbeval.storage.run_config import config_of, imported_from

    click.echo(common.paint(shown(found.run_id), "bold"))
    if found.scored is not None:
        systems = {imported_from(config_of(run)) for run in found.scored.runs}
        rows = [(run_id, None, aggregate) for run_id, aggregate in found.scored.aggregates.items()]
        click.echo()
        common.print_table(*score_table(rows, "table", None, (), systems), "table")
    if isinstance(found.compared, CompareReport):
        click.echo()
        print_summary(found.compared, found.compared.shown)
    if found.gates is not None:
        click.echo()
        common.print_table(*gate_table(found.gates), "table")
    warnings = [] if found.scored is None else [*found.scored.warnings]
    for warning in dict.fromkeys([*warnings, *(() if found.gates is None else found.gates.warnings)]):
        common.warn(warning)
