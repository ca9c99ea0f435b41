"""`kbeval label`: makes and repairs the labels of golden queries, at a terminal or in a browser."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.errors import UsageError
from kbeval.settings import LARGEST_K
from kbeval.util.text import as_argument, counted, did_you_mean, shown

if TYPE_CHECKING:
    from kbeval.golden import Golden
    from kbeval.live.labelling.actions import Acts
    from kbeval.live.labelling.session import Chosen, Labelling

_FRESH_K = 20


@click.command("label")
@click.option("--web", is_flag=True, help="label in a browser, on a page that only this machine can open")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="with --web: the port  [a free one]")
@click.option("--annotator", metavar="NAME", help="who decides  [your account name]")
@click.option("--depth", type=click.IntRange(1, LARGEST_K), default=10, help="ranks of each run to pool  [10]")
@click.option("--only", multiple=True, metavar="ID", help="only this query; repeatable")
@click.option("--category", metavar="NAME", help="only queries of this category")
@click.option("--unlabelled", is_flag=True, help="only queries without labels")
@click.option("--since-run", metavar="RUN", help="pool this run and later ones; only queries with something new")
@click.option(
    "--as",
    "written_as",
    type=click.Choice(("spans", "chunks", "supports")),
    help="write expected_spans, expected_chunk_ids or gold_supports  [as existing entries, otherwise spans]",
)
@click.option("--fresh", is_flag=True, help=f"also ask the live system for {_FRESH_K} hits per query")
@click.option("--target", "target_name", metavar="NAME", help="with --fresh: the target to ask")
@click.option("--settle", is_flag=True, help="settle what people disagree on; with --as-judge: their scores")
@click.option("--agreement", is_flag=True, help="show how well people agree, and what they disagree on")
@click.option("--by", metavar="FIELD", help="with --agreement: also for each value of a field, such as category")
@click.option("--as-judge", metavar="RUN", help="score the answers of a run by a rubric, blind to the judge's scores")
@click.option(
    "--rubric", "rubrics", metavar="NAME|FILE", multiple=True, help="with --as-judge: what to score by  [default: both]"
)
@click.option("--seed", type=int, default=0, help="seed for the order in which candidates are shown")
@common.db_option
@common.golden_option
@common.format_option
@common.engine_options
def label_command(web: bool, port: int, form: str, **given: Any) -> int:  # noqa: ANN401  (click's options)
    """Decide which texts answer the golden queries, and write the labels to the golden file.

    For each query, every text that stored runs returned is shown once, even if chunkers differ, without runs, ranks or
    scores. Each decision is stored at once in the table kbeval_labels; the golden file is saved after each query, and
    only the entries that changed are written.
    """
    from kbeval.live.labelling.session import Labelling

    _check(given)
    settings = common.Settings()
    if given["agreement"]:
        return _print_agreement(settings, given["by"], form)
    if not web:
        _require_terminal()
    if given["as_judge"] is not None:
        return _score_answers(settings, given, web=web, port=port)
    database, golden = Path(settings.db()), Path(settings.golden())
    with common.Progress() as progress:
        chosen = _chosen(settings, given, progress)
        fresh = _fresh(settings, database, golden, given) if given["fresh"] else {}
        session = Labelling(database, golden, chosen, fresh)
        session.__enter__()
    with session:
        for problem in session.problems:
            common.warn(problem)
        if not session.queue:
            common.note(_nothing(given))
            return 0
        if web:
            from kbeval.live.labelling.actions import Actions

            _serve(Actions(session), port)
        else:
            from kbeval.live.labelling.terminal import LabelApp

            LabelApp(session).run()
        _say_saved(session)
    return 0


def _require_terminal() -> None:
    import importlib.util

    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        msg = "kbeval label needs a terminal; label in a browser with --web"
        raise UsageError(msg)
    if importlib.util.find_spec("textual") is None:
        msg = "kbeval label needs Textual at a terminal: pip install 'kbeval[label]', or label in a browser with --web"
        raise UsageError(msg)


def _chosen(settings: common.Settings, given: Mapping[str, Any], progress: common.Progress) -> Chosen:
    from kbeval.live.labelling.session import Chosen

    return Chosen(
        annotator=annotator_of(given["annotator"]),
        depth=given["depth"],
        only=given["only"],
        category=given["category"],
        unlabelled=given["unlabelled"],
        since_run=given["since_run"],
        form=given["written_as"],
        seed=given["seed"],
        to_settle=given["settle"],
        options=settings.score_options(on_step=progress.step),
    )


def annotator_of(name: str | None) -> str:
    """Who decides: the given name, otherwise the name of the account."""
    if name is None:
        try:
            name = getpass.getuser()
        except (OSError, KeyError):
            name = "annotator"
    if not name.strip() or not name.isprintable() or len(name) > 200:
        msg = "--annotator must be a name of printable characters"
        raise UsageError(msg)
    return name.strip()


def _fresh(
    settings: common.Settings, database: Path, golden: Path, given: Mapping[str, Any]
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    from kbeval.golden import load_golden
    from kbeval.live.labelling.fresh import ask_target
    from kbeval.live.targets import choose_target

    target = choose_target(settings.config, given["target_name"], {})
    loaded = load_golden(golden, groups_must_agree=False)
    wanted = [
        str(entry["id"])
        for entry in loaded.entries
        if (not given["only"] or entry["id"] in given["only"])
        and (given["category"] is None or entry.get("category") == given["category"])
    ]
    found, failed = ask_target(target, loaded, wanted, database, _FRESH_K)
    if failed:
        common.warn(f"{counted(len(failed), 'query', 'queries')} got no answer (first: {failed[0]})")
    return found


def _nothing(given: Mapping[str, Any]) -> str:
    if given["settle"]:
        return "there are no open disagreements"
    return "no query to label: check --only, --category, --unlabelled and --since-run"


def _check(given: Mapping[str, Any]) -> None:
    """Refuse options that cannot be combined."""
    context = click.get_current_context()
    modes = [name for name in ("agreement", "as_judge", "settle") if given[name]]
    if len(modes) > 1 and "agreement" in modes:
        msg = f"--{modes[0].replace('_', '-')} and --{modes[1].replace('_', '-')} cannot be combined"
        raise click.UsageError(msg, context)
    for option, needs in (("by", "agreement"), ("rubrics", "as_judge"), ("target_name", "fresh")):
        if given[option] and not given[needs]:
            name = {"rubrics": "rubric", "target_name": "target"}.get(option, option)
            raise click.UsageError(f"--{name} requires --{needs.replace('_', '-')}", context)


def _score_answers(settings: common.Settings, given: Mapping[str, Any], *, web: bool, port: int) -> int:
    from kbeval.golden import load_golden
    from kbeval.live.labelling.answers import AnswerScoring
    from kbeval.live.rubrics import load_rubrics

    path = settings.golden_if_any()
    golden = None if path is None else load_golden(path, groups_must_agree=False)
    with common.Progress() as progress:
        options = settings.score_options(on_step=progress.step)
        rubrics, name = load_rubrics(given["rubrics"]), annotator_of(given["annotator"])
        session = AnswerScoring(
            Path(settings.db()),
            given["as_judge"],
            golden,
            rubrics,
            name,
            options,
            seed=given["seed"],
            to_settle=given["settle"],
        )
    with session:
        if not session.queue:
            nothing = "no scores that people disagree on" if given["settle"] else "no answers to score"
            common.note(f"run {session.run_id} has {nothing}")
            return 0
        if web:
            from kbeval.live.labelling.actions import AnswerActions

            _serve(AnswerActions(session), port)
        else:
            from kbeval.live.labelling.score_terminal import ScoreApp

            ScoreApp(session).run()
        answers, scores = session.left()
        if answers:
            common.note(f"left to score: {counted(answers, 'answer')}, {counted(scores, 'score')}")
        common.note(f"next: 'kbeval judge {as_argument(session.run_id)} --agreement'")
    return 0


def _print_agreement(settings: common.Settings, by: str | None, form: str) -> int:
    from kbeval.golden import load_golden
    from kbeval.live.labelling.agreement import agreement_rows, disputes
    from kbeval.render.table import Column
    from kbeval.storage.labels import SCORE, stored_decisions

    decisions = stored_decisions(settings.db())
    path = settings.golden_if_any()
    golden = None if path is None else load_golden(path, groups_must_agree=False)
    own = {} if golden is None else golden.own
    entries = {} if golden is None else {e["id"]: {**own.get(e["id"], {}), **e} for e in golden.entries}
    _check_field(by, golden)
    rows = agreement_rows(decisions, entries, by)
    found = disputes(decisions)
    if form == "json":
        common.print_json({"agreement": [row.to_dict() for row in rows], "disagreements": [vars(one) for one in found]})
        return 0
    columns = [
        Column("field"),
        Column("slice"),
        Column("items", right=True),
        Column("people", right=True),
        Column("exact", right=True),
        Column("alpha", right=True),
        Column("interval", "95 % interval"),
        Column("ordinal", right=True),
        Column("ordinal_interval", "95 % interval"),
        Column("kappa", right=True),
    ]
    common.print_table(
        columns,
        [
            [
                row.field,
                row.slice,
                row.units,
                row.people,
                row.exact,
                row.alpha,
                _interval(row.interval),
                row.alpha_ordinal,
                _interval(row.interval_ordinal),
                row.kappa,
            ]
            for row in rows
        ],
        form,
    )
    open_ones = [one for one in found if one.settled is None]
    if found:
        click.echo()
        common.print_table(
            [Column("query_id", "query"), Column("field"), Column("text", width=60), Column("said"), Column("settled")],
            [
                [one.query_id, one.field, one.text, ", ".join(f"{k}: {v}" for k, v in one.said.items()), one.settled]
                for one in found
            ],
            form,
        )
    if not any(row.units for row in rows):
        common.note("no two people decided on the same text yet: label with another --annotator")
    elif open_ones:
        scores = {one.item for one in open_ones if one.field.startswith(SCORE)}
        ways = ["kbeval label --settle"] if any(not one.field.startswith(SCORE) for one in open_ones) else []
        ways += [f"kbeval label --as-judge {shown(run)} --settle" for run in sorted(scores)]
        common.note(f"{counted(len(open_ones), 'disagreement')} to settle: {', '.join(ways)}")
    return 0


def _check_field(by: str | None, golden: Golden | None) -> None:
    """Refuse a field that no query has: all queries would be in one slice."""
    if by is None:
        return
    if golden is None:
        msg = "--by needs the golden file, which has the fields: pass --golden FILE"
        raise UsageError(msg)
    fields = {name for entry in golden.entries for name in entry}.union(*golden.own.values()) - {"id", "query"}
    if by not in fields:
        msg = f"no query of {golden.path} has a field {by!r}{did_you_mean(by, sorted(fields))}"
        raise UsageError(msg)


def _interval(interval: tuple[float, float] | None) -> str | None:
    return None if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _serve(actions: Acts, port: int) -> None:
    from kbeval.live.labelling.web import PageServer

    try:
        server = PageServer(actions, port)
    except OSError as error:
        msg = f"port {port} of 127.0.0.1 cannot be used: {error.strerror}; choose another --port"
        raise UsageError(msg) from error
    with server:
        click.echo(server.url)
        common.note("open this address in a browser; Ctrl-C stops the server, and all decisions are stored")
        try:
            if server.wait() == "idle":
                common.note("ended: no requests for half an hour")
        except KeyboardInterrupt:
            common.note("ended")


def _say_saved(session: Labelling) -> None:
    saved = session.save()
    for problem in saved.problems:
        common.warn(problem)
    if session.file.backup is not None:
        common.note(f"saved {session.file.path}; backup: {shown(str(session.file.backup))}")
    queries, candidates = session.left()
    if queries:
        left = f"{counted(queries, 'query', 'queries')} and {counted(candidates, 'candidate')}"
        common.note(f"left to decide: {left}")
    else:
        common.note("everything is decided; next: 'kbeval score --all'")
