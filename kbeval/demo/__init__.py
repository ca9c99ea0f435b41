"""A small workspace to try kbeval on: documents, two chunkers, a baseline and three runs of a small search engine.

It needs no network and no input files, and is the same every time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbeval.database.connection import Database
from kbeval.demo.content import DOCUMENTS, QUESTIONS, Question
from kbeval.demo.retriever import (
    Chunk,
    Document,
    Ranking,
    best_line,
    by_bm25,
    by_shared_words,
    chunk_by_heading,
    chunk_by_lines,
)
from kbeval.errors import DatabaseError, UsageError
from kbeval.golden import load_golden
from kbeval.live.passages import RETRIEVER
from kbeval.live.run import make_runs
from kbeval.live.run_options import RunOptions
from kbeval.live.snapshot import config_hash
from kbeval.live.targets import BM25, TargetConfig
from kbeval.storage.new_database import make_tables
from kbeval.util.files import check_target, write_whole

MARKER = ".kbeval-demo"
DATABASE, GOLDEN, CONFIG = "kb.db", "golden.yaml", "kbeval.toml"
TOP_K = 10
BASELINE = "2026-03-01-baseline"


@dataclass(frozen=True)
class DemoRun:
    """How one of the demo's runs is produced."""

    run_id: str
    created_at: str
    commit: str
    retriever: str
    ranking: Ranking
    chunker: str
    refuse_below: float
    failing: frozenset[str] = frozenset()


def make_demo(folder: Path) -> Path:
    """Write the demo workspace and return its database. Refuses a folder that it did not create."""
    _claim(folder)
    try:
        return _write(folder)
    except (OSError, DatabaseError) as error:
        msg = f"{folder} cannot be written: {getattr(error, 'strerror', None) or error}; is the disk full?"
        raise UsageError(msg) from error


def _write(folder: Path) -> Path:
    documents = [Document(f"d{number}", path, text) for number, (path, text) in enumerate(DOCUMENTS.items(), start=1)]
    small = [chunk for document in documents for chunk in chunk_by_lines(document)]
    large = [chunk for document in documents for chunk in chunk_by_heading(document)]
    database = folder / DATABASE
    with Database(database) as connection:
        connection.open("rwc")
        with connection.transaction():
            make_tables(connection)
            _insert(connection, "documents", [(d.doc_id, d.path, _title(d), "en") for d in documents])
            _insert(connection, "chunks", [_chunk_row(chunk) for chunk in (*small, *large)])
            for run in _runs(small, large):
                config = json.dumps(_config(run), ensure_ascii=False)
                _insert(connection, "eval_runs", [(run.run_id, "nightly", config, "", run.commit, run.created_at)])
                rows = [(run.run_id, q.id, json.dumps(_result(run, q), ensure_ascii=False)) for q in QUESTIONS]
                _insert(connection, "eval_query_results", rows)
    write_whole(folder / GOLDEN, _golden(small))
    _add_baseline(database, folder / GOLDEN)
    write_whole(folder / CONFIG, f'db = "{DATABASE}"\ngolden = "{GOLDEN}"\n')
    return database


def _add_baseline(database: Path, golden: Path) -> None:
    """Make a run as `kbeval run --target bm25` does, then replace its times, so that the demo is always the same."""
    target = TargetConfig(
        BM25, {"type": BM25, "chunker_version": "lines@1", "config": {"retriever": RETRIEVER}}, "the demo"
    )
    make_runs(database, load_golden(golden), target, RunOptions(k=TOP_K, run_id=BASELINE, suite="baseline"))
    with Database(database) as connection:
        connection.open("rw")
        with connection.transaction():
            ((stored,),) = connection.execute(
                "SELECT config_snapshot_json FROM eval_runs WHERE run_id = ?", (BASELINE,)
            )
            config = json.loads(stored)
            # Without the commit that the labels would have in a git repository of the user.
            dataset = {name: config["versions"]["dataset"][name] for name in ("hash", "file")}
            config["versions"]["dataset"] = dataset
            config["config_hash"] = config_hash(config)
            connection.execute(
                "UPDATE eval_runs SET config_snapshot_json = ?, commit_hash = ?, created_at = ? WHERE run_id = ?",
                (json.dumps(config, ensure_ascii=False), "4be1f02", "2026-03-01T02:10:00Z", BASELINE),
            )
            rows = connection.execute(
                "SELECT query_id, result_json FROM eval_query_results WHERE run_id = ?", (BASELINE,)
            ).rows
            connection.executemany(
                "UPDATE eval_query_results SET result_json = ? WHERE run_id = ? AND query_id = ?",
                [(_timed(json.loads(text)), BASELINE, query_id) for query_id, text in rows],
            )
            connection.execute("UPDATE kbeval_attempts SET started_at = '2026-03-01T02:10:00Z', elapsed_ms = 5")


def _timed(row: dict[str, Any]) -> str:
    elapsed = 1 + len(row["hits_top_k"])
    return json.dumps({**row, "elapsed_ms": elapsed, "total_ms": elapsed}, ensure_ascii=False)


