"""`kbeval trec`: evaluates TREC run files as trec_eval does."""

from __future__ import annotations

import sys

import click

from kbeval.cli import common
from kbeval.cli.ordering import order_option
from kbeval.util.text import shown


@click.command("trec")
@click.argument("qrels", metavar="QRELS")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "-m",
    "--measure",
    "measures",
    multiple=True,
    metavar="NAME",
    help="a measure by its trec_eval name, optionally with cutoffs (ndcg_cut.5,10), or as in papers (nDCG@10);"
    " repeatable  [default: official]",
)
@click.option("-q", "by_query", is_flag=True, help="also print the values of each query")
@click.option("-n", "no_summary", is_flag=True, help="do not print the averages; with -q")
@click.option("-c", "complete", is_flag=True, help="average over all queries of QRELS; missing queries count as 0")
@click.option(
    "-l",
    "level",
    type=click.IntRange(1, 1_000_000_000),
    default=1,
    show_default=True,
    help="the lowest grade that counts as relevant; nDCG uses all grades",
)
@order_option("score")
def trec_command(  # noqa: PLR0913, PLR0917  (the options of trec_eval)
    qrels: str,
    runs: tuple[str, ...],
    measures: tuple[str, ...],
    by_query: bool,
    no_summary: bool,
    complete: bool,
    level: int,
    order: str,
) -> int:
    """Evaluate TREC run files against a file of judgements, as trec_eval does, without a database.

    Prints what trec_eval prints, to four decimals. With several run files, each line begins with the name of the file.

    Measures: runid, num_q, num_ret, num_rel, num_rel_ret, map, Rprec, bpref, recip_rank, P, recall, ndcg, ndcg_cut,
    map_cut, success; and the sets official and all_trec, restricted to these measures.
    """
    from kbeval.frames.trec_eval import evaluate_trec, parse_measures
    from kbeval.frames.trec_files import read_trec_qrels, read_trec_run

    wanted, lacking = parse_measures(measures)
    labels = read_trec_qrels(qrels)
    for path in runs:
        run = read_trec_run(path, order)
        found = evaluate_trec(
            run, labels, wanted, level=level, complete=complete, by_query=by_query, sources=(path, qrels)
        )
        first = f"{shown(path)}\t" if len(runs) > 1 else ""
        lines = found.lines(by_query=by_query, summary=not (by_query and no_summary))
        sys.stdout.write("".join(f"{first}{line}\n" for line in lines))
        for doubt in found.doubts:
            common.warn(doubt)
    if lacking:
        common.note(f"not computed: {', '.join(lacking)}")
    return 0
