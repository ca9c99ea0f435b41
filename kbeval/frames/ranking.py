"""Ranks of judged documents, by the rules of trec_eval, and what precedes each: the relation `label_finds`.

A ranking is ordered by score in single precision, highest first, then by document id in the order of its bytes, last
first; or, if the run has a column `rank` in place of scores, by that. Only judged documents need a rank, so a ranking
is never sorted by its ids: scores are sorted as whole numbers, a judged document finds its place among them, and ids
are compared only where scores are equal. All queries go through together, as arrays; `sql/matching/label_finds.sql`
says what the columns mean, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kbeval.errors import UsageError
from kbeval.frames.doubts import document_doubts, query_doubts
from kbeval.util.text import cut

QUERY, DOC, SCORE, GRADE, RANK = "query_id", "doc_id", "score", "grade", "rank"
# What decides a ranking: scores, as in trec_eval, or the given ranks.
BY_SCORE, BY_RANK = "score", "rank"
ORDERS = (BY_SCORE, BY_RANK)
Ints = NDArray[np.int64]
# Spreads the numbers of queries over all bits of a hash.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MARKS = 1 << 24


@dataclass(frozen=True)
class Judged:
    """The input of metrics: the evaluated queries, and the labels of each with their ranks."""

    # query_id by result_no.
    query_ids: pl.Series
    # result_no, n_hits, n_relevant
    queries: pl.DataFrame
    # The columns of label_finds. Labels that no metric can count are left out: grade 0, and not found.
    labels: pl.DataFrame
    # How many queries the run has, and how many of those have judgements.
    n_in_run: int
    n_common: int
    # What makes the numbers untrustworthy: ids that are nearly, but not quite, equal.
    doubts: Sequence[str] = ()


@dataclass(frozen=True)
class _Coded:
    """The rows of a frame with a number for each query."""

    codes: Ints
    names: pl.Series
    # The rows of each query are adjacent, so the numbers are ascending.
    is_sorted: bool


def judge(  # noqa: PLR0913  (what to judge, and how)
    run: pl.DataFrame,
    qrels: pl.DataFrame,
    *,
    level: float | None = None,
    empty: Collection[str] = (),
    complete: bool = False,
    sources: tuple[str, str] = ("the run", "the qrels"),
) -> Judged:
    """Find the rank of every judged document. A run with a column `rank` has its ranks already.

    `level`: the lowest grade that counts as relevant; None: any above 0. `empty`: queries of the run without documents.
    `complete`: also evaluate the queries of the qrels that the run does not have. A negative grade means "not judged".
    `sources`: the names of the two in messages.
    """
    hits, labels = _coded(run[QUERY]), _coded(qrels[QUERY])
    hit_hash, label_hash = (frame[DOC].hash().to_numpy() for frame in (run, qrels))
    # Both release the GIL most of the time.
    with ThreadPoolExecutor(1) as background:
        checks = [
            background.submit(_refuse_repeats, frame, coded, hashes, what)
            for frame, coded, hashes, what in (
                (run, hits, hit_hash, sources[0]),
                (qrels, labels, label_hash, sources[1]),
            )
        ]
        found = _judge(run, qrels, hits, labels, hit_hash, label_hash, level, empty, complete=complete, sources=sources)
        for check in checks:
            check.result()
    return found


def _judge(  # noqa: PLR0913, PLR0917  (both sides, and how)
    run: pl.DataFrame,
    qrels: pl.DataFrame,
    hits: _Coded,
    labels: _Coded,
    hit_hash: NDArray[np.uint64],
    label_hash: NDArray[np.uint64],
    level: float | None,
    empty: Collection[str],
    *,
    complete: bool,
    sources: tuple[str, str],
) -> Judged:
    n_hits = np.bincount(hits.codes, minlength=len(hits.names))
    # The queries in the order of their ids, and the numbers that each has on both sides.
    of_labels = pl.DataFrame({QUERY: labels.names}).with_row_index("label_code")
    of_hits = pl.DataFrame({QUERY: hits.names, "n_hits": n_hits}).with_row_index("hit_code")
    chosen = of_labels.join(of_hits, on=QUERY, how="left").sort(QUERY)
    is_in_run = pl.col("hit_code").is_not_null()
    if empty:
        is_in_run |= pl.col(QUERY).is_in(list(empty))
    n_common = int(chosen.select(is_in_run.sum()).item())
    if not complete:
        chosen = chosen.filter(is_in_run)
    numbers = np.arange(len(chosen), dtype=np.int64)
    result_of_label = _mapping(chosen["label_code"], numbers, len(labels.names))
    result_of_hit = _mapping(chosen["hit_code"], numbers, len(hits.names))

    grades = qrels[GRADE].cast(pl.Float64).to_numpy()
    kept = np.flatnonzero((result_of_label[labels.codes] >= 0) & (grades >= 0))
    result, grade = result_of_label[labels.codes[kept]], grades[kept]
    rank = np.zeros(len(kept), dtype=np.int64)
    hit_results = result_of_hit[hits.codes]
    judged = qrels[DOC].gather(kept)
    row, place = _same_documents(run[DOC], hit_results, hit_hash, judged, result, label_hash[kept])
    rank[place] = run[RANK].to_numpy()[row] if RANK in run.columns else _ranks(run, hit_results, row)
    is_relevant = grade > 0 if level is None else grade >= level
    counted = np.bincount(result[is_relevant], minlength=len(chosen))
    queries = pl.DataFrame(
        {"result_no": numbers, "n_hits": chosen["n_hits"].fill_null(0).cast(pl.Int64), "n_relevant": counted}
    )
    finds = _label_finds(len(chosen), result, grade, is_relevant, rank)
    doubts = [] if n_common == len(hits.names) else query_doubts(hits.names, labels.names, sources)
    doubts += document_doubts(
        docs=run[DOC],
        results=hit_results,
        n_hits=queries["n_hits"].to_numpy(),
        found_rows=row,
        judged=judged,
        judged_results=result,
        ranks=rank,
        sources=sources,
    )
    return Judged(chosen[QUERY], queries, finds, len(hits.names) + len(empty), n_common, doubts)


def _coded(queries: pl.Series) -> _Coded:
    """A number for each row's query. Usually the rows of a query are adjacent."""
    runs = queries.rle().struct.unnest()
    names, lengths = runs["value"], runs["len"].to_numpy()
    if names.n_unique() == len(names):
        return _Coded(np.repeat(np.arange(len(names), dtype=np.int64), lengths), names, is_sorted=True)
    frame = pl.DataFrame({QUERY: names})
    unique = frame.unique(maintain_order=True).with_row_index("code")
    code = frame.join(unique, on=QUERY, how="left", maintain_order="left")["code"].to_numpy()
    return _Coded(np.repeat(code.astype(np.int64), lengths), unique[QUERY], is_sorted=False)


