"""How long a report of two runs takes, how large it is, and how long until it is open in a browser."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from kbeval.engine.relations import read_sql

HITS, CHARACTERS = 10, 500


def rows(folder: Path) -> list[list[str]]:
    """For a thousand and for ten thousand queries."""
    found = []
    for queries in (1_000, 10_000):
        one = measured(folder / str(queries), queries)
        found.append(
            [f"{queries:,} queries", f"{one.seconds:.2f}", f"{one.megabytes:,}", f"{one.size:,}", f"{one.opened:.2f}"]
        )
    return found


def make_texts(folder: Path, queries: int) -> Path:
    """Two runs over chunks of 500 characters, twice as many chunks as queries; words as frequent as in a language."""
    folder.mkdir(parents=True, exist_ok=True)
    source = random.Random(7)
    words = ["".join(source.choices("etaoinshrdlucmfwyp", k=source.randint(2, 10))) for _ in range(4_000)]
    frequency = [1 / (place + 3) for place in range(len(words))]
    chunks = []
    for number in range(queries * 2):
        text = " ".join(source.choices(words, frequency, k=110))[:CHARACTERS]
        spans = [{"kind": "char", "start": number * CHARACTERS, "end": (number + 1) * CHARACTERS}]
        chunks.append({"chunk_id": f"c{number:05}", "doc_id": f"d{number % 97}", "text": text, "source_spans": spans})
    golden = [
        {
            "id": f"q{number:05}",
            "query": " ".join(source.choices(words, frequency, k=9)),
            "expected_chunk_ids": [chunks[number]["chunk_id"]],
            "expected_doc_ids": [chunks[number]["doc_id"]],
            "category": f"area {number % 7}",
        }
        for number in range(queries)
    ]
    (folder / "golden.json").write_text(json.dumps(golden))
    with closing(sqlite3.connect(folder / "kb.db")) as connection, connection:
        connection.executescript(read_sql("schema/workspace.sql"))
        for run in ("a", "b"):
            config = json.dumps({"chunker_version": "x@1", "retriever": run})
            connection.execute(
                "INSERT INTO eval_runs VALUES (?, 's', ?, '', NULL, ?)", (run, config, f"2026-01-0{ord(run) - 96}")
            )
            rows = []
            for number, entry in enumerate(golden):
                found = [chunks[place] for place in source.sample(range(len(chunks)), HITS)]
                if source.random() < 0.7:
                    found[min(HITS - 1, int(source.expovariate(0.6)))] = chunks[number]
                hits = [{**hit, "rank": rank, "score": round(9 / rank, 4)} for rank, hit in enumerate(found, start=1)]
                answer = {
                    "answer": f"{found[0]['text'][:120]}. [#1]",
                    "grounded": True,
                    "citations": [{"chunk_id": found[0]["chunk_id"]}],
                }
                row = {"hits_top_k": hits, "answer": answer, "elapsed_ms": source.randint(5, 90)}
                rows.append((run, entry["id"], json.dumps(row)))
            connection.executemany("INSERT INTO eval_query_results VALUES (?, ?, ?)", rows)
    return folder


class Measured(NamedTuple):
    """Of a report: seconds to write it, the most memory, its bytes, and seconds until the list is there in Chromium."""

    seconds: float
    megabytes: int
    size: int
    opened: float


def measured(folder: Path, queries: int) -> Measured:
    """Write a report of two runs and open it."""
    from playwright.sync_api import sync_playwright

    from tests.support.browser import chromium

    make_texts(folder, queries)
    command = [
        sys.executable,
        "-m",
        "kbeval",
        "report",
        "a",
        "b",
        "--db",
        "kb.db",
        "--golden",
        "golden.json",
        "-o",
        "r.html",
    ]
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "KBEVAL_CACHE": "off"},
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    seconds = time.perf_counter() - started
    page_file = folder / "r.html"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto("about:blank")
        started = time.perf_counter()
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        opened = time.perf_counter() - started
        browser.close()
    return Measured(seconds, used.ru_maxrss // 1024, page_file.stat().st_size, opened)
