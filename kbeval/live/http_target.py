"""A JSON API as a target: requests from templates, answers found by expressions. `anchors` is a preset of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

from kbeval.errors import UsageError
from kbeval.live.asking import Asking, Query, Row
from kbeval.live.exchange import Request, Response, json_request
from kbeval.live.expressions import Expressions
from kbeval.live.rows import row_of
from kbeval.live.sending import OnAttempt, Outcome, Policy, Sender
from kbeval.live.templates import render, render_text, render_url
from kbeval.util.hiding import Hider

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class HttpTarget:
    """Asks a JSON API."""

    def __init__(self, table: Mapping[str, Any], where: str, policy: Policy, asking: Asking) -> None:
        self._expressions = Expressions(table["response"], f"{where}.response")
        environment = asking.environment
        self._body = environment.expand_in(table.get("body"), f"{where}.body")
        self._method = str(table.get("method", "GET" if self._body is None else "POST")).upper()
        if self._method not in _METHODS:
            msg = f"{where}.method must be one of {', '.join(_METHODS)}"
            raise UsageError(msg)
        self._url = environment.expand(str(table["url"]), f"{where}.url")
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            msg = f"{where}.url must begin with http:// or https://, e.g. http://localhost:9000/search"
            raise UsageError(msg)
        headers = table.get("headers", {})
        if not all(isinstance(value, str) for value in headers.values()):
            msg = f"{where}.headers must contain strings only"
            raise UsageError(msg)
        self._headers: dict[str, str] = environment.expand_in(headers, f"{where}.headers")
        self._health = table.get("health")
        if not isinstance(self._health, str | bool | None) or self._health is True:
            msg = f"{where}.health must be an address, or false for no check"
            raise UsageError(msg)
        self._secrets = environment.secrets
        self._sender = Sender(asking.crew, policy, self._secrets, on_retry=asking.on_retry)

    async def __aenter__(self) -> Self:
        await self._sender.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sender.__aexit__(kind, error, trace)

    def _request(self, query: Query) -> Request:
        values = query.values
        headers = {name: render_text(value, values) for name, value in self._headers.items()}
        return json_request(self._method, render_url(self._url, values), headers, render(self._body, values))

    def request_text(self, query: Query) -> str:
        request = self._request(query)
        headers: dict[str, str] = Hider().hide(dict(request.headers))
        lines = [f"{request.method} {request.url}", *(f"{name}: {value}" for name, value in headers.items())]
        if request.content is not None:
            body: Any = json.loads(request.content)
            lines += ["", json.dumps(self._secrets.hide_in(body), indent=2, ensure_ascii=False)]
        return self._secrets.hide("\n".join(lines))

    async def ask(self, query: Query, on_attempt: OnAttempt[Row]) -> Outcome[Row]:
        def read(response: Response) -> Row:
            return row_of(query, self._expressions.read(response.json()))

        return await self._sender.send(self._request(query), read=read, on_attempt=on_attempt)

    async def check_health(self) -> str | None:
        """A health address, if configured, must answer without an error; otherwise connecting must succeed."""
        if self._health is False:
            return None
        if isinstance(self._health, str):
            url = urljoin(self._url, self._health)
            return await self._sender.probe(Request("GET", url, self._headers))
        return await self._sender.reach(self._url)


def anchors_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the anchors API as one of a JSON API."""
    base = str(table["url"]).rstrip("/")
    if PurePosixPath(urlsplit(base).path).name == "ask":
        msg = "the url of an anchors target must be that of the server, without /api/v1/ask"
        raise UsageError(msg)
    kept = {name: value for name, value in table.items() if name not in ("url", "folder_mode")}
    return {
        **kept,
        "url": f"{base}/api/v1/ask?debug=true",
        "method": "POST",
        "body": {
            "question": "{{ query }}",
            "k": "{{ k }}",
            "vaults": "{{ vaults? }}",
            "folders": "{{ folders? }}",
            **({"folder_mode": table["folder_mode"]} if "folder_mode" in table else {}),
        },
        "health": table.get("health", f"{base}/api/health"),
        # Its responses omit fields that are false, 0 or empty.
        "response": {
            "hits": "debug.retrieved_chunks || `[]`",
            "answer": "answer || ''",
            "references": "references || `[]`",
            "abstained": "abstained || `false`",
            "abstain_reason": "abstain_reason",
            "folder_selection": "debug.folder_selection",
            "latency": "debug.latency",
            "indexing_coverage": "debug.indexing_coverage",
        },
    }
