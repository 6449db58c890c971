"""Connection slots of a full node: operators and nodes get one, strangers and clients don't."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.errors import OctopiError, RefusedError, Status
from octopi.identifiers import Offset, PartitionId
from octopi.operating_system import SystemClock, SystemStream, SystemStreams
from octopi.security.authenticator import Authenticator
from octopi.transport.connection import Connection
from octopi.transport.handshake import NodeCredentials, accept_connection
from octopi.wire import messages as m
from octopi.wire.codec import encode
from octopi.wire.endpoints import CLIENT, FOLLOW, MEMBERSHIP, Endpoint
from tests.kit.join_secrets import MEMBER, SECRETS, prove, secrets_of
from tests.kit.links import MemoryLink, MemoryNet, link_pair
from tests.kit.streams import MemoryStreams
from tests.security.tokens import key_ring, token
from tests.transport.serving import Server, environment_of, serving
from tests.transport.test_hostile_peers import UPGRADE, all_of, masked

PLACES = 16
CLIENTS = 14
"""So many of the places are for clients."""


async def full(server: Server, held: AsyncExitStack, text: str | None = None) -> list[Connection]:
    """As many clients as the node has places for."""
    return [await held.enter_async_context(server.client(token=text)) for _ in range(CLIENTS)]


async def refused(server: Server, text: str | None = None) -> RefusedError:
    with pytest.raises(RefusedError, match="no place for another client") as caught:
        async with server.client(token=text):
            pass
    assert caught.value.status is Status.OVER_LIMIT
    assert caught.value.retryable
    return caught.value


async def asked(connection: Connection) -> None:
    await connection.request(
        m.Produce(connection.next_request(), "t", PartitionId(0), b""), m.Produced, 5
    )


# --- strangers -----------------------------------------------------------------------


HELLO = masked(encode(m.Hello(1, "stranger", nonce=b"x" * 32)))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        UPGRADE[:50],
        UPGRADE,
        UPGRADE + masked(encode(m.Hello(1, "an operator", nonce=b"x" * 32))),
        UPGRADE.replace(b"/v1/client", MEMBERSHIP.path.encode()),
        UPGRADE.replace(b"/v1/client", MEMBERSHIP.path.encode()) + HELLO,
    ],
    ids=["nothing", "half a head", "no hello", "no proof", "a node's head", "a node's hello"],
)
async def test_an_unproven_connection_is_closed_for_a_new_one(
    said: bytes, autojump_clock: MockClock
) -> None:
    async with serving(streams=MemoryStreams(), connections_max=PLACES) as server:
        async with AsyncExitStack() as held, server.client() as client:
            strangers = []
            for _ in range(4 * PLACES):
                stream = await server.streams.connect("127.0.0.1", server.port)
                strangers.append(await held.enter_async_context(stream))
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(said)
            await wait_all_tasks_blocked()
            assert server.websockets.connection_count == PLACES
            async with server.client() as another, server.client(shown=MEMBER) as operator:
                for one in (client, another, operator):
                    await asked(one)
            node = await server.connect(MEMBERSHIP)
            await node.close()
            assert trio.current_time() == 0
            for stream in strangers[: 3 * PLACES]:
                await all_of(stream)
            assert trio.current_time() < 0.1, "they had to go at once"
        await server.still_serves()


async def test_a_connection_closed_for_another_frees_its_descriptor_at_once() -> None:
    """Else a crowd would have more of them than a node has places."""
    streams = SystemStreams()
    listening = await streams.listen("127.0.0.1", 0)
    [listener] = listening.listeners
    async with listener, await streams.connect("127.0.0.1", listening.port):
        accepted = await listener.accept()
        assert isinstance(accepted, SystemStream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_hears_that_it_is_closed, accepted)
            await wait_all_tasks_blocked()
            accepted.cut()
            assert accepted._socket.fileno() == -1
            accepted.cut()
        await _hears_that_it_is_closed(accepted)
        with pytest.raises(trio.ClosedResourceError):
            accepted.receive_nowait(1)


async def _hears_that_it_is_closed(stream: SystemStream) -> None:
    with pytest.raises(trio.ClosedResourceError):
        await stream.receive_some(1)


async def test_closing_strangers_over_sockets_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with serving(connections_max=PLACES) as server, AsyncExitStack() as held:
        strangers = []
        for _ in range(2 * PLACES):
            stream = await server.streams.connect("127.0.0.1", server.port)
            strangers.append(await held.enter_async_context(stream))
            await stream.send_all(UPGRADE[:50])
        with trio.fail_after(5):
            for stream in strangers[:PLACES]:
                assert await all_of(stream) == b""
        await server.still_serves()
    assert [one.getMessage() for one in caplog.records] == []


# --- clients and operators -----------------------------------------------------------


async def test_an_operator_with_the_join_secret_connects_when_clients_have_all_slots(
    autojump_clock: MockClock,
) -> None:
    async with serving(streams=MemoryStreams(), connections_max=PLACES) as server:
        async with AsyncExitStack() as held:
            clients = await full(server, held)
            error = await refused(server)
            assert "--join-secret FILE" in str(error)
            async with server.client(shown=MEMBER) as operator:
                await asked(operator)
                assert clients[-1].end_reason is not None, "the newest one had to go"
                for client in clients[:-1]:
                    await asked(client)
                await refused(server)
        await server.still_serves()


async def test_a_guessed_join_secret_gives_no_connection_slot(autojump_clock: MockClock) -> None:
    """Not from this machine either: where a connection comes from proves nothing."""
    async with (
        serving(streams=MemoryStreams(), connections_max=PLACES) as server,
        AsyncExitStack() as held,
    ):
        clients = await full(server, held)
        guess = NodeCredentials(secrets_of(b"guessed"))
        with pytest.raises(RefusedError, match="does not belong to the cluster"):
            async with server.client(shown=guess):
                pass
        stream = await server.streams.connect("127.0.0.1", server.port)
        await held.enter_async_context(stream)
        proof = masked(encode(m.Proof(b"x" * 32)))
        await stream.send_all(UPGRADE + HELLO + proof)
        assert b"you did not prove that you have the join secret" in await all_of(stream)
        for client in clients:
            await asked(client)


async def test_only_a_token_with_admin_on_all_topics_gets_a_reserved_slot(
    autojump_clock: MockClock,
) -> None:
    door = Authenticator(key_ring(), SystemClock())
    async with serving(
        streams=MemoryStreams(), connections_max=PLACES, authenticator=door
    ) as server:
        async with AsyncExitStack() as held:
            clients = await full(server, held, token(publish="*"))
            for text in (token(publish="*"), token(admin="orders.*"), token(replicate="*")):
                await refused(server, text)
            async with server.client(token=token(subject="operator", admin="*")) as operator:
                await trio.sleep(1)
                assert operator.end_reason is None
                assert sum(one.end_reason is not None for one in clients) == 1
        assert door.subject_count == 0, "who is refused for want of a place has left"


async def test_an_operator_with_the_join_secret_still_needs_a_token(
    autojump_clock: MockClock,
) -> None:
    door = Authenticator(key_ring(), SystemClock())
    async with serving(streams=MemoryStreams(), authenticator=door) as server:
        with pytest.raises(RefusedError, match="requires a token"):
            async with server.client(shown=MEMBER):
                pass
        shown = NodeCredentials(SECRETS, lambda: token(publish="*"))
        async with server.client(shown=shown) as operator:
            with pytest.raises(RefusedError) as denied:
                await operator.request(
                    m.Fetch(1, "t", PartitionId(0), Offset(0), 1, 0), m.Fetched, 5
                )
            assert denied.value.status is Status.FORBIDDEN


async def test_nodes_connect_one_after_another_when_clients_have_all_slots(
    autojump_clock: MockClock,
) -> None:
    async with (
        serving(streams=MemoryStreams(), connections_max=PLACES) as server,
        trio.open_nursery() as nursery,
    ):
        async with AsyncExitStack() as held:
            clients = await full(server, held)
            nodes = []
            for _ in range(6):
                nodes.append(await server.connect(MEMBERSHIP))
                await nursery.start(nodes[-1].run, lambda message: None)
            await trio.sleep(1)
            assert sum(one.end_reason is None for one in clients) == CLIENTS - 6
            assert all(one.end_reason is None for one in nodes)
            async with server.client(shown=MEMBER) as operator:
                await asked(operator)
        nursery.cancel_scope.cancel()


# --- turns ---------------------------------------------------------------------------


class NotedTurn:
    """A `Turn` that notes whether anything was done in it."""

    def __init__(self) -> None:
        self.is_over = False
        self.useless_count = 0
        self.begun = self.ended = 0

    def begin(self) -> bool:
        self.begun += 1
        return True

    async def wait(self) -> None:
        raise NotImplementedError

    def look(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.ended += 1

    async def give_way(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("endpoint", [CLIENT, MEMBERSHIP, FOLLOW], ids=lambda one: one.path)
async def test_work_for_an_unproven_node_does_not_use_the_share_of_nodes(
    endpoint: Endpoint, autojump_clock: MockClock
) -> None:
    for is_proven in (False, True):
        peer, link = link_pair()
        strangers, nodes = NotedTurn(), NotedTurn()

        async def say(peer: MemoryLink, is_proven: bool) -> None:
            if is_proven:
                await prove(peer, endpoint.path, SECRETS(), "test")
            else:
                await peer.send(encode(m.Hello(1, "a stranger", nonce=b"x" * 32)))
                await peer.receive()
                await peer.send(encode(m.Proof(b"x" * 32)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(say, peer, is_proven)
            with suppress(OctopiError):
                await accept_connection(
                    environment_of(MemoryNet()),
                    link,
                    endpoint,
                    role="register" if endpoint is MEMBERSHIP else "broker",
                    agent="test",
                    opening=strangers,  # type: ignore[arg-type]
                    turn=nodes,  # type: ignore[arg-type]
                    secrets=SECRETS,
                )
            nursery.cancel_scope.cancel()
        assert (strangers.begun, nodes.begun) == (2, 0)
        assert strangers.ended >= strangers.begun
