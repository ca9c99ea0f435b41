"""`kbeval grounded`: scores grounded question answering in one step."""

from __future__ import annotations

from typing import Any

import click

from kbeval.cli import common
from kbeval.cli.exit_code import EXIT_CODE


@click.command("grounded")
@click.option("--gold", required=True, metavar="FILE", help="gold.jsonl: questions, claims and citations")
@click.option("--trace", required=True, metavar="FILE", help="trace.jsonl: what the system retrieved and answered")
@click.option(
    "--k", type=click.IntRange(1, 1_000_000), default=5, show_default=True, help="k for the recall of citations"
)
@click.option(
    "--gates",
    metavar="NAME=VALUE,…",
    help="only these thresholds  [default: precision=0.80,chr=0.75,under=0.05,over=0.10]",
)
@common.resource_options
def grounded_command(gold: str, trace: str, k: int, gates: str | None, **_: Any) -> int:  # noqa: ANN401  (click's options)
    """Score a trace against a gold file in one step.

    Needs no database and prints JSON; exit code 1 if a gate fails. precision and chr are minimum values, under and over
    (refusal) are maximum values. To compare runs and follow them over time, store them in a database with 'kbeval
    import grounded' instead.
    """
    from kbeval.systems.grounded import parse_gates, score_trace

    settings = common.Settings()
    limits = None if gates is None else parse_gates(gates)
    with common.Progress() as progress:
        options = settings.score_options(on_step=progress.step)
        scores = score_trace(gold, trace, k=k, gates=limits, options=options)
    code = EXIT_CODE.decide(0 if scores.found["pass"] else 1)
    common.print_json(scores.found)
    for warning in scores.warnings:
        common.warn(warning)
    if scores.failed:
        common.note(f"failed: {'; '.join(scores.failed)}")
    return code
