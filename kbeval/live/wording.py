"""Messages for errors of servers and of the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kbeval.util.strict_json import parse


class Answered(Protocol):
    """A response."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def text(self) -> str: ...


def described_error(error: Exception) -> str:
    """A message for a network error; libraries often give none."""
    text = " ".join(str(error).split())
    kinds = {
        "ConnectError": "no connection",
        "ReadError": "the connection broke",
        "WriteError": "the connection broke",
        "CloseError": "the connection broke",
        "RemoteProtocolError": "the connection broke",
        "ProxyError": "the proxy failed",
    }
    what = kinds.get(type(error).__name__, type(error).__name__)
    return f"{what}: {text}" if text else what


def error_text(response: Answered) -> str:
    """What a server says about an error: the usual fields of JSON, or the beginning of the body."""
    place = response.headers.get("location")
    if 300 <= response.status < 400 and place:
        return f"HTTP {response.status}: redirects to {place}, which is not followed; use the final address as url"
    said = ""
    try:
        found = parse(response.text())
    except ValueError:
        said = " ".join(response.text().split())
    else:
        said = _said(found) or " ".join(response.text().split())
    return f"HTTP {response.status}: {said}" if said else f"HTTP {response.status}"


def _said(found: object) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, dict):
        for name in ("error", "message", "detail"):
            if said := _said(found.get(name)):
                return said
    return ""
