"""A connection to a server, which sends one request at a time."""

from __future__ import annotations

import base64
import contextlib
import functools
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

from kbeval.live.exchange import Request, Response

if TYPE_CHECKING:
    import ssl

    import httpx2


class TooLargeError(Exception):
    """The response is larger than allowed."""

    def __init__(self, response: Response, most: int) -> None:
        super().__init__(f"the response is larger than {most / 1_000_000:g} MB")
        self.response = response


@functools.lru_cache(maxsize=64)
def parsed_url(text: str) -> httpx2.URL:
    """The address; most targets have only one."""
    import httpx2

    return httpx2.URL(text)


async def load_backend() -> None:
    """Load what httpx2 otherwise loads during the first request."""
    with contextlib.suppress(ImportError):
        import anyio.lowlevel
        import h11  # noqa: F401

        await anyio.lowlevel.checkpoint()


class Line:
    """One connection that is kept open.

    A client with a pool looks at all of its connections for every request. And a client of its own per connection is
    needed only to find the right proxy: it does as much as the transport below it.
    """

    def __init__(self, trusted: ssl.SSLContext, timeout: float, connect_timeout: float, most_bytes: int) -> None:
        import httpx2

        from kbeval import __version__

        limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
        self._client: httpx2.AsyncClient | None = None
        self._transport: httpx2.AsyncHTTPTransport | None = None
        if urllib.request.getproxies():
            self._client = httpx2.AsyncClient(verify=trusted, limits=limits, follow_redirects=False)
        else:
            self._transport = httpx2.AsyncHTTPTransport(verify=trusted, limits=limits)
        self._timeout = httpx2.Timeout(timeout, connect=connect_timeout).as_dict()
        self._most_bytes = most_bytes
        self._headers = {"Accept-Encoding": "gzip, deflate", "User-Agent": f"kbeval/{__version__}"}

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()
        if self._transport is not None:
            await self._transport.aclose()

    async def exchange(self, request: Request, url: httpx2.URL) -> Response:
        """Send a request and read the whole response."""
        found = await self._send(request, url)
        try:
            headers = {name.lower(): value for name, value in found.headers.items()}
            pieces, size = [], 0
            async for piece in found.aiter_bytes():
                size += len(piece)
                if size > self._most_bytes:
                    raise TooLargeError(Response(found.status_code, headers, b""), self._most_bytes)
                pieces.append(piece)
            return Response(found.status_code, headers, b"".join(pieces))
        finally:
            await found.aclose()

    async def _send(self, request: Request, url: httpx2.URL) -> httpx2.Response:
        import httpx2

        given = {name.lower() for name in request.headers}
        own = {name: value for name, value in self._headers.items() if name.lower() not in given}
        if url.userinfo and "authorization" not in given:
            login = base64.b64encode(urllib.parse.unquote_to_bytes(url.userinfo)).decode()
            own["Authorization"] = f"Basic {login}"
        made = httpx2.Request(
            request.method,
            url,
            headers={**own, **request.headers},
            content=request.content,
            extensions={"timeout": self._timeout},
        )
        if self._client is not None:
            return await self._client.send(made, stream=True)
        if self._transport is None:
            msg = "the connection is closed"
            raise RuntimeError(msg)
        return await self._transport.handle_async_request(made)