def _mapping(codes: pl.Series, numbers: Ints, size: int) -> Ints:
    """The result of each code; -1 if there is none."""
    found = np.full(size, -1, dtype=np.int64)
    known = codes.is_not_null().to_numpy()
    found[codes.drop_nulls().to_numpy()] = numbers[known]
    return found


def _refuse_repeats(frame: pl.DataFrame, coded: _Coded, hashes: NDArray[np.uint64], what: str) -> None:
    """Reject duplicate documents of a query, as trec_eval does."""
    codes = pl.Series(coded.codes)
    counts = (
        pl.DataFrame({"code": codes.set_sorted() if coded.is_sorted else codes, "hash": hashes})
        .group_by("code")
        .agg(pl.len() - pl.col("hash").n_unique())
        .select(pl.col("len").max())
    )
    # Different documents may have the same hash, so the documents themselves are compared.
    if counts.item():
        refuse_repeats(frame, what)


def refuse_repeats(frame: pl.DataFrame, what: str) -> None:
    """Reject duplicate documents of a query; `frame` has the columns query_id and doc_id."""
    found = frame.group_by(QUERY, DOC).len().filter(pl.col("len") > 1).sort(QUERY, DOC).head(1)
    for query, doc, count in found.iter_rows():
        msg = f"{what} contains document {cut(doc, 60)!r} {count} times for query {cut(query, 60)!r}; keep one"
        raise UsageError(msg)


