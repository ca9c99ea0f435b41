"""`kbeval import documents`: a folder of text files becomes documents and chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kbeval.cli import common
from kbeval.util.text import counted

# As in kbeval.systems.chunking, which is imported only when it is needed.
_CHUNKERS = ("headings", "lines")
_LARGEST = 100_000


@click.command("documents")
@click.argument("folder", metavar="DIR")
@click.option(
    "--chunker",
    type=click.Choice(_CHUNKERS),
    default="headings",
    show_default=True,
    help="where to cut: before every Markdown heading, or after a fixed number of lines",
)
@click.option(
    "--size",
    type=click.IntRange(1, _LARGEST),
    help="maximum number of lines per chunk [default: headings 60, lines 20]",
)
@click.option(
    "--overlap",
    type=click.IntRange(0, _LARGEST),
    default=0,
    show_default=True,
    help="number of lines that a chunk shares with the previous one",
)
@common.written_db_option
def import_documents_command(folder: str, chunker: str, size: int | None, overlap: int, **_: Any) -> int:  # noqa: ANN401  (click's options)
    """Import a folder of Markdown and text files: fill the tables documents and chunks.

    That is all that 'kbeval run --target bm25' needs. Files end in .md, .markdown or .txt; the id of a document is its
    path in the folder. If the folder is imported with several chunkers, the chunks of all of them are kept;
    --chunker-version of 'kbeval run' selects one. Importing the same files again changes nothing; files that have
    changed are replaced, for every chunker. Tables that another program has filled are refused. Prints the chunker
    version.
    """
    from kbeval.systems.chunking import DEFAULT_SIZES, Policy
    from kbeval.systems.documents import import_documents, read_folder

    lines = size if size is not None else DEFAULT_SIZES[chunker]
    if overlap >= lines:
        msg = f"--overlap {overlap} must be smaller than the size of a chunk, {lines}"
        raise click.UsageError(msg, click.get_current_context())
    database = common.Settings().db()
    found = import_documents(Path(database), read_folder(Path(folder)), Policy(chunker, lines, overlap))
    documents, chunks = counted(found.documents, "document"), counted(found.chunks, "chunk")
    if found.is_unchanged:
        common.note(f"unchanged: {documents}, {chunks} of {found.chunker_version} in {database}")
    else:
        parts = [
            f"{number} {what}"
            for number, what in ((found.added, "new"), (found.changed, "changed"), (found.removed, "removed"))
            if number
        ]
        detail = f" ({', '.join(parts)})" if parts else ""
        common.note(f"stored {documents}{detail}, {chunks} of {found.chunker_version} in {database}")
    if found.empty:
        common.note(f"skipped {counted(found.empty, 'empty file')}")
    if found.others and (found.added or found.changed or found.removed):
        common.note(f"the chunks of {', '.join(found.others)} were updated too")
    click.echo(found.chunker_version)
    return 0
