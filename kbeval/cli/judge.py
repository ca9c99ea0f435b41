"""`kbeval judge`: have a language model judge the answers of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.util.text import as_argument, counted, shown

if TYPE_CHECKING:
    from kbeval.live.agreement import Agreement
    from kbeval.live.judging import Estimate, JudgeOptions, JudgeReport, Plan, SpotCheck
    from kbeval.render.table import Cell

_MOST = 1_000_000


class _Temperature(click.ParamType[float | str]):
    """A number from 0 to 2, or `none`."""

    name = "temperature"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if value == "none":
            return "none"
        return click.FloatRange(0, 2)(value, param, ctx)


# The judge, its rubrics and its budget.
_OPTIONS = (
    click.option(
        "--judge-model",
        metavar="NAME",
        help="the judge: openai:NAME, anthropic:NAME, or NAME on the server at --judge-base-url  [judge.model]",
    ),
    click.option(
        "--judge-base-url", metavar="URL", help="address of the judge's server, e.g. http://localhost:11434/v1"
    ),
    click.option(
        "--judge-temperature",
        type=_Temperature(),
        metavar="N|none",
        help="sampling temperature; none: do not send one, for models that do not accept it  [0]",
    ),
    click.option(
        "--judge-max-tokens",
        type=click.IntRange(1, _MOST),
        metavar="N",
        help="maximum tokens per reply, including the reasoning of reasoning models  [2000]",
    ),
    click.option("--judge-ca-file", metavar="FILE", help="certificates to trust in addition to the default ones"),
    click.option(
        "--rubric",
        "rubrics",
        metavar="NAME|FILE",
        multiple=True,
        help="what to judge by: groundedness, correctness or a Markdown file; repeatable  [default: both]",
    ),
    click.option(
        "--allow-cut-context", is_flag=True, help="judge even if the stored context is not what the system saw"
    ),
    click.option("--max-cost", type=click.FloatRange(0), metavar="USD", help="stop before more than this is spent"),
    click.option(
        "--spot-check",
        type=click.IntRange(1, _MOST),
        metavar="N",
        help="judge N answers again and show the agreement",
    ),
    click.option("--second-judge-model", metavar="NAME", help="the judge for --spot-check  [default: the same judge]"),
    click.option("--second-judge-base-url", metavar="URL", help="address of its server  [default: --judge-base-url]"),
)


def judge_options(command: common.Command) -> common.Command:
    """Options for the judge, its rubrics and its budget."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("judge")
@click.argument("run")
@judge_options
@click.option(
    "--agreement", "with_people", is_flag=True, help="show how well the judge agrees with people; sends nothing"
)
@click.option("--dry-run", is_flag=True, help="show what would be asked and what it would cost; send nothing")
@click.option("--seed", type=int, default=0, help="seed that chooses the answers of --spot-check")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=16, help="maximum requests at once  [16]")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="maximum requests per second")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=120.0,
    metavar="SECONDS",
    help="per request  [120]",
)
@common.written_db_option
@common.suite_option
@common.golden_option
@common.format_option
@common.engine_options
def judge_command(run: str, form: str, *, dry_run: bool, with_people: bool, **flags: Any) -> int:  # noqa: ANN401  (click's options)
    """Have a language model judge the answers of a run.

    Every answer that is not a refusal gets a score for groundedness (is every claim supported by the context?) and for
    correctness (does it answer the question?), or for your own rubrics. Each judgement is stored as it arrives: the
    same command continues after an interruption, and nothing is asked twice. 'kbeval score' then computes
    judge_groundedness and judge_correctness.

    Keys come from OPENAI_API_KEY, ANTHROPIC_API_KEY or, for other servers, KBEVAL_JUDGE_API_KEY.
    """
    from kbeval.live.environment import Environment
    from kbeval.live.judging import estimate, judge_run, refuse_cut_context

    database = Path(common.Settings().db())
    if with_people:
        return _print_people(database, run, form)
    with common.Progress() as progress:
        plan = judge_plan(run, flags, progress)
    if dry_run:
        refuse_cut_context(plan)
        _print_estimate(plan, estimate(database, plan), form)
        return 0
    _print(judge_run(database, plan, Environment()), form)
    return 0


