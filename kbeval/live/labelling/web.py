"""`kbeval label --web`: the page, served to this machine only.

The server listens on 127.0.0.1. Every request needs the random token, a Host header with exactly this address (against
DNS rebinding) and, if the browser states the origin of a request, this page as its origin. Data is sent as JSON and
shown as text; the page loads nothing from anywhere else.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from kbeval.errors import KbevalError
from kbeval.live.labelling.actions import Acts
from kbeval.live.labelling.session import DoubtError
from kbeval.storage.labels import StaleDecisionError

HOST = "127.0.0.1"
IDLE_SECONDS = 30 * 60.0
_LARGEST_REQUEST = 1_000_000
_FILES = {
    "/": ("label.html", "text/html; charset=utf-8"),
    "/label.css": ("label.css", "text/css; charset=utf-8"),
    "/label.js": ("label.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageServer:
    """Serves the page until it is told to stop, or there was no request for a while. Use as a context manager."""

    def __init__(self, actions: Acts, port: int = 0, idle_seconds: float = IDLE_SECONDS) -> None:
        self.token = secrets.token_urlsafe(24)
        self._actions = actions
        self._idle_seconds = idle_seconds
        self._last = time.monotonic()
        self._ended = threading.Event()
        self._server = _Server(port, self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{HOST}:{self._server.server_port}"

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return f"http://{self.address}/?token={self.token}"

    def wait(self) -> str:
        """Wait until the page is closed (`ended`), or there was no request for a while (`idle`)."""
        while not self._ended.wait(0.2):
            if time.monotonic() - self._last > self._idle_seconds:
                return "idle"
        return "ended"

    def end(self) -> None:
        """Stop waiting."""
        self._ended.set()

    # --- requests ----------------------------------------------------------------------------------------

    def is_allowed(self, host: str | None, origin: str | None, site: str | None) -> bool:
        """Does a request come from this page, as far as its headers tell?"""
        if host != self.address:
            return False
        if origin is not None and origin != f"http://{self.address}":
            return False
        return site in (None, "same-origin", "none")

    def knows(self, token: str | None) -> bool:
        """Is it the token?"""
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:  # noqa: PLR0911
        """The status and the JSON for a request to the actions."""
        self._last = time.monotonic()
        if method == "POST" and path == "/api/end":
            saved = self._actions.save(None)
            self.end()
            return HTTPStatus.OK, saved
        try:
            return HTTPStatus.OK, self._actions.call(method, path.removeprefix("/api/"), body)
        except StaleDecisionError as error:
            return HTTPStatus.CONFLICT, {"error": error.headline}
        except KbevalError as error:
            if isinstance(error, DoubtError):
                return HTTPStatus.OK, {"doubt": error.headline}
            return HTTPStatus.UNPROCESSABLE_ENTITY, {"error": error.headline}
        except LookupError:
            return HTTPStatus.NOT_FOUND, {"error": "there is no such action"}
        except (TypeError, ValueError):
            return HTTPStatus.BAD_REQUEST, {"error": "the request cannot be read"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False

    def __init__(self, port: int, page: PageServer) -> None:
        super().__init__((HOST, port), _Handler)
        self.page = page

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  (the library's signature)
        """No traceback for a browser that closed the connection."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kbeval"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        self._handle("GET")

    def do_POST(self) -> None:
        self._handle("POST")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401  (the library's signature)
        """Nothing is logged: requests contain the token and the labels."""

    def _handle(self, method: str) -> None:
        page, header = self.server.page, self.headers.get
        if not page.is_allowed(header("Host"), header("Origin"), header("Sec-Fetch-Site")):
            self._refuse("this page is served to this machine only")
            return
        parts = urlsplit(self.path)
        if method == "GET" and parts.path in _FILES:
            self._send_file(parts.path, parse_qs(parts.query).get("token", [None])[0])
            return
        if not page.knows(header("X-Kbeval-Token")):
            self._refuse("the token is missing or wrong: use the address as printed")
            return
        body = self._body() if method == "POST" else {}
        if body is None:
            self._send_json(HTTPStatus.BAD_REQUEST, {"error": "the request cannot be read"})
            return
        self._send_json(*page.answer(method, unquote(parts.path), body))

    def _refuse(self, why: str) -> None:
        # The body of the request is not read.
        self.close_connection = True
        self._send(HTTPStatus.FORBIDDEN, f"{why}\n".encode(), "text/plain; charset=utf-8")

    def _send_file(self, path: str, token: str | None) -> None:
        # The page itself needs the token; its style and script contain no data.
        if path == "/" and not self.server.page.knows(token):
            self._refuse("the token is missing or wrong: open the address as kbeval label --web printed it")
            return
        name, kind = _FILES[path]
        self._send(HTTPStatus.OK, files(__package__).joinpath("page", name).read_bytes(), kind)

    def _body(self) -> dict[str, Any] | None:
        with contextlib.suppress(ValueError, RecursionError):
            size = int(self.headers.get("Content-Length") or 0)
            is_json = (self.headers.get("Content-Type") or "").partition(";")[0].strip() == "application/json"
            if is_json and 0 <= size <= _LARGEST_REQUEST:
                found = json.loads(self.rfile.read(size) or b"{}")
                return found if isinstance(found, dict) else None
        self.close_connection = True
        return None

    def _send_json(self, status: int, value: Any) -> None:  # noqa: ANN401
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self._send(status, text, "application/json; charset=utf-8")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.send_response(status)
            for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
