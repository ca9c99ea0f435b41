"""`kbeval import` for tables, BEIR folders and the files of other evaluation tools."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbeval.cli import common
from kbeval.cli.ordering import order_option
from kbeval.util.text import counted, shown

if TYPE_CHECKING:
    from kbeval.systems.knowledge import Knowledge
    from kbeval.systems.tool_rows import ToolRun

Command = TypeVar("Command", bound=Callable[..., Any])


def _not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        msg = "it is empty"
        raise click.BadParameter(msg, ctx, param)
    return value


def _options(tool: str) -> Callable[[Command], Command]:
    """The options of every import of runs."""

    def add(command: Command) -> Command:
        for option in (
            common.written_db_option,
            click.option("--replace", is_flag=True, help="overwrite an existing run that differs"),
            click.option(
                "--drop",
                metavar="FIELD",
                multiple=True,
                help="leave this field of each record out of the rows; repeatable",
            ),
            click.option(
                "--golden-out", metavar="FILE", help="also write the queries and their labels as a golden file"
            ),
            click.option("--suite", default=tool, show_default=True, help="the suite that the runs belong to"),
            click.option("--run-id", callback=_not_empty, help="id of the run  [default: the name of the file]"),
        ):
            command = option(command)
        return command

    return add


@click.command("beir")
@click.argument("folder", metavar="DIR")
@click.option(
    "--split", metavar="NAME", help="the judgements to use: a file in qrels/ [default: test, or the only one]"
)
@click.option(
    "--golden-out", metavar="FILE", default="golden.jsonl", show_default=True, help="the golden file to write"
)
@click.option(
    "--run", "runs", metavar="FILE", multiple=True, help="also import rankings: JSON or a TREC run; repeatable"
)
@click.option("--suite", default="beir", show_default=True, help="the suite that the runs belong to")
@click.option("--replace", is_flag=True, help="overwrite an existing run that differs")
@order_option("score", "the rank column of a TREC run")
@common.written_db_option
def import_beir(folder: str, runs: tuple[str, ...], **given: Any) -> int:  # noqa: ANN401  (click's options)
    """Import a BEIR folder: corpus.jsonl, queries.jsonl and qrels/*.tsv.

    Passages become documents with one chunk each, and judged queries a golden file. --run imports rankings: a JSON
    object {query: {passage: score}}, or a TREC run file.
    """
    from kbeval.systems.beir import read_beir, read_run

    found = read_beir(Path(folder), given["split"])
    read = [read_run(Path(run), None, given["suite"], given["order"]) for run in runs]
    database = common.Settings().db()
    with _golden_file(given["golden_out"], found.golden, database, folder):
        _store(database, read, runs, replace=given["replace"], knowledge=found.knowledge)
        common.note(f"{counted(found.n_passages, 'passage')} of {folder} in {database}")
    if found.n_unjudged:
        common.note(f"left out: {counted(found.n_unjudged, 'query', 'queries')} without judgements")
    return 0


@click.command("table")
@click.argument("file", metavar="FILE")
@click.option(
    "--map", "names", metavar="OURS=THEIRS", multiple=True, help="map a column that has another name: chunk_id=id"
)
@click.option("--scores", metavar="COLUMN,...", multiple=True, help="columns whose numbers become metrics")
@order_option("rank", "the column rank, or without one the order in the file")
@_options("table")
def import_table(file: str, names: tuple[str, ...], scores: tuple[str, ...], **given: Any) -> int:  # noqa: ANN401
    """Import a table: CSV, TSV, Parquet, JSONL or JSON, with one row per hit or one row per query.

    One row per hit: columns query_id, and chunk_id or doc_id; optionally rank, score, text and others. One row
    per query: query_id and hits (a list of ids, texts or objects), or answer. A column run_id makes one run for each of
    its values. Other columns are kept.
    """
    from kbeval.systems.tables import parse_map, read_table

    wanted = [part.strip() for text in scores for part in text.split(",") if part.strip()]
    # What is left out must be there as a field.
    runs = read_table(
        Path(file),
        given["run_id"],
        given["suite"],
        parse_map(names),
        wanted,
        given["order"],
        as_text=not given["drop"],
    )
    return _finish(runs, file, given)


def _tool(tool: str, reader: str, doc: str) -> click.Command:
    """The command for one tool; its reader is `module:function`."""

    def call(file: str, **given: Any) -> int:  # noqa: ANN401  (click's options)
        import importlib

        module, _, function = reader.partition(":")
        read = getattr(importlib.import_module(module), function)
        return _finish(read(Path(file), given["run_id"], given["suite"]), file, given)

    call.__doc__ = doc
    return click.command(tool)(click.argument("file", metavar="FILE")(_options(tool)(call)))


COMMANDS: Sequence[click.Command] = (
    import_beir,
    import_table,
    _tool(
        "ragas",
        "kbeval.systems.ragas:read_ragas",
        """Import a dataset or a result of Ragas: JSONL, CSV, JSON or Parquet.

        Columns that hold numbers become metrics, such as ragas.faithfulness.
        """,
    ),
    _tool(
        "promptfoo",
        "kbeval.systems.promptfoo:read_promptfoo",
        """Import the results of 'promptfoo eval -o FILE': JSON or JSONL.

        Each provider and each prompt is a run. Named scores become metrics, next to promptfoo.score and promptfoo.pass.
        """,
    ),
    _tool(
        "deepeval",
        "kbeval.systems.deepeval:read_deepeval",
        """Import a test run of DeepEval: .deepeval/.latest_test_run.json, or a file of its results folder.

        Each metric becomes a metric here, such as deepeval.answer_relevancy.
        """,
    ),
    _tool(
        "inspect",
        "kbeval.systems.inspect_log:read_inspect",
        """Import a log of Inspect: .eval or .json.

        Each epoch is a run. Each scorer becomes a metric, such as inspect.includes. Samples keep their transcripts,
        which may be large; --drop events leaves them out.
        """,
    ),
)


def _finish(runs: Sequence[ToolRun], file: str, given: dict[str, Any]) -> int:
    database = common.Settings().db()
    for name in given["drop"]:
        found = [run.drop(name) for run in runs]
        if not any(found):
            common.warn(f"no record of {file} has a field {shown(name)!r}, so --drop leaves nothing out")
    golden = list({query_id: entry for run in runs for query_id, entry in run.golden.items()}.values())
    with _golden_file(given["golden_out"], golden, database, file):
        _store(database, runs, [file] * len(runs), replace=given["replace"])
    return 0


@contextlib.contextmanager
def _golden_file(path: str | None, entries: Sequence[dict[str, Any]], database: str, source: str) -> Iterator[None]:
    """Write a golden file when the context ends. A file that cannot be written is rejected at the start."""
    from kbeval.errors import UsageError
    from kbeval.systems.golden_writing import is_new_golden, write_golden

    if path is None:
        yield
        return
    if not entries:
        msg = f"{source} contains no expected results, so there is no golden file to write"
        raise UsageError(msg)
    is_new = is_new_golden(Path(path), entries, [database])
    yield
    queries = counted(len(entries), "golden query", "golden queries")
    if is_new:
        write_golden(Path(path), entries, source=Path(source).name)
    common.note(f"wrote {queries} to {path}" if is_new else f"unchanged {path}: {queries}")


def _store(
    database: str, runs: Sequence[ToolRun], files: Sequence[str], *, replace: bool, knowledge: Knowledge | None = None
) -> None:
    from kbeval.systems.writing import write_runs

    finished = [run.finished(Path(file)) for run, file in zip(runs, files, strict=True)]
    outcomes = write_runs(database, finished, replace=replace, knowledge=knowledge)
    for run in finished:
        for warning in run.warnings:
            common.warn(warning)
        rows = counted(len(run.rows), "row")
        scores = f", with the scores {', '.join(sorted(run.scores))}" if run.scores else ""
        common.note(f"{outcomes[run.run_id]} {shown(run.run_id)}: {rows} in {database}{scores}")
