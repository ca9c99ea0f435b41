"""Connections that are kept open: what a server may do with them, over a real socket."""

from __future__ import annotations

import gzip
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from kbeval.live.environment import Secrets
from kbeval.live.exchange import Request, Response
from kbeval.live.limits import Limit
from kbeval.live.sending import Outcome, Policy, Sender
from kbeval.live.working import Crew, run_async

POLICY = Policy(timeout=60, attempts=2, wait_initial=0.01, wait_max=0.02, wait_jitter=0.01, most_bytes=1_000_000)
BODY = b"found " * 2_000


def answer(body: bytes, *headers: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]).encode() + body


class Peer:
    """Answers the requests of each connection with the given bytes, in order, then closes it."""

    def __init__(self, *connections: list[bytes]) -> None:
        self._connections = connections
        # Per connection: the requests as they arrived, each in the pieces of one read.
        self.seen: list[list[list[bytes]]] = []

    def serve(self, listening: socket.socket) -> None:
        for answers in self._connections:
            connection, _ = listening.accept()
            with closing(connection):
                own: list[list[bytes]] = []
                self.seen.append(own)
                for given in answers:
                    pieces = [connection.recv(1 << 20)]
                    while pieces[-1] and not _is_whole(b"".join(pieces)):
                        pieces.append(connection.recv(1 << 20))
                    own.append(pieces)
                    connection.sendall(given)


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    size = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return bool(end) and len(body) >= size


@contextmanager
def serving(*connections: list[bytes]) -> Iterator[tuple[Peer, str]]:
    peer = Peer(*connections)
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=peer.serve, args=(listening,), daemon=True)
        thread.start()
        yield peer, f"http://127.0.0.1:{listening.getsockname()[1]}/search"
        thread.join(30)


def asked(*requests: Request) -> list[Outcome[Response]]:
    """The outcomes of requests that follow one another."""
    found: list[Outcome[Response]] = []

    async def main() -> None:
        crew = Crew(Limit(1))
        async with Sender(crew, POLICY, Secrets()) as sender:

            async def job(request: Request) -> None:
                found.append(await sender.send(request, read=lambda response: response))

            await crew.run(requests, job)

    run_async(main())
    return found


def bodies(outcomes: list[Outcome[Response]]) -> list[bytes | None]:
    return [None if one.value is None else one.value.body for one in outcomes]


def test_head_and_body_arrive_together_and_the_connection_is_used_again() -> None:
    with serving([answer(BODY), answer(b"second")]) as (peer, url):
        found = asked(Request("POST", url, {"X-Own": "1"}, b'{"question": "a"}'), Request("GET", url))
    assert bodies(found) == [BODY, b"second"]
    ((first, second),) = peer.seen
    assert len(first) == 1, "sent in one piece"
    head, _, body = first[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /search HTTP/1.1"
    assert lines[1].startswith(b"Host: 127.0.0.1:")
    assert {b"X-Own: 1", b"Content-Length: 17", b"Accept-Encoding: gzip, deflate"} <= set(lines)
    assert body == b'{"question": "a"}'
    assert b"content-length" not in second[0].lower()


@pytest.mark.parametrize(
    "given",
    [
        answer(gzip.compress(BODY), "Content-Encoding: gzip"),
        answer(zlib.compress(BODY), "Content-Encoding: deflate"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:5], BODY[5:]))
        + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY,
        b"HTTP/1.1 102 Processing\r\n\r\n" + answer(BODY),
    ],
    ids=["gzip", "deflate", "chunked", "until the end", "after an interim response"],
)
def test_bodies_in_every_form(given: bytes) -> None:
    with serving([given]) as (_, url):
        (found,) = asked(Request("GET", url))
    assert bodies([found]) == [BODY]
    assert found.attempts == 1


def test_compressed_bodies_are_limited_by_what_they_become() -> None:
    with serving([answer(gzip.compress(bytes(50_000_000)), "Content-Encoding: gzip")]) as (_, url):
        (found,) = asked(Request("GET", url))
    assert found.failure is not None
    assert (found.failure.kind, found.failure.message) == ("invalid_response", "the response is larger than 1 MB")


def test_a_body_that_cannot_be_decompressed_is_reported() -> None:
    with serving([answer(b"not compressed", "Content-Encoding: gzip")]) as (_, url):
        (found,) = asked(Request("GET", url))
    assert found.failure is not None
    assert found.failure.kind == "invalid_response"
    assert "cannot be decompressed" in found.failure.message


def test_a_server_that_closes_an_idle_connection_gets_a_new_one() -> None:
    with serving([answer(b"one")], [answer(b"two")]) as (peer, url):
        found = asked(Request("GET", url), Request("GET", url))
    assert bodies(found) == [b"one", b"two"]
    assert len(peer.seen) == 2


def test_half_an_answer_is_a_broken_connection_and_asked_for_again() -> None:
    with serving([answer(BODY)[:-10]], [answer(b"whole")]) as (_, url):
        (found,) = asked(Request("GET", url))
    assert bodies([found]) == [b"whole"]
    assert found.attempts == 2


def test_something_that_does_not_speak_http_is_reported() -> None:
    with serving([b"SSH-2.0-OpenSSH_9.6\r\n"], [b"SSH-2.0-OpenSSH_9.6\r\n"]) as (_, url):
        (found,) = asked(Request("GET", url))
    assert found.failure is not None
    assert found.failure.kind == "connection"
    assert "the connection broke" in found.failure.message


def test_requests_that_cannot_be_sent_are_reported() -> None:
    refused = [Request("GET", "http://127.0.0.1:1/", {"X": "a\nb"}), Request("GET", "http://127.0.0.1:1/", {"X": "é"})]
    for request in (*refused, Request("GET", "ftp://127.0.0.1/")):
        (found,) = asked(request)
        assert found.failure is not None
        assert found.attempts <= 2
    (found,) = asked(Request("GET", "http://127.0.0.1:1/"))
    assert found.failure is not None
    assert (found.failure.kind, found.failure.message) == ("connection", "no connection: Connection refused")


def test_a_large_request_arrives_whole() -> None:
    content = bytes(range(256)) * 20_000
    with serving([answer(b"ok")]) as (peer, url):
        (found,) = asked(Request("POST", url, {}, content))
    assert bodies([found]) == [b"ok"]
    assert b"".join(peer.seen[0][0]).partition(b"\r\n\r\n")[2] == content
