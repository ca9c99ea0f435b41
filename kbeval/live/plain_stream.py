"""Unencrypted connections for httpx2, directly on asyncio.

The default backend of httpx2 supports several event loops, and sets a time limit on every read and write. Here one time
limit covers the whole exchange (see `sending`), so neither is needed; they would take a third of the time of a request.
The head and the body of a request are sent together.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any

import httpcore2

# Larger requests are sent in pieces, and reading pauses while more than this is unread.
_MOST_BUFFERED = 1 << 20
# The delay between attempts if a name has several addresses.
_NEXT_ADDRESS_SECONDS = 0.25


class _Protocol(asyncio.Protocol):
    """Buffers what has arrived and has not been read yet."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.error: Exception | None = None
        self.is_ended = False
        self.received = bytearray()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.transport is not None and len(self.received) > _MOST_BUFFERED:
            self.transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        self.is_ended = True
        _wake(self._reader)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.error, self.is_ended = exc, True
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _wake(self._writer)

    async def wait_for_data(self) -> None:
        if self.transport is not None and not self.is_ended:
            self.transport.resume_reading()
        self._reader = asyncio.get_running_loop().create_future()
        await self._reader

    async def wait_until_sent(self) -> None:
        while self._is_full and not self.is_ended:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class PlainStream(httpcore2.AsyncNetworkStream):
    """One connection."""

    def __init__(self, transport: asyncio.Transport, protocol: _Protocol) -> None:
        self._transport = transport
        self._protocol = protocol
        # What is to be sent before the next read.
        self._pieces: list[bytes] = []
        self._size = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109  (httpx2's)
        """What has arrived; empty at the end."""
        await self._flush()
        protocol = self._protocol
        while not protocol.received:
            if protocol.is_ended:
                if protocol.error is not None:
                    raise httpcore2.ReadError(_said(protocol.error)) from protocol.error
                return b""
            await protocol.wait_for_data()
        found = bytes(protocol.received[:max_bytes])
        del protocol.received[:max_bytes]
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109  (httpx2's)
        """Buffer it; it is sent when the response is read, or earlier."""
        self._pieces.append(buffer)
        self._size += len(buffer)
        if self._size > _MOST_BUFFERED:
            await self._flush()

    async def _flush(self) -> None:
        if self._size:
            # A lost connection is reported by reading: the server may have answered before closing it.
            self._transport.write(b"".join(self._pieces))
            await self._protocol.wait_until_sent()
        self._pieces.clear()
        self._size = 0

    async def aclose(self) -> None:
        """Close the connection; what was not sent is dropped."""
        self._transport.abort()

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  (httpx2's)
        """Only what httpx2 asks of an idle connection: if it is readable, the server has closed it."""
        protocol = self._protocol
        return (protocol.is_ended or bool(protocol.received)) if info == "is_readable" else None


class PlainBackend(httpcore2.AsyncNetworkBackend):
    """Opens these connections."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (httpx2's)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002  (never given)
    ) -> httpcore2.AsyncNetworkStream:
        """Connect, to one of the addresses of the host."""
        try:
            async with asyncio.timeout(timeout):
                transport, protocol = await asyncio.get_running_loop().create_connection(
                    _Protocol,
                    host,
                    port,
                    local_addr=(local_address, 0) if local_address else None,
                    happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
                )
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout from error
        except OSError as error:
            raise httpcore2.ConnectError(_said(error)) from error
        return PlainStream(transport, protocol)


def _said(error: Exception) -> str:
    """The text for the error number, which is clearer than the library's."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else getattr(error, "strerror", None) or str(error)
