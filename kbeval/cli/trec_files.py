"""`kbeval import trec`, `kbeval import qrels`, `kbeval export trec`: TREC files and stored runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kbeval.cli import common
from kbeval.cli.ordering import order_option
from kbeval.util.text import counted, json_shown, shown


def import_trec(store: Callable[[str, list[Any], bool], int]) -> click.Command:
    """The command; `store` writes runs to a database and reports it."""

    @click.command("trec")
    @click.argument("files", nargs=-1, required=True, metavar="RUN...")
    @click.option("--run-id", help="id of the run, if there is one file  [default: the name of the file]")
    @click.option("--suite", default="trec", show_default=True, help="the suite that the runs belong to")
    @click.option("--replace", is_flag=True, help="overwrite an existing run that differs")
    @order_option("score")
    @common.written_db_option
    def command(
        files: tuple[str, ...],
        run_id: str | None,
        suite: str,
        replace: bool,
        order: str,
        **_: Any,  # noqa: ANN401
    ) -> int:
        """Import TREC run files: query, Q0, document, rank, score, tag. The name of a file becomes the run id.

        A document becomes a hit with its number as chunk_id and doc_id. A document that occurs twice for one query is
        rejected. Importing the same file again changes nothing.
        """
        from kbeval.systems.trec import read_run_file

        if run_id is not None and len(files) > 1:
            msg = "--run-id cannot be used with several files; each is named after its file"
            raise click.UsageError(msg, click.get_current_context())
        runs = [read_run_file(Path(file), run_id, suite, order) for file in files]
        return store(common.Settings().db(), runs, replace)

    return command


@click.command("qrels")
@click.argument("file", metavar="QRELS")
@click.option(
    "-o", "--output", metavar="FILE", help="golden file to write: .jsonl, .json or .yaml  [default: standard output]"
)
@click.option("--queries", metavar="FILE", help="texts of the queries, one per line: id, tab, text")
@click.option("--replace", is_flag=True, help="overwrite an existing file that differs")
def import_qrels(file: str, output: str | None, queries: str | None, replace: bool) -> int:
    """Convert TREC judgements (qrels) to a golden file with graded labels.

    Writes JSON Lines to standard output unless -o is given. Importing the same file again changes nothing.
    """
    from kbeval.errors import UsageError
    from kbeval.systems.trec import read_qrels_file
    from kbeval.util.files import write_whole

    found = read_qrels_file(Path(file), None if queries is None else Path(queries))
    said = f"{output}: {counted(len(found.entries), 'query', 'queries')}"
    if output is None:
        click.echo("".join(f"{json_shown(line)}\n" for line in found.text(".jsonl").split("\n") if line), nl=False)
    else:
        target = Path(output)
        text = found.text(target.suffix.lower())
        is_there = target.is_file()
        if is_there and target.read_bytes() == text.encode():
            common.note(f"unchanged {said}")
        elif is_there and not replace:
            msg = f"{output} already exists and differs; use --replace to overwrite it"
            raise UsageError(msg)
        else:
            write_whole(target, text, [file, *filter(None, [queries])])
            common.note(f"wrote {said}")
    for note in found.notes:
        common.note(note)
    return 0


@click.command("trec")
@click.argument("run")
@click.option("-o", "--output", metavar="FILE", help="run file to write  [default: standard output]")
@click.option("--tag", help="last column of each line  [default: the run id]")
@common.db_option
@common.suite_option
@common.engine_options
def export_trec(run: str, output: str | None, tag: str | None, **_: Any) -> int:  # noqa: ANN401  (click's options)
    """Write a run as a TREC run file, which trec_eval and others read.

    trec_eval orders by score alone. If the stored scores of a query do not reproduce the order of its ranks, they are
    replaced.
    """
    from kbeval.systems.trec import export_run_file
    from kbeval.util.files import write_whole

    settings = common.Settings()
    found = export_run_file(
        run, db=settings.db(), tag=tag, options=settings.score_options(), suite=settings.get("suite")
    )
    text = "".join(f"{line}\n" for line in found.lines)
    if output is None:
        # Other programs need the ids as they are; a terminal could interpret them.
        plain = "".join(f"{shown(line)}\n" for line in found.lines) if sys.stdout.isatty() else text
        click.echo(plain, nl=False)
    else:
        write_whole(Path(output), text, settings.read_files())
    for note in found.notes:
        common.note(note)
    if output is not None:
        common.note(f"wrote {output}: {counted(len(found.lines), 'line')}")
    return 0
