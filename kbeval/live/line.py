"""A connection to a server, which sends one request at a time."""

from __future__ import annotations

import base64
import contextlib
import functools
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from kbeval.live.exchange import Request, Response

if TYPE_CHECKING:
    import ssl

    import httpcore2
    import httpx2

# An idle connection is closed after this time, before the server is likely to close it.
_KEPT_SECONDS = 5.0
_SCHEMES = ("http", "https")


class TooLargeError(Exception):
    """The response is larger than allowed."""

    def __init__(self, response: Response, most: int) -> None:
        super().__init__(f"the response is larger than {most / 1_000_000:g} MB")
        self.response = response


@functools.lru_cache(maxsize=64)
def parsed_url(text: str) -> httpx2.URL:
    """The parsed address; cached, because most targets have only one."""
    import httpx2

    return httpx2.URL(text)


async def load_backend() -> None:
    """Load what httpx2 otherwise loads during the first request."""
    with contextlib.suppress(ImportError):
        import anyio.lowlevel
        import h11  # noqa: F401
        import httpcore2  # noqa: F401

        import kbeval.live.plain_stream  # noqa: F401

        await anyio.lowlevel.checkpoint()


class Line:
    """One connection that is kept open.

    A client of httpx2 and its pool do work on every request that only many connections to many servers need. This uses
    the connection below the pool directly. A client is used only if there is a proxy, because it can find it.
    """

    def __init__(
        self, trusted: Callable[[], ssl.SSLContext], timeout: float, connect_timeout: float, most_bytes: int
    ) -> None:
        """`trusted` returns the certificates; it is called only if they are needed."""
        import httpx2

        from kbeval import __version__

        self._client: httpx2.AsyncClient | None = None
        if urllib.request.getproxies():
            limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1)
            self._client = httpx2.AsyncClient(verify=trusted(), limits=limits, follow_redirects=False)
        self._trusted = trusted
        self._connection: httpcore2.AsyncHTTPConnection | None = None
        self._timeout = httpx2.Timeout(timeout, connect=connect_timeout).as_dict()
        self._most_bytes = most_bytes
        self._headers = {"Accept-Encoding": "gzip, deflate", "User-Agent": f"kbeval/{__version__}"}

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def exchange(self, request: Request, url: httpx2.URL) -> Response:
        """Send a request and read the whole response."""
        headers = self._all_headers(request, url)
        if self._client is not None:
            return await self._by_client(self._client, request, url, headers)
        with _as_errors_of_httpx2():
            return await self._directly(request, url, headers)

    def _all_headers(self, request: Request, url: httpx2.URL) -> dict[str, str]:
        given = {name.lower() for name in request.headers}
        own = {name: value for name, value in self._headers.items() if name.lower() not in given}
        if url.userinfo and "authorization" not in given:
            login = base64.b64encode(urllib.parse.unquote_to_bytes(url.userinfo)).decode()
            own["Authorization"] = f"Basic {login}"
        return {**own, **request.headers}

    async def _by_client(
        self, client: httpx2.AsyncClient, request: Request, url: httpx2.URL, headers: dict[str, str]
    ) -> Response:
        import httpx2

        made = httpx2.Request(
            request.method, url, headers=headers, content=request.content, extensions={"timeout": self._timeout}
        )
        found = await client.send(made, stream=True)
        try:
            names = {name.lower(): value for name, value in found.headers.items()}
            return await self._read(found.status_code, names, found.aiter_bytes())
        finally:
            await found.aclose()

    async def _directly(self, request: Request, url: httpx2.URL, headers: dict[str, str]) -> Response:
        import httpcore2

        sent = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        given = {name.lower() for name, _ in sent}
        if b"host" not in given:
            sent.insert(0, (b"Host", url.netloc))
        if request.content is not None and b"content-length" not in given:
            sent.append((b"Content-Length", str(len(request.content)).encode()))
        place = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        connection = await self._usable(place, url)
        found = await connection.handle_async_request(
            httpcore2.Request(
                request.method, place, headers=sent, content=request.content, extensions={"timeout": self._timeout}
            )
        )
        try:
            names: dict[str, str] = {}
            for raw, value in found.headers:
                name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
                names[name] = f"{names[name]}, {text}" if name in names else text
            return await self._read(found.status, names, _decoded(found, names))
        finally:
            await found.aclose()

    async def _usable(self, place: httpcore2.URL, url: httpx2.URL) -> httpcore2.AsyncHTTPConnection:
        import httpcore2
        import httpx2

        connection = self._connection
        if connection is not None:
            if connection.can_handle_request(place.origin) and connection.is_idle() and not connection.has_expired():
                return connection
            self._connection = None
            await connection.aclose()
        if url.scheme not in _SCHEMES:
            msg = f"the address begins with {url.scheme}:// instead of http:// or https://"
            raise httpx2.UnsupportedProtocol(msg)
        backend: httpcore2.AsyncNetworkBackend | None = None
        if url.scheme == "http":
            from kbeval.live.plain_stream import PlainBackend

            backend = PlainBackend()
        context = self._trusted() if url.scheme == "https" else None
        self._connection = connection = httpcore2.AsyncHTTPConnection(
            place.origin, context, keepalive_expiry=_KEPT_SECONDS, network_backend=backend
        )
        return connection

    async def _read(self, status: int, headers: dict[str, str], pieces: AsyncGenerator[bytes]) -> Response:
        kept, size = [], 0
        async for piece in pieces:
            size += len(piece)
            if size > self._most_bytes:
                await pieces.aclose()
                raise TooLargeError(Response(status, headers, b""), self._most_bytes)
            kept.append(piece)
        return Response(status, headers, b"".join(kept))


def _decoded(found: httpcore2.Response, headers: dict[str, str]) -> AsyncGenerator[bytes]:
    """The pieces of a body, decompressed."""
    stream = found.aiter_stream()
    if "content-encoding" not in headers:
        return stream
    import httpx2

    class Compressed(httpx2.AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            return stream

    return httpx2.Response(found.status, headers=found.headers, stream=Compressed()).aiter_bytes()


@contextlib.contextmanager
def _as_errors_of_httpx2() -> Iterator[None]:
    import httpcore2
    import httpx2

    try:
        yield
    except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        # Both libraries use the same names.
        raise getattr(httpx2, type(error).__name__)(str(error)) from error
