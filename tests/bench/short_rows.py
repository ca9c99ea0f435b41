"""Histories of any size whose rows are short: ranks and ids alone, written by DuckDB as JSON."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb

from tests.bench.data import DOCUMENTS, LINES_PER_CHUNK, LINES_PER_DOCUMENT, make_database

_ROWS = """
    WITH hits AS (
        SELECT
            q,
            h,
            CASE WHEN h = hash(q, $1) % 12 AND l.label IS NOT NULL THEN l.label ELSE hash(q, h, $1) % $2 END AS c
        FROM (SELECT UNNEST(range($3)) AS q) CROSS JOIN (SELECT UNNEST(range($4)) AS h)
        LEFT JOIN labels AS l USING (q)
    )
    SELECT
        printf('q%06d', q),
        printf('{"elapsed_ms": %d, "hits_top_k": [', 20 + hash(q, $1, 'ms') % 900)
            || string_agg(
                printf(
                    '{"rank": %d, "chunk_id": "chunk-%05d-%02d", "doc_id": "doc-%05d"}', h + 1, c // $5, c % $5, c // $5
                ),
                ', ' ORDER BY h
            ) || ']}'
    FROM hits
    GROUP BY q
    ORDER BY q
"""


def make_short_history(folder: Path, runs: int, queries: int, hits: int) -> tuple[Path, Path]:
    """A database with this many runs, and its golden file."""
    folder.mkdir(exist_ok=True, parents=True)
    database, golden = make_database(folder, runs=0, queries=queries, hits=hits)
    per_document = LINES_PER_DOCUMENT // LINES_PER_CHUNK["md@1"]
    labels = []
    for number, line in enumerate(golden.read_text().splitlines()):
        for chunk_id in json.loads(line).get("expected_chunk_ids", ()):
            _, doc, place = chunk_id.split("-")
            labels.append((number, int(doc) * per_document + int(place)))
    with closing(sqlite3.connect(database)) as connection, duckdb.connect() as maker:
        maker.execute(
            "CREATE TABLE labels AS SELECT UNNEST($1::BIGINT[]) AS q, UNNEST($2::BIGINT[]) AS label",
            [[q for q, _ in labels], [label for _, label in labels]],
        )
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        for run in range(runs):
            name = f"nightly-{run:04d}"
            config = json.dumps({"chunker_version": "md@1", "eval_k": hits})
            created = f"{2020 + run // 336}-{run // 28 % 12 + 1:02d}-{run % 28 + 1:02d}"
            connection.execute("INSERT INTO eval_runs VALUES (?, 'nightly', ?, '', NULL, ?)", (name, config, created))
            found = maker.execute(_ROWS, [run, DOCUMENTS * per_document, queries, hits, per_document]).fetchall()
            rows = ((name, query, row) for query, row in found)
            connection.executemany("INSERT INTO eval_query_results VALUES (?, ?, ?)", rows)
        connection.commit()
    named = folder / f"short-{runs}x{queries}x{hits}.db"
    database.rename(named)
    return named, golden
