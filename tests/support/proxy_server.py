"""A real HTTP proxy on loopback: forwards requests, tunnels for https, may ask for a password."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from types import TracebackType
from typing import BinaryIO, Self
from urllib.parse import urlsplit


class ProxyServer:
    """Runs in threads of this process. `seen`: the first line of each request that it got."""

    def __init__(self, login: str | None = None) -> None:
        self._wanted = None if login is None else f"Basic {base64.b64encode(login.encode()).decode()}"
        self.seen: list[str] = []

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone would not end the thread that waits for connections.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, ValueError), client.makefile("rb") as reading:
            while self._one(client, reading):
                pass

    def _one(self, client: socket.socket, reading: BinaryIO) -> bool:
        """Serve one request; is another one to be expected?"""
        first, lines, headers = _head(reading)
        if not first:
            return False
        self.seen.append(first)
        body = reading.read(int(headers.get("content-length", 0)))
        if self._wanted is not None and headers.get("proxy-authorization") != self._wanted:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return True
        method, target, version = first.split(" ")
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=self._copy, args=[server, client], daemon=True)
                back.start()
                self._copy(client, server)
                back.join()
            return False
        place = urlsplit(target)
        path = place.path + (f"?{place.query}" if place.query else "")
        kept = [line for line in lines if not line.lower().startswith("proxy-")]
        with (
            socket.create_connection((place.hostname or "", place.port or 80)) as server,
            server.makefile("rb") as answering,
        ):
            server.sendall("\r\n".join([f"{method} {path} {version}", *kept, "", ""]).encode("latin-1") + body)
            status, more, said = _head(answering)
            content = answering.read(int(said["content-length"]))
        client.sendall("\r\n".join([status, *more, "", ""]).encode("latin-1") + content)
        return True

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _head(reading: BinaryIO) -> tuple[str, list[str], dict[str, str]]:
    """The first line, the other lines, and the headers."""
    lines: list[str] = []
    while line := reading.readline().decode("latin-1").rstrip("\r\n"):
        lines.append(line)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return (lines[0] if lines else "", lines[1:], headers)