def numbered_from_one(run: pl.DataFrame, what: str) -> pl.DataFrame:
    """A run whose ranks count from 1: if any is 0, all are raised by one. Refuses duplicate ranks of a query."""
    _refuse_equal_ranks(run, what)
    return run.with_columns(pl.col(RANK) + 1) if run.height and run[RANK].min() == 0 else run


def _refuse_equal_ranks(run: pl.DataFrame, what: str) -> None:
    """Refuse a rank that one query has more than once: it does not say which document comes first."""
    if not run.select(QUERY, RANK).is_duplicated().any():
        return
    found = run.group_by(QUERY, RANK).len().filter(pl.col("len") > 1).sort(QUERY, RANK).head(1)
    for query, rank, count in found.iter_rows():
        msg = f"{what} has rank {rank} {count} times for query {cut(query, 60)!r}; renumber them, or order by score"
        raise UsageError(msg)


def _same_documents(  # noqa: PLR0913, PLR0917  (both sides of a join)
    docs: pl.Series,
    results: Ints,
    hashes: NDArray[np.uint64],
    judged: pl.Series,
    judged_results: Ints,
    judged_hashes: NDArray[np.uint64],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Pairs of rows in which hit and label are the same document: joined by a hash, then compared as text."""
    mine = hashes ^ (results.view(np.uint64) * _SPREAD)
    theirs = judged_hashes ^ (judged_results.view(np.uint64) * _SPREAD)
    # Most hits are not judged. A table of the last bits of all judged documents rules out nearly all of them at once.
    is_marked = np.zeros(_MARKS, dtype=np.bool_)
    is_marked[theirs & np.uint64(_MARKS - 1)] = True
    maybe = np.flatnonzero(is_marked[mine & np.uint64(_MARKS - 1)])
    left = pl.DataFrame({"hash": mine[maybe], "row": maybe})
    found = left.join(pl.DataFrame({"hash": theirs}).with_row_index("place"), on="hash")
    row, place = found["row"].to_numpy(), found["place"].to_numpy()
    is_same = (docs.gather(row) == judged.gather(place)).to_numpy() & (results[row] == judged_results[place])
    return row[is_same], place[is_same]


def _ranks(run: pl.DataFrame, results: Ints, rows: NDArray[Any]) -> Ints:
    """The ranks of some rows of the run in their rankings."""
    keys = _keys(results, run[SCORE])
    ordered = keys if _is_sorted(keys) else pl.Series(keys).sort().to_numpy()
    mine = keys[rows]
    low = np.searchsorted(ordered, mine)
    # Hits of queries that are not evaluated come first.
    rank: Ints = low - _starts(results + 1)[results[rows] + 1] + 1
    tied = (low + 1 < len(ordered)) & (ordered[np.minimum(low + 1, len(ordered) - 1)] == mine)
    if tied.any():
        rank[tied] += _places_among_equals(run[DOC], keys, rows[tied])
    return rank


def _is_sorted(keys: Ints) -> bool:
    return bool((keys[1:] >= keys[:-1]).all())


def _starts(numbers: Ints) -> Ints:
    """The start of each number's rows, given the count of each, in order."""
    counts = np.bincount(numbers, minlength=1)
    starts: Ints = np.cumsum(counts) - counts
    return starts


def _keys(results: Ints, scores: pl.Series) -> Ints:
    """One integer per hit: smaller for earlier queries, and within a query for higher scores."""
    # Adding 0 turns -0 into 0.
    single: Any = scores.cast(pl.Float32).to_numpy() + np.float32(0)
    bits = single.view(np.int32)
    # Negative numbers are stored as sign and size: the larger the size, the smaller the number.
    rising = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    keys: Ints = results << 32
    keys -= rising
    return keys


def _places_among_equals(docs: pl.Series, keys: Ints, rows: NDArray[Any]) -> Ints:
    """How many documents with the same score come before each of these rows: those with a later id."""
    every = np.flatnonzero(pl.Series(keys).is_in(pl.Series(np.unique(keys[rows])).implode()).to_numpy())
    equals = pl.DataFrame({"key": keys[every], "row": every, DOC: docs.gather(every)})
    ordered = equals.sort("key", DOC, descending=[False, True])
    sorted_keys = ordered["key"].to_numpy()
    place = np.arange(len(ordered), dtype=np.int64) - np.searchsorted(sorted_keys, sorted_keys)
    before: Ints = np.zeros(len(keys), dtype=np.int64)
    before[ordered["row"].to_numpy()] = place
    found: Ints = before[rows]
    return found


def _label_finds(
    n_results: int, result: Ints, grade: NDArray[np.float64], is_relevant: NDArray[np.bool_], rank: Ints
) -> pl.DataFrame:
    """What precedes each label, and its position in the ideal ranking."""
    by_grade = _order((result << 32) - grade.astype(np.int64)) if _are_whole(grade) else np.lexsort((-grade, result))
    ideal_rank = np.empty(len(result), dtype=np.int64)
    ideal_rank[by_grade] = np.arange(1, len(result) + 1) - _starts(result)[result[by_grade]]
    found = np.flatnonzero(rank)
    found = found[_order((result[found] << 32) + rank[found])]
    relevant_seen, nonrelevant_seen = (_seen(result[found], counts[found]) for counts in (is_relevant, ~is_relevant))
    n_relevant = np.bincount(result[is_relevant], minlength=n_results)
    n_nonrelevant = np.bincount(result[~is_relevant], minlength=n_results)
    seen = np.zeros((2, len(result)), dtype=np.int64)
    seen[0, found], seen[1, found] = relevant_seen, nonrelevant_seen
    labels = pl.DataFrame(
        {
            "result_no": result,
            "place": np.arange(len(result)),
            "grade": grade,
            "is_relevant": is_relevant,
            "rank": rank,
            "is_judgement": np.ones(len(result), dtype=np.bool_),
            "ideal_rank": ideal_rank,
            "n_relevant_seen": seen[0],
            "n_nonrelevant_seen": seen[1],
            "n_relevant": n_relevant[result],
            "n_nonrelevant": n_nonrelevant[result],
        }
    )
    is_found = pl.col("rank") > 0
    # Each query keeps one, so that it is known to have judgements.
    return labels.filter(is_found | (pl.col("grade") > 0) | (pl.col("ideal_rank") == 1)).with_columns(
        pl.when(is_found).then(pl.col(name)).alias(name) for name in ("rank", "n_relevant_seen", "n_nonrelevant_seen")
    )


def _are_whole(grade: NDArray[np.float64]) -> bool:
    """Are they integers that leave room for the number of a query?"""
    return bool((grade < 2**31).all() and (grade == np.floor(grade)).all())


def _order(keys: Ints) -> NDArray[Any]:
    return pl.Series(keys).arg_sort().to_numpy()


def _seen(result: Ints, counts: NDArray[np.bool_]) -> Ints:
    """The running count up to each row, within its result."""
    total: Ints = np.cumsum(counts)
    starts = _starts(result)[result]
    before = np.where(starts > 0, total[starts - 1], 0) if len(total) else total
    found: Ints = total - before
    return found
