"""`kbeval label`: makes and repairs the labels of golden queries, at a terminal or in a browser."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.errors import UsageError
from kbeval.settings import LARGEST_K
from kbeval.util.text import counted, shown

if TYPE_CHECKING:
    from kbeval.live.labelling.session import Chosen, Labelling

_FRESH_K = 20


@click.command("label")
@click.option("--web", is_flag=True, help="label in a browser, on a page that only this machine can open")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="with --web: the port  [any that is free]")
@click.option("--annotator", metavar="NAME", help="who decides  [the name of your account]")
@click.option("--depth", type=click.IntRange(1, LARGEST_K), default=10, help="ranks of each run to pool  [10]")
@click.option("--only", multiple=True, metavar="ID", help="only this query; can be repeated")
@click.option("--category", metavar="NAME", help="only queries of this category")
@click.option("--unlabelled", is_flag=True, help="only queries without labels")
@click.option("--since-run", metavar="RUN", help="pool this run and later ones; only queries with something new")
@click.option(
    "--as",
    "form",
    type=click.Choice(("spans", "chunks", "supports")),
    help="write expected_spans, expected_chunk_ids or gold_supports  [as the entries already do, else spans]",
)
@click.option("--fresh", is_flag=True, help=f"ask the live system, too, for {_FRESH_K} hits per query")
@click.option("--target", "target_name", metavar="NAME", help="with --fresh: the target to ask")
@click.option("--settle", is_flag=True, help="decide on what people disagree on")
@click.option("--seed", type=int, default=0, help="of the order in which candidates are shown")
@common.db_option
@common.golden_option
@common.resource_options
def label_command(web: bool, port: int, **given: Any) -> int:  # noqa: ANN401  (click's options)
    """Decide which texts answer the golden queries, and write that into the golden file.

    For each query, everything that stored runs returned is shown once, whatever the chunker, without runs, ranks and
    scores. Each decision is stored at once in the table kbeval_labels; the golden file is saved after each query, and
    only the entries that changed are written.
    """
    from kbeval.live.labelling.session import Labelling

    settings = common.Settings()
    database, golden = Path(settings.db()), Path(settings.golden())
    if not web:
        _require_textual()
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
            _serve(session, port)
        else:
            from kbeval.live.labelling.terminal import LabelApp

            LabelApp(session).run()
        _say_saved(session)
    return 0


def _require_textual() -> None:
    import importlib.util

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
        form=given["form"],
        seed=given["seed"],
        to_settle=given["settle"],
        options=settings.score_options(on_step=progress.step),
    )


def annotator_of(name: str | None) -> str:
    """Who decides: as given, else the name of the account."""
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
        common.warn(f"{counted(len(failed), 'query', 'queries')} got no answer, first {failed[0]}")
    return found


def _nothing(given: Mapping[str, Any]) -> str:
    if given["settle"]:
        return "people disagree on nothing that is not settled"
    return "no query to label: check --only, --category, --unlabelled and --since-run"


def _serve(session: Labelling, port: int) -> None:
    from kbeval.live.labelling.actions import Actions
    from kbeval.live.labelling.web import PageServer

    try:
        server = PageServer(Actions(session), port)
    except OSError as error:
        msg = f"port {port} of 127.0.0.1 cannot be used: {error.strerror}; choose another --port"
        raise UsageError(msg) from error
    with server:
        click.echo(server.url)
        common.note("open this address in a browser; Ctrl-C ends the page, everything that was decided is stored")
        try:
            if server.wait() == "idle":
                common.note("ended: nothing was asked for half an hour")
        except KeyboardInterrupt:
            common.note("ended")


def _say_saved(session: Labelling) -> None:
    saved = session.save()
    for problem in saved.problems:
        common.warn(problem)
    if session.file.backup is not None:
        common.note(f"saved {session.file.path}; as it was before: {shown(str(session.file.backup))}")
    queries, candidates = session.left()
    if queries:
        left = f"{counted(queries, 'query', 'queries')} and {counted(candidates, 'candidate')}"
        common.note(f"left to decide: {left}")
    else:
        common.note("everything is decided; next: kbeval score --all")
