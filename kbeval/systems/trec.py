"""TREC files and stored runs: run files become runs, judgements become golden entries, and runs become run files.

A TREC document is both a chunk and a document here: its number is used for both ids.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from kbeval.errors import UsageError
from kbeval.frames.ranking import BY_RANK, BY_SCORE, DOC, GRADE, QUERY, refuse_repeats
from kbeval.frames.trec_files import read_trec_lines, read_trec_qrels
from kbeval.storage.options import ReadOptions
from kbeval.storage.runs import find_run
from kbeval.storage.source import open_source
from kbeval.systems import ImportedRun
from kbeval.systems.json_columns import OddError, need, objects, piece
from kbeval.systems.json_lines import ImportFaultError, id_of, read_text, written
from kbeval.util.text import counted, cut

SYSTEM = "trec"


@dataclass(frozen=True)
class RunFileRows:
    """The contents of a run file: the hits of each query, best first, and the tag of its first line."""

    rows: Mapping[str, list[dict[str, Any]]]
    tag: str | None


def read_rows(path: Path, order: str = BY_SCORE) -> RunFileRows:
    """Read a run file: its ranks are those of trec_eval, or, by rank, those of its column.

    What differs in the file (a rank, a second column that is not Q0, several tags) is kept in the hits.
    """
    return _rows(path, *_ranked(path, order))


def _ranked(path: Path, order: str) -> tuple[pl.DataFrame, str | None]:
    """The lines of a run file, the best of each query first, with `place`, their rank; and the tag of the first."""
    lines = read_trec_lines(path, order)
    refuse_repeats(lines.select(pl.col("query").alias(QUERY), pl.col("document").alias(DOC)), str(path))
    tag = lines["tag"][0] if lines.height else None
    if order == BY_RANK:
        return lines.sort("query", "place"), tag
    score = pl.col("score").cast(pl.Float32) + pl.lit(0.0, pl.Float32)
    ranked = lines.sort("query", score, "document", descending=[False, True, True])
    return ranked.with_columns(pl.int_range(1, pl.len() + 1).over("query").alias("place")), tag


def _texts(ranked: pl.DataFrame, tag: str | None) -> list[tuple[str, str]] | None:
    """The rows as JSON, from columns; None if a row must be checked by itself."""
    try:
        need(ranked["score"].is_finite().all() and not ranked["query"].str.contains("\0", literal=True).any())
        given = {
            "trec_rank": pl.when(pl.col("rank") != pl.col("place").cast(pl.String)).then(pl.col("rank")),
            "trec_iter": pl.when(pl.col("Q0") != "Q0").then(pl.col("Q0")),
            "trec_tag": pl.when(pl.col("tag") != pl.lit(tag)).then(pl.col("tag")),
        }
        more = ranked.select(value.alias(name) for name, value in given.items())
        doc = ranked["document"]
        pieces = [piece("rank", ranked["place"]), piece("chunk_id", doc), piece("doc_id", doc)]
        pieces += [piece("score", ranked["score"]), *(piece(name, more[name]) for name in given)]
        hits = pl.DataFrame({"query": ranked["query"], "hits": objects(pieces)})
    except OddError:
        return None
    rows = hits.group_by("query", maintain_order=True).agg(pl.col("hits").str.join(", "))
    return [(query, f'{{"query_id": {written(query)}, "hits_top_k": [{text}]}}') for query, text in rows.iter_rows()]


def _rows(path: Path, ranked: pl.DataFrame, tag: str | None) -> RunFileRows:
    rows: dict[str, list[dict[str, Any]]] = {}
    faults = []
    for query, second, doc, rank, score, own_tag, place in ranked.iter_rows():
        hit: dict[str, Any] = {"rank": place, "chunk_id": doc, "doc_id": doc, "score": score}
        if rank != str(place):
            hit["trec_rank"] = rank
        if second != "Q0":
            hit["trec_iter"] = second
        if own_tag != tag:
            hit["trec_tag"] = own_tag
        if id_of(doc) is None or id_of(query) is None:
            faults.append(f"query {cut(query, 60)!r}, document {cut(doc, 60)!r}: not an id")
        if score in (float("inf"), float("-inf")):
            faults.append(f"query {cut(query, 60)!r}, document {cut(doc, 60)!r}: the score is infinite")
        rows.setdefault(query, []).append(hit)
    if faults:
        raise ImportFaultError(path, faults, has_rows=True)
    return RunFileRows(rows, tag)


def read_run_file(path: Path, run_id: str | None = None, suite: str = SYSTEM, order: str = BY_SCORE) -> ImportedRun:
    """Read a run file as a run; its id is the name of the file without ending, unless one is given."""
    name = path.name.rpartition(".")[0] or path.name if run_id is None else run_id
    if id_of(name) is None:
        msg = f"{name!r} cannot be the id of a run; use --run-id"
        raise UsageError(msg)
    ranked, tag = _ranked(path, order)
    texts = _texts(ranked, tag)
    if texts is None:
        found = _rows(path, ranked, tag)
        texts = [(query, written({"query_id": query, "hits_top_k": hits})) for query, hits in found.rows.items()]
    moment = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    config: dict[str, Any] = {} if tag is None else {"trec_tag": tag}
    warnings = [] if texts else [f"{path} contains no results"]
    return ImportedRun(name, suite, SYSTEM, config, texts, moment, warnings)


@dataclass(frozen=True)
class GoldenEntries:
    """Judgements as golden entries, and what could not be kept."""

    entries: Sequence[Mapping[str, Any]]
    notes: Sequence[str]

    def text(self, ending: str) -> str:
        """A golden file: a list, one entry per line, which is JSON and YAML; for .jsonl only the entries."""
        lines = [json.dumps(entry, ensure_ascii=False) for entry in self.entries]
        if ending == ".jsonl":
            return "".join(f"{line}\n" for line in lines)
        return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def read_qrels_file(path: Path, queries: Path | None = None) -> GoldenEntries:
    """Read judgements as golden entries, by query id. `queries`: their texts, `id TAB text` per line."""
    frame = read_trec_qrels(path)
    refuse_repeats(frame, str(path))
    texts = {} if queries is None else _query_texts(queries)
    notes = []
    if negative := frame.filter(pl.col(GRADE) < 0).height:
        notes.append(f"{counted(negative, 'judgement')} with a negative grade left out: not judged, as in trec_eval")
    grades: dict[str, dict[str, int]] = {}
    kept = frame.filter(pl.col(GRADE) >= 0).sort(QUERY, GRADE, DOC, descending=[False, True, False])
    for query, doc, grade in kept.iter_rows():
        grades.setdefault(query, {})[doc] = int(grade)
    entries = []
    for query, found in grades.items():
        entry: dict[str, Any] = {"id": query, "query": texts.get(query, query), "relevance": found}
        # An empty list would mean that the system should refuse.
        if relevant := [doc for doc, grade in found.items() if grade > 0]:
            entry["expected_doc_ids"] = relevant
        entries.append(entry)
    untold = sum(query not in texts for query in grades)
    if untold:
        what = counted(untold, "query", "queries")
        notes.append(f"{what} without a text: the id is used instead; use --queries FILE (id, tab, text)")
    if unused := len(texts.keys() - grades.keys()):
        notes.append(f"{counted(unused, 'query', 'queries')} of {queries} without judgements left out")
    return GoldenEntries(entries, notes)


def _query_texts(path: Path) -> dict[str, str]:
    faults, found = [], {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        query, tab, text = line.rstrip("\r").partition("\t")
        if not tab or not query.strip() or not text.strip():
            faults.append(f"line {number}: must be an id, a tab and the text of the query")
        elif query.strip() in found:
            faults.append(f"line {number}: {cut(query.strip(), 60)!r} already has a text")
        else:
            found[query.strip()] = text.strip()
    if faults:
        raise ImportFaultError(path, faults, has_rows=bool(found))
    return found


@dataclass(frozen=True)
class RunFile:
    """A stored run as a run file, and what was left out."""

    run_id: str
    lines: Sequence[str]
    notes: Sequence[str]


def export_run_file(
    name: str, *, db: str | os.PathLike[str], tag: str | None = None, options: ReadOptions, suite: str | None = None
) -> RunFile:
    """A stored run as lines `query Q0 document rank score tag`, in the order of its ranks.

    trec_eval orders by scores alone. If the scores of a query are missing, or their order differs from its ranks, all
    of them are replaced by numbers in the order of the ranks.
    """
    with open_source(db, options) as (session, source):
        run = find_run(source.runs(), name, str(db), suite)
        source.feed(session, [run.run_id])
        session.need("results", "hits", "bad_rows")
        ((bad,),) = session.rows("SELECT COUNT(*) FROM bad_rows")
        hits = session.frame(
            "SELECT r.query_id, h.chunk_id, h.rank, h.score FROM hits AS h"
            " JOIN results AS r ON r.result_no = h.result_no ORDER BY r.query_id, h.rank"
        )
        queries = session.frame("SELECT query_id FROM results ORDER BY query_id")
    notes = [f"{counted(bad, 'unreadable row')} left out"] if bad else []
    nameless = hits["chunk_id"].null_count()
    if nameless:
        notes.append(f"{counted(nameless, 'hit')} without a chunk_id left out")
    named = hits.filter(pl.col("chunk_id").is_not_null())
    once = named.unique(["query_id", "chunk_id"], keep="first", maintain_order=True)
    if repeated := named.height - once.height:
        notes.append(f"{counted(repeated, 'repeated hit')} left out: a run file contains a document once per query")
    label = tag or run.run_id
    for what, texts in (
        ("the tag", [label]),
        ("query", once["query_id"].unique()),
        ("chunk", once["chunk_id"].unique()),
    ):
        wrong = next((text for text in texts if not text or len(text.split()) != 1 or text.startswith("#")), None)
        if wrong is not None:
            advice = "; use --tag" if what == "the tag" else ""
            why = "it is empty, contains white space or begins with #"
            msg = f"{what} {cut(wrong, 60)!r} cannot be written to a run file: {why}{advice}"
            raise UsageError(msg)
    lines: list[str] = []
    replaced = 0
    for group in once.partition_by("query_id", maintain_order=True):
        scores, is_new = _scores(group)
        replaced += is_new
        rows = zip(group["query_id"], group["chunk_id"], group["rank"], scores, strict=True)
        lines += [f"{query} Q0 {doc} {rank} {score!r} {label}" for query, doc, rank, score in rows]
    if replaced:
        what = counted(replaced, "query", "queries")
        notes.append(f"the scores of {what} replaced, because they are missing or do not follow the ranks")
    if empty := queries.height - once["query_id"].n_unique():
        notes.append(f"{counted(empty, 'query', 'queries')} without hits: a run file cannot contain them")
    return RunFile(run.run_id, lines, notes)


def _scores(group: pl.DataFrame) -> tuple[list[float], bool]:
    """Scores by which trec_eval orders the hits of one query by rank, and whether they are new."""
    stored = group["score"].cast(pl.Float64)
    if not stored.null_count() and stored.is_finite().all():
        single = stored.cast(pl.Float32).to_list()
        order = list(zip(single, group["chunk_id"], strict=True))
        if all(a > b for a, b in itertools.pairwise(order)):
            return stored.to_list(), False
    return [float(group.height - place) for place in range(group.height)], True
