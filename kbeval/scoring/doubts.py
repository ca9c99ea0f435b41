"""Reasons to doubt numbers that look exact: ids with another meaning, hits that cannot be matched with anything.

Each doubt has the code of a finding of `kbeval check`. `score`, `compare` and `gate` report it next to the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kbeval.scoring.scorer import Scoring
from kbeval.storage.run_config import is_readable
from kbeval.util.numbers import LARGEST
from kbeval.util.text import counted, cut

if TYPE_CHECKING:
    from kbeval.engine.session import Session

_OF_CHUNKS = ("expected_chunk_ids", "relevance")
_AMOUNTS = "elapsed_ms, tokens, cost_usd"


class Doubt(NamedTuple):
    """One line about one run."""

    code: str
    run_id: str
    text: str


def find_doubts(scoring: Scoring, *, thoroughly: bool = False) -> Iterator[Doubt]:
    """Everything that a reader of the numbers must know about how hits and labels were matched.

    `thoroughly`: also checks that need the position stated by each hit, although the rows are read again for them.
    """
    yield from _unreadable_configurations(scoring)
    yield from _odd_rows(scoring)
    if any(scoring.golden.has(label) for label in _OF_CHUNKS):
        yield from _unclear_ids(scoring)
        yield from _moved_labels(scoring)
        yield from _contested_labels(scoring)
        yield from _nameless_hits(scoring)
        yield from _stranger_chunks(scoring)
        yield from _displaced(scoring, thoroughly=thoroughly)
    if scoring.golden.has("expected_doc_ids"):
        yield from _stranger_docs(scoring)
    if scoring.golden.has_span_labels:
        yield from _runs_elsewhere(scoring)
    yield from _matched_by_document(scoring)


def _unreadable_configurations(scoring: Scoring) -> Iterator[Doubt]:
    # A comparison reports it itself.
    if not scoring.together:
        for run in scoring.runs:
            if not is_readable(run):
                yield Doubt("unreadable-config", run.run_id, "its configuration cannot be read, so it counts as empty")


def _odd_rows(scoring: Scoring) -> Iterator[Doubt]:
    session = scoring.session
    session.need("results")
    # Most runs have no such row, and then nothing more is read.
    ((some_empty, lowest, highest),) = session.rows(
        "SELECT MAX(CASE WHEN n_hits = 0 AND NOT failed THEN 1 ELSE 0 END),"
        f" MIN(LEAST({_AMOUNTS})), MAX(GREATEST({_AMOUNTS})) FROM results"
    )
    if some_empty:
        for run_id, rows, first in _by_run(session, "rows_without_hits"):
            where = f"{counted(rows, 'row')} without 'hits_top_k' (first of query {cut(first, 60)})"
            text = f"{where}: counted as having retrieved nothing"
            yield Doubt("row-without-hits", run_id, text)
    if lowest is not None and (lowest < 0 or highest >= LARGEST):
        for run_id, rows, first in _by_run(session, "impossible_numbers"):
            where = f"{counted(rows, 'row')} with an impossible time, cost or number of tokens"
            effect = "negative values are counted as they are, values of 1e15 and more are excluded"
            yield Doubt("impossible-number", run_id, f"{where} (first of query {cut(first, 60)}): {effect}")


def _by_run(session: Session, relation: str) -> list[tuple[Any, ...]]:
    """The runs that occur in a relation, the number of their rows in it, and the first query."""
    session.need(relation)
    return session.rows(f"SELECT run_id, COUNT(*), MIN(query_id) FROM {relation} GROUP BY run_id ORDER BY run_id")


def _unclear_ids(scoring: Scoring) -> Iterator[Doubt]:
    for run in scoring.matching.runs:
        if not run.n_unclear:
            continue
        effect = {
            "none": "so nothing can be matched, and the metrics about chunks are left out",
            "exact": "so ids are matched as they are",
        }.get(run.matching, "so the positions of the current index are used")
        yield Doubt(
            "unclear-ids",
            run.run_id,
            f"{run.n_unclear:,} of {run.n_expected:,} expected chunk ids refer to other text in the index of"
            f" {run.chunker_version} than before, and its hits do not state which is meant, {effect}: store"
            " source_spans with the hits, or give each index its own chunker_version or policy_hash; --match exact uses"
            " the ids as they are",
        )


def _moved_labels(scoring: Scoring) -> Iterator[Doubt]:
    session = scoring.session
    if "reused_chunks" not in session.built or scoring.options.match == "span" or not scoring.matching.ids_reused:
        return
    session.need("moved_labels")
    for run_id, version, chunks, first in session.rows("SELECT * FROM moved_labels ORDER BY run_id"):
        yield Doubt(
            "reused-ids",
            run_id,
            f"{counted(chunks, 'expected chunk id')} (first {cut(first, 60)}) refer to other text in its index of"
            f" {version} than when the labels were first seen, and ids decide: --match span compares the text",
        )


def _contested_labels(scoring: Scoring) -> Iterator[Doubt]:
    session = scoring.session
    if not any(run.matching == "span" for run in scoring.matching.runs):
        return
    session.need("contested_labels")
    for run_id, version, label_version, chunks, first in session.rows("SELECT * FROM contested_labels ORDER BY run_id"):
        yield Doubt(
            "contested-labels",
            run_id,
            f"its hits name {counted(chunks, 'expected chunk')} by id (first in query {cut(first, 60)}) and are other"
            f" text than the tables have for these ids: the labels are assumed to be chunks of {label_version}, and no"
            f" table contains {version}; if they were made for {version}, the numbers of all runs by these labels are"
            " wrong: score before the index is replaced, or label by expected_spans",
        )


def _nameless_hits(scoring: Scoring) -> Iterator[Doubt]:
    if not scoring.matching.names_missing:
        return
    session = scoring.session
    session.need("nameless_hits", "run_matching")
    for run_id, hits, nameless, first in session.rows(
        "SELECT n.run_id, n.n_hits, n.n_nameless, n.query_id FROM nameless_hits AS n"
        " JOIN run_matching AS u ON u.run_id = n.run_id"
        " JOIN runs AS s ON s.run_id = n.run_id AND s.system IS NULL"
        " WHERE u.matching = 'exact' ORDER BY n.run_id"
    ):
        yield Doubt(
            "hits-without-chunk",
            run_id,
            f"{nameless:,} of {counted(hits, 'hit')} do not name a chunk (first in query {cut(first, 60)}), so they"
            " cannot match an expected chunk by id: give each hit its chunk_id, or match by text with --match span",
        )


def _stranger_chunks(scoring: Scoring) -> Iterator[Doubt]:
    """Runs matched by id that share no id with the labels, with no evidence that both belong to one index."""
    session = scoring.session
    session.need("id_matches", "expected_chunks", "results", "run_matching")
    if not session.rows(
        "SELECT 1 FROM run_matching WHERE matching = 'exact' AND run_id NOT IN"
        " (SELECT r.run_id FROM id_matches AS i JOIN results AS r ON r.result_no = i.result_no) LIMIT 1"
    ):
        return
    session.need("stranger_chunks")
    for run_id, hit, label, is_alike, known in session.rows("SELECT * FROM stranger_chunks ORDER BY run_id"):
        unknown = "no hit names a chunk that is in a table" if known else "the expected ids are in no table"
        yield Doubt(
            "unknown-hits",
            run_id,
            f"no hit is an expected chunk, and {unknown} ({_compared(hit, label, is_alike)}); if they belong to"
            " different indexes, 0 means 'could not be matched': label by expected_spans, or keep the chunks in the"
            " table 'chunks'",
        )


def _displaced(scoring: Scoring, *, thoroughly: bool) -> Iterator[Doubt]:
    """Runs whose chunks are located elsewhere than in the tables, if no earlier index is known."""
    session = scoring.session
    advice = (
        "its index seems to have been replaced by one that uses the same ids for other text, and no copy of it was"
        " kept; by id such a hit counts as the chunk that has its id now: label by expected_spans, or give each index"
        " its own chunker_version or policy_hash"
    )
    if thoroughly or "hit_claims" in session.built:
        session.need("displaced_hits")
        if session.is_built_empty("displaced_hits"):
            return
        for run_id, compared, displaced, labels, query_id, chunk_id in session.rows(
            "SELECT * FROM displaced_hits WHERE n_labels > 0 OR 2 * n_displaced > n_compared ORDER BY run_id"
        ):
            among = f"{counted(labels, 'expected chunk')} among them, " if labels else ""
            text = (
                f"{displaced:,} of {counted(compared, 'hit')} have another position than the tables have for their"
                f" chunk ({among}first {cut(chunk_id, 60)} in query {cut(query_id, 60)}): {advice}"
            )
            yield Doubt("displaced-hits", run_id, text)
        return
    session.need("displaced_labels", "run_matching")
    for run_id, labels, query_id, chunk_id in session.rows(
        "SELECT d.* FROM displaced_labels AS d JOIN run_matching AS u ON u.run_id = d.run_id"
        " WHERE u.matching = 'exact' ORDER BY d.run_id"
    ):
        text = (
            f"{counted(labels, 'expected chunk')} (first {cut(chunk_id, 60)} in query {cut(query_id, 60)}) found in"
            f" another document than in the tables: {advice}"
        )
        yield Doubt("displaced-hits", run_id, text)


def _stranger_docs(scoring: Scoring) -> Iterator[Doubt]:
    """Runs that retrieve no expected document, and whose hits are all in unknown documents."""
    session = scoring.session
    session.need("doc_matches", "results", "runs")
    if not session.rows(
        "SELECT 1 FROM runs WHERE run_id NOT IN"
        " (SELECT r.run_id FROM doc_matches AS d JOIN results AS r ON r.result_no = d.result_no) LIMIT 1"
    ):
        return
    session.need("stranger_docs")
    for run_id, hits, named, hit, label, is_alike in session.rows("SELECT * FROM stranger_docs ORDER BY run_id"):
        if named:
            what = f"no hit is in a document that a table or a label names ({_compared(hit, label, is_alike)})"
        else:
            what = f"none of {counted(hits, 'hit')} names its document, nor a path that is in the table 'documents'"
        text = f"{what}: a recall of 0 means 'could not be matched'; give each hit the doc_id that the labels use"
        yield Doubt("unknown-hits", run_id, text)


def _runs_elsewhere(scoring: Scoring) -> Iterator[Doubt]:
    """Runs that have no hit in any document that expected_spans name."""
    scoring.session.need("runs_elsewhere")
    for run_id, hits, named, hit, label in scoring.session.rows("SELECT * FROM runs_elsewhere ORDER BY run_id"):
        if named:
            what = f"no hit is in a document that expected_spans name ({_compared(hit, label, is_alike=False)})"
            advice = "use the same names"
        else:
            what = f"none of {counted(hits, 'hit')} names its document, nor a chunk or path that is in the tables"
            advice = "give each hit the doc_id that the labels use"
        yield Doubt("unknown-hits", run_id, f"{what}: 0 means 'could not be matched'; {advice}")


def _compared(hit: str, label: str, is_alike: bool) -> str:
    shown = f"hits have names like {cut(hit, 40)!r}, labels like {cut(label, 40)!r}"
    return f"{shown}, which differ only in case or surrounding spaces" if is_alike else shown


def _matched_by_document(scoring: Scoring) -> Iterator[Doubt]:
    # A comparison reports it for both runs at once.
    if scoring.together or not scoring.matching.places_matter:
        return
    scoring.session.need("doc_matches_only")
    for run_id, queries, by_doc, first in scoring.session.rows(
        "SELECT * FROM doc_matches_only WHERE n_by_doc > 0 ORDER BY run_id"
    ):
        yield Doubt(
            "matched-by-document",
            run_id,
            f"{by_doc:,} of {counted(queries, 'query', 'queries')} (first {cut(first, 60)}) matched by document alone,"
            " because the position of the expected chunks or of the hits is unknown: any hit in the right document"
            " counts as an expected chunk",
        )
