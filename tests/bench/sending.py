"""How close `kbeval run` comes to what a server allows: 1,000 queries, 50 ms each, room for 32 at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.live_server import LiveServer

QUERIES, DELAY, ROOM = 1_000, 0.05, 32


def throughput(folder: Path) -> tuple[float, float]:
    """Seconds that a run takes for its queries, and those of an ideal client that always has 32 in flight."""
    folder.mkdir(exist_ok=True)
    (folder / "golden.json").write_text(json.dumps([{"id": f"q{n}", "query": f"Q {n}"} for n in range(QUERIES)]))
    with LiveServer(delay=DELAY, room=ROOM) as server:
        (folder / "kbeval.toml").write_text(
            f'db = "kb.db"\ngolden = "golden.json"\n[target]\ntype = "http"\nurl = "{server.url}/search"\n'
            'body = { question = "{{ query }}", k = 1 }\nresponse = { hits = "results[*].id" }\n'
        )
        command = [sys.executable, "-m", "kbeval", "run", "--run-id", "r", "--concurrency", str(ROOM)]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        assert server.counts()["answered"] == QUERIES
    said = next(line for line in done.stderr.splitlines() if line.startswith("stored run"))
    return float(said.rsplit(", ", 1)[1].removesuffix(" s")), QUERIES / ROOM * DELAY