def _print_people(database: Path, run: str, form: str) -> int:
    """The scores of people, given with 'kbeval label --as-judge', next to the judge's."""
    from kbeval.live.labelling.answers import people_and_judge
    from kbeval.render.table import Column

    with common.Progress() as progress:
        found = people_and_judge(database, run, common.Settings().score_options(on_step=progress.step))
    if form == "json":
        common.print_json(found.to_dict())
        return 0
    columns = [
        Column("rubric"),
        Column("judge"),
        Column("person"),
        Column("pairs", right=True),
        Column("exact", right=True),
        Column("within_one", "within one", right=True),
        Column("mean_shift", "shift", right=True),
        Column("kappa", right=True),
        Column("interval", "95 % interval"),
    ]
    rows: list[list[Cell]] = [
        [row.rubric, row.judge, row.person, *_agreement_cells(row.agreement)] for row in found.rows
    ]
    common.print_table(columns, rows, form)
    for rubric, (people, value, interval) in found.people.items():
        if people > 1:
            spread = "" if interval is None else f", 95 % interval {interval[0]:.2f} to {interval[1]:.2f}"
            alpha = "is not defined" if value is None else f"is {value:.4f}{spread}"
            common.note(f"{rubric}: among {people} people, Krippendorff's alpha (ordinal) {alpha}")
    if not found.rows:
        missing = "no judge scored it" if found.people else "no person scored its answers"
        advice = f"see 'kbeval label --as-judge {as_argument(found.run_id)}'"
        common.note(f"nothing to compare in run {found.run_id}: {missing}; {advice}")
    return 0


def _agreement_cells(one: Agreement) -> list[Cell]:
    interval = None if one.interval is None else f"{one.interval[0]:.2f} to {one.interval[1]:.2f}"
    return [one.pairs, one.exact, one.within_one, one.mean_shift, one.kappa, interval]


def judge_plan(run: str, flags: Mapping[str, Any], progress: common.Progress) -> Plan:
    """What to judge, according to the options of a command; doubts are printed as warnings."""
    from kbeval.golden import load_golden
    from kbeval.live.judging import make_plan

    if (flags["second_judge_model"] or flags["second_judge_base_url"]) and not flags["spot_check"]:
        msg = "--second-judge-model and --second-judge-base-url require --spot-check N"
        raise click.UsageError(msg, click.get_current_context())
    settings = common.Settings()
    golden = settings.golden_if_any()
    options = _options(settings, flags, progress)
    plan = make_plan(Path(settings.db()), run, None if golden is None else load_golden(golden), options)
    if golden is None:
        common.warn("no golden file: the judge does not see expected_key_facts; pass --golden FILE")
    if plan.cut and options.allow_cut_context:
        common.warn(f"the context of {counted(plan.cut, 'answer')} is not what the system saw; this is recorded")
    return plan


def is_configured(settings: common.Settings, flags: Mapping[str, Any]) -> bool:
    """Do the options or the config file name a judge?"""
    return bool(flags["judge_model"] or (settings.config.get("judge") or {}).get("model"))


def _options(settings: common.Settings, flags: Mapping[str, Any], progress: common.Progress) -> JudgeOptions:
    from kbeval.errors import UsageError
    from kbeval.live.judging import JudgeOptions
    from kbeval.live.prices import read_prices
    from kbeval.live.rubrics import load_rubrics
    from kbeval.live.sending import Policy
    from kbeval.live.trust import checked_ca_file
    from kbeval.live.wire import MOST_TOKENS, parse_judge

    table = settings.config.get("judge") or {}
    model = flags["judge_model"] or table.get("model")
    if not model:
        msg = 'no judge given: pass --judge-model NAME, or put model = "…" under [judge] in kbeval.toml'
        raise UsageError(msg)
    # An address in the file belongs to the model in the file.
    base_url = flags["judge_base_url"] or (None if flags["judge_model"] else table.get("base_url"))
    folder = settings.config.path.parent if settings.config.path else Path()
    temperature = _temperature(flags["judge_temperature"], table.get("temperature"))
    most = flags["judge_max_tokens"] or table.get("max_tokens") or MOST_TOKENS
    trusted = flags["judge_ca_file"] or (str(folder / table["ca_file"]) if "ca_file" in table else None)
    second = flags["second_judge_model"] or (table.get("second_model") if flags["spot_check"] else None)
    second_url = flags["second_judge_base_url"] or (None if second is None else _same_server(second, base_url))
    rubrics = flags["rubrics"] or [_in(folder, name) for name in table.get("rubrics", ())]
    return JudgeOptions(
        judge=parse_judge(model, base_url, temperature, most),
        rubrics=load_rubrics(rubrics),
        allow_cut_context=flags["allow_cut_context"],
        prices=read_prices(settings.config.get("prices") or {}, str(settings.config.path)),
        max_cost=flags["max_cost"],
        concurrency=flags["concurrency"],
        rate=flags["rate"],
        policy=Policy(timeout=flags["timeout"], ca_file=checked_ca_file(trusted, "--judge-ca-file")),
        reading=settings.score_options(on_step=progress.step),
        suite=settings.get("suite"),
        spot_check=flags["spot_check"] or 0,
        second_judge=None if second is None else parse_judge(second, second_url, temperature, most),
        seed=flags["seed"],
    )


