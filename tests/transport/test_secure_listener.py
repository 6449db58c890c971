"""A listener with TLS, and who doesn't get through that, or not in time."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.limits import CLOSE_TIMEOUT_S, HANDSHAKE_TIMEOUT_S
from octopi.security.tls import Tls
from tests.kit.logs import capture_logs
from tests.kit.streams import MemoryStreams, Stream, read_to_end
from tests.transport.serving import Server, serving
from tests.transport.test_hostile_peers import UPGRADE


@pytest.fixture(scope="module")
def tls() -> Tls:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return Tls(client, server)


@asynccontextmanager
async def connected(tls: Tls) -> AsyncIterator[tuple[Server, Stream]]:
    """A listener in memory, and a bare stream to it; nothing of it may be left."""
    async with serving(streams=MemoryStreams(), tls=tls) as server:
        stream = await server.streams.connect("127.0.0.1", server.port)
        async with stream:
            yield server, stream
        await wait_all_tasks_blocked()
        assert server.websockets.connection_count == 0
        assert server.sessions == []


async def secured(tls: Tls, stream: Stream) -> trio.SSLStream[Stream]:
    secure = trio.SSLStream(stream, tls.client, server_hostname="127.0.0.1", https_compatible=True)
    await secure.do_handshake()
    return secure


async def test_clients_are_served_over_tls(tls: Tls, autojump_clock: MockClock) -> None:
    async with serving(streams=MemoryStreams(), tls=tls) as server:
        assert server.url.startswith("wss://")
        await server.still_serves()


async def test_a_connection_over_tls_ends_as_soon_as_both_sides_have_said_so(
    tls: Tls, autojump_clock: MockClock
) -> None:
    async with serving(streams=MemoryStreams(), tls=tls) as server:
        async with server.client():
            (session,) = server.sessions
            began = trio.current_time()
        assert trio.current_time() == began
        await session.ended.wait()
        await wait_all_tasks_blocked()
        assert server.websockets.connection_count == 0
        assert trio.current_time() == began


async def test_a_silent_peer_is_given_up_before_the_tls_handshake(
    tls: Tls, autojump_clock: MockClock
) -> None:
    async with connected(tls) as (_, stream):
        assert await read_to_end(stream) == b""
        assert trio.current_time() == HANDSHAKE_TIMEOUT_S


async def test_a_tls_handshake_byte_by_byte_is_given_up(
    tls: Tls, autojump_clock: MockClock
) -> None:
    hello = ssl.MemoryBIO()
    client = tls.client.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    async with connected(tls) as (server, stream):
        with suppress(trio.BrokenResourceError):  # the server has closed the connection
            for byte in hello.read()[:20]:
                await stream.send_all(bytes((byte,)))
                await trio.sleep(HANDSHAKE_TIMEOUT_S / 16)
        await wait_all_tasks_blocked()
        assert not server.websockets.connection_count
        assert trio.current_time() <= HANDSHAKE_TIMEOUT_S * 17 / 16


@pytest.mark.parametrize(
    "data", [UPGRADE, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", bytes(1000), b"\x16\x03\x01\xff\xff"]
)
async def test_bytes_that_are_not_tls_end_the_connection_and_are_logged_once(
    data: bytes, tls: Tls, autojump_clock: MockClock
) -> None:
    async with connected(tls) as (_, stream):
        with capture_logs() as logs:
            await stream.send_all(data)
            await stream.send_eof()
            answer = await read_to_end(stream)
            await wait_all_tasks_blocked()
            assert b"HTTP" not in answer
            assert [(one["event"], one["log_level"]) for one in logs] == [("tls_failed", "info")]
        assert trio.current_time() <= HANDSHAKE_TIMEOUT_S


async def test_a_request_that_stalls_after_the_tls_handshake_is_given_up(
    tls: Tls, autojump_clock: MockClock
) -> None:
    async with connected(tls) as (_, stream):
        secure = await secured(tls, stream)
        await secure.send_all(UPGRADE[:-3])
        assert await read_to_end(secure) == b""
        assert trio.current_time() <= HANDSHAKE_TIMEOUT_S + CLOSE_TIMEOUT_S


async def test_old_versions_of_tls_are_refused(tls: Tls, autojump_clock: MockClock) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with connected(tls) as (_, stream):
        with pytest.raises(trio.BrokenResourceError):
            await secured(Tls(old), stream)
