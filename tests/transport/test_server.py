"""Serving many connections, and stopping."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.errors import ConnectionLostError, RefusedError, Status, UnreachableError
from octopi.identifiers import Epoch, Offset, PartitionId
from octopi.limits import MEMBERSHIP_HEARTBEAT_TIMEOUT_S, SHUTDOWN_GRACE_S
from octopi.transport.server import serve
from octopi.wire import messages as m
from octopi.wire.codec import encode
from octopi.wire.endpoints import CLIENT, MEMBERSHIP
from tests.kit.links import MemoryNet
from tests.kit.logs import capture_logs
from tests.transport.serving import environment_of, serving


def produce(request: int, topic: str = "t") -> m.Produce:
    return m.Produce(request, topic, PartitionId(0), b"")


async def test_each_connection_has_its_session(autojump_clock: MockClock) -> None:
    async with (
        serving(links=MemoryNet()) as server,
        server.client() as one,
        server.client() as other,
    ):
        await one.request(produce(1), m.Produced, 5)
        await other.request(produce(1), m.Produced, 5)
        await other.request(produce(2), m.Produced, 5)
        assert [len(session.heard) for session in server.sessions] == [1, 2]


async def test_a_session_learns_of_the_end_and_its_tasks_are_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with serving(links=MemoryNet()) as server:
        async with server.client() as client:
            await client.request(produce(1), m.Produced, 5)
            session = server.sessions[0]
            session.nursery.start_soon(trio.sleep_forever)
            assert not session.ended.is_set()
        await wait_all_tasks_blocked()
        assert session.ended.is_set()
        assert session.connection.end_reason is not None
        assert session.nursery.cancel_scope.cancel_called


@pytest.mark.parametrize(
    ("topic", "event"),
    [
        ("fault", "message_handler_failed"),
        ("crash", "session_failed"),
    ],
)
async def test_a_fault_in_one_session_ends_only_its_connection(
    topic: str, event: str, autojump_clock: MockClock
) -> None:
    async with serving(links=MemoryNet()) as server, server.client() as other:
        with capture_logs() as logs:
            async with server.client() as client:
                with pytest.raises(ConnectionLostError):
                    await client.request(produce(1, topic), m.Produced, 5)
        assert [entry["event"] for entry in logs] == [event]
        assert server.sessions[1].ended.is_set()
        await other.request(produce(1), m.Produced, 5)
        await server.still_serves()


async def test_a_peer_without_a_hello_has_no_session(autojump_clock: MockClock) -> None:
    async with serving(links=MemoryNet()) as server:
        link = await server.environment.net.connect(server.url, CLIENT.path)
        await link.send(encode(produce(1)))
        with capture_logs() as logs:
            await wait_all_tasks_blocked()
        assert [entry["event"] for entry in logs] == ["handshake_failed"]
        assert server.sessions == []
        await server.still_serves()


async def test_the_membership_endpoint_notices_silence_sooner(autojump_clock: MockClock) -> None:
    async with serving(links=MemoryNet()) as server:
        await server.connect(MEMBERSHIP)
        await wait_all_tasks_blocked()
        start = trio.current_time()
        await server.sessions[0].ended.wait()
        assert trio.current_time() - start == MEMBERSHIP_HEARTBEAT_TIMEOUT_S


async def test_stopping_finishes_requests_in_progress_and_refuses_new_ones(
    autojump_clock: MockClock,
) -> None:
    async with serving(links=MemoryNet()) as server, server.client() as client:
        answers: list[object] = []
        client.ask(produce(1, "later"), answers.append)
        await wait_all_tasks_blocked()
        server.stop.set()
        await wait_all_tasks_blocked()
        with pytest.raises(UnreachableError):
            await server.connect()
        with pytest.raises(RefusedError) as caught:
            await client.request(produce(2), m.Produced, 5)
        assert caught.value.status is Status.SHUTTING_DOWN
        assert caught.value.retryable
        server.sessions[0].connection.post(m.Produced(1, Offset(0), Epoch(1), False))
        await server.ended.wait()
        assert answers[0] == m.Produced(1, Offset(0), Epoch(1), False)
        assert client.end_reason is not None
        assert client.end_reason.endswith("closed the connection (1001): the node is shutting down")
        assert trio.current_time() < SHUTDOWN_GRACE_S


async def test_stopping_waits_a_bounded_time(autojump_clock: MockClock) -> None:
    async with serving(links=MemoryNet()) as server, server.client() as client:
        client.post(produce(1, "later"))
        await wait_all_tasks_blocked()
        server.stop.set()
        await server.ended.wait()
        assert trio.current_time() == SHUTDOWN_GRACE_S


async def test_a_connection_in_its_handshake_is_closed_when_the_server_stops(
    autojump_clock: MockClock,
) -> None:
    async with serving(links=MemoryNet()) as server, server.client() as client:
        link = await server.environment.net.connect(server.url, CLIENT.path)
        await wait_all_tasks_blocked()
        client.post(produce(1, "later"))
        await wait_all_tasks_blocked()
        server.stop.set()
        await wait_all_tasks_blocked()
        await link.send(encode(m.Hello(1, "late")))
        await link.receive()
        with pytest.raises(ConnectionLostError, match=r"1001.*the node is shutting down"):
            await link.receive()
        assert trio.current_time() < SHUTDOWN_GRACE_S
        await server.ended.wait()


async def test_stopping_does_not_wait_for_a_peer_that_never_begins_its_handshake(
    autojump_clock: MockClock,
) -> None:
    async with serving(links=MemoryNet()) as server:
        link = await server.environment.net.connect(server.url, CLIENT.path)
        await wait_all_tasks_blocked()
        server.stop.set()
        await server.ended.wait()
        with pytest.raises(ConnectionLostError):
            await link.receive()
        assert trio.current_time() == 0


async def test_an_idle_server_stops_at_once(autojump_clock: MockClock) -> None:
    async with serving(links=MemoryNet()) as server:
        server.stop.set()
        await server.ended.wait()
        assert trio.current_time() == 0


async def test_starting_a_server_at_an_address_in_use_raises(
    autojump_clock: MockClock,
) -> None:
    async with serving(links=MemoryNet()) as server:
        with pytest.raises(UnreachableError, match="another program listens there"):
            await serve(
                environment_of(server.environment.net),
                server.url.removeprefix("ws://"),
                "broker",
                "second",
                {},
                stop=trio.Event(),
            )
