"""Reads runs and judgements in the caller's form: tables of any library, dictionaries, TREC files. All become Polars
frames.

A table is anything with the Arrow C stream or the dataframe interchange protocol, so pandas, PyArrow, DuckDB and others
are read without being imported.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from kbeval.errors import UsageError
from kbeval.frames.ranking import BY_RANK, BY_SCORE, DOC, GRADE, ORDERS, QUERY, RANK, SCORE, numbered_from_one
from kbeval.frames.trec_files import MOST_RANKS, read_trec_qrels, read_trec_run
from kbeval.util.numbers import MAX_GRADE
from kbeval.util.text import cut

# Accepted names of each column, in order of preference.
_NAMES = {
    QUERY: (QUERY, "qid", "q_id", "query-id", "queryid", "topic", "query"),
    DOC: (DOC, "docno", "docid", "chunk_id", "corpus-id", "corpus_id", "pid", "doc"),
    SCORE: (SCORE, "sim", "similarity"),
    RANK: (RANK, "position", "pos"),
    GRADE: (GRADE, "relevance", "rel", "label", "qrel", SCORE),
}


class RunTable(NamedTuple):
    """A run: query_id, doc_id, score or rank; and its queries without documents, which only a dictionary can have."""

    frame: pl.DataFrame
    empty: Sequence[str] = ()


def read_run(source: Any, what: str = "the run", order: str = BY_SCORE) -> RunTable:  # noqa: ANN401  (whatever holds a run)
    """Read a run: a table, `{query: {document: score}}`, or the path of a TREC run file.

    `order`: what decides the ranking, its scores or its column of ranks; a dictionary has no ranks.
    """
    if order not in ORDERS:
        msg = f"order is {order!r:.60}; it must be {' or '.join(map(repr, ORDERS))}"
        raise UsageError(msg)
    if isinstance(source, str | os.PathLike):
        return RunTable(read_trec_run(source, order).frame)
    if isinstance(source, Mapping):
        if order == BY_RANK:
            msg = f"{what} is a dictionary of scores and has no ranks; pass a table or a TREC file, or order='score'"
            raise UsageError(msg)
        frame = _from_dictionary(source, SCORE, what)
        return RunTable(_checked(frame, SCORE, what), [str(query) for query, docs in source.items() if not docs])
    if order == BY_RANK:
        frame = _checked(_from_table(source, (QUERY, DOC, RANK), what), RANK, what)
        return RunTable(numbered_from_one(_whole_ranks(frame, what), what))
    return RunTable(_checked(_from_table(source, (QUERY, DOC, SCORE), what), SCORE, what))


def _whole_ranks(frame: pl.DataFrame, what: str) -> pl.DataFrame:
    rank = pl.col(RANK)
    wrong = frame.filter((rank != rank.floor()) | ~rank.is_between(0, MOST_RANKS)).head(1)
    for query, _, found in wrong.iter_rows():
        msg = f"{what} has rank {found:g} for query {cut(query, 60)!r}; a rank is a whole number from 0 or 1 on"
        raise UsageError(msg)
    return frame.with_columns(rank.cast(pl.Int64))


def read_qrels(source: Any, what: str = "the qrels") -> pl.DataFrame:  # noqa: ANN401  (whatever holds judgements)
    """Read judgements, in the same ways: query_id, doc_id, grade."""
    if isinstance(source, str | os.PathLike):
        return read_trec_qrels(source)
    if isinstance(source, Mapping):
        frame = _from_dictionary(source, GRADE, what)
    else:
        frame = _from_table(source, (QUERY, DOC, GRADE), what)
    frame = _checked(frame, GRADE, what)
    if frame.height and not frame.select((pl.col(GRADE).abs() <= MAX_GRADE).all()).item():
        msg = f"{what} contains a grade above {MAX_GRADE:,}"
        raise UsageError(msg)
    return frame


def is_many(source: Any) -> bool:  # noqa: ANN401  (whatever holds runs)
    """Is it a dictionary of named runs, not the dictionary of one run?"""
    if not isinstance(source, Mapping) or not source:
        return False
    values = list(source.values())
    if any(not isinstance(value, Mapping) for value in values):
        return True
    # The values of one run's dictionary are numbers by document.
    return any(isinstance(inner, Mapping) for value in values for inner in value.values())


def _from_dictionary(source: Mapping[Any, Any], number: str, what: str) -> pl.DataFrame:
    docs: list[Any] = []
    numbers: list[Any] = []
    for query, found in source.items():
        if not isinstance(found, Mapping):
            msg = f"{what}: the value of {cut(str(query), 60)!r} must be a dictionary of documents"
            raise UsageError(msg)
        docs.extend(found.keys())
        numbers.extend(found.values())
    each = np.repeat(np.arange(len(source)), [len(found) for found in source.values()])
    queries = ids_as_text(source, f"{what}: the query id")
    _refuse_merged(queries, what)
    if not all(type(doc) is str for doc in docs):
        docs = ids_as_text(docs, f"{what}: the document id")
    try:
        names = pl.Series(QUERY, queries, dtype=pl.String)
        return pl.DataFrame(
            {
                QUERY: names.gather(each),
                DOC: pl.Series(docs, dtype=pl.String),
                number: pl.Series(numbers, dtype=pl.Float64, strict=True)
                if all(type(value) is float for value in numbers)
                else pl.Series([_number(value) for value in numbers], dtype=pl.Float64),
            }
        )
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        msg = f"{what}: each document must map to a number: {str(error).splitlines()[0]}"
        raise UsageError(msg) from error


def ids_as_text(ids: Iterable[Any], what: str) -> list[str]:
    """Ids as text; whole numbers become their digits, and anything else is refused."""
    found = []
    for one in ids:
        is_whole = isinstance(one, Integral) and not isinstance(one, bool)
        if not (is_whole or (isinstance(one, str) and one)):
            msg = f"{what} is {one!r:.60}; an id must be non-empty text or a whole number"
            raise UsageError(msg)
        found.append(str(int(one)) if is_whole else str(one))
    return found


def _refuse_merged(queries: Sequence[str], what: str) -> None:
    """Ids are text, so 1 and "1" are one query."""
    if len(set(queries)) < len(queries):
        twice = next(query for query, count in Counter(queries).items() if count > 1)
        msg = f"{what} has query {cut(twice, 60)!r} twice, as a number and as text; ids are text, so merge the two"
        raise UsageError(msg)


def _number(value: Any) -> float:  # noqa: ANN401
    if isinstance(value, str | bytes | bool) or value is None:
        msg = f"{value!r} is not a number"
        raise TypeError(msg)
    return float(value)


def _from_table(source: Any, wanted: Sequence[str], what: str) -> pl.DataFrame:  # noqa: ANN401
    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    if not isinstance(source, pl.DataFrame):
        try:
            if hasattr(source, "__arrow_c_stream__"):
                source = pl.DataFrame(source)
            elif hasattr(source, "__dataframe__"):
                # Polars itself reads the Arrow C stream alone.
                from pyarrow.interchange import from_dataframe

                source = pl.DataFrame(from_dataframe(source))
            else:
                msg = (
                    f"{what} is {type(source).__name__}; pass a table (Polars, pandas, Arrow), a dictionary"
                    " {query: {document: number}}, or the path of a TREC file"
                )
                raise UsageError(msg)
        except (TypeError, ValueError, AttributeError, RuntimeError, pl.exceptions.PolarsError) as error:
            msg = f"{what} cannot be read as a table: {str(error).splitlines()[0]}"
            raise UsageError(msg) from error
    frame: pl.DataFrame = source
    return frame.select(_column(frame, name, what).alias(name) for name in wanted)


def _column(frame: pl.DataFrame, name: str, what: str) -> pl.Expr:
    found = next((known for known in _NAMES[name] if known in frame.columns), None)
    if found is None:
        has = cut(", ".join(frame.columns), 100) or "none"
        ranked = name == SCORE and any(known in frame.columns for known in _NAMES[RANK])
        hint = "; order='rank' uses its ranks" if ranked else ""
        msg = f"{what} has no column {name} (or {', '.join(_NAMES[name][1:])}){hint}; its columns: {has}"
        raise UsageError(msg)
    kind = frame.schema[found]
    if name in (SCORE, GRADE, RANK):
        if not kind.is_numeric():
            msg = f"the column {found} of {what} is {kind}, not numbers"
            raise UsageError(msg)
        return pl.col(found).cast(pl.Float64)
    if not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum)):
        msg = f"the column {found} of {what} is {kind}; ids must be text or integers"
        raise UsageError(msg)
    return pl.col(found).cast(pl.String)


def _checked(frame: pl.DataFrame, number: str, what: str) -> pl.DataFrame:
    """Reject rows without an id or without a number."""
    for name in frame.columns:
        bad = frame[name].null_count()
        if name == number:
            bad += int(frame[name].is_nan().sum())
        if bad:
            msg = f"{what} has {bad:,} rows without {'a' if name == number else 'an'} {name}"
            raise UsageError(msg)
    return frame
