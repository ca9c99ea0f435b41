"""`kbeval show`: the numbers of a run, its worst queries, or one query in full."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.util.text import as_argument, shown

if TYPE_CHECKING:
    from kbeval.explore.inspect import Hit, Judgement, QueryDetail
    from kbeval.metrics.model import AggregateMetrics
    from kbeval.scoring.options import ScoreOptions
    from kbeval.storage.runs import Run


@click.command("show")
@click.argument("run")
@click.option("--query", "query_id", metavar="ID", help="show one query: its labels, hits, answer and scores")
@click.option("--worst", type=click.IntRange(1, 1_000_000), metavar="N", help="show the N worst queries")
@click.option(
    "--metric",
    metavar="M",
    help="metric for --worst, e.g. hit_at_k.5  [default: mrr; support_mrr or answer_precision for imported runs]",
)
@common.db_option
@common.suite_option
@common.golden_option
@common.metric_options
@common.how_options
@common.format_option
@common.engine_options
def show_command(
    run: str,
    query_id: str | None,
    worst: int | None,
    metric: str | None,
    form: str,
    **_: Any,  # noqa: ANN401
) -> int:
    """Show one run, its worst queries, or one query.

    --worst and --query show where the numbers come from.
    """
    if query_id is not None and worst is not None:
        msg = "--query and --worst cannot be combined"
        raise click.UsageError(msg, click.get_current_context())
    if metric is not None and worst is None:
        msg = "--metric requires --worst N"
        raise click.UsageError(msg, click.get_current_context())
    from kbeval.storage.runs import find_run
    from kbeval.storage.source import one_snapshot, stored_runs

    settings = common.Settings()
    with one_snapshot(settings.db(), settings.get("cache") or "auto"):
        found = find_run(stored_runs(settings.db()), run, settings.db(), settings.get("suite"))
        if query_id is not None:
            _show_query(settings, found, query_id, form)
        elif worst is not None:
            _show_worst(settings, found, worst, metric or _headline(found), form)
        else:
            _show_numbers(settings, found, form)
    return 0


def _headline(run: Run) -> str:
    """The default metric, which depends on the system that the run comes from."""
    from kbeval.storage.run_config import config_of, imported_from

    return {"anchors": "support_mrr", "grounded": "answer_precision"}.get(imported_from(config_of(run)) or "", "mrr")


def _options(settings: common.Settings, run: Run, progress: common.Progress) -> ScoreOptions:
    """The settings of the stored numbers, unless overridden."""
    return replace(settings.score_options(run.scored_how(), on_step=progress.step), suite=None)


def _show_numbers(settings: common.Settings, run: Run, form: str) -> None:
    from kbeval.errors import UsageError
    from kbeval.render.scores import number_table
    from kbeval.scoring.aggregate import score_runs
    from kbeval.storage.run_config import config_of, stored_warnings

    aggregate = run.aggregate()
    # If labels or definitions are given, the numbers must be computed with them, not taken from storage.
    if settings.given("golden", "extra_ks", "metrics_dir", *common.HOW) or (
        aggregate is None and settings.golden_if_any()
    ):
        with common.Progress() as progress:
            options = _options(settings, run, progress)
            scored = score_runs(settings.db(), settings.golden(), [run.run_id], options)
        aggregate = scored.aggregates[run.run_id]
        for warning in (*scored.warnings, *scored.bad_row_warning()):
            common.warn(warning)
        if _is_stored(run, aggregate):
            common.note("computed now; the same numbers are stored")
        else:
            common.note(f"computed now, not stored; 'kbeval score {as_argument(run.run_id)}' stores them")
    else:
        for text in stored_warnings(config_of(run)):
            common.warn(f"run {run.run_id}: {text}")
    if aggregate is None:
        msg = f"run {run.run_id} has not been scored yet; run 'kbeval score {as_argument(run.run_id)} --golden FILE'"
        raise UsageError(msg)
    if form == "json":
        about = {"run_id": run.run_id, "suite": run.suite, "created_at": run.created_at}
        common.print_json({**about, "aggregate": aggregate.to_dict()})
        return
    if form == "table":
        about_run = "  ".join(shown(text) for text in (run.suite, run.created_at))
        click.echo(common.paint(shown(run.run_id), "bold") + f"  {about_run}")
    common.print_table(*number_table(aggregate), form)
    if form == "table":
        _tell_ledger(aggregate)
        _tell_judged_hits(settings, run)


def _is_stored(run: Run, aggregate: AggregateMetrics) -> bool:
    """Are these the stored numbers, computed from the same rows and labels by the same definitions?"""
    stored = run.aggregate()
    if stored is None:
        return False
    # The version of kbeval that computed them does not matter.
    a, b = (found.to_dict() | {"provenance": found.provenance | {"kbeval": None}} for found in (stored, aggregate))
    return a == b


def _tell_ledger(aggregate: AggregateMetrics) -> None:
    _tell_abstention(aggregate.abstention)
    ledger = {name: count for name, count in aggregate.ledger.items() if isinstance(count, int)}
    if ledger:
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in ledger.items())
        click.echo(shown(f"ledger: {counts}"))
    provenance = dict(aggregate.provenance)
    _tell_judges(aggregate.ledger.get("judgements"), provenance.pop("judge", None))
    if provenance:
        click.echo(shown("provenance: " + ", ".join(f"{name} {value}" for name, value in provenance.items())))


def _tell_judged_hits(settings: common.Settings, run: Run) -> None:
    """Print how many of the first hits were judged, if people label here."""
    golden = settings.golden_if_any()
    if golden is None:
        return
    from kbeval.explore.unjudged import judged_in

    found = judged_in(settings.db(), golden, [run.run_id], settings.score_options(run.scored_how())).get(run.run_id)
    if found is not None:
        click.echo(f"judged: {found} hits in the top 10; the others count as wrong")


def _tell_judges(ledger: Any, judges: Any) -> None:  # noqa: ANN401  (as stored)
    """Print for each rubric the judge, and how many rows were judged."""
    for rubric, counts in (ledger if isinstance(ledger, dict) else {}).items():
        judge = (judges if isinstance(judges, dict) else {}).get(rubric) or {}
        names = ("judged", "unscored", "not_judged", "cached")
        said = ", ".join(f"{counts.get(name, 0):,} {name.replace('_', ' ')}" for name in names)
        by = f"{judge.get('model')}, judging {judge.get('judging')}, rubric {judge.get('rubric')}"
        click.echo(shown(f"judge of {rubric}: {by}: {said}"))


def _tell_abstention(found: Mapping[str, Any]) -> None:
    """A 2×2 table of answered and refused queries, and whether the evidence was retrieved."""
    from kbeval.render.table import Column

    if not found:
        return
    click.echo()
    columns = [Column("", "abstention"), Column("answered", right=True), Column("refused", right=True)]
    rows = [
        ["answerable", found.get("answerable_answered"), found.get("answerable_refused")],
        [
            f"  with evidence in the top {found.get('k')}",
            found.get("answered_with_evidence"),
            found.get("refused_with_evidence"),
        ],
        ["  without evidence", found.get("answered_without_evidence"), found.get("refused_without_evidence")],
        ["not answerable", found.get("unanswerable_answered"), found.get("unanswerable_refused")],
    ]
    common.print_table(columns, rows, "table")
    click.echo()


def _show_worst(settings: common.Settings, run: Run, count: int, metric: str, form: str) -> None:
    from kbeval.explore.inspect import worst_queries
    from kbeval.metrics.names import ks_named
    from kbeval.render.table import Column
    from kbeval.scoring.scorer import open_scoring

    with common.Progress() as progress:
        options = _options(settings, run, progress)
        options = replace(options, extra_ks=(*options.extra_ks, *ks_named([metric])))
        with open_scoring(settings.db(), settings.golden(), [run.run_id], options) as scoring:
            column, found = worst_queries(scoring, metric, count)
            way = scoring.matching.of_runs()[run.run_id]
    columns = [
        Column("query_id", "query", 24),
        Column(column.name, right=True),
        Column("first_expected_rank", "first at rank", right=True),
        Column("text", width=80),
    ]
    common.print_table(columns, [[w.query_id, w.value, w.best_rank, w.query] for w in found], form)
    if not found:
        common.note(f"{column.name} does not apply to any query of this run")
    common.note(f"hits are matched {'by document and span' if way == 'span' else 'by chunk id'}")


def _show_query(settings: common.Settings, run: Run, query_id: str, form: str) -> None:
    from kbeval.explore.inspect import query_detail
    from kbeval.render.table import Column
    from kbeval.scoring.scorer import open_scoring

    with common.Progress() as progress:
        options = _options(settings, run, progress)
        with open_scoring(settings.db(), settings.golden(), [run.run_id], options) as scoring:
            detail = query_detail(scoring, query_id, scoring.source.result_json(scoring.runs[0].run_id, query_id))
    if form == "json":
        common.print_json(detail.to_dict())
    elif form == "table":
        _print_query(detail)
    else:
        common.print_table(
            [Column("metric"), Column("value", right=True)], [list(pair) for pair in detail.scores.items()], form
        )


def _marks(hit: Hit, golden: Mapping[str, Any]) -> str:
    """The labels that a hit matches, or nearly matches."""
    from kbeval.render.places import counts_as

    return ", ".join(counts_as(label, golden) for label in hit.labels)


def _one_line(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())


def _print_citations(citations: Any, real: Sequence[bool]) -> None:  # noqa: ANN401  (whatever the row holds)
    for citation, is_real in zip(citations if isinstance(citations, list) else [], real, strict=False):
        place = citation.get("citation") if isinstance(citation, dict) else citation
        verdict = "chunk found" if is_real else "chunk not found"
        click.echo(f"  {'citation':20} {shown(json.dumps(place or citation, ensure_ascii=False))}  ({verdict})")


def _print_judgements(judgements: Sequence[Judgement]) -> None:
    for one in judgements:
        score = f"unscored: {one.why}" if one.score is None else f"{one.score:g}: {one.reasoning or ''}"
        click.echo(f"  {shown(f'judge of {one.rubric}'):20} {shown(score)}  ({shown(one.model)})")
        for claim in one.unsupported_claims:
            click.echo(f"  {'not supported':20} {shown(claim)}")


def _listed(items: Sequence[object]) -> str:
    return (", " if all(isinstance(item, str) for item in items) else "; ").join(map(_with_snippets, items))


def _with_snippets(item: object) -> str:
    """A label as written in the golden file; for a support also the snippets, one of which its text must contain."""
    from kbeval.render.places import label_text

    snippets = item.get("snippets") if isinstance(item, dict) else None
    return f"{label_text(item)}, with {' or '.join(map(repr, snippets))}" if snippets else label_text(item)


def _print_query(detail: QueryDetail) -> None:
    from kbeval.render.places import spans_text
    from kbeval.render.table import Column

    text = detail.golden.get("query") or detail.stored.get("query") or ""
    click.echo(common.paint(shown(detail.query_id), "bold") + f"  {shown(str(text))}")
    labels = ("expected_chunk_ids", "expected_doc_ids", "expected_spans", "gold_supports", "must_contain", "forbidden")
    for label in (*labels, "answerable"):
        if label in detail.golden:
            value = detail.golden[label]
            text = _listed(value) if isinstance(value, list) else str(value).lower()
            click.echo(f"  {label.replace('_', ' '):20} {shown(text) or '(none)'}")
    if not detail.golden:
        click.echo("  not in the golden file, so it counts only in totals")
    if detail.error:
        click.echo(f"  {'error':20} {shown(detail.error)}")
    answer = detail.stored.get("answer")
    if isinstance(answer, dict):
        state = "" if answer.get("grounded") is not False else "  (refused)"
        click.echo(f"  {'answer':20} {shown(str(answer.get('answer') or ''))}{state}")
        _print_citations(answer.get("citations"), detail.citations_real)
    for rule in detail.rules:
        if not rule.is_kept:
            what = "the answer does not contain" if rule.rule == "must_contain" else "the answer contains"
            click.echo(f"  {'broken rule':20} {what} {shown(repr(rule.text))} ({rule.rule})")
    _print_judgements(detail.judgements)
    click.echo()
    if detail.hits:
        common.print_table(
            [
                Column("rank", right=True),
                Column("chunk_id", "chunk"),
                Column("doc_id", "document"),
                Column("score", right=True),
                Column("expected", "counts as", 60),
                Column("where", width=30),
                Column("text", width=80),
            ],
            [
                [
                    h.rank,
                    h.chunk_id,
                    h.doc_id or h.path,
                    h.score,
                    _marks(h, detail.golden),
                    spans_text(h.spans),
                    _one_line(h.text),
                ]
                for h in detail.hits
            ],
            "table",
        )
    else:
        click.echo("no hits")
    click.echo()
    common.print_table(
        [Column("metric"), Column("value", right=True)], [list(pair) for pair in detail.scores.items()], "table"
    )
