"""The measures of trec_eval under its names, and its output format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from kbeval.errors import UsageError
from kbeval.frames.kernel import Kernel, exact_mean, parse_measure
from kbeval.frames.ranking import QUERY, Judged, judge
from kbeval.frames.trec_files import TrecRun
from kbeval.metrics.names import Name
from kbeval.util.text import cut, did_you_mean, shown

_CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
# In the order in which trec_eval prints them: its name, ours, and the default cutoffs.
_RANKED: dict[str, tuple[str, tuple[int, ...]]] = {
    "map": ("map_at_k", ()),
    "Rprec": ("r_precision", ()),
    "bpref": ("bpref", ()),
    "recip_rank": ("rr_at_k", ()),
    "P": ("precision_at_k_chunk", _CUTOFFS),
    "recall": ("recall_at_k_chunk", _CUTOFFS),
    "ndcg": ("ndcg_at_k", ()),
    "ndcg_cut": ("ndcg_at_k", _CUTOFFS),
    "map_cut": ("map_at_k", _CUTOFFS),
    "success": ("hit_at_k", (1, 5, 10)),
}
_COUNTS = ("num_ret", "num_rel", "num_rel_ret")
_ORDER = ("runid", "num_q", *_COUNTS, *_RANKED)
_OFFICIAL = ("runid", "num_q", *_COUNTS, "map", "Rprec", "bpref", "recip_rank", "P")
# Measures of trec_eval that are not computed.
NOT_COMPUTED = (
    *("gm_map", "iprec_at_recall", "relstring", "infAP", "gm_bpref", "Rprec_mult", "utility", "11pt_avg", "binG", "G"),
    *("ndcg_rel", "Rndcg", "relative_P", "set_P", "set_relative_P", "set_recall", "set_map", "set_F"),
    "num_nonrel_judged_ret",
)
# Sets of measures: the ones that are computed, and those that are not.
SETS = {"official": (_OFFICIAL, NOT_COMPUTED[:2]), "all_trec": (_ORDER, NOT_COMPUTED)}


class Measure(NamedTuple):
    """A measure as it is printed; `name` is None if it is a count or the tag of the run."""

    printed: str
    name: Name | None


def parse_measures(texts: Sequence[str]) -> tuple[list[Measure], list[str]]:
    """The measures that `-m` selects, in the order of trec_eval; and those of named sets that are not computed."""
    found: dict[str, Measure] = {}
    lacking: list[str] = []
    for text in texts or ("official",):
        if text in SETS:
            names, others = SETS[text]
            lacking += [name for name in others if name not in lacking]
        else:
            names = (text,)
        for name in names:
            found |= {measure.printed: measure for measure in _parsed(name)}
    order = {name: place for place, name in enumerate(_ORDER)}

    def place(measure: Measure) -> tuple[int, int]:
        stem, cutoff = re.fullmatch(r"(.*?)(?:_(\d+))?", measure.printed).groups()  # type: ignore[union-attr]
        return order.get(stem, len(order)), int(cutoff or 0)

    return sorted(found.values(), key=place), lacking


def _parsed(text: str) -> Iterator[Measure]:
    written = re.fullmatch(r"([A-Za-z_]+?)(?:[._](\d+(?:,\d+)*))?", text.strip())
    stem, cutoffs = written.groups() if written else (text, None)
    if stem in ("runid", "num_q", *_COUNTS) and cutoffs is None:
        yield Measure(stem, None)
    elif stem in _RANKED:
        metric, usual = _RANKED[stem]
        ks = sorted({int(k) for k in cutoffs.split(",")}) if cutoffs else list(usual)
        if (ks and not usual) or any(not 0 < k < 10**9 for k in ks):
            msg = (
                f"{cut(text, 60)!r}: {stem} has no cutoffs"
                if not usual
                else f"{cut(text, 60)!r}: a cutoff must be 1 or more"
            )
            raise UsageError(msg)
        yield from (Measure(f"{stem}_{k}", Name(metric, k)) for k in ks)
        if not usual:
            yield Measure(stem, Name(metric))
    elif stem in NOT_COMPUTED or text.partition(".")[0] in NOT_COMPUTED:
        msg = f"{stem} is not computed; available: {', '.join(_ORDER)}, and names such as nDCG@10"
        raise UsageError(msg)
    else:
        try:
            yield Measure(text.strip(), parse_measure(text))
        except UsageError:
            hint = (
                did_you_mean(stem, (*_ORDER, *SETS)) or f"; available: {', '.join(_ORDER)}, and names such as nDCG@10"
            )
            msg = f"there is no measure {cut(text, 60)!r}{hint}"
            raise UsageError(msg) from None


class TrecResult(NamedTuple):
    """The output for a run: per query, and over all queries."""

    queries: list[tuple[str, list[tuple[str, str]]]]
    summary: list[tuple[str, str]]
    # What makes the numbers untrustworthy.
    doubts: Sequence[str] = ()

    def lines(self, *, by_query: bool, summary: bool = True) -> Iterator[str]:
        """In the form of trec_eval: measure, query or `all`, value."""
        for query, values in self.queries if by_query else ():
            yield from (f"{name:<22}\t{shown(query)}\t{value}" for name, value in values)
        if summary:
            yield from (f"{name:<22}\tall\t{shown(value)}" for name, value in self.summary)


def evaluate_trec(  # noqa: PLR0913  (what to evaluate, and how)
    run: TrecRun,
    qrels: pl.DataFrame,
    measures: Sequence[Measure],
    *,
    level: int = 1,
    complete: bool = False,
    by_query: bool = False,
    sources: tuple[str, str] = ("the run", "the qrels"),
) -> TrecResult:
    """Compute measures of one run. Raises UsageError if it shares no query with the judgements."""
    judged = judge(run.frame, qrels, level=level, complete=complete, sources=sources)
    if not judged.n_common:
        why = "".join(f" ({doubt})" for doubt in judged.doubts[:1])
        msg = f"no query of {sources[0]} has judgements in {sources[1]}; do the two belong together?{why}"
        raise UsageError(msg)
    names = [measure.name for measure in measures if measure.name is not None]
    values = Kernel(names).values(judged) if names else judged.query_ids.to_frame(QUERY)
    counts = _counts(judged)
    summary = []
    for measure in measures:
        if measure.name is not None:
            mean = exact_mean(values[measure.name.long])
            summary.append((measure.printed, _shown(mean)))
        elif measure.printed == "runid":
            summary.append(("runid", run.tag))
        else:
            total = counts.height if measure.printed == "num_q" else counts[measure.printed].sum()
            summary.append((measure.printed, str(total)))
    found = []
    if by_query:
        # A query that the run does not have counts in the means, but is not printed.
        table = values.with_columns(counts.get_columns()[1:]).filter(counts["in_run"])
        for row in table.iter_rows(named=True):
            cells = [
                (measure.printed, str(row[measure.printed]) if measure.name is None else _shown(row[measure.name.long]))
                for measure in measures
                if measure.printed not in ("runid", "num_q")
            ]
            found.append((row[QUERY], cells))
    return TrecResult(found, summary, judged.doubts)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:6.4f}"


def _counts(judged: Judged) -> pl.DataFrame:
    """By query: num_ret, num_rel, num_rel_ret, in_run."""
    found = (
        judged.labels.filter(pl.col("is_relevant") & pl.col("rank").is_not_null())
        .group_by("result_no")
        .agg(pl.len().cast(pl.Int64).alias("num_rel_ret"))
    )
    return (
        judged.queries.join(found, on="result_no", how="left")
        .sort("result_no")
        .select(
            "result_no",
            pl.col("n_hits").alias("num_ret"),
            pl.col("n_relevant").alias("num_rel"),
            pl.col("num_rel_ret").fill_null(0),
            (pl.col("n_hits") > 0).alias("in_run"),
        )
    )
