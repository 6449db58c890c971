"""Links over WebSockets: what is theirs alone.  `test_link` has what every link does."""

from __future__ import annotations

import errno
import os

import pytest
import trio
from trio.testing import MockClock

from octopi.environment import Link, Listening
from octopi.errors import InvalidOptionError, UnreachableError
from octopi.limits import CLOSE_TIMEOUT_S, STRANGERS_LINE_INTERVAL_S
from octopi.operating_system import SystemClock, SystemStreams
from octopi.transport.websocket import WebSocketNet
from tests.kit.logs import capture_logs
from tests.kit.streams import MemoryStreams, Stream

PATHS = frozenset({"/v1/client"})


class BrokenStreams:
    """A network that always answers with one error."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    async def connect(self, host: str, port: int) -> Stream:
        await trio.lowlevel.checkpoint()
        raise self._error

    async def listen(self, host: str, port: int) -> Listening:
        await trio.lowlevel.checkpoint()
        raise self._error


async def never(link: Link) -> None:
    raise AssertionError("nobody connects here")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.EADDRINUSE, "another program listens there; stop it or choose another port"),
        (errno.EACCES, "this user may not; choose a port from 1024 on"),
        (errno.EADDRNOTAVAIL, "this machine has no such address"),
        (errno.ENETDOWN, "Network is down"),
    ],
)
async def test_an_address_that_can_not_be_listened_at_is_explained(number: int, text: str) -> None:
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(
            BrokenStreams(OSError(number, os.strerror(number))), SystemClock(), nursery
        )
        with pytest.raises(UnreachableError, match=f"^can't listen at h:1: {text}$"):
            await net.listen("h:1", never, paths=PATHS, handler_nursery=nursery)
        with pytest.raises(UnreachableError, match=r"^no node answers at ws://h:1: "):
            await net.connect("ws://h:1", "/v1/client")


async def test_an_error_without_a_number_is_passed_on() -> None:
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(BrokenStreams(OSError("all attempts failed")), SystemClock(), nursery)
        with pytest.raises(UnreachableError, match="ws://h:1: all attempts failed"):
            await net.connect("ws://h:1", "/v1/client")


async def test_an_unknown_host_name_is_unreachable() -> None:
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(SystemStreams(), SystemClock(), nursery)
        with pytest.raises(UnreachableError, match=r"can't listen at no-such-host\.invalid:1: "):
            await net.listen("no-such-host.invalid:1", never, paths=PATHS, handler_nursery=nursery)


@pytest.mark.parametrize("address", ["nonsense", "host:99999"])
async def test_an_invalid_address_is_an_error_of_the_caller(address: str) -> None:
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(SystemStreams(), SystemClock(), nursery)
        with pytest.raises(InvalidOptionError):
            await net.listen(address, never, paths=PATHS, handler_nursery=nursery)
        with pytest.raises(InvalidOptionError):
            await net.connect(f"ws://{address}", "/v1/client")


async def test_a_handler_that_fails_ends_its_link_only(autojump_clock: MockClock) -> None:
    async def fail(link: Link) -> None:
        await link.receive()
        raise ZeroDivisionError

    async with trio.open_nursery() as nursery:
        net = WebSocketNet(MemoryStreams(), SystemClock(), nursery)
        url = await nursery.start(listen_in, net, nursery, fail)
        for _ in range(2):
            link = await net.connect(url, "/v1/client")
            with capture_logs() as logs:
                await link.send(b"go")
                with pytest.raises(Exception, match="broke"):
                    await link.receive()
            assert [entry["event"] for entry in logs] == ["link_handler_failed"]
            await trio.sleep(STRANGERS_LINE_INTERVAL_S)
        nursery.cancel_scope.cancel()


async def listen_in(
    net: WebSocketNet,
    nursery: trio.Nursery,
    handler: object,
    *,
    task_status: trio.TaskStatus[str],
) -> None:
    await net.listen(
        "any:0",
        handler,  # type: ignore[arg-type]
        paths=PATHS,
        handler_nursery=nursery,
        task_status=task_status,
    )


@pytest.mark.parametrize(("cancelled", "longest_s"), [(False, CLOSE_TIMEOUT_S), (True, 0.1)])
async def test_closing_waits_a_bounded_time_for_a_peer_that_hangs(
    cancelled: bool, longest_s: float, autojump_clock: MockClock
) -> None:
    async def close(link: Link) -> None:
        with trio.CancelScope() as scope:
            if cancelled:
                scope.cancel()
            await link.aclose(1001, "bye")
        nursery.cancel_scope.cancel()

    streams = MemoryStreams()
    async with trio.open_nursery() as nursery:
        net = WebSocketNet(streams, SystemClock(), nursery)
        url = await nursery.start(listen_in, net, nursery, close)
        stream = await streams.connect("any", int(url.rpartition(":")[2]))
        await stream.send_all(
            b"GET /v1/client HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: octopi.v1.cbor\r\n\r\n"
        )
        await trio.sleep_forever()
    assert 0 < trio.current_time() <= longest_s
    said = b""
    while more := await stream.receive_some():
        said += more
    assert said.endswith(b"\x88\x05" + (1001).to_bytes(2, "big") + b"bye")
