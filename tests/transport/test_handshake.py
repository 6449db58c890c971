"""Hello and welcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from octopi.environment import Link
from octopi.errors import (
    ConnectionLostError,
    OctopiError,
    ProtocolError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.identifiers import Incarnation
from octopi.limits import (
    CLOSE_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    HANDSHAKE_TIMEOUT_S,
    HELLO_BYTES_MAX,
    MESSAGE_BYTES_MAX,
)
from octopi.security.join_secret import ProofContext, Side
from octopi.transport.handshake import accept_connection, open_connection
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import CLIENT, MEMBERSHIP, Endpoint
from tests.kit.join_secrets import SECRETS
from tests.kit.links import MemoryLink, MemoryNet, link_pair
from tests.transport.serving import environment_of

EVERY_CLASS = frozenset(m.TYPE_NAMES)
WELCOME = m.Welcome(1, "broker", "test", 5000, 20000, MESSAGE_BYTES_MAX)


async def open_at(
    serve: Callable[[Link], Awaitable[None]], token: str | None = None, name: str = ""
) -> m.Welcome:
    """Open a connection to what *serve* does with a link; returns its greeting."""
    net = MemoryNet()
    async with trio.open_nursery() as nursery:
        paths = frozenset({CLIENT.path})

        async def listen(*, task_status: trio.TaskStatus[str]) -> None:
            await net.listen(
                "a:1", serve, paths=paths, handler_nursery=nursery, task_status=task_status
            )

        url = await nursery.start(listen)
        error: OctopiError | None = None
        try:
            connection = await open_connection(
                environment_of(net), url, CLIENT, "test", token=token, name=name
            )
        except OctopiError as caught:
            error = caught
        nursery.cancel_scope.cancel()
    if error is not None:
        assert net.links[0].closed_with is not None
        raise error
    assert isinstance(connection.greeting, m.Welcome)
    return connection.greeting


def answering(*answers: bytes) -> Callable[[Link], Awaitable[None]]:
    async def serve(link: Link) -> None:
        await link.receive()
        for answer in answers:
            await link.send(answer)

    return serve


async def test_the_connecting_side_says_hello_first(autojump_clock: MockClock) -> None:
    heard: list[bytes] = []

    async def serve(link: Link) -> None:
        heard.append(await link.receive())
        await link.send(encode(WELCOME))

    assert await open_at(serve, token="secret") == WELCOME
    assert decode(heard[0], EVERY_CLASS) == m.Hello(2, "test", "secret")


async def test_the_hello_of_a_connection_carries_its_name(autojump_clock: MockClock) -> None:
    heard: list[bytes] = []

    async def serve(link: Link) -> None:
        heard.append(await link.receive())
        await link.send(encode(WELCOME))

    await open_at(serve, name="billing")
    assert decode(heard[0], EVERY_CLASS) == m.Hello(2, "test", name="billing")


async def test_a_node_that_does_not_answer_is_unreachable(autojump_clock: MockClock) -> None:
    with pytest.raises(UnreachableError, match="ws://a:1 did not answer within 5 s"):
        await open_at(answering())
    assert trio.current_time() == CONNECT_TIMEOUT_S


async def test_a_node_that_hangs_up_is_unreachable(autojump_clock: MockClock) -> None:
    async def serve(link: Link) -> None:
        await link.aclose(1001, "not today")

    with pytest.raises(UnreachableError, match=r"did not welcome us: .*not today"):
        await open_at(serve)


@pytest.mark.parametrize(
    ("answer", "expected", "text"),
    [
        (m.Failure(None, Status.TOO_MANY, "full"), RefusedError, "full"),
        (
            attrs.evolve(WELCOME, version=3),
            RefusedError,
            "speaks version 3 of the protocol, we 1 to 2",
        ),
        (m.Done(1), ProtocolError, "done: it may not be sent here now"),
        (
            attrs.evolve(WELCOME, heartbeat_interval_ms=0),
            ProtocolError,
            "welcome.heartbeat_interval_ms: 0",
        ),
        (
            attrs.evolve(WELCOME, heartbeat_timeout_ms=5000),
            ProtocolError,
            "welcome.heartbeat_interval_ms: 5000",
        ),
    ],
)
async def test_an_answer_other_than_a_valid_welcome_is_refused(
    answer: object, expected: type[OctopiError], text: str, autojump_clock: MockClock
) -> None:
    with pytest.raises(expected, match=text):
        await open_at(answering(encode(answer)))


async def accept(link: MemoryLink, endpoint: Endpoint = CLIENT) -> m.Hello:
    """What the accepting side heard."""
    environment = environment_of(MemoryNet())
    connection = await accept_connection(
        environment, link, endpoint, role="register", agent="octopi/1", secrets=SECRETS
    )
    assert isinstance(connection.greeting, m.Hello)
    return connection.greeting


@pytest.mark.parametrize("version", [1, 2, 100])
async def test_a_hello_is_welcomed_with_what_this_endpoint_asks_for(
    version: int, autojump_clock: MockClock
) -> None:
    peer, link = link_pair()
    await peer.send(encode(m.Hello(version, "test", "secret")))
    assert await accept(link) == m.Hello(version, "test"), "the token is kept nowhere"
    assert decode(await peer.receive(), EVERY_CLASS) == m.Welcome(
        version=min(version, 2),
        role="register",
        agent="octopi/1",
        heartbeat_interval_ms=5000,
        heartbeat_timeout_ms=20000,
        message_bytes_max=MESSAGE_BYTES_MAX,
    )
    assert link.closed_with is None


async def test_a_node_that_proves_that_it_is_one_is_welcomed_with_heartbeats_of_nodes(
    autojump_clock: MockClock,
) -> None:
    peer, link = link_pair()
    heard: list[m.Hello] = []

    async def listen() -> None:
        heard.append(await accept(link, MEMBERSHIP))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await peer.send(encode(m.Hello(1, "test", nonce=b"n" * 32)))
        challenge = decode(await peer.receive(), EVERY_CLASS)
        assert isinstance(challenge, m.Challenge)
        opening = ProofContext(MEMBERSHIP.path, b"n" * 32, challenge.nonce)
        (key,) = SECRETS().keys
        assert challenge.proofs == [opening.proof(key, Side.ACCEPTING)]
        await peer.send(encode(m.Proof(opening.proof(key, Side.CONNECTING), "token")))
        welcome = decode(await peer.receive(), EVERY_CLASS)
        assert isinstance(welcome, m.Welcome)
        assert (welcome.heartbeat_interval_ms, welcome.heartbeat_timeout_ms) == (250, 1000)
    assert heard == [m.Hello(1, "test")], "nonces and tokens are kept nowhere"


async def test_a_proof_that_never_comes_is_not_waited_for(autojump_clock: MockClock) -> None:
    peer, link = link_pair()
    await peer.send(encode(m.Hello(1, "test", nonce=b"n" * 32)))
    with pytest.raises(ProtocolError, match="no proof within 5 s"):
        await accept(link, MEMBERSHIP)
    assert trio.current_time() == HANDSHAKE_TIMEOUT_S


@pytest.mark.parametrize(
    ("first", "status", "code"),
    [
        (encode(m.Hello(0, "old")), Status.UNSUPPORTED_VERSION, 1002),
        (
            encode(m.Join(1, "", None, Incarnation(1), "n", [], None, "ws://a:1")),
            Status.WRONG_ENDPOINT,
            1002,
        ),
        (encode(m.Heartbeat()), Status.WRONG_ENDPOINT, 1002),
        (b"GET / HTTP/1.1", Status.MALFORMED_MESSAGE, 1002),
        (bytes(HELLO_BYTES_MAX + 1), Status.MESSAGE_TOO_LARGE, 1009),
        (encode(m.Hello(1, "", "x" * HELLO_BYTES_MAX)), Status.MESSAGE_TOO_LARGE, 1009),
    ],
)
async def test_a_peer_that_does_not_begin_with_a_hello_is_refused(
    first: bytes, status: Status, code: int, autojump_clock: MockClock
) -> None:
    peer, link = link_pair()
    await peer.send(first)
    with pytest.raises(ProtocolError) as caught:
        await accept(link)
    assert caught.value.status is status
    said = decode(await peer.receive(), EVERY_CLASS)
    assert said == m.Failure(None, status, str(caught.value))
    assert link.closed_with == (code, str(caught.value))


async def test_a_hello_that_never_comes_is_not_waited_for(autojump_clock: MockClock) -> None:
    peer, link = link_pair()
    with pytest.raises(ProtocolError, match="no hello within 5 s"):
        await accept(link)
    assert trio.current_time() == HANDSHAKE_TIMEOUT_S
    said = decode(await peer.receive(), EVERY_CLASS)
    assert said == m.Failure(None, Status.TOO_SLOW, "no hello within 5 s")
    assert link.closed_with == (4408, "no hello within 5 s")


@pytest.mark.parametrize("first", [encode(m.Hello(1, "test")), b"nonsense"])
async def test_a_peer_that_takes_nothing_is_not_waited_for(
    first: bytes, autojump_clock: MockClock
) -> None:
    peer, link = link_pair(capacity=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.send, first)
        with pytest.raises((ProtocolError, ConnectionLostError)):
            await accept(link)
    assert trio.current_time() <= HANDSHAKE_TIMEOUT_S + CLOSE_TIMEOUT_S
    assert link.closed_with is not None


async def test_a_peer_that_leaves_before_its_hello_is_lost(autojump_clock: MockClock) -> None:
    peer, link = link_pair()
    await peer.aclose()
    with pytest.raises(ConnectionLostError):
        await accept(link)
    assert link.closed_with is not None
