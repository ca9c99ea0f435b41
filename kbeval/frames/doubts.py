"""Doubts about the ids of a run and its judgements: zeros that mean "not matched" must not look like a bad ranking."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kbeval.util.text import counted, cut

# This many hits are checked if some documents were found; if none was found, all of them are.
_SAMPLE = 10_000
_WHY = "only in case or white space, so they are not the same"


def folded(ids: pl.Series) -> pl.Series:
    """Ids without differences that are easily overlooked: case, and white space around and between."""
    return ids.str.to_lowercase().str.replace_all(r"\s+", "")


def query_doubts(of_run: pl.Series, of_qrels: pl.Series, sources: tuple[str, str]) -> list[str]:
    """Queries that only one side has, and that would be one query if case and white space did not matter."""
    mine, theirs = (
        pl.DataFrame({name: ids, "key": folded(ids)}) for name, ids in (("run", of_run), ("qrels", of_qrels))
    )
    alike = (
        mine.join(of_qrels.rename("run").to_frame(), on="run", how="anti")
        .join(theirs.join(of_run.rename("qrels").to_frame(), on="qrels", how="anti"), on="key")
        .unique("qrels", keep="any")
        .sort("run", "qrels")
    )
    if not alike.height:
        return []
    n, (one, other) = counted(alike.height, "query", "queries"), alike.select("run", "qrels").row(0)
    return [
        f"{n} left out: the ids in {sources[0]} and {sources[1]} differ {_WHY} ({_quoted(one)} and {_quoted(other)})"
    ]


def document_doubts(  # noqa: PLR0913  (both sides)
    *,
    docs: pl.Series,
    results: NDArray[np.int64],
    n_hits: NDArray[np.int64],
    found_rows: NDArray[Any],
    judged: pl.Series,
    judged_results: NDArray[np.int64],
    ranks: NDArray[np.int64],
    sources: tuple[str, str],
) -> list[str]:
    """Judged documents that were not found, because no id is equal.

    `results`: the query of each hit, below 0 if it is not evaluated. `n_hits`: of each query. `found_rows`: the hits
    that are judged. `ranks`: of the judged documents, 0 if not found.
    """
    total = np.cumsum(n_hits)
    if not len(total) or not total[-1] or not len(ranks):
        return []
    last = len(total) - 1
    nothing_found = not len(found_rows)
    # The last of the first queries that together have enough hits.
    most = last if nothing_found else min(last, int(np.searchsorted(total, _SAMPLE)))
    # As a number without a sign, one below 0 is above all others.
    looked_at = np.flatnonzero(results.view(np.uint64) <= most)
    hits = pl.DataFrame({"result": results[looked_at], "row": looked_at, "hit": docs.gather(looked_at)})
    hits = hits.join(pl.DataFrame({"row": found_rows.astype(np.int64)}), on="row", how="anti")
    lost = np.flatnonzero((ranks == 0) & (judged_results <= most))
    labels = pl.DataFrame({"result": judged_results[lost], "label": judged.gather(lost)})
    alike = hits.with_columns(folded(hits["hit"]).alias("key")).join(
        labels.with_columns(folded(labels["label"]).alias("key")), on=["result", "key"]
    )
    said = []
    if nothing_found:
        mine, theirs = _quoted(docs[int(looked_at[0])]), _quoted(judged[0])
        said.append(
            f"no document of {sources[0]} is judged in {sources[1]}, so nothing counts as found: do their ids belong"
            f" together? (the first are {mine} and {theirs})"
        )
    if alike.height:
        alike = alike.sort("result", "hit", "label")
        n = counted(alike.height, "judged document")
        where = "" if most == last else f" of the first {counted(most + 1, 'query', 'queries')}"
        example = f"({_quoted(alike['hit'][0])} and {_quoted(alike['label'][0])})"
        said.append(f"{n}{where} not found: the ids in {sources[0]} and {sources[1]} differ {_WHY} {example}")
    return said


def _quoted(text: str) -> str:
    return repr(cut(text, 40))