def _temperature(given: float | str | None, configured: float | str | None) -> float | None:
    """The temperature to send; None: none is sent. Whole numbers are sent as such."""
    found = given if given is not None else configured
    if found == "none":
        return None
    number = float(found or 0)
    return int(number) if number == int(number) else number


def _same_server(model: str, base_url: str | None) -> str | None:
    """The address of a second model: that of the first, unless it names its provider."""
    return None if model.startswith(("openai:", "anthropic:")) else base_url


def _in(folder: Path, name: str) -> str:
    """A rubric in the config file: the name of a shipped one, or a path relative to the file."""
    from kbeval.metrics.catalogue import SHIPPED_RUBRICS

    return name if name in SHIPPED_RUBRICS else str(folder / name)


def _money(cost: float | None) -> str:
    return "unknown" if cost is None else f"{cost:.4f}"


def _print_estimate(plan: Plan, found: Estimate, form: str) -> None:
    from kbeval.render.table import Column

    if form == "json":
        common.print_json({"run_id": plan.run_id, "judge": plan.options.judge.name, **found.to_dict()})
        return
    rows: list[list[Cell]] = [
        ["answers to judge", len(plan.answers.answers)],
        ["rows without an answer to judge", plan.answers.others],
        ["questions", found.questions],
        ["already known, free of charge", found.cached],
        ["tokens to send (estimate)", found.tokens_in],
        ["tokens of replies (estimate)", found.tokens_out],
        ["US dollars (estimate)", _money(found.cost_usd)],
    ]
    common.print_table([Column("what"), Column("count", right=True)], rows, form)
    common.note(f"dry run: nothing was sent to {plan.options.judge.name} and nothing was stored")


def _print(report: JudgeReport, form: str) -> None:
    from kbeval.render.table import Column

    if form == "json":
        common.print_json(report.to_dict())
        return
    columns = [
        Column("rubric"),
        Column("answers", right=True),
        Column("judged", right=True),
        Column("unscored", right=True),
        Column("cached", right=True),
        Column("mean", right=True),
        Column("tokens", right=True),
        Column("cost_usd", "US dollars", right=True),
    ]
    rows: list[list[Cell]] = [
        [r.rubric, r.answers, r.judged, r.unscored, r.cached, r.mean, r.tokens, r.cost_usd] for r in report.rubrics
    ]
    common.print_table(columns, rows, form)
    if report.spot_check is not None:
        _print_spot_check(report.spot_check, form)
    plan = report.plan
    common.note(f"judging {report.judging_id} of run {plan.run_id} by {plan.options.judge.name} is complete")
    if not report.requests:
        common.note("all judgements were already known: nothing was sent")
    if unscored := sum(result.unscored for result in report.rubrics):
        what = "the judge's replies could not be read; see 'why' in the table judgements"
        common.note(f"{counted(unscored, 'answer')} unscored: {what}")
    common.note(f"next: 'kbeval score {as_argument(plan.run_id)}'")


def _print_spot_check(found: SpotCheck, form: str) -> None:
    from kbeval.render.table import Column

    columns = [
        Column("rubric"),
        Column("pairs", right=True),
        Column("exact", right=True),
        Column("within_one", "within one", right=True),
        Column("mean_shift", "shift", right=True),
        Column("kappa", right=True),
        Column("interval", "95 % interval"),
    ]
    rows: list[list[Cell]] = [[name, *_agreement_cells(one)] for name, one in found.agreements.items()]
    click.echo()
    if form == "table":
        click.echo(common.paint(shown(f"spot check of {counted(found.answers, 'answer')} by {found.judge}"), "bold"))
    common.print_table(columns, rows, form)
    if found.differing:
        click.echo()
        common.print_table(
            [Column("query_id", "query"), Column("rubric"), Column("first", right=True), Column("second", right=True)],
            [[one.query_id, one.rubric, one.first, one.second] for one in found.differing],
            form,
        )
    if found.unpaired:
        common.note(f"{counted(found.unpaired, 'judgement')} without a pair: one of the two is unscored")
