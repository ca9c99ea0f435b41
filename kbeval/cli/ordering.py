"""The option `--order`: what decides a ranking, its scores or its ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def order_option(default: str, ranks: str = "the rank column") -> Callable[[Command], Command]:
    """`--order`, with the default of a command. `ranks`: what it is called there."""
    return click.option(
        "--order",
        type=click.Choice(["score", "rank"]),
        default=default,
        show_default=True,
        help="what decides a ranking. score: as in trec_eval, by score in single precision, then by document id,"
        f" both descending; a document that occurs twice for one query is rejected. rank: {ranks}",
    )
