"""Checks of a comparison by spans: are the labels fine enough, and would another overlap rule give another verdict?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbeval.compare.stats import Pairs

if TYPE_CHECKING:
    from kbeval.engine.session import Session

# The rules, as in the column names of sql/compare/rule_ranks.sql.
RULES = {"smaller": "by_smaller", "expected": "by_expected", "hit": "by_hit", "union": "by_union"}
# The sides that a share may be relative to, in words.
SIDES = {
    "auto": "the smaller side for chunks, of the expected text for expected_spans",
    "smaller": "the smaller side",
    "expected": "the expected text",
    "hit": "the hit",
    "union": "both together",
}
_DEEPEST = 10
_UNITS = {"line": "lines", "char": "characters", "byte": "bytes", "time": "ms"}


def coarse_labels(session: Session) -> Iterator[str]:
    """Runs whose hits are much smaller than the chunks that they are compared with."""
    session.need("label_sizes", "expected_spans")
    axes = [axis for (axis,) in session.rows("SELECT DISTINCT axis FROM expected_spans")]
    unit = _UNITS.get(axes[0], "units") if len(axes) == 1 else "units"
    for run_id, hit, label in session.rows(
        "SELECT run_id, hit_size, label_size FROM label_sizes WHERE 2 * n_coarse > n ORDER BY run_id"
    ):
        yield (
            f"the expected chunks are much larger than the hits of run {run_id} ({label:,.1f} and {hit:,.1f} {unit} on"
            " average), so a hit may match without containing the answer, and losses be hidden: label by expected_spans"
        )


def pairs_under_other_rules(
    session: Session, used: str, pairs: Mapping[str, Pairs]
) -> Iterator[tuple[str, dict[str, Pairs]]]:
    """The metrics based on the first correct hit, as they would be under each of the other rules; the rule in use comes
    first, with unchanged numbers.
    """
    kept = {name: one for name, one in pairs.items() if name == "mrr" or name.startswith("hit_at_k.")}
    yield used, kept
    session.need("rule_ranks", "tested_queries")
    columns = ", ".join(f"a.{column} AS a_{rule}, b.{column} AS b_{rule}" for rule, column in RULES.items())
    found = session.execute(
        f"SELECT t.matching = 'span' AS by_span, {columns} FROM tested_queries AS t"
        " LEFT JOIN rule_ranks AS a ON a.result_no = t.a_result_no"
        " LEFT JOIN rule_ranks AS b ON b.result_no = t.b_result_no ORDER BY t.query_id"
    ).fetchnumpy()
    by_span: NDArray[np.bool_] = np.ma.filled(np.ma.asarray(found["by_span"], dtype=bool), fill_value=False)
    for rule in RULES:
        if rule == used:
            continue
        ranks = [np.ma.filled(np.ma.asarray(found[f"{side}_{rule}"], dtype=np.float64), np.inf) for side in "ab"]
        yield (
            rule,
            {
                name: replace(one, a=_values(name, one.a, ranks[0], by_span), b=_values(name, one.b, ranks[1], by_span))
                for name, one in kept.items()
            },
        )


def _values(
    name: str, values: NDArray[np.float64], ranks: NDArray[np.float64], by_span: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The values of a metric given these ranks of the first correct hits; unchanged where spans do not decide."""
    if name == "mrr":
        new = np.where(ranks <= _DEEPEST, 1 / ranks, 0.0)
    else:
        new = np.where(ranks <= int(name.partition(".")[2]), 1.0, 0.0)
    return np.where(by_span & ~np.isnan(values), new, values)
