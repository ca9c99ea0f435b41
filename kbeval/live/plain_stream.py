"""Connections without encryption, for httpx2: asyncio and nothing between.

What httpx2 uses by itself serves several event loops, and guards every read and write with a time limit of its own. An
exchange here has one time limit (see `sending`), so that none of this is needed: it would be a third of the time that
a request costs. Head and body of a request are sent together.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any

import httpcore2

# A larger request is sent in pieces, and reading pauses while more than this has not been fetched.
_MOST_BUFFERED = 1 << 20
# Between attempts if a name has several addresses.
_NEXT_ADDRESS_SECONDS = 0.25


class _Protocol(asyncio.Protocol):
    """What has arrived and was not read yet."""

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
        """Send it, at the latest when an answer is waited for."""
        self._pieces.append(buffer)
        self._size += len(buffer)
        if self._size > _MOST_BUFFERED:
            await self._flush()

    async def _flush(self) -> None:
        if self._size:
            # If the connection is lost, reading says so: a server may have answered before it closed it.
            self._transport.write(b"".join(self._pieces))
            await self._protocol.wait_until_sent()
        self._pieces.clear()
        self._size = 0

    async def aclose(self) -> None:
        """Close the connection; what was not sent is dropped."""
        self._transport.abort()

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  (httpx2's)
        """Only what is asked of an idle connection: can anything be read? Then the server has closed it."""
        protocol = self._protocol
        return (protocol.is_ended or bool(protocol.received)) if info == "is_readable" else None


class PlainBackend(httpcore2.AsyncNetworkBackend):
    """Makes such connections."""

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
    """The number of an error says it better than the text of the library."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else getattr(error, "strerror", None) or str(error)
