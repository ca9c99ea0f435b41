"""Requests, responses and failures."""

from __future__ import annotations

import email.utils
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kbeval.util.strict_json import fault_of, parse
from kbeval.util.text import cut


@dataclass(frozen=True)
class Request:
    """A request as it will be sent. Headers and address may contain secrets: never store or show it as it is."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None


@dataclass(frozen=True)
class Response:
    """A response; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:  # noqa: ANN401  (any JSON value)
        """The body as JSON. Raises `InvalidResponseError`, which quotes its beginning, if it is not JSON."""
        try:
            return parse(self.body.decode("utf-8"))
        except ValueError as error:
            fault = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else fault_of(error)
            what = f"{len(self.body):,} bytes: {cut(self.text(), 80)!r}" if self.body else "empty"
            msg = f"the response {fault} ({what})"
            raise InvalidResponseError(msg) from error


class InvalidResponseError(Exception):
    """The response cannot be used; the message says why."""


@dataclass(frozen=True)
class Failure:
    """Why there is no answer."""

    kind: str
    message: str
    status: int | None = None

    def as_json(self) -> dict[str, Any]:
        """As it is stored in a row."""
        return {"kind": self.kind, "status": self.status, "message": self.message}


def json_request(method: str, url: str, headers: Mapping[str, str], body: Any) -> Request:  # noqa: ANN401  (any JSON)
    """A request with a JSON body; without one if it is None."""
    if body is None:
        return Request(method, url, {"Accept": "application/json", **headers})
    given = {name.lower() for name in headers}
    own = {"Accept": "application/json", "Content-Type": "application/json"}
    kept = {name: value for name, value in own.items() if name.lower() not in given}
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Request(method, url, {**kept, **headers}, content)


def retry_after(response: Response | None) -> float | None:
    """How many seconds the server asks to wait, from a number or a date; None if it does not say."""
    text = response.headers.get("retry-after", "").strip() if response is not None else ""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (email.utils.parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if seconds == seconds and seconds < 1e9 else None  # noqa: PLR0124  (NaN)
