"""`kbeval recompute`: what rescoring would change, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbeval.cli import common
from kbeval.util.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kbeval.render.table import Cell
    from kbeval.scoring.attribution import Movement, Recomputed


@click.command("recompute")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--explain", is_flag=True, help="attribute each change to definitions, labels or rows")
@click.option("--store", is_flag=True, help="store the new numbers, as 'kbeval score' does")
@common.db_option
@common.suite_option
@common.golden_option
@common.metric_options
@common.how_options
@common.format_option
@common.engine_options
def recompute_command(runs: tuple[str, ...], explain: bool, store: bool, form: str, **_: Any) -> int:  # noqa: ANN401
    """Rescore runs that changed since they were scored, and show the numbers that change.

    RUN is as in 'kbeval score'; without it, all runs. Nothing is stored without --store. With --explain each change is
    attributed: how much of it is due to the definitions, the labels and the rows. The intermediate numbers are computed
    with the labels of the stored numbers, and with their rows if the cache still has them; causes that cannot be
    separated are listed together. The queries whose rows or labels changed are listed: the first few in the table, all
    of them with --format json or csv.
    """
    from kbeval.scoring.aggregate import store_scored
    from kbeval.scoring.attribution import recompute
    from kbeval.storage.runs import broken_runs

    settings = common.Settings()
    database = settings.db()
    with common.Progress() as progress:
        options = settings.score_options(on_step=progress.step)
        found = recompute(database, settings.golden(), options, runs or None, explain=explain, to_store=store)
        broken = {row.run_id for row in found.scored.bad_rows}
        healthy = [run_id for run_id in found.scored.aggregates if run_id not in broken]
        if store and healthy:
            progress.step("storing")
            store_scored(found.scored, db=database, runs=healthy)
    _print(found, form, explain=explain)
    _tell(found, healthy if store else None, database, "kbeval score --all")
    for warning in found.scored.bad_row_warning():
        common.warn(warning)
    if faults := found.due.key_faults:
        common.fail(broken_runs(faults, "left out"))
    return 2 if (store and broken) or faults else 0


def _print(found: Recomputed, form: str, *, explain: bool) -> None:
    from kbeval.render.table import Column

    if form == "json":
        reasons = {run_id: list(why) for run_id, why in found.due.reasons.items()}
        queries = {"queries": found.queries} if explain else {}
        common.print_json({"reasons": reasons, **queries, "moved": [one.to_dict() for one in found.movements]})
        return
    columns = [Column("run"), Column("metric"), Column("stored", right=True), Column("now", right=True)]
    columns += [Column("change", right=True), Column("because", width=100)]
    if form == "csv" and explain:
        columns.append(Column("queries"))
    rows = [_row(movement, found, form, explain=explain) for movement in found.movements]
    if rows:
        common.print_table(columns, rows, form)
    if found.queries and form != "csv":
        click.echo()
        columns = [Column("run"), Column("changed", "what changed"), Column("n", "queries", right=True)]
        common.print_table([*columns, Column("which", width=100)], list(_query_rows(found)), form)


# At most this many queries per part are listed in the table.
_NAMED = 8


def _query_rows(found: Recomputed) -> Iterator[list[Cell]]:
    """The queries whose rows or labels changed, one row per run and part."""
    from kbeval.scoring.provenance import DATA, LABELS

    not_known = {
        DATA: "unknown: the earlier rows were not kept",
        LABELS: "unknown: the earlier labels were not kept",
    }
    # Labels are mostly the same for all runs, so they are listed once.
    same: dict[tuple[str, tuple[str, ...] | None], list[str]] = {}
    for run_id, parts in found.queries.items():
        for part, ids in parts.items():
            same.setdefault((part, None if ids is None else tuple(ids)), []).append(run_id)
    for (part, named), run_ids in same.items():
        run = run_ids[0] if len(run_ids) == 1 else f"{len(run_ids):,} runs"
        if named is None:
            yield [run, part.removesuffix(" changed"), None, not_known[part]]
            continue
        more = [f"and {len(named) - _NAMED:,} more"] if len(named) > _NAMED else []
        yield [run, part.removesuffix(" changed"), len(named), ", ".join([*named[:_NAMED], *more])]


def _all_queries(parts: Mapping[str, Sequence[str] | None]) -> str:
    """For programs: every query that changed, by part."""
    return "; ".join(f"{part}: {' '.join(ids)}" for part, ids in parts.items() if ids is not None)


def _row(movement: Movement, found: Recomputed, form: str, *, explain: bool) -> list[Cell]:
    from kbeval.metrics.names import short_name
    from kbeval.util.numbers import difference

    causes = movement.because if explain else dict.fromkeys([", ".join(found.due.reasons[movement.run_id])])
    because = "; ".join(f"{cause} {_signed(part)}".strip() for cause, part in causes.items())
    change = difference(movement.stored, movement.now)
    if form == "csv":
        # A number, not text: text that begins with a sign would be quoted to protect spreadsheets.
        row: list[Cell] = [movement.run_id, short_name(movement.metric), movement.stored, movement.now, change, because]
        return [*row, _all_queries(found.queries.get(movement.run_id, {}))] if explain else row
    return [movement.run_id, short_name(movement.metric), movement.stored, movement.now, _signed(change), because]


def _signed(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:+,d}" if isinstance(number, int) else f"{number:+.4f}"


def _tell(found: Recomputed, stored: Sequence[str] | None, database: str, score: str) -> None:
    """Report what would be rescored and why. `stored`: the runs whose numbers were stored; None without --store.

    `score`: the command that stores the same numbers.
    """
    from kbeval.scoring.incremental import summary

    if not found.due.reasons:
        common.note(f"{counted(len(found.due.runs), 'run')} unchanged since the last scoring; no number would change")
        return
    common.note(f"{counted(len(found.due.reasons), 'run')} to score again:", *summary(found.due))
    if not found.movements:
        common.note("no stored number changes")
    if stored is None:
        common.note(f"nothing was stored; use --store or '{score}' to store the new numbers")
        return
    common.note(f"stored the numbers of {counted(len(stored), 'run')} in {database}")
    if left := [run_id for run_id in found.due.reasons if run_id not in stored]:
        common.note(
            f"not stored because of unreadable rows: {', '.join(left)};"
            f" repair the rows, or treat them as failed queries with '{score} --skip-bad-rows'"
        )