def _claim(folder: Path) -> None:
    """Claim the folder, or raise an error that says why that is impossible."""
    check_target(folder)
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            msg = f"{folder} is not a folder; choose another one: kbeval demo DIR"
            raise UsageError(msg)
        ours = (folder / MARKER).is_file() and not (folder / MARKER).is_symlink()
        if folder.is_dir() and any(folder.iterdir()) and not ours:
            msg = f"{folder} exists and was not created by the demo; choose another folder: kbeval demo DIR"
            raise UsageError(msg)
        folder.mkdir(parents=True, exist_ok=True)
        for name in (MARKER, DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal", GOLDEN, CONFIG):
            (folder / name).unlink(missing_ok=True)
        # Created exclusively, so a link in the folder is never followed.
        with (folder / MARKER).open("x", encoding="utf-8") as marker:
            marker.write("Created by 'kbeval demo', which may overwrite this folder.\n")
    except OSError as error:
        msg = f"{folder} cannot be created: {error.strerror}; choose another folder: kbeval demo DIR"
        raise UsageError(msg) from error


def _insert(connection: Database, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def _title(document: Document) -> str:
    return document.text.splitlines()[0].lstrip("# ")


def _chunk_row(chunk: Chunk) -> tuple[Any, ...]:
    headings, spans = json.dumps(chunk.headings), json.dumps([chunk.span])
    tokens = len(chunk.text) // 4
    section = chunk.headings[-1] if chunk.headings else None
    made = "2026-03-01T02:00:00Z" if chunk.version == "lines@1" else "2026-03-04T02:00:00Z"
    return chunk.chunk_id, chunk.doc_id, chunk.text, headings, section, spans, tokens, chunk.version, "p1", "[]", made


def _runs(small: Sequence[Chunk], large: Sequence[Chunk]) -> list[DemoRun]:
    return [
        DemoRun(
            run_id="2026-03-02-words",
            created_at="2026-03-02T02:10:00Z",
            commit="4be1f02",
            retriever="shared-words@1",
            ranking=by_shared_words(small),
            chunker="lines@1",
            refuse_below=1.5,
            failing=frozenset({"g017"}),
        ),
        DemoRun(
            run_id="2026-03-03-bm25",
            created_at="2026-03-03T02:10:00Z",
            commit="9c07aa5",
            retriever="bm25@1",
            ranking=by_bm25(small),
            chunker="lines@1",
            refuse_below=3.0,
        ),
        DemoRun(
            run_id="2026-03-04-rechunked",
            created_at="2026-03-04T02:10:00Z",
            commit="d81e66c",
            retriever="bm25@1",
            ranking=by_bm25(large),
            chunker="headings@2",
            refuse_below=3.0,
        ),
    ]


def _config(run: DemoRun) -> dict[str, Any]:
    return {
        "chunker_version": run.chunker,
        "embedding": {"model": None, "version": None, "dimensions": None, "provider": None},
        "retriever": run.retriever,
        "llm": {"model_id": "extractive@1", "provider": "demo"},
        "prompt_template_version": "1",
        "eval_k": TOP_K,
    }


def _result(run: DemoRun, question: Question) -> dict[str, Any]:
    row: dict[str, Any] = {"query_id": question.id, "query": question.text, "mode": "lexical"}
    if question.id in run.failing:
        return {**row, "elapsed_ms": 30000, "error": "timeout after 30 s", "hits_top_k": [], "answer": None}
    found = run.ranking(question.text)[:TOP_K]
    hits = [
        {
            "rank": rank,
            "chunk_id": chunk.chunk_id,
            "doc_id": chunk.doc_id,
            "doc_path": chunk.path,
            "heading_path": list(chunk.headings),
            "snippet": chunk.text[:200],
            "chunker_version": chunk.version,
            "score": score,
            "citation": chunk.citation,
            "source_spans": [chunk.span],
        }
        for rank, (chunk, score) in enumerate(found, start=1)
    ]
    elapsed = 4 + 3 * len(found) + len(question.text) % 7
    return {**row, "elapsed_ms": elapsed, "error": None, "hits_top_k": hits, "answer": _answer(run, question, found)}


def _answer(run: DemoRun, question: Question, found: Sequence[tuple[Chunk, float]]) -> dict[str, Any]:
    if not found or found[0][1] < run.refuse_below:
        return {"answer": "", "grounded": False, "refusal_reason": "no evidence", "citations": []}
    best = found[0][0]
    citations = [{"marker": "[#1]", "citation": best.citation}]
    text = f"{best_line(best, question.text)} [#1]"
    return {"answer": text, "grounded": True, "refusal_reason": None, "citations": citations}


def _golden(chunks: Sequence[Chunk]) -> str:
    """The golden file as a person would write it."""
    documents = {path: f"d{number}" for number, path in enumerate(DOCUMENTS, start=1)}
    lines = [
        "# Golden queries of the demo: questions and the locations of their answers.",
        "# Chunk ids are those of the chunker lines@1. Empty expected_doc_ids: the correct answer is a refusal.",
        "# In your own file, prefer expected_spans: they locate the answer in its document, whatever the chunker is,",
        "# e.g. {doc_id: d1, kind: line, start: 4, end: 4}. Lines are counted from 1, and the end is inclusive; kind",
        "# char counts Unicode code points and kind byte counts UTF-8 bytes, both from 0 and with an exclusive end.",
        "",
    ]
    for question in QUESTIONS:
        lines.append(f"- id: {question.id}")
        lines.append(f"  query: {json.dumps(question.text)}")
        if question.document is None or question.line is None:
            lines.append("  expected_doc_ids: []")
        else:
            (chunk,) = [c for c in chunks if c.path == question.document and question.line in c.text]
            lines.append(f"  expected_doc_ids: [{documents[question.document]}]")
            lines.append(f"  expected_chunk_ids: [{chunk.chunk_id}]")
        if question.must_contain:
            lines.append(f"  must_contain: {json.dumps(list(question.must_contain))}")
        lines.append(f"  category: {question.category}")
        lines.append(f"  difficulty: {question.difficulty}")
        lines.append("  lang: en")
        if question.tags:
            lines.append(f"  tags: [{', '.join(question.tags)}]")
        if question.group:
            lines.append(f"  group: {question.group}")
        lines.append("")
    return "\n".join(lines)
