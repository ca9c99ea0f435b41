"""A database with a columnar copy next to it, and what scoring it reads."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from kbeval.database.connection import Database
from kbeval.engine.session import Session
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.parts import ALWAYS
from kbeval.storage.source import open_source
from kbeval.storage.stamps import Watch
from tests.support.workspace import Workspace, answer

# What a scoring may have to read of the stored rows.
NOTHING, DIGESTS, ROWS = "nothing", "their digests", "the rows"
RIGHT, WRONG = "c1", "c9"
QUERIES = ("q1", "q2", "q3")


def row(chunk_id: str, *, text: str = "fifteen minutes") -> dict[str, Any]:
    """A row that uses every relation: a repeated hit, spans, an answer with a citation. All have the same length."""
    places = [(chunk_id, 1), ("c5", 20), ("c5", 20)]
    found = [
        {
            "rank": rank,
            "chunk_id": chunk,
            "doc_id": "d1",
            "chunker_version": "md@1",
            "source_spans": [{"kind": "line", "start": start, "end": start + 5}],
        }
        for rank, (chunk, start) in enumerate(places, start=1)
    ]
    citation = {"kind": "line", "path": "docs/d1.md", "start": 1, "end": 3}
    return {"elapsed_ms": 5, "hits_top_k": found, "answer": answer(text, citation)}


@dataclass(frozen=True)
class Facts:
    """What is known about all runs, and what was read to know it."""

    text: str
    read: str


def _read(session: Session) -> str:
    if {"parsed", "stored_results", "stored_places", "stored_anchors"} & session.built:
        return ROWS
    try:
        session.rows("DESCRIBE stored_texts")
    except duckdb.CatalogException:
        return NOTHING
    return DIGESTS


class CachedWorkspace(Workspace):
    """Three runs of three queries, all of them right, and the folder that keeps their copy."""

    def __init__(self, folder: Path, name: str = "kb.db") -> None:
        super().__init__(folder, name)
        self.add_golden(*({"id": q, "expected_chunk_ids": [RIGHT], "must_contain": ["fifteen"]} for q in QUERIES))
        self.add_document("d1", "docs/d1.md")
        self.add_chunk(RIGHT, "d1", [{"kind": "line", "start": 1, "end": 6}])
        for number in (1, 2, 3):
            self.add_run(f"run{number}", dict.fromkeys(QUERIES, row(RIGHT)), created_at=f"2026-01-0{number}")

    @property
    def folder(self) -> Path:
        return Path(f"{self.db}.kbeval-cache")

    def parts(self) -> list[Path]:
        return sorted(self.folder.glob("part-*"))

    def numbers(self, cache: str, **options: Any) -> str:
        """Everything that scoring all runs gives, as stored."""
        found = self.score(**{"cache": cache, "threads": 1, **options})
        return json.dumps({run_id: aggregate.to_json() for run_id, aggregate in found.aggregates.items()})

    def facts(self, cache: str, *more: str) -> Facts:
        """All that numbers are made of, in a quarter of the time that scoring takes."""
        with open_source(self.db, ScoreOptions(cache=cache, threads=1)) as (session, source):
            run_ids = [run.run_id for run in source.runs()]
            source.feed(session, run_ids)
            session.need(*ALWAYS, *more)
            whose = {number: key for number, *key in session.rows("SELECT result_no, run_id, query_id FROM results")}
            # Each session numbers the rows again. Joined and sorted here, they need no plan of their own.
            found = [
                sorted(
                    repr((whose.get(number), values))
                    for number, *values in session.rows(f"SELECT result_no, * EXCLUDE (result_no) FROM {name}")
                )
                for name in (*ALWAYS, *more)
            ]
            return Facts(repr((sorted(source.settled_digests(session).items()), found)), _read(session))

    def reads(self, *more: str) -> str:
        """What is read of the stored rows where there is a copy."""
        return self.facts("on", *more).read

    def settle(self) -> str:
        """Make the copy, and see that it is used; the facts."""
        self.facts("on")
        found = self.facts("on")
        assert found.read == NOTHING
        return found.text

    def right(self) -> str:
        """The facts, which the copy must not have changed."""
        kept, plain = self.facts("on"), self.facts("off")
        assert kept.text == plain.text
        return plain.text

    def change(self, chunk_id: str = WRONG, run: str = "run1", query: str = "q1") -> None:
        """Update a row in place; its length stays."""
        self.execute(*update(chunk_id, run, query))


def update(chunk_id: str = WRONG, run: str = "run1", query: str = "q1") -> tuple[str, tuple[str, str, str]]:
    """The statement that puts another chunk into a row."""
    return (
        "UPDATE eval_query_results SET result_json = ? WHERE run_id = ? AND query_id = ?",
        (json.dumps(row(chunk_id)), run, query),
    )


def remake(workspace: Workspace, run: str, rows: Mapping[str, Any]) -> None:
    """Delete a run, and make another of the same name."""
    workspace.execute("DELETE FROM eval_query_results WHERE run_id = ?", (run,))
    workspace.execute("DELETE FROM eval_runs WHERE run_id = ?", (run,))
    workspace.add_run(run, rows)


def times_put_back(path: Path, seen: os.stat_result) -> None:
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def changed_copy(workspace: Workspace, name: str = "other.db") -> Path:
    """The same database elsewhere, with a different row, as if a copy had been edited."""
    other = workspace.db.with_name(name)
    shutil.copy2(workspace.db, other)
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute(*update())
    return other


class OtherProcess:
    """A process that has the database open and does what it is told; it may be killed."""

    _CODE = """
        import json, sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        for line in sys.stdin:
            try:
                print(json.dumps(connection.execute(*json.loads(line)).fetchall()), flush=True)
            except sqlite3.Error as error:
                print(json.dumps(str(error)), flush=True)
    """

    def __init__(self, database: Path) -> None:
        command = [sys.executable, "-c", textwrap.dedent(self._CODE), str(database)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The rows, or the text of the error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([sql, parameters]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def holding_open(database: Path, *statements: str) -> Iterator[OtherProcess]:
    """Another process that has done this; in the end it is killed."""
    other = OtherProcess(database)
    try:
        for statement in statements:
            assert isinstance(other.execute(statement), list)
        yield other
    finally:
        other.kill()


# Every row changed, and so much more that it does not fit into memory: the database itself is being written.
HALF_DONE = (
    "PRAGMA cache_size = 5",
    "BEGIN",
    f"UPDATE eval_query_results SET result_json = replace(result_json, '{RIGHT}', '{WRONG}')",
    (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300) INSERT INTO chunks"
        " SELECT hex(randomblob(9)), 'd', 't', '', NULL, '', 1, '', '', '', hex(randomblob(2000)) FROM n"
    ),
)


def stamp_of(database: Path) -> str | None:
    """What a fresh look at a database says."""
    with watching(database) as watch:
        found = watch.look()
        return None if found is None else str(found)


@contextlib.contextmanager
def watching(path: Path) -> Iterator[Watch]:
    """A process that looks at a database."""
    with Database(path) as database:
        yield Watch(database)
