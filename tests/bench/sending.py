"""How close `kbeval run` comes to what a server allows.

1,000 queries of 50 ms with 32 at once, next to the simplest possible client that always has 32 in flight: it shows what
server and machine can do at the time. And a server that allows 5 requests per second: how many it had to refuse.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.support.live_server import LiveServer

QUERIES, DELAY, ROOM = 1_000, 0.05, 32
FEW, PER_SECOND = 60, 5


@dataclass(frozen=True)
class Throughput:
    """Seconds: by the times alone, of the simplest client, and of `kbeval run` (of which the ramp is a part)."""

    ideal: float
    simplest: float
    kbeval: float
    # Until 32 requests were in flight for the first time: seconds, and requests that were sent.
    ramp_seconds: float
    ramp_requests: int


def throughput(folder: Path, times: int = 5) -> Throughput:
    """Both clients in turn, so that a slow moment of the machine affects both; medians."""
    found = []
    for number in range(times):
        own = folder / str(number)
        own.mkdir(parents=True)
        with LiveServer(delay=DELAY, room=ROOM) as server:
            simplest = subprocess.run(
                [sys.executable, "-m", "tests.bench.sending", str(server.port)],
                check=True,
                capture_output=True,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            found.append((float(simplest.stdout), *_run(own, server)))
    simple, seconds, ramp, sent = (statistics.median(one) for one in zip(*found, strict=True))
    return Throughput(QUERIES / ROOM * DELAY, simple, seconds, ramp, int(sent))


def _run(folder: Path, server: LiveServer) -> tuple[float, float, int]:
    answered = server.counts()["answered"]
    _made(folder, server, QUERIES, "--concurrency", str(ROOM))
    assert server.counts()["answered"] - answered == QUERIES
    assert server.counts()["refused"] == 0
    with closing(sqlite3.connect(folder / "kb.db")) as connection:
        rows = connection.execute("SELECT started_at, elapsed_ms FROM kbeval_attempts ORDER BY started_at").fetchall()
    starts = [datetime.fromisoformat(at).timestamp() for at, _ in rows]
    ends = [at + ms / 1000 for at, (_, ms) in zip(starts, rows, strict=True)]
    # From the first request to the last answer, as for the other client.
    seconds = max(ends) - starts[0]
    for place, at in enumerate(starts):
        if sum(end > at for end in ends[: place + 1]) >= ROOM:
            return seconds, at - starts[0], place + 1
    return seconds, seconds, QUERIES


def _made(folder: Path, server: LiveServer, queries: int, *options: str) -> float:
    """Make a run; its seconds, as it says itself."""
    (folder / "golden.json").write_text(json.dumps([{"id": f"q{n}", "query": f"Q {n}"} for n in range(queries)]))
    (folder / "kbeval.toml").write_text(
        f'db = "kb.db"\ngolden = "golden.json"\n[target]\ntype = "http"\nurl = "{server.url}/search"\n'
        'body = { question = "{{ query }}", k = 1 }\nresponse = { hits = "results[*].id" }\n'
    )
    command = [sys.executable, "-m", "kbeval", "run", "--run-id", "r", *options]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    said = next(line for line in done.stderr.splitlines() if line.startswith("stored run"))
    return float(said.rsplit(", ", 1)[1].removesuffix(" s"))


@dataclass(frozen=True)
class Limited:
    """What a server that allows 5 requests per second saw of 60 queries."""

    seconds: float
    ideal: float
    refused: int
    # After the first burst: after the first second.
    refused_later: int


def limited(folder: Path) -> Limited:
    """A run against a server with a rate limit that kbeval is not told about."""
    folder.mkdir(parents=True)
    with LiveServer(per_second=PER_SECOND) as server:
        seconds = _made(folder, server, FEW)
        refused = server.counts()["refused"]
    with closing(sqlite3.connect(folder / "kb.db")) as connection:
        rows = connection.execute("SELECT started_at, status FROM kbeval_attempts ORDER BY started_at").fetchall()
    first = datetime.fromisoformat(rows[0][0])
    later = [at for at, status in rows if status == 429 and (datetime.fromisoformat(at) - first).total_seconds() > 1]
    return Limited(seconds, FEW / PER_SECOND, refused, len(later))


async def simplest_client(port: int) -> float:
    """Send the requests over 32 connections, each as soon as its connection is free; read no more than needed."""
    left = iter(range(QUERIES))

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in left:
            body = json.dumps({"question": f"Q {number}", "k": 1}).encode()
            head = f"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            size = int(answer.split("content-length:")[1].split("\r\n")[0])
            assert "results" in json.loads(await reader.readexactly(size))
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(ROOM)))
    return time.perf_counter() - started


if __name__ == "__main__":
    print(asyncio.run(simplest_client(int(sys.argv[1]))))
