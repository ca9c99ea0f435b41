"""A real HTTP server on loopback, in a process of its own, that behaves well or badly on demand.

    with LiveServer(delay=0.05) as server:
        … server.url …
        server.set(faults=[{"kind": "503", "first": 2}])
        assert server.counts()["requests"] == 3

It answers `POST /search` (a plain JSON API), `POST /api/v1/ask` and `GET /api/health` (the anchors API); `ROUTES` has a
function per path, to which others can be added. Settings, at the start or by `set`:

- `delay`: seconds until an answer; `room`: more requests at once are refused with 429; `per_second`: the same for a
  rate; `retry_after`: the header of refusals (None: no header)
- `faults`: a list of {"kind": …, and one of "first": n, "every": n, "queries": [text, …], "always": true}; the kinds
  are in `FAULTS`
- `die_after`: the process ends when it has answered this many requests; `index_down`: answers 200 and abstains;
  `unhealthy`: the health check gives 503; `unhealthy_after`: only after this many answers
- `answers`: {query text: response of the route}
- `tls`: a file with key and certificates, to be spoken to by https
- `script`: responses {"status", "headers", "body"} that are used up one by one, before everything else

`counts()`: requests, answered, refused, most_at_once. `log()`: method, path, headers and body of each request.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FAULTS = (
    *("slow", "drop", "reset", "429", "500", "502", "503", "504", "400", "bare", "half", "error200", "huge", "empty"),
    *("redirect", "redirect_away", "wrong_types", "not_utf8", "echo"),
)


def search(body: dict[str, Any]) -> dict[str, Any]:
    """A plain JSON API: hits that depend on the question alone."""
    question = str(body.get("question") or body.get("query") or "")
    seed = int(hashlib.sha256(question.encode()).hexdigest()[:6], 16)
    count = min(int(body.get("k") or 5), 10)
    results = [
        {
            "id": f"c{(seed + place) % 50:02d}",
            "doc": f"d{(seed + place) % 7}",
            "score": round(1 / (place + 1), 4),
            "text": f"Text {place} about {question} " * 20,
        }
        for place in range(count)
    ]
    return {"results": results, "answer": f"The answer to: {question}", "took_ms": 7}


def ask(body: dict[str, Any], *, index_down: bool = False) -> dict[str, Any]:
    """The anchors API. Abstains on questions that begin with 'Unanswerable', and with its index down on all."""
    question = str(body.get("question", ""))
    chunks = [
        {
            "chunk_id": f"{question[:8]}-{place}",
            "rel_path": f"Area/Note{place}.md",
            "heading_path": "# A > ## B",
            "rank": place,
            "score_vector": 0.7,
            "score_final": 0.6,
            "text": f"Chunk {place} of {question}. " * 20,
            "token_count": 120,
        }
        for place in range(1, 2 * int(body.get("k", 5)) + 1)
    ]
    coverage = {"docs_processed": 12, "chunks_embedded": 90, "chunker_version": "md@3", "index_version": "i7"}
    debug: dict[str, Any] = {
        "retrieved_chunks": [] if index_down else chunks,
        "folder_selection": {"selected_folders": ["v/Area"], "available_folders": ["v/Area", "v/Other"]},
        "latency": {"total_ms": 12, "retrieval_ms": 3, "generation_ms": 9},
        "indexing_coverage": coverage,
    }
    if index_down or question.startswith("Unanswerable"):
        return {"answer": "", "references": [], "abstained": True, "abstain_reason": "no context", "debug": debug}
    references = [{"vault": "v", "rel_path": "Area/Note1.md", "heading_path": "# A > ## B", "chunk_index": 1}]
    return {"answer": f"Answer to {question}", "references": references, "debug": debug}


Route = Callable[[dict[str, Any]], Any]
ROUTES: dict[str, Route] = {"/search": search, "/api/v1/ask": ask}


class Server:
    """The process itself."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings: dict[str, Any] = settings
        self.requests = self.answered = self.refused = self.now = self.most_at_once = 0
        self.entries: list[dict[str, Any]] = []
        self.seen: dict[str, int] = {}
        self.times: list[float] = []

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        path = target.partition("?")[0]
        if path.startswith("/control"):
            await self.control(writer, path, content)
            return True
        try:
            body = json.loads(content) if content else {}
        except ValueError:
            body = {"unreadable": content.decode("latin-1")}
        if path == "/api/health":
            after = self.settings.get("unhealthy_after")
            down = bool(self.settings.get("unhealthy")) or (after is not None and self.answered >= after)
            await self.send(writer, 503 if down else 200, json.dumps({"ok": not down}).encode())
            return True
        self.entries.append({"method": method, "path": target, "headers": headers, "body": body})
        self.requests += 1
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            return await self.answer(writer, path, body, headers)
        finally:
            self.now -= 1

    async def control(self, writer: asyncio.StreamWriter, path: str, content: bytes) -> None:
        found: Any = {}
        if path == "/control/set":
            self.settings.update(json.loads(content))
            self.seen.clear()
        elif path == "/control/log":
            found = self.entries
        else:
            names = ("requests", "answered", "refused", "most_at_once")
            found = {name: getattr(self, name) for name in names}
        await self.send(writer, 200, json.dumps(found).encode())

    async def answer(
        self, writer: asyncio.StreamWriter, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> bool:
        settings = self.settings
        if script := settings.get("script"):
            step = script.pop(0)
            await asyncio.sleep(step.get("delay", 0))
            text = step.get("body", "")
            content = text.encode() if isinstance(text, str) else json.dumps(text).encode()
            await self.send(writer, step.get("status", 200), content, step.get("headers"))
            self.answered += 1
            return True
        if self.is_too_many():
            self.refused += 1
            after = settings.get("retry_after")
            await self.send(writer, 429, b'{"error": "slow down"}', {} if after is None else {"Retry-After": after})
            return True
        await asyncio.sleep(settings.get("delay", 0))
        question = str(body.get("question") or body.get("query") or "")
        if kind := self.fault(question):
            return await self.misbehave(writer, kind, body, headers)
        if path not in ROUTES:
            await self.send(writer, 404, b'{"error": "no such path"}')
            return True
        found = settings.get("answers", {}).get(question)
        if found is None:
            found = ask(body, index_down=True) if settings.get("index_down") and path == "/api/v1/ask" else None
        if found is None:
            found = ROUTES[path](body)
        # A route may give another status.
        status = found.pop("kbeval_status", 200) if isinstance(found, dict) else 200
        await self.send(writer, status, json.dumps(found).encode())
        self.answered += status == 200
        if self.answered == settings.get("die_after"):
            os._exit(1)
        return True

    def is_too_many(self) -> bool:
        if self.now > self.settings.get("room", 1_000_000):
            return True
        most = self.settings.get("per_second")
        if most is None:
            return False
        now = time.monotonic()
        self.times = [at for at in self.times if at > now - 1]
        if len(self.times) >= most:
            return True
        self.times.append(now)
        return False

    def fault(self, question: str) -> str | None:
        for place, fault in enumerate(self.settings.get("faults", ())):
            if "queries" in fault and question not in fault["queries"]:
                continue
            key = f"{place}"
            self.seen[key] = count = self.seen.get(key, 0) + 1
            applies = fault.get("always") or count <= fault.get("first", 0)
            applies = applies or ("every" in fault and count % fault["every"] == 0)
            if applies or ("queries" in fault and not {"first", "every"} & fault.keys()):
                return str(fault["kind"])
        return None

    async def misbehave(
        self, writer: asyncio.StreamWriter, kind: str, body: dict[str, Any], headers: dict[str, str]
    ) -> bool:
        if kind in ("drop", "reset"):
            if kind == "reset":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
                await writer.drain()
            writer.transport.abort()
            return False
        if kind == "slow":
            await asyncio.sleep(self.settings.get("slow_seconds", 30))
        if kind == "429":
            after = self.settings.get("retry_after")
            self.refused += 1
            await self.send(writer, 429, b"", {} if after is None else {"Retry-After": after})
            return True
        texts: dict[str, tuple[int, bytes, dict[str, str]]] = {
            "bare": (500, b"upstream exploded", {}),
            "half": (200, b'{"results": [{"id": "c1"', {}),
            "error200": (200, b'{"error": "index not ready"}', {}),
            "empty": (200, b"", {}),
            "not_utf8": (200, b'{"answer": "\xff\xfe"}', {}),
            "redirect": (307, b"", {"Location": "/search"}),
            "redirect_away": (307, b"", {"Location": "http://other.invalid/steal"}),
            "wrong_types": (200, b'{"results": "none", "answer": 7, "abstained": "yes"}', {}),
            "slow": (200, b'{"results": [], "answer": "late"}', {}),
            "echo": (500, json.dumps({"error": f"bad token {headers.get('authorization')} for {body}"}).encode(), {}),
        }
        if kind == "huge":
            await self.send(writer, 200, b'{"answer": "' + b"x" * 50_000_000 + b'"}')
            return True
        status, content, more = texts.get(kind, (int(kind) if kind.isdigit() else 500, b'{"error": "broken"}', {}))
        await self.send(writer, status, content, more)
        return True

    @staticmethod
    async def send(
        writer: asyncio.StreamWriter, status: int, content: bytes, headers: dict[str, Any] | None = None
    ) -> None:
        lines = [f"HTTP/1.1 {status} Status", "Content-Type: application/json", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()


async def serve(settings: dict[str, Any], port: int) -> None:
    server = Server(settings)
    context = None
    if tls := settings.get("tls"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
    listening = await asyncio.start_server(server.connection, "127.0.0.1", port, limit=1 << 24, ssl=context)
    print(listening.sockets[0].getsockname()[1], flush=True)
    async with listening:
        await listening.serve_forever()


class LiveServer:
    """Starts and ends the process."""

    def __init__(self, port: int = 0, **settings: Any) -> None:
        self._settings = settings
        self._port = port

    def __enter__(self) -> Self:
        root = Path(__file__).parents[2]
        command = [sys.executable, "-m", "tests.support.live_server", json.dumps(self._settings), str(self._port)]
        self.process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http{'s' if 'tls' in self._settings else ''}://127.0.0.1:{self.port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def set(self, **settings: Any) -> None:
        self._control("set", settings)

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = self._control("counts")
        return found

    def log(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._control("log")
        return found

    def _control(self, name: str, body: Any = None) -> Any:
        content = json.dumps(body if body is not None else {}).encode()
        request = urllib.request.Request(f"{self.url}/control/{name}", data=content, method="POST")
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked)
        with urllib.request.build_opener(*handlers).open(request, timeout=10) as response:
            return json.loads(response.read())


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1]), int(sys.argv[2])))
