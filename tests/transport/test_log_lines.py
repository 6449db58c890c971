"""A crowd of strangers makes a node log a line a second of each kind, whatever they send."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.identifiers import PartitionId
from octopi.limits import HANDSHAKE_TIMEOUT_S
from octopi.security.tls import Tls
from octopi.transport.http_front import EmptySite
from octopi.transport.http_requests import HttpAnswer, HttpRequest
from octopi.wire import messages as m
from octopi.wire.codec import encode
from tests.kit.streams import MemoryStreams
from tests.transport.serving import Server, serving
from tests.transport.test_before_the_hello import frame_of
from tests.transport.test_hostile_peers import UPGRADE

CROWD = 50

HELLO = encode(m.Hello(1, "a program"))
ILL = encode(m.Hello(1, "a program", "no token")) + b"\x00"


def made_up_tls() -> Tls:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(server)
    return Tls(ssl.create_default_context(), server)


class _FailingSite(EmptySite):
    async def answer(self, request: HttpRequest) -> HttpAnswer:
        raise OSError(f"File name too long: {request.path}")


def framed(data: bytes) -> bytes:
    return frame_of(len(data)) + data


async def _said(server: Server, *pieces: bytes) -> None:
    """Connect, say *pieces*, and wait until the node has closed."""
    async with await server.streams.connect("127.0.0.1", server.port) as stream:
        try:
            for piece in pieces:
                await stream.send_all(piece)
                if piece is UPGRADE:
                    assert (await stream.receive_some()).startswith(b"HTTP/1.1 101")
                    await wait_all_tasks_blocked()
            while await stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass


async def bad_hellos(server: Server) -> None:
    await _said(server, UPGRADE, framed(ILL))


async def no_tls(server: Server) -> None:
    await _said(server, framed(ILL))


async def bad_frames(server: Server) -> None:
    await _said(server, UPGRADE, framed(HELLO), frame_of(2, opcode=3) + b"no")


async def bad_messages(server: Server) -> None:
    await _said(server, UPGRADE, framed(HELLO), framed(b"\xa0"))


async def faults_of_ours(server: Server) -> None:
    question = encode(m.Produce(0, "fault", PartitionId(0), b""))
    await _said(server, UPGRADE, framed(HELLO), framed(question))


async def crashes_of_ours(server: Server) -> None:
    question = encode(m.Produce(0, "crash", PartitionId(0), b""))
    await _said(server, UPGRADE, framed(HELLO), framed(question))


async def failing_pages(server: Server) -> None:
    await _said(server, b"GET /console/aaa HTTP/1.1\r\nHost: test\r\n\r\n")


async def slow_heads(server: Server) -> None:
    await _said(server, b"GET /console/aaa HTTP/1.1\r\n")


async def one_too_many(server: Server) -> None:
    await _said(server, b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")


CROWDS: dict[str, Callable[[Server], Awaitable[None]]] = {
    "handshake_failed": bad_hellos,
    "peer_refused": bad_frames,
    "peer_refused ": bad_messages,
    "message_handler_failed": faults_of_ours,
    "session_failed": crashes_of_ours,
    "request_failed": failing_pages,
    "request_too_slow": slow_heads,
    "tls_failed": no_tls,
    "too_many_connections": one_too_many,
}


@pytest.mark.parametrize("kind", CROWDS)
async def test_a_crowd_of_strangers_is_logged_once_a_second_of_each_kind(
    kind: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kind, stranger = kind.strip(), CROWDS[kind]
    streams = MemoryStreams()
    tls = made_up_tls() if kind == "tls_failed" else None
    room = 0 if kind == "too_many_connections" else 10_000
    async with serving(
        streams=streams, site=_FailingSite(), tls=tls, connections_max=room
    ) as server:
        for _ in range(2):
            began = trio.current_time()
            async with trio.open_nursery() as crowd:
                for _ in range(CROWD):
                    crowd.start_soon(stranger, server)
            assert trio.current_time() - began <= HANDSHAKE_TIMEOUT_S + 5
            await trio.sleep(10)
    told = Counter(one.getMessage() for one in caplog.records)
    assert told[kind] == 2
    assert all(count <= 2 for count in told.values()), told
    [first, second] = [one for one in caplog.records if one.getMessage() == kind]
    assert not hasattr(first, "left_out")
    assert vars(second)["left_out"] == CROWD - 1


async def test_a_line_about_a_connection_has_its_name(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    named = encode(m.Hello(1, "a program", name="billing"))
    async with serving(streams=MemoryStreams()) as server:
        await _said(server, UPGRADE, framed(named), framed(b"\xa0"))
    [line] = [one for one in caplog.records if one.getMessage() == "peer_refused"]
    assert vars(line)["peer"].endswith(" (billing)")
